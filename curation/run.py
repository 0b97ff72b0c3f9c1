"""Run a plan: skip what is there, make what is not, part by part, and write down what was made.

dask carries the tasks and is named here only. A task makes one part and returns a small record, never rows.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import gc
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from .artifact import Artifact, RunRecord, load_run, read_sealed
from .budget import TooManyRejects
from .flow import Flow, PlanError, Stage
from .lock import Busy, locked
from .part_writer import PartRecord, StepFailed
from .parts import Warnings, make_parts, make_parts_apart
from .recipe import missing_source
from .records import check_tree
from .retry import forget_rejects
from .stage_maker import FINGERPRINTS, Progress, Reporter, StageJob, StageMaker
from .store import Rows, Store, StoreError

__all__ = ["Busy", "Progress", "Run", "TooManyRejects", "check_folder", "lock", "run", "status"]

_LAST_PART = 999_999_999
_LOGGER = logging.getLogger("benchwright")

_IN_PROCESS = ("sync", "threads")

_SILENCE = 2.0
"""Seconds without the end of a part after which we ask whether there is a worker."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that ended: its artifacts in order, and what it waits for where it did not reach its end.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("words.py"), "words")
    >>> done.result.stage, done.result.rows, done.waiting
    ('shards', 2, '')
    >>> done.rows("counted").table(["key", "words"]).to_pylist()
    [{'key': 'one', 'words': 5}, {'key': 'two', 'words': 6}]
    """

    store: Store
    artifacts: tuple[Artifact, ...]
    waiting: str = ""

    @property
    def result(self) -> Artifact:
        """The last finished stage."""
        return self.artifacts[-1]

    def rows(self, stage: str | None = None) -> Rows:
        """Rows of a stage; of the last by default."""
        artifact = next((a for a in self.artifacts if a.stage == stage), None) if stage else self.result
        if artifact is None:
            raise KeyError(f"no finished stage {stage!r}: there are {', '.join(a.stage for a in self.artifacts)}")
        return artifact.rows_view(self.store)


def run(
    flow: Flow,
    out: str,
    *,
    scheduler: str = "threads",
    workers: int | None = None,
    pipeline: str = "",
    config: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    code: Mapping[str, str] | None = None,
    retry: Sequence[str] = (),
    keep_stale: Sequence[str] = (),
    add: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Run:
    """Make every stage of ``flow`` that is not there yet.

    Args:
        flow: the plan.
        out: folder or fsspec URL.
        scheduler: ``sync``, ``threads``, ``processes``, or the address of a ``dask.distributed`` scheduler
            (``tcp://host:8786``), whose workers must reach ``out``.
        workers: threads or processes; as many as there are cores by default.
        pipeline: name for the record.
        config: values for the record.
        overrides: those of them that were given for this run alone.
        code: names of what it uses that is not built in, for the record.
        retry: reasons of rejects for which rows are tried again, with all of the part that they are in.
        keep_stale: stages to use as they are though their code changed since; recorded in them.
        add: leave the stages of earlier plans in the record, before those of this one: the folder gathers what several plans
            made.
        on_progress: called in this thread.

    Raises:
        PlanError: for a plan that does not hold together, or a folder that another pipeline filled or that the workers cannot
            reach, before anything is made.
        StoreError: where ``retry`` names a reason for which no row was rejected.
        StepFailed: where a step raised something other than ``Reject``, or lost rows.
        TooManyRejects: where a stage went over its budget.
        NoRows: where a source has no rows left.
        Busy: where another run is at work in ``out``.
        ConnectionError: where a ``dask.distributed`` scheduler went away.

    >>> from words import count_words, read_texts
    >>> from benchwright import source, step, where
    >>> flow = source("listed", step(read_texts, folder=where("texts"))).each("counted", step(count_words, min_words=1))
    >>> run(flow, "counted", scheduler="sync").rows().table(["key", "commonest"]).to_pylist()
    [{'key': 'one', 'commonest': 'a'}, {'key': 'short', 'commonest': 'hm'}, {'key': 'two', 'commonest': 'be'}]
    """
    schemas = flow.schemas()
    stages = flow.ordered()
    if unknown := [name for name in keep_stale if name not in [stage.name for stage in stages]]:
        raise PlanError(f"no stage {unknown[0]!r} to keep: there are {', '.join(stage.name for stage in stages)}")
    store = Store(out)
    if not store.shared and scheduler not in _IN_PROCESS:
        raise PlanError(f"{out} lies in the memory of this process, where workers of {scheduler!r} cannot write")
    made: dict[str, Artifact] = {}
    with lock(store), _Workers(scheduler, workers) as pool:
        _check_no_links(store)
        earlier = check_folder(store, pipeline)
        if retry:  # before anything is written: the reasons may be mistyped
            forget_rejects(store, retry)
        names = [stage.name for stage in stages]
        if add and earlier is not None:
            names = list(dict.fromkeys([*earlier.stages, *names]))
        record = RunRecord(pipeline, dict(config or {}), dict(overrides or {}), tuple(names), flow.last, code=dict(code or {}))
        record.after(earlier).save(store)
        known = _known_fingerprints(store)
        recent: dict[str, pa.Table] = {}
        makers: list[StageMaker] = []
        jobs: list[StageJob] = []
        for index, stage in enumerate(stages):
            following = stages[index + 1] if index + 1 < len(stages) else None
            read_next = following is not None and stage.name in following.inputs()
            keep = stage.name in keep_stale
            maker = StageMaker(store, stage, schemas[stage.name], made, known, recent, read_next=read_next, keep_stale=keep)
            report = Reporter(on_progress, stage.name, index, len(stages))
            waits = bool(stage.waits and missing_source(maker.stage))
            if not waits:
                jobs += maker.begin(report)
                makers.append(maker)
            # Sources need nothing of each other: those that stand together, and whose inputs are made, are made together.
            if waits or following is None or following.kind != "source" or not made.keys() >= set(following.inputs()):
                pool.run(jobs)
                made.update({done.stage.name: done.artifact for done in makers})
                makers, jobs = [], []
            if waits:
                report("waiting", 0, None, 0)
                return Run(store, tuple(made.values()), stage.waits)
    return Run(store, tuple(made.values()))


def status(flow: Flow, out: str) -> list[tuple[Stage, Artifact | None]]:
    """Every stage in order, with its artifact where a run would use it as it is. Writes nothing.

    >>> from words import read_texts
    >>> from benchwright import source, step, where
    >>> flow = source("listed", step(read_texts, folder=where("texts")))
    >>> status(flow, "elsewhere")[0][1] is None  # the stage is not made yet
    True
    """
    schemas = flow.schemas()
    store = Store(out)
    made: dict[str, Artifact] = {}
    known = _known_fingerprints(store)
    found: list[tuple[Stage, Artifact | None]] = []
    for stage in flow.ordered():
        artifact = None
        if all(name in made for name in stage.inputs()):
            maker = StageMaker(store, stage, schemas[stage.name], made, dict(known))
            artifact = None if missing_source(maker.stage) else maker.reusable()
        if artifact is not None:
            made[stage.name] = artifact
        found.append((stage, artifact))
    return found


def check_folder(store: Store, pipeline: str) -> RunRecord | None:
    """The record of the run that is there, None where there is none or it is damaged.

    Raises:
        PlanError: where another pipeline made it: a run would take the place of its dataset.
    """
    try:
        earlier = load_run(store) if store.exists("run.json") else None
    except StoreError:  # written again, like all that is damaged
        return None
    if earlier is not None and earlier.pipeline not in ("", pipeline):
        raise PlanError(f"{store.url} was made by {earlier.pipeline!r}: choose another --out")
    return earlier


def lock(
    store: Store, busy: str = "another run is at work in {}: wait for it, or choose another --out"
) -> contextlib.AbstractContextManager[object]:
    """Lets one run, or import of votes, at a time into a local folder; raises ``Busy`` where another is at work."""
    return locked(store.local / ".lock", busy.format(store.url)) if store.local else contextlib.nullcontext()


def _check_no_links(store: Store) -> None:
    """A run removes from its folders what it has not made: what a link points to may be anyone's."""
    if store.local is None:
        return
    for path in (store.local / "stages", store.local / "dataset", *store.local.glob("stages/*")):
        if path.is_symlink():
            raise StoreError(f"{path} is a symbolic link, and a run writes to folders of its own: remove it")
    check_tree(store.local)


def _known_fingerprints(store: Store) -> dict[str, tuple[str, str]]:
    try:
        known = read_sealed(store, FINGERPRINTS)["sources"] if store.exists(FINGERPRINTS) else {}
        return {path: (pair[0], pair[1]) for path, pair in known.items()}
    except (StoreError, AttributeError, LookupError, TypeError):  # it only saves reading the sources again
        return {}


# ------------------------------------------------------------------------------------------------------------- workers


class _Workers:
    """Carries tasks to dask's schedulers; keeps its pool over all stages, so that a worker loads a model once."""

    def __init__(self, scheduler: str, workers: int | None) -> None:
        if scheduler not in ("sync", "threads", "processes") and "://" not in scheduler:
            raise ValueError(f"scheduler {scheduler!r}: one of sync, threads, processes, or tcp://HOST:PORT")
        if workers is not None and workers < 1:
            raise ValueError(f"workers {workers}: at least 1")
        self._scheduler = scheduler
        self._count = workers or os.cpu_count() or 1
        self._pool: Executor | None = None
        self._client: Any = None

    def __enter__(self) -> _Workers:
        _keep_freed_memory()
        _end_at_once()
        if threading.current_thread() is threading.main_thread():
            # polars has calls restarted that a signal interrupts, and the wait for a worker would not hear of Ctrl-C.
            signal.siginterrupt(signal.SIGINT, True)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if self._client is not None:
            log = logging.getLogger("distributed.client")
            log.disabled = self._client.status != "running"  # that the scheduler is gone is told in one line, and not in forty
            self._client.close()
            log.disabled = False

    @property
    def in_process(self) -> bool:
        """Whether the tasks run in this process."""
        return self._scheduler in _IN_PROCESS

    def run(self, jobs: Sequence[StageJob]) -> None:
        """Run the jobs, and tell of each as it ends. The first error ends the call."""
        if not jobs:
            return
        if "://" in self._scheduler:
            self._run_distributed(jobs)
            return
        import dask
        from dask.callbacks import Callback

        # dask takes tasks that are alike from the last name to the first, and parts are best made in the order of their rows.
        named = {f"part-{_LAST_PART - number:09d}": job for number, job in enumerate(jobs)}

        def finished(key: str, result: Any, *_: Any) -> None:
            named[key].done(result if self.in_process else _warned(result))

        def call_of(job: StageJob) -> Callable[[], Any]:
            if self.in_process:
                return functools.partial(make_parts, job.task, job.offer)
            return functools.partial(make_parts_apart, job.task)

        # A task is closed to dask, which would otherwise search it for graphs of its own.
        calls = [dask.delayed(call_of(job), pure=False, traverse=False)(dask_key_name=name) for name, job in named.items()]
        settings: dict[str, Any] = {"scheduler": _get_of(self._scheduler), "num_workers": self._count}
        if self._scheduler != "sync":
            settings["pool"] = self._pool = self._pool or self._new_pool()
        # dask would put the tasks of one call in chunks of several to a message: a part is worth a message of its own.
        try:
            with Callback(posttask=finished):
                dask.compute(*calls, optimize_graph=False, chunksize=1, traverse=False, **settings)
        except BrokenExecutor as error:
            raise StepFailed(
                f"{_stages_of(jobs)}: a worker process was killed, as a system does that runs out of memory; "
                "what was made stays: run again, with fewer workers"
            ) from error

    def _new_pool(self) -> Executor:
        if self._scheduler == "threads":
            return ThreadPoolExecutor(self._count)
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._count, context, initializer=_begin_worker)

    def _run_distributed(self, jobs: Sequence[StageJob]) -> None:
        from distributed import CancelledError, Client, KilledWorker
        from distributed.comm import CommClosedError

        if self._client is None:
            try:
                self._client = Client(self._scheduler, timeout="5s", set_as_default=False)
            except OSError as error:
                raise ValueError(f"scheduler {self._scheduler!r} does not answer: {error}") from error
        # A function without a name makes distributed use cloudpickle, which takes along the code of a user's own file: workers
        # could not import that, and a task that they cannot read would leave us waiting for ever.
        futures = {self._client.submit(lambda task=job.task: make_parts_apart(task), pure=False): job for job in jobs}
        try:
            for future in self._as_they_end(list(futures)):
                futures[future].done(_warned(future.result()))
        except KilledWorker as error:
            raise StepFailed(f"{_stages_of(jobs)}: workers died at their parts, perhaps for want of memory: {error}") from error
        except (CancelledError, CommClosedError):  # the client cancels what it has asked for when it loses its connection
            raise ConnectionError(
                f"the scheduler at {self._scheduler} is gone; what was made stays: run again when it is back"
            ) from None
        finally:
            if self._client.status == "running":
                self._client.cancel(list(futures))

    def _as_they_end(self, futures: list[Any]) -> Iterator[Any]:
        """The futures as they end; warns once where nothing ends since nobody is there who works."""
        from distributed import as_completed
        from distributed.comm import CommClosedError

        ending = as_completed(futures, loop=self._client.loop)
        heard, warned = time.monotonic(), False
        while not ending.is_empty():
            if batch := ending.next_batch(block=False):
                yield from batch
                heard, warned = time.monotonic(), False
                continue
            with ending.thread_condition:
                ending.thread_condition.wait(0.1)
            if self._client.status != "running":
                raise CommClosedError
            if not warned and time.monotonic() - heard > _SILENCE:
                heard = time.monotonic()
                with contextlib.suppress(OSError):  # a lost scheduler ends the futures
                    warned = not self._client.nthreads()
                if warned:
                    _LOGGER.warning("no worker is connected to %s: the run waits until one is", self._scheduler)


