"""What a key knows of code: the definitions that it reaches, and all of a module where that cannot be told."""

from __future__ import annotations

import ast
import dis
import functools
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import CodeType

import benchwright
import pytest
from benchwright.curation import definitions, user_cache
from benchwright.curation.code_loading import load
from benchwright.curation.reachable_code import Reached, code_digest, one_look, reached, source_file

from tests.files import copy_package

Files = dict[str, str]
Case = tuple[Files, str, str, str, bool]


class Folders:
    """Writes files into a folder of their own each time, and says what ``steps.py:step`` in it reaches."""

    def __init__(self, root: Path) -> None:
        self._folders = (root / str(number) for number in itertools.count())

    def write(self, files: Files) -> Path:
        folder = next(self._folders)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return folder

    def reached(self, files: Files, what: str = "steps.py:step") -> Reached:
        return reached(f"{self.write(files)}/{what}")


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


TABLE = """
    TABLE = {}
    OTHER = {}
    def one(): return 1
    def two(): return 2
    TABLE["one"] = one
    OTHER["two"] = two
    def step(row): return TABLE[row]()
"""
REGISTRY = {
    "table.py": """
        METHODS = {}
        def register(name):
            def enter(function):
                METHODS[name] = function
                return function
            return enter
        def help(x): return x
        """,
    "methods.py": """
        from table import register, help
        @register("one")
        def one(): return 1
        @help
        def loose(): return 3
        """,
    "steps.py": """
        import methods
        from table import METHODS
        def step(row): return METHODS[row]()
        """,
}
PACKAGE = {
    "pack/__init__.py": "from .inner import given as offered\nLEVEL = 3\ndef unused(): return 1\n",
    "pack/inner.py": "def given(): return 1\ndef kept(): return 2\n",
    "steps.py": "import pack\nimport pack.inner as deep\ndef step(row): return pack.offered()\n",
}
ROWS = """
    from __future__ import annotations
    from dataclasses import dataclass
    class Payload: size = 1
    class Loose: size = 1
    @dataclass
    class Row:
        payload: Payload
    def help(value: Loose) -> Loose: return value
    def step(row: Row) -> "Row | None": return help(row)
"""


def alone(text: str, old: str, new: str, counts: bool) -> Case:
    return {"steps.py": text}, "steps.py", old, new, counts


def packed(text: str, old: str, new: str, counts: bool) -> Case:
    return {**PACKAGE, "steps.py": text}, "pack/inner.py", old, new, counts


