"""A local cluster by the settings of a TOML file: ``benchwright cluster``."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..curation.local_cluster import HOST, WorkerKind, local_cluster
from .config import ConfigError, load

_Count = Annotated[int, Field(ge=0, le=4096)]
_Memory = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CpuWorkers:
    """Worker processes without GPU.

    Attributes:
        workers: how many there are, at the start where they come and go.
        threads: parts that each makes at a time, 1 for steps in pure Python.
        memory_gib: GiB of memory of each; one that holds more is ended and begun again, 0 for no limit.
    """

    workers: _Count = 2
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_gib: _Memory = 0.0


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GpuWorkers:
    """Worker processes with one GPU each, for stages and trainings whose ``device`` is a GPU.

    Attributes:
        workers: how many there are.
        threads: parts that each makes at a time; of those that need a GPU, one at a time.
        memory_gib: GiB of memory (not of the GPU) of each, as for workers without GPU.
        devices: numbers of the GPUs, which the workers take in turn; as many as there are workers by default.
    """

    workers: _Count = 0
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_gib: _Memory = 0.0
    devices: list[_Count] = Field(default_factory=list)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Adaptive:
    """Workers that come when there is work and go when there is none.

    Attributes:
        minimum: fewest workers.
        maximum: most workers.
    """

    minimum: _Count
    maximum: Annotated[int, Field(ge=1, le=4096)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ClusterConfig:
    """Settings of a local cluster.

    Attributes:
        port: of the scheduler on this machine; 0 for any that is free.
        lost_workers: how many workers may die at a part before it is given up.
        cpu: workers without GPU.
        gpu: workers with one GPU each.
        adaptive: workers that come and go, where there are no GPUs; without it their number stays.

    >>> ClusterConfig(cpu=CpuWorkers(workers=4)).port
    8786
    """

    port: Annotated[int, Field(ge=0, le=65535)] = 8786
    lost_workers: Annotated[int, Field(ge=0, le=1_000_000)] = 3
    cpu: CpuWorkers = Field(default_factory=CpuWorkers)
    gpu: GpuWorkers = Field(default_factory=GpuWorkers)
    adaptive: Adaptive | None = None


def cluster(file: str, *, tell: Callable[[str], None] = print, until: Callable[[], Any] | None = None) -> None:
    """Start a scheduler and workers on this machine, and keep them until the process is interrupted.

    Args:
        file: TOML of ``ClusterConfig``.
        tell: given the address for ``run`` and ``train``, when the workers are there.
        until: called then, and the cluster ends when it returns; None: it waits for ever.

    Raises:
        WrongUse: settings that do not fit, or a port that is taken.
        NeedsPackage: dask.distributed is not installed.

    >>> from pathlib import Path
    >>> size = Path("cluster.toml").write_text("port = 70000")
    >>> cluster("cluster.toml")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.config.ConfigError: cluster.toml: port = 70000: ...
    """
    config, _, _ = load(ClusterConfig, Path(file))
    _check(config, file)
    cpu, gpu, adaptive = config.cpu, config.gpu, config.adaptive
    devices = gpu.devices or list(range(gpu.workers))
    kinds = (
        WorkerKind(cpu.workers, cpu.threads, round(cpu.memory_gib * 2**30)),
        WorkerKind(gpu.workers, gpu.threads, round(gpu.memory_gib * 2**30), devices),
    )
    limits = None if adaptive is None else (adaptive.minimum, adaptive.maximum)
    try:
        with local_cluster(*kinds, port=config.port, lost_workers=config.lost_workers, adaptive=limits) as made:
            tell(made.scheduler_address)
            (until or threading.Event().wait)()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ConfigError(
            f"{file}: port = {config.port}: {HOST} has a server on that port: choose another, or 0 for any"
        ) from None


def _check(config: ClusterConfig, file: str) -> None:
    """Raise ``ConfigError`` if settings do not fit one another."""
    cpu, gpu, adaptive = config.cpu, config.gpu, config.adaptive
    if adaptive is None and not cpu.workers + gpu.workers:
        raise ConfigError(f"{file}: cpu.workers = 0 and gpu.workers = 0: there would be no workers: set one of them")
    if adaptive is not None and adaptive.minimum > adaptive.maximum:
        rule = "it is more than adaptive.maximum"
        raise ConfigError(f"{file}: adaptive.minimum = {adaptive.minimum}: {rule} = {adaptive.maximum}: lower it")
    if adaptive is not None and gpu.workers:
        message = f"gpu.workers = {gpu.workers}: GPU workers cannot be adaptive"
        raise ConfigError(f"{file}: {message}: leave out [adaptive], or [gpu]")
