"""dask.distributed with worker processes: the bytes of a run on threads; and an address where nobody answers."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchwright.pipelines import api, cli

SKIPPED = {"made.json", ".lock", ".fingerprints.json", ".witness"}


def files_of(out: Path) -> dict[str, str]:
    """Digest of every file that must be the same in equal runs."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in SKIPPED
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address=None,
        silence_logs="ERROR",
    ) as cluster:
        yield cluster


def test_a_cluster_of_two_processes_gives_the_bytes_of_threads(cluster: Any, tmp_path: Path) -> None:
    job = api.job("clear", config="tiny", overrides=["source.count=300"])
    api.run(job, str(tmp_path / "cluster"), scheduler=cluster.scheduler_address)
    api.run(job, str(tmp_path / "threads"), scheduler="threads", workers=2)
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "threads")
    assert api.verify(str(tmp_path / "cluster")) == []


def test_a_pipeline_of_ones_own_travels_to_the_workers(cluster: Any, tmp_path: Path) -> None:
    words = Path(__file__).resolve().parents[2] / "docs/examples/words.py"
    (tmp_path / "texts").mkdir()
    for number in range(9):
        (tmp_path / "texts" / f"text{number}.txt").write_text(f"{number} words and the end")
    run = ["run", str(words), "--set", f"folder={tmp_path / 'texts'}", "--quiet", "--out"]
    assert cli.call([*run, str(tmp_path / "cluster"), "--scheduler", cluster.scheduler_address]) == 0
    assert cli.call([*run, str(tmp_path / "threads")]) == 0
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "threads")


def test_a_step_that_fails_on_a_worker_is_one_line(cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = tmp_path / "failing_words.py"
    example = Path(__file__).resolve().parents[2] / "docs/examples/words.py"
    words.write_text(example.read_text().replace("if len(words) < min_words:", "if 1 / (len(words) - 5):"))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "five.txt").write_text("one two three four five")
    run = ["run", str(words), "--config", str(example.with_suffix(".toml")), "--set", f"folder={tmp_path / 'texts'}", "-q"]
    assert cli.call([*run, "--out", str(tmp_path / "out"), "--scheduler", cluster.scheduler_address]) == 1
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("benchwright: ")]
    assert told == ["benchwright: stage 'counted', row 'five': ZeroDivisionError: division by zero"]


def test_nobody_answers_at_the_address(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound and not listening: who connects is refused
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        code = cli.call(["run", "clear", "--config", "tiny", "--out", str(tmp_path / "out"), "-q", "--scheduler", address])
    told = capfd.readouterr().err
    assert code == 1
    assert len(told.splitlines()) == 1, told
    assert told.startswith(f"benchwright: scheduler {address!r} does not answer")
