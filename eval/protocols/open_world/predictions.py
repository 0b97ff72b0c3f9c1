"""Predictions stored by an open-world training, before and after each feedback; every measure is computed from them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ....curation.stage_rows import Rows
from .predictor import Labels, Probabilities, Uids

COLUMNS = pa.schema(
    [
        ("key", pa.string()),
        ("increment", pa.int32()),
        ("phase", pa.string()),
        ("split", pa.string()),
        ("samples", pa.int64()),
        ("keys", pa.list_(pa.string())),
        ("truth", pa.list_(pa.int64())),
        ("columns", pa.list_(pa.int64())),
        ("probabilities", pa.binary()),
        ("name", pa.string()),
        ("class_names", pa.list_(pa.string())),
        ("labelled", pa.list_(pa.int64())),
        ("known_to_evaluator", pa.list_(pa.int64())),
        ("known_to_predictor", pa.list_(pa.int64())),
        ("experience", pa.int64()),
        ("transform", pa.string()),
    ]
)
"""Columns of a table of predictions, in chronological order. Two kinds of row:

* for each increment one about its feedback, between "pre" and "post", with ``phase`` and ``split`` "": the increment's
  ``name``; ``labelled``, which of its training ``samples`` got labels, in the requested order; the classes known to the
  evaluator and the predictor from then on; the number of samples in the ``experience``; and ``class_names``, for increment 0;
* for each increment, phase and split at least one: ``keys`` and ``truth`` (class indices) of its samples, the labels of the
  ``columns``, and the ``probabilities``, (samples, columns) little-endian float32; several rows if there are many samples.
  ``transform`` is the visual transform applied to the samples, outside the stream; "" for the stream.
"""

_AT_ONCE = 1 << 26
"""Most bytes of probabilities in one row, so that copying rows needs little memory."""


@dataclasses.dataclass(frozen=True)
class Feedback:
    """The feedback in one increment.

    Attributes:
        name: name of the increment.
        samples: number of samples in its training split.
        labelled: rows of that split whose labels were given, in the requested order.
        known_to_evaluator, known_to_predictor: class indices known from then on, ascending.
        experience: number of samples that the predictor learned from, with and without labels.
    """

    name: str
    samples: int
    labelled: Labels
    known_to_evaluator: list[int]
    known_to_predictor: list[int]
    experience: int


FEEDBACK = [field.name for field in dataclasses.fields(Feedback)]
"""Columns with the fields of ``Feedback``."""


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Predictions for one split of an increment in one phase.

    Attributes:
        increment: number of the increment.
        phase: "pre", before feedback, or "post".
        split: "train", "validate" or "test".
        uid: (n,) strings, in the increment's order.
        truth: (n,) int64 class indices.
        columns: (c,) int64 labels: class indices, -1 for "unknown", -2 - j for the cluster ``unknown_j``.
        probabilities: (n, c) float32.
        known: "predictor" and "evaluator" -> class indices known at that time.
        transform: visual transform applied to the samples, outside the stream; "" for the stream.
    """

    increment: int
    phase: str
    split: str
    uid: Uids
    truth: Labels
    columns: Labels
    probabilities: Probabilities
    known: Mapping[str, list[int]]
    transform: str = ""


def feedback_row(increment: int, feedback: Feedback, classes: list[str] | None) -> pa.Table:
    """The row about the feedback of an increment; ``classes`` are passed for increment 0."""
    return _row(increment, "", "", class_names=classes, **vars(feedback))


