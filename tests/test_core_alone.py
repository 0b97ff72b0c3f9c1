"""The core without extras: how much it brings, what runs with it, and what is said where it is not enough.

The environment is a virtual one of a copy of the wheel and links to the packages that it asks for without extras.
A real installation of both is tried by ``benchmarks/check_install.py``.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from benchwright.curation.extras import EXTRAS, NeedsPackage, lacking
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRA_LINES = PROJECT["optional-dependencies"]
MOST_PACKAGES, MOST_BYTES = 45, 400_000_000
"""43 and 394 MB are there. aiohttp brought four more than httpx had, and 10 MB; it downloads at several times httpx's rate."""

OWN = """
import importlib, time
from collections.abc import Iterator
from dataclasses import dataclass

import benchwright as bw

@dataclass(frozen=True)
class Row:
    key: str

def rows(*, count: int) -> Iterator[Row]:
    for n in range(count):
        yield Row(str(n))

def looked_for(row: Row, *, name: str) -> Row:
    importlib.import_module(name)
    return row

def drawn(row: Row) -> Row:
    import colour
    return row

@dataclass(frozen=True)
class Config:
    plainly: bool

def plan(config: Config, out: str) -> bw.Flow:
    last = bw.step(drawn) if config.plainly else bw.step(looked_for, name="cv2")
    return bw.source("made", bw.step(rows, count=3)).each("seen", last)

BENCHMARK = bw.Benchmark("own", "Steps that need packages", Config, plan)
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def core() -> dict[str, importlib.metadata.Distribution]:
    """Every distribution that the wheel brings without extras."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [Requirement(line) for line in PROJECT["dependencies"]]
    while waiting:
        held = importlib.metadata.distribution(waiting.pop().name)
        if normal(held.name) not in found:
            found[normal(held.name)] = held
            asked = map(Requirement, held.requires or ())
            waiting += [each for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def python(core: dict[str, importlib.metadata.Distribution], wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that has the core and nothing else."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for held in core.values():
        for top in {file.parts[0] for file in held.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(held.locate_file(top))))
    for path in wheel.iterdir():
        shutil.copytree(path, packages / path.name)
    return folder / "bin/python"


class Told:
    """What a command of ``benchwright`` ended with."""

    def __init__(self, python: Path, words: str, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [python, "-m", "benchwright.pipelines.cli.main", *words.split()]
        told = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=kept, timeout=300)
        self.code, self.out, self.err = told.returncode, told.stdout, told.stderr


def size_of(held: importlib.metadata.Distribution) -> int:
    paths = (Path(str(held.locate_file(file))) for file in held.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def test_it_is_light(core: dict[str, importlib.metadata.Distribution], wheel: Path) -> None:
    own = sum(path.stat().st_size for path in wheel.rglob("*") if path.is_file())
    assert len(core) + 1 < MOST_PACKAGES, sorted(core)
    assert own + sum(map(size_of, core.values())) < MOST_BYTES, {name: size_of(held) for name, held in core.items()}


def test_every_package_that_is_told_is_in_its_extra() -> None:
    owners = importlib.metadata.packages_distributions()
    for module, extra in EXTRAS.items():
        names = {normal(Requirement(line).name) for line in _lines(extra)}
        known = {normal(name) for name in owners.get(module, [module])}
        assert known & names, (module, extra)


def _lines(extra: str) -> list[str]:
    lines = EXTRA_LINES[extra]
    inner = [each for line in lines if (own := Requirement(line)).name == "benchwright" for each in own.extras]
    return [*lines, *(line for each in inner for line in _lines(each))]


def test_all_is_every_extra_but_those_that_exclude_each_other_or_serve_the_project() -> None:
    (line,) = EXTRA_LINES["all"]
    assert Requirement(line).extras == EXTRA_LINES.keys() - {"all", "demo", "dev", "gpu"}


@pytest.mark.parametrize("name", ["iirc", "skeleton"])
def test_a_tiny_benchmark_runs(python: Path, name: str, tmp_path: Path) -> None:
    made = Told(python, f"run {name} --config tiny --out out -q", tmp_path)
    assert (made.code, made.err) == (0, "")
    golden = (ROOT / f"tests/golden/{name}.tiny.json").read_text()
    assert re.search(r"digest (\w{64})", made.out)[1] in golden
    told = Told(python, "report out", tmp_path)
    assert told.code == 0, told.err
    if name == "iirc":
        told = Told(python, "train out", tmp_path)
        assert (told.code, told.err) == (2, "benchwright: needs the package torch: pip install 'benchwright[train]'\n")


def test_a_run_with_trainings_misses_their_extra_first(python: Path, tmp_path: Path) -> None:
    told = Told(python, "run skeleton --config tiny --out out -q --train", tmp_path)
    assert (told.code, told.err) == (2, "benchwright: needs the package torch: pip install 'benchwright[train]'\n")
    assert not (tmp_path / "out").exists()


def test_the_documentations_pipeline_runs(python: Path, tmp_path: Path) -> None:
    for file in (ROOT / "docs/examples").glob("shapes.*"):
        shutil.copy(file, tmp_path)
    made = Told(python, "run shapes.py --out out -q", tmp_path)
    assert (made.code, made.err) == (0, "")
    assert Told(python, "qa export out", tmp_path).code == 0
    told = Told(python, "report out", tmp_path)
    assert told.code == 0, told.err


@pytest.mark.parametrize(("words", "line"), [
    ("run clear --config tiny --out out", "stage 'retrieved' needs the package faiss: pip install 'benchwright[encoders]'"),
    ("plan two_camera --config tiny --out out", "needs the package cv2: pip install 'benchwright[images]'"),
    ("run own.py --set plainly=true --out out", "stage 'seen' needs the package colour: pip install 'benchwright[colour]'"),
    ("plan own.py --set plainly=true --out out", "stage 'seen' needs the package colour: pip install 'benchwright[colour]'"),
])  # fmt: skip
def test_what_is_missing_is_told_before_anything_is_made(python: Path, words: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "own.toml").write_text("plainly = false\n")
    told = Told(python, words, tmp_path)
    assert (told.code, told.err) == (2, f"benchwright: {line}\n")
    assert not (tmp_path / "out/stages").exists()


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_what_no_text_tells_is_told_by_the_stage(python: Path, scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "own.toml").write_text("plainly = false\n")
    told = Told(python, f"run own.py --out out -q --scheduler {scheduler} --workers 1", tmp_path)
    assert (told.code, told.err) == (2, "benchwright: stage 'seen' needs the package cv2: pip install 'benchwright[images]'\n")


def test_a_cluster_needs_its_extra(python: Path, tmp_path: Path) -> None:
    told = Told(python, "run iirc --config tiny --out out -q --scheduler tcp://127.0.0.1:1", tmp_path)
    assert (told.code, told.err) == (2, "benchwright: needs the package distributed: pip install 'benchwright[cluster]'\n")


def test_only_what_an_extra_brings_is_told() -> None:
    assert lacking(ModuleNotFoundError("No module named 'mine'", name="mine")) == ""
    assert lacking(ImportError("libcudart.so.13: cannot open shared object file", name="torch")) == ""
    wrapped = RuntimeError("a stage failed")
    wrapped.__cause__ = ModuleNotFoundError("No module named 'av'", name="av.video")
    assert lacking(wrapped) == "needs the package av: pip install 'benchwright[video]'"
    assert lacking(NeedsPackage("as it was told")) == "as it was told"
