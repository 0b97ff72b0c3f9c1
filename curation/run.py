"""Run a plan: skip stages and parts that exist already, make the others part by part, and record what was made."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from .artifact import Artifact, RunRecord, artifact_file, load_artifact, load_run, read_sealed
from .budget import TooManyRejects
from .cluster_workers import ClusterWorkers
from .digest import KeySum
from .flow import Flow, PlanError, Stage
from .keys import MissingSource
from .lock import LOCK, Busy, locked, locked_bucket
from .part_writer import folder, part_name
from .recipe import missing_source
from .records import PUBLISHED, check_tree
from .requirements import check_devices, check_packages, resources_of
from .stage_maker import FINGERPRINTS, Progress, Reporter, StageJob, StageMaker
from .stage_rows import Rows
from .store import Store, StoreError
from .workers import IN_PROCESS, Workers

__all__ = ["Busy", "Progress", "Run", "TooManyRejects", "check_folder", "lock", "run", "status"]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that ended: its artifacts in order, and what it waits for if it stopped before its last stage.

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
        """Rows of a stage, by default of the last finished one. Raises ``KeyError`` if the stage is not finished."""
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
    needs: Mapping[str, str] | None = None,
    wait_for_scheduler_s: float = 0.0,
    add: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Run:
    """Make every stage of ``flow`` that does not exist yet.

    Args:
        flow: the plan.
        out: folder or fsspec URL.
        scheduler: ``sync``, ``threads``, ``processes``, or the address of a ``dask.distributed`` scheduler
            (``tcp://host:8786``), whose workers must reach ``out``.
        workers: number of threads or processes; by default the number of cores.
        pipeline: name for the record.
        config: settings for the record.
        overrides: the settings in ``config`` that apply to this run only.
        code: names of the code that the run uses and that is not built in, for the record.
        retry: reject reasons: parts that contain rejects for one of them are recomputed.
        keep_stale: stages to use as they are although their code has changed; their artifacts record this.
        needs: stage -> resources that cluster workers must offer for it, instead of what the plan says; see ``Flow``.
        wait_for_scheduler_s: how long to wait for the scheduler of a cluster if it does not answer, at first or after it was
            lost; the run then goes on with the unfinished parts.
        add: keep the stages of earlier plans in the record, before those of this plan: several plans then share a folder.
        on_progress: called in this thread.

    Raises:
        PlanError: the plan is inconsistent, another pipeline filled the folder, the workers cannot reach the folder, or a
            device does not exist; raised before anything is made.
        StoreError: ``retry`` names a reason for which no row was rejected.
        StepFailed: a step raised something other than ``Reject``, or lost rows.
        TooManyRejects: a stage exceeded its budget.
        NoRows: a source yielded no rows, or a stage rejected all rows.
        Busy: another run is in progress in ``out``.
        NeedsPackage: a stage imports a package that is not installed; raised before anything is made if the stage's code shows
            the import.
        FileNotFoundError: a source does not exist; raised before anything is made.
        ConnectionError: a ``dask.distributed`` scheduler does not answer, or was lost, also after waiting for it.

    >>> from words import count_words, read_texts
    >>> from benchwright import source, step, where
    >>> flow = source("listed", step(read_texts, folder=where("texts"))).each("counted", step(count_words, min_words=1))
    >>> run(flow, "counted", scheduler="sync").rows().table(["key", "commonest"]).to_pylist()
    [{'key': 'one', 'commonest': 'a'}, {'key': 'short', 'commonest': 'hm'}, {'key': 'two', 'commonest': 'be'}]
    """
    schemas = flow.schemas()
    needs = needs or {}
    stages = [dataclasses.replace(stage, needs=needs.get(stage.name, stage.needs)) for stage in flow.ordered()]
    names = [stage.name for stage in stages]
    for named, purpose in ((keep_stale, "to keep"), (needs, "that could need a resource")):
        if unknown := [name for name in named if name not in names]:
            raise PlanError(f"no stage {unknown[0]!r} {purpose}: there are {', '.join(names)}")
    for stage in stages:
        resources_of(stage)
    store = Store(out)
    if not store.shared and scheduler not in IN_PROCESS:
        raise PlanError(f"{out} is in the memory of this process, where workers of {scheduler!r} cannot write")
    if scheduler in IN_PROCESS:
        check_devices(stage for stage in stages if not store.exists(artifact_file(stage.name)))
    made: dict[str, Artifact] = {}
    with lock(store), _workers(scheduler, workers, wait_for_scheduler_s) as pool:
        _check_no_links(store)
        earlier = check_folder(store, pipeline)
        _check_sources(stages)
        check_packages(stage for stage in stages if not store.exists(artifact_file(stage.name)))
        if retry:  # before anything is written: the reasons may be mistyped
            _forget_rejects(store, retry)
        if add and earlier is not None:
            names = list(dict.fromkeys([*earlier.stages, *names]))
        record = RunRecord(pipeline, dict(config or {}), dict(overrides or {}), tuple(names), flow.last, code=dict(code or {}))
        record.after(earlier).save(store)
        waits = _make(stages, schemas, store, pool, keep_stale, on_progress, made)
    return Run(store, tuple(made.values()), waits)


def _workers(scheduler: str, count: int | None, wait_s: float) -> Workers | ClusterWorkers:
    if count is not None and count < 1:
        raise ValueError(f"workers {count}: at least 1")
    return ClusterWorkers(scheduler, wait_s) if "://" in scheduler else Workers(scheduler, count)


def _check_sources(stages: Sequence[Stage]) -> None:
    """Raise ``FileNotFoundError`` if a source does not exist, such as the weights of a late stage, before hours of work."""
    for stage in stages:
        if not stage.waits and (missing := missing_source(stage)):
            raise MissingSource(missing)


def _make(
    stages: Sequence[Stage],
    schemas: Mapping[str, pa.Schema],
    store: Store,
    pool: Workers | ClusterWorkers,
    keep_stale: Sequence[str],
    on_progress: Callable[[Progress], None],
    made: dict[str, Artifact],
) -> str:
    """Make the stages in order and add their artifacts to ``made``; return what the run waits for, or ""."""
    known = _known_fingerprints(store)
    recent: dict[str, pa.Table] = {}
    sums: dict[str, KeySum] = {}
    makers: list[StageMaker] = []
    jobs: list[StageJob] = []
    for index, stage in enumerate(stages):
        following = stages[index + 1] if index + 1 < len(stages) else None
        # Sources do not depend on each other: consecutive sources whose inputs are finished are made at the same time.
        goes_on = following is not None and following.kind == "source" and made.keys() >= set(following.inputs())
        how = {"keep_stale": stage.name in keep_stale, "outlived": pool.may_outlive, "alone": not goes_on and not makers}
        maker = StageMaker(store, stage, schemas[stage.name], made, known, recent, sums, following=following, **how)
        report = Reporter(on_progress, stage.name, index, len(stages))
        waits = bool(stage.waits and missing_source(maker.stage))
        if not waits:
            jobs += maker.begin(report)
            makers.append(maker)
        if waits or not goes_on:
            pool.run(jobs)
            made.update({done.stage.name: done.artifact for done in makers})
            makers, jobs = [], []
        if waits:
            report("waiting", 0, None, 0)
            return stage.waits
    return ""


def status(flow: Flow, out: str) -> list[tuple[Stage, Artifact | None]]:
    """Every stage in order, with its artifact if a run would reuse it, otherwise None. Writes nothing.

    >>> from words import read_texts
    >>> from benchwright import source, step, where
    >>> flow = source("listed", step(read_texts, folder=where("texts")))
    >>> status(flow, "elsewhere")[0][1] is None  # the stage has not run yet
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
    """The record of the run in a folder; None if there is none or it is damaged.

    Raises:
        PlanError: another pipeline made the folder, and a run would replace its dataset.
    """
    try:
        earlier = load_run(store) if store.exists("run.json") else None
    except StoreError:  # a damaged record is written again
        return None
    if earlier is not None and earlier.pipeline not in ("", pipeline):
        raise PlanError(f"{store.url} was made by {earlier.pipeline!r}: choose another --out")
    return earlier


def lock(
    store: Store, busy: str = "another run is in progress in {}: wait for it to finish, or choose another --out"
) -> contextlib.AbstractContextManager[object]:
    """Lock a folder, local or in an object store, for one run or one import of votes at a time.

    Entering raises ``Busy`` if another process holds the lock.
    """
    if store.is_bucket:
        return locked_bucket(store, busy.format(store.url))
    return locked(store.local / LOCK, busy.format(store.url)) if store.local else contextlib.nullcontext()


def _check_no_links(store: Store) -> None:
    """Raise ``StoreError`` if a folder of the run is a link: a run removes unknown files from its folders, and the target may
    belong to somebody else.
    """
    if store.local is None:
        return
    for path in (*(store.local / name for name in ("stages", *PUBLISHED)), *store.local.glob("stages/*")):
        if path.is_symlink():
            raise StoreError(f"{path} is a symbolic link, but a run writes only to its own folders: remove it")
    check_tree(store.local)


def _known_fingerprints(store: Store) -> dict[str, tuple[str, str]]:
    try:
        known = read_sealed(store, FINGERPRINTS)["sources"] if store.exists(FINGERPRINTS) else {}
        return {path: (pair[0], pair[1]) for path, pair in known.items()}
    except (StoreError, AttributeError, LookupError, TypeError):  # without it, the sources are only read again
        return {}


def _forget_rejects(store: Store, reasons: Collection[str]) -> None:
    """Remove the parts that contain rejects for one of ``reasons``, so that a run makes only these parts again.

    A stage that is not finished, or whose record is damaged, is left unchanged: the run checks its parts itself.

    Raises:
        TypeError: ``reasons`` is a string instead of a collection of strings.
        StoreError: no row was rejected for one of ``reasons``.
    """
    if isinstance(reasons, str):  # its characters would be taken as the reasons
        raise TypeError(f"retry={reasons!r}: a list of reasons is needed")
    finished: dict[str, Artifact] = {}
    for stage in store.folders("stages"):
        with contextlib.suppress(StoreError):
            if (artifact := load_artifact(store, stage)) is not None:
                finished[stage] = artifact
    known = sorted({reason for artifact in finished.values() for reason in artifact.rejects})
    for reason in reasons:
        if reason not in known:
            message = f"there are {', '.join(known)}" if known else "none was rejected"
            raise StoreError(f"no row of {store.url} was rejected for {reason!r}: {message}")
    for stage, artifact in finished.items():
        if not any(artifact.rejects.get(reason) for reason in reasons):
            continue
        gone = [artifact_file(stage)]  # first: a stage with a missing part must not be recorded as finished
        for number, part in enumerate(artifact.parts):
            name = f"{part_name(number)}.rejects.parquet"
            if name not in part["files"]:
                continue
            rejected = store.read_parquet(posixpath.join(folder(stage), name), ["reason"])["reason"]
            if not set(reasons).isdisjoint(rejected.unique().to_pylist()):
                gone.append(posixpath.join(folder(stage), f"{part_name(number)}.parquet"))
        store.remove(gone)
