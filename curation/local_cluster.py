"""A dask.distributed cluster on this machine: a scheduler and worker processes, started and monitored by dask's own classes."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HOST = "127.0.0.1"
"""Only this machine can reach the cluster, because whoever reaches a scheduler can run code at its workers."""

_LEVEL: Any = logging.WARNING
"""Level of what distributed logs; it annotates this as a bool."""

_GO_ON = "import signal; signal.signal(signal.SIGINT, lambda *_: None)"
"""Code that a worker begins with: Ctrl-C in a terminal reaches the workers too, but it is the cluster that ends them."""


@dataclasses.dataclass(frozen=True)
class WorkerKind:
    """Worker processes of one kind.

    Attributes:
        count: number of workers.
        threads: number of parts that a worker makes at a time.
        memory_bytes: memory limit of a worker, which is restarted if it exceeds the limit; 0: no limit.
        gpus: indices of the GPUs, which are assigned to the workers in turn, one each; empty: the workers have no GPU.
        resources: what each worker offers besides a GPU, and how much of it.
    """

    count: int
    threads: int
    memory_bytes: int
    gpus: Sequence[int] = ()
    resources: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])

    def worker_of(self, number: int) -> dict[str, Any]:
        """Specification of worker ``number`` for ``SpecCluster``."""
        import dask
        from distributed import Nanny

        own: dict[str, Any] = {"resources": dict(self.resources)}
        if self.gpus:
            gpu = self.gpus[number % len(self.gpus)]
            own = {"resources": {**self.resources, "GPU": 1}, "env": {"CUDA_VISIBLE_DEVICES": str(gpu)}}
        return {
            "cls": Nanny,
            "options": {
                "nthreads": self.threads,
                "memory_limit": self.memory_bytes,
                "host": HOST,
                "dashboard_address": f"{HOST}:0",
                "silence_logs": _LEVEL,  # also in the worker's own process
                "preload": [*dask.config.get("distributed.worker.preload"), _GO_ON],
                **own,
            },
        }


@contextlib.contextmanager
def local_cluster(
    cpu: WorkerKind, gpu: WorkerKind, *, port: int = 0, lost_workers: int = 3, adaptive: tuple[int, int] | None = None
) -> Iterator[Any]:
    """A cluster for the duration of the block; pass its ``scheduler_address`` to ``run``.

    Args:
        cpu, gpu: the workers without and with GPUs.
        port: port of the scheduler; 0 for any free one.
        lost_workers: number of workers that may die while making a part before the part fails.
        adaptive: minimum and maximum number of workers, which are added when there is work and removed when there is none;
            these workers are without GPU, and ``cpu.count`` is their number at the start.

    Raises:
        OSError: the port is taken.
    """
    from distributed import Scheduler, SpecCluster

    workers = {f"cpu-{n}": cpu.worker_of(n) for n in range(cpu.count)} | {
        f"gpu-{n}": gpu.worker_of(n) for n in range(gpu.count)
    }
    options = {"host": HOST, "port": port, "dashboard": False, "dashboard_address": f"{HOST}:0"}
    scheduler = {"cls": Scheduler, "options": {**options, "allowed_failures": lost_workers}}
    try:
        cluster = SpecCluster(workers=workers, scheduler=scheduler, worker=cpu.worker_of(0), silence_logs=_LEVEL)
    except RuntimeError as error:  # its cause says why the scheduler did not start
        cause = error.__cause__
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        raise cause or error from None
    with cluster:
        if adaptive is not None:
            cluster.adapt(minimum=adaptive[0], maximum=adaptive[1])
        yield cluster
