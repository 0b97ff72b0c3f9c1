"""vCLIMB's protocol: each task brings new classes, and after each task all classes seen so far compete.

Villa et al., CVPR 2022, section 3. After task i the evaluation samples of each task j <= i are predicted. Accuracy is
measured by class and by task, so that R, both weightings and tables of classes follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...curation.stage_rows import Rows
from ..metrics.class_incremental import accuracy_curve, forgetting_curve
from ..results import Value, measured
from .predictions import Predictions
from .stream_loop import LabelledSamples, Position, Stream, Test


def class_stream(
    number: ArrayLike,
    role: Sequence[str],
    class_index: ArrayLike,
    label: Sequence[str],
    samples: Callable[[NDArray[np.int64]], LabelledSamples],
    *,
    roles: tuple[str, str | None, str] = ("train", "val", "test"),
) -> Stream:
    """The stream of a dataset, from the columns of its index: one position per task, tested on this and all earlier tasks.

    Args:
        number, role, class_index, label: (n,) columns: task, role, class index in the order of learning, class name.
        samples: rows -> the samples of these rows.
        roles: roles of the rows for training, for choosing the epoch (None: the last epoch is taken) and for testing.
            ("train", "val", "val") for ActivityNet, which has no test split.

    Raises:
        ValueError: a class index with two names or in two tasks, a role that no row of a task has, or a class without samples
            for training or for the test.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> X, y = np.zeros((8, 2), np.float32), np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> names, roles = ["cat", "cat", "dog", "dog", "bus", "bus", "van", "van"], ["train", "test"] * 4
    >>> samples = lambda rows: ArrayExamples(X[rows], y[rows])
    >>> stream = class_stream(y // 2, roles, y, names, samples, roles=("train", None, "test"))
    >>> [(task.classes, task.tests) for task in stream.positions]
    [(('cat', 'dog'), (0,)), (('bus', 'van'), (0, 1))]
    """
    tasks, places = np.asarray(number, dtype=np.int64), np.asarray(class_index, dtype=np.int64)
    parts, names = np.asarray(role, dtype=np.str_), np.asarray(label, dtype=np.str_)
    positions: list[Position] = []
    tests: list[Test] = []
    validate: tuple[LabelledSamples, ...] = ()
    known = 0
    for at, task in enumerate(np.unique(tasks).tolist()):
        mine = tasks == task
        found = _class_names(task, places[mine], names[mine])
        rows = {part: _rows(task, mine, parts, part) for part in roles if part is not None}
        own = np.arange(known, known + len(found))
        known += len(found)
        for part in {roles[0], roles[2]}:
            _check_classes(task, part, np.unique(places[rows[part]]), own)
        if roles[1] is not None:
            validate = (*validate, samples(rows[roles[1]]))
        tests.append(Test(str(task), roles[2], samples(rows[roles[2]])))
        positions.append(Position(str(task), samples(rows[roles[0]]), found, tuple(range(at + 1)), validate))
    return Stream(tuple(positions), tuple(tests))


def _class_names(task: int, places: NDArray[np.int64], names: NDArray[np.str_]) -> tuple[str, ...]:
    """Names of a task's classes, in the order of their indices."""
    found: dict[int, str] = {}
    for place, name in sorted(set(zip(places.tolist(), names.tolist(), strict=True))):
        if found.setdefault(place, name) != name:
            raise ValueError(f"task {task}: class index {place} is {found[place]!r} and {name!r}")
    return tuple(found.values())


def _rows(task: int, mine: NDArray[np.bool_], parts: NDArray[np.str_], part: str) -> NDArray[np.int64]:
    rows = np.flatnonzero(mine & (parts == part))
    if not len(rows):
        raise ValueError(
            f"task {task} has no row with role {part!r}: there are {sorted(set(parts[mine].tolist()))}. Change the split, or "
            "name other roles for training, the choice of epochs ('none': the last is taken) and the test"
        )
    return rows


def _check_classes(task: int, part: str, found: NDArray[np.int64], own: NDArray[np.int64]) -> None:
    if not np.array_equal(found, own):
        raise ValueError(
            f"task {task}, {part}: classes {found.tolist()[:20]}, and {own[0]}..{own[-1]} are its own: indices go by the order "
            "of learning, and every class needs samples"
        )


def hits(predictions: Predictions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Correct predictions by class after each task, (N, C), -1 where the class was not seen yet; and tested samples, (C,).

    >>> import pyarrow as pa
    >>> from benchwright.eval.protocols.predictions import ONE_LABEL, row
    >>> rows = [
    ...     row(ONE_LABEL, "0000/0/test", 0, "0", "test", 4, keys=list("abcd"), labels=[0, 0, 0, 1]),
    ...     row(ONE_LABEL, "0001", 1, "0", "", 9, class_names=["cat", "dog"], record="{}"),
    ...     row(ONE_LABEL, "0001/0/test", 1, "0", "test", 4, predicted=[0, 0, 1, 0]),
    ... ]
    >>> hits(Predictions(Rows.of(pa.concat_tables(rows))))  # two of three cats, and no dog of one
    (array([[2, 0]]), array([3, 1]))
    """
    classes = len(predictions.classes)
    correct = np.full((len(predictions.positions), classes), -1, dtype=np.int64)
    tested = np.zeros(classes, dtype=np.int64)
    for test in predictions.tests:
        tested += np.bincount(test.labels, minlength=classes)
    for i, learned in enumerate(predictions.positions):
        correct[i, : learned.known] = 0
        for test in predictions.tests:
            if (guess := predictions.predicted(i + 1, test)) is not None:
                correct[i] += np.bincount(test.labels[guess == test.labels], minlength=classes)
    return correct, tested


def measure_classes(*, predictions: Rows) -> Iterator[Value]:
    """Source step: ``accuracy`` by task and by class (as stratum) after each task; Acc and BWF after each task and at the end.

    Acc and BWF come in two weightings: by the number of classes of each task (released code), and plain (paper).

    Args:
        predictions: predictions stored by the training; no rows if it diverged.
    """
    if not predictions.num_rows:
        return
    found = Predictions(predictions)
    matrix, split = found.matrix(), found.tests[0].split
    correct, tested = hits(found)
    sizes = [len(one.classes) for one in found.positions]
    weightings = {"class_weighted": sizes, "unweighted": None}
    curves = {f"acc_{name}": accuracy_curve(matrix, weights) for name, weights in weightings.items()}
    curves |= {f"bwf_{name}": forgetting_curve(matrix, weights) for name, weights in weightings.items()}
    of_task = np.repeat(np.arange(len(sizes)), sizes).tolist()
    for i, one in enumerate(found.positions):
        memory = one.memory_samples, one.memory_parts
        for j, task in enumerate(found.positions[: i + 1]):
            yield measured("accuracy", matrix[i, j], position=i + 1, tested=task.name, split=split, memory=memory)
        for c, name in enumerate(found.classes[: one.known]):
            task = found.positions[of_task[c]].name
            yield measured("accuracy", correct[i, c] / tested[c], position=i + 1, tested=task, split=split, stratum=name)
        for name, curve in curves.items():
            yield measured(name, curve[i], position=i + 1, split=split, memory=memory)
    for name, curve in curves.items():
        yield measured(name, curve[-1], split=split)
