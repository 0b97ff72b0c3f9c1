"""Open-world increments: a dataset's first release is known, and each later release introduces its new classes in increments.

Source: KOWL's paper, section 4, and ``get_increments`` of its released code. ``as_released`` reproduces the published Table 1:
the least frequent new classes of each release come first, ``ceil(classes / increments)`` at a time, with equal counts in the
order of the sort in the authors' numpy. ``rarest_first`` is ours: the same with equal counts in the order of names.
``as_written`` follows the paper's text: the most frequent first, ``floor(classes / increments)`` at a time and the remainder in
the last increment. The folds are the same in all three.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa

from ...curation.rng import uniform
from ...curation.stages.external_sort import RowOrder
from ...curation.stages.ranks import coded, draws, places_in_groups
from ...curation.stages.reorder import reorder
from ..roles import ROLES
from .introsort import introsort_order

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

IncrementPreset = Literal["as_released", "rarest_first", "as_written"]
SampleOrder = Literal["as_released", "shuffled", "interleaved"]

# Position of a row's block in its increment; rows of one block keep the order of the unified table.
_KNOWN_SMALL, _KNOWN, _NEVER_TRAINED, _NOVEL_FOLD, _NOVEL_SMALL, _PERSISTED = range(6)


@dataclass(frozen=True)
class Later:
    """How a later release is divided.

    Attributes:
        release: name of the release.
        count: number of increments, 0 to 100,000 (5 in KOWL).
        seed: seed of its folds, 0 to 2**32 - 1 (0 and 1 in KOWL).

    Raises:
        ValueError: ``count`` or ``seed`` is out of its range.

    >>> Later("kinetics600", count=5, seed=2**32)
    Traceback (most recent call last):
        ...
    ValueError: release kinetics600: seed is 4294967296: a number from 0 to 2**32 - 1
    """

    release: str
    count: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= 100_000:
            raise ValueError(f"release {self.release}: count is {self.count}: at most 100000 increments are possible")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"release {self.release}: seed is {self.seed}: a number from 0 to 2**32 - 1")


@dataclass(frozen=True)
class Incremented:
    """Columns that ``assign_increments`` adds.

    Attributes:
        increment: number of the increment, from 0, which is all of the first release.
        novel: whether no training sample of an earlier increment (of increment 0, if there is no earlier one) has the label.
            True for val and test rows of a class that is never trained.
        position: position in the increment among the rows of the same role, from 0.
        block: what determines the position: ``known_small`` (a known class with no more rows than its release has increments:
            all are in the first); ``known``; ``never_trained`` (a class only in val or test); ``novel`` (new in this increment:
            its fold); ``novel_small`` (new in this increment, and too small for folds); ``persisted`` (a class introduced by an
            earlier increment of the same release).

    >>> Incremented("clip7", increment=1, novel=True, position=0, block="novel").block in BLOCKS
    True
    """

    key: str
    increment: int
    novel: bool
    position: int
    block: str


BLOCKS = ("known_small", "known", "never_trained", "novel", "novel_small", "persisted")


@dataclass(frozen=True)
class Plan:
    """Increments of all rows, in their order, and the classes that training introduces.

    Attributes:
        increment: int32 (n,).
        novel: bool (n,).
        block: int8 (n,), index into ``BLOCKS``.
        earlier: int32 (n,): the increment that introduced a persisted row's class, 0 otherwise.
        novel_classes: label codes that each increment introduces to training, in the order in which they were chosen.

    >>> label, release = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    >>> plan = plan_increments(label, np.zeros(4, int), release, later=[(2, 0)], preset="as_released")
    >>> [(int(increment), BLOCKS[block]) for increment, block in zip(plan.increment, plan.block)]
    [(0, 'known'), (1, 'known_small'), (2, 'persisted'), (1, 'novel')]
    """

    increment: np.ndarray
    novel: np.ndarray
    block: np.ndarray
    earlier: np.ndarray
    novel_classes: tuple[np.ndarray, ...]


def increment_class_order(counts: np.ndarray, preset: IncrementPreset) -> np.ndarray:
    """Indices of classes in the order in which increments take them, int64 (n,).

    Args:
        counts: training samples of each class, classes in the order of their names.
        preset: ``as_released`` and ``rarest_first``: rarest first; ``as_written``: most frequent first. Equal counts are taken
            in the order of names; with ``as_released`` in the order of the released code, see ``introsort``.

    >>> counts = np.array([30, 10, 20])
    >>> increment_class_order(counts, "as_released"), increment_class_order(counts, "as_written")
    (array([1, 2, 0]), array([0, 2, 1]))
    """
    if preset == "as_released":
        return introsort_order(counts)
    return np.argsort(-counts if preset == "as_written" else counts, kind="stable")


def class_cuts(classes: int, increments: int, preset: IncrementPreset) -> np.ndarray:
    """Bounds of the classes of each increment, int64 (increments + 1,): 227 in 5 are 46, 46, 46, 46, 43 as released.

    Args:
        classes, increments: numbers of classes and increments.
        preset: see the docstring of the module.

    >>> class_cuts(227, 5, "as_released")
    array([  0,  46,  92, 138, 184, 227])
    """
    size = classes // increments if preset == "as_written" else -(-classes // increments)
    cuts = np.minimum(np.arange(increments + 1) * size, classes)
    cuts[-1] = classes
    return cuts


def plan_increments(
    label: np.ndarray, role: np.ndarray, release: np.ndarray, *, later: Sequence[tuple[int, int]], preset: IncrementPreset
) -> Plan:
    """The increments of every row.

    Args:
        label: codes of labels, integers (n,), in the order of their names.
        role: index into ``ROLES``, integers (n,).
        release: integers (n,): 0 for the first release, ``r`` for ``later[r - 1]``.
        later: (increments, seed) of each later release.
        preset: see the docstring of the module.

    >>> label = np.array([0, 0, 1, 2, 1])  # class 0 is known at the start; 1 and 2 come with the second release
    >>> plan = plan_increments(label, np.zeros(5, int), np.array([0, 0, 1, 1, 1]), later=[(2, 0)], preset="as_released")
    >>> plan.increment.tolist(), plan.novel, plan.novel_classes
    ([0, 0, 2, 1, 2], array([False, False,  True,  True,  True]), (array([], dtype=int64), array([2]), array([1])))
    """
    assign = _Assign(label, role)
    assign.first(release == 0)
    for number, (count, seed) in enumerate(later, 1):
        assign.release(release == number, count, seed, preset)
    return Plan(assign.increment, assign.novel, assign.block, assign.earlier, tuple(assign.brought))


class _Assign:
    def __init__(self, label: np.ndarray, role: np.ndarray) -> None:
        self.label, self.role = label, role
        count = len(label)
        self.increment = np.full(count, -1, dtype=np.int32)
        self.novel = np.zeros(count, dtype=bool)
        self.block = np.full(count, _KNOWN, dtype=np.int8)
        self.earlier = np.zeros(count, dtype=np.int32)
        self.known = np.zeros(int(label.max(initial=-1)) + 1, dtype=bool)
        self.brought: list[np.ndarray] = [np.empty(0, dtype=np.int64)]

    def first(self, mine: np.ndarray) -> None:
        """Increment 0: the whole of the first release; its training classes are known from the start."""
        self.known[self.label[mine & (self.role == 0)]] = True
        strange = mine & ~self.known[self.label]
        self.increment[mine] = 0
        self.novel[strange] = True
        self.block[strange] = _NEVER_TRAINED

    def release(self, mine: np.ndarray, count: int, seed: int, preset: IncrementPreset) -> None:
        base = len(self.brought)
        trained = np.unique(self.label[mine & (self.role == 0)])
        fresh = trained[~self.known[trained]]
        samples = np.bincount(self.label[mine & (self.role == 0)], minlength=len(self.known))[fresh]
        fresh = fresh[increment_class_order(samples, preset)]
        cuts = class_cuts(len(fresh), count, preset)
        batches = [fresh[cuts[n] : cuts[n + 1]] for n in range(count)]
        never = ~self.known
        never[fresh] = False
        for role in range(len(ROLES)):
            rows = np.flatnonzero(mine & (self.role == role))
            labels = self.label[rows]
            self._known(rows[self.known[labels]], base, count, seed)
            self._never_trained(rows[never[labels]], base, count, seed)
            for number, classes in enumerate(batches):
                self._novel(rows[np.isin(labels, classes)], base, number, count, seed)
        self.known[fresh] = True
        self.brought += batches

    def _known(self, rows: np.ndarray, base: int, count: int, seed: int) -> None:
        small = self._small(rows, count + 1)
        self.increment[rows[small]] = base
        self.block[rows[small]] = _KNOWN_SMALL
        for fold, places in enumerate(folds(self.label[rows[~small]], count, seed)):
            self.increment[rows[~small][places]] = base + fold

    def _never_trained(self, rows: np.ndarray, base: int, count: int, seed: int) -> None:
        self.novel[rows] = True
        self.block[rows] = _NEVER_TRAINED
        # The released code makes folds of these regardless of their counts, which scikit-learn refuses only if all are small.
        if self._small(rows, count).all():
            self.increment[rows] = base
            return
        for fold, places in enumerate(folds(self.label[rows], count, seed)):
            self.increment[rows[places]] = base + fold

    def _novel(self, rows: np.ndarray, base: int, number: int, count: int, seed: int) -> None:
        small = self._small(rows, count - number)
        whole, dealt = rows[small], rows[~small]
        self.increment[whole] = base + number
        self.block[whole] = _NOVEL_SMALL
        self.novel[whole] = True
        for fold, places in enumerate(folds(self.label[dealt], count - number, seed)):
            some = dealt[places]
            self.increment[some] = base + number + fold
            self.block[some] = _PERSISTED if fold else _NOVEL_FOLD
            self.earlier[some] = base + number if fold else 0
            self.novel[some] = fold == 0

    def _small(self, rows: np.ndarray, least: int) -> np.ndarray:
        """Whether each row's class has fewer than ``least`` rows among ``rows``."""
        counts = np.bincount(self.label[rows], minlength=1)
        return counts[self.label[rows]] < least


