"""Which sequences take part, what they are for, and in which task their class comes."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.rows import Sifted, sift, with_column
from .known import read_roles
from .ntu import read_missing
from .rows import ROLES

if TYPE_CHECKING:
    from ...curation.store import Rows

PROTOCOLS = ("x_sub", "x_view", "x_set")
SplitRule = Literal["shares", "x_sub", "x_view", "x_set", "performer", "camera", "source", "list"]


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
    rows: Rows,
    *,
    classes: Sequence[str] | None,
    only: Mapping[str, str],
    missing: str | None = None,
    roles: str | None = None,
) -> Sifted:
    """Whole step: keep the sequences of some classes and of one side of published protocols.

    Rejected: ``missing_skeleton``: the list ``missing`` has it; ``other_class``; ``outside_subset``; ``not_in_list``: the list
    ``roles`` does not have it.

    Args:
        rows: with the columns of ``ListedSequence``.
        classes: names in the order of their labels; None: all that there are, by name.
        only: protocol -> side, such as ``{"x_sub": "train"}``; all of them must hold.
        missing: list of names without skeletons; see ``ntu.read_missing``.
        roles: list of the roles of sequences, of which those take part that it has; see ``known.read_roles``.

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
        raise ValueError(f"classes {wanted}: each may be named only once")
    lost = frozenset[str]() if missing is None else read_missing(missing)
    rules = {
        "missing_skeleton": np.asarray([key in lost for key in table["key"].to_pylist()], dtype=bool),
        "other_class": ~np.isin(names, wanted),
        "outside_subset": np.zeros(len(names), dtype=bool),
    }
    for protocol, side in only.items():
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol {protocol!r}: there are {', '.join(PROTOCOLS)}")
        values = _column(table, protocol)
        if len(values) and not np.isin(values, ("train", "test")).any():
            raise ValueError(f"protocol {protocol}: no sequence of this source has a side in it")
        rules["outside_subset"] |= values != side
    if roles is not None:
        listed = read_roles(roles)
        rules["not_in_list"] = np.asarray([not listed.keys() & names for names in _names_of(table)], dtype=bool)
    found = sift(table, rules, detail="class_name")
    kept = found.kept
    place = {name: number for number, name in enumerate(wanted)}
    labels = np.asarray([place[name] for name in kept["class_name"].to_pylist()], dtype=np.int64)
    if (absent := np.setdiff1d(np.arange(len(wanted)), labels)).size:
        raise ValueError(f"class {wanted[int(absent[0])]!r}: the source has no sequence of it, or none is left")
    kept = with_column(kept, "label", pa.array(labels))
    return Sifted(with_column(kept, "position", pa.array(np.arange(len(labels)))), found.rejected)


