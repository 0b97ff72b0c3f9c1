"""What is trained: data, settings, and what a stream has learned so far."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Task = tuple[int, ...]
RowNumbers = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class GraphData:
    """Samples with one graph for all, in memory.

    Attributes:
        x: (n, V, F) float32 node vectors, or (n, C, T, V) tensors.
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
        if len(self.x) != len(self.labels) or self.x.ndim not in (3, 4):
            raise ValueError(f"x {self.x.shape} and labels {self.labels.shape} do not pair: (n, V, F) or (n, C, T, V), (n,)")
        if self.operators.shape[-1] != self.x.shape[1 if self.x.ndim == 3 else 3]:
            raise ValueError(f"operators {self.operators.shape} and x {self.x.shape} differ in their nodes")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < self.classes:
            raise ValueError(f"labels from {self.labels.min()} to {self.labels.max()}: [0, {self.classes}) is needed")


def present(data: GraphData, order: tuple[Task, ...], *, seed: int, repeat: int) -> RowNumbers:
    """The training rows of the last task, in their order. Raises ValueError where a class has none."""
    labels = data.labels[data.train]
    for label in order[-1]:
        if not (labels == label).any():
            raise ValueError(f"class {label} of task {order[-1]} has no training row")
    return data.train[np.isin(labels, order[-1])]


@dataclasses.dataclass(frozen=True)
class StreamMethod:
    """A method on streams side by side, as a factory gives it for its settings; ``training.methods`` has those on one stream.

    Attributes:
        name: what errors call it.
        teach: ``teach(streams)``: learns the last task of the streams' orders; see ``streams.Streams``.
        finish: ``finish(streams)``: run after the evaluation, where a further task may follow: what the method keeps.
        rows: ``rows(data, order, *, seed, repeat)``: those to learn from.
        settings: JSON values: what it was made with.
        scratch: weights are redrawn for each task.
        any_order: what it learns depends on the set of tasks alone, and not on their order.
        by_order: streams learn side by side only where their past tasks came in the same order, in one repeat.
        topology: it needs the attention over the edges, which only a ``gcn`` has.
    """

    name: str
    teach: Callable[..., None]
    finish: Callable[..., None] | None = None
    rows: Callable[..., RowNumbers] = present
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    scratch: bool = False
    any_order: bool = False
    by_order: bool = False
    topology: bool = False


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A method, a network and the schedule.

    Attributes:
        method: what learns.
        make: the network: a function as ``core.build.MakeModel``, which takes the graph besides; see ``nets.graph_of``.
        model: its settings.
        epochs: full-batch steps a task.
        learning_rate: of Adam.
        carry_optimiser: Adam's moments go from task to task, as in CGLB; False: a fresh optimiser a task.
    """

    method: StreamMethod
    make: Callable[..., Any]
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    epochs: int = 100
    learning_rate: float = 1e-3
    carry_optimiser: bool = True

    def __post_init__(self) -> None:
        if self.epochs < 1 or not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"epochs {self.epochs}, learning_rate {self.learning_rate}: at least 1, and above 0")


@dataclasses.dataclass(frozen=True)
class Learned:
    """A stream after a task.

    Attributes:
        order: the tasks learned, in order, each its classes.
        repeat: which draw of weights and memories.
        state: all that training goes on from: weights, statistics, Adam's moments, what the method keeps; on the CPU.
        class_accuracy: (classes,) float64 on the test set, over the classes seen so far; NaN where unseen or without rows.
        val_class_accuracy: the same on the validation set.
    """

    order: tuple[Task, ...]
    repeat: int
    state: Mapping[str, Tensor]
    class_accuracy: NDArray[np.float64]
    val_class_accuracy: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """All of it as an npz archive without pickles; equal values give equal bytes."""
        arrays = {f"state/{name}": value.numpy() for name, value in sorted(self.state.items())}
        sizes = np.array([len(task) for task in self.order], dtype=np.int64)
        classes = np.array([label for task in self.order for label in task], dtype=np.int64)
        out = io.BytesIO()
        np.savez(
            out,
            allow_pickle=False,
            sizes=sizes,
            classes=classes,
            repeat=np.int64(self.repeat),
            class_accuracy=self.class_accuracy,
            val_class_accuracy=self.val_class_accuracy,
            **arrays,
        )
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Learned:
        """What ``to_bytes`` wrote. Raises ValueError where it is something else."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            ends = np.cumsum(arrays["sizes"])
            order = tuple(tuple(int(c) for c in part) for part in np.split(arrays["classes"], ends)[: len(ends)])
            state = {name[6:]: torch.from_numpy(value) for name, value in arrays.items() if name.startswith("state/")}
            return cls(order, int(arrays["repeat"]), state, arrays["class_accuracy"], arrays["val_class_accuracy"])
        except (KeyError, OSError, EOFError, IndexError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{len(data)} bytes are no state of a stream: {error}") from error