def folds(labels: np.ndarray, count: int, seed: int) -> list[np.ndarray]:
    """Row numbers of each of ``count`` stratified folds, int64, ascending in each; a single fold has all rows.

    scikit-learn's ``StratifiedKFold(count, shuffle=True, random_state=seed)``, as the released code calls it.

    >>> folds(np.array([0, 0, 1, 1]), count=2, seed=0)
    [array([1, 2]), array([0, 3])]
    """
    if count == 1 or not len(labels):
        return [np.arange(len(labels))] + [np.empty(0, dtype=np.int64)] * (count - 1)
    from sklearn.model_selection import StratifiedKFold

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        split = StratifiedKFold(count, shuffle=True, random_state=seed).split(labels, labels)
        return [places for _, places in split]


def positions(plan: Plan, role: np.ndarray, *, order: SampleOrder, draws: Callable[[], np.ndarray], seed: int) -> np.ndarray:
    """Position of each row among those of its increment and role, int64 (n,).

    Args:
        plan: increments of the rows.
        role: index into ``ROLES``.
        order: ``as_released``: increment 0 in the order of the rows; the others block by block, and each block in the order of
            the rows: known classes that are too small for folds, other known ones, the new classes' fold, new ones that are too
            small, and the rest of what earlier increments introduced. ``shuffled``: at random. ``interleaved``:
            the blocks spread evenly over the increment, each in its own order. The last two are ours.
        draws: returns a number in [0, 1) for each row; called only for ``shuffled``.
        seed: seed for the offsets of the blocks in ``interleaved``.

    Raises:
        ValueError: ``order`` is none of these.

    >>> label = np.array([0, 0, 1, 2, 1])
    >>> plan = plan_increments(label, np.zeros(5, int), np.array([0, 0, 1, 1, 1]), later=[(1, 0)], preset="as_released")
    >>> positions(plan, np.zeros(5, int), order="as_released", draws=lambda: np.zeros(5), seed=0)
    array([0, 1, 0, 1, 2])
    """
    group = plan.increment * len(ROLES) + role
    count = len(group)
    if order == "as_released":
        # The classes that are only in val and test are appended to the known part.
        block = np.where(plan.increment == 0, _KNOWN, plan.block)
        ranked = np.lexsort((np.arange(count), plan.earlier, block, group))
    elif order == "shuffled":
        ranked = np.lexsort((np.arange(count), draws(), group))
    elif order == "interleaved":
        ranked = np.lexsort((np.arange(count), _spread(group * len(BLOCKS) + plan.block, plan.earlier, seed), group))
    else:
        raise ValueError(f"order is {order!r}: one of as_released, shuffled, interleaved")
    return places_in_groups(group, ranked)[0].astype(np.int64)


