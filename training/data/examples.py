"""Labelled samples of any kind (clips, images, graphs, features), as learners and methods see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..core.exemplars import Labels, RowNumbers


@dataclasses.dataclass(frozen=True)
class Draw:
    """What the augmentation of a sample depends on, in addition to its key.

    Attributes:
        seed: seed of the run.
        stage: purpose of the draw, such as a task and an epoch.
    """

    seed: int
    stage: str


class Examples(Protocol):
    """n labelled samples, loaded on demand. Methods ask for rows, and do not depend on what a sample is."""

    @property
    def keys(self) -> Sequence[str]:
        """n unique keys."""
        ...

    @property
    def labels(self) -> Labels:
        """(n,) int64 class indices in the order in which classes are learned: old classes have lower indices.

        Or (n, k) sets of class indices, padded with -1; the first is never -1.
        """
        ...

    @property
    def sizes(self) -> RowNumbers:
        """(n,) int64: size of a sample in a memory that counts parts of samples (the frames of a clip), else 1."""
        ...

    def load(self, rows: Sequence[int], draw: Draw | None) -> Tensor:
        """(len(rows), ...) float32 on the CPU: augmented according to ``draw``, or in the evaluation view if it is None."""
        ...

    def take(self, rows: RowNumbers) -> Examples:
        """The samples of ``rows``, in that order."""
        ...


class ArrayExamples:
    """Samples in one array, used without augmentation: feature vectors, small images, node vectors.

    Args:
        X: (n, ...) float32.
        y: (n,) class indices, or (n, k) sets of them.
        keys: n unique keys; the row numbers by default.

    >>> samples = ArrayExamples(np.eye(3, dtype=np.float32), [0, 1, 1], keys=["a", "b", "c"])
    >>> samples.take(np.array([2])).keys, samples.load([0], None)
    (['c'], tensor([[1., 0., 0.]]))
    >>> ArrayExamples(np.eye(3), [0, 1, 1])
    Traceback (most recent call last):
        ...
    ValueError: float64 (3, 3), labels (3,), 3 keys: float32 and one n are needed
    """

    def __init__(self, X: NDArray[np.float32], y: ArrayLike, keys: Sequence[str] | None = None) -> None:
        self.labels = np.asarray(y, dtype=np.int64)
        self.keys = [str(row) for row in range(len(X))] if keys is None else list(keys)
        if X.dtype != np.float32 or self.labels.shape[:1] != X.shape[:1] or len(self.keys) != len(X):
            raise ValueError(
                f"{X.dtype} {X.shape}, labels {self.labels.shape}, {len(self.keys)} keys: float32 and one n are needed"
            )
        self.X = X

    @property
    def sizes(self) -> RowNumbers:
        """1 each."""
        return np.ones(len(self.labels), dtype=np.int64)

    def load(self, rows: Sequence[int], draw: Draw | None) -> Tensor:
        """Return the rows, without augmentation."""
        return torch.from_numpy(self.X[np.asarray(rows, dtype=np.int64)])

    def take(self, rows: RowNumbers) -> ArrayExamples:
        """See ``Examples``."""
        return ArrayExamples(self.X[rows], self.labels[rows], [self.keys[row] for row in rows.tolist()])


class Joined:
    """Concatenated parts, whose samples must have the same shape."""

    def __init__(self, parts: Sequence[Examples]) -> None:
        # Parts that are ``Joined`` themselves are flattened, so that each part is of one kind.
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, Joined) else [part])]
        self.parts: list[Examples] = [part for part in flat if len(part.labels)]
        if not self.parts:
            raise ValueError("no samples: there is nothing to train on")
        self.keys = [key for part in self.parts for key in part.keys]
        self.labels = np.concatenate([part.labels for part in self.parts])
        self.sizes = np.concatenate([part.sizes for part in self.parts])
        self._starts = np.cumsum([0, *(len(part.labels) for part in self.parts)])

    def _places(self, rows: Sequence[int] | RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        at = np.asarray(rows, dtype=np.int64)
        which = np.searchsorted(self._starts, at, side="right") - 1
        return which, at - self._starts[which]

    def load(self, rows: Sequence[int], draw: Draw | None) -> Tensor:
        """See ``Examples``."""
        if len(self.parts) == 1 and len(rows):
            return self.parts[0].load(rows, draw)
        which, inner = self._places(rows)
        found: Tensor | None = None
        for part in np.unique(which).tolist():
            at = np.flatnonzero(which == part)
            loaded = self.parts[part].load(inner[at].tolist(), draw)
            if found is None:
                found = torch.empty((len(which), *loaded.shape[1:]), dtype=loaded.dtype)
            found[torch.from_numpy(at)] = loaded
        if found is None:
            raise ValueError("no row was requested")
        return found

    def take(self, rows: RowNumbers) -> Joined:
        """See ``Examples``; consecutive rows of one part stay together, and arrays are merged into one."""
        which, inner = self._places(rows)
        arrays = [part for part in self.parts if type(part) is ArrayExamples]  # others may have sizes of their own
        if len(arrays) == len(self.parts) > 1 and len(rows):
            return Joined([gathered(arrays, which, inner)])
        cuts = np.flatnonzero(np.diff(which)) + 1
        stretches = zip(np.split(which, cuts), np.split(inner, cuts), strict=True)
        return Joined([self.parts[int(part[0])].take(at) for part, at in stretches if len(part)])


def gathered(parts: Sequence[ArrayExamples], which: RowNumbers, inner: RowNumbers) -> ArrayExamples:
    """The samples ``inner`` of the parts ``which``, in that order, as one array."""
    X = np.empty((len(which), *parts[0].X.shape[1:]), dtype=np.float32)
    y, keys = np.empty((len(which), *parts[0].labels.shape[1:]), dtype=np.int64), np.empty(len(which), dtype=object)
    for number, part in enumerate(parts):
        at = np.flatnonzero(which == number)
        X[at], y[at] = part.X[inner[at]], part.labels[inner[at]]
        keys[at] = [part.keys[row] for row in inner[at].tolist()]
    return ArrayExamples(X, y, keys.tolist())
