"""The house rules that a reader cannot see in one file: which room may import which, and what stays out of every room."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import DEAR

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "curation": {"curation"},
    "datasets": {"curation", "datasets"},
    "training": {"curation", "datasets", "training"},
    "eval": {"curation", "datasets", "eval"},
    "pipelines": {"curation", "datasets", "training", "eval", "pipelines"},
}
FILES = [path.relative_to(ROOT) for room in MAY_IMPORT for path in sorted((ROOT / room).rglob("*.py"))]
HEAVY = [
    "torch",
    "torchvision",
    "faiss",
    "open_clip",
    "matplotlib",
    "dask",
    "distributed",
    "onnxruntime",
    "sklearn",
    "av",
    "cv2",
    "rawpy",
    "colour",
]


@functools.cache
def tree_of(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def imports(file: Path, source: str) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of all that ``file``, a path relative to the root, imports, at any depth."""
    package = ["benchwright", *file.parent.parts]
    found = list[tuple[int, str]]()
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            found += ((node.lineno, ".".join([*module, alias.name])) for alias in node.names)
    return found


@functools.cache
def references(file: Path, source: str) -> list[str]:
    """Modules that ``file`` names in text, as in ``"benchwright.curation.rng:rng"`` or ``f"{__package__}.rng:rng"``, and those
    of a benchmark that ``built_in`` looks for beside its plan."""
    package = ".".join(["benchwright", *file.parent.parts])
    told = source.replace('f"{__package__}.', f'"{package}.')
    found = [node.value for node in ast.walk(tree_of(told)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    beside = [f"{package}.{name}:" for name in ("baselines", "report")] if "= built_in(" in source else []
    return [text.partition(":")[0] for text in (*found, *beside) if re.match(r"benchwright(\.\w+)+:", text)]


def wrong_arrows(file: Path, source: str) -> list[str]:
    found = []
    for line, name in imports(file, source):
        parts = name.split(".")
        if parts[0] == "benchwright" and parts[1:2] and parts[1] not in MAY_IMPORT[file.parts[0]]:
            found.append(f"{file}:{line} imports {name}")
    above = [name for name in references(file, source) if name.split(".")[1] not in MAY_IMPORT[file.parts[0]]]
    return found + [f"{file} names {name}" for name in above]


def calls(source: str) -> Iterator[tuple[int, str, dict[str, object]]]:
    """(line, dotted name, constant keyword arguments) of every call."""
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Call):
            constants = {
                keyword.arg: keyword.value.value
                for keyword in node.keywords
                if keyword.arg and isinstance(keyword.value, ast.Constant)
            }
            yield node.lineno, ast.unparse(node.func), constants


def unsafe_calls(file: Path, source: str) -> list[str]:
    found = []
    for line, name, constants in calls(source):
        if name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load", "joblib.load", "eval", "exec"):
            found.append(f"{file}:{line} {name} runs what a file says")
        if name == "torch.load" and constants.get("weights_only") is not True:
            found.append(f"{file}:{line} torch.load without weights_only=True runs what a file says")
        if constants.get("shell") is True or name == "os.system":
            found.append(f"{file}:{line} a shell reads the arguments")
    return found


def circle(sources: Mapping[Path, str]) -> list[str]:
    """The files of one circle of imports, from a file back to itself; empty where there is none.

    Imports inside functions count, and those under ``TYPE_CHECKING``: a reader of one file needs the others all the same. So do
    references in text to files of the same folder. Those to other folders, such as from a registry to what it lists, do not:
    they are looked up by name, and an outsider's work as well.
    """
    named = {file.parent if file.name == "__init__.py" else file.with_suffix(""): file for file in sources}
    modules = {".".join(["benchwright", *path.parts]): file for path, file in named.items()}

    def file_of(name: str) -> Path | None:
        return modules.get(name) or modules.get(name.rpartition(".")[0])

    graph: dict[Path, set[Path | None]] = {}
    for file, source in sources.items():
        named_in_text = {modules.get(name) for name in references(file, source)}
        beside = {other for other in named_in_text if other is not None and other.parent == file.parent}
        graph[file] = ({file_of(name) for _, name in imports(file, source)} | beside) - {None, file}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(file) for file in error.args[1]]
    return []


