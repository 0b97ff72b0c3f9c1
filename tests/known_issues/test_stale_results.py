"""Results of other code, other settings or other data are never shown, and exactly they are trained again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from benchwright.pipelines import api
from benchwright.pipelines.cli import main as cli

ROOT = Path(__file__).resolve().parents[2]
_EDITED = """
import json, sys
from benchwright.pipelines import api
import benchwright.pipelines.results as trained
out, methods = sys.argv[1], json.loads(sys.argv[2])
before = {"file": trained.__file__, "stale": api.stale(out), "scores": api.scores(out)}
api.report(out)
page = open(f"{out}/report.html").read()
told = []
api.train(out, methods=methods["methods"], protocols=methods["protocols"], progress=told.append)
print(json.dumps({**before, "page": page, "told": told, "after": api.stale(out), "again": api.scores(out)}))
"""


class Case(NamedTuple):
    benchmark: str
    settings: list[str]
    edited: str
    """The method of the first folder below that an edit of ``file`` changes; ``old`` is replaced by ``new``."""
    other: str
    protocols: list[str]
    file: str
    old: str
    new: str


QUICK = "evaluation.settings.schedule.epochs=1"
CASES = [
    Case(
        "clear",
        ["baselines.epochs=1", "baselines.decay_after_epochs=1"],
        "nap-finetune",
        "cumulative-finetune",
        ["iid"],
        "training/methods/nap.py",
        "len(sizes) == 1 else",
        "len(sizes) < 2 else",
    ),
    Case("vclimb", [QUICK], "ewc", "naive", [], "training/methods/ewc.py", "gradient**2", "gradient * gradient"),
]


def edited_package(case: Case, folder: Path) -> Path:
    """A copy of the package in which one line of one method differs."""
    package = folder / "benchwright"
    for name in ("curation", "datasets", "training", "eval", "pipelines"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "front_door" / "__init__.py", package)
    text = (package / case.file).read_text()
    assert text.count(case.old) == 1
    (package / case.file).write_text(text.replace(case.old, case.new))
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.benchmark)
def test_an_edited_method_is_stale_and_trained_again_and_no_other(case: Case, tmp_path: Path) -> None:
    out, methods = str(tmp_path / "out"), [case.edited, case.other]
    api.run(api.job(case.benchmark, config="tiny", overrides=case.settings), out, scheduler="sync")
    first = api.train(out, methods=methods, protocols=case.protocols)
    assert {name for found in first.values() for name in found} == set(methods)
    assert api.stale(out) == {}
    kept = {path: path.stat().st_mtime_ns for path in Path(out, "eval").rglob(f"*/{case.other}/**/progress.json")}
    kept |= {path: path.stat().st_mtime_ns for path in Path(out, "eval").rglob(f"{case.other}/errors.csv")}
    assert kept
    told = after_edit(case, out, tmp_path)
    assert all(case.edited in Path(place).parts for place in told["stale"])
    assert all("the code of training." in why and why.endswith(" changed") for why in told["stale"].values())
    assert {name for found in told["scores"].values() for name in found} == {case.other}
    assert f">{case.edited}<" not in told["page"]
    again = [line for line in told["told"] if "made anew" in line]
    assert again
    assert all(f"/{case.edited}" in line for line in again)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert told["after"] == {}
    assert {name for found in told["again"].values() for name in found} == set(methods)


def after_edit(case: Case, out: str, tmp_path: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(edited_package(case, tmp_path / "edited")), "PYTHONSAFEPATH": "1"}
    asked = json.dumps({"methods": [case.edited, case.other], "protocols": case.protocols})
    command = [sys.executable, "-c", _EDITED, out, asked]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["file"].startswith(str(tmp_path))
    return told


def test_scores_of_other_settings_are_left_out_and_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path)
    run = ["run", "clear", "--config", "tiny", "--out", out, "-q", "--set", "baselines.epochs=1"]
    assert cli.call(run) == 0
    assert cli.call(["train", out, "--method", "nap-finetune", "--protocol", "iid", "-q"]) == 0
    assert cli.call([*run, "--set", "baselines.batch_size=16"]) == 0
    capfd.readouterr()
    assert cli.call(["eval", out]) == 1
    told = capfd.readouterr()
    assert "nap-finetune: hyper.batch_size was 32 and is 16" in told.err
    assert told.out == ""
    assert api.scores(out) == {}


def test_a_checkpoint_of_other_code_is_not_gone_on_from(tmp_path: Path) -> None:
    """A training that was killed under other code begins anew: its progress names the code."""
    case, out = CASES[0], str(tmp_path / "out")
    api.run(api.job("clear", config="tiny", overrides=case.settings), out, scheduler="sync")
    api.train(out, methods=[case.edited, case.other], protocols=["iid"])
    for path in Path(out, "eval/iid").glob("*/results.json"):
        path.unlink()
    told = after_edit(case, out, tmp_path)
    again = [line for line in told["told"] if "made anew" in line]
    assert {Path(line.partition(":")[0]).parent.name for line in again} == {"nap-finetune"}
    assert all("the code of training.methods.nap.nap changed" in line for line in again)


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "other"])
def test_a_damaged_checkpoint_is_told_and_made_again(damage: str, tmp_path: Path) -> None:
    out = str(tmp_path)
    api.run(api.job("clear", config="tiny", overrides=["baselines.epochs=1"]), out, scheduler="sync")
    train = {"methods": ["nap-finetune"], "protocols": ["iid"]}
    first = api.train(out, **train)
    seed = tmp_path / "eval/iid/nap-finetune/seed1"
    (checkpoint,) = seed.glob("after-*")
    data = checkpoint.read_bytes()
    if damage == "cut":
        checkpoint.write_bytes(data[:100])
    elif damage == "flipped":
        checkpoint.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    elif damage == "text":
        (seed / "progress.json").write_text("{")
    else:
        held = json.loads((seed / "progress.json").read_text())
        (seed / "progress.json").write_text(json.dumps({**held, "correct": "x"}))
    told: list[str] = []
    assert api.train(out, **train, progress=told.append) == first
    (line,) = [line for line in told if "made anew" in line]
    assert line.startswith(f"{seed}: made anew: {seed}/")


@pytest.mark.parametrize(
    ("benchmark", "overrides", "failing", "fine"),
    [
        ("vclimb", ["evaluation.method_settings.ewc.schedule.learning_rate=1e30", QUICK], "ewc", "naive"),
    ],
)
def test_a_loss_that_is_not_finite_stops_its_method_alone(
    benchmark: str, overrides: list[str], failing: str, fine: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path)
    api.run(api.job(benchmark, config="tiny", overrides=overrides), out, scheduler="sync")
    capfd.readouterr()
    assert cli.call(["train", out, "--method", failing, "--method", fine, "-q"]) == 1
    told = capfd.readouterr()
    assert told.err.count("\n") == 1
    assert f"/{failing}" in told.err
    assert "not finite" in told.err or "loss is nan" in told.err or "loss is inf" in told.err
    assert "change evaluation." in told.err
    assert {name for found in api.scores(out).values() for name in found} == {fine}
