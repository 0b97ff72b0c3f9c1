"""Run a plan: skip what is there, make what is not, part by part, and write down what was made.

dask carries the tasks and is named here only. A task makes one part and returns a small record, never rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import fcntl
import functools
import importlib.metadata
import multiprocessing
import multiprocessing.connection
import os
import platform
import posixpath
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from .artifact import Artifact, RunRecord, artifact_file, load_artifact
from .digest import ContentDigest
from .flow import Flow, PlanError, Stage, StageRef, row_types
from .keys import How, Where, as_json, canonical, code_digest, fingerprint, plain, sha256
from .part_writer import PartRecord, StepFailed, folder, part_name
from .parts import Offer, PartTask, Span, make_parts
from .rows import schema_of
from .store import Rows, Store, StoreError

FORMAT = 1
"""Version of the layout on disk; part of every key."""

_LAST_PART = 999_999_999

State = Literal["running", "done", "reused", "waiting"]


class TooManyRejects(RuntimeError):
    """A stage turned away more rows than its budget allows. Its finished parts stay."""


class Busy(RuntimeError):
    """Another run is at work in the same folder."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """What ``on_progress`` is told after every part, and once at the end of every stage.

    ``rows`` counts rows taken in; ``rows_total`` is None where a source does not know yet.
    """

    stage: str
    index: int
    stages: int
    state: State
    rows: int
    rows_total: int | None
    rejects: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that ended: its artifacts in order, and what it waits for where it did not reach its end."""

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
        on_progress: called in this thread.

    Raises:
        PlanError: for a plan that does not hold together, before anything is made.
        StepFailed: where a step raised something other than ``Reject``, or lost rows.
        TooManyRejects: where a stage went over its budget.
        Busy: where another run is at work in ``out``.
    """
    schemas = flow.schemas()
    stages = flow.ordered()
    store = Store(out)
    made: dict[str, Artifact] = {}
    with _locked(store), _Workers(scheduler, workers) as pool:
        record = RunRecord(pipeline, dict(config or {}), dict(overrides or {}), tuple(s.name for s in stages), flow.last)
        record.save(store)
        known = _known_fingerprints(store)
        for index, stage in enumerate(stages):
            maker = _StageMaker(store, stage, schemas[stage.name], made, known, pool)
            report = _Reporter(on_progress, stage.name, index, len(stages))
            missing = maker.missing_source()
            if missing and stage.waits:
                report("waiting", 0, None, 0)
                return Run(store, tuple(made.values()), stage.waits)
            made[stage.name] = maker.make(report)
    return Run(store, tuple(made.values()))


def status(flow: Flow, out: str) -> list[tuple[Stage, Artifact | None]]:
    """Every stage in order, with its artifact where a run would use it as it is. Writes nothing."""
    schemas = flow.schemas()
    store = Store(out)
    made: dict[str, Artifact] = {}
    known = _known_fingerprints(store)
    found: list[tuple[Stage, Artifact | None]] = []
    for stage in flow.ordered():
        artifact = None
        if all(name in made for name in stage.inputs()):
            maker = _StageMaker(store, stage, schemas[stage.name], made, dict(known), None)
            artifact = None if maker.missing_source() else maker.reusable()
        if artifact is not None:
            made[stage.name] = artifact
        found.append((stage, artifact))
    return found


@contextlib.contextmanager
def _locked(store: Store) -> Iterator[None]:
    """One run at a time in a local folder. The lock dies with its process, so a kill leaves none behind."""
    if store.local is None:
        yield
        return
    os.makedirs(store.local, exist_ok=True)
    with open(store.local / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another run is at work in {store.url}: wait for it, or choose another --out") from None
        yield


def _known_fingerprints(store: Store) -> dict[str, tuple[str, str]]:
    name = ".fingerprints.json"
    try:
        return {path: (pair[0], pair[1]) for path, pair in store.read_json(name).items()} if store.exists(name) else {}
    except (StoreError, AttributeError, LookupError, TypeError):  # it only saves reading the sources again
        return {}


class _Reporter:
    def __init__(self, tell: Callable[[Progress], None], stage: str, index: int, stages: int) -> None:
        self._tell, self._stage, self._index, self._stages = tell, stage, index, stages
        self._started = time.perf_counter()

    def __call__(self, state: State, rows: int, rows_total: int | None, rejects: int) -> None:
        seconds = time.perf_counter() - self._started
        self._tell(Progress(self._stage, self._index, self._stages, state, rows, rows_total, rejects, seconds))


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
        if threading.current_thread() is threading.main_thread():
            # polars has calls restarted that a signal interrupts, and the wait for a worker would not hear of Ctrl-C.
            signal.siginterrupt(signal.SIGINT, True)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    @property
    def in_process(self) -> bool:
        """Whether the tasks run in this process."""
        return self._scheduler in ("sync", "threads")

    def run(self, tasks: Sequence[PartTask], done: Callable[[list[PartRecord]], None], offer: Offer) -> None:
        """Run the tasks, and tell of each as it ends; of its rows, too, where they are in this process at hand.

        The first error ends the call.
        """
        if not tasks:
            return
        if "://" in self._scheduler:
            self._run_distributed(tasks, done)
            return
        import dask
        from dask.callbacks import Callback

        def finished(_key: Any, result: Any, *_: Any) -> None:
            done(result)

        # A task is closed to dask, which would otherwise search it for graphs of its own.
        options = {"offer": offer} if self.in_process else {}
        # dask takes tasks that are alike from the last name to the first, and parts are best made in the order of their rows.
        calls = [
            dask.delayed(functools.partial(make_parts, task, **options), pure=False, traverse=False)(
                dask_key_name=f"part-{_LAST_PART - task.number:09d}"
            )
            for task in tasks
        ]
        settings: dict[str, Any] = {"scheduler": self._scheduler, "num_workers": self._count}
        if self._scheduler != "sync":
            settings["pool"] = self._pool = self._pool or self._new_pool()
        # dask would put the tasks of one call in chunks of several to a message: a part is worth a message of its own.
        try:
            with Callback(posttask=finished):
                dask.compute(*calls, optimize_graph=False, chunksize=1, traverse=False, **settings)
        except BrokenExecutor as error:
            raise StepFailed(
                f"stage {tasks[0].stage.name!r}: a worker process was killed, as a system does that runs out of memory; "
                "what was made stays: run again, with fewer workers"
            ) from error

    def _new_pool(self) -> Executor:
        if self._scheduler == "threads":
            return ThreadPoolExecutor(self._count)
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._count, context, initializer=_begin_worker)

    def _run_distributed(self, tasks: Sequence[PartTask], done: Callable[[list[PartRecord]], None]) -> None:
        from distributed import Client, KilledWorker, as_completed

        if self._client is None:
            try:
                self._client = Client(self._scheduler, timeout="5s", set_as_default=False)
            except OSError as error:
                raise ValueError(f"scheduler {self._scheduler!r} does not answer: {error}") from error
        # A function without a name makes distributed use cloudpickle, which takes along the code of a user's own file: workers
        # could not import that, and a task that they cannot read would leave us waiting for ever.
        futures = [self._client.submit(lambda task=task: make_parts(task), pure=False) for task in tasks]
        try:
            for future in as_completed(futures, loop=self._client.loop):
                done(future.result())
        except KilledWorker as error:
            raise StepFailed(
                f"stage {tasks[0].stage.name!r}: workers died at their parts, perhaps for want of memory: {error}"
            ) from error
        finally:
            self._client.cancel(futures)


def _begin_worker() -> None:
    """A worker leaves Ctrl-C to its parent, and ends when its parent is gone, even by kill -9."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ------------------------------------------------------------------------------------------------------------ one stage