CASES = [
    # Functions, in the same file and in others, and what nobody calls.
    alone("def a(): return 1\ndef b(): return 2\ndef step(row): return a()", "return 1", "return 9", True),
    alone("def a(): return 1\ndef b(): return 2\ndef step(row): return a()", "return 2", "return 9", False),
    (PACKAGE, "pack/inner.py", "return 1", "return 9", True),  # through a name that the package gives on
    (PACKAGE, "pack/inner.py", "return 2", "return 9", False),
    (PACKAGE, "pack/__init__.py", "return 1", "return 9", False),
    (PACKAGE, "pack/__init__.py", "LEVEL = 3", "print(3)", True),  # what it does when it is imported
    (PACKAGE, "steps.py", "pack.offered()", "deep.given()", True),
    packed("import pack.inner as deep\ndef step(row): return deep.kept()", "2", "9", True),
    packed("import pack.inner\ndef step(row): return pack.inner.kept()", "2", "9", True),
    packed("import pack.inner\ndef step(row): return pack.inner.kept()", "1", "9", False),
    # Imports in the body of a function; local names that hide global ones.
    packed("def step(row):\n from pack.inner import kept as k\n return k()", "2", "9", True),
    packed("def step(row):\n from pack import inner\n return inner.kept()", "2", "9", True),
    packed("def step(row):\n from pack import inner\n return inner.kept()", "1", "9", False),
    alone("def a(): return 1\ndef step(row):\n a = row\n return a", "return 1", "return 9", False),
    alone("def a(): return 1\ndef step(row):\n return [a for a in row]", "return 1", "return 9", False),
    alone("def a(): return 1\ndef step(row):\n return [a for b in row]", "return 1", "return 9", True),
    alone("a = [1]\ndef step(row):\n return [a for a in a]", "[1]", "[9]", True),
    alone("def a(): return 1\ndef step(row):\n return lambda: a()", "return 1", "return 9", True),
    alone("def a(): return 1\nclass C:\n a = a()\ndef step(row):\n return C", "return 1", "return 9", True),
    # Names of third-party modules that are imported as others.
    alone("from math import floor as f\ndef step(row): return f(row)", "math import floor", "math import ceil", True),
    # A star; the whole module.
    packed("from pack.inner import *\ndef step(row): return kept()", "return 1", "return 9", True),
    # Decorators, default values, annotations of the step and of the fields of its rows; no others.
    alone("def a(f): return 1\n@a\ndef step(row): return 0", "return 1", "return 9", True),
    alone("def a(): return 1\ndef step(row, *, x=a()): return 0", "return 1", "return 9", True),
    alone(ROWS, "class Payload: size = 1", "class Payload: size = 2", True),
    alone(ROWS, "class Loose: size = 1", "class Loose: size = 2", False),
    # All that binds or changes a global name, in order.
    alone("LIMIT = 1\nLIMIT += 1\ndef step(row): return LIMIT", "+= 1", "+= 2", True),
    alone("try:\n X = 1\nexcept OSError:\n X = 2\ndef step(row): return X", "X = 2", "X = 3", True),
    alone("X = 0\ndef setup():\n global X\n X = 1\ndef step(row): return X", "X = 1", "X = 2", True),
    alone("X = []\nX.append(1)\ndef step(row): return X", "append(1)", "append(2)", True),
    alone("X = []\nfor n in (1, 2):\n X.append(n)\ndef step(row): return X", "(1, 2)", "(1, 3)", True),
    alone("X = []\nfor n in (1, 2):\n X.append(n)\ndef step(row): return 0", "(1, 2)", "(1, 3)", False),
    alone(TABLE, "return 1", "return 9", True),
    alone(TABLE, "return 2", "return 9", False),
    (REGISTRY, "methods.py", "return 1", "return 9", True),
    (REGISTRY, "methods.py", "return 3", "return 9", False),
    (
        {**REGISTRY, "steps.py": "from table import METHODS\ndef step(row): return METHODS"},
        "methods.py",
        "return 1",
        "return 9",
        False,
    ),
    # What runs when a module is imported.
    ({"steps.py": "import other\ndef step(row): return 0", "other.py": "import os\nos.umask(2)"}, "other.py", "2", "3", True),
    (
        {"steps.py": "import other\ndef step(row): return 0", "other.py": "import os\nos.sep = 'a'"},
        "other.py",
        "'a'",
        "'b'",
        True,
    ),
    ({"steps.py": "import other\ndef step(row): return 0", "other.py": "X = 1"}, "other.py", "1", "2", False),
    alone("def step(row): return 0\nif __name__ == '__main__':\n print(1)", "print(1)", "print(2)", False),
    alone("def step(row): return X\nif __name__ == '__main__':\n X = 1", "X = 1", "X = 2", True),
    # What the text does not tell: all of the module.
    packed("import pack.inner as m\ndef step(row): return getattr(m, row)()", "2", "9", True),
    packed("import pack.inner as m\ndef step(row): return print(m)", "2", "9", True),
    alone("def a(): return 1\ndef step(row): return globals()[row]()", "return 1", "return 9", True),
    alone("import sys\ndef a(): return 1\ndef step(row): return sys.modules[row]", "return 1", "return 9", True),
    packed("from importlib import import_module\ndef step(row): return import_module('pack.inner').kept()", "2", "9", True),
    packed("import importlib\ndef step(row): return importlib.import_module(f'pack.{row}').kept()", "2", "9", True),
    packed("NAMES = {'a': 'pack.inner:kept'}\ndef step(row): return NAMES", "return 2", "return 9", True),
    packed("NAMES = {'a': 'pack.inner:kept'}\ndef step(row): return NAMES", "return 1", "return 9", False),
    (
        {
            "steps.py": "def a(): return 1\ndef __getattr__(name): return a\ndef use(): pass",
            "main.py": "import steps\ndef step(row): return steps.b()",
        },
        "steps.py",
        "return 1",
        "return 9",
        True,
    ),
    alone(
        "import sys\ndef a(): return 1\ndef step(row): return [sys.executable, '-m', __name__]", "return 1", "return 9", True
    ),
    # What only a type checker sees.
    alone("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n X = 1\ndef step(row: 'X'): return 0", "X = 1", "X = 2", False),
]


