"""What is trained: data, settings, and what a stream has learned so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..core.exemplars import RowNumbers, drawn_share
from ..core.schedule import Schedule
from ..methods.method import Method

ClassesOfTask = tuple[int, ...]
_ALL = 1 << 62


@dataclasses.dataclass(frozen=True)
class GraphData:
    """Samples with one graph for all, in memory.

    Attributes:
        x: (n, V, F) float32 node vectors, or (n, C, T, V) tensors; of several bodies (n, M, V, F), or (n, M, C, T, V).
        labels: (n,) int64 in [0, classes).
        train: rows to learn from, (k,) int64 in their order.
        val: rows of the validation set.
        test: rows of the test set.
        operators: (V, V) adjacency with self-loops, or for tensors (3, V, V) partitions, float32.
        classes: outputs of the head, seen or not.
    """

    x: NDArray[np.float32]
    labels: NDArray[np.int64]
    train: RowNumbers
    val: RowNumbers
    test: RowNumbers
    operators: NDArray[np.float32]
    classes: int

    def __post_init__(self) -> None:
        dimensions = self.operators.ndim + 1
        if len(self.x) != len(self.labels) or self.x.ndim not in (dimensions, dimensions + 1):
            message = "(n, V, F) or (n, C, T, V), of several bodies (n, M, ...), and (n,)"
            raise ValueError(f"x {self.x.shape} and labels {self.labels.shape} do not match: {message}")
        if self.operators.shape[-1] != self.x.shape[-2 if dimensions == 3 else -1]:
            raise ValueError(f"operators {self.operators.shape} and x {self.x.shape} differ in their nodes")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < self.classes:
            raise ValueError(f"labels from {self.labels.min()} to {self.labels.max()}: [0, {self.classes}) is needed")


def task_rows(data: GraphData, task: ClassesOfTask) -> RowNumbers:
    """The training rows of a task's classes, in their order. Raises ValueError where a class has none."""
    labels = data.labels[data.train]
    for label in task:
        if not (labels == label).any():
            raise ValueError(f"class {label} of task {task} has no training row")
    return data.train[np.isin(labels, task)]


def kept_rows(data: GraphData, task: ClassesOfTask, share: float, *, seed: int, draw: str) -> RowNumbers:
    """The memory of a task, whatever the order: see ``core.exemplars.drawn_share``."""
    return drawn_share(task_rows(data, task), share, seed=seed, key=f"{draw}/{','.join(map(str, sorted(task)))}")


def chosen_rows(method: Method, data: GraphData, order: tuple[ClassesOfTask, ...], *, seed: int, draw: str) -> RowNumbers:
    """The rows that a method's rule chooses: those of the last task, then those of the past, each in their own order.

    Where the order of the tasks is to change nothing, all of them are in their own order.
    """
    tasks = [task_rows(data, task) for task in order]
    stream, fresh = np.concatenate(tasks), sum(map(len, tasks[:-1]))
    kept = np.zeros(0, dtype=np.int64)
    if method.exemplars == "share":
        memories = [kept_rows(data, task, method.share, seed=seed, draw=draw) for task in order[:-1]]
        kept = np.flatnonzero(np.isin(stream, np.concatenate([kept, *memories])))
    chosen = method.rule(kept, [len(rows) for rows in tasks], seed=seed)
    if method.any_order:
        return np.sort(stream[chosen])
    return np.concatenate([stream[chosen[chosen >= fresh]], np.sort(stream[chosen[chosen < fresh]])])


def full_batches(*, epochs: int, learning_rate: float, batch_size: int | None = None) -> Schedule:
    """Adam with every sample in each step, as CGLB trains a task; or with ``batch_size`` of them."""
    return Schedule("adam", learning_rate, 0.0, 0.0, epochs, batch_size or _ALL, False, None, False, "none", epochs, "nothing")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A method, a network and the schedule.

    Attributes:
        method: what learns; one of those whose ``learners`` have streams.
        make: the network: a function as ``core.build.MakeModel``, which takes the graph besides; see ``nets.graph_of``.
        model: its settings.
        schedule: of each task; how it chooses an epoch does not count.
    """

    method: Method
    make: Callable[..., Any]
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    schedule: Schedule = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        if "streams" not in self.method.learners:
            raise ValueError(f"method {self.method.name!r} does not train on batched graph streams")


@dataclasses.dataclass(frozen=True)
class LearnedStream:
    """A stream after a task.

    Attributes:
        order: the tasks learned, in order, each its classes.
        draw: name of its draw of initial weights, memories and batches.
        state: all that training continues from: weights, statistics, Adam's moments, what the method keeps; on the CPU.
        predicted: (test,) int64, the class of each test row that has the largest logit among the classes seen so far.
        val_predicted: (val,) int64, the same of the validation set.
    """

    order: tuple[ClassesOfTask, ...]
    draw: str
    state: Mapping[str, Tensor]
    predicted: NDArray[np.int64]
    val_predicted: NDArray[np.int64]