def _warned(result: tuple[list[PartRecord], Warnings]) -> list[PartRecord]:
    """The records, when the warnings that came with them have been passed on."""
    records, warnings = result
    for level, text in warnings:
        _LOGGER.log(level, "%s", text)
    return records


def _stages_of(jobs: Sequence[StageJob]) -> str:
    return "stage " + ", ".join(dict.fromkeys(repr(job.task.stage.name) for job in jobs))


def _get_of(scheduler: str) -> Any:
    """dask's own function for the scheduler: by its name dask would import ``distributed`` first, a quarter of a second."""
    if scheduler == "processes":
        import dask.multiprocessing

        return dask.multiprocessing.get
    if scheduler == "threads":
        import dask.threaded

        return dask.threaded.get
    import dask.local

    return dask.local.get_sync


def _keep_freed_memory() -> None:
    """Let Arrow use freed memory again: its default allocator gives it back so soon that clearing it again takes a fifth of the
    time of large tables. The environment's choice stands.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


@functools.cache
def _end_at_once() -> None:
    """Spare the collector a search of all objects when the process ends: with the libraries at work here they are 300,000, and
    it takes an eighth of a second. Python gives no promise to end objects that are still there.
    """
    atexit.register(gc.freeze)


def _begin_worker() -> None:
    """A worker leaves Ctrl-C to its parent, and ends when its parent is gone, even by kill -9."""
    _keep_freed_memory()
    _end_at_once()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
