"""A memory of limited size with an equal quota for each class (iCaRL's, as vCLIMB's released code uses it).

The memory holds row numbers of the stream, a ranked list a class, so that giving room to new classes means cutting lists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import rng, uniform
from ..data.examples import Labels, RowNumbers


@dataclasses.dataclass(frozen=True)
class Capacity:
    """How much a memory holds.

    Attributes:
        size: in all, or of each class; "first_position": as many samples as the first domain or task has (CLEAR: one bucket).
        unit: "samples" (the released code: whole clips) or "parts" (the frames of clips, as they are kept).
        per_class: ``size`` is a class's own, so that the memory grows with the classes (IIRC).
    """

    size: int | Literal["first_position"]
    unit: Literal["samples", "parts"] = "samples"
    per_class: bool = False

    def __post_init__(self) -> None:
        number = self.size != "first_position"
        if (number and (isinstance(self.size, str) or self.size < 1)) or self.unit not in ("samples", "parts"):
            raise ValueError(f"capacity {self.size!r} {self.unit!r}: at least 1 or 'first_position', in 'samples' or 'parts'")
        if not number and self.unit == "parts":
            raise ValueError("capacity 'first_position' is in samples: give unit 'samples', or a number of parts")
        if not isinstance(self.per_class, bool):  # it was a number of samples once
            raise ValueError(f"per_class {self.per_class!r}: true or false: size says of how many")

    def resolved(self, first: int) -> Capacity:
        """The same as a number, where the first domain or task has ``first`` samples."""
        return dataclasses.replace(self, size=first) if self.size == "first_position" else self

    @property
    def number(self) -> int:
        """``size``, which is one. Raises ValueError where it is not resolved yet."""
        if isinstance(self.size, str):
            raise ValueError(f"capacity {self.size!r} is known from the first domain or task on")
        return self.size

    def quota(self, classes: int) -> int:
        """m = capacity // classes seen. Raises ValueError where not one unit a class is left."""
        quota = self.number if self.per_class else self.number // classes
        if not quota:
            raise ValueError(f"a memory of {self.size} {self.unit} has no room for {classes} classes: one each is the least")
        return quota

    def cut(self, ranked: RowNumbers, sizes: RowNumbers, classes: int) -> RowNumbers:
        """The first of ``ranked`` that fit into a class's quota; ``sizes`` (n,) are the parts of each of them."""
        quota = self.quota(classes)
        if self.unit == "samples":
            return ranked[:quota]
        return ranked[: int(np.searchsorted(np.cumsum(sizes), quota, side="right"))]


def herding(features: NDArray[np.float64], count: int) -> RowNumbers:
    """Rows whose running mean stays nearest to the mean of all, greedily (Rebuffi et al., iCaRL, algorithm 4).

    Args:
        features: (n, d); L2-normalised here.
        count: at most n are given.

    Returns:
        Row numbers, each once, best first; the first of equals.
    """
    unit = normalised(features)
    mean, total = unit.mean(0), np.zeros(unit.shape[1])
    left = np.ones(len(unit), dtype=bool)
    chosen: list[int] = []
    for k in range(1, min(count, len(unit)) + 1):
        distance = np.linalg.norm(mean - (total + unit) / k, axis=1)
        best = int(np.argmin(np.where(left, distance, np.inf)))
        left[best] = False
        total += unit[best]
        chosen.append(best)
    return np.array(chosen, dtype=np.int64)


def shuffled(rows: RowNumbers, *, seed: int, key: str) -> RowNumbers:
    """``rows`` in an order that depends on (seed, key) alone."""
    return rng(seed, "exemplars", key).permutation(rows)


def reservoir(rows: RowNumbers, keys: Sequence[str], capacity: Capacity, sizes: RowNumbers, *, seed: int) -> RowNumbers:
    """A uniform sample of all rows so far: those with the largest draws stay (reservoir sampling by random sort keys).

    A draw depends on (seed, key) alone, so the sample does not depend on where domains or tasks begin.

    Args:
        rows: what was kept, and what is new.
        keys, sizes: of ``rows``.
    """
    order = np.argsort(-uniform(seed, "exemplars/reservoir", keys), kind="stable")
    if capacity.unit == "samples":
        return np.sort(rows[order[: capacity.number]])
    return np.sort(rows[order[: int(np.searchsorted(np.cumsum(sizes[order]), capacity.number, side="right"))]])


def greedily_balanced(kept: RowNumbers, new: RowNumbers, labels: Labels, size: int, *, seed: int) -> RowNumbers:
    """GDumb's sampler (Prabhu et al., ECCV 2020, algorithm 1): a new row enters while its class has less than its share.

    Where the memory is full, a random row of the largest class leaves. Once all classes have their share nothing enters any
    more: on domains of the same classes the memory stays that of the first.

    Args:
        kept: row numbers in the memory.
        new: row numbers of the new domain or task, taken in a random order.
        labels: (stream,) class of each row of the stream.
        size: of the memory.
        seed: of the draws.
    """
    draw = rng(seed, "exemplars/greedy", str(len(labels)))
    held = by_class(kept, labels[kept])
    lists = {label: rows.tolist() for label, rows in held.items()}
    for row in draw.permutation(new).tolist():
        own = lists.setdefault(int(labels[row]), [])
        if len(own) * len(lists) >= size:
            continue
        if sum(map(len, lists.values())) >= size:
            largest = max(lists.values(), key=len)  # the first of equals
            largest.pop(int(draw.integers(len(largest))))
        own.append(row)
    return np.sort(np.array([row for rows in lists.values() for row in rows], dtype=np.int64))


def given(rows: RowNumbers, keys: Sequence[str], order: Mapping[str, int]) -> RowNumbers:
    """Those of ``rows`` whose key stands in ``order``, by its number; ``keys`` are those of ``rows``."""
    known = sorted((order[key], row) for key, row in zip(keys, rows.tolist(), strict=True) if key in order)
    return np.array([row for _, row in known], dtype=np.int64)


def by_class(rows: RowNumbers, labels: Labels) -> dict[int, RowNumbers]:
    """Class -> its rows in their order, classes ascending; ``labels`` are those of ``rows``.

    A sample with a set of labels (n, k) belongs to the first.
    """
    own = labels if labels.ndim == 1 else labels[:, 0]
    return {int(label): rows[own == label] for label in np.unique(own)}


def nearest_means(features: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n,) the nearest of ``means`` (classes, d) to each normalised row of ``features`` (n, d), the first of equals."""
    unit = normalised(features)
    # |a - b|^2 = 2 - 2 a b for vectors of length 1: the largest product is the nearest.
    return np.asarray((unit @ means.T).argmax(1), dtype=np.int64)


def class_means(features: NDArray[np.float64], labels: Labels, classes: int) -> NDArray[np.float64]:
    """(classes, d): for each class the mean of its normalised features, normalised again, as in the iCaRL paper.

    Raises:
        ValueError: a class has no exemplar.
    """
    unit = normalised(features)
    empty = np.setdiff1d(np.arange(classes), labels)
    if len(empty):
        raise ValueError(f"class {int(empty[0])} has no exemplar, so it has no mean: the memory is too small")
    return normalised(np.stack([unit[labels == label].mean(0) for label in range(classes)]))


def normalised(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays one."""
    values = np.asarray(features, dtype=np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