class _StageMaker:
    def __init__(
        self,
        store: Store,
        stage: Stage,
        schema: pa.Schema,
        made: Mapping[str, Artifact],
        known: dict[str, tuple[str, str]],
        pool: _Workers | None,
    ) -> None:
        self.store, self.stage, self.schema, self.made, self.known, self.pool = store, stage, schema, made, known, pool

    def _places(self) -> dict[str, Where]:
        steps = [self.stage.step, *([self.stage.pieces] if self.stage.pieces else [])]
        return {name: value for step in steps for name, value in step.all_settings().items() if isinstance(value, Where)}

    def missing_source(self) -> str:
        """The first path among the settings at which nothing is, or ""."""
        return next((str(path) for path in self._places().values() if not _there(path)), "")

    def _recipe(self) -> tuple[dict[str, Any], str]:
        """The readable recipe, and the witness of the sources that it names."""
        witnesses: list[str] = []
        for path in self._places().values():
            self._check_apart(str(path))

        def settings(values: Mapping[str, Any]) -> dict[str, Any]:
            out: dict[str, Any] = {}
            for name, value in values.items():
                if isinstance(value, How):
                    continue
                if isinstance(value, StageRef):
                    out[name] = {"rows_of": value.name}
                elif isinstance(value, Where):
                    mark = fingerprint(str(value), self.known)
                    witnesses.append(mark.witness)
                    out[name] = {"content": mark.content}
                else:
                    out[name] = as_json(name, value)
            return out

        recipe: dict[str, Any] = {
            "format": FORMAT,
            "kind": self.stage.kind,
            "step": self.stage.step.name,
            "code": code_digest(self.stage.step.function),
            "settings": settings(self.stage.step.all_settings()),
            "inputs": {name: self.made[name].digest for name in self.stage.inputs()},
            "columns": [f"{field.name}: {field.type}" for field in self.schema],
        }
        if self.stage.pieces:
            recipe["pieces"] = {
                "step": self.stage.pieces.name,
                "code": code_digest(self.stage.pieces.function),
                "settings": settings(self.stage.pieces.all_settings()),
            }
        return recipe, sha256(canonical(witnesses))

    def _check_apart(self, path: str) -> None:
        """A source folder that a run writes to would be another one after each run, and would hold what the run made."""
        out = self.store.local
        if out is None or "://" in path or not os.path.isdir(path):
            return
        real, own = os.path.realpath(path), os.path.realpath(out)
        if f"{own}/".startswith(f"{real}/") or f"{real}/".startswith(f"{own}/stages/"):
            raise PlanError(
                f"stage {self.stage.name!r}: the source {path} and the run's own folder {self.store.url} lie one in the other"
            )

    def _layouts(self) -> str:
        return sha256(canonical([self.made[name].layout for name in self.stage.inputs()]))

    def reusable(self) -> Artifact | None:
        """The artifact that is there, where it is what this plan would make, and whole."""
        recipe, witness = self._recipe()
        try:
            artifact = load_artifact(self.store, self.stage.name)
        except StoreError:  # a damaged record is as good as none: what lies beside it is looked at part by part
            artifact = None
        if artifact is None or artifact.key != sha256(canonical(recipe)) or artifact.recipe["layouts"] != self._layouts():
            return None
        if self._witness() != witness:
            return None
        whole = all(self.store.size(name) == facts["size"] for name, facts in artifact.files().items())
        return artifact if whole else None

    def _witness(self) -> str:
        name = posixpath.join(folder(self.stage.name), ".witness")
        return self.store.read(name).decode() if self.store.exists(name) else ""

    def make(self, report: _Reporter) -> Artifact:
        """Use what is there, or make the parts that are not, and commit the stage."""
        recipe, witness = self._recipe()
        if self.known:
            self.store.write_json(".fingerprints.json", self.known)
        if (artifact := self.reusable()) is not None:
            report("reused", artifact.rows_in, artifact.rows_in, sum(artifact.rejects.values()))
            return artifact
        key = sha256(canonical(recipe))
        recipe["layouts"] = self._layouts()
        where = folder(self.stage.name)
        old = self.store.list(where)
        stale = [name for name in old if name.startswith(".tmp-") or name in ("artifact.json", "made.json")]
        if self._witness() != witness:
            stale = old
        self.store.remove([posixpath.join(where, name) for name in stale])
        self.store.write(posixpath.join(where, ".witness"), witness.encode())
        started = time.perf_counter()
        ledger = _Ledger(self.store, self.stage)
        records = self._make_parts(sha256(canonical([key, recipe["layouts"]])), report, ledger)
        artifact = self._commit(key, recipe, records, ledger)
        self._write_made(time.perf_counter() - started)
        self._check_budget(sum(artifact.rejects.values()), artifact.rows_in)
        report("done", artifact.rows_in, artifact.rows_in, sum(artifact.rejects.values()))
        return artifact

    def _tasks(self, key: str) -> list[PartTask]:
        stage = self.stage
        views = {name: self.made[name].rows_view(self.store) for name in stage.inputs()}
        taken, given = row_types(stage)
        schemas = [None if row_type is None else schema_of(row_type) for row_type in (taken, given)]
        base = PartTask(self.store, stage, self.schema, key, 0, taken, *schemas, others=views)
        if stage.kind == "source":
            if stage.pieces is None:
                return [base]
            settings = {name: plain(value) for name, value in stage.pieces.settings.items()}
            pieces = list(stage.pieces.function(**settings))
            return [dataclasses.replace(base, number=n, piece=piece) for n, piece in enumerate(pieces)] or [base]
        upstream = views[stage.after or ""]
        if stage.kind == "whole":
            return [dataclasses.replace(base, span=Span(0, upstream.num_rows, upstream))]
        bounds = _shard_bounds(upstream) if stage.kind == "shards" else _even_bounds(upstream.num_rows, stage.rows_per_part)
        others = {n: views[n] for n in stage.inputs()[1:]}
        ends = np.cumsum([part.rows for part in upstream.parts])
        return [
            dataclasses.replace(base, number=n, span=_narrow(upstream, ends, start, stop), others=others)
            for n, (start, stop) in enumerate(bounds)
        ]

    def _make_parts(self, key: str, report: _Reporter, ledger: _Ledger) -> list[PartRecord]:
        tasks = self._tasks(key)
        records: dict[int, PartRecord] = {}
        # A task that makes several parts is made anew as a whole: only its end says that it had them all.
        todo = [task for task in tasks if not self._one_part(task) or not self._finished(task, records)]
        total = self.made[self.stage.after].rows if self.stage.after else None

        rows = sum(record.rows_in for record in records.values())
        rejects = sum(sum(record.rejects.values()) for record in records.values())

        def done(made: list[PartRecord]) -> None:
            nonlocal rows, rejects
            records.update({record.number: record for record in made})
            rows += sum(record.rows_in for record in made)
            rejects += sum(sum(record.rejects.values()) for record in made)
            report("running", total if self.stage.kind == "whole" and total else rows, total, rejects)
            limit = self.stage.max_rejects
            if limit is not None and limit >= 1:
                self._check_budget(rejects, rows)

        if self.pool is None:
            raise RuntimeError("this maker only looks: it was given no workers")
        self.pool.run(todo, done, ledger.offer)
        return [records[number] for number in sorted(records)]

    def _one_part(self, task: PartTask) -> bool:
        return self.stage.kind != "whole" and not (self.stage.kind == "source" and task.piece is None)

    def _finished(self, task: PartTask, records: dict[int, PartRecord]) -> bool:
        """Whether the part of an earlier, broken run is there and made from the same; if so, its record is noted."""
        where = folder(self.stage.name)
        name = f"{part_name(task.number)}.parquet"
        if self.store.size(posixpath.join(where, name)) is None:
            return False
        try:
            footer = self.store.footer(posixpath.join(where, name))
            rows = self.store.read_parquet(posixpath.join(where, name), ["key"]).num_rows
        except StoreError:  # damaged: made again
            return False
        if footer["signature"] != task.signature():
            return False
        files = dict(footer["files"])
        if any(self.store.size(posixpath.join(where, other)) != facts["size"] for other, facts in files.items()):
            return False
        data = self.store.read(posixpath.join(where, name))
        files[name] = {"sha256": sha256(data), "size": len(data)}
        records[task.number] = PartRecord(task.number, footer["rows_in"], rows, footer["rejects"], files)
        return True

    # -------------------------------------------------------------------------------------------------- commit

    def _commit(self, key: str, recipe: Mapping[str, Any], records: list[PartRecord], ledger: _Ledger) -> Artifact:
        stage, where = self.stage, folder(self.stage.name)
        digest = ledger.finish(records)
        rejects = _totals(records)
        rows = sum(record.rows for record in records)
        rows_in = self.made[stage.after].rows if stage.after else sum(record.rows_in for record in records)
        if stage.after:
            self._check_sum(rows_in, rows, sum(rejects.values()), ledger.keys)
        parts = tuple({"rows": record.rows, "files": dict(sorted(record.files.items()))} for record in records)
        layout = layout_of(recipe["layouts"], parts)
        artifact = Artifact(stage.name, stage.kind, key, digest, layout, recipe, rows_in, rows, rejects, parts)
        kept = {posixpath.basename(name) for name in artifact.files()} | {".witness"}
        self.store.remove([posixpath.join(where, name) for name in self.store.list(where) if name not in kept])
        self.store.write_json(artifact_file(stage.name), artifact.to_json())
        return artifact

    def _check_sum(self, rows_in: int, rows: int, rejected: int, keys_out: _KeySum | None) -> None:
        stage = self.stage
        if not stage.expands and rows_in != rows + rejected:
            raise StepFailed(
                f"stage {stage.name!r} does not account for its rows: {rows_in} in, {rows} out and {rejected} rejected"
            )
        if keys_out is None:
            return
        keys_in = _KeySum(distinct=stage.expands)
        for table in self.made[stage.after or ""].rows_view(self.store).batches(["key"]):
            keys_in.add(table["key"])
        if keys_in.total() != keys_out.total():
            raise StepFailed(f"stage {stage.name!r} gave keys, as rows or rejects, that are not those of the rows it took")

    def _check_budget(self, rejects: int, rows_in: int) -> None:
        limit = self.stage.max_rejects
        if limit is None:
            return
        allowed = limit * rows_in if 0 < limit < 1 else limit
        if rejects > allowed:
            rule = f"{limit:.1%} of {rows_in}" if 0 < limit < 1 else f"{int(limit)}"
            raise TooManyRejects(
                f"stage {self.stage.name!r} turned away {rejects} rows, and max_rejects is {rule}: see `benchwright rejects`"
            )

    def _write_made(self, seconds: float) -> None:
        versions = {"python": platform.python_version()}
        for name in ("benchwright", "numpy", "pyarrow", "polars", "torch", "pillow", "simplejpeg", "faiss-cpu", "dask"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
        made = {"made_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), "seconds": round(seconds, 3)}
        self.store.write_json(posixpath.join(folder(self.stage.name), "made.json"), {**made, "versions": versions})


def layout_of(inputs: str, parts: Sequence[Mapping[str, Any]]) -> str:
    """Digest of where the payloads lie that a stage refers to: its own payload files, and the layouts of its inputs."""
    payloads = [file for part in parts for file in part["files"].items() if not file[0].endswith(".parquet")]
    return sha256(canonical([inputs, payloads]))


def _there(path: str) -> bool:
    import fsspec

    fs, root = fsspec.core.url_to_fs(path)
    return bool(fs.exists(root))


def _totals(records: Sequence[PartRecord]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for record in records:
        for reason, count in record.rejects.items():
            totals[reason] = totals.get(reason, 0) + count
    return dict(sorted(totals.items()))


def _even_bounds(rows: int, rows_per_part: int) -> list[tuple[int, int]]:
    return [(start, min(start + rows_per_part, rows)) for start in range(0, rows, rows_per_part)] or [(0, 0)]


def _shard_bounds(rows: Rows) -> list[tuple[int, int]]:
    """Stretches of rows with one value of ``shard``. Raises ``StepFailed`` where a shard's rows do not stand together."""
    names = rows.table(["shard"])["shard"].combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False)
    if not len(codes):
        return [(0, 0)]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
    if len(starts) != len(names.dictionary):
        raise StepFailed("the rows of a shard do not stand together: sort them by the column 'shard'")
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True))


