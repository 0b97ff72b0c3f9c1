"""The loop of every continual-learning protocol: learn a position of a stream, predict what it tests, commit, continue.

Protocols differ only in data: what each position learns, which classes are new in it, and which sets it tests.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...curation.checkpoint import Checkpoint
from .predictions import LABEL_SETS, ONE_LABEL, as_column, asked, row

_LOGGER = logging.getLogger("benchwright.training")


class LabelledSamples(Protocol):
    """Labelled samples. A protocol reads only keys and labels; the content is up to the learner.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> samples = ArrayExamples(np.zeros((2, 4), np.float32), [0, 1], keys=["a", "b"])
    >>> samples.take(np.array([1])).keys
    ['b']
    """

    @property
    def keys(self) -> Sequence[str]:
        """n unique keys."""
        ...

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,) class indices in the order of learning, or (n, k) sets of them, filled up with -1."""
        ...

    def take(self, rows: NDArray[np.int64]) -> Any:
        """The samples of ``rows``, in that order."""
        ...


class StreamLearner(Protocol):
    """A model that learns positions one after another. Anything with these members can be evaluated; nothing is inherited.

    >>> class Commonest:
    ...     record = {}
    ...     def learn(self, train, validate, *, classes):
    ...         self.label = np.bincount(train.labels).argmax()
    ...     def predict(self, samples):
    ...         return np.full(len(samples.labels), self.label)
    ...     def save(self, path):
    ...         path.write_text(str(self.label))
    ...     def load(self, path, seen):
    ...         self.label = int(path.read_text())
    >>> learner: StreamLearner = Commonest()
    """

    @property
    def record(self) -> Mapping[str, Any]:
        """JSON values about the last ``learn``; ``memory`` is the contents of the memory: ``samples``, ``parts``."""
        ...

    def learn(self, train: Any, validate: Sequence[Any], *, classes: int) -> None:
        """Train on the next position, which brings ``classes`` new classes. Raises ArithmeticError where the loss diverges."""
        ...

    def predict(self, samples: Any) -> NDArray[Any]:
        """Class indices (n,) among all classes seen so far; or, where labels are sets, (n, classes seen so far) bool."""
        ...

    def save(self, path: Path) -> None:
        """Write the state after the last ``learn``: weights and row numbers, no samples."""
        ...

    def load(self, path: Path, seen: Sequence[Any]) -> None:
        """Resume from a saved state; ``seen`` are the training sets passed to ``learn`` until then, in order."""
        ...


@dataclasses.dataclass(frozen=True)
class Test:
    """A test set.

    Attributes:
        tested: name in tables: a domain or task, "" for all.
        split: role of the samples, such as "test".
        samples: samples with labels below the number of all classes.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> Test("2005", "test", ArrayExamples(np.zeros((2, 4), np.float32), [0, 1])).samples.labels
    array([0, 1])
    """

    __test__ = False  # not a pytest test

    tested: str
    split: str
    samples: LabelledSamples


@dataclasses.dataclass(frozen=True)
class Position:
    """One domain or task.

    Attributes:
        name: name in tables.
        train: training samples.
        classes: names of its new classes; their indices continue from those of the previous positions.
        tests: indices of the stream's test sets to test after it; only samples with a label known by then are predicted.
        validate: samples for choosing the epoch; may be empty.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> train = ArrayExamples(np.zeros((2, 4), np.float32), [0, 1])
    >>> Position("2005", train, classes=("cat", "dog"), tests=(0,)).classes
    ('cat', 'dog')
    """

    name: str
    train: LabelledSamples
    classes: tuple[str, ...]
    tests: tuple[int, ...]
    validate: tuple[LabelledSamples, ...] = ()


@dataclasses.dataclass(frozen=True)
class Stream:
    """Positions to learn, in order, and test sets.

    Attributes:
        positions: at least one.
        tests: test sets; no two with the same ``tested`` and ``split``.
        sets: whether samples have sets of labels.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> pictures = ArrayExamples(np.zeros((2, 4), np.float32), [0, 1])
    >>> Stream((Position("2005", pictures, ("cat", "dog"), (0,)),), (Test("2005", "test", pictures),)).sets
    False
    >>> Stream((Position("2005", pictures, ("cat",), (0,)),), (Test("2005", "test", pictures),))
    Traceback (most recent call last):
        ...
    ValueError: '2005', train: labels from 0 to 1: 0..0 are known by then
    """

    positions: tuple[Position, ...]
    tests: tuple[Test, ...]
    sets: bool = False

    def __post_init__(self) -> None:
        if not self.positions or not self.tests:
            raise ValueError("a stream without positions or without tests: there is nothing to train on, or nothing to test")
        known = 0
        for one in self.positions:
            known += len(one.classes)
            for split, samples in (("train", one.train), *(("validate", each) for each in one.validate)):
                self._check(f"{one.name!r}, {split}", samples.labels, known)
        for test in self.tests:
            self._check(f"{test.tested!r}, {test.split}", test.samples.labels, known)

    def _check(self, what: str, labels: NDArray[np.int64], known: int) -> None:
        if labels.dtype != np.int64 or labels.ndim != (2 if self.sets else 1):
            wanted = "(n, k) sets of class indices" if self.sets else "(n,) class indices"
            raise ValueError(f"{what}: labels {labels.dtype} {labels.shape}: expected int64 {wanted}")
        if not len(labels):
            raise ValueError(f"{what}: there are no samples")
        first = labels[:, 0] if self.sets else labels
        if first.min() < 0 or labels.min() < -1 or labels.max() >= known:
            raise ValueError(f"{what}: labels from {labels.min()} to {labels.max()}: 0..{known - 1} are known by then")