def over_all_files(check) -> list[str]:
    return [line for file in FILES for line in check(file, (ROOT / file).read_text("utf-8"))]


def test_imports_go_one_way():
    assert over_all_files(wrong_arrows) == []


@pytest.mark.parametrize(
    ("file", "source", "wrong"),
    [
        ("curation/rng.py", "from ..datasets import clear", 1),
        ("curation/stages/images.py", "from ...pipelines.cli import main", 1),
        ("curation/stages/images.py", "from ..rows import Row", 0),
        ("curation/rng.py", "def f():\n    import benchwright.eval.metrics", 1),
        ("training/loop.py", "from ..eval.metrics import matrix", 1),
        ("eval/report/page.py", "from ...training import loop", 1),
        ("eval/report/page.py", "from .. import training", 0),
        ("eval/report/page.py", "from ... import training", 1),
        ("datasets/clear/reader.py", "import datasets, training", 0),
        ("pipelines/clear.py", "from ..training import loop\nfrom ..eval import metrics", 0),
        ("curation/rng.py", "later('benchwright.datasets.clear:read')", 1),
    ],
)
def test_the_check_of_imports_sees_each_form(file, source, wrong):
    assert len(wrong_arrows(Path(file), source)) == wrong


def test_no_files_import_each_other_in_a_circle():
    door = {Path("__init__.py"): (ROOT / "front_door" / "__init__.py").read_text("utf-8")}
    assert circle({file: (ROOT / file).read_text("utf-8") for file in FILES} | door) == []


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("from .first import f", True),
        ("def g():\n    from . import first", True),
        ("if TYPE_CHECKING:\n    from ...curation.stages.first import F", True),
        ("import benchwright.curation.stages.first", True),
        ("from .third import f", True),
        ("first = 'benchwright.curation.stages.first:f'", True),
        ('first = later(f"{__package__}.first:f")', True),
        ("first = 'benchwright.curation.rows:f'", False),
        ("from ..first import f", False),
    ],
)
def test_the_check_of_circles_sees_each_form(second, found):
    stages = {"first": "from .second import g", "second": second, "third": "import benchwright.curation.stages.first as f"}
    sources = {Path(f"curation/stages/{name}.py"): source for name, source in stages.items()}
    assert bool(circle({**sources, Path("curation/stages/__init__.py"): ""})) is found


