"""Names that stand for code, in three forms: what they stand for, and what is said of names that stand for nothing."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Interval
from benchwright.curation.code_loading import UnknownName, load, load_file
from benchwright.curation.flow import Step
from benchwright.curation.keys import as_json
from benchwright.curation.reachable_code import code_digest
from benchwright.curation.registry import Entry, Registry, check_values, described, file_of, load_entry, load_name

from tests.installed import Install

SHAPES = Registry("shape", {"square": "operator:mul", "circle": "operator:pow"}, fits={"square": "planes"})

ROUND = '''
from beside import FACTOR

def twice(x):
    """Two of it.

    Fits: numbers.
    """
    return FACTOR * x
'''


def test_a_built_in_name_and_one_that_is_written_out() -> None:
    assert SHAPES.find("square") == Entry("shape", "square", "operator:mul", "built-in", fits="planes")
    assert load_name(SHAPES, "square")(3, 4) == 12
    assert SHAPES.find("operator:neg") == Entry("shape", "operator:neg", "operator:neg", "")
    assert load_name(SHAPES, "operator:neg")(3) == -3


def test_a_file_is_found_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/half_of.py").write_text("def half(x):\n    return x / 2\n")
    name = f"{tmp_path}/inner/half_of.py:half"
    monkeypatch.chdir(tmp_path)
    assert SHAPES.find("inner/half_of.py:half") == Entry("shape", name, name, "")
    assert load_name(SHAPES, "inner/half_of.py:half")(3) == 1.5


def test_what_an_installed_package_offers(install: Install, tmp_path: Path) -> None:
    module = '"""Shapes."""\n\ndef star(x):\n    """A star.\n\n    Fits: planes, graphs.\n    """\n    return -x\n'
    install(
        "shapes-pkg",
        "1.5",
        {"shapes_pkg.py": module},
        {"benchwright.shapes": "star = shapes_pkg:star\nsquare = shapes_pkg:star"},
    )
    found = {(entry.name, entry.origin, entry.hidden) for entry in SHAPES.entries()}
    assert found == {
        ("square", "built-in", False),
        ("circle", "built-in", False),
        ("star", "shapes-pkg 1.5", False),
        ("square", "shapes-pkg 1.5", True),
    }
    assert SHAPES.find("square").reference == "operator:mul"  # the built-in one wins
    star = SHAPES.find("star")
    assert described(star) == ("planes, graphs", "A star.")
    assert file_of(star) == tmp_path / "shapes-pkg/shapes_pkg.py"
    assert "shapes_pkg" not in sys.modules  # nothing was imported to say all this
    assert load_entry(star)(2) == -2

    install("other-pkg", "2.0", {"other_pkg.py": module}, {"benchwright.shapes": "star = other_pkg:star"})
    with pytest.raises(UnknownName, match=r"shape 'star' is offered by other-pkg 2.0 and shapes-pkg 1.5: name it as module"):
        SHAPES.find("star")
    assert load_name(SHAPES, "other_pkg:star")(2) == -2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sqare", "no shape 'sqare': there are circle, square, or name your own as .*; did you mean 'square'?"),
        ("", "no shape ''"),
        ("nothing.py:x", "shape 'nothing.py': no such file"),
        ("a b:c", "no shape 'a b:c'"),
        ("operator:", "no shape 'operator:'"),
        (":neg", "no shape ':neg'"),
        ("operator:1", "no shape 'operator:1'"),
    ],
)
def test_a_name_that_stands_for_nothing(name: str, told: str) -> None:
    with pytest.raises(UnknownName, match=told):
        SHAPES.find(name)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\n1 / 0", r"line 2: ZeroDivisionError: division by zero"),
        ("x = (", r"line 1: SyntaxError"),
        ("raise SystemExit(7)", r"line 1: SystemExit: 7"),
        ("y = 1", r"has no 'x'"),
    ],
)
def test_code_that_cannot_be_loaded_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / f"bad_{abs(hash(text))}.py"
    file.write_text(text)
    with pytest.raises(UnknownName, match=told) as error:
        load_name(SHAPES, f"{file}:x")
    assert "\n" not in str(error.value)
    assert file.stem not in sys.modules or told.endswith("'x'")


def test_a_module_that_cannot_be_imported_is_told_in_one_line(install: Install) -> None:
    install("broken-pkg", "1.0", {"broken_pkg.py": "raise OSError('no licence')"}, {"benchwright.shapes": "x = broken_pkg:x"})
    with pytest.raises(UnknownName, match="shape 'broken_pkg:x': broken_pkg cannot be imported: OSError: no licence"):
        load_name(SHAPES, "x")
    with pytest.raises(UnknownName, match="no module nowhere_at_all"):
        load_name(SHAPES, "nowhere_at_all:x")


def test_only_functions_and_classes_can_be_called() -> None:
    with pytest.raises(UnknownName, match=r"^shape 'math:pi': it is of type float: expected a function or a class$"):
        load_name(SHAPES, "math:pi")
    assert load_entry(Entry("shape", "pi", "math:pi", ""), called=False) > 3


def test_a_name_of_a_package_that_leads_to_no_code_is_not_offered(install: Install) -> None:
    install("odd-pkg", "1.0", {}, {"benchwright.shapes": "bad = no code:::\nempty =\nright = operator:neg"})
    assert [entry.name for entry in SHAPES.entries()] == ["square", "circle", "right"]
    with pytest.raises(UnknownName, match="no shape 'bad'"):
        SHAPES.find("bad")


@pytest.mark.parametrize("no_bytecode", [False, True])
def test_a_file_is_run_again_when_it_or_a_file_beside_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_bytecode: bool
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", no_bytecode)
    beside, file = tmp_path / "beside.py", tmp_path / "round_things.py"
    beside.write_text("FACTOR = 2\n")
    file.write_text(ROUND)
    twice = load(f"{file}:twice")
    assert twice(5) == 10
    assert load(f"{file}:twice") is twice  # and not otherwise
    file.write_text(ROUND.replace("FACTOR * x", "FACTOR * x + 1"))
    assert load(f"{file}:twice")(5) == 11
    beside.write_text("FACTOR = 3\n")
    assert load(f"{file}:twice")(5) == 16
    again = tmp_path / "more_round_things.py"  # it imports what is imported already
    again.write_text(ROUND)
    assert load(f"{again}:twice")(5) == 15
    beside.write_text("FACTOR = 4\n")
    assert load(f"{again}:twice")(5) == 20
    assert sys.dont_write_bytecode is no_bytecode
    assert described(Entry("shape", "x", f"{file}:twice", "")) == ("numbers", "Two of it.")


def test_threads_that_load_a_file_at_once_get_one_module(tmp_path: Path) -> None:
    file = tmp_path / "slow_module.py"
    file.write_text("import time\ntime.sleep(0.2)\nclass X: ...\n")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(load(f"{file}:X"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_a_file_that_hides_a_loaded_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("x = 1")
    with pytest.raises(UnknownName, match="a module named 'json' is loaded already: rename the file"):
        load_file(tmp_path / "json.py")


def test_files_of_one_name_in_two_folders_are_modules_of_their_own(tmp_path: Path) -> None:
    """The second was refused, as one that has the name of a loaded module. Here the files beside them have one name, too."""
    for folder, factor in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "beside_mine.py").write_text(f"FACTOR = {factor}\n")
        text = "import beside_mine\ndef at_once(x):\n    return beside_mine.FACTOR * x\n"
        later = "def later(x):\n    from beside_mine import FACTOR\n    return FACTOR * x\n"
        (tmp_path / folder / "mine.py").write_text(text + later)
    shutil.copytree(tmp_path / "a", tmp_path / "elsewhere")
    first, second = (load(f"{tmp_path}/{folder}/mine.py:at_once") for folder in ("a", "b"))
    assert (first(10), second(10)) == (20, 30)
    assert [load(f"{tmp_path}/{folder}/mine.py:later")(10) for folder in ("a", "b", "a")] == [20, 30, 20]
    digests = [code_digest(load(f"{tmp_path}/{folder}/mine.py:at_once")) for folder in ("a", "b", "elsewhere", "a")]
    assert digests == [code_digest(f"{tmp_path}/{folder}/mine.py:at_once") for folder in ("a", "b", "elsewhere", "a")]
    assert digests[0] == digests[2] == digests[3] != digests[1]
    named = {as_json("how", load(f"{tmp_path}/{folder}/mine.py:at_once"))["of"] for folder in ("a", "elsewhere")}
    assert named == {"mine:at_once"}
    assert Step(first, {}).name == Step(second, {}).name == "mine.at_once"


def test_files_beside_a_file_travel_with_its_functions(tmp_path: Path) -> None:
    """A process that has neither file on its path runs the function."""
    import cloudpickle

    (tmp_path / "beside_it.py").write_text("FACTOR = 7\ndef by(x):\n    return FACTOR * x\n")
    file = tmp_path / "travelling.py"
    file.write_text("import beside_it\ndef f(x):\n    return beside_it.by(x)\n")
    data = cloudpickle.dumps(load(f"{file}:f"))
    (tmp_path / "beside_it.py").unlink()
    file.unlink()
    code = "import sys, cloudpickle; print(cloudpickle.loads(sys.stdin.buffer.read())(6))"
    run = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=True, env=os.environ | {"PYTHONSAFEPATH": "1"}
    )
    assert run.stdout.strip() == b"42"


def test_descriptions_follow_imports_and_values(install: Install, tmp_path: Path) -> None:
    files: dict[str, str] = {
        "deep_pkg/__init__.py": "from .inner import thing\n",
        "deep_pkg/inner.py": 'def thing():\n    """A thing\n    of two lines.\n\n    More."""\n',
        "deep_pkg/value.py": '"""Values."""\nTHING = make(title="A titled thing")\nOTHER = 3\n',
    }
    install("deep-pkg", "1.0", files, {})

    def about(reference: str) -> str:
        return described(Entry("shape", "x", reference, ""))[1]

    assert about("deep_pkg:thing") == "A thing of two lines."
    assert about("deep_pkg.value:THING") == "A titled thing"
    assert about("deep_pkg.value:OTHER") == "Values."
    assert about("deep_pkg.nowhere:x") == about("deep_pkg:nothing") == ""
    assert "deep_pkg" not in sys.modules


class Settings:
    def __init__(
        self,
        *,
        count: int = 1,
        rate: float | None = None,
        size: int | Literal["all"] = "all",
        flag: bool = False,
        pair: tuple[float, float] = (0, 1),
        several: tuple[int, ...] = (),
        words: Sequence[str] = (),
        width: Annotated[int, Interval(ge=1, le=9)] = 1,
        share: Annotated[float, Interval(gt=0)] = 0.5,
    ) -> None: ...


def for_a_type_checker(*, count: NoSuchName) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore


@pytest.mark.parametrize(
    ("name", "fits", "misfits", "expected"),
    [
        ("count", [3, np.int64(3), 10**400], [3.0, True, "3", None], "int"),
        ("rate", [3, 0.5, np.float32(0.5), None], [math.nan, math.inf, True, "fast", [0.5]], "float or None"),
        ("size", [3, "all"], ["some", 2.5, None], "int or 'all'"),
        ("flag", [True], [1, "true", None], "true or false"),
        ("pair", [(0, 1), [0.5, 1]], [(0.5,), (0.5, "x"), 3, "ab"], "[float, float]"),
        ("several", [(), [1, 2, 3]], [["x"], 1], "[int, ...]"),
        ("words", ["one", 3], [], ""),
        ("width", [1, np.int64(9)], [0, 10, 2.0, "3"], "int from 1 to 9"),
        ("share", [0.1, 7], [0.0, -1], "float > 0"),
        ("strange", ["one", 3], [], ""),
    ],
)
def test_values_fit_their_annotations(name: str, fits: list[Any], misfits: list[Any], expected: str) -> None:
    for value in fits:
        check_values(Settings, {name: value})
    for value in misfits:
        with pytest.raises(ValueError, match=rf"^{name} = .*: expected {re.escape(expected)}$"):
            check_values(Settings, {name: value})
    check_values(for_a_type_checker, {"count": "three"})
    check_values(functools.partial(for_a_type_checker), {"count": "three"})


@dataclasses.dataclass
class Maker:
    """Makes something; a field has the name of an argument, and another type."""

    strength: int = 0

    def __call__(self, *, strength: str, limit: float = math.inf) -> None: ...


class Further(Maker):
    def __init__(self, *, strength: float | str) -> None: ...


def test_values_are_held_against_what_is_called() -> None:
    check_values(Maker(), {"strength": "much", "limit": math.inf})
    check_values(Further, {"strength": "much"})
    for made, settings, told in (
        (Maker(), {"strength": 3}, "strength = 3: expected str"),
        (Maker(), {"limit": math.nan}, "limit = nan: expected float"),
        (Further, {"strength": None}, "strength = None: expected float or str"),
    ):
        with pytest.raises(ValueError, match=told):
            check_values(made, settings)
