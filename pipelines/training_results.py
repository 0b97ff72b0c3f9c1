"""Results of the trainings in the folder of a run: metrics, predictions, and which are stale or were skipped.

``experiments`` writes them; this module only reads.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import posixpath
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..curation.artifact import Artifact, load_artifact, load_run, published_digest
from ..curation.code_changes import recipe_change
from ..curation.keys import canonical
from ..curation.reachable_code import one_look
from ..curation.records import PUBLISHED
from ..curation.rows import schema_of
from ..curation.stage_rows import Rows
from ..curation.store import Store, StoreError
from ..curation.verify import DATASET
from ..eval.results import RESULTS, Value, lines
from .errors import WrongUse
from .names import file_reference

FOLDER = "experiments"
"""Folder of a run that holds its trainings."""

LEARNED, MEASURED = "learned_", "measured_"
"""Prefixes of the names of a training's stages."""

NOT_FITTED = "not_fitted"
"""Reject reason of a training whose data cannot be learned from: it is skipped, and does not count as failed."""


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
    """Digests of all published datasets of a run."""
    store = Store(out)
    return {dataset_digest(out, name) for name in PUBLISHED if store.exists(posixpath.join(name, "dataset.json"))}


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        facts: as from ``Training.facts``.
        dataset: content digest of the dataset that it was trained on.
        learned: the artifact of the stage that learned.
        measured: artifacts of the stages that measured, by their kind.
        stale: what has changed since, or "".

    >>> one = current_trainings("out")[0]
    >>> one.facts["protocol"], one.facts["method"], [*one.measured], one.stale
    ('iid', 'nap-finetune', ['clear'], '')
    """

    facts: Mapping[str, Any]
    dataset: str
    learned: Artifact
    measured: Mapping[str, Artifact]
    stale: str


_read: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("trainings that were read", default=None)
"""Trainings already read, by run, within ``reading_once``."""


@contextlib.contextmanager
def reading_once() -> Iterator[None]:
    """Within the block, a run's trainings are read only once, and once more after ``run_trainings``.

    >>> with reading_once():
    ...     len(current_trainings("out")), len(results("out")) > 0
    (10, True)
    """
    token = _read.set({})
    try:
        yield
    finally:
        _read.reset(token)


def forget() -> None:
    """Read trainings again from now on, even within ``reading_once``.

    >>> with reading_once():
    ...     before = finished_trainings("out")
    ...     forget()
    ...     finished_trainings("out") is before
    False
    """
    (_read.get() or {}).clear()


@one_look()
def finished_trainings(out: str) -> list[Trained]:
    """Every finished training of a run, with any dataset, settings and code, in the order of training.

    >>> [(one.facts["protocol"], one.facts["seed"], one.stale) for one in finished_trainings("out")][:2]
    [('iid', 0, ''), ('iid', 1, '')]
    """
    known = _read.get()
    if known is None:
        return list(_read_trainings(out))
    if out not in known:
        known[out] = list(_read_trainings(out))
    return known[out]


def current_trainings(out: str, *, stale: bool = False) -> list[Trained]:
    """The finished trainings on a published dataset of a run.

    Args:
        out: the run.
        stale: whether to include trainings that were made by earlier code.

    >>> sorted({one.facts["protocol"] for one in current_trainings("out")})
    ['iid', 'streaming']
    """
    datasets = _digests(out)
    return [one for one in finished_trainings(out) if one.dataset in datasets and (stale or not one.stale)]


def _read_trainings(out: str) -> Iterator[Trained]:
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
    """Learning stage -> kind of measures -> the stage that computes them."""
    found: dict[str, dict[str, str]] = {name: {} for name in names if name.startswith(LEARNED)}
    for stage in (name for name in names if name.startswith(MEASURED)):
        words = stage.removeprefix(MEASURED).split("_")
        for at in range(1, len(words)):
            if (name := LEARNED + "_".join(words[:at])) in found:
                found[name]["_".join(words[at:])] = stage
    return found


_FACTS = {"protocol": str, "method": str, "model": str, "settings": dict, "order": int, "seed": int}


def _training_of(store: Store, learned: Artifact) -> tuple[Mapping[str, Any], str]:
    """Facts and dataset of a training, validated since the record is untrusted."""
    settings = learned.recipe["settings"]
    facts, dataset = settings.get("training"), settings.get("digest")
    fits = isinstance(facts, dict) and facts.keys() == _FACTS.keys() and isinstance(dataset, str)
    if not fits or not all(isinstance(facts[name], kind) for name, kind in _FACTS.items()):
        raise StoreError(
            f"{store.url}: the record of stage {learned.stage} is not one of a training: remove it, and train again"
        )
    return facts, dataset


def names_of_files(out: str) -> dict[str, str]:
    """Reference of each method and model in a file that was trained in a run -> its name there.

    Unfinished trainings are left out.

    >>> names_of_files("out")  # all its methods and models are built-in
    {}
    """
    store, found = Store(posixpath.join(out, FOLDER)), dict[str, str]()
    for stage in load_run(store).stages if store.exists("run.json") else ():
        with contextlib.suppress(StoreError):  # a damaged one is trained again
            if stage.startswith(LEARNED) and (learned := load_artifact(store, stage)) is not None:
                facts, references = _training_of(store, learned)[0], learned.recipe.get("named", {}).values()
                found |= {file_reference(facts[part], references): facts[part] for part in ("method", "model")}
    found.pop("", None)
    return found


def results(out: str, *, stale: bool = False) -> pa.Table:
    """Metrics on the published dataset, from all trainings of a run: one row per value, see ``eval.results.RESULTS``.

    Args:
        out: the run.
        stale: whether to include values that were made by earlier code.

    Raises:
        StoreError: ``out`` does not hold a run, or a stage is damaged.

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
    store = Store(posixpath.join(out, FOLDER))
    tables: list[pa.Table] = []
    for one in current_trainings(out, stale=stale):
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
    """The output of each training on the published dataset: its facts (``protocol``, ``method``, ...), and the rows of its
    predictions.

    ``eval.protocols.predictions.Predictions`` reads those of streams of domains or tasks.

    Args:
        out: the run.
        stale: whether to include trainings that were made by earlier code.

    Raises:
        StoreError: ``out`` does not hold a run, or a stage is damaged.

    >>> import benchwright as bw
    >>> facts, rows = next(bw.predictions("out"))
    >>> facts["protocol"], facts["method"], facts["seed"], rows.num_rows
    ('iid', 'nap-finetune', 0, 15)
    """
    load_run(Store(out))  # raises if the folder holds no run, unlike a run without trainings
    store, found = Store(posixpath.join(out, FOLDER)), finished_trainings(out)
    dataset = dataset_digest(out) if found else ""
    for one in found:
        if one.dataset == dataset and (stale or not one.stale):
            yield dict(one.facts), one.learned.rows_view(store)


