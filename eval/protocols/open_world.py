"""KOWL's loop: an evaluator presents increments in which new classes turn up, a predictor recognises, asks and learns.

For every increment t (Prijatelj et al., "Human Activity Recognition in an Open World", JAIR 81, 2024; PROTOCOLS.md 2.6):

a. *pre-feedback*: predictions for its training, validation and test rows, labels hidden (not for increment 0);
b. feedback: the predictor names its training rows in the order in which it wants labels, and gets the first
   floor(amount x n); increment 0 is always labelled whole, its validation rows too;
c. the rows join the experience, and the predictor fits on all of it;
d. *post-feedback*: predictions for the same rows.

Predictions are stored, and every measure is computed from what is stored (``open_world_measures``). A killed run goes on
after its last finished increment and ends in the same bytes; nothing timed or dated is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ...curation.files import remove_half_written
from .open_world_files import Record, Stored, commit, read_progress, read_rows, write_array, write_prediction
from .open_world_measures import write_results
from .predictor import Features, Labels, Predictor, Seen, Uids

Progress = Callable[[str], None]
HIDDEN = -1


@dataclasses.dataclass(frozen=True)
class Samples:
    """One split of one increment, in the order in which it is presented: the reaction time depends on it.

    Attributes:
        uid: (n,) strings, unique in the whole run.
        X: (n, d) float32; may be memory-mapped. n may be 0.
        y: (n,) int64 class indices >= 0.
    """

    uid: Uids
    X: Features
    y: Labels

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.y.shape != self.X.shape[:1] or self.uid.shape != self.y.shape:
            raise ValueError(f"uids {self.uid.shape}, features {self.X.shape} and labels {self.y.shape} do not pair")
        if self.X.dtype != np.float32 or self.y.dtype != np.int64 or self.uid.dtype.kind != "U":
            raise ValueError(
                f"uids {self.uid.dtype}, features {self.X.dtype}, labels {self.y.dtype}: str, float32, int64 are needed"
            )
        if len(self.y) and int(self.y.min()) < 0:
            raise ValueError(f"label {int(self.y.min())}: class indices start at 0")


@dataclasses.dataclass(frozen=True)
class Increment:
    """One increment. A split that a data set lacks is empty (Kinetics-700 has no test rows of its own)."""

    name: str
    train: Samples
    validate: Samples
    test: Samples

    @property
    def splits(self) -> dict[str, Samples]:
        """The splits that have rows, by name, in the order in which they are predicted."""
        every = {"train": self.train, "validate": self.validate, "test": self.test}
        return {name: samples for name, samples in every.items() if len(samples.y)}


@dataclasses.dataclass(frozen=True)
class Setting:
    """What sets one experiment apart from another; the paper runs feedback 0, 0.5 and 1 without a limit.

    Attributes:
        feedback: share in [0, 1] of an increment's training rows whose labels are given, increment 0 excepted.
        experience_limit: rows that the predictor may learn from; the newest stay (our choice). None: all.
        prior_knowledge: what the predictor knows before increment 0, in JSON values: the backbone and the data that it was
            trained on, say. Written into the results; an empty mapping claims that there is none.
    """

    feedback: float
    experience_limit: int | None
    prior_knowledge: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not 0 <= self.feedback <= 1:
            raise ValueError(f"feedback {self.feedback}: a share in [0, 1]")
        if self.experience_limit is not None and self.experience_limit < 1:
            raise ValueError(f"experience_limit {self.experience_limit}: at least 1, or None")

    def labels_given(self, increment: int, rows: int) -> int:
        """floor(amount x rows), with the amount as it is written in decimals; all rows of increment 0."""
        return rows if increment == 0 else math.floor(Fraction(repr(float(self.feedback))) * rows)


def run_open_world(
    predictor: Predictor,
    increments: Sequence[Increment],
    classes: Sequence[str],
    *,
    setting: Setting,
    identity: Mapping[str, Any],
    out: Path,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Run, or go on where ``out`` stops, and write ``results.json``, ``measures.csv`` and ``measures.arrow``.

    Args:
        predictor: fresh; its state is replaced where ``out`` holds a part of this run.
        increments: in order; uids are unique over all of them.
        classes: names of the class indices.
        identity: JSON values that say what the predictor is (kind, hyper-parameters, seed). A folder that holds a run of
            another identity, setting or data is refused.
        out: folder of this run alone; see ``open_world_files`` for what it holds.

    Returns:
        The rows of the tidy table (``open_world_measures.COLUMNS``).
    """
    _check(increments, classes)
    out.mkdir(parents=True, exist_ok=True)
    whose = {
        "predictor": dict(identity),
        "setting": {**dataclasses.asdict(setting), "prior_knowledge": dict(setting.prior_knowledge)},
        "data": fingerprint(increments),
        "classes": list(classes),
    }
    steps, experience = _take_up(predictor, increments, setting, whose, out)
    for t in range(len(steps), len(increments)):
        known = steps[-1]["post"]["known_to_predictor"] if t else []
        shown = steps[-1]["post"]["known_to_evaluator"] if t else []
        record = _step(predictor, increments[t], t, setting, (known, shown), experience, increments[0].validate, out)
        steps.append(record)
        commit(out, whose, steps, predictor.state())
        if progress is not None:
            given, rows = record["labels_given"], len(increments[t].train.y)
            progress(f"increment {t} ({increments[t].name}, {t + 1} of {len(increments)}): {given} of {rows} labels given")
    return write_results(out)