@pytest.mark.parametrize(("files", "file", "old", "new", "counts"), CASES)
def test_what_a_change_of_code_makes_stale(folders: Folders, files: Files, file: str, old: str, new: str, counts: bool) -> None:
    assert old in files[file]
    what = "main.py:step" if "main.py" in files else "steps.py:step"
    before = folders.reached(files, what)
    assert folders.reached(files, what) == before  # in another folder
    after = folders.reached({**files, file: files[file].replace(old, new)}, what)
    assert (after.digest != before.digest) == counts
    assert (after.definitions != before.definitions) == counts


def test_definitions_are_told_by_their_names(folders: Folders) -> None:
    found = folders.reached(REGISTRY).definitions
    assert {module: set(names) for module, names in found.items()} == {
        "steps": {"step"},
        "table": {"METHODS", "register"},
        "methods": {""},  # it registers something when it is imported
    }


def test_code_is_found_by_its_name(folders: Folders) -> None:
    folder = folders.write({"steps.py": "class Method:\n    def learn(self): return helped()\n\n\ndef helped(): return 1\n"})
    whole = reached(f"{folder}/steps.py:Method")
    assert set(whole.definitions["steps"]) == {"Method", "helped"}
    assert reached(f"{folder}/steps.py:Method.learn") == whole
    assert code_digest("benchwright.curation.rows:Blob") == code_digest(type(load("benchwright.curation.rows:Blob")(b"")))
    assert load(f"{folder}/steps.py:Method.learn").__qualname__ == "Method.learn"
    for wrong in ("rows", "benchwright.curation.rows", "benchwright.curation.rows:Blub", "benchwright.nowhere:x", "none.py:x"):
        with pytest.raises(LookupError, match=wrong):
            reached(wrong)
    with pytest.raises(LookupError, match="Nothing"):
        load(f"{folder}/steps.py:Nothing")


def test_a_changed_file_is_read_again(folders: Folders) -> None:
    folder = folders.write({"steps.py": "import other\ndef step(row): return other.f()", "other.py": "def f(): return 1"})
    before = code_digest(f"{folder}/steps.py:step")
    (folder / "other.py").write_text("def f(): return 2")
    os.utime(folder / "other.py", ns=(1, 1))  # whatever the clock of the file system can tell apart
    assert code_digest(f"{folder}/steps.py:step") != before


def test_within_one_look_a_file_is_looked_at_once_and_an_edit_before_it_counts(folders: Folders) -> None:
    folder = folders.write({"steps.py": "def step(row): return 1"})
    file, name = folder / "steps.py", f"{folder}/steps.py:step"
    found = [code_digest(name)]
    for number, edit in enumerate(("return 2", "return 3"), 1):
        file.write_text(f"def step(row): {edit}")
        os.utime(file, ns=(number, number))
        with one_look():
            found.append(code_digest(name))
            os.utime(file, ns=(99, 99))
            file.write_text("def step(row): return 99")
            assert code_digest(name) == found[-1]
    assert len({*found, code_digest(name)}) == 4


THROUGH = {
    "source": "import benchwright as bw\ndef step(row): return bw.source(row)",
    "a module": "from benchwright.curation import flow as bw\ndef step(row): return bw.source(row)",
}


def test_names_of_the_front_door_are_those_that_they_stand_for(folders: Folders) -> None:
    """What is reached through ``benchwright`` is what its module is reached for, and no name of it is all of the package."""
    through, module = (folders.reached({"steps.py": text}).definitions for text in THROUGH.values())
    assert {name: set(found) for name, found in through.items()} == {name: set(found) for name, found in module.items()}
    assert "source" in through["benchwright.curation.flow"]
    made = "import benchwright as bw\nBENCHMARK = bw.Benchmark(1)\ndef step(row): return 0\ndef other(): return 1\n"
    assert set(folders.reached({"steps.py": made}).definitions["steps"]) == {"step"}
    for name in sorted(set(benchwright.__all__) - {"__version__"}):
        found = folders.reached({"steps.py": f"import benchwright as bw\ndef step(row): return bw.{name}"}).definitions
        assert name in {each for names in found.values() for each in names}, name
        assert "*" not in found["benchwright"], name


