"""Memory policies: functions that choose the rows to store after each position; ``POLICIES`` names the built-in ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .capacity import Capacity
from .exemplars import (
    Labels,
    RowNumbers,
    drawn_share,
    given,
    greedily_balanced,
    herding,
    reservoir_sample,
    rows_by_class,
    shuffled,
)

if TYPE_CHECKING:
    from ..data.examples import Examples


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Rows of the stream that a policy chooses from, numbered from the start of the stream.

    Attributes:
        kept: rows in the memory, in its order; empty at first.
        new: rows of the newest domain or task.
        labels: labels of all rows so far: (n,) int64, or (n, labels) where samples have sets of labels.
        known: number of classes before the newest domain or task.
        classes: number of classes including it; unchanged for a further domain.
        task: number of the newest domain or task, from 0.
        seed: seed for all draws.
        capacity: capacity of the memory; None for the policy ``share``.
        share: fraction of each task, for the policy ``share``.
        order: key -> rank, for the policy ``given``.
        samples: returns the samples of some rows, as the memory stores them: ``keys``, ``labels``, and ``sizes`` in parts.
        features: returns (n, width) float64: penultimate features of some rows, by the current model. Raises ``ValueError``
            where exemplars are chosen before the training, as does ``outputs``.
        outputs: returns (n, classes) float64: the current model's logits for some rows.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> labels = np.array([0, 0, 1, 1])
    >>> stream = ArrayExamples(np.zeros((4, 8), np.float32), labels, ["a", "b", "c", "d"])
    >>> c = Candidates(
    ...     kept=np.array([0, 1]), new=np.array([2, 3]), labels=labels, known=1, classes=2, task=1, seed=0,
    ...     capacity=Capacity(2), share=0.0, order={}, samples=stream.take,
    ...     features=lambda rows: np.eye(4)[rows], outputs=lambda rows: np.zeros((len(rows), 2)),
    ... )
    >>> c.by_class(lambda rows: rows[::-1])  # a policy that prefers the newest of each class
    array([0, 3])
    """

    kept: RowNumbers
    new: RowNumbers
    labels: Labels
    known: int
    classes: int
    task: int
    seed: int
    capacity: Capacity | None
    share: float
    order: Mapping[str, int]
    samples: Callable[[RowNumbers], Examples]
    features: Callable[[RowNumbers], NDArray[np.float64]]
    outputs: Callable[[RowNumbers], NDArray[np.float64]]

    @property
    def room(self) -> Capacity:
        """The capacity. Raises ValueError if there is none."""
        if self.capacity is None:
            raise ValueError("a memory needs a size")
        return self.capacity

    def check(self, chosen: RowNumbers) -> None:
        """Raise ``ValueError`` if these rows cannot be the memory.

        Raises:
            ValueError: a row occurs twice, is neither kept nor new, or there are more rows than the capacity allows.
        """
        rows, counts = np.unique(chosen, return_counts=True)
        if len(twice := rows[counts > 1]):
            raise ValueError(f"its memory policy keeps row {int(twice[0])} twice")
        if len(strange := np.setdiff1d(rows, np.concatenate([self.kept, self.new]))):
            raise ValueError(f"its memory policy keeps row {int(strange[0])}, which is neither in the memory nor new")
        if self.capacity is None:
            return
        most = self.capacity.total(self.classes)
        held = len(rows) if self.capacity.unit == "samples" else int(self.samples(rows).sizes.sum())
        if held > most:
            raise ValueError(f"its memory policy keeps {held} {self.capacity.unit}, and the memory holds {most}")

    def by_class(self, ranked: Callable[[RowNumbers], RowNumbers], *, redrawn: bool = False) -> RowNumbers:
        """The first rows of each class up to its quota: old lists are truncated, new ones ranked (vCLIMB's released code).

        Args:
            ranked: sorts the rows of a class, best first.
            redrawn: whether all lists are shuffled before they are truncated.
        """
        lists = rows_by_class(self.kept, self.labels[self.kept])
        for label, rows in rows_by_class(self.new, self.labels[self.new]).items():
            if self.known == self.classes:  # a further domain: new and stored samples are ranked together
                lists[label] = ranked(np.concatenate([lists.get(label, rows[:0]), rows]))
            elif label >= self.known:  # a new sample may have the label of an old class
                lists[label] = ranked(rows)
        if redrawn:
            lists = {label: shuffled(rows, seed=self.seed, key=f"{self.task}/{label}") for label, rows in lists.items()}
        return np.concatenate(
            [self.room.cut(rows, self.samples(rows).sizes, self.classes) for _, rows in sorted(lists.items())]
        )

    def reservoir(self, rows: RowNumbers, capacity: Capacity) -> RowNumbers:
        """A uniform sample of some rows, see ``exemplars.reservoir_sample``."""
        samples = self.samples(rows)
        return reservoir_sample(rows, samples.keys, capacity, samples.sizes, seed=self.seed)


