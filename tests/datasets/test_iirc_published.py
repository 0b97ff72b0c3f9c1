"""Every count of IIRC's official files, and the shares of the published sizes."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.datasets.iirc.assign import ROLES
from benchwright.datasets.iirc.facts import facts
from benchwright.datasets.iirc.hierarchy import read_hierarchy
from benchwright.datasets.iirc.tasks import check_tasks, read_tasks
from benchwright.datasets.iirc.view import RefinedView

from tests.datasets.iirc_rows import CIFAR, IMAGENET, assigned

FILES = {
    "cifar100": ("iirc_cifar100_hierarchy.json", "iirc_cifar100_task_configurations.json"),
    "imagenet_full": ("iirc_imagenet_hierarchy_wnids.json", "iirc_imagenet_full_task_configurations.json"),
    "imagenet_lite": ("iirc_imagenet_hierarchy_wnids.json", "iirc_imagenet_lite_task_configurations.json"),
}


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "iirc"


@pytest.mark.parametrize("name", FILES)
def test_counts_of_the_official_files(folder: Path, name: str) -> None:
    hierarchy, configurations = FILES[name]
    tree, fact = read_hierarchy(str(folder / hierarchy)), facts().sets[name]
    sizes = [len(inner) for _, inner in tree.superclasses]
    assert (len(sizes), sum(sizes), len(tree.lone)) == (fact.superclasses, fact.subclasses_with, fact.lone)
    assert (min(sizes), max(sizes)) == fact.subclass_sizes
    made = read_tasks(str(folder / configurations))
    assert sorted(made) == list(range(fact.configurations))
    tops = {top for top, _ in tree.superclasses}
    for tasks in made.values():
        check_tasks(tasks, tree)
        assert [len(task) for task in tasks] == [fact.first_task] + [fact.later_task] * (fact.tasks - 1)
        assert sum(map(len, tasks)) == fact.labels
        assert set(tasks[0]) <= tops


def test_imagenet_leaves_two_classes_out(folder: Path) -> None:
    tree = read_hierarchy(str(folder / FILES["imagenet_full"][0]))
    assert len(tree.labels) == 1083
    assert len(tree.subclasses) == 998
    assert not {"n03710637", "n02012849"} & set(tree.labels)
    sizes = [len(inner) for _, inner in tree.superclasses]
    assert sum(size > 8 for size in sizes) == 23
    assert sum(size > 16 for size in sizes) == 9


def test_lite_has_66_to_71_superclasses(folder: Path) -> None:
    tree = read_hierarchy(str(folder / FILES["imagenet_lite"][0]))
    tops = {top for top, _ in tree.superclasses}
    made = read_tasks(str(folder / FILES["imagenet_lite"][1]))
    counts = [len(tops & {name for task in tasks for name in task}) for tasks in made.values()]
    assert (min(counts), max(counts)) == (66, 71)


def test_the_class_incremental_configurations(folder: Path) -> None:
    """Of the package; the paper does not evaluate them. ImageNet has all 1,000 classes here, -lite 160 and 9 times 30."""
    for name, classes, tasks, count in (
        ("cifar100", "cifar100_classes.json", 11, 100),
        ("imagenet_full", "imagenet_classes.json", 29, 1000),
        ("imagenet_lite", "imagenet_classes.json", 10, 430),
    ):
        made = read_tasks(str(folder / f"incremental_{name}_task_configurations.json"))
        for configuration in made.values():
            assert len(configuration) == tasks
            check_tasks(configuration, read_hierarchy(str(folder / classes)).flat())
            assert sum(map(len, configuration)) == count


@pytest.fixture(scope="module")
def cifar(folder: Path) -> pa.Table:
    tree = str(folder / FILES["cifar100"][0])
    counts = dict.fromkeys(read_hierarchy(tree).subclasses, (500, 100))
    settings = {"shares": CIFAR, "tasks": str(folder / FILES["cifar100"][1]), "configurations": list(range(10))}
    return assigned(counts, hierarchy=tree, **settings)


def test_cifar_counts(cifar: pa.Table) -> None:
    assert collections.Counter(cifar["role"].to_pylist()) == dict(zip(ROLES, (40_000, 5_000, 5_000, 10_000), strict=True))
    training = cifar.filter(pa.array([role == "train" for role in cifar["role"].to_pylist()]))
    top, sub = np.asarray(training["in_super"]), np.asarray(training["in_sub"])
    # 77 subclasses of 400: 160 under the superclass, 320 under the subclass, 80 of them both; 23 lone ones of 400.
    assert (top.sum(), sub.sum(), (top & sub).sum()) == (77 * 160, 77 * 320 + 23 * 400, 77 * 80)
    assert (top | sub).all()


@pytest.mark.parametrize("configuration", range(10))
def test_every_task_of_cifar(cifar: pa.Table, folder: Path, configuration: int) -> None:
    official = read_tasks(str(folder / FILES["cifar100"][1]))[configuration]
    tree = read_hierarchy(str(folder / FILES["cifar100"][0]))
    view = RefinedView(cifar, configuration)
    assert view.tasks == official
    inner = dict(tree.superclasses)
    for number, labels in enumerate(official):
        given = view.training(number)
        counts = collections.Counter(view.classes[label] for label in given.labels[:, 0].tolist())
        wanted = {name: 160 * len(inner[name]) if name in inner else 320 if tree.parents[name] else 400 for name in labels}
        assert counts == wanted
        assert (given.labels[:, 1] == -1).all()


def test_imagenets_shares(folder: Path) -> None:
    """The hierarchy with 100 training samples a class: 4 and 4 validate, 92 train."""
    hierarchy = str(folder / FILES["imagenet_full"][0])
    tree = read_hierarchy(hierarchy)
    configurations = str(folder / FILES["imagenet_full"][1])
    table = assigned(
        dict.fromkeys(tree.subclasses, (100, 1)),
        hierarchy=hierarchy,
        shares=IMAGENET,
        tasks=configurations,
        configurations=[4],
    )
    training = table.filter(pa.array([role == "train" for role in table["role"].to_pylist()]))
    assert training.num_rows == 998 * 92
    top = collections.Counter(
        name for name, given in zip(training["superclass"].to_pylist(), training["in_super"].to_pylist(), strict=True) if given
    )
    for name, subs in tree.superclasses:
        share = 0.4 if len(subs) <= 8 else 8 / len(subs) * 0.4
        assert top[name] == len(subs) * int(share * 92)
    unused = np.asarray(training["part"].to_pylist()) == "unused"
    # Of 92 the first 19 are no subclass's. Nine superclasses have more than 16 subclasses and take fewer; so does, by a
    # rounding, one of 16: int(0.2 * 92) = 18.
    many = [len(subs) for _, subs in tree.superclasses if int(8 / len(subs) * 0.4 * 92) < 19]
    assert unused.sum() == sum(size * (19 - int(8 / size * 0.4 * 92)) for size in many) > 0
    assert sorted(many)[0] == 16
    assert sum(size > 16 for size in many) == len(many) - 1 == 9
