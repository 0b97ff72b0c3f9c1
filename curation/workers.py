"""Workers on this machine that make the parts of stages: threads or processes; and what ``cluster_workers`` does like them.

Workers in other processes return small records, never rows.
"""

from __future__ import annotations

import collections
import functools
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from typing import Any, cast

from .local_files import place_files
from .parcels import Parcels, Sent
from .part_writer import PartRecord, StepFailed
from .parts import Gate, Made, make_parts, make_parts_apart
from .stage_maker import StageJob
from .tasks import PartTask
from .worker_processes import WorkerProcesses, prepare_process

_BEHIND = 4
"""Number of parts per worker that may wait for the disk while it makes others, so that a slow disk delays it less. Their
payloads are no longer in memory."""

IN_PROCESS = ("sync", "threads")

_LOGGER = logging.getLogger("benchwright")


class Workers:
    """Runs tasks in this process, or on a pool that is kept for all stages, so that a worker loads a model only once."""

    may_outlive = False
    """Whether workers may continue after the run has ended."""

    def __init__(self, scheduler: str, workers: int | None) -> None:
        if scheduler not in ("sync", "threads", "processes"):
            raise ValueError(f"scheduler {scheduler!r}: one of sync, threads, processes, or tcp://HOST:PORT")
        self._scheduler = scheduler
        self._count = workers or os.cpu_count() or 1
        self._pool: ThreadPoolExecutor | WorkerProcesses | None = None
        self._gate = Gate()
        self._disk = ThreadPoolExecutor(1 + _BEHIND * self._count)

    def __enter__(self) -> Workers:
        begin_run()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # After an error or Ctrl-C nothing may be written any more: the next run may begin at once, with other settings.
        self._gate.close()
        if isinstance(self._pool, WorkerProcesses) and kind is not None:
            self._pool.kill()
        elif self._pool is not None:  # a thread cannot be ended: what it still makes is discarded
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
        self._disk.shutdown()

    def run(self, jobs: Sequence[StageJob]) -> None:
        """Run the jobs and call ``done`` of each when it ends. If several fail, the error of the first in order is raised."""
        if self._scheduler == "sync":
            self._run_in_turn(jobs)
        elif jobs:
            self._run_here(jobs)

    def _run_in_turn(self, jobs: Sequence[StageJob]) -> None:
        behind: collections.deque[tuple[StageJob, list[PartRecord], Future[None]]] = collections.deque()

        def end_first() -> None:
            job, records, placed = behind.popleft()
            placed.result()
            job.done(records)

        for job in jobs:
            try:
                made = make_parts(job.task, job.offer)
            except BaseException:
                while behind:
                    end_first()
                raise
            records = _records_of(made, job)
            behind.append((job, records, self._disk.submit(place_files, made.written)))
            rejects = any(record.rejects for record in records)  # these may end the stage before its next part
            while len(behind) > (0 if rejects else _BEHIND):
                end_first()
        while behind:
            end_first()

    def _run_here(self, jobs: Sequence[StageJob]) -> None:
        pool = self._pool = self._pool or self._new_pool()
        ended: queue.SimpleQueue[tuple[int, Future[Made]]] = queue.SimpleQueue()
        behind = threading.BoundedSemaphore(_BEHIND * self._count)

        def put_in_place(made: Made) -> Made:
            try:
                place_files(made.written)
                return made
            finally:
                behind.release()

        def discard(made: Made) -> None:
            behind.release()
            for file in made.written:
                file.discard()

        def written(number: int, future: Future[Made]) -> None:
            """Put a finished part in place in another thread, while the worker makes other parts."""
            if future.cancelled() or future.exception() is not None:
                ended.put((number, future))
                return
            behind.acquire()
            try:
                placing = self._disk.submit(put_in_place, future.result())
            except RuntimeError:  # the pool is shut down: another part failed, and the run has ended
                discard(future.result())
            else:
                placing.add_done_callback(lambda placed: ended.put((number, placed)))

        futures: dict[int, Future[Made]] = {}

        def as_they_end() -> Iterator[tuple[int, Future[Made]]]:
            for _ in jobs:
                number, future = ended.get()
                del futures[number]  # what it holds takes more memory than the record of the part
                yield number, future

        def cancel_after(number: int) -> None:
            for later, future in futures.items():
                if later > number:
                    future.cancel()

        try:
            parcels = Parcels((job.task for job in jobs), lambda task: task) if self._scheduler == "processes" else None
            for number, job in enumerate(jobs):
                if parcels is None:
                    futures[number] = pool.submit(make_parts, job.task, job.offer, self._gate)
                else:
                    futures[number] = pool.submit(make_parts_apart, cast(PartTask, Sent(parcels, job.task)))
            for number, future in futures.items():
                future.add_done_callback(functools.partial(written, number))
            finish(jobs, as_they_end(), cancel_after)
        except BrokenExecutor as error:
            raise StepFailed(
                f"{stages_of(jobs)}: a worker process was killed, probably because the system ran out of "
                "memory; finished parts are kept: run again, with fewer workers"
            ) from error

    def _new_pool(self) -> ThreadPoolExecutor | WorkerProcesses:
        return ThreadPoolExecutor(self._count) if self._scheduler == "threads" else WorkerProcesses(self._count)


def begin_run() -> None:
    """Prepare this process, whichever workers the run has."""
    prepare_process()
    if threading.current_thread() is threading.main_thread():
        # polars makes interrupted system calls restart, so that waiting for a worker would not notice Ctrl-C.
        signal.siginterrupt(signal.SIGINT, True)


def finish(jobs: Sequence[StageJob], ended: Iterable[tuple[int, Future[Made]]], cancel_after: Callable[[int], object]) -> None:
    """Call ``done`` of each job when its future ends; ``ended`` yields the futures with their numbers.

    If several jobs fail, the error must not depend on which failed first in time: jobs before the first failed one in order are
    awaited, and jobs after it that have not started are cancelled.
    """
    waiting = set(range(len(jobs)))
    failed: dict[int, Exception] = {}
    for number, future in ended:
        waiting.discard(number)
        if not future.cancelled():
            try:
                jobs[number].done(_records_of(future.result(), jobs[number]))
            except Exception as error:
                failed[number] = error
                cancel_after(number)
        if failed and not any(each < min(failed) for each in waiting):
            raise failed[min(failed)]
    if waiting:
        raise RuntimeError(f"{stages_of(jobs)}: {len(waiting)} of {len(jobs)} tasks did not end")


def _records_of(made: Made, job: StageJob) -> list[PartRecord]:
    """The records of a job, after passing on its cost and warnings."""
    if made.use is not None:
        job.meter.add(made.use)
    for level, text in made.warnings:
        _LOGGER.log(level, "%s", text)
    return made.records


def stages_of(jobs: Sequence[StageJob]) -> str:
    return "stage " + ", ".join(dict.fromkeys(repr(job.task.stage.name) for job in jobs))
