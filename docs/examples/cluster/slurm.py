"""Workers in the queue of a Slurm cluster, by dask-jobqueue: prints the address for ``benchwright run --scheduler``.

    pip install dask-jobqueue
    python slurm.py --jobs 20                                   # on a node that the jobs reach; Ctrl-C ends them
    python slurm.py --jobs 20 --gpu-jobs 2 --gpu-queue gpu      # also two jobs with a GPU each

CPU jobs come when there is work and go when there is none. With GPU jobs, both numbers are fixed: dask scales by the amount of
work alone, and would close workers of either kind.

A worker leaves 5 to 15 minutes before its job must end, and another job replaces it; this does not count as a lost worker.
Another worker begins the part that it was making anew; a training resumes from its last checkpoint. So ``--hours`` must exceed
the time of the longest part, such as that of a ``whole`` stage: a part that takes longer never ends.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
from typing import Any

from dask_jobqueue import SLURMCluster


def slurm_cluster(*, hours: int = 4, **changes: Any) -> SLURMCluster:
    """One worker a job of so many hours; ``changes`` are settings of dask-jobqueue, such as ``queue``."""
    settings: dict[str, Any] = {
        "cores": 1,
        "processes": 1,
        "memory": "8GiB",
        "walltime": f"{hours:02}:00:00",
        "job_extra_directives": ["--requeue"],
        "worker_extra_args": ["--lifetime", f"{60 * hours - 10}m", "--lifetime-stagger", "5m"],
        "scheduler_options": {"dashboard": False, "allowed_failures": 10},
    }
    return SLURMCluster(**{**settings, **changes})


def submit(cluster: SLURMCluster, jobs: int, gpu_jobs: int = 0, **changes: Any) -> None:
    """Keep the jobs in the queue; ``changes`` are settings of those with a GPU."""
    cpu: dict[str, Any] = cluster.new_spec["options"]
    directives = [*cpu["job_extra_directives"], "--gres=gpu:1"]
    arguments = [*cpu["worker_extra_args"], "--resources", "GPU=1"]
    gpu = {**cpu, "job_extra_directives": directives, "worker_extra_args": arguments, **changes}
    cluster.worker_spec |= {f"gpu-{n}": {**cluster.new_spec, "options": gpu} for n in range(gpu_jobs)}
    both = jobs + gpu_jobs
    cluster.adapt(minimum_jobs=both if gpu_jobs else min(1, jobs), maximum_jobs=both)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=20, help="most jobs without a GPU; with --gpu-jobs, their number")
    parser.add_argument("--gpu-jobs", type=int, default=0)
    parser.add_argument("--hours", type=int, default=4, help="time limit of each job")
    parser.add_argument("--queue", help="partition; default: Slurm's")
    parser.add_argument("--gpu-queue", help="partition of the jobs with a GPU; default: --queue")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), slurm_cluster(hours=args.hours, queue=args.queue) as cluster:
        submit(cluster, args.jobs, args.gpu_jobs, queue=args.gpu_queue or args.queue)
        print(cluster.scheduler_address, flush=True)
        signal.pause()