# ------------------------------------------------------------------------------------------------- on the package itself

ROOT = Path(__file__).resolve().parents[2]


_LOOKS_UP = {dis.opmap["LOAD_GLOBAL"]: 1, dis.opmap["LOAD_NAME"]: 0}
"""Operation of the compiled code -> the bits of its argument below the number of the name."""


def globals_in(code: CodeType) -> set[str]:
    """Global names that compiled code looks up, and the code inside it."""
    found, higher = set[str](), 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = higher | low
        higher = argument << 8 if operation == dis.EXTENDED_ARG else 0
        if operation in _LOOKS_UP:
            found.add(code.co_names[argument >> _LOOKS_UP[operation]])
    return found.union(*(globals_in(each) for each in code.co_consts if isinstance(each, CodeType)))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def bound_in(path: Path) -> tuple[set[str], dict[str, tuple[str, int, str]]]:
    """Functions, classes and plain variables of a file; and its imports of names: name -> module, level, name there."""
    defined: set[str] = set()
    imported: dict[str, tuple[str, int, str]] = {}
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            imported.update({each.asname or each.name: (node.module or "", node.level, each.name) for each in node.names})
    return defined, imported


@pytest.mark.parametrize("room", ["curation", "datasets", "training", "eval", "pipelines"])
@one_look()  # there are thousands of them
def test_what_compiled_code_looks_up_is_reached(room: str) -> None:
    """Of every function and class of the package: judged by Python's own compiler, which knows scopes better than anyone."""
    files = {
        f"benchwright.{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}": path for path in (ROOT / room).rglob("*.py")
    }
    seen, missed = 0, list[str]()
    for module, path in files.items():
        if path.stem in ("__init__", "__main__"):
            continue
        defined, imported = bound_in(path)
        for code in compile(parsed(path), str(path), "exec").co_consts:
            if not isinstance(code, CodeType) or code.co_qualname not in defined:
                continue
            found = reached(f"{module}:{code.co_qualname}").definitions
            looked_up = globals_in(code)
            wanted = {(module, name) for name in looked_up & defined}
            for name in looked_up & imported.keys():
                base, level, there = imported[name]
                place = importlib.util.resolve_name("." * level + base, module.rpartition(".")[0]) if level else base
                inside = ROOT.joinpath(*place.split(".")[1:]).with_suffix(".py")
                if place.startswith("benchwright.") and inside.is_file() and there in bound_in(inside)[0]:
                    wanted.add((place, there))
            seen += len(wanted)
            missed += [f"{code.co_qualname}: {p}.{n}" for p, n in wanted if not {n, "*"} & found.get(p, {}).keys()]
    assert missed == []
    assert seen > 100


# ------------------------------------------------------------------------------------------- on a copy of the package

CODES = """
import json, os, sys
from benchwright.curation.code_changes import codes
from benchwright.pipelines import api

stages = api.job("clear", config="tiny").flow("out").stages

def told():
    print(json.dumps({stage.name: codes(stage) for stage in stages}))

told()
for number, (path, old, new) in enumerate(json.loads(sys.argv[1])):
    text = open(path).read()
    assert old in text, old
    for time, content in enumerate((text.replace(old, new), text)):
        with open(path, "w") as stream:
            stream.write(content)
        os.utime(path, ns=(0, 2 * number + time))  # whatever the clock of the file system can tell apart
        told()
print(sys.modules["benchwright.curation.rows"].__file__, "torch" in sys.modules)
"""


def test_stages_of_clear_are_stale_by_the_code_that_they_reach(tmp_path: Path) -> None:
    """On a copy of the package, which a process that has it on its path imports in place of it."""
    package = copy_package(tmp_path)
    edits = [
        (
            "curation/rows.py",
            "import dataclasses\n",
            "import dataclasses\n\n\ndef added(table):\n    return sift(table, {})\n\n\n",
        ),
        ("curation/encoders/spec.py", "EncoderSpec = ", "class Unused:\n    kind = 'unused'\n\n\nEncoderSpec = "),
        ("curation/rows.py", 'raise ValueError(f"reject reason', 'raise KeyError(f"reject reason'),
        ("curation/encoders/spec.py", "must be between 1 and 65536", "has to be between 1 and 65536"),
    ]
    given = json.dumps([(str(package / name), old, new) for name, old, new in edits])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-c", CODES, given]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, end = done.stdout.splitlines()
    assert end == f"{package / 'curation' / 'rows.py'} False"
    before, *after = [json.loads(line) for line in lines]
    assert [codes == before for codes in after[1::2]] == [True] * len(edits)
    function, unused, reject, spec = ({stage for stage in before if codes[stage] != before[stage]} for codes in after[::2])
    assert (function, unused) == (set(), set())
    assert spec == {"embedded", "retrieved"}
    assert {"checked", "embedded"} <= reject < before.keys()


