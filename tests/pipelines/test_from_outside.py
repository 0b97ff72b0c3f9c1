"""All that users bring, from outside of the package, through the command line: each in one file of at most 40 lines.

| case | here, and in |
| --- | --- |
| a. one method on clear, vclimb, iirc, skeleton | ``test_code_of_ones_own`` |
| b. image backbone, clip backbone | ``test_code_of_ones_own`` (iirc, vclimb) |
| c. graph network | ``test_code_of_ones_own`` (skeleton); on other methods ``test_skeleton_experiments`` |
| d. image-text encoder | ``test_code_of_ones_own`` (clear); in three forms ``test_names`` |
| e. novelty detector | ``test_code_of_ones_own`` (kowl); in processes ``test_kowl_results`` |
| f. illuminant estimator | ``test_code_of_ones_own`` (two_camera); other contracts ``test_two_camera`` |
| g. metric | ``test_another_metric_trains_nothing``; of kowl and two_camera in their files |
| h. benchmark in an installed package | ``test_a_benchmark_of_an_installed_package_has_all_that_built_in_ones_have`` |
| i. threads, processes, a cluster | ``test_workers_of_every_kind_leave_the_same`` |

Each contract by itself, as the documentation shows it: ``tests/test_extending.py``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.installed import Install
from tests.pipelines.conftest import Cli

OUTSIDE = Path(__file__).resolve().parents[1] / "fixtures/outside"
EDITS = {
    "method": ("logits.square()", "logits.abs()"),
    "image_backbone": (".relu()", ".sigmoid()"),
    "clip_backbone": (".relu()", ".sigmoid()"),
    "graph_network": (".relu()", ".sigmoid()"),
    "encoder": ("+ 0.01\n\n", "+ 0.02\n\n"),
    "novelty": ("limit: float = 20.0", "limit: float = 15.0"),
    "estimator": ("lights.mean(axis=0)", "np.median(lights, axis=0)"),
}
"""File -> a change of what it does."""


class Case(NamedTuple):
    """A benchmark, the settings of its tiny run, what is trained, and which files are edited."""

    benchmark: str
    settings: tuple[str, ...]
    methods: tuple[str, ...]
    edits: tuple[str, ...]
    protocol: str = ""


CASES = [
    Case(
        "clear",
        ("source.count=300", "encoder.kind={}/encoder.py:MeanColour", "baselines.epochs=2", "baselines.decay_after_epochs=1"),
        ("nap-finetune", "{}/method.py:calm"),
        ("method",),
        "iid",
    ),
    Case(
        "vclimb",
        ("evaluation.model={}/clip_backbone.py:Changes", "source.classes=4", "split.tasks=2"),
        ("finetune", "{}/method.py:calm"),
        ("method", "clip_backbone"),
    ),
    Case(
        "iirc",
        (
            "evaluation.model={}/image_backbone.py:Squares",
            "evaluation.settings.model={}",
            "evaluation.settings.schedule.epochs=1",
        ),
        ("finetune", "{}/method.py:calm"),
        ("method", "image_backbone"),
    ),
    Case(
        "skeleton",
        ("evaluation.network.architecture={}/graph_network.py:Neighbours", "evaluation.schedule.epochs=2"),
        ("finetune", "{}/method.py:calm"),
        ("method", "graph_network"),
        "default",
    ),
    Case("kowl", ("evaluation.feedback=[0]",), ("evm", "{}/novelty.py:FarFromMeans"), ("novelty",)),
    Case(
        "two_camera",
        ("source.pairs=60", "evaluation.networks={}"),
        ("gray_world", "{}/estimator.py:mean_light"),
        ("estimator",),
    ),
]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's files, none of which was loaded before."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in OUTSIDE.glob("*.py"):
        (folder / file.name).write_bytes(file.read_bytes())
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
    return folder


def edit(mine: Path, name: str) -> None:
    old, new = EDITS[name]
    text = (mine / f"{name}.py").read_text()
    assert old in text
    (mine / f"{name}.py").write_text(text.replace(old, new))


def done(bw: Cli, *words: object) -> Any:
    told = bw(*words)
    assert told.code == 0, told.err
    return told


def run(bw: Cli, case: Case, mine: Path, out: Path, *settings: str) -> None:
    words = [word for text in (*case.settings, *settings) for word in ("--set", text.replace("{}/", f"{mine}/"))]
    done(bw, "run", case.benchmark, "--config", "tiny", *words, "--out", out, "-q")


def train(bw: Cli, case: Case, mine: Path, out: Path, *words: object) -> list[str]:
    """The trainings that were made, each as it is told."""
    methods = [word for name in case.methods for word in ("--method", name.replace("{}/", f"{mine}/"))]
    protocol = ["--protocol", case.protocol] if case.protocol else []
    told = done(bw, "train", out, *methods, *protocol, *words).err
    return re.findall(r"^(.*): trained$", told, re.MULTILINE)


def test_every_file_is_short() -> None:
    sizes = {file.name: len([line for line in file.read_text().splitlines() if line.strip()]) for file in OUTSIDE.glob("*.py")}
    assert max(sizes.values()) <= 40, sizes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.benchmark)
def test_code_of_ones_own(bw: Cli, case: Case, mine: Path, tmp_path: Path) -> None:
    """Run, train, eval, report, verify; and after an edit what uses the edited code is trained again, and nothing else."""
    out = tmp_path / "out"
    run(bw, case, mine, out)
    trained = train(bw, case, mine, out)
    own = case.methods[1].removeprefix("{}/")
    of_own = [name for name in trained if own in name]
    assert 0 < len(of_own) < len(trained)
    assert own in done(bw, "eval", out).out
    done(bw, "report", out)
    assert own in (out / "report.html").read_text()
    done(bw, "verify", out)
    done(bw, "verify", out / "experiments")
    for name in case.edits:
        edit(mine, name)
        again = train(bw, case, mine, out)
        assert again == (trained if name.endswith(("backbone", "network")) else of_own)
    assert train(bw, case, mine, out) == []