def _narrow(rows: Rows, ends: np.ndarray, start: int, stop: int) -> Span:
    """The stretch [start, stop) with the parts that hold it and no others, so that a task stays small.

    ``ends``, int64 of shape (parts,), says at which row each part ends.
    """
    low = int(np.searchsorted(ends, start, side="right"))
    high = int(np.searchsorted(ends, stop, side="left")) + 1
    offset = int(ends[low - 1]) if low else 0
    return Span(start - offset, stop - offset, dataclasses.replace(rows, parts=rows.parts[low:high]), offset)


class _Ledger:
    """Content digest and keys of a stage, part after part: of rows that are at hand, or else read back.

    The digest depends on the order of the parts, which end in any order; those that came early wait for their turn.
    """

    def __init__(self, store: Store, stage: Stage) -> None:
        self._store, self._stage = store, stage
        self._digest: ContentDigest | None = None
        self._next = 0
        self._early: dict[int, tuple[pa.Table, pa.Table]] = {}
        self._lock = threading.Lock()
        # The engine itself carries the keys of the other kinds from row to row.
        self.keys = _KeySum(distinct=stage.expands) if stage.kind in ("table", "whole") else None

    def offer(self, number: int, rows: pa.Table, rejected: pa.Table) -> None:
        """Take the rows of a part that was just written. Called from any thread."""
        with self._lock:
            if number >= self._next and len(self._early) < _EARLY_PARTS:
                self._early[number] = (rows, rejected)
            while self._next in self._early:
                self._add(*self._early.pop(self._next))

    def finish(self, records: Sequence[PartRecord]) -> str:
        """The digest, when all parts are there."""
        where = folder(self._stage.name)
        for record in records[self._next :]:
            if record.number in self._early:
                self._add(*self._early.pop(record.number))
                continue
            name = posixpath.join(where, part_name(record.number))
            rejected = pa.table({"key": pa.array([], pa.string())})
            if self.keys is not None and f"{part_name(record.number)}.rejects.parquet" in record.files:
                rejected = self._store.read_parquet(f"{name}.rejects.parquet", ["key"])
            self._add(self._store.read_parquet(f"{name}.parquet"), rejected)
        if self._digest is None:
            raise StepFailed(f"stage {self._stage.name!r} made no part")
        return self._digest.hexdigest()

    def _add(self, rows: pa.Table, rejected: pa.Table) -> None:
        self._next += 1
        if self._digest is None:
            self._digest = ContentDigest(rows.schema)
        self._digest.update(rows)
        if self.keys is not None:
            self.keys.add(rows["source_key" if self._stage.expands else "key"])
            self.keys.add(rejected["key"])


_EARLY_PARTS = 16
"""Parts that may wait in memory for their turn; those beyond are read back."""


class _KeySum:
    """Whether two stages name the same rows: a sum of key hashes, which does not depend on their order.

    Args:
        distinct: count a key once however often it comes; this alone keeps 8 bytes a row.
    """

    def __init__(self, *, distinct: bool) -> None:
        self._distinct = distinct
        self._sum = 0
        self._hashes: list[np.ndarray] = []

    def add(self, keys: pa.ChunkedArray) -> None:
        hashes = pl.Series(keys).hash(seed=0).to_numpy()
        if self._distinct:
            self._hashes.append(hashes)
        else:
            self._sum += int(np.add.reduce(hashes, dtype=np.uint64))

    def total(self) -> int:
        if not self._hashes:
            return self._sum % 2**64
        # Sorting beats the hash table of np.unique thirty times for a million numbers.
        hashes = np.sort(np.concatenate(self._hashes))
        first = np.ones(len(hashes), dtype=bool)
        np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
        return int(np.add.reduce(hashes[first], dtype=np.uint64)) % 2**64
