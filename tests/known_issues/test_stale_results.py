"""An edit of one of the package's own methods makes its trainings stale, and they alone are trained again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
out, methods, protocols = sys.argv[1], *map(json.loads, sys.argv[2:])
before = {"file": experiments.__file__, "stale": api.stale(out), "scores": api.scores(out)}
page = open(api.report(out)).read()
told = []
again = api.train(out, methods=methods, protocols=protocols, progress=told.append)
print(json.dumps({**before, "page": page, "told": told, "left": api.stale(out), "again": again}))
"""


def edited_package(folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of the package in which one line of one method differs."""
    package = copy_package(folder)
    text = (package / file).read_text()
    assert text.count(old) == 1
    (package / file).write_text(text.replace(old, new))
    return folder


@pytest.mark.parametrize(
    ("benchmark", "settings", "edited", "other", "protocols", "edit"),
    [
        (
            "clear",
            ["baselines.epochs=1", "baselines.decay_after_epochs=1"],
            "nap-finetune",
            "cumulative-finetune",
            ["iid"],
            ("training/methods/nap.py", "len(sizes) == 1 else", "len(sizes) < 2 else"),
        ),
        (
            "vclimb",
            ["evaluation.settings.schedule.epochs=1"],
            "ewc",
            "finetune",
            [],
            ("training/methods/ewc.py", "gradient**2", "gradient * gradient"),
        ),
    ],
)
def test_an_edited_method_alone_is_stale_and_trained_again(
    benchmark: str,
    settings: list[str],
    edited: str,
    other: str,
    protocols: list[str],
    edit: tuple[str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(baselines, "SEEDS", (0, 1))  # of CLEAR's five
    out, methods = str(tmp_path / "out"), [edited, other]
    api.run(api.job(benchmark, config="tiny", overrides=settings), out, scheduler="sync")
    first = api.train(out, methods=methods, protocols=protocols)
    assert {name for found in first.values() for name in found} == set(methods)
    assert api.stale(out) == {}
    environment = {**os.environ, "PYTHONPATH": str(edited_package(tmp_path / "edited", *edit)), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", _EDITED, out, json.dumps(methods), json.dumps(protocols)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["file"].startswith(str(tmp_path))
    module = edit[0].removesuffix(".py").replace("/", ".")
    assert told["stale"]
    assert all(name.endswith(f" {edited}") and module in why for name, why in told["stale"].items())
    assert {name for found in told["scores"].values() for name in found} == {other}
    assert f">{edited}<" not in told["page"]
    again = [line for line in told["told"] if line.endswith(": trained")]
    assert again
    assert all(f" {edited}, seed " in line for line in again)
    assert sum(line.endswith(": up to date") for line in told["told"]) == len(again)
    assert told["left"] == {}
    assert {name for found in told["again"].values() for name in found} == set(methods)
