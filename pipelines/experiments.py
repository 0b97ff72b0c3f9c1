"""Trainings as stages of the engine.

``experiments`` in the folder of a run is itself the folder of a run. Each training is a stage ``learned_...``, a source whose
rows are predictions, and one ``measured_...`` for each set of metrics, which is computed from them. So a training is keyed by
the dataset's digest, its settings and the code that it reaches; what is there is not trained again; a kill costs what the
checkpoint says; workers train side by side; ``verify``, ``show``, ``rejects`` and ``compare`` work on results. Trainings of
other settings are kept next to each other: a plan adds to the folder, and takes nothing away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..curation import run as engine
from ..curation.artifact import load_artifact, load_run
from ..curation.flow import Flow, Stage, Step, rows_of
from ..curation.keys import canonical, how, sha256
from ..curation.publish import parquet_bytes
from ..curation.rows import REJECTS, Sifted, without_addresses
from ..curation.store import Store, StoreError
from ..curation.verify import DATASET, file_sha256
from ..eval.results import RESULTS, Value
from .tracking import Track, logging_to
from .training_results import FOLDER, LEARNED, MEASURED, NOT_FITTED, dataset_digest, forget, reject_details, results

RESULTS_FILE = "results.parquet"
"""What ``results`` gives, in that folder: as of the last call of ``run_trainings``."""

DIVERGED = "diverged"
"""Reason of the reject that a training leaves whose loss did not stay finite."""

LOGGER = logging.getLogger("benchwright.training")
"""Told of what trainings in this process have reached."""

_TOLD = 3
"""Trainings that failed and are named."""


class Diverged(ValueError):
    """Trainings whose loss did not stay finite; the others have ended."""


@dataclass(frozen=True)
class Leaves:
    """A file that a training leaves in the folder of the run, such as weights.

    Attributes:
        column: of its only row, a ``Blob``.
        name: of the file within the run, with ``{name}`` where that of the training goes.
        told: what is reported when it is there, with ``{path}``; lines of their own where it has several.
    """

    column: str
    name: str
    told: str


@dataclass(frozen=True)
class Training:
    """One training, and how it is measured.

    Attributes:
        protocol, method, model: as tables call them.
        settings: JSON values: all else in which trainings of the benchmark may differ.
        seed: of the training, or the number of the repeat.
        learn: source step; the engine adds ``training``, these facts as a mapping, and ``digest``, of the dataset.
        gives: columns of what it leaves.
        measures: name -> source step that gives ``eval.results.Value``; it is given ``predictions``, the rows of ``learn``.
        order: which order of tasks or classes, where the benchmark has several.
        pieces: names what ``learn`` makes apart, see ``flow.source``.
        change: the setting to change where it diverges.
        data: folder of the run that holds the dataset it learns from.
        leaves: what is written of its rows when it is finished.
        before: makes the stages that come before it, where they wait for people: of itself, the digest of its dataset, the run
            and what makes a plan. Gives them, and the settings that ``learn`` has of them; None if it has to wait.

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
        """What tells it from others, as JSON values."""
        named = {"protocol": self.protocol, "method": self.method, "model": self.model}
        return {**named, "settings": dict(self.settings), "order": self.order, "seed": self.seed}

    def name(self, dataset: str) -> str:
        """Name of its stages without their beginnings, for a dataset of that digest."""
        return training_name(dataset, self.facts())

    def stages(self, dataset: str) -> tuple[Stage, list[Stage]]:
        """The stage that learns, and those that measure."""
        name = self.name(dataset)
        given = {**self.learn.settings, "training": self.facts(), "digest": dataset}
        step = dataclasses.replace(self.learn, settings=given)
        learned = Stage(f"{LEARNED}{name}", "source", step, None, self.pieces, self.gives, max_rejects=None, may_be_empty=True)
        measured: list[Stage] = []
        for kind, each in self.measures.items():
            step = dataclasses.replace(each, settings={**each.settings, "predictions": rows_of(learned.name)})
            stage = Stage(f"{MEASURED}{name}_{kind}", "source", step, None, None, Value, max_rejects=None, may_be_empty=True)
            measured.append(stage)
        return learned, measured


def training_name(dataset: str, facts: Mapping[str, Any]) -> str:
    """What a training is called: its facts in short, and their digest with that of the dataset."""
    order = f" {facts['order']}" if facts["order"] else ""
    words = re.sub(r"[^a-z0-9]+", "_", f"{facts['protocol']}{order} {facts['method']} {facts['seed']}".lower()).strip("_")
    return f"{words[-80:]}_{sha256(canonical([dataset, dict(facts)]))[:10]}"


