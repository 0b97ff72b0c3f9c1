"""Trainings as stages of the engine.

``experiments`` in the folder of a run is itself the folder of a run. Each training is a stage ``learned_...``, a source whose
rows are predictions, and one ``measured_...`` for each set of metrics, which is computed from them. So a training is keyed by
the dataset's digest, its settings and the code that it reaches; what is there is not trained again; a kill costs what the
checkpoint says; workers train side by side; ``verify``, ``show``, ``rejects`` and ``compare`` work on results. Trainings of
other settings are kept next to each other: a plan adds to the folder, and takes nothing away.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import math
import os
import posixpath
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..curation import run as engine
from ..curation.artifact import Artifact, load_artifact, load_made, load_run, published_digest
from ..curation.code_changes import recipe_change
from ..curation.cost import CostEstimate, start_of
from ..curation.flow import Flow, Stage, Step, rows_of
from ..curation.keys import canonical, how, sha256
from ..curation.publish import parquet_bytes
from ..curation.reachable_code import one_look
from ..curation.records import PUBLISHED
from ..curation.rows import schema_of
from ..curation.store import Rows, Store, StoreError
from ..curation.verify import DATASET, file_sha256
from ..eval.results import RESULTS, Value, lines
from .errors import WrongUse
from .tracking import Track, logging_to

FOLDER = "experiments"
"""Folder of a run that holds its trainings."""

RESULTS_FILE = "results.parquet"
"""What ``results`` gives, in that folder: as of the last call of ``run_trainings``."""

DIVERGED = "diverged"
"""Reason of the reject that a training leaves whose loss did not stay finite."""

LOGGER = logging.getLogger("benchwright.training")
"""Told of what trainings in this process have reached."""

NOT_FITTED = "not_fitted"
"""Reason of the reject that a training leaves where its data cannot be learned from: it is skipped, and the others count."""

_LEARNED, _MEASURED = "learned_", "measured_"

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
        learned = Stage(f"{_LEARNED}{name}", "source", step, None, self.pieces, self.gives, max_rejects=None, may_be_empty=True)
        measured: list[Stage] = []
        for kind, each in self.measures.items():
            step = dataclasses.replace(each, settings={**each.settings, "predictions": rows_of(learned.name)})
            stage = Stage(f"{_MEASURED}{name}_{kind}", "source", step, None, None, Value, max_rejects=None, may_be_empty=True)
            measured.append(stage)
        return learned, measured


def training_name(dataset: str, facts: Mapping[str, Any]) -> str:
    """What a training is called: its facts in short, and their digest with that of the dataset."""
    order = f" {facts['order']}" if facts["order"] else ""
    words = re.sub(r"[^a-z0-9]+", "_", f"{facts['protocol']}{order} {facts['method']} {facts['seed']}".lower()).strip("_")
    return f"{words[-80:]}_{sha256(canonical([dataset, dict(facts)]))[:10]}"


def dataset_digest(out: str, folder: str = DATASET) -> str:
    """Content digest of a published dataset. Raises ``WrongUse`` if there is none.

    >>> import benchwright as bw
    >>> dataset_digest("out") == bw.show("out")["digest"]
    True
    """
    store, name = Store(out), posixpath.join(folder, "dataset.json")
    if not store.exists(name):
        raise WrongUse(f"{out} has no {folder} yet: finish the run first")
    return published_digest(store, name)


def _digests(out: str) -> set[str]:
    """Of all that is published of a run."""
    store = Store(out)
    return {dataset_digest(out, name) for name in PUBLISHED if store.exists(posixpath.join(name, "dataset.json"))}


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
            needs={} if needs is None else {each.name: needs for each in flow.stages if each.name.startswith(_LEARNED)},
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
    (_read.get() or {}).clear()
    stages = [(one, f"{_LEARNED}{one.name(digests[one.data])}") for one in trainings]
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
    for stage in (each for each in flow.stages if each.name.startswith(_LEARNED)):
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
        with logging_to(track, stage.removeprefix(_LEARNED), one.facts()) as log:
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
    run, name = Store(out), leaves.name.format(name=stage.removeprefix(_LEARNED))
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
    facts = {stage.name: stage.step.settings["training"] for stage in flow.stages if stage.name.startswith(_LEARNED)}

    def tell_of(progress: engine.Progress) -> None:
        if progress.stage not in facts:
            return
        if progress.state == "done":
            made.add(progress.stage)
        state = {"reused": "up to date", "done": "trained", "stale": f"stale: {progress.why}"}.get(progress.state)
        if state:
            tell(f"{told(facts[progress.stage])}: {state}")

    return tell_of


def _check_diverged(stages: Sequence[tuple[Training, str]], out: str) -> None:
    """Of trainings, with the names of the stages that learned."""
    store = Store(posixpath.join(out, FOLDER))
    failed: list[str] = []
    for one, learned in stages:
        artifact = load_artifact(store, learned)
        found = [] if artifact is None else _details(store, artifact)
        failed += [f"{told(one.facts())}: {why}: change {one.change}" for reason, why in found if reason != NOT_FITTED]
    if failed:
        count = "1 training" if len(failed) == 1 else f"{len(failed)} trainings"
        more = f"; and {len(failed) - _TOLD} more: `benchwright rejects {out}/{FOLDER}`" if len(failed) > _TOLD else ""
        raise Diverged(f"{count} failed: {'; '.join(failed[:_TOLD])}{more}. The others finished: `benchwright eval {out}`")


def _details(store: Store, learned: Artifact) -> list[tuple[str, str]]:
    """Why parts of a training left nothing: reason and detail of each."""
    tables = [store.read_parquet(name, ["reason", "detail"]) for name in learned.reject_files()]
    return [(row["reason"], row["detail"]) for table in tables for row in table.to_pylist()]


# ------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Trained:
    """A training that is finished.

    Attributes:
        facts: of ``Training.facts``.
        dataset: content digest of the dataset that it was trained on.
        learned: the stage that learned.
        measured: those that measured, by their kind.
        stale: what changed since, or "".
    """

    facts: Mapping[str, Any]
    dataset: str
    learned: Artifact
    measured: Mapping[str, Artifact]
    stale: str


_read: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("trainings that were read", default=None)
"""Of a run, within ``reading_once``."""


@contextlib.contextmanager
def reading_once() -> Iterator[None]:
    """In the block a run's trainings are gone through once, whatever is asked of them, and again behind ``run_trainings``."""
    token = _read.set({})
    try:
        yield
    finally:
        _read.reset(token)