def facts(module: definitions.Module) -> list[object]:
    units = {unit: place for place, unit in enumerate(module.units)}
    names = {name: [units[each] for each in found] for name, found in module.names.items()}
    return [module.name, [vars(unit) for unit in units], names, module.imports, module.stars, module.imported]


def test_definitions_from_the_cache_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = ["benchwright", "benchwright.curation", "benchwright.curation.flow", "benchwright.curation.registry"]
    for name in names:
        read, again = (definitions.read_module.__wrapped__(name, str(source_file(name)), 0) for _ in range(2))
        assert read is not None
        assert again is not None
        assert facts(again) == facts(read)
    kept = (tmp_path / "cache/benchwright/definitions").iterdir()
    assert sorted(path.name.rpartition("-")[0] for path in kept) == names


@pytest.mark.parametrize("change", ["none", "text", "damage", "parser"])
def test_a_file_is_read_again_when_it_was_edited_or_its_cache_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(definitions, "_recipe", lambda: b"recipe")
    path = tmp_path / "steps.py"
    path.write_text("def step(row): return row\n")
    read = definitions.read_module.__wrapped__
    before = facts(read("package.steps", str(path), 0))
    (kept,) = (tmp_path / "cache/benchwright/definitions").iterdir()
    made = list[str]()
    again = definitions._read
    monkeypatch.setattr(definitions, "_read", lambda name, *rest: made.append(name) or again(name, *rest))
    if change == "text":
        path.write_text("def step(row): return [row]\n")
    elif change == "damage":
        kept.write_bytes(kept.read_bytes().replace(b"step", b"stop"))
    elif change == "parser":
        monkeypatch.setattr(definitions, "_recipe", lambda: b"another")
    found = facts(read("package.steps", str(path), 0))
    assert (found == before) == (change != "text")
    assert made == ["package.steps"] * (change != "none")
    assert facts(read("package.steps", str(path), 0)) == found
    assert made == ["package.steps"] * (change != "none")


@pytest.mark.parametrize("deep", ["elsewhere", "in the step"])
def test_expressions_of_hundreds_of_terms_are_read(folders: Folders, deep: str) -> None:
    terms = " + ".join(["row"] * 900)
    text = "from steps_of import other\ndef step(row): return {}\ndef more(row): return {}\n"
    bodies = ("other.used(row)", terms) if deep == "elsewhere" else (f"other.used({terms})", "row")
    files = {"steps.py": text.format(*bodies), "steps_of/__init__.py": "", "steps_of/other.py": "def used(row): return row\n"}
    found = folders.reached(files)
    assert "used" in found.definitions["steps_of.other"]
    edited = folders.reached({**files, "steps.py": files["steps.py"].replace("row + row", "row - row", 1)})
    assert (edited.digest == found.digest) == (deep == "elsewhere")


def test_nothing_is_kept_beside_a_file_that_is_read_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "steps.py"
    path.write_text("def step(row): return row\n")
    for name in (str(path), "steps", "../steps.py"):
        assert definitions.read_module.__wrapped__(name, str(path), 0) is not None
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"'\.\./steps' is no name of a file"):
        user_cache.keep("kind", "../steps", "0", b"")


def test_only_the_newest_versions_of_a_file_stay_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(7):
        user_cache.keep("kind", "package.steps", f"{number:032}", b"content")
        os.utime(tmp_path / f"cache/benchwright/kind/package.steps-{number:032}", (number, number))
        user_cache.keep("kind", "package.steps_too", f"{number:032}", b"content")
    known = [user_cache.cached("kind", "package.steps", f"{number:032}") for number in range(7)]
    assert known == [None] * 3 + [b"content"] * 4
