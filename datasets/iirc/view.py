"""The samples and labels that a learner sees in each task, and those it is tested on, as rows of the table. Needs no torch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .assign import ROLES, configuration_columns

ClassKind = Literal["superclass", "subclass_with", "subclass_without"]
"""A superclass, a subclass with a superclass, a subclass without one."""

Information = Literal["incomplete", "complete"]
Reach = Literal["task", "so_far"]


@dataclass(frozen=True)
class Given:
    """Rows with their label sets.

    Attributes:
        rows: (n,) int64 rows of the table, ascending.
        labels: (n, 2) int64 class indices in the order of learning, the subclass before the superclass, -1 if there are fewer;
            the first is never -1.

    >>> given = Given(rows=np.array([3, 7]), labels=np.array([[2, 0], [1, -1]]))
    >>> [[place for place in labels if place >= 0] for labels in given.labels.tolist()]
    [[2, 0], [1]]
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]


class RefinedView:
    """One task configuration of a table.

    Args:
        table: an index, or any table with the columns of ``assign.assigned_row``.
        configuration: number of the configuration.
        joint: put all classes in one task.

    Attributes:
        tasks: class names of each task; a class index is the position in all tasks concatenated.
        parents: subclass -> superclass, for pairs that are both in the configuration.

    Raises:
        ValueError: the table has no such configuration, or its classes have gaps because it is a part of a dataset.

    >>> names = {"subclass": ["cat", "cat", "bus"], "superclass": ["animal", "animal", None]}
    >>> used = {"role": ["train", "train", "train"], "in_super": [True, False, False], "in_sub": [False, True, True]}
    >>> learned = {"super_index0": [0, 0, None], "super_task0": [0, 0, None], "sub_index0": [2, 2, 1], "sub_task0": [1, 1, 0]}
    >>> view = RefinedView(pa.table({**names, **used, **learned}), configuration=0)
    >>> view.tasks, view.parents
    ((('animal', 'bus'), ('cat',)), {'cat': 'animal'})
    >>> view.training(0).labels.tolist(), view.training(1).rows.tolist()
    ([[0, -1], [1, -1]], [1])
    """

    def __init__(self, table: pa.Table, configuration: int, *, joint: bool = False) -> None:
        columns = configuration_columns(configuration)
        if missing := [name for name in (*columns, "role", "in_super", "in_sub") if name not in table.column_names]:
            raise ValueError(f"no column {missing[0]!r}: there are {', '.join(table.column_names)}")
        self.configuration = configuration
        super_index, super_task, sub_index, sub_task = (_numbers(table, name) for name in columns)
        self._index = np.stack([sub_index, super_index], axis=1)
        self._task = np.stack([sub_task, super_task], axis=1)
        self._given = np.stack([np.asarray(table["in_sub"]), np.asarray(table["in_super"])], axis=1)
        role = pc.index_in(table["role"], value_set=pa.array(ROLES))  # type: ignore[attr-defined]
        self._role = np.asarray(role.fill_null(-1), dtype=np.int8)
        self.tasks, self.parents = _classes(table, self._index, self._task)
        if joint:
            self._task = np.where(self._task >= 0, 0, -1)
            self.tasks = (tuple(itertools.chain.from_iterable(self.tasks)),)
        # Stands for "never": no task number reaches it.
        self._task = np.where(self._task >= 0, self._task, len(self.tasks))

    @property
    def classes(self) -> tuple[str, ...]:
        """All class names, in the order of learning."""
        return tuple(itertools.chain.from_iterable(self.tasks))

    @property
    def kinds(self) -> tuple[ClassKind, ...]:
        """Kind of each class, in the order of learning. A subclass whose superclass is not in the configuration has none."""
        tops = set(self.parents.values())
        return tuple(
            "superclass" if name in tops else "subclass_with" if name in self.parents else "subclass_without"
            for name in self.classes
        )

    def training(
        self, task: int, *, role: str = "train", information: Information = "incomplete", reach: Reach = "task"
    ) -> Given:
        """What a learner may see in ``task``.

        Args:
            task: number of the task, from 0.
            role: ``train`` or ``intask_valid``.
            information: ``incomplete``: only the labels that the task introduces. ``complete``: all labels known by then.
            reach: samples of the ``task``, or of all tasks ``so_far``, each once (incremental joint).

        Raises:
            ValueError: the role is for evaluation, or incomplete labels are requested for all tasks so far.
        """
        if role not in ("train", "intask_valid"):
            raise ValueError(f"role {role!r}: learners see only 'train' and 'intask_valid'")
        if reach == "so_far" and information == "incomplete":
            raise ValueError("samples of all tasks so far have labels of several tasks: they need complete information")
        there = self._task == task if reach == "task" else self._task <= task
        rows = np.flatnonzero((self._role == ROLES.index(role)) & (self._given & there).any(1))
        shown = self._task[rows] == task if information == "incomplete" else self._task[rows] <= task
        return self._labelled(rows, shown)

    def evaluation(self, role: str, *, known: int | None = None, task: int | None = None) -> Given:
        """Samples with all their labels that are known after task ``known``; samples without such labels are left out.

        Args:
            role: ``test`` or ``posttask_valid``.
            known: number of a task; None: the last one.
            task: only samples with a label that this task introduces.

        Raises:
            ValueError: the role is one that learners see.
        """
        if role not in ("test", "posttask_valid"):
            raise ValueError(f"role {role!r}: 'test' and 'posttask_valid' are evaluated")
        shown = self._task <= (len(self.tasks) - 1 if known is None else known)
        wanted = shown if task is None else shown & (self._task == task)
        rows = np.flatnonzero((self._role == ROLES.index(role)) & wanted.any(1))
        return self._labelled(rows, shown[rows])

    def _labelled(self, rows: NDArray[np.int64], shown: NDArray[np.bool_]) -> Given:
        labels = np.where(shown, self._index[rows], -1)
        swapped = labels[:, 0] < 0
        labels[swapped] = labels[swapped][:, ::-1]
        return Given(rows, labels)


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return np.asarray(table[name].fill_null(-1).combine_chunks(), dtype=np.int64)


def _classes(
    table: pa.Table, index: NDArray[np.int64], task: NDArray[np.int64]
) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """Class names of each task, and the superclasses of the subclasses."""
    names: dict[int, str] = {}
    of_task: dict[int, int] = {}
    parents: dict[str, str] = {}
    pairs = (index[:, 0] + 1) * (index.max(initial=0) + 2) + index[:, 1] + 1
    _, firsts = np.unique(pairs, return_index=True)
    named = table.select(["subclass", "superclass"]).take(pa.array(firsts)).to_pylist()
    for row, mine in zip(firsts.tolist(), named, strict=True):
        sub, top = index[row].tolist()
        for place, name, number in ((sub, mine["subclass"], task[row, 0]), (top, mine["superclass"], task[row, 1])):
            if place >= 0:
                names[place], of_task[place] = name, int(number)
        if sub >= 0 and top >= 0:
            parents[mine["subclass"]] = mine["superclass"]
    if sorted(names) != list(range(len(names))):
        raise ValueError(f"classes {len(names)} with indices up to {max(names, default=-1)}: some have no row here")
    tasks = tuple(
        tuple(names[place] for place in range(len(names)) if of_task[place] == number)
        for number in range(max(of_task.values(), default=-1) + 1)
    )
    return tasks, parents