Policy = Callable[[Candidates], RowNumbers]
"""Returns the rows of the stream that the memory stores from now on, chosen among ``kept`` and ``new``."""


def _random(c: Candidates) -> RowNumbers:
    return c.by_class(lambda rows: rows, redrawn=True)  # the released naive replay shuffles old lists too


def _herding(c: Candidates) -> RowNumbers:
    return c.by_class(lambda rows: rows[herding(c.features(rows), c.room.quota(c.classes))])


def _given(c: Candidates) -> RowNumbers:
    return c.by_class(lambda rows: given(rows, c.samples(rows).keys, c.order))


def _share(c: Candidates) -> RowNumbers:
    return np.concatenate([c.kept, drawn_share(c.new, c.share, seed=c.seed, key=str(c.task))])


def _reservoir(c: Candidates) -> RowNumbers:
    whole = dataclasses.replace(c.room, size=c.room.total(c.classes), per_class=False)
    return c.reservoir(np.concatenate([c.kept, c.new]), whole)


def _balanced_reservoir(c: Candidates) -> RowNumbers:
    pool = np.concatenate([c.kept, c.new])
    quota = dataclasses.replace(c.room, size=c.room.quota(c.classes), per_class=False)
    return np.concatenate([c.reservoir(rows, quota) for rows in rows_by_class(pool, c.labels[pool]).values()])


def _greedy(c: Candidates) -> RowNumbers:
    own = c.labels if c.labels.ndim == 1 else c.labels[:, 0]
    return greedily_balanced(c.kept, c.new, own, c.room.total(c.classes), seed=c.seed)


def _each_position(c: Candidates) -> RowNumbers:
    return np.concatenate([c.kept, c.reservoir(c.new, c.room)])


POLICIES: dict[str, Policy] = {
    "random": _random,
    "herding": _herding,
    "given": _given,
    "share": _share,
    "reservoir": _reservoir,
    "balanced_reservoir": _balanced_reservoir,
    "greedy": _greedy,
    "each_position": _each_position,
}
"""``random``, ``herding`` and ``given`` fill equal quotas of the classes seen so far (vCLIMB, iCaRL); ``reservoir`` is a
uniform sample of the stream, ``balanced_reservoir`` one of each class, ``greedy`` GDumb's sampler. ``each_position`` keeps a
fixed number of samples of every domain or task (A-GEM), and ``share`` a fraction (CGLB): these two memories grow."""


def check_policy(policy: str, capacity: Capacity) -> None:
    """Raise ``ValueError`` if a built-in policy cannot count the way that a capacity does.

    >>> check_policy("greedy", Capacity(100, unit="parts"))
    Traceback (most recent call last):
        ...
    ValueError: memory policy 'greedy' counts samples: memory.unit is 'parts': set it to 'samples'
    """
    if policy == "greedy" and capacity.unit == "parts":
        raise ValueError("memory policy 'greedy' counts samples: memory.unit is 'parts': set it to 'samples'")
    if policy == "each_position" and capacity.per_class:
        text = "memory policy 'each_position' stores memory.size samples of every domain or task: memory.per_class is true"
        raise ValueError(f"{text}: set it to false")