@one_look()
def finished_trainings(out: str) -> list[Trained]:
    """Every finished training of a run, of whatever dataset, settings and code, in the order of training.

    >>> [(one.facts["protocol"], one.facts["seed"], one.stale) for one in finished_trainings("out")][:2]
    [('iid', 0, ''), ('iid', 1, '')]
    """
    known = _read.get()
    if known is None:
        return list(_finished(out))
    if out not in known:
        known[out] = list(_finished(out))
    return known[out]


def _finished(out: str) -> Iterator[Trained]:
    store = Store(posixpath.join(out, FOLDER))
    if not store.exists("run.json"):
        return
    names, known = load_run(store).stages, dict[str, Any]()
    kinds = _kinds(names)
    for name in names:
        if name not in kinds or (learned := load_artifact(store, name)) is None:
            continue
        measured: dict[str, Artifact] = {}
        for kind, stage in kinds[name].items():
            artifact = load_artifact(store, stage)
            if artifact is not None and artifact.recipe["inputs"].get(name) == learned.digest:  # else it was interrupted
                measured[kind] = artifact
        if measured:
            facts, dataset = _training_of(store, learned)
            stale = next((why for each in (learned, *measured.values()) if (why := recipe_change(each, store, known))), "")
            yield Trained(facts, dataset, learned, measured, stale)