def run_stream(
    learner: StreamLearner, stream: Stream, *, folder: Path, tell: Callable[[str], None] = _LOGGER.info
) -> Iterator[pa.Table]:
    """Learn a stream and yield its predictions (see ``predictions.columns``), or continue from the checkpoint in ``folder``.

    Args:
        learner: a new learner; its state is replaced if the folder holds a part of this training.
        stream: the stream to learn.
        folder: folder reserved for this training, see ``curation.keys.work_folder``.
        tell: called with a line of text after each position.

    Raises:
        ArithmeticError: the loss did not stay finite. Nothing was yielded then.

    >>> from benchwright.eval.protocols.predictions import Predictions
    >>> from benchwright.curation.stage_rows import Rows
    >>> from benchwright.training.data.examples import ArrayExamples
    >>> class Commonest:  # any object with these members: see StreamLearner
    ...     record = {}
    ...     def learn(self, train, validate, *, classes):
    ...         self.label = np.bincount(train.labels).argmax()
    ...     def predict(self, samples):
    ...         return np.full(len(samples.labels), self.label)
    ...     def save(self, path):
    ...         path.write_text(str(self.label))
    >>> first, then = (ArrayExamples(np.zeros((4, 2), np.float32), y) for y in ([0, 0, 0, 1], [0, 1, 1, 1]))
    >>> positions = Position("2005", first, ("cat", "dog"), (0, 1)), Position("2006", then, (), (0, 1))
    >>> stream = Stream(positions, (Test("2005", "test", first), Test("2006", "test", then)))
    >>> Path("work").mkdir()
    >>> tables = list(run_stream(Commonest(), stream, folder=Path("work")))
    >>> Predictions(Rows.of(pa.concat_tables(tables))).matrix()
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    label = LABEL_SETS if stream.sets else ONE_LABEL
    checkpoint = Checkpoint(folder)
    done = len(checkpoint.files)
    if checkpoint.state is not None:
        learner.load(checkpoint.state, [one.train for one in stream.positions[:done]])
    for number in range(done, len(stream.positions)):
        one, started = stream.positions[number], time.perf_counter()
        learner.learn(one.train, list(one.validate), classes=len(one.classes))
        known = sum(len(each.classes) for each in stream.positions[: number + 1])
        table = pa.concat_tables(
            [_learned(label, number + 1, one, learner), *_tested(label, number + 1, stream, learner, known)]
        )
        place = folder / f"position-{number + 1:04}.parquet"
        pq.write_table(table, place)
        checkpoint.commit(learner.save, place)
        seconds = time.perf_counter() - started
        tell(f"{one.name!r}, {number + 1} of {len(stream.positions)}, learned and tested in {seconds:.1f} s")
    yield pa.concat_tables([_test_set(label, test) for test in stream.tests])
    for place in checkpoint.files:
        yield pq.ParquetFile(place).read()


def _test_set(label: pa.DataType, test: Test) -> pa.Table:
    keys, labels = list(test.samples.keys), as_column(test.samples.labels)
    return row(label, f"0000/{test.tested}/{test.split}", 0, test.tested, test.split, len(keys), keys=keys, labels=labels)


def _learned(label: pa.DataType, position: int, one: Position, learner: StreamLearner) -> pa.Table:
    record = dict(learner.record)
    memory = record.get("memory") or {}
    return row(
        label,
        f"{position:04}",
        position,
        one.name,
        "",
        len(one.train.labels),
        class_names=list(one.classes),
        memory_samples=memory.get("samples"),
        memory_parts=memory.get("parts"),
        record=json.dumps(record, sort_keys=True),
    )


def _tested(label: pa.DataType, position: int, stream: Stream, learner: StreamLearner, known: int) -> Iterator[pa.Table]:
    for number in stream.positions[position - 1].tests:
        test = stream.tests[number]
        rows = asked(test.samples.labels, known)
        if not len(rows):
            continue
        whole = len(rows) == len(test.samples.labels)
        guess = np.asarray(learner.predict(test.samples if whole else test.samples.take(rows)))
        fits = guess.dtype == np.bool_ and guess.shape == (len(rows), known) if stream.sets else guess.dtype.kind in "iu"
        if not fits or len(guess) != len(rows):
            wanted = f"bool ({len(rows)}, {known})" if stream.sets else f"class indices ({len(rows)},)"
            raise ValueError(f"predictions {guess.dtype} {guess.shape}: expected {wanted}")
        key = f"{position:04}/{test.tested}/{test.split}"
        yield row(label, key, position, test.tested, test.split, len(rows), predicted=as_column(guess))