def _step(
    predictor: Predictor,
    increment: Increment,
    t: int,
    setting: Setting,
    known: tuple[list[int], list[int]],
    experience: list[Seen],
    validation: Samples,
    out: Path,
) -> Record:
    """One increment; extends ``experience`` in place, and returns the record of what was done."""
    train = increment.train
    folder = out / "predictions"
    record: Record = {"name": increment.name, "pre": None}
    if t > 0:
        record["pre"] = {
            "known_to_evaluator": known[1],
            "known_to_predictor": known[0],
            "splits": _predict(predictor, increment, folder / f"step-{t:03}-pre"),
        }
    rows = np.arange(len(train.y), dtype=np.int64)
    given = setting.labels_given(t, len(rows))
    if 0 < given < len(rows):
        rows = _requested(predictor, train, given)
    rows = rows[:given]
    record["feedback"] = write_array(folder / f"step-{t:03}-feedback.npy", rows)
    record["labels_given"] = given
    _extend(experience, train, rows, setting.experience_limit)
    predictor.fit(tuple(experience), (validation.uid, validation.X, validation.y))
    record["post"] = {
        "known_to_evaluator": _union(known[1], train.y),
        "known_to_predictor": _union(known[0], train.y[rows]),
        "splits": _predict(predictor, increment, folder / f"step-{t:03}-post"),
    }
    return record


def _predict(predictor: Predictor, increment: Increment, folder: Path) -> Record:
    records: Record = {}
    for split, samples in increment.splits.items():
        columns, probabilities = predictor.predict(samples.uid, samples.X)
        columns = np.asarray(columns)
        probabilities = np.asarray(probabilities)
        where = f"prediction of {type(predictor).__name__} for {increment.name}, {split}"
        if probabilities.shape != (len(samples.y), len(columns)) or probabilities.dtype != np.float32:
            raise ValueError(
                f"{where}: {probabilities.shape} {probabilities.dtype}, not ({len(samples.y)}, {len(columns)}) float32"
            )
        if columns.dtype != np.int64 or len(np.unique(columns)) != len(columns) or not len(columns):
            raise ValueError(f"{where}: columns {columns.dtype} {columns[:5].tolist()}...: distinct int64 labels are needed")
        sums = probabilities.sum(axis=1, dtype=np.float64)
        bad = ~(np.abs(sums - 1) < 1e-3) | (probabilities.min(axis=1) < 0)
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(
                f"{where}: row {at} sums to {sums[at]} with least {probabilities[at].min()}: probabilities are needed"
            )
        records[split] = write_prediction(folder, split, Stored(samples.uid, samples.y, columns, probabilities))
    return records