def _spread(stretch: np.ndarray, earlier: np.ndarray, seed: int) -> np.ndarray:
    """(position in its stretch + random offset of the stretch) / size of the stretch, float64 (n,)."""
    place, size = places_in_groups(stretch, np.lexsort((np.arange(len(stretch)), earlier, stretch)))
    start = uniform(seed, "interleave", [str(number) for number in range(stretch.max(initial=0) + 1)])
    return (place + start[stretch]) / size


def assign_increments(
    rows: Rows, *, first: str, later: Sequence[Later], preset: IncrementPreset, order: SampleOrder, seed: int
) -> Iterator[pa.Table]:
    """Whole step: add the columns of ``Incremented``, and put the rows in the order (increment, role, position).

    Args:
        rows: rows with columns ``label_recent_first``, ``taken_release``, ``role``.
        first: name of the release that is known at the start.
        later: the other releases, in order.
        preset: see the docstring of the module.
        order: order of the rows within an increment and role; see ``positions``.
        seed: seed for the orders that are ours. The folds have their own seeds.

    Yields:
        Tables with rows of a single increment and role.

    Raises:
        ValueError: a row has a release that is not named, a release has no increment, or the preset is unknown.

    >>> from benchwright.curation.stage_rows import Rows
    >>> labels, releases = ["run", "jump", "dive", "run"], ["k400", "k400", "k600", "k600"]
    >>> table = pa.table({"key": list("abcd"), "label_recent_first": labels, "taken_release": releases, "role": ["train"] * 4})
    >>> given = {"later": [Later("k600", count=1, seed=0)], "preset": "as_released", "order": "as_released", "seed": 0}
    >>> found = pa.concat_tables(assign_increments(Rows.of(table), first="k400", **given))
    >>> found.select(["key", "increment", "novel"]).to_pylist()[2:]
    [{'key': 'd', 'increment': 1, 'novel': False}, {'key': 'c', 'increment': 1, 'novel': True}]
    """
    if preset not in get_args(IncrementPreset):
        raise ValueError(f"preset is {preset!r}: one of {', '.join(get_args(IncrementPreset))}")
    for each in later:
        if each.count < 1:
            raise ValueError(f"release {each.release!r} in {each.count} increments: expected at least 1")
    names = [first, *(each.release for each in later)]
    release = _codes(rows, "taken_release", names, "release")
    role = _codes(rows, "role", ROLES, "role")
    label = _codes(rows, "label_recent_first")
    plan = plan_increments(label, role, release, later=[(each.count, each.seed) for each in later], preset=preset)
    del label, release
    place = positions(plan, role, order=order, draws=lambda: draws(rows, seed, "assign_increments")[:], seed=seed)
    group = plan.increment * len(ROLES) + role
    ranked = np.lexsort((place, group))
    blocks = pa.array(BLOCKS)
    cuts = (np.flatnonzero(np.diff(group[ranked])) + 1).tolist()
    for start, table in reorder(rows, lambda: RowOrder([ranked], len(ranked)), cuts):
        some = ranked[start : start + table.num_rows]
        table = table.append_column("increment", pa.array(plan.increment[some], pa.int64()))
        table = table.append_column("novel", pa.array(plan.novel[some]))
        table = table.append_column("position", pa.array(place[some]))
        yield table.append_column("block", blocks.take(pa.array(plan.block[some])))


def _codes(rows: Rows, column: str, names: Sequence[str] = (), what: str = "") -> np.ndarray:
    """Index of each row's value in ``names``, by default all values, sorted; int32 (n,)."""
    values, codes = coded(rows, column)
    names = names or sorted(values)
    if strange := sorted(set(values) - set(names)):
        raise ValueError(f"{what} {strange[0]!r} is not one of {', '.join(names)}")
    places = {name: place for place, name in enumerate(names)}
    return np.asarray([places[value] for value in values], dtype=np.int32)[codes]