def mean_scores(out: str, shown: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Metrics of whole trainings: protocol -> line -> ``mean`` and ``std`` over its runs by heading (None for undefined),
    ``runs``, and ``apart``: settings that distinguish it from other lines and that its name does not show.

    Args:
        out: the run.
        shown: heading -> metric, or ``metric@split``. Metrics added by the user, which have no split, follow them.

    >>> iid = mean_scores("out", {"accuracy": "acc"})["iid"]["nap-finetune"]
    >>> iid["runs"], 0.5 < iid["mean"]["accuracy"] <= 1
    (5, True)
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


def stale_trainings(out: str) -> dict[str, str]:
    """Trainings that ``results`` excludes and that were not repeated yet: protocol and method -> reason.

    Rejected trainings, which have no results, are left out.

    >>> stale_trainings("out")  # nothing changed since
    {}
    """
    if not (datasets := _digests(out)):
        return {}
    found = finished_trainings(out)
    current = {canonical(one.facts) for one in found if one.dataset in datasets and not one.stale}
    return {
        f"{one.facts['protocol']} {one.facts['method']}": one.stale or "trained on another dataset"
        for one in found
        if one.learned.rows and (one.stale or one.dataset not in datasets) and canonical(one.facts) not in current
    }


def kept_trainings(out: str) -> dict[str, str]:
    """Lines of results that earlier code made and that were kept: protocol and label of the line -> what has changed since.

    >>> kept_trainings("out")  # all were made by today's code
    {}
    """
    changed = {
        one.learned.digest: kept["changed"]
        for one in current_trainings(out)
        for kept in (one.learned.kept, *(each.kept for each in one.measured.values()))
        if kept
    }
    if not changed:
        return {}
    return {
        f"{line.protocol} {line.label}": changed[digest]
        for line in lines(results(out))
        for digest in pc.unique(line.rows["experiment"]).to_pylist()
        if digest in changed
    }


def skipped_trainings(out: str) -> dict[str, str]:
    """Trainings that were skipped because they cannot learn from the published dataset: protocol and method -> reason.

    >>> skipped_trainings("out")
    {}
    """
    store = Store(posixpath.join(out, FOLDER))
    return {
        f"{one.facts['protocol']} {one.facts['method']}": detail
        for one in current_trainings(out)
        for reason, detail in reject_details(store, one.learned)
        if reason == NOT_FITTED
    }


def reject_details(store: Store, learned: Artifact) -> list[tuple[str, str]]:
    """Reason and detail of each reject of a training.

    >>> reject_details(Store("out/experiments"), current_trainings("out")[0].learned)
    []
    """
    tables = [store.read_parquet(name, ["reason", "detail"]) for name in learned.reject_files()]
    return [(row["reason"], row["detail"]) for table in tables for row in table.to_pylist()]
