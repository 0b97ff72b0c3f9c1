"""Select sequences, and assign their roles and the tasks of their classes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.rows import Sifted, sift, with_column
from ...curation.stages.ranks import coded, in_tables
from ..roles import ROLES
from .ntu import read_missing
from .own_labels import read_roles

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

PROTOCOLS = ("x_sub", "x_view", "x_set")
SplitRule = Literal["shares", "x_sub", "x_view", "x_set", "performer", "camera", "source", "list"]


@dataclass(frozen=True)
class SelectedSequence:
    """Columns that ``select_sequences`` adds.

    Attributes:
        label: class index in the published order, from 0.
        position: position of the sequence in the source's order among the selected ones.

    >>> SelectedSequence("a", label=0, position=0)
    SelectedSequence(key='a', label=0, position=0)
    """

    key: str
    label: int
    position: int


@dataclass(frozen=True)
class RoleAndTask:
    """Columns that ``split`` adds.

    Attributes:
        role: ``train``, ``val`` or ``test``.
        task: task of the class in label order, from 0.

    >>> RoleAndTask("a", role="val", task=0)
    RoleAndTask(key='a', role='val', task=0)
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
) -> Iterator[Sifted]:
    """Whole step: keep the sequences of some classes and of one side of published protocols.

    Rejected: ``missing_skeleton``: in the list ``missing``; ``other_class``; ``outside_subset``; ``not_in_list``: not in the
    list ``roles``.

    Args:
        rows: rows with the columns of ``ListedSequence``.
        classes: class names in the order of their labels; None: all classes, by name.
        only: protocol -> side, such as ``{"x_sub": "train"}``; all of them must hold.
        missing: list of names without skeletons; see ``ntu.read_missing``.
        roles: list of the roles of sequences; only those in the list are kept; see ``own_labels.read_roles``.

    Raises:
        ValueError: a class is named twice or has no sequence left, or the source has no sides in a protocol.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c"], "class_name": ["wave", "sit", "wave"], "name": ["a", "b", "c"]}))
    >>> [(kept, rejected)] = select_sequences(rows, classes=["wave"], only={})
    >>> kept.select(["key", "label", "position"]).to_pylist(), rejected["reason"].to_pylist()
    ([{'key': 'a', 'label': 0, 'position': 0}, {'key': 'c', 'label': 0, 'position': 1}], ['other_class'])
    """
    wanted = sorted(coded(rows, "class_name")[0]) if classes is None else list(classes)
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"classes {wanted}: each may be named only once")
    for protocol in only:
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol {protocol!r}: there are {', '.join(PROTOCOLS)}")
        if rows.num_rows and {"train", "test"}.isdisjoint(_coded(rows, protocol)[0]):
            raise ValueError(f"protocol {protocol}: no sequence of this source has a side in it")
    lost = frozenset[str]() if missing is None else read_missing(missing)
    listed = None if roles is None else read_roles(roles)
    kept_of = np.zeros(len(wanted), dtype=np.int64)
    for table in rows.batches():
        names = pc.index_in(table["class_name"], pa.array(wanted, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
        label = names.fill_null(-1).to_numpy().astype(np.int64)
        rules = {
            "missing_skeleton": np.asarray([key in lost for key in table["key"].to_pylist()], dtype=bool),
            "other_class": label < 0,
            "outside_subset": np.zeros(table.num_rows, dtype=bool),
        }
        for protocol, side in only.items():
            rules["outside_subset"] |= np.asarray([value != side for value in table[protocol].to_pylist()], dtype=bool)
        if listed is not None:
            rules["not_in_list"] = np.asarray([not listed.keys() & names for names in _names_of(table)], dtype=bool)
        kept, rejected = sift(table, rules, detail="class_name")
        label = label[~np.any(list(rules.values()), axis=0)]
        position = kept_of.sum() + np.arange(len(label))
        kept_of += np.bincount(label, minlength=len(wanted))
        kept = with_column(kept, "label", pa.array(label))
        yield Sifted(with_column(kept, "position", pa.array(position)), rejected)
    if (absent := np.flatnonzero(kept_of == 0)).size:
        raise ValueError(f"class {wanted[int(absent[0])]!r}: the source has no sequence of it, or none is left")


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
) -> Iterator[pa.Table]:
    """Whole step: a role for every sequence, and the task of its class.

    Args:
        rows: rows with ``label``, in the order of the source, which is kept.
        rule: ``shares``: of the n sequences of a class, the last ``int(test_share * n)`` are test and the
            ``int(val_share * n)`` before them val, at least one each, but none for a share of 0; the rest are train.
            ``performer``, ``camera``: sequences of ``test_groups`` are test. ``source``: the side in the source. ``list``: the
            role in ``roles``. Otherwise the sides of a protocol. If none of these defines val, it is the last
            ``int(val_share * n)`` of the n training sequences of each class, none for 0.
        val_share, test_share: see ``rule``; ``test_share`` is used only by ``shares``.
        classes_per_task: number of classes per task, in the order of their labels; the last task may have fewer.
        val_groups, test_groups: performers or cameras.
        roles: list of the roles of sequences; see ``own_labels.read_roles``.

    Raises:
        ValueError: a class is too small to have a sequence of each role, a sequence gets no side, a performer or camera has no
            sequence, or nothing is left to train or test on.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": list("abcdefgh"), "label": [0, 0, 0, 0, 1, 1, 1, 1]}))
    >>> [table] = split(rows, rule="shares", val_share=0.25, test_share=0.25, classes_per_task=1)
    >>> table.select(["role", "task"]).to_pylist()[:4]
    [{'role': 'train', 'task': 0}, {'role': 'train', 'task': 0}, {'role': 'val', 'task': 0}, {'role': 'test', 'task': 0}]
    """
    if not (0 <= val_share < 1 and 0 <= test_share < 1) or classes_per_task < 1:
        raise ValueError(f"shares {val_share}, {test_share} and {classes_per_task} classes a task: [0, 1), and at least 1")
    if rule == "shares":
        found = _by_share(rows, val_share, test_share)
    elif rule in ("performer", "camera"):
        found = _by_side(rows, _sides_of_groups(rows, rule, val_groups, test_groups), val_share)
    elif rule == "list":
        listed = read_roles(roles or "")
        named = (names for table in rows.batches(["key", "file"]) for names in _names_of(table))
        sides = (next((listed[name] for name in sorted(names) if name in listed), None) for names in named)
        found = _by_side(rows, np.fromiter(map(_place_of, sides), np.int8, rows.num_rows), val_share)
    else:
        values, side = _coded(rows, "side" if rule == "source" else rule)
        found = _by_side(rows, np.asarray(list(map(_place_of, values)), dtype=np.int8)[side], val_share)
    if absent := [role for role in ("train", "test") if not (found == ROLES.index(role)).any()]:
        raise ValueError(f"split.rule = {rule!r}: no sequence has the role {absent[0]}")
    for first, table in in_tables(rows):
        mine = pa.array(found[first : first + table.num_rows])
        table = with_column(table, "role", pa.array(ROLES, pa.string()).take(mine))
        yield with_column(table, "task", pa.array(table["label"].to_numpy() // classes_per_task))


def _place_of(side: str | None) -> int:
    return ROLES.index(side) if side in ROLES else -1


def _by_share(rows: Rows, val: float, test: float) -> NDArray[np.int8]:
    """Index in ``ROLES`` of each row's role."""
    roles = np.zeros(rows.num_rows, dtype=np.int8)
    for mine in _by_label(rows):
        n = len(mine)
        validating, testing = (max(1, int(share * n)) if share else 0 for share in (val, test))
        if validating + testing >= n:
            raise ValueError(
                f"class {_value(rows, 'class_name', mine[0])!r} has {n} sequences: "
                f"{validating} to validate and {testing} to test leave none to train"
            )
        roles[mine[n - testing - validating : n - testing]] = ROLES.index("val")
        roles[mine[n - testing :]] = ROLES.index("test")
    return roles


def _by_side(rows: Rows, roles: NDArray[np.int8], val: float) -> NDArray[np.int8]:
    """Index in ``ROLES`` of each row's role, from the index of its side, or -1."""
    if (unknown := np.flatnonzero(roles < 0)).size:
        key = _value(rows, "key", unknown[0])
        raise ValueError(f"sequence {key!r}: split.rule assigns it to neither train nor test")
    if val and not (roles == ROLES.index("val")).any():
        for of_label in _by_label(rows):
            mine = of_label[roles[of_label] == ROLES.index("train")]
            roles[mine[len(mine) - int(val * len(mine)) :]] = ROLES.index("val")
    return roles


def _by_label(rows: Rows) -> list[NDArray[np.int64]]:
    """Row numbers of each label that occurs, in their order."""
    label = rows.table(["label"])["label"].to_numpy()
    groups = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
    return [group for group in groups if len(group)]


def _value(rows: Rows, column: str, row: int) -> Any:
    return rows.slice(int(row), int(row) + 1, [column])[column][0].as_py()


def _coded(rows: Rows, name: str) -> tuple[list[Any], NDArray[np.int32]]:
    if name not in rows.column_names:
        raise ValueError(f"split and only: sequences of this source have no {name}")
    return coded(rows, name)


def _sides_of_groups(rows: Rows, column: str, val_groups: Sequence[str], test_groups: Sequence[str]) -> NDArray[np.int8]:
    """Sides by the performers or cameras for validation and test, as indices in ``ROLES``."""
    values, group = _coded(rows, column)
    if None in values:
        key = _value(rows, "key", np.flatnonzero(group == values.index(None))[0])
        raise ValueError(f"split.rule = {column!r}: of sequence {key!r} no {column} is known")
    groups = list(map(str, values))
    there = sorted(set(groups))
    for setting, named in (("val_groups", val_groups), ("test_groups", test_groups)):
        if unknown := [name for name in named if name not in there]:
            raise ValueError(f"split.{setting} has {unknown[0]!r}: there are {', '.join(there)[:200]}")
    if twice := set(val_groups) & set(test_groups):
        raise ValueError(f"split: {min(twice)!r} is in val_groups and in test_groups")
    sides = ["test" if name in test_groups else "val" if name in val_groups else "train" for name in groups]
    return np.asarray(list(map(_place_of, sides)), dtype=np.int8)[group]


def _names_of(table: pa.Table) -> list[set[str]]:
    """Names by which a list may refer to each sequence: its key, its file, and the file without folder or extension."""
    found: list[set[str]] = []
    for key, file in zip(table["key"].to_pylist(), table["file"].to_pylist(), strict=True):
        stem = posixpath.splitext(file)[0]
        found.append({key, file, stem, posixpath.basename(stem), file.rpartition("#")[2]} - {""})
    return found