def predicted_rows(
    increment: int,
    phase: str,
    split: str,
    uid: Uids,
    truth: Labels,
    columns: Labels,
    probabilities: Probabilities,
    transform: str = "",
) -> Iterator[pa.Table]:
    """The rows of one split, one per table; see ``Predicted``."""
    step = max(1, _AT_ONCE // (4 * len(columns)))
    for part, start in enumerate(range(0, len(uid), step)):
        at = slice(start, start + step)
        yield _row(
            increment,
            phase,
            split,
            part,
            transform=transform,
            samples=len(uid[at]),
            keys=uid[at].tolist(),
            truth=truth[at],
            columns=columns,
            probabilities=np.ascontiguousarray(probabilities[at], dtype="<f4").tobytes(),
        )


def _row(increment: int, phase: str, split: str, part: int = 0, **values: Any) -> pa.Table:
    seen = f"/{values['transform']}" if values.get("transform") else ""
    key = f"{increment:04}/{phase}/{split}/{part:04}{seen}" if phase else f"{increment:04}"
    given = {"key": key, "increment": increment, "phase": phase, "split": split, "transform": "", **values}
    return pa.Table.from_pylist([given], schema=COLUMNS)


def feedbacks(table: pa.Table) -> list[Feedback]:
    """The ``Feedback`` of each row about feedback in a table of predictions."""
    found: list[Feedback] = []
    rows: list[dict[str, Any]] = table.select(FEEDBACK).to_pylist()
    for row in rows:
        if row["name"] is not None:
            row["labelled"] = np.asarray(row["labelled"], dtype=np.int64)
            found.append(Feedback(**row))
    return found


class OpenWorldPredictions:
    """The predictions of one training. Iterating yields one ``Predicted`` after another, with only one in memory.

    Predictions under visual transforms, outside the stream, are left out: ``transformed`` includes them.

    Args:
        rows: rows of a stage with the columns ``COLUMNS``.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @functools.cached_property
    def feedback(self) -> tuple[Feedback, ...]:
        """The feedback of each increment."""
        return tuple(feedbacks(self._rows.table(FEEDBACK)))

    @functools.cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the class indices."""
        names = self._rows.table(["class_names"])["class_names"].drop_null()
        return tuple(names[0].as_py())

    def __iter__(self) -> Iterator[Predicted]:
        return (part for part in self.transformed() if not part.transform)

    def transformed(self) -> Iterator[Predicted]:
        """All predictions, including those under visual transforms, in chronological order."""
        return self.apart(self._rows.batches())

    def apart(self, tables: Iterable[pa.Table]) -> Iterator[Predicted]:
        """Further predictions of the same predictor, from tables with the columns ``COLUMNS``."""
        rows = (table.slice(n, 1) for table in tables for n in range(table.num_rows))
        for (increment, phase, split, transform), some in itertools.groupby(rows, _place):
            if phase:
                yield self._predicted(increment, phase, split, transform, [_arrays(row) for row in some])

    def _predicted(self, increment: int, phase: str, split: str, transform: str, rows: list[tuple[Any, ...]]) -> Predicted:
        uid, truth, columns, probabilities = zip(*rows, strict=True)
        feedback = self.feedback[increment - (phase == "pre")]
        known = {"predictor": feedback.known_to_predictor, "evaluator": feedback.known_to_evaluator}
        joined = (each[0] if len(each) == 1 else np.concatenate(each) for each in (uid, truth, probabilities))
        names, labels, shares = joined
        return Predicted(increment, phase, split, names, labels, columns[0], shares, known, transform)


def _place(row: pa.Table) -> tuple[int, str, str, str]:
    increment, phase, split, transform = (row[name][0].as_py() for name in ("increment", "phase", "split", "transform"))
    return increment, phase, split, transform


def _arrays(row: pa.Table) -> tuple[Uids, Labels, Labels, Probabilities]:
    """``uid``, ``truth``, ``columns`` and ``probabilities`` of a row."""
    columns = row["columns"][0].values.to_numpy()
    shares = np.frombuffer(row["probabilities"][0].as_buffer(), dtype="<f4").reshape(-1, len(columns))
    uid = np.asarray(row["keys"][0].as_py(), dtype=np.str_)
    return uid, row["truth"][0].values.to_numpy(), columns, shares
