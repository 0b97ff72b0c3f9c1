"""Assign samples to labels: shares of every subclass in file order, as columns of one table.

Source: Abdelsalam et al., "IIRC: Incremental Implicitly-Refined Classification", CVPR 2021, section 4.1, and its package. A
share is a range of the samples of a subclass in the order of their files, or in random order. A sample may be used twice, under
its superclass in one task and under its subclass in another: it stays one row, with ``in_super`` and ``in_sub`` both true.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.rows import REJECTS, Sifted, sift, with_column
from ...curation.stages.external_sort import RowOrder, sorted_by_columns, stable_order
from ...curation.stages.ranks import coded, draws, places_in_groups
from ...curation.stages.reorder import reorder
from .hierarchy import Hierarchy, hierarchy_of_places, propose, read_hierarchy, read_parents
from .tasks import DrawnTasks, Tasks, check_tasks, draw_tasks, read_tasks, restricted_tasks

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

ROLES = ("train", "intask_valid", "posttask_valid", "test")
"""``intask_valid`` is labelled as ``train``, and monitored while a task is learned; ``posttask_valid`` as ``test``."""

SPLITS = ("", "test", "train")
"""Splits of a source; "" if it has none."""

Ints = NDArray[np.signedinteger[Any]]

_HELD_BYTES = 1 << 26  # rows that are put in order in memory; more go through a file


@dataclass(frozen=True)
class Shares:
    """How the samples of a subclass are shared out. A share of n samples is int(share * n) of them, in double precision.

    Attributes:
        in_task, post_task: share of the training samples for this validation set: the first ones for in-task, the next ones for
            post-task validation.
        superclass: share of the rest, the first ones, that is labelled by superclass. If the superclass has more than ``cap``
            subclasses, this share times cap / subclasses.
        subclass: share of the rest, the last ones, that is labelled by subclass. Lone subclasses keep all samples.
        cap: number of subclasses above which ``superclass`` is reduced.
        test: share of all samples, the last ones, for testing, if the source has no splits; 0 if it has. Ours.
        order: order that "first" and "last" refer to: that of the ``files``, as released, or ``drawn`` from the seed (ours), so
            that roles do not depend on camera or date, which file names often follow.

    >>> Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8).subclass
    0.8
    >>> Shares(in_task=0.6, post_task=0.6, superclass=0.4, subclass=0.8, cap=8)
    Traceback (most recent call last):
        ...
    ValueError: expected in_task 0.6 + post_task 0.6 <= 1, cap 8 >= 1
    """

    in_task: float
    post_task: float
    superclass: float
    subclass: float
    cap: int
    test: float = 0.0
    order: Literal["files", "drawn"] = "files"

    def __post_init__(self) -> None:
        for name, share in dataclasses.asdict(self).items():
            if name not in ("cap", "order") and not 0 <= share <= 1:
                raise ValueError(f"share {name} is {share}: a number from 0 to 1")
        if self.in_task + self.post_task > 1 or self.cap < 1:
            raise ValueError(f"expected in_task {self.in_task} + post_task {self.post_task} <= 1, cap {self.cap} >= 1")


@dataclass(frozen=True)
class Proposal:
    """Limits of ``hierarchy.propose``."""

    min_subclasses: int
    max_subclasses: int


@functools.cache
def assigned_row(configurations: tuple[int, ...]) -> type:
    """Row dataclass of the columns that ``assign`` adds, for ``gives``.

    ``subclass``, ``superclass`` (None for a lone subclass); ``role``, one of ``ROLES``; ``in_super`` and ``in_sub``: whether
    the sample is used under its superclass and under its subclass (in evaluation under both). For each configuration c
    ``super_index<c>`` and ``sub_index<c>``: position of the class in the order of learning; ``super_task<c>``,
    ``sub_task<c>``: the task that introduces it; all None for a class that is not in the configuration. ``part``: the first
    task with the sample in the first configuration, used in shard names; ``unused`` if there is none.
    """
    fields: list[tuple[str, Any]] = [("key", str), ("role", str), ("subclass", str), ("superclass", str | None)]
    fields += [("in_super", bool), ("in_sub", bool), ("part", str)]
    fields += [(name, int | None) for c in configurations for name in configuration_columns(c)]
    return dataclasses.make_dataclass("Assigned", fields, frozen=True)


def configuration_columns(configuration: int) -> tuple[str, str, str, str]:
    """Column names of a configuration: index and task of the superclass, index and task of the subclass."""
    return (
        f"super_index{configuration}",
        f"super_task{configuration}",
        f"sub_index{configuration}",
        f"sub_task{configuration}",
    )


def assign(
    rows: Rows,
    *,
    hierarchy: str | Hierarchy | None,
    form: Literal["two_levels", "parents"] = "two_levels",
    proposal: Proposal | None = None,
    setup: Literal["iirc", "class_incremental"] = "iirc",
    shares: Shares,
    tasks: str | DrawnTasks,
    configurations: Sequence[int],
    only_found: bool = False,
    min_subclasses: int = 1,
    seed: int | None = None,
) -> Iterator[Sifted]:
    """Whole step: add the columns of ``assigned_row``, sorted by role, subclass (in the order of the hierarchy) and file, or
    in the order that ``shares`` defines.

    Rejected: ``class_not_in_hierarchy``; with folders, also files next to the folders of subclasses. Only a few numbers per row
    are held in memory; files and keys are sorted in parts.

    Args:
        rows: rows with ``key``, ``split``, ``class_name`` and ``file``.
        hierarchy: a file, or the hierarchy itself; None: the superclass is the folder that contains the class folder.
        form: content of the file: a hierarchy, or ``parents`` from which one is proposed within ``proposal`` for the classes
            of the rows.
        setup: ``class_incremental``: all subclasses are lone, as in the authors' package ``iirc``.
        tasks: a file of official configurations, or how to draw them.
        configurations: numbers of the configurations.
        only_found: leave out the classes of the hierarchy and of the configurations that have no row. Otherwise they are an
            error.
        min_subclasses: with ``only_found``: superclasses with fewer subclasses are removed.
        seed: seed for shares in random order.

    Raises:
        ValueError: there is no row; no class is in the hierarchy, or one has no sample; a split is not ``train``, ``test`` or
            ""; both or neither of splits and test share are given; or a configuration does not exist or does not fit the
            hierarchy.

    >>> from benchwright.curation.stage_rows import Rows
    >>> splits, classes = ["train", "train", "test", "test"], ["cat", "dog", "cat", "dog"]
    >>> table = pa.table({"key": list("abcd"), "split": splits, "class_name": classes, "file": list("abcd")})
    >>> shares = Shares(in_task=0.0, post_task=0.0, superclass=1.0, subclass=1.0, cap=8)
    >>> tree = Hierarchy((("animal", ("cat", "dog")),), ())
    >>> given = {"hierarchy": tree, "shares": shares, "tasks": DrawnTasks(first=1, later=2, seed=0), "configurations": [0]}
    >>> found = pa.concat_tables(each.kept for each in assign(Rows.of(table), **given))
    >>> found.select(["class_name", "role", "super_task0", "sub_task0"]).to_pylist()[0]  # an animal, and later a cat
    {'class_name': 'cat', 'role': 'train', 'super_task0': 0, 'sub_task0': 1}
    """
    found: set[str] = set()
    for batch in rows.batches(["class_name"]):
        found.update(pc.unique(batch["class_name"]).to_pylist())  # type: ignore[attr-defined]
    if not found:
        raise ValueError("the source has no pictures: there is nothing to assign")
    tree = hierarchy_of_folders(rows) if hierarchy is None else _tree(hierarchy, form, proposal, found)
    named = f"hierarchy {hierarchy!r}" if isinstance(hierarchy, str) else "hierarchy"
    if found.isdisjoint(tree.subclasses):
        raise ValueError(f"no class of the source is a subclass of the {named}; the source has {', '.join(sorted(found)[:5])}")
    tree = tree.restricted(found, min_subclasses=min_subclasses) if only_found else tree
    if lacking := [name for name in tree.subclasses if name not in found]:
        message = f"{len(lacking)} classes of the {named} have no sample, the first is {lacking[0]!r:.80}"
        raise ValueError(f"{message}: to exclude them, set hierarchy.only_found=true")
    tree = tree.flat() if setup == "class_incremental" else tree
    made = configurations_of(tasks, configurations, tree, only_found)

    if not found <= set(tree.subclasses):
        no_code, no_label = np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
        nothing = _with_columns(rows.schema.remove_metadata().empty_table(), no_code, no_code, no_label, no_label, tree, made)
        for stranger in _strangers(rows, tree):
            yield Sifted(nothing, stranger)
    order, code, split = _in_order(rows, tree, seed if shares.order == "drawn" else None)
    role = assign_roles(code, split, shares)
    in_super, in_sub = assign_labels(code, role, tree, shares)
    sort = np.argsort(role, kind="stable")  # they are sorted by class and file already
    order, code, role = order[sort], code[sort], role[sort]
    in_super, in_sub = in_super[sort], in_sub[sort]
    del sort
    for at, table in reorder(rows, lambda: RowOrder([order], rows.num_rows), [], held_bytes=_HELD_BYTES):
        mine = slice(at, at + table.num_rows)
        kept = _with_columns(table, code[mine], role[mine], in_super[mine], in_sub[mine], tree, made)
        yield Sifted(kept, REJECTS.empty_table())


def _tree(hierarchy: str | Hierarchy, form: str, proposal: Proposal | None, found: set[str]) -> Hierarchy:
    if isinstance(hierarchy, Hierarchy):
        return hierarchy
    if form == "two_levels":
        return read_hierarchy(hierarchy)
    if proposal is None:
        raise ValueError("a hierarchy of parents needs min_subclasses and max_subclasses to propose one")
    return propose(
        sorted(found),
        read_parents(hierarchy),
        min_subclasses=proposal.min_subclasses,
        max_subclasses=proposal.max_subclasses,
    )


def hierarchy_of_folders(rows: Rows) -> Hierarchy:
    """The hierarchy of pictures in ``superclass/subclass/``, or ``subclass/`` for a lone one, below the folders of splits.

    Args:
        rows: rows with ``split``, ``class_name`` and ``file``.

    Raises:
        ValueError: as for ``hierarchy_of_places``.

    >>> from benchwright.curation.stage_rows import Rows
    >>> files, classes = ["animal/cat/1.jpg", "animal/dog/1.jpg", "house/1.jpg"], ["cat", "dog", "house"]
    >>> hierarchy_of_folders(Rows.of(pa.table({"split": [""] * 3, "class_name": classes, "file": files})))
    Hierarchy(superclasses=(('animal', ('cat', 'dog')),), lone=('house',))
    """
    places: set[tuple[str, str, str]] = set()
    for batch in rows.batches(["split", "class_name", "file"]):
        folder = pc.replace_substring_regex(batch["file"], r"/?[^/]*$", "")  # type: ignore[attr-defined]
        places.update(zip(batch["split"].to_pylist(), batch["class_name"].to_pylist(), folder.to_pylist(), strict=True))
    return hierarchy_of_places(places)


def configurations_of(
    tasks: str | DrawnTasks, numbers: Sequence[int], tree: Hierarchy, only_found: bool = False
) -> dict[int, Tasks]:
    """Configurations by number, read from a file or drawn, and checked against the hierarchy.

    Args:
        tasks: see ``assign``.
        numbers: numbers of the configurations.
        tree: the hierarchy.
        only_found: leave out labels of the file that the hierarchy does not have.

    Raises:
        ValueError: a configuration does not exist, or does not fit the hierarchy.

    >>> configurations_of(DrawnTasks(first=1, later=2, seed=0), [0], Hierarchy((("animal", ("cat", "dog")),)))
    {0: (('animal',), ('cat', 'dog'))}
    """
    if isinstance(tasks, DrawnTasks):
        made = {number: draw_tasks(tree, tasks, number) for number in numbers}
    else:
        read = read_tasks(tasks)
        if lacking := [number for number in numbers if number not in read]:
            raise ValueError(f"task configurations {tasks!r}: no configuration_{lacking[0]}: there are {sorted(read)}")
        made = {number: restricted_tasks(read[number], tree) if only_found else read[number] for number in numbers}
    for number, one in made.items():
        try:
            check_tasks(one, tree)
        except ValueError as error:
            place = f"task configurations {tasks!r}: " if isinstance(tasks, str) else ""
            raise ValueError(f"{place}configuration_{number}: {error}") from None
    return made


def _strangers(rows: Rows, tree: Hierarchy) -> Iterator[pa.Table]:
    """``REJECTS`` for the rows whose class is not in the hierarchy."""
    classes = pa.array(tree.subclasses, pa.string())
    for batch in rows.batches(["key", "class_name"]):
        strange = pc.invert(pc.is_in(batch["class_name"], value_set=classes))  # type: ignore[attr-defined]
        rejected = sift(batch, {"class_not_in_hierarchy": strange}, detail="class_name").rejected
        if rejected.num_rows:
            yield rejected


def _in_order(rows: Rows, tree: Hierarchy, seed: int | None) -> tuple[NDArray[np.int64], Ints, Ints]:
    """Numbers of known rows by (class, file, key), as in sorted listings of class folders, or by class and a draw from seed and
    key; and for each of them the index of its class in ``tree.subclasses``, and of its split in ``SPLITS``."""
    splits, split = coded(rows, "split")
    if strange := [name for name in splits if name not in SPLITS]:
        raise ValueError(f"split {strange[0]!r}: expected 'train' and 'test', or none at all")
    split = np.asarray([SPLITS.index(name) for name in splits], dtype=np.int8)[split]
    classes, code = coded(rows, "class_name")
    places = {name: place for place, name in enumerate(tree.subclasses)}
    code = np.asarray([places.get(name, -1) for name in classes], dtype=np.int32)[code]
    by = ["file", "key"] if seed is None else ["key"]
    sort = sorted_by_columns(lambda: rows.batches(by), rows.schema, rows.num_rows, [(name, "ascending") for name in by])
    order = np.concatenate([np.empty(0, dtype=np.int64), *sort])
    if seed is not None:
        order = order[np.argsort(draws(rows, seed, "iirc_shares")[:][order], kind="stable")]
    order = order[code[order] >= 0]
    order = order[stable_order(code[order].astype(np.int64))]
    return order, code[order], split[order]


def assign_roles(code: Ints, split: Ints, shares: Shares) -> Ints:
    """Index in ``ROLES`` of each row's role.

    Args:
        code: (n,) class index; rows of a class in file order.
        split: (n,) index in ``SPLITS``.

    >>> shares = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8)
    >>> role = assign_roles(np.zeros(10, np.int64), np.full(10, SPLITS.index("train")), shares)
    >>> [ROLES[each] for each in role]
    ['intask_valid', 'posttask_valid', 'train', 'train', 'train', 'train', 'train', 'train', 'train', 'train']
    """
    names = [SPLITS[place] for place in np.unique(split).tolist()]
    if "" in names and len(names) > 1:
        raise ValueError(f"splits {names}: expected 'train' and 'test', or none at all")
    check_test_share(shares, [] if names == [""] else names)
    testing = split == SPLITS.index("test")
    rank, size = places_in_groups(code)
    testing |= rank >= size - (shares.test * size).astype(np.int64)
    rank, size = places_in_groups(2 * code + testing)
    in_task = (shares.in_task * size).astype(np.int64)
    post_task = (shares.post_task * size).astype(np.int64) + in_task
    role = np.where(rank < in_task, 1, np.where(rank < post_task, 2, 0))
    return np.where(testing, 3, role).astype(np.int8)


def check_test_share(shares: Shares, splits: Sequence[str]) -> None:
    """Raise ``ValueError`` if both or neither of the source's splits and the shares define the test samples."""
    if bool(splits) == (shares.test > 0):
        stated = f"has the splits {', '.join(splits)}" if splits else "has no splits"
        raise ValueError(f"the source {stated}, and shares.test is {shares.test}: only one of them may define the test set")


