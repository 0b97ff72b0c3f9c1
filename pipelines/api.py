"""The commands of the command line, as functions of the same names.

``list`` is ``list_benchmarks`` and ``list_names``, ``eval`` is ``scores``, ``qa export`` is ``qa_export``, and so on for the
other commands of ``qa``. ``config`` and ``demo`` have no function: ``job(...).values`` are the settings of a benchmark.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..curation import run as engine
from ..curation.artifact import Artifact, load_artifact, load_made, load_run
from ..curation.budget import example_of
from ..curation.code_changes import change, changed_source
from ..curation.cost import CostEstimate, cost_estimates
from ..curation.encoders.speeds import encoder_speeds
from ..curation.extras import lacking
from ..curation.flow import PlanError, Stage
from ..curation.part_writer import written_parts
from ..curation.reachable_code import one_look
from ..curation.recipe import missing_source
from ..curation.records import PUBLISHED, Problem
from ..curation.requirements import check_packages
from ..curation.store import Store, StoreError, file_sha256
from ..curation.verify import DATASET, compare, made_again, verify
from .cluster import cluster
from .errors import WrongUse
from .inspection import describe_differences, kept_stages, rejects, show
from .jobs import LOGGER, Job, dataset_of, job, job_of, record_of
from .listing import list_benchmarks, list_names
from .outputs import (
    asking,
    awaited,
    estimate,
    export,
    kept,
    push,
    qa_export,
    qa_import,
    release,
    report,
    scores,
    skipped,
    stale,
    train,
    view,
)
from .schema import schema
from .training_costs import training_estimates
from .training_results import reading_once

if TYPE_CHECKING:
    from ..curation.qa.imports import Imported
    from ..curation.qa.rounds import Round

__all__ = [
    "Job",
    "awaited",
    "cluster",
    "compare",
    "dataset_of",
    "describe_differences",
    "encoder_speeds",
    "estimate",
    "estimate_costs",
    "export",
    "job",
    "job_of",
    "kept",
    "kept_stages",
    "list_benchmarks",
    "list_names",
    "plan",
    "push",
    "qa_export",
    "qa_import",
    "qa_serve",
    "reading_once",
    "reasons",
    "record_of",
    "rejects",
    "release",
    "remake",
    "report",
    "run",
    "schema",
    "scores",
    "show",
    "skipped",
    "stale",
    "train",
    "verify",
    "view",
]


def plan(todo: Job, out: str) -> list[tuple[Stage, Artifact | None]]:
    """List the stages in order, each with its artifact if it is up to date. Runs nothing.

    Raises:
        PlanError: as ``run``.

    >>> import benchwright as bw
    >>> todo = bw.job("words.py")
    >>> [(stage.name, made is not None) for stage, made in bw.plan(todo, "planned")]
    [('listed', False), ('counted', False), ('placed', False), ('shards', False)]
    >>> done = bw.run(todo, "planned")
    >>> [(stage.name, made is not None) for stage, made in bw.plan(todo, "planned")]
    [('listed', True), ('counted', True), ('placed', True), ('shards', True)]
    """
    engine.check_folder(Store(out), todo.benchmark.name)
    with todo.naming_settings():
        planned = engine.status(todo.flow(out), out)
    check_packages(stage for stage, made in planned if made is None)
    return planned


def estimate_costs(todo: Job, out: str, rows: Mapping[str, int], *, smaller: str = "") -> list[CostEstimate]:
    """Estimate the cost of a run with other numbers of rows, and of its trainings, from a finished sample run. If code or
    settings have changed since, a warning says so.

    Args:
        todo: the benchmark with the settings of the sample.
        out: the sample.
        rows: stage -> number of output rows, for the source and for stages that keep a fixed number. Other stages keep the
            ratio of output to input rows that they had in the sample.
        smaller: a run of the same stages on fewer rows: with it, start-up time is separated from the time per row, and the
            growth of memory is estimated.

    Raises:
        PlanError: a stage of the sample has not run, or ``rows`` names an unknown stage.

    >>> import benchwright as bw
    >>> todo = bw.job("words.py")
    >>> done = bw.run(todo, "sample")
    >>> [(each.stage, each.rows) for each in estimate_costs(todo, "sample", {"listed": 3_000_000})]
    [('listed', 3000000), ('counted', 2000000), ('placed', 2000000), ('shards', 2000000)]
    """
    store = Store(out)
    fresh = plan(todo, out)
    planned = [(stage, artifact or load_artifact(store, stage.name)) for stage, artifact in fresh]
    done = {stage.name: artifact for stage, artifact in planned}
    if stale := [(name, why) for name, why in reasons(fresh, out).items() if done[name] is not None]:
        LOGGER.warning("stage %r is %s: the estimate is for what it was", *stale[0])
    less: dict[str, Artifact] = {}
    fewer: dict[str, tuple[int, Mapping[str, Any]]] = {}
    if smaller:
        other = Store(smaller)
        for name in done:
            if (artifact := load_artifact(other, name)) is None:
                raise PlanError(f"the smaller sample {smaller} has no finished stage {name!r}: run it to its end first")
            less[name], fewer[name] = artifact, (artifact.rows_in, load_made(other, name))
    found = cost_estimates(planned, {name: load_made(store, name) for name in done}, rows, fewer)
    last = todo.flow(out).last
    samples = {each.stage: each.rows for each in found}[last]
    of, few = (artifact.rows if artifact else 0 for artifact in (done[last], less.get(last)))
    return found + training_estimates(out, samples, of=of, smaller=smaller, fewer=few)


def reasons(planned: Sequence[tuple[Stage, Artifact | None]], out: str) -> dict[str, str]:
    """Explain why stages are not up to date: stage -> one line, for the stages without artifact.

    >>> import benchwright as bw
    >>> todo = bw.job("words.py")
    >>> done = bw.run(todo, "reasons")
    >>> stricter = bw.job("words.py", overrides=["min_words=6"])
    >>> reasons(bw.plan(stricter, "reasons"), "reasons")["counted"]
    'stale: setting min_words = 6, which was 3'
    """
    store = Store(out)
    states: dict[str, str] = {}
    for stage, artifact in planned:
        if artifact is not None:
            continue
        before = [name for name in stage.inputs() if name in states]
        try:
            old = load_artifact(store, stage.name)
        except StoreError:  # damaged, which a run treats as missing
            old = None
        if stage.waits and (awaited := missing_source(stage)):
            states[stage.name] = f"waits for {awaited}"
        elif old is None:
            parts = len(written_parts(store, stage.name))
            states[stage.name] = (
                f"not finished: {parts} part{'s' * (parts > 1)} there, reused if still valid" if parts else "not run yet"
            )
        elif why := change(stage, old, store):
            states[stage.name] = f"stale: {why}"
        elif before:
            states[stage.name] = f"reused if {before[0]} gives the same rows"
        else:
            states[stage.name] = f"stale: {changed_source(stage, old) or 'a file of the stage changed'}"
    return states


def run(
    todo: Job,
    out: str,
    *,
    scheduler: str = "threads",
    workers: int | None = None,
    retry: Sequence[str] = (),
    keep_stale: Sequence[str] = (),
    needs: Mapping[str, str] | None = None,
    wait_for_scheduler_s: float = 0.0,
    on_progress: Callable[[engine.Progress], None] = lambda _: None,
) -> engine.Run:
    """Run the stages that are not up to date, simulate annotators if the settings say so, and publish the dataset.

    Args:
        todo: the benchmark and its settings.
        out: folder or URL of the run.
        scheduler: see ``curation.run.run``, also for ``workers``, ``wait_for_scheduler_s`` and ``on_progress``.
        retry: reject reasons whose rows are retried, such as ``timed_out``.
        keep_stale: stages to reuse although their code changed; ``show`` and ``verify`` say so.
        needs: stage -> resource that workers of a cluster must offer for it, such as ``GPU``; "": none. Does not affect
            results.

    Returns:
        The run; if it could not finish, its ``waiting`` says what a person has to do.

    Raises:
        PlanError: and others, as ``curation.run.run``.
        WrongUse: the settings of the baselines do not fit; raised before anything runs, and only if the packages for training
            are installed. Not checked again if a run with the same settings has already finished.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("words.py", overrides=["min_words=3"]), "words")
    >>> done.rows().table(["key", "words"]).to_pylist()
    [{'key': 'one', 'words': 5}, {'key': 'two', 'words': 6}]
    >>> done.waiting  # nothing to do
    ''
    """
    if not _was_finished(todo, out):
        _check_baselines(todo)
    todo.tell_kept()
    progress = _Once(on_progress)
    rounds = todo.rounds()
    waited = ""
    while True:
        with todo.naming_settings():
            done = engine.run(
                todo.flow(out),
                out,
                scheduler=scheduler,
                workers=workers,
                pipeline=todo.benchmark.name,
                config=todo.values,
                overrides=todo.overrides,
                code=todo.code(),
                retry=retry,
                keep_stale=keep_stale,
                needs=needs,
                wait_for_scheduler_s=wait_for_scheduler_s,
                on_progress=progress,
            )
        retry = ()
        if not done.waiting:
            _check_rows_left(done, out, "to publish")
            todo.benchmark.publish(done, todo.config, posixpath.join(out, DATASET))
            _publish_early(todo, done, out)
            manifest = posixpath.join(DATASET, "dataset.json")
            if done.store.exists(manifest):
                sha256 = file_sha256(done.store, manifest)
                dataclasses.replace(load_run(done.store), published=sha256, outdated=False).save(done.store)
            return done
        if done.waiting == waited or not _answer(done, rounds.values(), out):
            _publish_early(todo, done, out)
            progress.wait()
            return done
        waited = done.waiting


def _publish_early(todo: Job, done: engine.Run, out: str) -> None:
    """Publish the datasets other than the main one, and record them."""
    for publish in todo.benchmark.early.values():
        publish(done, todo.config, posixpath.join(out, DATASET))
    names = {name: posixpath.join(name, "dataset.json") for name in PUBLISHED if name != DATASET}
    beside = {name: file_sha256(done.store, each) for name, each in names.items() if done.store.exists(each)}
    record = load_run(done.store)
    if dict(record.beside) != beside:
        dataclasses.replace(record, beside=beside).save(done.store)


def _check_rows_left(done: engine.Run, out: str, purpose: str) -> None:
    """Raise ``RuntimeError`` if the last finished stage has no rows, which means an error in the settings or the votes.

    Args:
        done: the run, finished or waiting.
        out: its folder, for the message.
        purpose: what the rows were for, as in "no rows are left to publish".
    """
    if done.result.rows:
        return
    empty = next((one for one in done.artifacts if one.rows_in and not one.rows), None)
    if empty is None:
        first = next(one for one in done.artifacts if not one.rows)
        raise RuntimeError(f"{out}: no rows are left {purpose}: {first.kind} stage {first.stage!r} gave no rows")
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in empty.rejects.items())
    most = max(sorted(empty.rejects), key=lambda reason: empty.rejects[reason])
    raise RuntimeError(
        f"{out}: no rows are left {purpose}: stage {empty.stage!r} rejected all {empty.rows_in:,} rows ({reasons})"
        f"{example_of(done.store, empty.reject_files(), most)}: see `benchwright rejects {out}`"
    )


def _answer(done: engine.Run, rounds: Collection[Round], out: str) -> bool:
    """Let SIMULATED annotators answer the rounds that are configured so. Returns whether any was answered."""
    if not rounds:
        return False
    from ..curation.qa.simulated import answer

    _check_rows_left(done, out, "to ask annotators about")  # simulated or not
    return any(answer(done, each, out) for each in rounds)


def _was_finished(todo: Job, out: str) -> bool:
    """Whether a run with these settings has finished. They were checked then; a check loads torch, which takes two seconds."""
    try:
        record = load_run(Store(out))
    except StoreError:
        return False
    same = (record.pipeline, record.config, record.code) == (todo.benchmark.name, todo.values, todo.code())
    return same and bool(record.published) and not record.outdated


@one_look()
def _check_baselines(todo: Job) -> None:
    try:
        todo.benchmark.check(todo.config)
    except Exception as error:
        if not lacking(error):  # building a dataset does not need the packages for training
            raise


def qa_serve(
    out: str,
    *,
    annotators: Sequence[str] = (),
    gold: str | None = None,
    gold_every: int = 20,
    host: str = "127.0.0.1",
    port: int = 8471,
    round: str | None = None,
    pipeline: str | None = None,
    tell: Callable[[str, str], None] = print,
) -> Imported | None:
    """Serve a round of questions in the browser until interrupted, then import the answers.

    Every answer is on disk before its annotator sees the next question; after a kill, the same call resumes.

    Args:
        out: local folder of the run.
        annotators: names of people to invite; more can be invited on the requester's page.
        gold: CSV file of questions with known answers, see ``curation.qa.rounds.export_questions``.
        gold_every: one in this many questions is a gold question.
        host, port: as for ``view``.
        round: as for ``qa_export``.
        pipeline: see ``job_of``.
        tell: called with a name and a link: "requester", "join" (visitors choose their own name), and every annotator.

    Returns:
        The result of the import, see ``qa_import``; None if nobody has answered.

    Raises:
        WrongUse: the run is not in a local folder, the port is taken, or the pipeline asks no questions.
        Busy: another process serves this round, or works in ``out``.

    >>> qa_serve("s3://bucket/run")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.errors.WrongUse: s3://bucket/run: annotation works only on runs in local folders: copy ...
    """
    if "://" in out:
        raise WrongUse(f"{out}: annotation works only on runs in local folders: copy the run to one")
    from .view.annotate import serve

    (asked, place), todo = asking(out, pipeline, round), job_of(out, pipeline=pipeline)
    if asked.simulated is not None:
        LOGGER.warning(
            "%s: simulated annotators answer this round: votes of people count only if the settings request them", out
        )

    def go_on() -> str:
        if place != out:  # questions of trainings
            train(out, pipeline=pipeline)
            waits = awaited(out, pipeline=pipeline)
            return f"Trainings are waiting again: {'; '.join(waits)}." if waits else "The trainings are finished."
        done = run(todo, out)
        return (
            f"The run is waiting again: {done.waiting}." if done.waiting else f"The run is finished: {done.result.rows:,} rows."
        )

    return serve(
        asked,
        place,
        annotators=annotators,
        gold=gold,
        gold_every=gold_every,
        host=host,
        port=port,
        go_on=go_on,
        tell=tell,
    )


class _Once:
    """Forwards progress: each stage once, although the plan is run again after an answer, and "waiting" last."""

    def __init__(self, tell: Callable[[engine.Progress], None]) -> None:
        self._tell = tell
        self._reported: set[str] = set()
        self._waiting: engine.Progress | None = None

    def __call__(self, progress: engine.Progress) -> None:
        if progress.state == "waiting":
            self._waiting = progress
        elif progress.state != "reused" or progress.stage not in self._reported:
            self._reported.add(progress.stage)
            self._tell(progress)

    def wait(self) -> None:
        """Report that the run is waiting: nobody answered."""
        if self._waiting:
            self._tell(self._waiting)


def remake(out: str, scratch: str, *, pipeline: str | None = None, **how_to_run: Any) -> list[Problem]:
    """Recompute the run of ``out`` in ``scratch``, and report where its files differ. ``pipeline`` as for ``job_of``.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("words.py"), "first")
    >>> remake("first", "second")
    []
    """
    return made_again(job_of(out, pipeline=pipeline).flow(out), out, scratch, **how_to_run)
