"""The stream of a KOWL dataset, read from the shards; the steps that learn it, and that measure by strata of its samples."""

from __future__ import annotations

import functools
import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import Artifact, load_artifact
from ...curation.local_files import remove, replacing
from ...curation.rows import Blob, Reject, Rejected, Sifted
from ...curation.stage_rows import Rows
from ...curation.store import Store, StoreError
from ...datasets.kowl.samples import FEATURE
from ...datasets.reader.features import read_features
from ...datasets.reader.index import DatasetIndex
from ...datasets.roles import ROLES
from ...eval.protocols.open_world.loop import (
    Increment,
    LearnedArrays,
    Setting,
    SplitSamples,
    Unanswered,
    run_open_world,
    see_through,
)
from ...eval.protocols.open_world.measures import measures_by_stratum, nuisance_measures
from ...eval.protocols.open_world.predictions import COLUMNS, OpenWorldPredictions
from ...eval.results import Value
from ...training.core.devices import device_of
from ...training.predictors.registry import new_predictor
from ..errors import WrongUse
from ..experiments import LOGGER, rejected_training, training_name, training_text
from .clips import PLACED, contact_sheet, places
from .protocols import BY_PEOPLE, START, feedback_of
from .requests import Asked, AskedPicture

if TYPE_CHECKING:  # the module contains all predictors: a training must not depend on the code of the others
    from .config import ExtractedFeatures, VideoFeatures

LABEL = "label_recent_first"
TRANSFORM = "transform"
"""The stratification by visual transform."""


def learn_open_world(
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    features: str,
    predictor: Callable[..., Any],
    device: str,
    folder: str,
    vectors: Mapping[str, str],
    run: str,
    outputs: Sequence[str],
    first: str,
    keep_states: bool = False,
    answers: Rows | None = None,
) -> Iterator[pa.Table | Sifted]:
    """Source step: take a predictor through the increments and yield its predictions.

    Args:
        training: facts, see ``experiments.Training``; its settings are ``predictor``, those of the predictor,
            ``experience_limit`` and ``prior_knowledge``.
        digest: content digest of the dataset.
        dataset: folder of the dataset.
        features: folder for a file of all features; if local, it is shared by the trainings on the dataset.
        predictor: see ``training.predictors.registry.new_predictor``.
        device: see ``core.devices.device_of``.
        folder: folder for checkpoints.
        vectors: visual transform ("": none) -> the stage with its vectors, and their digest, as ``stage:digest``. Without "",
            the vectors in the shards are learned.
        run: folder of the run with these stages.
        outputs: names of the outputs, if the vectors are outputs of a classifier.
        first: the release known at the start; protocol ``start`` uses its samples with its own labels.
        keep_states: whether to store what ``measure_nuisance`` needs next to the trainings, in ``states``:
            ``increment-0003.npz`` holds the predictor's state after increment 3 and, as ``experience:labels``, the labels given
            for the increment's training samples, -1 where none was given.
        answers: rows of ``requests.Answered`` with labels from people; None: labels come from the lists.
    """
    given = {"dataset": dataset, "features": features, "vectors": vectors, "run": run, "first": first}
    world = _world(training, digest, given, predictor, device, outputs)
    tell = functools.partial(LOGGER.info, "%s: %s", training_text(training))
    try:
        yield from run_open_world(
            world.make(),
            world.increments,
            world.classes,
            setting=world.setting,
            folder=Path(folder),
            tell=tell,
            nuisances={kind: world.seen_through(kind) for kind in vectors if kind},
            twin=world.make,
            answers=world.labels(answers, until=len(world.increments)) if training["protocol"].endswith(BY_PEOPLE) else None,
            keep=functools.partial(_keep, features, training_name(digest, training)) if keep_states else None,
        )
    except ArithmeticError as error:
        yield rejected_training(COLUMNS, error)


_LABELS = "experience:labels"


def _keep(experiments: str, training: str, increment: int, state: LearnedArrays, labels: np.ndarray) -> None:
    """Store the state after an increment next to the trainings of a run, as arrays without pickles."""
    with Store(experiments).writing(_kept_name(training, increment)) as file:
        np.savez(file, allow_pickle=False, **state, **{_LABELS: labels})


def _kept_name(training: str, increment: int) -> str:
    return f"states/{training}/increment-{increment:04}.npz"


