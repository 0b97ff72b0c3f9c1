"""First come, first assigned: the release and split from which a sample is taken, and its role.

Source: KOWL's paper, section 4, and its released code. The turns are processed in order, and a sample belongs to the first turn
whose list contains it, even if it is rejected later. KOWL's turns: train, validation and test of Kinetics-400, then of
Kinetics-600, then train and validation of Kinetics-700-2020, with validation used as test; its test rows are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rng import uniform
from ...curation.rows import Sifted, sift
from ..roles import ROLES, Role

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows


@dataclass(frozen=True)
class Turn:
    """One turn: a split of a release, and the role of the samples taken from it.

    Attributes:
        release: name of the release.
        split: ``train``, ``validate`` or ``test`` of the release.
        role: ``train``, ``val`` or ``test``.
        held_out: share of the samples, drawn by key, that become ``test`` instead, from 0 to below 1; 0 in KOWL. For releases
            with only one split available.

    Raises:
        ValueError: ``held_out`` is below 0, or 1 or more.

    >>> Turn("k400", "validate", "val").held_out
    0.0
    """

    release: str
    split: str
    role: Role
    held_out: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise ValueError(f"release {self.release}: held_out is {self.held_out}: a share from 0 to below 1")


@dataclass(frozen=True)
class Assigned:
    """Columns that ``assign_splits`` adds: the turn that took the sample, and its role.

    >>> Assigned("clip7", taken_release="k400", taken_split="validate", role="val").role
    'val'
    """

    key: str
    taken_release: str
    taken_split: str
    role: str


def assign_splits(rows: Rows, *, turns: Sequence[Turn], seed: int) -> Iterator[Sifted]:
    """Whole step: assign every sample to the first turn that contains it.

    Args:
        rows: rows with columns ``split_<release>`` for every release in the turns.
        turns: turns in order.
        seed: seed for the held-out samples.

    Yields:
        All columns and those of ``Assigned``, batch by batch; ``in_no_turn`` is rejected.

    Raises:
        ValueError: a role is unknown, a share is below 0 or not below 1, a turn is named twice, or a release has no column.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b"], "split_k400": ["train", None], "split_k600": ["test", "train"]}))
    >>> turns = [Turn("k400", "train", "train"), Turn("k600", "train", "train")]
    >>> [found] = assign_splits(rows, turns=turns, seed=0)
    >>> found.kept.select(["key", "taken_release", "role"]).to_pylist()
    [{'key': 'a', 'taken_release': 'k400', 'role': 'train'}, {'key': 'b', 'taken_release': 'k600', 'role': 'train'}]
    """
    places = [(turn.release, turn.split) for turn in turns]
    for number, turn in enumerate(turns):
        if turn.role not in ROLES:
            raise ValueError(f"turn {number}: role {turn.role!r}: one of {', '.join(ROLES)}")
        if places.index(places[number]) != number:
            raise ValueError(f"turn {number}: {turn.release} {turn.split} is listed twice")
        if f"split_{turn.release}" not in rows.column_names:
            raise ValueError(f"turn {number}: no release {turn.release!r} among the columns {', '.join(rows.column_names)}")
    for table in rows.batches():
        taken = np.full(table.num_rows, -1, dtype=np.int64)
        for number in reversed(range(len(turns))):
            split = table[f"split_{turns[number].release}"]
            taken[pc.equal(split, turns[number].split).fill_null(False).to_numpy()] = number
        role = np.asarray([ROLES.index(turn.role) for turn in turns] + [0])[taken]
        shares = np.asarray([turn.held_out for turn in turns] + [0.0])[taken]
        drawn = np.flatnonzero(shares)
        keys = table["key"].take(pa.array(drawn)).to_pylist()
        role[drawn[uniform(seed, "assign_splits", keys) < shares[drawn]]] = ROLES.index("test")
        columns = {
            "taken_release": pa.array([turn.release for turn in turns] + [""]).take(pa.array(taken % (len(turns) + 1))),
            "taken_split": pa.array([turn.split for turn in turns] + [""]).take(pa.array(taken % (len(turns) + 1))),
            "role": pa.array(ROLES).take(pa.array(role)),
        }
        for name, column in columns.items():
            table = table.append_column(name, column)
        yield sift(table, {"in_no_turn": taken < 0})