def assign_labels(code: Ints, role: Ints, tree: Hierarchy, shares: Shares) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each row is used under its superclass, and under its subclass.

    As in the released code, subclasses are counted separately in each role, among those that have samples in it; and if the
    share of a subclass is less than one sample, it keeps all samples.

    Args:
        code: (n,) index in ``tree.subclasses``; rows of a class in file order.
        role: (n,) index in ``ROLES``.

    >>> tree = Hierarchy((("animal", ("cat", "dog")),), ())
    >>> shares = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8)
    >>> cats = np.zeros(10, dtype=np.int64)  # ten training samples of the first subclass
    >>> above, below = assign_labels(cats, np.zeros(10, dtype=np.int64), tree, shares)
    >>> int(above.sum()), int(below.sum()), int((above & below).sum())  # given as animal, as cat, as both
    (4, 8, 2)
    """
    tops = {name: place for place, (name, _) in enumerate(tree.superclasses)}
    top = np.asarray([-1 if name is None else tops[name] for name in tree.parents.values()], dtype=np.int64)
    rank, size = places_in_groups(code * len(ROLES) + role)
    in_super, in_sub = np.zeros(len(code), dtype=bool), np.ones(len(code), dtype=bool)
    for part in (0, 1):
        mine = np.flatnonzero((role == part) & (top[code] >= 0))
        subclasses = np.bincount(top[np.unique(code[mine])], minlength=max(len(tops), 1))[top[code[mine]]]
        share = np.full(len(mine), shares.superclass)
        many = subclasses > shares.cap
        share[many] = shares.cap / subclasses[many] * shares.superclass
        in_super[mine] = rank[mine] < (share * size[mine]).astype(np.int64)
        kept = (shares.subclass * size[mine]).astype(np.int64)
        in_sub[mine] = rank[mine] >= np.where(kept == 0, 0, size[mine] - kept)
    evaluated = role >= 2
    in_super[evaluated] = top[code[evaluated]] >= 0
    return in_super, in_sub


def _with_columns(
    table: pa.Table,
    code: Ints,
    role: Ints,
    in_super: NDArray[np.bool_],
    in_sub: NDArray[np.bool_],
    tree: Hierarchy,
    made: Mapping[int, Tasks],
) -> pa.Table:
    """The rows with the columns of ``assigned_row``."""
    parents = list(tree.parents.items())
    columns = {
        "role": pa.array(ROLES).take(pa.array(role)),
        "subclass": pa.array([sub for sub, _ in parents], pa.string()).take(pa.array(code)),
        "superclass": pa.array([top for _, top in parents], pa.string()).take(pa.array(code)),
        "in_super": pa.array(in_super),
        "in_sub": pa.array(in_sub),
    }
    for number, tasks in made.items():
        index = {label: place for place, label in enumerate(label for task in tasks for label in task)}
        task = {label: place for place, labels in enumerate(tasks) for label in labels}
        names = configuration_columns(number)
        values = [index.get(top) if top else None for _, top in parents], [task.get(top) if top else None for _, top in parents]
        values = (*values, [index.get(sub) for sub, _ in parents], [task.get(sub) for sub, _ in parents])
        for name, of_class in zip(names, values, strict=True):
            columns[name] = pa.array(of_class, pa.int64()).take(pa.array(code))
    number, tasks = next(iter(made.items()))
    _, super_task, _, sub_task = (columns[name] for name in configuration_columns(number))
    columns["part"] = _parts(super_task, sub_task, in_super, in_sub, len(tasks))
    for name, column in columns.items():
        table = with_column(table, name, column)
    return table


def _parts(
    super_task: pa.Array, sub_task: pa.Array, in_super: NDArray[np.bool_], in_sub: NDArray[np.bool_], tasks: int
) -> pa.Array:
    late = np.iinfo(np.int64).max
    of_super = np.where(in_super, np.asarray(super_task.fill_null(late)), late)
    of_sub = np.where(in_sub, np.asarray(sub_task.fill_null(late)), late)
    first = np.minimum(of_super, of_sub)
    width = max(2, len(str(tasks - 1)))
    values, inverse = np.unique(first, return_inverse=True)
    names = ["unused" if value == late else f"task{value:0{width}d}" for value in values.tolist()]
    return pa.array(names, pa.string()).take(pa.array(inverse))
