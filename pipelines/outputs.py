"""Operations on a run: annotation rounds and votes, baselines and their scores, report, export, release, push."""

from __future__ import annotations

import inspect
import os
import posixpath
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..curation.artifact import load_artifact
from ..curation.local_files import holds_files
from ..curation.reachable_code import one_look
from ..curation.recipe import missing_source
from ..curation.store import Store, StoreError
from ..datasets.exports.forms import Form, writer_of
from . import experiments, training_results
from .config import SettingOverrides
from .errors import WrongUse, did_you_mean
from .jobs import LOGGER, Job, check_dataset, check_finished, dataset_of, job_of, record_of
from .tracking import track_of

if TYPE_CHECKING:
    from ..curation.qa.imports import Imported
    from ..curation.qa.rounds import Round
    from ..curation.stages.raw import Demosaic
    from .two_camera.estimating import Align, Estimate


def train(
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    overrides: SettingOverrides = (),
    scheduler: str = "sync",
    workers: int | None = None,
    retry: Sequence[str] = (),
    keep_stale: bool = False,
    needs: str | None = None,
    wait_for_scheduler_s: float = 0.0,
    track: str | None = None,
    pipeline: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Any:
    """Train baselines on the published shards and evaluate them.

    Skips trainings that are up to date, resumes interrupted ones, and retrains those whose code, settings or data changed.
    Results of other settings are kept.

    Args:
        out: the run.
        methods: names of baselines or of groups of them; default: those in the settings.
        protocols: names of protocols; default: those in the settings.
        overrides: see ``job``; only for these trainings; must not change the dataset.
        scheduler, workers, wait_for_scheduler_s: run trainings in parallel, see ``curation.run.run``.
        retry: reject reasons whose trainings are retried: ``diverged``.
        keep_stale: use finished trainings although their code has changed since; ``kept``, ``show``, ``verify`` and the
            report name them. Their metrics are computed by the present code.
        needs: resource that workers of a cluster must offer for each training, "" for none; by default ``GPU`` where the device
            is one.
        track: ``NAME=PLACE`` of a tracker for losses and metrics, such as ``tensorboard=FOLDER``; does not affect results.
        pipeline: as for ``job_of``.
        progress: called with one line per step.

    Returns:
        ``scores(out)``; None in processes of torchrun other than the first.

    Raises:
        WrongUse: a benchmark without baselines, or an unknown method or protocol.
        StoreError: the run is not finished, or its dataset does not match its settings.

    >>> import benchwright as bw
    >>> scores = bw.train("out", methods=["nap-finetune"])
    >>> scores["iid"]["nap-finetune"]["runs"]  # seeds
    5
    >>> bw.train("out", methods=["nap-finetuned"])
    Traceback (most recent call last):
        ...
    benchwright.pipelines.errors.WrongUse: no method 'nap-finetuned': see `benchwright list methods`, ...
    """
    tracked = track_of(track)
    todo = job_of(out, pipeline=pipeline, overrides=overrides)
    trainings_of = _trainings_of(todo)
    if not (protocols := tuple(protocols)) or not todo.benchmark.early.keys() >= set(protocols):
        check_finished(out)
    with one_look():
        chosen = trainings_of(todo.config, out, tuple(methods), protocols)
    if overrides:
        todo.tell_kept()
    how: dict[str, Any] = {"scheduler": scheduler, "workers": workers, "retry": retry, "progress": progress}
    how |= {"keep_stale": keep_stale, "needs": needs, "wait_for_scheduler_s": wait_for_scheduler_s, "track": tracked}
    if "WORLD_SIZE" in os.environ:  # torchrun's
        from ..training.core.ranks import count
        from .stream_trainings import learn_stream, learner_of
        from .torchrun import train_together

        if count() > 1:
            return _scores(todo, out) if train_together(chosen, out, learner_of, learn_stream, **how) else None
    experiments.run_trainings(chosen, out, **how)
    for line in todo.benchmark.doubts(todo.config, out):
        LOGGER.warning("%s", line)
    return _scores(todo, out)


def scores(out: str, *, pipeline: str | None = None) -> Any:
    """Metrics of the baselines trained on the published dataset: protocol -> method -> the values that ``eval`` prints.

    Only up-to-date results count: ``stale`` names the others.

    Raises:
        WrongUse: a benchmark without baselines.
        StoreError: the run is not finished, or its dataset does not match its settings.

    >>> import benchwright as bw
    >>> iid = bw.scores("out")["iid"]["nap-finetune"]
    >>> sorted(iid["mean"]), 0.5 < iid["mean"]["acc"] <= 1
    (['acc', 'bwt', 'fwt', 'in-domain', 'next-domain'], True)
    """
    todo = job_of(out, pipeline=pipeline)
    _trainings_of(todo)
    check_finished(out)
    return _scores(todo, out)


def _trainings_of(todo: Job) -> Callable[..., Sequence[experiments.Training]]:
    if todo.benchmark.trainings is None:
        raise WrongUse(f"benchmark {todo.benchmark.name} has no baselines: its Benchmark has no `trainings` function")
    return todo.benchmark.trainings


def _scores(todo: Job, out: str) -> Any:
    return {**training_results.mean_scores(out, todo.benchmark.shown), **todo.benchmark.tables(todo.config, out)}


def stale(out: str, *, pipeline: str | None = None) -> dict[str, str]:
    """Results that ``scores`` and ``report`` exclude, since their code changed or they belong to another dataset:
    protocol and method -> reason. ``train`` recomputes them.

    >>> stale("out")  # nothing changed since
    {}
    """
    job_of(out, pipeline=pipeline)
    return training_results.stale_trainings(out)


def kept(out: str, *, pipeline: str | None = None) -> dict[str, str]:
    """Results in ``scores`` and ``report`` that ``train(keep_stale=True)`` kept although their code had changed: protocol and
    line of the table -> what has changed.

    >>> kept("out")  # nothing was kept
    {}
    """
    job_of(out, pipeline=pipeline)
    return training_results.kept_trainings(out)


def skipped(out: str, *, pipeline: str | None = None) -> dict[str, str]:
    """Trainings that were skipped because they cannot be fitted to the dataset: protocol and method -> reason.

    >>> skipped("out")
    {}
    """
    job_of(out, pipeline=pipeline)
    return training_results.skipped_trainings(out)


def report(out: str, *, beside: Sequence[str] = (), pipeline: str | None = None) -> str:
    """Write the HTML report of a run in a local folder, and return its path. Also works for a run that waits for votes.

    Args:
        out: the run.
        beside: other runs of the benchmark, whose results the report joins with this run's; for vCLIMB, in the form of the
            paper's tables, which span data sets and numbers of tasks.
        pipeline: as for ``job_of``.

    Raises:
        WrongUse: the benchmark has no report, or its report joins no runs.
        StoreError: too few stages are finished for a report, or the dataset does not match the settings of the run.

    >>> import benchwright as bw
    >>> bw.report("out")
    'out/report.html'
    """
    _check_local(out, "reports are written")
    todo = job_of(out, pipeline=pipeline)
    if todo.benchmark.report is None:
        raise WrongUse(f"benchmark {todo.benchmark.name} has no report")
    if beside and not todo.benchmark.joins:
        raise WrongUse(f"the report of benchmark {todo.benchmark.name} joins no runs: leave --beside out")
    check_dataset(out)
    if not any(load_artifact(Store(out), stage) for stage in record_of(out).stages):
        raise StoreError(f"{out}: no stage of the run is finished, so there is nothing to report: run again")
    from .report import waiting_for

    try:
        with waiting_for(_waits(todo, out)):
            return todo.benchmark.report(todo.config, out, **({"beside": beside} if beside else {}))
    except (ValueError, LookupError, StopIteration) as error:
        if dataset_of(out):
            raise
        message = str(error) or "none of the stages that it describes has run"
        why = f"the run has published nothing, and too few stages are finished for a report ({message})"
        raise StoreError(f"{out}: {why}") from error


def view(
    out: str,
    other: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8470,
    tell: Callable[[str], None] = print,
) -> None:
    """Show a run in the browser, optionally compared with another, until interrupted. Writes nothing.

    Args:
        out: local folder of the run, finished or not.
        other: folder of another run to compare with.
        host: address to listen on; any other than localhost admits everyone who has the link.
        port: port to listen on; 0 for any free one.
        tell: called with the link, which contains the access token.

    Raises:
        WrongUse: the run is not in a local folder, or the port is taken.
        StoreError: the folder is not that of a run.

    >>> view("s3://bucket/run")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.errors.WrongUse: s3://bucket/run: runs are viewed in local folders only: copy the run to one
    """
    for each in filter(None, (out, other)):
        _check_local(each, "runs are viewed")
    from .view.server import serve

    serve(out, other, host=host, port=port, tell=tell)


def _waits(todo: Job, out: str) -> str:
    """What a person has to do before the run can continue, "" for nothing."""
    store = Store(out)
    waiting = [stage for stage in todo.flow(out).stages if stage.waits and load_artifact(store, stage.name) is None]
    return next((stage.waits for stage in waiting if missing_source(stage)), "")


def release(out: str, folder: str, *, layout: str | None = None, pipeline: str | None = None) -> int:
    """Write a run in the layout of the published release into ``folder``, new or empty. Returns the number of images.

    Args:
        out: the run.
        folder: output folder.
        layout: one of the benchmark's layouts, if it has several; for CLEAR ``training_folder`` or ``train_test``.
        pipeline: see ``job_of``.

    Raises:
        WrongUse: the benchmark has no such layout.
        StoreError: the run is not finished, or its dataset does not match its settings.

    >>> release("out", "clear-release")
    210
    """
    todo = job_of(out, pipeline=pipeline)
    if todo.benchmark.release is None:
        raise WrongUse(f"benchmark {todo.benchmark.name} has no release layout")
    check_finished(out)
    if layout is None:
        return todo.benchmark.release(todo.config, out, folder)
    if "layout" not in inspect.signature(todo.benchmark.release).parameters:
        raise WrongUse(f"benchmark {todo.benchmark.name} has one release layout: leave --layout out")
    return todo.benchmark.release(todo.config, out, folder, layout=layout)


def export(
    out: str,
    folder: str,
    *,
    network: str | None = None,
    direction: str | None = None,
    average: bool = False,
    pipeline: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Train a network, or linear regression, on all data of a run, and write it into ``folder`` as a checked ONNX file with a
    card.

    Args:
        out: local folder of the run; its baselines must be trained, since their folds give the expected error.
        folder: new, empty, or that of an earlier export.
        network: its name in the settings, or ``linear_regression``; optional if there is at most one network.
        direction: ``1to2`` or ``2to1``; required if the settings have both.
        average: export the average of all seeds instead of the first seed's network.
        pipeline: see ``job_of``.
        progress: called with one line per step.

    Returns:
        The ONNX file.

    Raises:
        WrongUse: the benchmark has no export, or the network is unknown or its folds are not trained.
        StoreError: the run is not finished, or its dataset does not match its settings.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("two_camera", config="tiny", overrides=["source.pairs=60"]), "cameras")
    >>> scores = bw.train("cameras", methods=["network-200"])
    >>> export("cameras", "light").name
    'model.onnx'
    """
    _check_local(out, "networks are trained")
    todo = job_of(out, pipeline=pipeline)
    if todo.benchmark.export is None:
        raise WrongUse(f"benchmark {todo.benchmark.name} exports no network")
    check_finished(out)
    how: dict[str, Any] = {"network": network, "direction": direction, "average": average, "progress": progress}
    return todo.benchmark.export(todo.config, out, folder, **how)


def estimate(
    model: str,
    first: str,
    second: str,
    folder: str,
    *,
    device: str | None = None,
    align: Align | None = None,
    least_agreement: float | None = None,
    factor: int | None = None,
    demosaic: Demosaic | None = None,
) -> Estimate:
    """Estimate the light in a picture pair of two cameras with an exported network, and write the picture before and after
    correction into ``folder``. For arguments and errors see ``two_camera.estimating.estimate``.

    >>> estimate("nowhere", "main.dng", "wide.dng", "looked")
    Traceback (most recent call last):
        ...
    FileNotFoundError: nowhere/model.json not found: expected a folder written by `benchwright export`
    """
    from .two_camera.estimating import estimate as estimate_pair

    how: dict[str, Any] = {"device": device, "align": align, "least_agreement": least_agreement}
    return estimate_pair(model, first, second, folder, factor=factor, demosaic=demosaic, **how)


def push(out: str, to: str, *, form: Form = "parquet", progress: Callable[[str], None] = lambda _: None) -> int:
    """Write the published dataset elsewhere, and return the number of samples. Repeat an interrupted call to resume it.

    Args:
        out: the run.
        to: a folder, or any fsspec URL, such as ``hf://datasets/OWNER/NAME`` or ``s3://BUCKET/NAME``. A missing hub
            repository is created as private.
        form: "parquet" for Hugging Face's ``load_dataset``: payloads in the columns of a table, splits as
            configurations; "shards": the files unchanged; "fiftyone": media for ``fiftyone.types.FiftyOneDataset``;
            or "label-studio": tasks with thumbnails and their classes.
        progress: called with one line per file.

    Raises:
        StoreError: the run is not finished, its dataset does not match its settings, or writing fails.
        WrongUse: the target contains foreign files.
        ValueError: the dataset has nothing that this form can represent.

    >>> push("out", "for-the-hub")
    210
    """
    from ..datasets.exports.hugging_face import make_repository

    check_finished(out)
    dataset, target = dataset_of(out), Store(to)
    if not dataset:
        raise WrongUse(f"{out}: the run publishes no dataset")
    marks, write = writer_of(form)
    if target.local and holds_files(target.local) and not any(map(target.exists, marks)):
        raise WrongUse(f"{to}: it contains files, but no {marks[0]} of an earlier push: choose a new or empty folder")
    if to.startswith("hf://") and make_repository(to):
        progress(f"{to}: created a private repository")
    return write(dataset, target, progress=progress)


def qa_export(
    out: str,
    folder: str | None = None,
    *,
    tool: Literal["mturk", "label-studio"] = "mturk",
    batch_size: int | None = None,
    thumbnails: bool = True,
    gold: str | None = None,
    gold_per_batch: int = 5,
    round: str | None = None,
    pipeline: str | None = None,
) -> list[Path]:
    """Export the questions of an annotation round, which must be named if the run has several.

    See ``curation.qa.rounds.export_questions``. ``folder`` is ``qa/export`` in the run's folder by default, and
    ``qa/<round>/export`` for a round with a name.

    Raises:
        WrongUse: the pipeline asks no questions, or has no such round.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("shapes.py"), "shapes")
    >>> [path.name for path in qa_export("shapes")]
    ['labels.html', 'sensitive.html', 'bucket00.csv']
    """
    from ..curation.qa.rounds import export_questions

    if folder is None and "://" in out:
        raise WrongUse(f"{out}: name a local folder for the files, with --to FOLDER")
    if gold is not None and tool != "mturk":
        raise WrongUse(f"--gold {gold}: gold questions are supported only for mturk")
    asked, place = asking(out, pipeline, round)
    return export_questions(
        asked,
        place,
        folder or f"{place}/{asked.folder}/export",
        tool=tool,
        batch_size=batch_size,
        thumbnails=thumbnails,
        gold=gold,
        gold_per_batch=gold_per_batch,
    )


def qa_import(
    out: str,
    results: Sequence[str],
    *,
    salt: str | None = None,
    replace: bool = False,
    round: str | None = None,
    pipeline: str | None = None,
) -> Imported:
    """Add the votes of result files to those of earlier imports. See ``curation.qa.imports.import_votes``.

    ``salt`` is stored in ``qa/salt`` of the run's folder by default. For ``round`` and errors see ``qa_export``.

    >>> qa_import("shapes", ["answers.csv"])
    Traceback (most recent call last):
        ...
    FileNotFoundError: answers.csv: no such file
    """
    from ..curation.qa.imports import import_votes, own_salt

    if salt is None and "://" in out:
        raise WrongUse(f"{out}: give the same --salt TEXT every time, and store it yourself: it is not stored with remote runs")
    if missing := [name for name in results if not Path(name).is_file()]:
        raise FileNotFoundError(f"{missing[0]}: no such file")
    asked, place = asking(out, pipeline, round)
    return import_votes(asked, place, results, salt=salt or own_salt(place), replace=replace)


def awaited(out: str, *, pipeline: str | None = None) -> dict[str, str]:
    """Trainings that wait for annotators: the name of each round of questions, and the number of missing answers.

    >>> awaited("out")  # no questions
    {}
    """
    from ..curation.qa.rounds import unanswered

    todo = job_of(out, pipeline=pipeline)
    place = posixpath.join(out, training_results.FOLDER)
    found = {each.name: unanswered(each, place) for each in todo.benchmark.asked(todo.config, out)}
    return {
        name: f"waits for {sum(short.values()):,} answers about {len(short):,} samples: `benchwright qa serve {out} --round "
        f"{name}`, or `qa export` and `qa import` with the same options; then train again"
        for name, short in found.items()
        if short
    }


def asking(out: str, pipeline: str | None, name: str | None) -> tuple[Round, str]:
    """The round of that name, and the folder of its rows; without a name the only round, or the only one that waits.

    Raises:
        WrongUse: the pipeline asks no questions, or has no such round.
    """
    from ..curation.qa.rounds import unanswered

    todo = job_of(out, pipeline=pipeline)
    place = posixpath.join(out, training_results.FOLDER)
    inside = {each.name: (each, place) for each in todo.benchmark.asked(todo.config, out)}
    rounds = {each: (asked, out) for each, asked in todo.rounds().items()} | inside
    if not rounds:
        raise WrongUse(f"{out}: this pipeline asks no annotators")
    if name is None and len(rounds) > 1:
        waiting = [each for each in rounds if each not in inside or unanswered(inside[each][0], place)]
        if len(waiting) != 1:
            message = ", ".join(waiting or rounds)
            raise WrongUse(f"{out}: this pipeline has several rounds of questions: set --round to one of {message}")
        name = waiting[0]
    name = next(iter(rounds)) if name is None else name
    if name not in rounds:
        known = ", ".join(each for each in rounds if each) or "the only round has no name: leave out --round"
        raise WrongUse(f"{out}: no round of questions {name!r}: {known}{did_you_mean(name, rounds)}")
    return rounds[name]


def _check_local(out: str, what: str) -> None:
    if "://" in out:
        raise WrongUse(f"{out}: {what} in local folders only: copy the run to one")
