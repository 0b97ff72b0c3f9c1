"""The examples in docstrings run as they stand, and every public name of the API has one.

An example is what a user would type where the names of its module are imported. It runs in a folder of its own, in which
``out`` is a finished run of the tiny CLEAR with one baseline trained, ``words.py`` and ``shapes.py`` are those of
``docs/examples``, and ``texts`` has three text files.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import benchwright
import numpy as np
import pytest
from benchwright.curation.code_loading import load
from benchwright.curation.registry import Registry
from benchwright.curation.stages.detectors import DETECTORS
from benchwright.curation.stages.transforms import TRANSFORMS
from benchwright.eval.metrics.registry import METRICS
from benchwright.pipelines import api
from benchwright.training.illuminants.registry import ESTIMATORS
from benchwright.training.methods.registry import METHODS
from benchwright.training.models.registry import MODELS
from benchwright.training.predictors.registry import PREDICTORS

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("curation", "datasets", "training", "eval", "pipelines")
EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)

REGISTRIES = [DETECTORS, ESTIMATORS, METHODS, METRICS, MODELS, PREDICTORS, TRANSFORMS]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "docs" / "examples").glob("*.py"))]


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(["benchwright", *(parts if parts[0] != "front_door" else parts[1:])]).removesuffix(".__init__")


FILES = [ROOT / "front_door" / "__init__.py", *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))]
WITH_EXAMPLES = {module_of(file): file for file in FILES if EXAMPLE.search(file.read_text("utf-8"))}


# ------------------------------------------------------------------------------------------------------- they run


@pytest.fixture(scope="session")
def trained(finished: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with one baseline. Only to be copied."""
    out = Path(shutil.copytree(finished("clear"), tmp_path_factory.mktemp("documented") / "out"))
    api.train(str(out), methods=["nap-finetune"])
    return out


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of the examples, without ``out``."""
    for name in ("words.py", "words.toml", "shapes.py", "shapes.toml"):
        shutil.copy(ROOT / "docs" / "examples" / name, tmp_path)
    (tmp_path / "texts").mkdir()
    for name, text in {"one": "a rose is a rose", "two": "to be or not to be", "short": "hm"}.items():
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    logging.getLogger("benchwright").setLevel(logging.WARNING)  # a quiet command in another test leaves errors alone
    yield tmp_path
    for name in ("words", "shapes"):
        sys.modules.pop(name, None)  # the next folder has files of its own


NUMPY: Any = {
    "precision": 8,
    "threshold": 1000,
    "linewidth": 75,
    "suppress": False,
    "sign": "-",
    "floatmode": "maxprec",
    "legacy": False,
}
"""How numpy prints, whatever another test has imported: colour-science asks for the form of numpy 1.13."""


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str, folder: Path, request: pytest.FixtureRequest) -> None:
    text = WITH_EXAMPLES[name].read_text("utf-8")
    if re.search(r'>>> .*"out["/]', text):
        shutil.copytree(request.getfixturevalue("trained"), folder / "out")
    module, told = importlib.import_module(name), io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with np.printoptions(**NUMPY):
        for test in doctest.DocTestFinder().find(module, name):
            runner.run(test, out=told.write)
    assert runner.failures == 0, told.getvalue()
    assert runner.tries == len(EXAMPLE.findall(text)), "doctest does not see some examples of this file"


# ------------------------------------------------------------------------------------------- every public name has one


def has_example(thing: Any) -> bool:
    """Whether the docstring of a function or class holds an example, or that of a member of the class."""
    members = vars(thing).values() if inspect.isclass(thing) else ()
    own = [each for each in members if isinstance(each, FunctionType | classmethod | staticmethod | property)]
    return any(EXAMPLE.search(each.__doc__ or "") for each in (thing, *own))


def without_example(things: Mapping[str, Any]) -> list[str]:
    """Names of those that have none. Of values that are neither functions nor classes none is asked for."""
    return [
        name for name, each in things.items() if (inspect.isroutine(each) or inspect.isclass(each)) and not has_example(each)
    ]


def defined_in(module: ModuleType) -> list[str]:
    """Names of the public functions and classes that the module defines."""
    return [
        name
        for name, each in vars(module).items()
        if not name.startswith("_")
        and (inspect.isroutine(each) or inspect.isclass(each))
        and each.__module__ == module.__name__
    ]


def found(name: str) -> Any:
    """What a dotted name stands for: a module, or something in one; None for nothing."""
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    place, _, attribute = name.rpartition(".")
    return getattr(found(place), attribute, None) if place else None


def imported(code: str) -> Iterator[str]:
    """Dotted names of ours that code imports, and that it takes from modules of ours."""
    modules: dict[str, str] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {each.asname or each.name: each.name for each in node.names}
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchwright"):
            modules |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            yield from (f"{node.module}.{each.name}" for each in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id, "")
            if module.startswith("benchwright"):
                yield f"{module}.{node.attr}"


def documented(page: Path) -> Iterator[str]:
    """Dotted names of ours that a document tells its readers to use: in its code, and between backticks."""
    text = page.read_text("utf-8")
    for code in [text] if page.suffix == ".py" else re.findall(r"```python[^\n]*\n(.*?)```", text, re.DOTALL):
        with contextlib.suppress(SyntaxError):  # an excerpt, such as the methods of a class
            yield from imported(code)
    if page.suffix != ".py":
        names = re.findall(rf"`(?:benchwright\.)?((?:{'|'.join(ROOMS)})(?:\.\w+)+)", text)
        yield from (f"benchwright.{name}" for name in names)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The names on the pages of the reference, each with its module; "" for all that a module defines."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    from reference import MODULES

    lines = [each.partition(": ") for each in chain(*MODULES.values())]
    return [(module, name) for module, _, names in lines for name in names.split(", ")]


def test_every_name_of_the_front_door_has_an_example() -> None:
    assert without_example({name: getattr(benchwright, name) for name in benchwright.__all__}) == []


def test_every_command_of_the_api_has_an_example() -> None:
    assert without_example({name: getattr(api, name) for name in api.__all__}) == []


def test_every_name_of_the_reference_has_an_example(listed: list[tuple[str, str]]) -> None:
    modules = {module: importlib.import_module(f"benchwright.{module}") for module, _ in listed}
    names = [(module, each) for module, name in listed for each in ([name] if name else defined_in(modules[module]))]
    assert len(names) > 300
    assert without_example({f"{module}.{name}": getattr(modules[module], name) for module, name in names}) == []


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_built_in_name_has_an_example(registry: Registry) -> None:
    assert without_example({name: load(reference) for name, reference in registry.builtin.items()}) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_in_a_document_is_there_and_has_an_example(page: Path) -> None:
    names = {name: found(name) for name in documented(page)}
    assert [name for name, each in names.items() if each is None] == []
    assert without_example(names) == []


def test_every_name_that_documents_use_has_a_page(listed: list[tuple[str, str]]) -> None:
    places = [f"{module}.{name}".rstrip(".") for module, name in listed]
    names = {name.removeprefix("benchwright.") for page in PAGES for name in documented(page)}
    names |= {f"{place}.{name}" for place, front in benchwright._PLACES.items() for name in front}
    modules = {name for name in names if inspect.ismodule(found(f"benchwright.{name}"))} | set(benchwright.__all__)
    assert sorted(name for name in names - modules if not any(f"{name}.".startswith(f"{each}.") for each in places)) == []


def bare(number: int) -> int:
    """The number itself."""
    return number


def shown(number: int) -> int:
    """The number itself.

    >>> shown(3)
    3
    """
    return number


def test_the_check_sees_a_name_without_an_example() -> None:
    bare_class = type("Bare", (), {"__doc__": "One.", "number": 3, "bare": bare})
    shown_class = type("Shown", (), {"__doc__": "One.", "shown": shown})
    things = {"bare": bare, "shown": shown, "Bare": bare_class, "Shown": shown_class, "a constant": 3}
    assert without_example(things) == ["bare", "Bare"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from benchwright.curation.run import run, Run", ["benchwright.curation.run.run", "benchwright.curation.run.Run"]),
        (
            "from benchwright.curation import png\npng.stored_png(x)",
            ["benchwright.curation.png", "benchwright.curation.png.stored_png"],
        ),
        ("import benchwright as bw\nbw.run(todo)", ["benchwright.run"]),
        ("import numpy as np\nnp.mean(x)", []),
    ],
)
def test_the_check_of_documents_sees_each_form(code: str, names: list[str]) -> None:
    assert list(imported(code)) == names
