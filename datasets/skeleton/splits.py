"""Which sequences take part, what they are for, and in which task their class comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.rows import Sifted, sift, with_column
from .ntu import read_missing

if TYPE_CHECKING:
    from ...curation.store import Rows

ROLES = ("train", "val", "test")
PROTOCOLS = ("x_sub", "x_view", "x_set")
SplitRule = Literal["shares", "x_sub", "x_view", "x_set"]


@dataclass(frozen=True)
class SelectedSequence:
    """Columns that ``select_sequences`` adds.

    Attributes:
        label: place of the class in the published order, from 0.
        position: place of the sequence in the source's order among those that are kept.
    """

    key: str
    label: int
    position: int


@dataclass(frozen=True)
class RoleAndTask:
    """Columns that ``split`` adds.

    Attributes:
        role: ``train``, ``val`` or ``test``.
        task: of its class in label order, from 0.
    """

    key: str
    role: str
    task: int


def select_sequences(
    rows: Rows, *, classes: Sequence[str] | None, only: Mapping[str, str], missing: str | None = None
) -> Sifted:
    """Whole step: keep the sequences of some classes and of one side of published protocols.

    Rejected: ``missing_skeleton``: the list ``missing`` has it; ``other_class``; ``outside_subset``.

    Args:
        rows: with the columns of ``ListedSequence``.
        classes: names in the order of their labels; None: all that there are, by name.
        only: protocol -> side, such as ``{"x_sub": "train"}``; all of them must hold.
        missing: list of names without skeletons; see ``ntu.read_missing``.

    Raises:
        ValueError: a class twice, or of which no sequence is left; a protocol that the source does not have.

    >>> from benchwright.curation.store import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c"], "class_name": ["wave", "sit", "wave"], "name": ["a", "b", "c"]}))
    >>> kept, rejected = select_sequences(rows, classes=["wave"], only={})
    >>> kept.select(["key", "label", "position"]).to_pylist(), rejected["reason"].to_pylist()
    ([{'key': 'a', 'label': 0, 'position': 0}, {'key': 'c', 'label': 0, 'position': 1}], ['other_class'])
    """
    table = rows.table()
    names = np.asarray(table["class_name"].to_pylist(), dtype=object)
    wanted = sorted(set(names.tolist())) if classes is None else list(classes)
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"classes {wanted}: each is named once")
    lost = frozenset[str]() if missing is None else read_missing(missing)
    rules = {
        "missing_skeleton": np.asarray([key in lost for key in table["key"].to_pylist()], dtype=bool),
        "other_class": ~np.isin(names, wanted),
        "outside_subset": np.zeros(len(names), dtype=bool),
    }
    for protocol, side in only.items():
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol {protocol!r}: there are {', '.join(PROTOCOLS)}")
        values = np.asarray(table[protocol].to_pylist(), dtype=object)
        if len(values) and not np.isin(values, ("train", "test")).any():
            raise ValueError(f"protocol {protocol}: no sequence of this source has a side in it")
        rules["outside_subset"] |= values != side
    found = sift(table, rules, detail="class_name")
    kept = found.kept
    place = {name: number for number, name in enumerate(wanted)}
    labels = np.asarray([place[name] for name in kept["class_name"].to_pylist()], dtype=np.int64)
    if (absent := np.setdiff1d(np.arange(len(wanted)), labels)).size:
        raise ValueError(f"class {wanted[int(absent[0])]!r}: no sequence of it is in the source, or left of it")
    kept = with_column(kept, "label", pa.array(labels))
    return Sifted(with_column(kept, "position", pa.array(np.arange(len(labels)))), found.rejected)


def split(rows: Rows, *, rule: SplitRule, val_share: float, test_share: float, classes_per_task: int) -> pa.Table:
    """Whole step: a role for every sequence, and the task of its class.

    Args:
        rows: with ``label``, in the order of the source, which is kept.
        rule: ``shares``: of the n sequences of a class the last ``int(test_share * n)`` test and as many before them as
            ``val_share`` says validate, at least one each; the rest, the first, train. Otherwise the protocol whose column
            says what tests; of those that train in a class, the last ``int(val_share * n)`` validate, none for 0.
        val_share, test_share: see ``rule``; the second counts for ``shares`` alone.
        classes_per_task: classes that a task brings, in the order of their labels; the last task may have fewer.

    Raises:
        ValueError: a class too small to have a sequence of each role, or a sequence that the protocol gives no side.

    >>> from benchwright.curation.store import Rows
    >>> rows = Rows.of(pa.table({"key": list("abcdefgh"), "label": [0, 0, 0, 0, 1, 1, 1, 1]}))
    >>> table = split(rows, rule="shares", val_share=0.25, test_share=0.25, classes_per_task=1)
    >>> table.select(["role", "task"]).to_pylist()[:4]
    [{'role': 'train', 'task': 0}, {'role': 'train', 'task': 0}, {'role': 'val', 'task': 0}, {'role': 'test', 'task': 0}]
    """
    table = rows.table()
    labels = table["label"].to_numpy()
    if not (0 <= val_share < 1 and 0 <= test_share < 1) or classes_per_task < 1:
        raise ValueError(f"shares {val_share}, {test_share} and {classes_per_task} classes a task: [0, 1), and at least 1")
    if rule == "shares":
        roles = _by_share(labels, val_share, test_share, table)
    else:
        roles = _by_protocol(labels, np.asarray(table[rule].to_pylist(), dtype=object), val_share, table)
    table = with_column(table, "role", pa.array(np.asarray(ROLES)[roles].tolist(), pa.string()))
    return with_column(table, "task", pa.array(labels // classes_per_task))


def _by_share(labels: NDArray[np.int64], val: float, test: float, table: pa.Table) -> NDArray[np.int64]:
    roles = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels).tolist():
        mine = np.flatnonzero(labels == label)
        n = len(mine)
        validating, testing = (max(1, int(share * n)) for share in (val, test))
        if validating + testing >= n:
            raise ValueError(
                f"class {table['class_name'][int(mine[0])].as_py()!r} has {n} sequences: "
                f"{validating} to validate and {testing} to test leave none to train"
            )
        roles[mine[n - testing - validating : n - testing]] = ROLES.index("val")
        roles[mine[n - testing :]] = ROLES.index("test")
    return roles


def _by_protocol(labels: NDArray[np.int64], sides: NDArray[np.object_], val: float, table: pa.Table) -> NDArray[np.int64]:
    known = np.isin(sides, ("train", "test"))
    if not known.all():
        key = table["key"][int(np.flatnonzero(~known)[0])].as_py()
        raise ValueError(f"sequence {key!r}: the protocol says neither train nor test of it")
    roles = np.where(sides == "test", ROLES.index("test"), ROLES.index("train"))
    for label in np.unique(labels).tolist() if val else []:
        mine = np.flatnonzero((labels == label) & (sides == "train"))
        roles[mine[len(mine) - int(val * len(mine)) :]] = ROLES.index("val")
    return roles