def split(
    rows: Rows,
    *,
    rule: SplitRule,
    val_share: float,
    test_share: float,
    classes_per_task: int,
    val_groups: Sequence[str] = (),
    test_groups: Sequence[str] = (),
    roles: str | None = None,
) -> pa.Table:
    """Whole step: a role for every sequence, and the task of its class.

    Args:
        rows: with ``label``, in the order of the source, which is kept.
        rule: ``shares``: of the n sequences of a class the last ``int(test_share * n)`` test and as many before them as
            ``val_share`` says validate, at least one each, but none for 0; the rest, the first, train. ``performer``,
            ``camera``: those of ``test_groups`` test. ``source``: the side that the source says. ``list``: that of ``roles``.
            Otherwise the protocol whose column says what tests. Where none of these says what validates, it is of those that
            train in a class the last ``int(val_share * n)``, none for 0.
        val_share, test_share: see ``rule``; the second counts for ``shares`` alone.
        classes_per_task: classes that a task brings, in the order of their labels; the last task may have fewer.
        val_groups, test_groups: performers or cameras.
        roles: list of the roles of sequences; see ``known.read_roles``.

    Raises:
        ValueError: a class too small to have a sequence of each role, a sequence that is given no side, a performer or camera
            of which there is no sequence, or nothing that trains or tests.

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
        found = _by_share(labels, val_share, test_share, table)
    elif rule in ("performer", "camera"):
        found = _by_side(labels, _sides_of_groups(table, rule, val_groups, test_groups), val_share, table)
    elif rule == "list":
        listed = read_roles(roles or "")
        sides = [next((listed[name] for name in sorted(names) if name in listed), None) for names in _names_of(table)]
        found = _by_side(labels, np.asarray(sides, dtype=object), val_share, table)
    else:
        found = _by_side(labels, _column(table, "side" if rule == "source" else rule), val_share, table)
    if absent := [role for role in ("train", "test") if not (found == ROLES.index(role)).any()]:
        raise ValueError(f"split.rule = {rule!r}: no sequence has the role {absent[0]}")
    table = with_column(table, "role", pa.array(np.asarray(ROLES)[found].tolist(), pa.string()))
    return with_column(table, "task", pa.array(labels // classes_per_task))


def _by_share(labels: NDArray[np.int64], val: float, test: float, table: pa.Table) -> NDArray[np.int64]:
    roles = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels).tolist():
        mine = np.flatnonzero(labels == label)
        n = len(mine)
        validating, testing = (max(1, int(share * n)) if share else 0 for share in (val, test))
        if validating + testing >= n:
            raise ValueError(
                f"class {table['class_name'][int(mine[0])].as_py()!r} has {n} sequences: "
                f"{validating} to validate and {testing} to test leave none to train"
            )
        roles[mine[n - testing - validating : n - testing]] = ROLES.index("val")
        roles[mine[n - testing :]] = ROLES.index("test")
    return roles


def _by_side(labels: NDArray[np.int64], sides: NDArray[np.object_], val: float, table: pa.Table) -> NDArray[np.int64]:
    known = np.isin(sides, ROLES)
    if not known.all():
        key = table["key"][int(np.flatnonzero(~known)[0])].as_py()
        raise ValueError(f"sequence {key!r}: split.rule assigns it to neither train nor test")
    roles = np.asarray([ROLES.index(side) for side in sides], dtype=np.int64)
    for label in np.unique(labels).tolist() if val and "val" not in sides else []:
        mine = np.flatnonzero((labels == label) & (sides == "train"))
        roles[mine[len(mine) - int(val * len(mine)) :]] = ROLES.index("val")
    return roles


def _column(table: pa.Table, name: str) -> NDArray[np.object_]:
    if name not in table.column_names:
        raise ValueError(f"split and only: sequences of this source have no {name}")
    return np.asarray(table[name].to_pylist(), dtype=object)


def _sides_of_groups(
    table: pa.Table, column: str, val_groups: Sequence[str], test_groups: Sequence[str]
) -> NDArray[np.object_]:
    """Sides by the performers or cameras that validate and test."""
    groups = np.asarray([None if value is None else str(value) for value in _column(table, column)], dtype=object)
    if (nobody := np.flatnonzero(groups == None)).size:  # noqa: E711  # element by element
        raise ValueError(f"split.rule = {column!r}: of sequence {table['key'][int(nobody[0])].as_py()!r} no {column} is known")
    there = sorted(set(groups.tolist()))
    for setting, named in (("val_groups", val_groups), ("test_groups", test_groups)):
        if unknown := [name for name in named if name not in there]:
            raise ValueError(f"split.{setting} has {unknown[0]!r}: there are {', '.join(there)[:200]}")
    if twice := set(val_groups) & set(test_groups):
        raise ValueError(f"split: {min(twice)!r} is in val_groups and in test_groups")
    sides = np.where(np.isin(groups, test_groups), "test", np.where(np.isin(groups, val_groups), "val", "train"))
    return sides.astype(object)


def _names_of(table: pa.Table) -> list[set[str]]:
    """What a list may call each sequence: its key, its file, and the file without its folder or ending."""
    found: list[set[str]] = []
    for key, file in zip(table["key"].to_pylist(), table["file"].to_pylist(), strict=True):
        stem = posixpath.splitext(file)[0]
        found.append({key, file, stem, posixpath.basename(stem), file.rpartition("#")[2]} - {""})
    return found
