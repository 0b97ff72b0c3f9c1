"""Predictions stored by a training on a stream, after each position; every metric is computed from them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.stage_rows import Rows
from ..metrics.confusion import EMPTY, Confusion, Labels
from ..metrics.label_sets import Overlaps, label_sets, overlaps

ONE_LABEL = pa.int32()
LABEL_SETS = pa.list_(pa.int32())
ORDER = pa.field("order", pa.int32())
"""Additional column where one training learns several orders: the order that a row belongs to."""


def columns(label: pa.DataType) -> pa.Schema:
    """Columns of a table of predictions whose samples have labels of type ``ONE_LABEL`` or ``LABEL_SETS``.

    Three kinds of row:

    * at position 0, one for each test set: ``tested``, ``split``, ``keys`` and ``labels`` of its samples;
    * for each position, one about the training: its name in ``tested``, ``class_names`` of its new classes, the number of
      ``samples``, the contents of the memory, and the learner's ``record`` as JSON;
    * for each position and test set, one with ``predicted``: class indices for those samples of the test set that have a label
      known by then, in the order of ``keys``.

    >>> columns(ONE_LABEL).names[:5], columns(LABEL_SETS).field("labels").type
    (['key', 'position', 'tested', 'split', 'samples'], ListType(list<item: list<item: int32>>))
    """
    return pa.schema(
        [
            ("key", pa.string()),
            ("position", pa.int32()),
            ("tested", pa.string()),
            ("split", pa.string()),
            ("samples", pa.int64()),
            ("keys", pa.list_(pa.string())),
            ("labels", pa.list_(label)),
            ("predicted", pa.list_(label)),
            ("class_names", pa.list_(pa.string())),
            ("memory_samples", pa.int64()),
            ("memory_parts", pa.int64()),
            ("record", pa.string()),
        ]
    )


def row(label: pa.DataType, key: str, position: int, tested: str, split: str, samples: int, **values: Any) -> pa.Table:
    """One row; columns that are not named are null.

    >>> row(ONE_LABEL, "0001//test", 1, "", "test", 2, predicted=[0, 3]).select(["position", "split", "predicted"]).to_pylist()
    [{'position': 1, 'split': 'test', 'predicted': [0, 3]}]
    """
    given = {"key": key, "position": position, "tested": tested, "split": split, "samples": samples, **values}
    return pa.Table.from_pylist([given], schema=columns(label))


def as_column(labels: NDArray[Any]) -> list[int] | list[list[int]]:
    """Class indices (n,), sets of them (n, k) filled up with -1, or sets as (n, classes) bool, as values of a column.

    >>> as_column(np.array([[2, 0], [1, -1]]))
    [[2, 0], [1]]
    >>> as_column(np.array([[True, False, True]]))
    [[0, 2]]
    """
    if labels.ndim == 1:
        return labels.tolist()
    if labels.dtype == np.bool_:
        return [np.flatnonzero(each).tolist() for each in labels]
    return [[label for label in each if label >= 0] for each in labels.tolist()]


def asked(labels: NDArray[Any], known: int) -> NDArray[np.int64]:
    """Rows (m,) of the samples that have a label among the first ``known`` classes; ``labels`` are (n,) or (n, k).

    >>> asked(np.array([0, 3, 1]), known=2)  # class 3 comes later
    array([0, 2])
    >>> asked(np.array([[3, 0], [3, -1]]), known=2)
    array([0])
    """
    fits = (labels >= 0) & (labels < known)
    return np.flatnonzero(fits if fits.ndim == 1 else fits.any(1))


@dataclass(frozen=True)
class LearnedPosition:
    """One position of a stream.

    Attributes:
        name: name of the domain or task.
        classes: names of its new classes; empty where none is new.
        known: classes known after it.
        samples: number of training samples.
        memory_samples, memory_parts: contents of the memory; None for a method without one.
        record: record of the learner, such as its epochs.

    >>> import benchwright as bw
    >>> _, rows = next(bw.predictions("out"))
    >>> first = Predictions(rows).positions[0]
    >>> first.name, first.classes
    ('1', ('BACKGROUND', 'blue', 'green', 'red'))
    """

    name: str
    classes: tuple[str, ...]
    known: int
    samples: int
    memory_samples: int | None
    memory_parts: int | None
    record: Mapping[str, Any]


@dataclass(frozen=True)
class TestSet:
    """A test set.

    Attributes:
        tested: domain or task, "" for all.
        split: role of the samples.
        keys: n unique keys.
        labels: (n,) int64 class indices, or (n, k) sets of them, filled up with -1.

    >>> import benchwright as bw
    >>> _, rows = next(bw.predictions("out"))
    >>> [(test.tested, test.split) for test in Predictions(rows).tests]
    [('1', 'test'), ('2', 'test'), ('3', 'test')]
    """

    __test__ = False  # no test of pytest's

    tested: str
    split: str
    keys: Sequence[str]
    labels: Labels


def orders_of(rows: Rows) -> list[int]:
    """The orders that one training learned, ascending; empty if its rows have no ``ORDER`` column.

    >>> orders_of(Rows.of(pa.table({"key": ["a", "b", "c"], "order": pa.array([1, 0, 1], pa.int32())})))
    [0, 1]
    >>> orders_of(Rows.of(pa.table({"key": ["a", "b", "c"]})))
    []
    """
    return sorted(set(rows.table([ORDER.name])[ORDER.name].to_pylist())) if ORDER.name in rows.column_names else []


class Predictions:
    """The predictions of one training, read from the rows that it stored.

    Args:
        rows: rows of a stage with the columns ``columns``, and ``ORDER`` if it learned several orders.
        order: the order to read, one of ``orders_of``.
        columns: cache of the columns already read from these rows, shared by several readers.

    Raises:
        ValueError: the rows hold several orders, and ``order`` is None.

    >>> import benchwright as bw
    >>> facts, rows = next(bw.predictions("out"))
    >>> predictions = Predictions(rows)
    >>> [one.name for one in predictions.positions], [test.tested for test in predictions.tests]
    (['1', '2', '3'], ['1', '2', '3'])
    >>> predictions.matrix().shape  # accuracy after each domain, on each
    (3, 3)
    """

    def __init__(self, rows: Rows, order: int | None = None, columns: dict[str, pa.ChunkedArray] | None = None) -> None:
        if order is None and len(orders := orders_of(rows)) > 1:
            raise ValueError(f"predictions of {len(orders)} orders: read one of them, by Predictions(rows, order)")
        self._rows, self._columns = rows, {} if columns is None else columns
        mine = np.arange(rows.num_rows)
        if order is not None:
            mine = np.flatnonzero(self._take([ORDER.name], mine.tolist())[ORDER.name].to_numpy() == order)
        places = self._take(["position", "tested", "split"], mine.tolist())
        self._at = dict(zip(zip(*(column.to_pylist() for column in places.columns), strict=True), mine.tolist(), strict=True))

    @functools.cached_property
    def sets(self) -> bool:
        """Whether labels are sets."""
        return self._rows.schema.field("labels").type.value_type != ONE_LABEL

    @functools.cached_property
    def positions(self) -> tuple[LearnedPosition, ...]:
        """The learned positions, in order. Raises ``ValueError`` if a position is missing or out of order."""
        learned = {position: number for (position, _, split), number in self._at.items() if position and not split}
        if [*learned] != [*range(1, len(learned) + 1)]:
            raise ValueError(f"predictions after the positions {[*learned]}: 1, 2, ... each once")
        found: list[LearnedPosition] = []
        columns = ["tested", "samples", "class_names", "memory_samples", "memory_parts", "record"]
        for each in self._take(columns, [*learned.values()]).to_pylist():
            known = (found[-1].known if found else 0) + len(each["class_names"])
            memory = each["memory_samples"], each["memory_parts"]
            names = tuple(each["class_names"])
            found.append(LearnedPosition(each["tested"], names, known, each["samples"], *memory, json.loads(each["record"])))
        return tuple(found)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all classes, in the order of learning."""
        return tuple(name for one in self.positions for name in one.classes)

    @functools.cached_property
    def tests(self) -> tuple[TestSet, ...]:
        """The test sets, in order."""
        places = [number for (position, _, _), number in self._at.items() if position == 0]
        rows = self._take(["tested", "split", "keys", "labels"], places).to_pylist()
        return tuple(TestSet(each["tested"], each["split"], each["keys"], self._labels(each["labels"])) for each in rows)

    def predicted(self, position: int, test: TestSet) -> Labels | None:
        """Predictions after a position (from 1) for the samples of ``asked(test.labels, known)``; None if not tested.

        Returns:
            (m,) int64 class indices, or sets of them (m, k), filled up with -1.

        >>> import benchwright as bw
        >>> predictions = Predictions(next(bw.predictions("out"))[1])
        >>> test = predictions.tests[0]
        >>> guess = predictions.predicted(1, test)
        >>> guess.dtype, guess.shape == test.labels.shape
        (dtype('int64'), True)
        """
        place = self._at.get((position, test.tested, test.split))
        return None if place is None else self._labels(self._take(["predicted"], [place])["predicted"][0].as_py())

    def matrix(self) -> NDArray[np.float64]:
        """(positions, tests) accuracy in [0, 1], NaN where not tested. Only for samples with one label each.

        Raises ``ValueError`` if a test has another number of predictions than of labels.

        >>> import pyarrow as pa
        >>> rows = [
        ...     row(ONE_LABEL, "0000//test", 0, "", "test", 4, keys=list("abcd"), labels=[0, 1, 0, 1]),
        ...     row(ONE_LABEL, "0001", 1, "2005", "", 9, class_names=["cat", "dog"], record="{}"),
        ...     row(ONE_LABEL, "0001//test", 1, "", "test", 4, predicted=[0, 1, 1, 1]),
        ... ]
        >>> Predictions(Rows.of(pa.concat_tables(rows))).matrix()
        array([[0.75]])
        """
        found = np.full((len(self.positions), len(self.tests)), np.nan)
        for i, learned in enumerate(self.positions):
            for j, test in enumerate(self.tests):
                if (guess := self.predicted(i + 1, test)) is not None and len(guess):
                    truth = test.labels[asked(test.labels, learned.known)]
                    if guess.shape != truth.shape:
                        raise ValueError(
                            f"{learned.name!r}, {test.tested!r}: predictions {guess.shape} of labels {truth.shape}"
                        )
                    found[i, j] = np.count_nonzero(guess == truth) / len(truth)
        return found

    @property
    def domains(self) -> list[str]:
        """Names of the positions and the test sets, in the order of the stream; the last may be tested but not learned."""
        return list(dict.fromkeys([*(one.name for one in self.positions), *(test.tested for test in self.tests)]))

    def square(self) -> NDArray[np.float64]:
        """R, (N, N) for N ``domains``: accuracy on each after each, NaN where not tested or not learned.

        >>> import benchwright as bw
        >>> streaming = next(rows for facts, rows in bw.predictions("out") if facts["protocol"] == "streaming")
        >>> found = Predictions(streaming)
        >>> found.domains, np.isnan(found.square()).astype(int)  # only the future is tested
        (['1', '2', '3'], array([[1, 0, 0],
               [1, 1, 0],
               [1, 1, 1]]))
        """
        names = self.domains
        found, square = self.matrix(), np.full((len(names), len(names)), np.nan)
        for j, test in enumerate(self.tests):
            square[: len(found), names.index(test.tested)] = found[:, j]
        return square

    def confusion(self) -> Confusion:
        """Confusion of the predictions after the last position, over all samples tested then. Only for one label per sample.

        >>> import benchwright as bw
        >>> _, rows = next(bw.predictions("out"))
        >>> found = Predictions(rows).confusion()
        >>> found.n == sum(len(test.keys) for test in Predictions(rows).tests), 0 <= found.trace <= found.n
        (True, True)
        """
        found = EMPTY
        known = self.positions[-1].known
        for test in self.tests:
            if (guess := self.predicted(len(self.positions), test)) is not None:
                found += Confusion.of(test.labels[asked(test.labels, known)], guess)
        return found

    def sets_after(self, position: int, test: TestSet) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """True and predicted sets, (n, known) each, of the samples with a label known after a position (from 1).

        >>> import pyarrow as pa
        >>> rows = [
        ...     row(LABEL_SETS, "0000//test", 0, "", "test", 2, keys=["a", "b"], labels=[[1, 0], [0]]),
        ...     row(LABEL_SETS, "0001", 1, "0", "", 9, class_names=["animal", "dog"], record="{}"),
        ...     row(LABEL_SETS, "0001//test", 1, "", "test", 2, predicted=[[0], [0, 1]]),
        ... ]
        >>> found = Predictions(Rows.of(pa.concat_tables(rows)))
        >>> true, predicted = found.sets_after(1, found.tests[0])
        >>> true.tolist(), predicted.tolist()
        ([[True, True], [True, False]], [[True, False], [True, True]])
        >>> found.overlaps()  # of the first test set, after the last position
        Overlaps(common=array([1, 1]), true=array([2, 1]), predicted=array([1, 2]))
        """
        known = self.positions[position - 1].known
        true = label_sets(test.labels[asked(test.labels, known)], known)
        guess = self.predicted(position, test)
        return true, np.zeros_like(true) if guess is None else label_sets(guess, known)

    def overlaps(self) -> Overlaps:
        """``Overlaps`` of the first test set after the last position. Only for samples with sets of labels."""
        return overlaps(*self.sets_after(len(self.positions), self.tests[0]))

    def _take(self, names: list[str], places: list[int]) -> pa.Table:
        if missing := [name for name in names if name not in self._columns]:  # read once from all files
            table = self._rows.table(missing)
            self._columns.update((name, table[name]) for name in missing)
        return pa.table({name: self._columns[name].take(pa.array(places, pa.int64())) for name in names})

    def _labels(self, values: list[Any]) -> Labels:
        if not self.sets:
            return np.asarray(values, dtype=np.int64)
        width = max((len(each) for each in values), default=0)
        made = np.full((len(values), max(width, 1)), -1, dtype=np.int64)
        for at, each in enumerate(values):
            made[at, : len(each)] = each
        return made
