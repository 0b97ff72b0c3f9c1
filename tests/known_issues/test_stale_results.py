"""An edit of one of the package's own methods makes its trainings stale, and they alone are trained again."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchwright.pipelines import api
from benchwright.pipelines.clear import baselines

from tests.files import copy_package

_EDITED = """
import json, sys
from benchwright.eval.report import figures
from benchwright.pipelines import api, experiments
from benchwright.pipelines.clear import baselines
baselines.SEEDS = (0, 1)
figures._svg = lambda *_: b'<svg xmlns="http://www.w3.org/2000/svg"/>'  # pictures take most of a report's time
for run in json.load(sys.stdin):
    out, methods, protocols = run
    before = {"file": experiments.__file__, "stale": api.stale(out), "scores": api.scores(out)}
    page = open(api.report(out)).read()
    told = []
    again = api.train(out, methods=methods, protocols=protocols, progress=told.append)
    print(json.dumps({**before, "page": page, "told": told, "left": api.stale(out), "again": again}))
"""


@dataclasses.dataclass(frozen=True)
class Edited:
    """Trainings of a benchmark, one method of which is edited: a line of a file, that becomes another one."""

    settings: list[str]
    method: str
    other: str
    protocols: list[str]
    file: str
    old: str
    new: str

    @property
    def methods(self) -> list[str]:
        return [self.method, self.other]


EDITS = {
    "clear": Edited(
        ["baselines.epochs=1", "baselines.decay_after_epochs=1"],
        "nap-finetune",
        "cumulative-finetune",
        ["iid"],
        "training/methods/nap.py",
        "len(sizes) == 1 else",
        "len(sizes) < 2 else",
    ),
    "vclimb": Edited(
        ["evaluation.settings.schedule.epochs=1"],
        "ewc",
        "finetune",
        [],
        "training/methods/ewc.py",
        "gradient**2",
        "gradient * gradient",
    ),
}


def edited_package(folder: Path) -> Path:
    """A copy of the package in which one line of each edited method differs."""
    package = copy_package(folder)
    for edit in EDITS.values():
        text = (package / edit.file).read_text()
        assert text.count(edit.old) == 1
        (package / edit.file).write_text(text.replace(edit.old, edit.new))
    return folder


@pytest.fixture(scope="module")
def told_of(finished: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a process with the edited package tells of the trainings of each benchmark: one, since it takes seconds to begin."""
    folder = tmp_path_factory.mktemp("stale")
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "SEEDS", (0, 1))  # of CLEAR's five
        for name, edit in EDITS.items():
            out = str(shutil.copytree(finished(name), folder / name))
            api.run(api.job(name, config="tiny", overrides=edit.settings), out, scheduler="sync")
            first = api.train(out, methods=edit.methods, protocols=edit.protocols)
            assert {name for found in first.values() for name in found} == set(edit.methods)
            assert api.stale(out) == {}
            runs.append([out, edit.methods, edit.protocols])
    environment = {**os.environ, "PYTHONPATH": str(edited_package(folder / "edited")), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", _EDITED]
    done = subprocess.run(command, input=json.dumps(runs), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told = dict(zip(EDITS, map(json.loads, done.stdout.splitlines()), strict=True))
    assert {Path(each["file"]).parents[2] for each in told.values()} == {folder / "edited"}
    return told


@pytest.mark.parametrize("benchmark", EDITS)
def test_an_edited_method_alone_is_stale_and_trained_again(told_of: dict[str, dict[str, Any]], benchmark: str) -> None:
    told, edit = told_of[benchmark], EDITS[benchmark]
    module = edit.file.removesuffix(".py").replace("/", ".")
    assert told["stale"]
    assert all(name.endswith(f" {edit.method}") and module in why for name, why in told["stale"].items())
    assert {name for found in told["scores"].values() for name in found} == {edit.other}
    assert f">{edit.method}<" not in told["page"]
    again = [line for line in told["told"] if line.endswith(": trained")]
    assert again
    assert all(f" {edit.method}, seed " in line for line in again)
    assert sum(line.endswith(": up to date") for line in told["told"]) == len(again)
    assert told["left"] == {}
    assert {name for found in told["again"].values() for name in found} == set(edit.methods)