def _kinds(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Stage that learns -> kind of its measures -> the stage that makes them."""
    found: dict[str, dict[str, str]] = {name: {} for name in names if name.startswith(_LEARNED)}
    for stage in (name for name in names if name.startswith(_MEASURED)):
        words = stage.removeprefix(_MEASURED).split("_")
        for at in range(1, len(words)):
            if (name := _LEARNED + "_".join(words[:at])) in found:
                found[name]["_".join(words[at:])] = stage
    return found


_FACTS = {"protocol": str, "method": str, "model": str, "settings": dict, "order": int, "seed": int}


def _training_of(store: Store, learned: Artifact) -> tuple[Mapping[str, Any], str]:
    """Facts and dataset of a training. Its record may have been made by anyone."""
    settings = learned.recipe["settings"]
    facts, dataset = settings.get("training"), settings.get("digest")
    fits = isinstance(facts, dict) and facts.keys() == _FACTS.keys() and isinstance(dataset, str)
    if not fits or not all(isinstance(facts[name], kind) for name, kind in _FACTS.items()):
        raise StoreError(
            f"{store.url}: the record of stage {learned.stage} is not one of a training: remove it, and train again"
        )
    return facts, dataset


def results(out: str, *, stale: bool = False) -> pa.Table:
    """What was measured of the published dataset, by all trainings of a run: one row per value, see ``eval.results.RESULTS``.

    Args:
        out: the run.
        stale: whether values count that earlier code made.

    Raises:
        StoreError: where ``out`` holds no run, or a stage is damaged.

    >>> import benchwright as bw
    >>> import polars as pl
    >>> table = pl.DataFrame(bw.results("out"))
    >>> table.filter(protocol="streaming", metric="fwt").select("method", "seed").rows()
    [('nap-finetune', 0), ('nap-finetune', 1), ('nap-finetune', 2), ('nap-finetune', 3), ('nap-finetune', 4)]
    >>> bw.results("nowhere")
    Traceback (most recent call last):
        ...
    benchwright.curation.store.StoreError: nowhere contains no run: it has no run.json; ...
    """
    benchmark = load_run(Store(out)).pipeline
    datasets = _digests(out)
    store = Store(posixpath.join(out, FOLDER))
    tables: list[pa.Table] = []
    for one in finished_trainings(out):
        if one.dataset not in datasets or (one.stale and not stale):
            continue
        facts = {**one.facts, "settings": canonical(one.facts["settings"])}
        facts |= {"benchmark": benchmark, "dataset": one.dataset, "experiment": one.learned.digest}
        for artifact in one.measured.values():
            values = artifact.rows_view(store).table()
            if not values.schema.equals(schema_of(Value)):
                raise StoreError(
                    f"{store.url}: stage {artifact.stage} lacks the columns of a result: remove it, and train again"
                )
            columns: dict[str, Any] = {}
            for field in RESULTS:
                same = field.name in facts and not (field.name == "order" and not facts["order"])
                columns[field.name] = _repeated(facts[field.name], values.num_rows, field.type) if same else values[field.name]
            columns["seed"] = pc.coalesce(values["seed"], columns["seed"])
            tables.append(pa.table(columns, schema=RESULTS))
    return pa.concat_tables(tables).unify_dictionaries() if tables else RESULTS.empty_table()


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.repeat(pa.scalar(value, kind), count)
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, kind.index_type), count), pa.array([value], kind.value_type))


def predictions(out: str, *, stale: bool = False) -> Iterator[tuple[dict[str, Any], Rows]]:
    """What each training on the published dataset left: its facts (``protocol``, ``method``, ...), and the rows of its
    predictions.

    ``eval.protocols.predictions.Predictions`` reads those of streams of domains or tasks.

    Args:
        out: the run.
        stale: whether trainings count that earlier code made.

    Raises:
        StoreError: where ``out`` holds no run, or a stage is damaged.

    >>> import benchwright as bw
    >>> facts, rows = next(bw.predictions("out"))
    >>> facts["protocol"], facts["method"], facts["seed"], rows.num_rows
    ('iid', 'nap-finetune', 0, 15)
    """
    load_run(Store(out))  # a folder without one is an error, and no run without trainings
    store, found = Store(posixpath.join(out, FOLDER)), finished_trainings(out)
    dataset = dataset_digest(out) if found else ""
    for one in found:
        if one.dataset == dataset and (stale or not one.stale):
            yield dict(one.facts), one.learned.rows_view(store)


def mean_scores(out: str, shown: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Metrics of whole trainings: protocol -> line -> ``mean`` and ``std`` over its runs by heading (None for undefined),
    ``runs``, and ``apart``: the settings that set it apart from others of its method, and that its name leaves out.

    Args:
        out: the run.
        shown: heading -> metric, or ``metric@split``. Metrics of your own, which have no split, stand behind them.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in lines(results(out)):
        whole = line.rows.filter(pc.and_(pc.is_null(line.rows["position"]), pc.equal(line.rows["stratum"], "")))
        own = pc.unique(whole.filter(pc.equal(whole["split"], ""))["metric"]).to_pylist()
        headings = {**shown, **{name: name for name in own}}
        places = {heading: metric.partition("@") for heading, metric in headings.items()}
        values = {heading: line.values(metric, split=split or None).tolist() for heading, (metric, _, split) in places.items()}
        known = {heading: [each for each in those if not math.isnan(each)] for heading, those in values.items()}
        found.setdefault(line.protocol, {})[line.label] = {
            "mean": {heading: statistics.fmean(those) if those else None for heading, those in known.items()},
            "std": {heading: statistics.stdev(those) if len(those) > 1 else None for heading, those in known.items()},
            "runs": len(line.runs),
            **({"apart": dict(line.apart)} if line.apart else {}),
            **({"unit": "degrees"} if any(name.endswith("_deg") for name in shown.values()) else {}),
        }
    for those in found.values():  # columns that no line of a protocol has are left out
        headings = dict.fromkeys(name for one in those.values() for name in one["mean"])
        there = [name for name in headings if any(one["mean"].get(name) is not None for one in those.values())]
        for one in those.values():
            one |= {part: {name: one[part].get(name) for name in there} for part in ("mean", "std")}
    return found


def training_costs(out: str, samples: int) -> dict[str, CostEstimate]:
    """What the finished trainings on the published dataset, of so many samples, have cost: by protocol and method, all seeds
    and settings together.
    """
    store = Store(posixpath.join(out, FOLDER))
    trained = finished_trainings(out)
    dataset = dataset_digest(out) if trained else ""
    found: dict[str, CostEstimate] = {}
    for one in trained:
        name = f"{one.facts['protocol']} {one.facts['method']}"
        for artifact in (one.learned, *one.measured.values()) if one.dataset == dataset else ():
            made = load_made(store, artifact.stage)
            if (cost := made.get("cost")) is None:
                continue
            # What an interrupted run left was not made again: the rest tells what it took.
            whole = artifact.rows_in / cost["rows"] if cost["rows"] else 1.0
            seconds = made["seconds"] * whole
            before = found.get(name) or CostEstimate(name, samples, 0, 0.0, 0.0, 0.0, 0, 0, samples, True)
            found[name] = dataclasses.replace(
                before,
                rows=before.rows + (artifact.rows if artifact is one.learned else 0),
                seconds=before.seconds + seconds,
                cpu_seconds=before.cpu_seconds + cost["cpu_seconds"] * whole,
                gpu_seconds=before.gpu_seconds + (seconds if cost.get("gpu") else 0.0),
                bytes=before.bytes + sum(file["size"] for file in artifact.files().values()),
                peak_bytes=max(before.peak_bytes, cost["peak_bytes"]),
            )
    return found


def training_estimates(out: str, samples: int, *, of: int, smaller: str = "", fewer: int = 0) -> list[CostEstimate]:
    """What the finished trainings of a sample would cost on a larger dataset.

    Time and bytes are taken to grow with the samples, beside the time to start, which a smaller sample tells. Epochs stay
    the same.

    Args:
        out: the sample.
        samples: of the larger dataset.
        of: samples of its own dataset.
        smaller: a smaller sample with the same trainings.
        fewer: samples of its dataset.

    >>> [(each.stage, each.rows_in) for each in training_estimates("out", 100_000, of=210)]
    [('iid nap-finetune', 100000), ('streaming nap-finetune', 100000)]
    """
    less = training_costs(smaller, fewer) if smaller and 0 < fewer < of else {}
    factor, found = samples / max(1, of), list[CostEstimate]()
    for name, each in training_costs(out, of).items():
        other = less.get(name)
        pairs = [(each.seconds, other.seconds), (each.cpu_seconds, other.cpu_seconds)] if other else []
        starts = [start_of(more, few, rows=of, fewer=fewer) for more, few in pairs] or [0.0, 0.0]
        seconds, cpu = (
            start + factor * max(0.0, spent - start)
            for start, spent in zip(starts, (each.seconds, each.cpu_seconds), strict=True)
        )
        found.append(
            dataclasses.replace(
                each,
                rows_in=samples,
                seconds=seconds,
                cpu_seconds=cpu,
                gpu_seconds=seconds * each.gpu_seconds / each.seconds if each.seconds else 0.0,
                bytes=round(factor * each.bytes),
                rough=other is None,
            )
        )
    return found


def stale_trainings(out: str) -> dict[str, str]:
    """What is left out of ``results`` and not trained again yet: protocol and method -> why."""
    if not (datasets := _digests(out)):
        return {}
    found = finished_trainings(out)
    current = {canonical(one.facts) for one in found if one.dataset in datasets and not one.stale}
    return {
        f"{one.facts['protocol']} {one.facts['method']}": one.stale or "trained on another dataset"
        for one in found
        if (one.stale or one.dataset not in datasets) and canonical(one.facts) not in current
    }


def skipped_trainings(out: str) -> dict[str, str]:
    """Trainings that were skipped, since the published dataset cannot be learned from by them: protocol and method -> why."""
    datasets = _digests(out)
    store = Store(posixpath.join(out, FOLDER))
    return {
        f"{one.facts['protocol']} {one.facts['method']}": detail
        for one in finished_trainings(out)
        if one.dataset in datasets and not one.stale
        for reason, detail in _details(store, one.learned)
        if reason == NOT_FITTED
    }
