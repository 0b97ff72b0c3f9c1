"""One run of the tiny CLEAR for all tests of the command line, and the command line itself, called in this process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from benchwright.pipelines.cli import main as cli

from .forked import forked

Cli = Callable[..., "Told"]


class Told(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def bw(capfd: pytest.CaptureFixture[str]) -> Cli:
    """``bw("show", folder)`` gives exit code, standard output and standard error."""

    def call(*arguments: object) -> Told:
        capfd.readouterr()
        code = cli.call([str(argument) for argument in arguments])
        return Told(code, *capfd.readouterr())

    return call


@pytest.fixture
def two_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLEAR's methods are trained with two of their five seeds, for tests to which their number is no matter."""
    from benchwright.pipelines.clear import baselines  # here: some tests are of what is imported when

    monkeypatch.setattr(baselines, "SEEDS", (0, 1))


@pytest.fixture(scope="session")
def drawn_release(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the layout of the released augmented set: after each pair of S20, 99 rows with lights and charts of others."""
    pairs = json.loads((shared_data / "two_camera" / "s20_metadata_162_pairs.json").read_text())
    rows, draw = [], np.random.default_rng(0)
    for number, pair in enumerate(pairs):
        rows.append(pair)
        for other in draw.permutation(np.delete(np.arange(len(pairs)), number))[:99]:
            light = {name: pairs[other][name] for name in ("wb_gt_1", "wb_gt_2")}
            fits = {f"transform_image_{way}": pairs[other][f"transform_chart_{way}"] for way in ("1to2", "2to1")}
            rows.append({**pair, **light, **fits})
    path = tmp_path_factory.mktemp("release") / "augmented.json"
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture(scope="session")
def tiny(finished: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the tiny CLEAR, of this worker alone: tests run in it what is up to date. Otherwise only to be read."""
    return Path(shutil.copytree(finished("clear"), tmp_path_factory.mktemp("tiny") / "run"))


@pytest.fixture(scope="session")
def shapes_waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the documentation's own pipeline, 200 pictures of which wait for people. Only to be copied."""
    folder = tmp_path_factory.mktemp("shapes")
    example = Path(__file__).resolve().parents[2] / "docs/examples/shapes.py"
    (folder / "shapes.py").write_text(example.read_text().replace(', simulated=rounds.Simulated("concept")', ""))
    run = ["run", str(folder / "shapes.py"), "--out", str(folder / "out"), "--set", "count=240", "--quiet"]
    (folder / "shapes.toml").write_text("count = 60\n")
    assert cli.call(run) == 0
    return folder / "out"


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def kill_when(ready: Callable[[], bool], process: BaseProcess) -> None:
    """Kill a command that ``forked`` began, and what it began itself, by SIGKILL; it must be at work until then."""
    deadline = time.monotonic() + 120
    while not ready():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.pid is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def kill_at_checkpoint(out: Path, *options: str, **to_forked: Any) -> None:
    """Begin `benchwright train` in another process, and kill it by SIGKILL once a training has a checkpoint."""
    began = forked("train", out, *options, **to_forked)
    kill_when(lambda: any(out.glob("experiments/stages/*/.work/*/progress.json")), began)