def run_trainings(
    trainings: Sequence[Training],
    out: str,
    *,
    scheduler: str = "sync",
    workers: int | None = None,
    retry: Sequence[str] = (),
    keep_stale: bool = False,
    needs: str | None = None,
    track: Track | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Make the trainings that are not there yet, side by side where there are workers.

    Args:
        trainings: which.
        out: the run.
        scheduler, workers, retry: see ``curation.run.run``.
        keep_stale: use finished trainings as they are though their code changed since; their metrics are computed as they are
            now.
        needs: resource that workers of a cluster must offer for a training, "" for none; by default ``GPU`` by the device.
        track: where losses, and the metrics of what is trained now, are shown.
        progress: called with one line for what a training has reached.

    Raises:
        Diverged: where a loss did not stay finite; the others have ended.
        WrongUse: for a run without the dataset that a training learns from.
    """
    record = load_run(Store(out))
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
            add=True,
            on_progress=_teller(flow, progress, made),
        )

    with _listening(progress):
        if pairs:  # all are learned side by side, and then measured
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
    """Stages of trainings that are finished."""
    store, found = Store(posixpath.join(out, FOLDER)), list[str]()
    for stage in (each for each in flow.stages if each.name.startswith(LEARNED)):
        with contextlib.suppress(StoreError):  # a damaged one is trained again
            found += [stage.name] if load_artifact(store, stage.name) else []
    return found


def _tracked(one: Training, track: Track | None) -> Training:
    """The training, whose step is told where to show losses, if it can."""
    if "track" not in one.learn.settings:
        return one
    return dataclasses.replace(one, learn=Step(one.learn.function, {**one.learn.settings, "track": how(track)}))


def _log_metrics(out: str, trained: Sequence[tuple[Training, str]], track: Track) -> None:
    """Show what was measured of trainings, by positions learned if there are several."""
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
    """Write the table of results for programs that know nothing of stages; nothing is written where it is there already."""
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
    for line in leaves.told.format(path=path).splitlines():
        tell(line)


@contextlib.contextmanager
def _listening(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass on what trainings in this process tell of themselves."""

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


def told(facts: Mapping[str, Any]) -> str:
    """A training in words."""
    order = f", order {facts['order']}" if facts["order"] else ""
    return f"{facts['protocol']} {facts['method']}{order}, seed {facts['seed']}"


def _teller(flow: Flow, tell: Callable[[str], None], made: set[str]) -> Callable[[engine.Progress], None]:
    """Tells of trainings, and notes the stages of those that are learned now."""
    facts = {stage.name: stage.step.settings["training"] for stage in flow.stages if stage.name.startswith(LEARNED)}

    def tell_of(progress: engine.Progress) -> None:
        if progress.stage not in facts:
            return
        if progress.state == "done":
            made.add(progress.stage)
        state = {"reused": "up to date", "done": "trained", "stale": f"stale: {progress.why}"}.get(progress.state)
        if state:
            tell(f"{told(facts[progress.stage])}: {state}")

    return tell_of


def rejected_training(gives: pa.Schema, error: Exception, reason: str = DIVERGED, *, key: str = "") -> Sifted:
    """No row, and the reject of a training, or of that part of it which ``key`` names: its loss did not stay finite, say.

    Any other fault of arithmetic, such as a division by zero, is one of the code and is raised again.
    """
    if isinstance(error, ArithmeticError) and type(error) is not ArithmeticError:
        raise error
    reject = {"key": key or reason, "reason": reason, "detail": without_addresses(str(error))}
    return Sifted(gives.empty_table(), pa.Table.from_pylist([reject], schema=REJECTS))


def _check_diverged(stages: Sequence[tuple[Training, str]], out: str) -> None:
    """Of trainings, with the names of the stages that learned."""
    store = Store(posixpath.join(out, FOLDER))
    failed: list[str] = []
    for one, learned in stages:
        artifact = load_artifact(store, learned)
        found = [] if artifact is None else reject_details(store, artifact)
        failed += [f"{told(one.facts())}: {why}: change {one.change}" for reason, why in found if reason != NOT_FITTED]
    if failed:
        count = "1 training" if len(failed) == 1 else f"{len(failed)} trainings"
        more = f"; and {len(failed) - _TOLD} more: `benchwright rejects {out}/{FOLDER}`" if len(failed) > _TOLD else ""
        raise Diverged(f"{count} failed: {'; '.join(failed[:_TOLD])}{more}. The others finished: `benchwright eval {out}`")
