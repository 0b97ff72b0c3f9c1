"""Passes are compiled once, and loaded without numba from then on."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchwright.curation.compiled import Passes, compiled

SOURCE = """
import numba
from numba import types

@numba.cfunc(types.int64(types.CPointer(types.int64), types.int64, types.int64), error_model="numpy")
def add(values, count, number):
    total = 0
    for n in range(count):
        values[n] += number
        total += values[n]
    return total
"""

NEEDS_PYTHON = """
import numba
from numba import types

@numba.cfunc(types.int64(types.int64), error_model="numpy")
def fail(number):
    if number == 3:
        raise ValueError("three")
    return number
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for modules, and beside it a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("some_passes", None)


def written(folder: Path, source: str = SOURCE) -> Passes:
    (folder / "some_passes.py").write_text(source)
    importlib.invalidate_caches()
    sys.modules.pop("some_passes", None)

    def load() -> ModuleType:
        (folder / "loaded").touch()
        return importlib.import_module("some_passes")

    return Passes("some_passes", load)


def loads(folder: Path) -> bool:
    """Whether the module was imported since this was last asked."""
    found = (folder / "loaded").exists()
    (folder / "loaded").unlink(missing_ok=True)
    return found


def cached(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("some_passes-*"))


def check(passes: Passes) -> None:
    values = np.arange(5)
    assert passes.add(values, 4, 10) == 46
    assert values.tolist() == [10, 11, 12, 13, 4]


def test_a_pass_is_compiled_once(folder: Path) -> None:
    for compiles in (True, False):
        check(written(folder))
        assert loads(folder) == compiles
    assert len(cached(folder)) == 1


def test_another_text_is_compiled_again(folder: Path) -> None:
    check(written(folder))
    changed = written(folder, SOURCE.replace("+= number", "+= 2 * number"))
    assert changed.add(np.arange(5), 1, 10) == 20
    assert len(cached(folder)) == 2


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "bit", "names"])
def test_a_damaged_cache_is_made_again(folder: Path, damage: str) -> None:
    check(written(folder))
    (path,) = cached(folder)
    whole = path.read_bytes()
    damaged = {
        "empty": b"",
        "text": "no object file\n\u0661\n\n".encode(),
        "cut": whole[:-1],
        "bit": whole[:-1] + bytes([whole[-1] ^ 1]),
        "names": whole.replace(b"\nadd\n", b"\nadd malloc\n"),
    }[damage]
    assert damaged != whole
    path.write_bytes(damaged)
    loads(folder)
    for compiles in (True, False):
        check(written(folder))
        assert loads(folder) == compiles


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path) -> None:
    (folder / "cache").write_text("a file where a folder should be")
    check(written(folder))
    check(written(folder))
    assert loads(folder)


@pytest.mark.parametrize("home", ["none", "relative"])
def test_a_user_without_a_home_has_no_cache(folder: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    def user_cache_path(name: str) -> Path:
        if home == "none":
            raise RuntimeError("could not determine the home directory")
        return Path("~/.cache") / name

    monkeypatch.setattr("platformdirs.user_cache_path", user_cache_path)
    monkeypatch.chdir(folder)
    check(written(folder))
    check(written(folder))
    assert loads(folder)
    assert not list(folder.rglob("some_passes-*"))


def test_nothing_is_left_of_a_cache_that_could_not_be_written(folder: Path) -> None:
    check(written(folder))
    (path,) = cached(folder)
    path.unlink()
    path.mkdir()
    check(written(folder))
    assert list(path.parent.iterdir()) == [path]


def test_an_attribute_that_is_missing_while_passes_are_compiled_is_named(folder: Path) -> None:
    broken = written(folder, SOURCE.replace("types.CPointer", "types.Pointer"))
    # A process of its own: what waits for its own lock cannot be stopped from within.
    script = f"""
import sys
sys.path.insert(0, {str(folder)!r})
from benchwright.curation.compiled import Passes
Passes("some_passes", lambda: __import__("some_passes")).add
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stderr.splitlines()[-1].startswith("AttributeError: ")
    assert "'Pointer'" in run.stderr.splitlines()[-1]
    with pytest.raises(AttributeError, match="no pass '__wrapped__'"):
        broken.__wrapped__  # noqa: B018


def test_what_may_raise_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"some_passes needs .*PyErr.*: a pass may raise, or makes an array"):
        written(folder, NEEDS_PYTHON).fail(3)


def test_views_with_gaps_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="must be C-contiguous"):
        written(folder).add(np.arange(10)[::2], 4, 1)


def test_numba_is_not_loaded_where_passes_are_cached() -> None:
    script = """
import sys
from benchwright.datasets.yfcc100m.fields import NEEDED
from benchwright.datasets.yfcc100m.scan import Scanner
for _ in range(2):
    (found,) = Scanner(NEEDED, NEEDED, ["id"], None)(b"a\\tb\\n")
    assert found.unclear.spans.tolist() == [[0, 4]]
print("numba" in sys.modules)
"""
    run = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in range(2)]
    assert run[1].stdout.strip() == "False"


@pytest.mark.parametrize("what", ["file", "folder", "above", "link"])
def test_code_is_not_loaded_from_where_others_may_write(folder: Path, what: str) -> None:
    check(written(folder))
    (path,) = cached(folder)
    loads(folder)
    if what == "link":
        path.rename(folder / "elsewhere.o")
        path.symlink_to(folder / "elsewhere.o")
    else:
        ({"file": path, "folder": path.parent, "above": folder / "cache"}[what]).chmod(0o777)
    check(written(folder))
    assert loads(folder)


def test_the_cache_is_its_owners_alone_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        check(written(folder))
    finally:
        os.umask(before)
    (path,) = cached(folder)
    assert [each.stat().st_mode & 0o077 for each in (path, path.parent, path.parent.parent)] == [0, 0, 0]
    (folder / "cache").chmod(0o700)
    loads(folder)
    check(written(folder))
    assert not loads(folder)


def doubled(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize(("mode", "used"), [(0o700, True), (0o777, False), (0o770, False)])
def test_numbas_own_cache_is_used_where_nobody_else_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, used: bool
) -> None:
    """What lies there is unpickled and run by whoever comes next."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "shared/cache"))
    assert compiled(doubled)(4) == 8
    assert bool(list(tmp_path.rglob("*.nbi"))) is used


def test_numbas_cache_beside_a_module_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_passes.py").write_text("def doubled(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    tmp_path.chmod(0o770)  # as a checkout is with a group of one's own
    assert compiled(importlib.import_module("beside_passes").doubled)(4) == 8
    assert list((tmp_path / "__pycache__").glob("*.nbi"))