def test_the_engine_names_no_benchmark():
    benchmarks = {path.name for path in (ROOT / "datasets").iterdir() if path.is_dir()} - {"reader", "__pycache__"}
    found = [
        f"{file}:{node.lineno} {node.value!r}"
        for file in FILES
        if file.parts[0] == "curation"
        for node in ast.walk(tree_of((ROOT / file).read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lower() in benchmarks
    ]
    assert found == []


def test_clear_needs_no_polars():
    """Its extra in the documentation is ``encoders``: polars would be another 188 MB."""
    rooms = ("curation", "datasets/clear", "datasets/yfcc100m", "pipelines/clear")
    files = [file for file in FILES if str(file).startswith(rooms)]
    assert [file for file in files for _, name in imports(file, (ROOT / file).read_text("utf-8")) if name == "polars"] == []


def test_no_folder_of_the_tree_hides_the_package():
    assert not (ROOT / "benchwright").exists()
    assert not (ROOT / "__init__.py").exists()


def test_the_front_door_names_what_is_there_and_imports_nothing_to_do_so():
    code = (
        "import os, sys, benchwright as bw\n"
        f"print(sorted(sys.modules.keys() & {{*{HEAVY!r}, 'numpy', 'pyarrow', 'polars'}}), os.environ['MKL_CBWR'])\n"
        "print([name for name in bw.__all__ if getattr(bw, name) is None], bw.__version__, set(bw.__all__) <= set(dir(bw)))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"} | {"PYTHONSAFEPATH": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    first, second = run.stdout.splitlines()
    assert first == "[] AUTO,STRICT"
    assert second.startswith("[] 0.")
    assert second.endswith("True")


OF_EACH_BENCHMARK = {"DrawnSource", "Evaluation", "Facts", "FolderSource", "Sampled", "TableSource"}
"""Classes that several benchmarks have, each its own, of one meaning: settings, facts, and rows of shards."""


def homonyms(sources: Mapping[Path, str]) -> dict[str, list[str]]:
    """Public names of several classes, of a class and a type alias, or of aliases of different types, with their files.

    An alias may be defined again in a room that may not import the first one, if it stands for the same type.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for file, source in sources.items():
        for node in tree_of(source).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, {})[f"class of {file}"] = [str(file)]
            elif (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and re.match(r"[A-Z]\w*[a-z]", ast.unparse(node.targets[0]))
            ):
                meanings = found.setdefault(ast.unparse(node.targets[0]), {})
                meanings.setdefault(ast.unparse(node.value), []).append(str(file))
    return {name: [file for files in each.values() for file in files] for name, each in found.items() if len(each) > 1}


def test_no_class_or_type_alias_has_the_name_of_another():
    found = homonyms({file: (ROOT / file).read_text("utf-8") for file in FILES})
    public = {name: files for name, files in found.items() if not name.startswith("_") and name not in OF_EACH_BENCHMARK}
    assert public == {}


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        ("class Label: ...", "class Label: ...", True),
        ("class Label: ...", "Label = int | str", True),
        ("Label = int", "Label = int | str", True),
        ("Label = NDArray[np.int64]", "Label = NDArray[np.int64]", False),
        ("LABEL = 1", "LABEL = 2", False),
        ("class Label: ...", "Labels = list[int]", False),
    ],
)
def test_the_check_of_names_sees_each_form(first, second, wrong):
    assert bool(homonyms({Path("curation/a.py"): first, Path("eval/b.py"): second})) is wrong


def test_no_room_has_a_drawer_for_odds_and_ends():
    assert [str(file) for file in FILES if file.stem in ("utils", "util", "helpers", "misc", "common")] == []


def test_init_files_hold_a_docstring_and_nothing_else():
    full = []
    for file in FILES:
        if file.name == "__init__.py":
            tree = ast.parse((ROOT / file).read_text("utf-8"))
            if len(tree.body) != 1 or not ast.get_docstring(tree):
                full.append(str(file))
    assert full == []


def test_no_file_is_run_as_code():
    assert over_all_files(unsafe_calls) == []


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("pickle.load(stream)", 1),
        ("torch.load(path)", 1),
        ("torch.load(path, weights_only=False)", 1),
        ("torch.load(path, weights_only=True)", 0),
        ("subprocess.run(command, shell=True)", 1),
        ("model.eval()", 0),
    ],
)
def test_the_check_of_calls_sees_each_form(source, wrong):
    assert len(unsafe_calls(Path("curation/x.py"), source)) == wrong


def test_dask_is_named_where_workers_are():
    users = {
        str(file)
        for file in FILES
        for _, name in imports(file, (ROOT / file).read_text("utf-8"))
        if name.split(".")[0] in ("dask", "distributed")
    }
    assert users <= {"curation/cluster_workers.py", "curation/local_cluster.py", "curation/parts_at_scheduler.py"}


def test_help_pays_for_no_heavy_library(tmp_path):
    code = f"import sys, benchwright.pipelines.cli.main; print([name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONSAFEPATH": "1"}
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"


def test_files_that_come_first_are_there() -> None:
    assert [name for name in DEAR if not (ROOT / "tests" / name).is_file()] == []
