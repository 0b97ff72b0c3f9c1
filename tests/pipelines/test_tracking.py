"""Trackers: what they are told, in this process and in workers, and that results do not depend on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchwright.pipelines import api
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.tracking import track_of
from benchwright.pipelines.training_results import finished_trainings, results

from tests.pipelines.conftest import Cli

OWN = """
from pathlib import Path


class Lines:
    def __init__(self, place, name, facts):
        self.file = Path(place) / f"{name}.txt"
        self.write(f"{facts['method']} {facts['seed']}")

    def write(self, line):
        with self.file.open("a") as stream:
            stream.write(line + "\\n")

    def log(self, values, step):
        for name, value in values.items():
            self.write(f"{name} {step} {value!r}")

    def close(self):
        self.write("closed")


class Broken:
    def __init__(self, place, name, facts):
        self.times = 0

    def log(self, values, step):
        raise ConnectionError("no route to the server")

    def close(self):
        raise ConnectionError("never reached")
"""


def digests(out: Path) -> dict[str, str]:
    return {one.learned.stage: one.learned.digest for one in finished_trainings(str(out))}


def trained(out: Path, track: str | None, **how: object) -> dict[str, str]:
    api.train(str(out), methods=["nap-finetune"], protocols=["iid"], track=track, **how)  # type: ignore[arg-type]
    return digests(out)


@pytest.fixture(scope="module")
def plain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of trainings that nobody watched."""
    return trained(copied(tiny, tmp_path_factory.mktemp("plain")), None)


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "run"))


def test_a_tracker_of_ones_own_in_workers(plain: dict[str, str], copy: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert trained(copy, f"{tmp_path}/own.py:Lines={tmp_path}", scheduler="processes", workers=2) == plain
    files = sorted(tmp_path.glob("*.txt"))
    assert [f"learned_{file.stem}" for file in files] == sorted(plain)
    for file in files:
        first, *lines = file.read_text().splitlines()
        again = lines.index("closed") + 1
        losses = [line.split() for line in lines[: again - 1]]
        assert first.split()[0] == "nap-finetune"
        assert losses[0][0] == "loss/task_00"
        epochs = [int(step) for name, step, _ in losses if name == "loss/task_00"]
        assert epochs == list(range(len(epochs)))
        assert len(epochs) > 1
        assert lines[again] == first  # where it is measured
        assert any(line.startswith("in_domain/test ") for line in lines[again:])
        assert lines[-1] == "closed"
    before = [file.read_text() for file in files]
    assert trained(copy, f"{tmp_path}/own.py:Lines={tmp_path}") == plain  # up to date: nothing is told again
    assert [file.read_text() for file in files] == before


def test_tensorboard(plain: dict[str, str], copy: Path, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert trained(copy, f"tensorboard={tmp_path / 'runs'}") == plain
    table = in_domain(copy)
    for stage in plain:
        read = events.EventAccumulator(str(tmp_path / "runs" / stage.removeprefix("learned_")))
        read.Reload()
        tags = read.Tags()["scalars"]
        assert {"loss/task_00", "in_domain/test"} <= set(tags)
        assert [event.step for event in read.Scalars("loss/task_00")] == list(range(len(read.Scalars("loss/task_00"))))
        (value,) = [event.value for event in read.Scalars("in_domain/test")]
        assert value == pytest.approx(table[plain[stage]], rel=1e-6)


def in_domain(out: Path) -> dict[str, float]:
    rows = results(str(out)).to_pylist()
    return {row["experiment"]: row["value"] for row in rows if row["metric"] == "in_domain" and row["position"] is None}


def test_a_tracker_that_fails_ends_no_training(plain: dict[str, str], bw: Cli, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    told = bw("train", copy, "-m", "nap-finetune", "-p", "iid", "--track", f"{tmp_path}/own.py:Broken", "-q")
    assert (told.code, digests(copy)) == (0, plain)
    lines = told.err.splitlines()  # -q leaves out what is no warning
    assert len(lines) == 2 * len(plain)  # once where it is trained, once where it is measured
    rest = "failed, and the training continues without it: ConnectionError: no route to the server"
    assert set(lines) == {f"benchwright: warning: tracker Broken {rest}"}


def test_a_tracker_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongUse, match="no tracker 'tensorbord': there are mlflow, tensorboard, wandb"):
        track_of("tensorbord=runs")
    with pytest.raises(WrongUse, match="no such file"):
        track_of(f"{tmp_path}/none.py:Lines")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(WrongUse, match="--track wandb needs the package wandb: pip install wandb"):
        track_of("wandb=project")


SEPARATE = """
import sys
from benchwright.pipelines.tracking import Track, logging_to
name = sys.argv[1]
track = Track(f"benchwright.training.trackers.{name}:{name}", sys.argv[2])
facts = {"method": "er", "seed": 3, "settings": {"schedule": {"epochs": 2}}}
with logging_to(track, "iid_er_3_0123456789", facts) as log:
    log({"loss/task_00": 0.5}, 0)
    log({"loss/task_00": 0.25}, 1)
    log({"loss/task_01": 0.75}, 0)
with logging_to(track, "iid_er_3_0123456789", facts) as log:
    log({"in_domain": 0.875}, 0)
"""


def python_of(variable: str) -> str:
    if not (python := os.environ.get(variable)):
        pytest.skip(f"{variable} names no python that has the package")
    return python


def separately(python: str, script: str, *arguments: object, **variables: str) -> str:
    """Run a script in another environment, which finds this one's packages behind its own."""
    ours = [each for each in sys.path if each.endswith("site-packages")]
    found = f"import site\nfor each in {ours!r}: site.addsitedir(each)\n{script}"
    done = subprocess.run(
        [python, "-c", found, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "tracker" not in done.stderr, done.stderr
    return done.stdout


def test_mlflow(tmp_path: Path) -> None:
    python = python_of("MLFLOW_PYTHON")
    place = tmp_path / "mlruns"
    quiet = {"MLFLOW_ALLOW_FILE_STORE": "true"}
    separately(python, SEPARATE, "mlflow", place, **quiet)
    read = (
        "import sys; from mlflow import MlflowClient; c = MlflowClient(tracking_uri=sys.argv[1]); "
        "(r,) = c.search_runs([c.get_experiment_by_name('benchwright').experiment_id]); "
        "print([(m.step, m.value) for m in c.get_metric_history(r.info.run_id, 'loss/task_00')], "
        "r.data.metrics['in_domain'], r.data.params['settings.schedule.epochs'], r.info.status)"
    )
    assert separately(python, read, place, **quiet).strip() == "[(0, 0.5), (1, 0.25)] 0.875 2 FINISHED"


def test_wandb_offline(tmp_path: Path) -> None:
    python = python_of("WANDB_PYTHON")
    separately(python, SEPARATE, "wandb", "tests", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert files
    content = b"".join(file.read_bytes() for file in files)
    for word in (b"loss/task_00", b"loss/task_01", b"in_domain", b"iid_er_3_0123456789"):
        assert word in content