def _kept(experiments: str, training: str, increment: int) -> tuple[LearnedArrays, np.ndarray]:
    name = _kept_name(training, increment)
    try:
        with np.load(io.BytesIO(Store(experiments).read(name)), allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        return arrays, arrays.pop(_LABELS)
    except (StoreError, ValueError, KeyError, zipfile.BadZipFile) as error:
        remedy = "--set evaluation.keep_states=false trains again, and scores transforms meanwhile"
        raise WrongUse(f"{experiments}/{name}: no kept state: `benchwright train` with {remedy}") from error


def measure_nuisance(
    *,
    predictions: Rows,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    features: str,
    predictor: Callable[..., Any],
    device: str,
    vectors: Mapping[str, str],
    run: str,
    outputs: Sequence[str],
    first: str,
    kind: str,
) -> Iterator[Value]:
    """Source step: measures of every increment's samples under a visual transform, from the kept states of a training.

    Args:
        predictions: predictions stored by the training.
        kind: the transform, a key of ``vectors``.

    The other arguments are those of ``learn_open_world``.
    """
    if not predictions.num_rows:
        return
    given = {"dataset": dataset, "features": features, "vectors": vectors, "run": run, "first": first}
    world = _world(training, digest, given, predictor, device, outputs)
    seen = see_through(
        world.make,
        world.increments,
        world.seen_through(kind),
        transform=kind,
        kept=functools.partial(_kept, features, training_name(digest, training)),
        experience_limit=world.setting.experience_limit,
    )
    yield from nuisance_measures(OpenWorldPredictions(predictions).apart(seen))


def request_labels(
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    features: str,
    predictor: Callable[..., Any],
    device: str,
    folder: str,
    vectors: Mapping[str, str],
    run: str,
    outputs: Sequence[str],
    first: str,
    keep_states: bool = False,
    increment: int,
    address: str,
    clips: ExtractedFeatures | VideoFeatures | None,
    answers: Rows | None = None,
) -> Iterator[Asked | Rejected]:
    """Source step: the samples of an increment for which a predictor requests labels, in its order and within its budget.

    Args:
        increment: the increment; before it, the predictor learns from ``answers``.
        address: see ``config.People``.
        clips: without an address: the features whose clips are shown. Clips that cannot be read are rejected.

    The other arguments are those of ``learn_open_world``.
    """
    given = {"dataset": dataset, "features": features, "vectors": vectors, "run": run, "first": first}
    world = _world(training, digest, given, predictor, device, outputs)
    try:
        learned = run_open_world(
            world.make(),
            world.increments[: increment + 1],
            world.classes,
            setting=world.setting,
            folder=Path(folder),
            tell=lambda _: None,
            answers=world.labels(answers, until=increment),
        )
        for _ in learned:  # ends without requests if the budget is less than one sample
            pass
    except Unanswered as asked:
        rows = _by_key(run, places(clips), asked.uids) if clips else _by_key(dataset, (), asked.uids)
        for place, uid in enumerate(asked.uids):
            if clips is None:
                yield Asked(uid, asked.increment, place, "", address.format_map(rows[uid]))
                continue
            try:
                yield AskedPicture(uid, asked.increment, place, "", "", Blob(contact_sheet(clips, rows[uid])))
            except Reject as reject:
                yield Rejected(uid, reject.reason, reject.detail)


def _by_key(folder: str, columns: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Rows of some samples: from the index of a dataset, or, from a run, with the locations of its clips."""
    placed = finished_stage(folder, PLACED).rows_view(Store(folder)) if columns else None
    table = DatasetIndex.open(folder).table if placed is None else placed.table(["key", *columns])
    return {row["key"]: row for row in table.filter(pc.is_in(table["key"], pa.array(keys, pa.string()))).to_pylist()}


@dataclass(frozen=True)
class _World:
    """The increments and everything else that a predictor needs to learn them."""

    make: Callable[[], Any]
    increments: list[Increment]
    classes: list[str]
    setting: Setting
    seen_through: Callable[[str], list[Increment]]

    def labels(self, answers: Rows | None, *, until: int) -> dict[int, dict[str, int]]:
        """Labels from people: increment below ``until`` -> uid -> class index."""
        found: dict[int, dict[str, int]] = {t: {} for t in range(1, until)}
        place = {name: number for number, name in enumerate(self.classes)}
        for row in [] if answers is None else answers.table(["key", "increment", "label"]).to_pylist():
            found[row["increment"]][row["key"]] = place[row["label"]]
        return found


def _world(
    training: Mapping[str, Any],
    digest: str,
    given: Mapping[str, Any],
    predictor: Callable[..., Any],
    device: str,
    outputs: Sequence[str],
) -> _World:
    settings, vectors = training["settings"], given["vectors"]
    index, place = DatasetIndex.open(given["dataset"]), _local(given["features"])

    def seen(name: str) -> np.ndarray:
        if name not in vectors:
            return _mapped(index, place / f"features-{digest[:16]}.npy")
        stage, _, content = vectors[name].partition(":")
        return _mapped_apart(index, given["run"], stage, place / f"vectors-{digest[:16]}-{content[:16]}.npy")

    start = training["protocol"] == START
    label = f"label_{given['first']}" if start else LABEL
    increments, classes = _increments(index, seen(""), label, 1 if start else None)

    def make() -> Any:
        where, hyper = device_of(device), settings["predictor"]
        return new_predictor(predictor, hyper, seed=training["seed"], device=where, names=classes, outputs=outputs)

    amount, scores = (1.0, False) if start else feedback_of(training["protocol"])
    setting = Setting(amount, settings["experience_limit"], scores)
    return _World(make, increments, classes, setting, lambda kind: _increments(index, seen(kind), label, len(increments))[0])


def measure_strata(*, predictions: Rows, dataset: str, digest: str) -> Iterator[Value]:
    """Source step: measures by stratum of AVA-Kinetics and by visual transform.

    Args:
        predictions: predictions stored by the training.
        dataset: folder of the dataset, whose index has the strata.
        digest: content digest of the dataset, only part of the key.
    """
    yield from measures_by_stratum(predictions, strata_of_samples(dataset))


def read_increments(dataset: str, mapped: str | None = None) -> tuple[list[Increment], list[str]]:
    """The increments of a published dataset in the order of its stream, and the class names, sorted.

    Args:
        dataset: folder of shards.
        mapped: file of all features, which is memory-mapped, and written if it is missing. None: they are held in memory.
    """
    index = DatasetIndex.open(dataset)
    return _increments(index, read_features(index, FEATURE)[0] if mapped is None else _mapped(index, Path(mapped)))


def _increments(
    index: DatasetIndex, features: np.ndarray, column: str = LABEL, count: int | None = None
) -> tuple[list[Increment], list[str]]:
    """The first ``count`` increments, or all, and their class names; ``features`` are in the order of the index."""
    table = index.table
    last = int(pc.max(table["increment"]).as_py()) if count is None else count - 1
    used = table["increment"].to_numpy() <= last
    uid = np.asarray(table["key"].to_pylist(), dtype=np.str_)
    label = np.full(len(used), -1)
    spelt = np.asarray(table[column].filter(pa.array(used)).to_pylist(), dtype=np.str_)
    names, label[used] = np.unique(spelt, return_inverse=True)
    role = np.asarray([ROLES.index(name) for name in table["role"].to_pylist()], dtype=np.int64)
    increment, position = table["increment"].to_numpy(), table["position"].to_numpy()

    def samples(number: int, part: int) -> SplitSamples:
        rows = np.flatnonzero((increment == number) & (role == part))
        rows = rows[np.argsort(position[rows], kind="stable")]
        # Shards hold a part contiguously: then a view suffices, and no vector is held twice.
        whole = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        vectors = features[rows[0] : rows[-1] + 1] if whole else features[rows]
        return SplitSamples(uid[rows], vectors, label[rows].astype(np.int64))

    made = [Increment(str(number), *(samples(number, part) for part in range(len(ROLES)))) for number in range(last + 1)]
    return made, names.tolist()


def _local(url: str) -> Path:
    """The local folder; for a remote one, a temporary folder shared by trainings in this process."""
    return Store(url).local or Path(_room().name)


@functools.cache
def _room() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="benchwright-")


def _mapped(index: DatasetIndex, path: Path) -> np.ndarray:
    if not path.exists():
        for old in path.parent.glob("features-*.npy"):  # of an earlier dataset
            remove(old)
        with replacing(path) as temporary:
            read_features(index, FEATURE, into=temporary)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def finished_stage(run: str, name: str) -> Artifact:
    """A stage of a run. Raises ``WrongUse`` if it is not finished."""
    if (artifact := load_artifact(Store(run), name)) is None:
        raise WrongUse(f"{run} has no stage {name!r} yet: finish the run first")
    return artifact


def _mapped_apart(index: DatasetIndex, run: str, stage: str, path: Path) -> np.ndarray:
    """Vectors of a stage in the order of the index, memory-mapped from a file that is written if it is missing."""
    if not path.exists():
        rows = finished_stage(run, stage).rows_view(Store(run))
        column = "vector" if "vector" in rows.column_names else "feature"
        row_of = {key: row for row, key in enumerate(index.table["key"].to_pylist())}
        found = 0
        with replacing(path) as temporary:
            values: np.ndarray | None = None
            for table, vectors in zip(rows.batches(["key"]), rows.arrays(column), strict=True):
                if values is None:
                    shape = (len(index), vectors.shape[1])
                    values = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
                at = np.array([row_of.get(key, -1) for key in table["key"].to_pylist()], dtype=np.int64)
                values[at[at >= 0]] = vectors[at >= 0]
                found += int(np.count_nonzero(at >= 0))
            del values
            if found != len(index):
                short = f"{len(index) - found:,} of {len(index):,} samples have no vector in stage {stage!r}"
                raise WrongUse(f"{run}: {short}: `benchwright rejects {run} --stage {stage}` shows them")
    return np.load(path, mmap_mode="r", allow_pickle=False)


def strata_of_samples(dataset: str) -> pa.Table:
    """``uid``, ``stratification`` and ``stratum``, of AVA-Kinetics and of visual transforms, if the run has these stages."""
    from ...datasets.ava_kinetics.strata import strata_of

    table, empty = DatasetIndex.open(dataset).table, pa.array([], pa.string())
    found = [pa.table({"uid": empty, "stratification": empty, "stratum": empty})]
    if "stratum_area" in table.column_names:
        found.append(strata_of(table))
    if "transform" in table.column_names:
        kind = pa.array([TRANSFORM] * table.num_rows, pa.string())
        found.append(pa.table({"uid": table["key"], "stratification": kind, "stratum": table["transform"]}))
    return pa.concat_tables([part.cast(found[0].schema) for part in found])
