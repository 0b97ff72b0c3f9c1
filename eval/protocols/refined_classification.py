"""IIRC's protocol: tasks bring labels that refine earlier ones, and a sample is tested for all its labels known so far.

Abdelsalam et al., CVPR 2021, sections 3 and 4. After task j every test sample with a known label is predicted once. R_jk is
measured on the samples that have a label of task k, R_j on all of them, each once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...curation.stage_rows import Rows
from ..metrics.label_sets import METRICS, Overlaps, overlaps
from ..results import Value, measured
from .predictions import LearnedPosition, Predictions, TestSet
from .stream_loop import Position, Stream, Test

Sets = NDArray[np.bool_]


def refined_stream(positions: Sequence[Position], tests: Sequence[Test]) -> Stream:
    """A stream of label sets, in which every class is learned in its task.

    Raises:
        ValueError: labels that do not fit the tasks, or a task without a training sample of one of its classes.

    >>> from benchwright.eval.protocols.stream_loop import Position, Test
    >>> from benchwright.training.data.examples import ArrayExamples
    >>> train = ArrayExamples(np.zeros((2, 2), np.float32), [[1, 0], [0, -1]])  # a dog, and an animal
    >>> refined_stream([Position("0", train, ("animal", "dog"), (0,))], [Test("", "test", train)]).sets
    True
    >>> refined_stream([Position("0", train, ("animal", "dog", "cat"), (0,))], [Test("", "test", train)])
    Traceback (most recent call last):
        ...
    ValueError: task '0' has no training sample of class 'cat'
    """
    known = 0
    for task in positions:
        own = np.arange(known, known + len(task.classes))
        known += len(own)
        if (missing := np.setdiff1d(own, task.train.labels)).size:
            raise ValueError(f"task {task.name!r} has no training sample of class {task.classes[missing[0] - own[0]]!r}")
    return Stream(tuple(positions), tuple(tests), sets=True)


def measure_sets(*, predictions: Rows, kinds: Sequence[str]) -> Iterator[Value]:
    """Source step: the metrics of ``label_sets`` by task, by kind of class, and by split; and counts by class.

    After each position: R_jk under the name of task k, R_j of all samples, and R_j within each kind of class, which is the
    stratum: only labels of that kind, over the samples that have one. ``samples`` is the number of samples. For the first test
    set, which is the one reported, also: ``samples``, ``predicted`` and ``correct`` of each class, with the stratum ``class``
    and its name; and the last R_j as values of the whole training.

    Args:
        predictions: predictions stored by the training; no rows if it diverged.
        kinds: kind of each class, in the order of learning.
    """
    if not predictions.num_rows:
        return
    found = Predictions(predictions)
    for number, learned in enumerate(found.positions, 1):
        for test in found.tests:
            true, guess = found.sets_after(number, test)
            yield from _by_task(found.positions[:number], test, true, guess)
            yield from _by_kind(learned, number, test, true, guess, kinds)
            if test is not found.tests[0]:
                continue
            yield from _by_class(found.classes, number, test, true, guess)
            if number == len(found.positions):
                yield from _by_kind(learned, None, test, true, guess, kinds)


def _by_task(positions: Sequence[LearnedPosition], test: TestSet, true: Sets, guess: Sets) -> Iterator[Value]:
    counts, start = overlaps(true, guess), 0
    for task in positions:
        of_task = counts.take(true[:, start : task.known].any(1))
        yield from _values(of_task, positions[-1], len(positions), tested=task.name, split=test.split)
        start = task.known


def _by_kind(
    learned: LearnedPosition, position: int | None, test: TestSet, true: Sets, guess: Sets, kinds: Sequence[str]
) -> Iterator[Value]:
    """Values over all classes, and over each kind of class."""
    yield from _values(overlaps(true, guess), learned, position, split=test.split)
    of_class = np.asarray(kinds[: learned.known])
    for kind in dict.fromkeys(kinds):
        at = of_class == kind
        mine = true[:, at].any(1)
        counts = overlaps(true[np.ix_(mine, at)], guess[np.ix_(mine, at)])
        yield from _values(counts, learned, position, split=test.split, stratum=kind)


def _by_class(classes: Sequence[str], position: int, test: TestSet, true: Sets, guess: Sets) -> Iterator[Value]:
    counts = {"samples": true.sum(0), "predicted": guess.sum(0), "correct": (true & guess).sum(0)}
    for metric, numbers in counts.items():
        for name, number in zip(classes, numbers.tolist(), strict=False):  # only classes known by then
            yield measured(metric, number, position=position, split=test.split, stratum=f"class {name}")


def _values(
    counts: Overlaps, learned: LearnedPosition, position: int | None, *, split: str, tested: str = "", stratum: str = ""
) -> Iterator[Value]:
    values = {name: metric(counts) if len(counts) else None for name, metric in METRICS.items()}
    memory = learned.memory_samples, learned.memory_parts
    for name, value in {"samples": len(counts), **values}.items():
        if position is not None or name in METRICS:
            yield measured(name, value, position=position, tested=tested, split=split, stratum=stratum, memory=memory)
