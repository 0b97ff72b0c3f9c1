"""A local cluster with settings from a TOML file: ``benchwright cluster``."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..curation.local_cluster import HOST, WorkerKind, local_cluster
from .config import ConfigError, load
from .settings_type import settings_type

_Count = Annotated[int, Field(ge=0, le=4096)]
_Memory = Annotated[float, Field(ge=0, le=1e6)]


@settings_type
class CpuWorkers:
    """Worker processes without GPU.

    Attributes:
        workers: number of workers; the number at the start if it is adaptive.
        threads: parts that each makes at a time, 1 for steps in pure Python.
        memory_gib: memory limit of each in GiB; a worker that exceeds it is restarted; 0 for no limit.
        resources: what each offers for ``run --needs`` and how much of it, such as ``{ BIG_MEMORY = 1 }``.

    >>> CpuWorkers(workers=4, memory_gib=8).threads
    1
    """

    workers: _Count = 2
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_gib: _Memory = 0.0
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)


@settings_type
class GpuWorkers:
    """Worker processes with one GPU each, for stages and trainings whose ``device`` is a GPU.

    Attributes:
        workers: number of workers.
        threads: parts that each makes at a time; only one at a time of those that need a GPU.
        memory_gib: memory limit of each in GiB (not of the GPU), as for workers without GPU.
        devices: numbers of the GPUs, assigned to the workers in turn; by default the first GPUs, one per worker.

    >>> GpuWorkers(workers=2, devices=[0, 3]).devices
    [0, 3]
    """

    workers: _Count = 0
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_gib: _Memory = 0.0
    devices: list[_Count] = Field(default_factory=list)


@settings_type
class Adaptive:
    """Limits for workers that are started and stopped as needed.

    Attributes:
        minimum: fewest workers.
        maximum: most workers.

    >>> Adaptive(minimum=0, maximum=16).maximum
    16
    """

    minimum: _Count
    maximum: Annotated[int, Field(ge=1, le=4096)]


@settings_type
class ClusterConfig:
    """Settings of a local cluster.

    Attributes:
        port: port of the scheduler on this machine; 0 for any free port.
        lost_workers: how many workers may die while making a part before the run gives up on it.
        cpu: workers without GPU.
        gpu: workers with one GPU each.
        adaptive: limits for workers that are started and stopped as needed, without GPUs; by default their number is fixed.

    >>> ClusterConfig(cpu=CpuWorkers(workers=4)).port
    8786
    """

    port: Annotated[int, Field(ge=0, le=65535)] = 8786
    lost_workers: Annotated[int, Field(ge=0, le=1_000_000)] = 3
    cpu: CpuWorkers = Field(default_factory=CpuWorkers)
    gpu: GpuWorkers = Field(default_factory=GpuWorkers)
    adaptive: Adaptive | None = None


def cluster(file: str, *, tell: Callable[[str], None] = print, until: Callable[[], Any] | None = None) -> None:
    """Start a scheduler and workers on this machine, and run them until the process is interrupted.

    Args:
        file: TOML file with ``ClusterConfig``.
        tell: called with the address for ``run`` and ``train`` once the workers have started.
        until: called next; the cluster ends when it returns; None: it runs until interrupted.

    Raises:
        WrongUse: invalid settings, or a port that is taken.
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
        WorkerKind(cpu.workers, cpu.threads, round(cpu.memory_gib * 2**30), resources=cpu.resources),
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
    """Raise ``ConfigError`` if settings contradict each other."""
    cpu, gpu, adaptive = config.cpu, config.gpu, config.adaptive
    if adaptive is None and not cpu.workers + gpu.workers:
        raise ConfigError(f"{file}: cpu.workers = 0 and gpu.workers = 0: there would be no workers: set one of them")
    if adaptive is not None and adaptive.minimum > adaptive.maximum:
        rule = "it is more than adaptive.maximum"
        raise ConfigError(f"{file}: adaptive.minimum = {adaptive.minimum}: {rule} = {adaptive.maximum}: lower it")
    if adaptive is not None and gpu.workers:
        message = f"gpu.workers = {gpu.workers}: GPU workers cannot be adaptive"
        raise ConfigError(f"{file}: {message}: leave out [adaptive], or [gpu]")
