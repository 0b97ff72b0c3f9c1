"""Capacity of a memory: how many samples, or stored frames, it holds."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.registry import check_values


@dataclasses.dataclass(frozen=True)
class Capacity:
    """Capacity of a memory.

    Attributes:
        size: in total or per class; "first_position": the number of samples of the first domain or task (CLEAR: one bucket).
        unit: "samples" (the released code: whole clips) or "parts" (stored frames of clips).
        per_class: ``size`` is per class, so that the memory grows with the classes (IIRC).

    >>> Capacity(2000).quota(classes=100), Capacity(20, per_class=True).quota(classes=100)
    (20, 20)
    >>> Capacity(10).quota(classes=20)
    Traceback (most recent call last):
        ...
    ValueError: a memory of 10 samples has no room for 20 classes: one each is the least
    """

    size: int | Literal["first_position"]
    unit: Literal["samples", "parts"] = "samples"
    per_class: bool = False

    def __post_init__(self) -> None:
        check_values(Capacity, vars(self))
        if self.size != "first_position" and self.size < 1:
            raise ValueError(f"capacity {self.size}: at least 1, or 'first_position'")
        if self.size == "first_position" and self.unit == "parts":
            raise ValueError("capacity 'first_position' is in samples: give unit 'samples', or a number of parts")

    def resolved(self, first: int) -> Capacity:
        """Replace "first_position" by ``first``, the number of samples of the first domain or task."""
        return dataclasses.replace(self, size=first) if self.size == "first_position" else self

    @property
    def number(self) -> int:
        """``size`` as a number. Raises ValueError if it is not resolved yet."""
        if isinstance(self.size, str):
            raise ValueError(f"capacity {self.size!r} is known from the first domain or task on")
        return self.size

    def total(self, classes: int) -> int:
        """The whole memory, once that many classes have been seen."""
        return self.number * (classes if self.per_class else 1)

    def quota(self, classes: int) -> int:
        """m = capacity // classes seen, or ``size`` if ``per_class``. Raises ValueError if it is 0."""
        quota = self.number if self.per_class else self.number // classes
        if not quota:
            raise ValueError(f"a memory of {self.size} {self.unit} has no room for {classes} classes: one each is the least")
        return quota

    def cut(self, ranked: NDArray[np.int64], sizes: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """The first of ``ranked`` that fit into a class's quota; ``sizes`` (n,) are their numbers of parts."""
        quota = self.quota(classes)
        if self.unit == "samples":
            return ranked[:quota]
        return ranked[: int(np.searchsorted(np.cumsum(sizes), quota, side="right"))]
