"""Hierarchies and task configurations: forms, rules, proposals, draws."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchwright.datasets.iirc.hierarchy import Hierarchy, propose, read_hierarchy, read_parents
from benchwright.datasets.iirc.tasks import DrawnTasks, check_tasks, draw_tasks, read_tasks, restricted_tasks

PETS = Hierarchy((("dog", ("pug", "husky")), ("cat", ("manx",))), ("newt",))


def test_three_forms_give_one_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"super_classes": {"dog": ["pug", "husky"], "cat": ["manx"]}, "other_sub_classes": ["newt"]}'
    )
    (tmp_path / "b.toml").write_text('lone = ["newt"]\n[superclasses]\ndog = ["pug", "husky"]\ncat = ["manx"]\n')
    (tmp_path / "c.csv").write_text("subclass,superclass\npug,dog\nhusky,dog\nmanx,cat\nnewt,\n")
    assert all(read_hierarchy(str(path)) == PETS for path in tmp_path.iterdir())
    assert PETS.labels == ("dog", "cat", "pug", "husky", "manx", "newt")
    assert PETS.parents == {"pug": "dog", "husky": "dog", "manx": "cat", "newt": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"super_classes": {"a": ["x"], "b": ["x"]}}', "subclass 'x' appears under 'a' and under 'b': one parent, once"),
        ('{"super_classes": {"a": ["x", "x"]}}', "subclass 'x' appears twice under 'a'"),
        ('{"super_classes": {"a": ["b"], "b": ["a"]}}', "a cycle: a < b < a"),
        ('{"super_classes": {"a": ["a"]}}', "a cycle: a < a"),
        ('{"super_classes": {"a": ["b"], "b": ["x"]}}', "'b' is a superclass, and a subclass of 'a': there are two levels"),
        ('{"super_classes": {"a": []}}', "superclass 'a' has no subclass"),
        ('{"super_classes": {"a": ["x"]}, "other_sub_classes": ["x"]}', "lone subclass 'x' is a subclass as well"),
        ('{"super_classes": {"a": ["x"]}, "other_sub_classes": ["a"]}', "lone subclass 'a' is a superclass as well"),
        ('{"super_classes": {"a": ["x"], "a": ["y"]}}', "the name 'a' appears twice"),
        ('{"super_classes": {"a": ["x "]}}', "class name 'x '"),
        ('{"super_classes": {"a": "x"}}', "superclass 'a' is not a list of names"),
        ('{"other": []}', "no table of 'super_classes'"),
        ("{}", "no class at all"),
        ("[" * 100_000, "hierarchy"),
    ],
)
def test_what_is_no_hierarchy(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "h.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"h\.json") as caught:
        read_hierarchy(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files(tmp_path: Path) -> None:
    for name, text, message in (
        ("h.csv", b"class,parent\n", "h.csv': the CSV has no column 'subclass' (hierarchy.path): it has class, parent"),
        ("h.csv", b"subclass,superclass\ncat,pet\nhouse\n", "h.csv': the CSV, line 3: 1 fields, the header has 2"),
        ("h.csv", b"subclass,superclass\ncat,pet,dog\n", "h.csv': the CSV, line 2: 3 fields, the header has 2"),
        ("h.csv", b"subclass,superclass,subclass\ncat,pet,dog\n", "h.csv': the CSV: its header names 'subclass' twice"),
        ("h.csv", b"subclass,superclass" + b",x" * 1000, "the CSV: its header has 1,002 columns"),
        ("h.yaml", b"", "its ending is '.yaml'"),
        ("h.toml", b"\xff", "not UTF-8: byte 0"),
    ):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(ValueError, match=re.escape(message)):
            read_hierarchy(str(tmp_path / name))


def test_restricted_and_flat() -> None:
    assert PETS.restricted({"pug", "newt"}) == Hierarchy((("dog", ("pug",)),), ("newt",))
    assert PETS.restricted({"pug", "husky", "manx"}, min_subclasses=2) == Hierarchy((("dog", ("pug", "husky")),), ("manx",))
    assert PETS.flat() == Hierarchy((), ("pug", "husky", "manx", "newt"))
    with pytest.raises(ValueError, match="no class at all"):
        PETS.restricted({"dog"})


def test_proposal(tmp_path: Path) -> None:
    # animal > dog > (toy > pug, peke), husky; animal > cat > manx, siam; a pug is a pet as well; thing > car.
    edges = "toy pug,toy peke,dog toy,dog husky,animal dog,animal cat,cat manx,cat siam,pet pug,thing car,animal newt"
    (tmp_path / "is_a.txt").write_text("\n".join(edges.split(",")))
    parents = read_parents(str(tmp_path / "is_a.txt"))
    assert parents["pug"] == ("toy", "pet")
    rows = ["child,parent", *(f"{pair.split()[1]},{pair.split()[0]}" for pair in edges.split(","))]
    (tmp_path / "is_a.csv").write_text("\n".join(rows))
    assert read_parents(str(tmp_path / "is_a.csv")) == parents
    classes = ["pug", "peke", "husky", "manx", "siam", "car", "newt"]
    # The most specific groups of two or more: cat and toy (two each); then nothing of dog is left but the husky, and of animal
    # the husky and the newt.
    assert propose(classes, parents, min_subclasses=2, max_subclasses=3) == Hierarchy(
        (("toy", ("pug", "peke")), ("animal", ("husky", "newt")), ("cat", ("manx", "siam"))), ("car",)
    )
    assert propose(classes, parents, min_subclasses=3, max_subclasses=3) == Hierarchy(
        (("dog", ("pug", "peke", "husky")), ("animal", ("manx", "siam", "newt"))), ("car",)
    )
    with pytest.raises(ValueError, match="a circle of parents through 'a' and 'b'"):
        propose(["x"], {"x": ["a"], "a": ["b"], "b": ["a"]}, min_subclasses=1, max_subclasses=9)
    with pytest.raises(ValueError, match="class 'dog' is above class 'husky'"):
        propose(["dog", "husky"], parents, min_subclasses=1, max_subclasses=9)
    (tmp_path / "bad.txt").write_text("a b\na b c\n")
    with pytest.raises(ValueError, match="pair 2"):
        read_parents(str(tmp_path / "bad.txt"))


@pytest.mark.parametrize("seed", range(5))
def test_drawn_configurations(seed: int) -> None:
    tree = Hierarchy(tuple((f"t{n}", tuple(f"s{n}{k}" for k in range(4))) for n in range(6)), tuple(f"l{n}" for n in range(5)))
    drawn = DrawnTasks(first=3, later=4, seed=seed)
    tasks = draw_tasks(tree, drawn, 0)
    check_tasks(tasks, tree)
    assert sorted(name for task in tasks for name in task) == sorted(tree.labels)
    assert len(tasks[0]) == 3
    assert all(name.startswith("t") for name in tasks[0])
    assert tasks == draw_tasks(tree, drawn, 0)
    assert tasks != draw_tasks(tree, drawn, 1)


def test_drawn_without_superclasses() -> None:
    tasks = draw_tasks(PETS.flat(), DrawnTasks(first=2, later=1, seed=0), 0)
    assert [len(task) for task in tasks] == [2, 1, 1]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([["dog", "pug"]], "superclass 'dog' comes in task 0, its subclass 'pug' in task 0: before it"),
        ([["pug"], ["dog"]], "superclass 'dog' comes in task 1, its subclass 'pug' in task 0"),
        ([["dog"], ["dog"]], "label 'dog' comes in task 0 and again in task 1"),
        ([["fox"]], "label 'fox' is not in the hierarchy"),
        ([["dog"], []], "task 1 has no label"),
    ],
)
def test_configurations_that_do_not_fit(tasks: list[list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_tasks(tasks, PETS)


def test_files_of_configurations(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"configuration_3": {"task_1": ["pug"], "task_0": ["dog", "newt"]}}))
    assert read_tasks(str(path)) == {3: (("dog", "newt"), ("pug",))}
    assert restricted_tasks([["dog", "newt"], ["pug"]], PETS.restricted({"newt"})) == (("newt",),)
    for text, message in (
        ('{"configuration_0": {"task_1": []}}', r"its tasks are \[1\], not 0 to 0"),
        ('{"config": {}}', "'config' is not configuration_<number>"),
        ('{"configuration_0": {"task_0": [1]}}', "task_0: no list of labels"),
        ("[]", "no table of configurations"),
        ("{", "t.json"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_tasks(str(path))
