"""Code that was edited after it was imported is not run under the key of what it is now: here, and at workers of a cluster."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
from benchwright.curation.code_changes import differs, to_check
from benchwright.curation.flow import Flow, PlanError, source, step
from benchwright.curation.keys import named, where
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.run import run

from tests.curation import steps
from tests.installed import Install, installer

distributed = pytest.importorskip("distributed")

for each in (steps, sys.modules[__name__]):  # workers cannot import the tests: what is in them travels with the tasks
    cloudpickle.register_pickle_by_value(each)

CODE = """
import dataclasses


@dataclasses.dataclass(frozen=True)
class Marked:
    key: str
    value: int


def mark(row: Marked) -> Marked:
    return dataclasses.replace(row, value=row.value + added())


def added():
    return 1


def unused():
    return 1
"""
MORE = CODE.replace("return 1", "return 100", 1)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    return installer(tmp_path, monkeypatch)


@pytest.fixture
def pack(install: Install) -> Path:
    """A package of the user's, on the path of this process."""
    return install("marking", "1.0", {"marking/__init__.py": "", "marking/steps.py": CODE}, {}) / "marking/steps.py"


def write(path: Path, text: str) -> None:
    time.sleep(0.02)  # what the clock of a file system can tell apart
    path.write_text(text)


def fresh(name: str = "marking.steps") -> ModuleType:
    for each in [each for each in sys.modules if each.partition(".")[0] == "marking"]:
        del sys.modules[each]
    return importlib.import_module(name)


def flow_of(tmp_path: Path, function: Any, **settings: Any) -> Flow:
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n")
    listed = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")), max_rejects=None)
    return listed.each("marked", step(function, **settings))


def test_an_imported_module_that_was_edited_is_refused_until_it_is_reloaded(pack: Path, tmp_path: Path) -> None:
    module, out = fresh(), str(tmp_path / "out")
    flow = flow_of(tmp_path, module.mark)
    before = run(flow, out).rows().table(["value"])["value"].to_pylist()
    write(pack, CODE.replace("def unused():\n    return 1", "def unused():\n    return 2  # of no importance"))
    flow = flow.each("again", step(module.mark))
    run(flow, out)  # what is reached is the same
    write(pack, MORE)
    with pytest.raises(PlanError, match=r"^stage 'marked': marking\.steps\.added was edited after this process imported it: "):
        run(flow, out)
    flow = flow_of(tmp_path, importlib.reload(module).mark)
    assert run(flow, out).rows().table(["value"])["value"].to_pylist() == [number + 99 for number in before]


def test_an_edit_before_the_first_run_is_refused(pack: Path, tmp_path: Path) -> None:
    module = fresh()
    write(pack, MORE)
    with pytest.raises(PlanError, match=rf"^stage 'marked': {pack} was edited after this process imported it: restart Python"):
        run(flow_of(tmp_path, module.mark), str(tmp_path / "out"))
    assert run(flow_of(tmp_path, fresh().mark), str(tmp_path / "out")).result.rows == 3


def test_steps_that_were_typed_in_are_refused_for_no_key_can_tell_an_edit(tmp_path: Path) -> None:
    typed = (
        "import dataclasses\nimport benchwright as bw\nRow = dataclasses.make_dataclass('Row', [('key', str)], frozen=True)\n"
        "def listed() -> list[Row]:\n    return [Row('a')]\n"
        "from benchwright.curation.run import run\nrun(bw.source('listed', bw.step(listed)), 'out', scheduler='sync')\n"
    )
    done = subprocess.run([sys.executable, "-c", typed], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (
        "PlanError: stage 'listed': listed is not in a file, so an edit could not be detected: import it from one"
        in done.stderr
    )


# ------------------------------------------------------------------------------------------------------------ a cluster


def apply(row: steps.Number, *, by: Callable[[int], int]) -> steps.Number:
    return steps.Number(row.key, by(row.value))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, protocol="tcp://", host="127.0.0.1", dashboard_address=None, silence_logs="ERROR"
    ) as cluster:
        yield cluster


@pytest.fixture
def at_worker(cluster: Any, pack: Path) -> Iterator[None]:
    """The package is on the path of the worker, too."""
    root = str(pack.parents[1])

    def come() -> None:
        sys.path.insert(0, root)

    def go() -> None:
        sys.path.remove(root)
        for each in [each for each in sys.modules if each.partition(".")[0] == "marking"]:
            del sys.modules[each]

    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        client.run(come)
        yield
        client.run(go)


def test_a_worker_that_has_another_version_in_memory_refuses(cluster: Any, at_worker: None, pack: Path, tmp_path: Path) -> None:
    run(flow_of(tmp_path, fresh().mark), str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    write(pack, MORE)
    again = flow_of(tmp_path, fresh().mark)
    told = r"^stage 'marked': worker tcp://127\.0\.0\.1:\d+: marking\.steps\.added was edited after this process imported it: "
    with pytest.raises(StepFailed, match=told):
        run(again, str(tmp_path / "out"), scheduler=cluster.scheduler_address)


def test_a_worker_whose_files_are_others_refuses(cluster: Any, pack: Path, tmp_path: Path) -> None:
    """As on another machine, where an earlier version is installed; and where a file of settings is another."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "marking").mkdir(parents=True)
    (elsewhere / "marking/__init__.py").touch()
    (elsewhere / "marking/steps.py").write_text(MORE)
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        client.run(sys_path, "insert", str(elsewhere))
        told = r"^stage 'marked': worker \S+: marking\.steps\.added differs here from the machine that started the run: update"
        with pytest.raises(StepFailed, match=told):
            run(flow_of(tmp_path, fresh().mark), str(tmp_path / "out"), scheduler=cluster.scheduler_address)
        client.run(sys_path, "remove", str(elsewhere))


def sys_path(what: str, folder: str) -> None:
    if what == "insert":
        sys.path.insert(0, folder)
        return
    sys.path.remove(folder)
    for each in [each for each in sys.modules if each.partition(".")[0] == "marking"]:
        del sys.modules[each]


def test_a_worker_without_a_package_is_one_line(cluster: Any, pack: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(StepFailed, match=r"^stage 'marked': worker tcp://\S+:\d+ has no module 'marking': install there what"):
        run(flow_of(tmp_path, fresh().mark), str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert time.monotonic() - started < 30


def test_files_that_settings_name_must_be_the_same_at_workers(tmp_path: Path) -> None:
    file = tmp_path / "named_here.py"
    file.write_text("def twice(x):\n    return 2 * x\n")
    there = to_check(flow_of(tmp_path, apply, by=named(f"{file}:twice")).stage("marked"))
    assert differs(*there) == ""
    write(file, "def twice(x):\n    return 3 * x\n")
    assert differs(*there) == f"{file} differs here from the machine that started the run"
