"""Trainings as stages of the engine.

``experiments`` in the folder of a run is itself the folder of a run. Each training is a stage ``learned_...``, a source whose
rows are predictions, with one stage ``measured_...`` for each set of metrics computed from them. So a training is keyed by the
dataset's digest, its settings and the code that it reaches; finished trainings are reused; a killed training resumes from its
checkpoint; workers train side by side; ``verify``, ``show``, ``rejects`` and ``compare`` work on results. Trainings with
different settings are kept side by side: a plan adds to the folder, and removes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..curation import run as engine
from ..curation.artifact import load_artifact, load_run
from ..curation.flow import Flow, Stage, Step, rows_of
from ..curation.keys import canonical, codes_in, how, sha256
from ..curation.publish import parquet_bytes
from ..curation.rows import REJECTS, Sifted, without_addresses
from ..curation.store import Store, StoreError, file_sha256
from ..curation.verify import DATASET
from ..eval.results import RESULTS, Value
from .names import file_reference, name_apart
from .tracking import Track, logging_to
from .training_results import (
    FOLDER,
    LEARNED,
    MEASURED,
    NOT_FITTED,
    dataset_digest,
    forget,
    names_of_files,
    reject_details,
    results,
)

RESULTS_FILE = "results.parquet"
"""File in that folder with the table ``results``, as of the last call of ``run_trainings``."""

DIVERGED = "diverged"
"""Reject reason of a training whose loss did not stay finite."""

LOGGER = logging.getLogger("benchwright.training")
"""Logger for the progress of trainings in this process."""

_TOLD = 3
"""Most failed trainings that are named."""


class Diverged(ValueError):
    """The loss of some trainings did not stay finite; the others have finished.

    >>> from benchwright.pipelines.column_streams import stream_trainings
    >>> columns = {"domain": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    >>> too_fast = {"schedule": {"learning_rate": 1e30, "epochs": 1}}
    >>> run_trainings(stream_trainings("out", ["finetune"], **columns, settings=too_fast), "out")
    Traceback (most recent call last):
        ...
    benchwright.pipelines.experiments.Diverged: 1 training failed: domains finetune, seed 0: ...
    """


@dataclass(frozen=True)
class Leaves:
    """A file that a training writes into the folder of the run, such as weights.

    Attributes:
        column: column with the content, a ``Blob``, in the training's only row.
        name: name of the file within the run; ``{name}`` is replaced by the name of the training.
        message: text once it is written, with ``{path}``; may have several lines.

    >>> leaves = Leaves("weights", "weights/{name}.npy", "its weights: {path}")
    >>> leaves.name.format(name="iid_er_3")
    'weights/iid_er_3.npy'
    """

    column: str
    name: str
    message: str


@dataclass(frozen=True)
class Training:
    """One training, and how it is measured.

    Attributes:
        protocol, method, model: names as printed in tables; code in a file is named without its folders; see
            ``with_distinct_names``.
        settings: JSON values of all other settings in which trainings of the benchmark may differ.
        seed: seed of the training, or number of the repeat.
        learn: source step; the engine adds ``training``, these facts as a mapping, and ``digest``, that of the dataset.
        gives: columns of its rows.
        measures: name -> source step that yields ``eval.results.Value`` from ``predictions``, the rows of ``learn``. A
            setting ``training`` among theirs is set like that of ``learn``.
        order: number of the order of tasks or classes, where the benchmark has several.
        pieces: names the pieces that ``learn`` makes separately, see ``flow.source``.
        change: the setting to change if it diverges.
        data: folder of the run with the dataset that it learns from.
        leaves: file to write from its rows when it is finished.
        before: runs stages that must come first, where these wait for people. Takes the training, the digest of its dataset,
            the run and a function that runs a plan; returns the stages and further settings for ``learn``, or None to wait.

    >>> from benchwright.pipelines.column_streams import stream_trainings
    >>> columns = {"domain": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    >>> trainings = stream_trainings("out", ["finetune", "er"], **columns)
    >>> [(each.protocol, each.method, each.model, each.seed) for each in trainings]
    [('domains', 'finetune', 'mlp', 0), ('domains', 'er', 'mlp', 0)]
    """

    protocol: str
    method: str
    model: str
    settings: Mapping[str, Any]
    seed: int
    learn: Step
    gives: type | pa.Schema
    measures: Mapping[str, Step]
    order: int = 0
    pieces: Step | None = None
    change: str = "the learning rate"
    data: str = DATASET
    leaves: Leaves | None = None
    before: Callable[[Training, str, str, Callable[[Flow], object]], tuple[Flow, Mapping[str, Any]] | None] | None = None

    def facts(self) -> dict[str, Any]:
        """Everything that distinguishes it from other trainings, as JSON values."""
        named = {"protocol": self.protocol, "method": self.method, "model": self.model}
        return {**named, "settings": dict(self.settings), "order": self.order, "seed": self.seed}

    def name(self, dataset: str) -> str:
        """Name of its stages without their prefixes, for the dataset with that digest."""
        return training_name(dataset, self.facts())

    def stages(self, dataset: str) -> tuple[Stage, list[Stage]]:
        """The stage that learns, and the stages that measure."""
        name = self.name(dataset)
        given = {**self.learn.settings, "training": self.facts(), "digest": dataset}
        step = dataclasses.replace(self.learn, settings=given)
        learned = Stage(f"{LEARNED}{name}", "source", step, None, self.pieces, self.gives, max_rejects=None, may_be_empty=True)
        measured: list[Stage] = []
        for kind, each in self.measures.items():
            about = {"training": self.facts()} if "training" in each.settings else {}
            step = dataclasses.replace(each, settings={**each.settings, **about, "predictions": rows_of(learned.name)})
            stage = Stage(f"{MEASURED}{name}_{kind}", "source", step, None, None, Value, max_rejects=None, may_be_empty=True)
            measured.append(stage)
        return learned, measured


def training_name(dataset: str, facts: Mapping[str, Any]) -> str:
    """Name of a training: its main facts in words, and a digest of all facts and the dataset.

    >>> training_name("the digest of a dataset", {"protocol": "iid", "method": "er", "order": 0, "seed": 3})
    'iid_er_3_...'
    """
    order = f" {facts['order']}" if facts["order"] else ""
    words = re.sub(r"[^a-z0-9]+", "_", f"{facts['protocol']}{order} {facts['method']} {facts['seed']}".lower()).strip("_")
    return f"{words[-80:]}_{sha256(canonical([dataset, dict(facts)]))[:10]}"


def with_distinct_names(trainings: Iterable[Training], out: str) -> list[Training]:
    """The trainings, in which methods or models in different files have different names.

    A file whose name was given to another one in this run is named with as many of its folders as distinguish it: see
    ``names.name_apart``. Trainings with copies of one file are one.

    >>> from pathlib import Path
    >>> from benchwright.pipelines.column_streams import stream_trainings
    >>> columns = {"domain": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    >>> for folder, method in (("old", "finetune"), ("new", "er")):
    ...     Path(folder).mkdir()
    ...     size = Path(folder, "mine.py").write_text(f"from benchwright.training.methods.{method} import {method} as mine")
    >>> trainings = stream_trainings("out", ["old/mine.py:mine", "new/mine.py:mine"], **columns)
    >>> [one.method for one in trainings], [one.method for one in with_distinct_names(trainings, "out")]
    (['mine.py:mine', 'mine.py:mine'], ['mine.py:mine', 'new/mine.py:mine'])
    """
    known: dict[str, str] | None = None
    found: dict[str, Training] = {}
    for number, one in enumerate(trainings):
        codes = [str(code) for value in one.learn.settings.values() for code in codes_in(value)]
        files = {part: file_reference(getattr(one, part), codes) for part in ("method", "model")}
        for part, reference in files.items():
            if reference:
                known = names_of_files(out) if known is None else known
                known[reference] = name_apart(reference, known)
                one = dataclasses.replace(one, **{part: known[reference]})
        found.setdefault(canonical(one.facts()) if any(files.values()) else str(number), one)
    return [*found.values()]


def run_trainings(
    trainings: Sequence[Training],
    out: str,
    *,
    scheduler: str = "sync",
    workers: int | None = None,
    retry: Sequence[str] = (),
    keep_stale: bool = False,
    needs: str | None = None,
    wait_for_scheduler_s: float = 0.0,
    track: Track | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the trainings that are not finished yet, side by side if there are workers.

    Args:
        trainings: the trainings.
        out: the run.
        scheduler, workers, retry, wait_for_scheduler_s: see ``curation.run.run``.
        keep_stale: reuse finished trainings although their code has changed since; their metrics are computed by the present
            code.
        needs: resource that workers of a cluster must offer for a training, "" for none; by default ``GPU`` by the device.
        track: tracker for the losses and metrics of the trainings that run now.
        progress: called with a line of text when a training reaches a new state.

    Raises:
        Diverged: a loss did not stay finite; the other trainings have finished.
        WrongUse: the run lacks the dataset that a training learns from.

    >>> from benchwright.pipelines.clear import baselines
    >>> from benchwright.pipelines.jobs import job_of
    >>> asked = baselines.trainings(job_of("out").config, "out", ["nap-finetune"], ["iid"])
    >>> run_trainings(asked[:2], "out", progress=print)
    iid nap-finetune, seed 0: up to date
    iid nap-finetune, seed 1: up to date
    """
    record, trainings = load_run(Store(out)), with_distinct_names(trainings, out)
    digests = {name: dataset_digest(out, name) for name in {one.data for one in trainings}}
    pairs = [_tracked(one, track).stages(digests[one.data]) for one in trainings if one.before is None]
    made: set[str] = set()

    def make(flow: Flow) -> None:
        engine.run(
            flow,
            posixpath.join(out, FOLDER),
            scheduler=scheduler,
            workers=workers,
            pipeline=f"{record.pipeline} experiments",
            config=record.config,
            overrides=record.overrides,
            retry=retry,
            keep_stale=_finished_of(flow, out) if keep_stale else (),
            needs={} if needs is None else {each.name: needs for each in flow.stages if each.name.startswith(LEARNED)},
            wait_for_scheduler_s=wait_for_scheduler_s,
            add=True,
            on_progress=_teller(flow, progress, made),
        )

    with _listening(progress):
        if pairs:  # first all are learned, then all are measured
            make(Flow((*(learned for learned, _ in pairs), *(each for _, measured in pairs for each in measured))))
        for one in trainings:
            if one.before is None or (found := one.before(one, digests[one.data], out, make)) is None:
                continue
            learn = dataclasses.replace(one.learn, settings={**one.learn.settings, **found[1]})
            learned, measured = _tracked(dataclasses.replace(one, learn=learn), track).stages(digests[one.data])
            make(Flow((*found[0].stages, learned, *measured)))
    forget()
    stages = [(one, f"{LEARNED}{one.name(digests[one.data])}") for one in trainings]
    for one, name in stages:
        if one.leaves is not None:
            _leave(one.leaves, name, out, progress)
    if track is not None:
        _log_metrics(out, [(one, name) for one, name in stages if name in made], track)
    try:
        _check_diverged(stages, out)
    finally:
        _write_results(out)


def _finished_of(flow: Flow, out: str) -> list[str]:
    """Names of the stages of finished trainings."""
    store, found = Store(posixpath.join(out, FOLDER)), list[str]()
    for stage in (each for each in flow.stages if each.name.startswith(LEARNED)):
        with contextlib.suppress(StoreError):  # a damaged one is trained again
            found += [stage.name] if load_artifact(store, stage.name) else []
    return found


def _tracked(one: Training, track: Track | None) -> Training:
    """The training, with the tracker passed to its step if this accepts one."""
    if "track" not in one.learn.settings:
        return one
    return dataclasses.replace(one, learn=Step(one.learn.function, {**one.learn.settings, "track": how(track)}))


def _log_metrics(out: str, trained: Sequence[tuple[Training, str]], track: Track) -> None:
    """Log the metrics of trainings to the tracker, by positions learned if there are several."""
    store, known = Store(posixpath.join(out, FOLDER)), results(out) if trained else RESULTS.empty_table()
    for one, stage in trained:
        artifact = load_artifact(store, stage)
        if artifact is None or not artifact.rows:  # it diverged
            continue
        mine = known.filter(pc.and_(pc.equal(known["experiment"], artifact.digest), pc.is_valid(known["value"])))
        with logging_to(track, stage.removeprefix(LEARNED), one.facts()) as log:
            for row in mine.to_pylist():
                about = [row["metric"], *(row[name] for name in ("tested", "split", "stratum") if row[name])]
                log({"/".join(about): row["value"]}, row["position"] or 0)


def _write_results(out: str) -> None:
    """Write the table of results for other programs; an identical file is not written again."""
    store, data = Store(posixpath.join(out, FOLDER)), parquet_bytes(results(out))
    if store.size(RESULTS_FILE) != len(data) or file_sha256(store, RESULTS_FILE) != sha256(data):
        store.write(RESULTS_FILE, data)


def _leave(leaves: Leaves, stage: str, out: str, tell: Callable[[str], None]) -> None:
    store = Store(posixpath.join(out, FOLDER))
    artifact = load_artifact(store, stage)
    if artifact is None or not artifact.rows:  # it diverged
        return
    run, name = Store(out), leaves.name.format(name=stage.removeprefix(LEARNED))
    ref = artifact.rows_view(store).table([leaves.column])[leaves.column].to_pylist()[0]
    if run.size(name) != ref["size"] or file_sha256(run, name) != ref["sha256"]:
        run.write(name, store.blob(ref).read())
    path = posixpath.join(out, name) if run.local is None else os.path.abspath(posixpath.join(out, name))
    for line in leaves.message.format(path=path).splitlines():
        tell(line)


@contextlib.contextmanager
def _listening(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass log messages of trainings in this process to ``tell``."""

    class Pass(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    handler, level = Pass(logging.INFO), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = True


def training_text(facts: Mapping[str, Any]) -> str:
    """A training in words.

    >>> training_text({"protocol": "iid", "method": "er", "order": 0, "seed": 3})
    'iid er, seed 3'
    """
    order = f", order {facts['order']}" if facts["order"] else ""
    return f"{facts['protocol']} {facts['method']}{order}, seed {facts['seed']}"


def _teller(flow: Flow, tell: Callable[[str], None], made: set[str]) -> Callable[[engine.Progress], None]:
    """Report the progress of trainings, and collect the stages that are learned now in ``made``."""
    facts = {stage.name: stage.step.settings["training"] for stage in flow.stages if stage.name.startswith(LEARNED)}

    def tell_of(progress: engine.Progress) -> None:
        if progress.stage not in facts:
            return
        if progress.state == "done":
            made.add(progress.stage)
        state = {"reused": "up to date", "done": "trained", "stale": f"stale: {progress.why}"}.get(progress.state)
        if state:
            tell(f"{training_text(facts[progress.stage])}: {state}")

    return tell_of


def rejected_training(gives: pa.Schema, error: Exception, reason: str = DIVERGED, *, key: str = "") -> Sifted:
    """No rows, and a reject for the training, or for the part of it named ``key``, such as for a loss that is not finite.

    A subclass of ``ArithmeticError``, such as ``ZeroDivisionError``, is a bug in the code, and is raised again.

    >>> rejected_training(pa.schema([("key", pa.string())]), ArithmeticError("the loss is nan")).rejected.to_pylist()
    [{'key': 'diverged', 'reason': 'diverged', 'detail': 'the loss is nan'}]
    """
    if isinstance(error, ArithmeticError) and type(error) is not ArithmeticError:
        raise error
    reject = {"key": key or reason, "reason": reason, "detail": without_addresses(str(error))}
    return Sifted(gives.empty_table(), pa.Table.from_pylist([reject], schema=REJECTS))


def _check_diverged(stages: Sequence[tuple[Training, str]], out: str) -> None:
    """Raise ``Diverged`` if a training failed; ``stages`` are trainings with the names of their learning stages."""
    store = Store(posixpath.join(out, FOLDER))
    failed: list[str] = []
    for one, learned in stages:
        artifact = load_artifact(store, learned)
        found = [] if artifact is None else reject_details(store, artifact)
        failed += [f"{training_text(one.facts())}: {why}: change {one.change}" for reason, why in found if reason != NOT_FITTED]
    if failed:
        count = "1 training" if len(failed) == 1 else f"{len(failed)} trainings"
        more = f"; and {len(failed) - _TOLD} more: `benchwright rejects {out}/{FOLDER}`" if len(failed) > _TOLD else ""
        raise Diverged(f"{count} failed: {'; '.join(failed[:_TOLD])}{more}. The others finished: `benchwright eval {out}`")
