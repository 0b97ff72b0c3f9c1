"""Which sample is given under which label: shares worked out by hand, and what a learner may see of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from benchwright.datasets.iirc.assign import Proposal, Shares
from benchwright.datasets.iirc.hierarchy import Hierarchy
from benchwright.datasets.iirc.tasks import DrawnTasks
from benchwright.datasets.iirc.view import RefinedView
from benchwright.eval.metrics.label_sets import label_sets

from tests.datasets.iirc_rows import CIFAR, IMAGENET, assigned, listed, sifted

TREE = Hierarchy((("top", ("a", "b")),), ("lone",))
DRAWN = DrawnTasks(first=1, later=2, seed=0)


def stretch(table: pa.Table, subclass: str, role: str, given: str) -> list[int]:
    """Numbers of the files of a class that have the role and are given so."""
    rows = zip(*(table[name].to_pylist() for name in ("subclass", "role", given, "file")), strict=True)
    return [int(file[-5:]) for name, part, yes, file in rows if (name, part, yes) == (subclass, role, True)]


def test_cifars_sizes() -> None:
    table = assigned(
        {"b": (500, 100), "lone": (500, 100), "a": (500, 100)},
        hierarchy=TREE,
        shares=CIFAR,
        tasks=DRAWN,
        configurations=[0],
    )
    for name in "ab":
        assert stretch(table, name, "intask_valid", "in_super") == list(range(20))
        assert stretch(table, name, "intask_valid", "in_sub") == list(range(10, 50))
        assert stretch(table, name, "posttask_valid", "in_sub") == list(range(50, 100))
        assert stretch(table, name, "posttask_valid", "in_super") == list(range(50, 100))
        # Of 400 the first 160 and the last 320: the middle 80 are given twice, and stay one row.
        assert stretch(table, name, "train", "in_super") == list(range(100, 260))
        assert stretch(table, name, "train", "in_sub") == list(range(180, 500))
        assert stretch(table, name, "test", "in_super") == list(range(100))
    assert stretch(table, "lone", "train", "in_sub") == list(range(100, 500))
    assert stretch(table, "lone", "train", "in_super") == []
    assert table.num_rows == 1800
    assert len(set(table["key"].to_pylist())) == 1800
    # By role, then class in the order of the hierarchy, then file.
    order = list(dict.fromkeys(zip(table["role"].to_pylist(), table["subclass"].to_pylist(), strict=True)))
    assert order[:4] == [("train", "a"), ("train", "b"), ("train", "lone"), ("intask_valid", "a")]
    assert len(order) == 12


def test_the_order_of_the_rows_does_not_matter() -> None:
    rows = listed({"b": (20, 3), "stray": (2, 1), "a": (30, 4), "lone": (9, 2)})
    in_order = rows.sort_by([("class_name", "ascending"), ("file", "ascending")])
    one_class_moved = in_order.take([*range(5, in_order.num_rows), *range(5)])
    # Equal files, as a damaged listing may have them: the key decides.
    same_file = rows.set_column(3, "file", pa.array(["f"] * rows.num_rows))
    for given in ([rows, in_order, one_class_moved], [same_file, same_file.sort_by([("key", "ascending")])]):
        made = [
            sifted(each, hierarchy=TREE, shares=CIFAR, tasks=DRAWN, configurations=[0], only_found=True).kept for each in given
        ]
        assert all(each.equals(made[0]) for each in made)


@pytest.mark.parametrize(
    ("subclasses", "in_super", "overlap"),
    [
        (8, 40, 20),  # not more than the cap: int(0.4 * 100), the last 80
        (9, 35, 15),  # int(8 / 9 * 0.4 * 100) = int(35.6)
        (16, 20, 0),  # the overlap vanishes
        (20, 16, 0),  # four of a hundred are given under neither
    ],
)
def test_superclasses_of_many_subclasses(subclasses: int, in_super: int, overlap: int) -> None:
    names = tuple(f"s{number:02d}" for number in range(subclasses))
    shares = Shares(in_task=0, post_task=0, superclass=0.4, subclass=0.8, cap=8)
    table = assigned(
        dict.fromkeys(names, (100, 1)),
        hierarchy=Hierarchy((("top", names),)),
        shares=shares,
        tasks=DRAWN,
        configurations=[0],
    )
    top, sub = (set(stretch(table, "s03", "train", given)) for given in ("in_super", "in_sub"))
    assert top == set(range(in_super))
    assert sub == set(range(20, 100))
    assert len(top & sub) == overlap
    unused = [part for role, part in zip(table["role"].to_pylist(), table["part"].to_pylist(), strict=True) if role == "train"]
    assert unused.count("unused") == subclasses * (100 - len(top | sub))


def test_a_share_that_comes_to_nothing() -> None:
    # 25 samples at 4 %: one in each validation set. int(0.4 * 1) = 0 of it for the superclass; int(0.8 * 1) = 0 of it for the
    # subclass, where the released slice [-0:] takes all.
    counts = {"a": (25, 1), "b": (25, 1), "lone": (25, 1)}
    table = assigned(counts, hierarchy=TREE, shares=IMAGENET, tasks=DRAWN, configurations=[0])
    assert stretch(table, "a", "intask_valid", "in_super") == []
    assert stretch(table, "a", "intask_valid", "in_sub") == [0]
    assert stretch(table, "a", "train", "in_super") == list(range(2, 2 + 9))
    assert stretch(table, "a", "train", "in_sub") == list(range(25 - 18, 25))


def test_the_last_of_a_source_without_splits_test() -> None:
    table = listed({"a": (10, 0), "b": (10, 0), "lone": (5, 0)})
    table = table.set_column(1, "split", pa.array([""] * table.num_rows))
    shares = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8, test=0.2)
    kept = sifted(table, hierarchy=TREE, shares=shares, tasks=DRAWN, configurations=[0]).kept
    assert stretch(kept, "a", "test", "in_sub") == [8, 9]
    assert stretch(kept, "lone", "test", "in_sub") == [4]
    assert stretch(kept, "lone", "train", "in_sub") == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"the source has no splits, and shares\.test is 0"):
        sifted(table, hierarchy=TREE, shares=CIFAR, tasks=DRAWN, configurations=[0])
    with pytest.raises(ValueError, match=r"has the splits test, train, and shares\.test is 0\.2"):
        assigned({"a": (5, 5), "b": (5, 5), "lone": (5, 5)}, hierarchy=TREE, shares=shares, tasks=DRAWN, configurations=[0])


def test_classes_that_are_not_there() -> None:
    rows = listed({"a": (10, 1), "stray": (2, 1)})
    with pytest.raises(ValueError, match="2 classes of the hierarchy have no sample, the first is 'b'"):
        sifted(rows, hierarchy=TREE, shares=CIFAR, tasks=DRAWN, configurations=[0])
    made = sifted(rows, hierarchy=TREE, shares=CIFAR, tasks=DRAWN, configurations=[0], only_found=True)
    assert set(made.kept["subclass"].to_pylist()) == {"a"}
    assert made.rejected["reason"].to_pylist() == ["class_not_in_hierarchy"] * 3
    with pytest.raises(ValueError, match="no class of the source is a subclass of the hierarchy; the source has x, y"):
        assigned({"x": (1, 0), "y": (1, 1)}, hierarchy=TREE, shares=CIFAR, tasks=DRAWN, configurations=[0], only_found=True)
    with pytest.raises(ValueError, match="the source has no picture"):
        sifted(listed({"a": (1, 0)}).slice(1), hierarchy=TREE, shares=CIFAR, tasks=DRAWN, configurations=[0])
    alone = sifted(rows, hierarchy=TREE, shares=CIFAR, tasks=DRAWN, configurations=[0], only_found=True, min_subclasses=2)
    assert set(alone.kept["superclass"].to_pylist()) == {None}


def test_a_proposed_hierarchy(tmp_path) -> None:
    (tmp_path / "is_a.txt").write_text("top a\ntop b\n")
    made = assigned(
        {"a": (10, 1), "b": (10, 1), "lone": (10, 1)},
        hierarchy=str(tmp_path / "is_a.txt"),
        form="parents",
        proposal=Proposal(2, 5),
        shares=CIFAR,
        tasks=DRAWN,
        configurations=[0],
    )
    assert RefinedView(made, 0).parents == {"a": "top", "b": "top"}


# ------------------------------------------------------------------------------------------------------------------ view


@pytest.fixture(scope="module")
def table() -> pa.Table:
    counts = {"a": (50, 10), "b": (50, 10), "lone": (50, 10)}
    return assigned(counts, hierarchy=TREE, shares=CIFAR, tasks=DrawnTasks(1, 1, seed=3), configurations=[0, 1])


def seen(view: RefinedView, given) -> list[tuple[str, ...]]:
    return [tuple(view.classes[label] for label in labels if label >= 0) for labels in given.labels.tolist()]


def test_what_a_learner_may_see(table: pa.Table) -> None:
    view = RefinedView(table, 0)
    assert view.tasks[0] == ("top",)
    assert sorted(view.classes) == ["a", "b", "lone", "top"]
    first = view.training(0)
    assert seen(view, first) == [("top",)] * 32
    task = next(number for number, names in enumerate(view.tasks) if names == ("b",))
    given = view.training(task)
    # Of 40 samples of b the last 32, under b alone, although 8 of them were "top" before.
    assert seen(view, given) == [("b",)] * 32
    assert len(set(given.rows) & set(first.rows)) == 8
    complete = view.training(task, information="complete")
    assert complete.rows.tolist() == given.rows.tolist()
    assert seen(view, complete) == [("b", "top")] * 32
    assert seen(view, view.training(task, role="intask_valid")) == [("b",)] * 4


def test_all_data_so_far_with_all_labels(table: pa.Table) -> None:
    view = RefinedView(table, 0)
    last = view.training(3, information="complete", reach="so_far")
    # All 40 of each class: the two stretches of a and b cover them, each sample once.
    assert len(last.rows) == len(set(last.rows.tolist())) == 120
    assert set(seen(view, last)) == {("a", "top"), ("b", "top"), ("lone",)}
    first = view.training(0, information="complete", reach="so_far")
    assert set(seen(view, first)) == {("top",)}
    with pytest.raises(ValueError, match="they need complete information"):
        view.training(1, reach="so_far")
    with pytest.raises(ValueError, match="role 'test': learners see only"):
        view.training(1, role="test")


def test_joint_is_one_task(table: pa.Table) -> None:
    view, apart = RefinedView(table, 0, joint=True), RefinedView(table, 0)
    assert view.tasks == (apart.classes,)
    assert len(view.training(0, information="complete").rows) == 120
    assert view.kinds == apart.kinds


def test_what_is_asked_for(table: pa.Table) -> None:
    view = RefinedView(table, 0)
    assert seen(view, view.evaluation("test", known=0)) == [("top",)] * 20
    assert len(view.evaluation("test").rows) == 30
    task = next(number for number, names in enumerate(view.tasks) if names == ("b",))
    mine = view.evaluation("test", known=task, task=task)
    assert seen(view, mine) == [("b", "top")] * 10
    assert label_sets(mine.labels, len(view.classes)).sum(1).tolist() == [2] * 10
    # The superclass's samples are those of all its subclasses, whether they are known or not.
    assert len(view.evaluation("posttask_valid", known=task, task=0).rows) == 10
    kinds = dict(zip(view.classes, view.kinds, strict=True))
    assert kinds == {"top": "superclass", "a": "subclass_with", "b": "subclass_with", "lone": "subclass_without"}


def test_the_class_incremental_set_up() -> None:
    table = assigned(
        {"a": (50, 10), "b": (50, 10), "lone": (50, 10)},
        hierarchy=TREE,
        setup="class_incremental",
        shares=CIFAR,
        tasks=DrawnTasks(2, 1, seed=0),
        configurations=[0],
    )
    view = RefinedView(table, 0)
    assert [len(names) for names in view.tasks] == [2, 1]
    assert set(view.kinds) == {"subclass_without"}
    assert [len(view.training(task).rows) for task in (0, 1)] == [80, 40]


def test_a_part_of_a_data_set_is_no_view(table: pa.Table) -> None:
    with pytest.raises(ValueError, match="some have no row here"):
        RefinedView(table.filter(pa.array([name == "lone" for name in table["subclass"].to_pylist()])), 0)
    with pytest.raises(ValueError, match="no column 'super_index7'"):
        RefinedView(table, 7)