def _requested(predictor: Predictor, train: Samples, given: int) -> Labels:
    """Rows of the uids that the predictor wants labelled first."""
    wanted = [str(uid) for uid in predictor.request(train.uid, train.X)][:given]
    row_of = {uid: row for row, uid in enumerate(train.uid.tolist())}
    strange = [uid for uid in wanted if uid not in row_of]
    if strange or len(set(wanted)) != given:
        problem = f"{strange[0]!r} is none of them" if strange else f"{len(set(wanted))} different ones among the first {given}"
        raise ValueError(f"{type(predictor).__name__} asked for labels of {len(train.uid)} uids: {problem}")
    return np.array([row_of[uid] for uid in wanted], dtype=np.int64)


def _extend(experience: list[Seen], train: Samples, rows: Labels, limit: int | None) -> None:
    labels = np.full(len(train.y), HIDDEN, dtype=np.int64)
    labels[rows] = train.y[rows]
    experience.append((train.uid, train.X, labels))
    if limit is None:
        return
    left = limit
    for at in reversed(range(len(experience))):
        uid, X, y = experience[at]
        start = max(0, len(y) - left)
        experience[at] = (uid[start:], X[start:], y[start:])
        left -= len(y) - start


def _union(known: list[int], labels: Labels) -> list[int]:
    return np.union1d(np.asarray(known, dtype=np.int64), labels).tolist()


def _take_up(
    predictor: Predictor, increments: Sequence[Increment], setting: Setting, whose: Mapping[str, Any], out: Path
) -> tuple[list[Record], list[Seen]]:
    """Records and experience of the increments that ``out`` holds already; the predictor takes up its state."""
    held = read_progress(out, whose)
    remove_half_written(out)
    experience: list[Seen] = []
    if held is None:
        return [], experience
    steps, state = held
    for t, record in enumerate(steps):
        rows = read_rows(out / "predictions" / f"step-{t:03}-feedback.npy", record["feedback"])
        _extend(experience, increments[t].train, rows, setting.experience_limit)
    predictor.restore(state, tuple(experience))
    return steps, experience


def _check(increments: Sequence[Increment], classes: Sequence[str]) -> None:
    if not increments or not len(increments[0].train.y):
        raise ValueError("increment 0 has no training rows: there is nothing to learn first")
    every = [samples for one in increments for samples in one.splits.values()]
    widths = sorted({samples.X.shape[1] for samples in every})
    if len(widths) != 1:
        raise ValueError(f"splits have {widths} features: one width is needed")
    highest = max(int(samples.y.max()) for samples in every)
    if highest >= len(classes):
        raise ValueError(f"class index {highest} with {len(classes)} class names")
    uids = np.concatenate([samples.uid for samples in every])
    values, counts = np.unique(uids, return_counts=True)
    if len(values) != len(uids):
        raise ValueError(
            f"uid {values[np.argmax(counts)]!r} comes {counts.max()} times: a sample belongs to one split of one increment"
        )


def fingerprint(increments: Sequence[Increment]) -> str:
    """SHA-256 over names, uids, labels and features: a resumed run must find the rows that it started with."""
    whole = hashlib.sha256()
    for increment in increments:
        for split, samples in increment.splits.items():
            whole.update(f"{increment.name} {split} {samples.X.shape}\n".encode())
            whole.update("\n".join(samples.uid.tolist()).encode())
            whole.update(np.ascontiguousarray(samples.y).data)
            for start in range(0, len(samples.X), 4096):
                whole.update(np.ascontiguousarray(samples.X[start : start + 4096]).data)
    return whole.hexdigest()
