"""Task configurations: which task introduces which labels, official or drawn from a seed.

Source: Abdelsalam et al., "IIRC: Incremental Implicitly-Refined Classification", CVPR 2021, section 4.1, and its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ...curation.bounded_reading import parse_json
from ...curation.rng import rng
from .hierarchy import Hierarchy, read_utf8

Tasks = tuple[tuple[str, ...], ...]
"""Labels of each task, in the order of learning."""


@dataclass(frozen=True)
class DrawnTasks:
    """Configurations drawn from a seed. The rule is ours; official configurations are read from their files.

    Attributes:
        first: maximum number of labels in the first task, which are superclasses, or any labels if there are no superclasses.
        later: maximum number of labels in every later task.
        seed: configuration k is drawn from (seed, k).

    >>> DrawnTasks(first=10, later=0, seed=0)
    Traceback (most recent call last):
        ...
    ValueError: first 10, later 0: at least one label a task
    """

    first: int
    later: int
    seed: int

    def __post_init__(self) -> None:
        if self.first < 1 or self.later < 1:
            raise ValueError(f"first {self.first}, later {self.later}: at least one label a task")


def draw_tasks(hierarchy: Hierarchy, drawn: DrawnTasks, configuration: int) -> Tasks:
    """One configuration: every label once, and a superclass in an earlier task than its subclasses.

    The labels outside the first task are put in random order. Each task takes the first ``later`` labels of this order whose
    superclass, if any, was in an earlier task. If fewer are available, the task is smaller.

    >>> tree = Hierarchy((("animal", ("cat", "dog")), ("vehicle", ("bus", "van"))), ())
    >>> draw_tasks(tree, DrawnTasks(first=2, later=2, seed=0), configuration=0)  # superclasses come before their subclasses
    (('animal', 'vehicle'), ('van', 'dog'), ('cat', 'bus'))
    """
    generator = rng(drawn.seed, "iirc_tasks", f"configuration_{configuration}")
    tops = [name for name, _ in hierarchy.superclasses]
    pool = tops or list(hierarchy.subclasses)
    first = [pool[place] for place in generator.permutation(len(pool))[: drawn.first].tolist()]
    rest = [name for name in hierarchy.labels if name not in set(first)]
    waiting = [rest[place] for place in generator.permutation(len(rest)).tolist()]
    parents, seen, tasks = hierarchy.parents, set(first), [tuple(first)]
    while waiting:
        task = [name for name in waiting if parents.get(name) is None or parents[name] in seen][: drawn.later]
        seen.update(task)
        waiting = [name for name in waiting if name not in seen]
        tasks.append(tuple(task))
    return tuple(tasks)


def read_tasks(path: str) -> dict[int, Tasks]:
    """The configurations in an official file, ``{"configuration_<k>": {"task_<t>": [label, ...]}}``, by k.

    Raises:
        ValueError: the file has another structure; the message names the file.

    >>> from pathlib import Path
    >>> _ = Path("orders.json").write_text('{"configuration_1": {"task_0": ["animal"], "task_1": ["dog", "cat"]}}')
    >>> read_tasks("orders.json")
    {1: (('animal',), ('dog', 'cat'))}
    """
    try:
        value = parse_json(read_utf8(path).encode())
        if not isinstance(value, dict) or not value:
            raise ValueError("no table of configurations")
        tables = cast("dict[str, Any]", value)
        return {_number(name, "configuration_"): _tasks(name, tasks) for name, tasks in tables.items()}
    except ValueError as error:
        raise ValueError(f"task configurations {path!r}: {error}") from None


def _number(name: str, head: str) -> int:
    digits = name.removeprefix(head)
    if digits == name or not digits.isdecimal() or not digits.isascii():
        raise ValueError(f"{name!r} is not {head}<number>")
    return int(digits)


def _tasks(name: str, value: Any) -> Tasks:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{name} is not a table of tasks")
    by_number = {_number(task, "task_"): labels for task, labels in cast("dict[str, Any]", value).items()}
    if sorted(by_number) != list(range(len(by_number))):
        raise ValueError(f"{name}: its tasks are {sorted(by_number)}, not 0 to {len(by_number) - 1}")
    for number, labels in by_number.items():
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in cast("list[Any]", labels)):
            raise ValueError(f"{name}, task_{number}: no list of labels")
    return tuple(tuple(by_number[number]) for number in range(len(by_number)))


def check_tasks(tasks: Sequence[Sequence[str]], hierarchy: Hierarchy) -> None:
    """Check a configuration; it may leave labels out, as IIRC-ImageNet-lite does.

    Raises:
        ValueError: a task is empty, a label is not in the hierarchy or occurs twice, or a superclass comes after, or
            together with, one of its subclasses.

    >>> check_tasks([["cat"], ["animal"]], Hierarchy((("animal", ("cat", "dog")),), ()))
    Traceback (most recent call last):
        ...
    ValueError: superclass 'animal' comes in task 1, its subclass 'cat' in task 0: before it
    """
    come: dict[str, int] = {}
    known = set(hierarchy.labels)
    for number, task in enumerate(tasks):
        if not task:
            raise ValueError(f"task {number} has no label")
        for label in task:
            if label not in known:
                raise ValueError(f"task {number}: label {label!r} is not in the hierarchy")
            if label in come:
                raise ValueError(f"label {label!r} comes in task {come[label]} and again in task {number}")
            come[label] = number
    for sub, top in hierarchy.parents.items():
        if top is not None and sub in come and top in come and come[top] >= come[sub]:
            raise ValueError(
                f"superclass {top!r} comes in task {come[top]}, its subclass {sub!r} in task {come[sub]}: before it"
            )


def restricted_tasks(tasks: Sequence[Sequence[str]], hierarchy: Hierarchy) -> Tasks:
    """A configuration without labels that are not in the hierarchy, and without tasks that are then empty.

    >>> restricted_tasks([["animal"], ["cat", "zebra"], ["yak"]], Hierarchy((("animal", ("cat", "dog")),), ()))
    (('animal',), ('cat',))
    """
    known = set(hierarchy.labels)
    kept = (tuple(label for label in task if label in known) for task in tasks)
    return tuple(task for task in kept if task)
