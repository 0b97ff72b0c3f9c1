"""``benchwright cluster``: workers that come and go, a scheduler that is killed and begun again, settings that do not fit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import where
from benchwright.curation.run import Progress, run
from benchwright.pipelines import api
from benchwright.pipelines.config import ConfigError

from tests.curation import steps

distributed = pytest.importorskip("distributed")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def import_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have the path of the process that begins them."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n4\n")
    (tmp_path / "calls").mkdir()
    listed = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    return listed.each("met", step(steps.wait_to_go, folder=str(tmp_path / "calls")), rows_per_part=1)


def test_workers_come_when_there_is_work_and_go_when_there_is_none(flow: Flow, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("port = 0\n[cpu]\nworkers = 0\n[adaptive]\nminimum = 0\nmaximum = 2\n")
    (tmp_path / "calls" / "go").touch()
    address: list[str] = []

    def work() -> None:
        with distributed.Client(address[0], set_as_default=False) as client:
            assert client.nthreads() == {}
            assert run(flow, str(tmp_path / "out"), scheduler=address[0]).result.rows == 4
            give_up = time.monotonic() + 120
            while client.nthreads():
                assert time.monotonic() < give_up
                time.sleep(0.1)

    api.cluster(str(tmp_path / "cluster.toml"), tell=address.append, until=work)


@contextlib.contextmanager
def started(toml: Path, **how: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the address that it prints."""
    command = [sys.executable, "-m", "benchwright.pipelines.cli.main", "cluster", str(toml)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, **how) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_run_goes_on_with_a_new_scheduler_where_the_old_one_was_killed(flow: Flow, tmp_path: Path) -> None:
    toml = tmp_path / "cluster.toml"
    toml.write_text("port = 0\n[cpu]\nworkers = 1\n")
    with started(toml) as (process, address):

        def kill(progress: Progress) -> None:
            if progress.stage == "met" and progress.state == "running":
                process.kill()

        with pytest.raises(ConnectionError, match=f"^the scheduler at {address} is gone; finished parts are kept: run again"):
            run(flow, str(tmp_path / "out"), scheduler=address, on_progress=kill)
    (tmp_path / "calls" / "go").touch()
    toml.write_text(f"port = {address.rpartition(':')[2]}\n[cpu]\nworkers = 1\n")
    with started(toml) as (process, again):
        assert again == address
        with pytest.raises(ConfigError, match=f"port = {again.rpartition(':')[2]}: 127.0.0.1 has a server on that port"):
            api.cluster(str(toml))
        assert run(flow, str(tmp_path / "out"), scheduler=address).result.rows == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert len(list((tmp_path / "calls").glob("line1-*"))) == 1  # it was made before the scheduler died


@pytest.mark.parametrize(("ending", "send"), [(signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)], ids=["one", "terminal"])
def test_the_command_is_quiet_and_leaves_nothing(tmp_path: Path, ending: int, send: Callable[..., None]) -> None:
    """Ctrl-C in a terminal reaches the workers too."""
    (tmp_path / "cluster.toml").write_text("port = 0\n[cpu]\nworkers = 1\n")
    how = {"stderr": subprocess.PIPE, "start_new_session": True, "env": {**os.environ, "TMPDIR": str(tmp_path)}}
    with started(tmp_path / "cluster.toml", **how) as (process, address):
        assert address.startswith("tcp://127.0.0.1:")
        assert len(list(tmp_path.glob("dask-scratch-space/worker-*/"))) == 1
        send(process.pid, ending)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "INFO" not in told
    assert "Traceback" not in told
    assert [path.name for path in tmp_path.glob("dask-scratch-space/*-*")] == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[cpu]\nworkers = 0", "cpu.workers = 0 and gpu.workers = 0: there would be no workers"),
        ("[adaptive]\nminimum = 3\nmaximum = 2", "adaptive.minimum = 3: it is more than adaptive.maximum = 2"),
        ("[gpu]\nworkers = 1\n[adaptive]\nminimum = 0\nmaximum = 2", "gpu.workers = 1: GPU workers cannot be adaptive"),
        ("[cpu]\nworker = 1", "cpu.worker: there is no such setting"),
    ],
)
def test_settings_of_a_cluster_that_do_not_fit(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "cluster.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"cluster\.toml") as raised:
        api.cluster(str(tmp_path / "cluster.toml"))
    assert told in str(raised.value)


def test_workers_offer_their_gpus_and_what_the_settings_say(tmp_path: Path) -> None:
    cpu = "port = 0\n[cpu]\nworkers = 1\nresources = { BIG_MEMORY = 1 }\n"
    (tmp_path / "cluster.toml").write_text(f"{cpu}[gpu]\nworkers = 1\ndevices = [3]\nmemory_gib = 0.5\n")
    address: list[str] = []

    def look() -> None:
        with distributed.Client(address[0], set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            found = client.scheduler_info()["workers"]
            offered = {each["name"]: (each["resources"], at) for at, each in found.items()}
            assert offered["cpu-0"][0] == {"BIG_MEMORY": 1}
            assert offered["gpu-0"][0] == {"GPU": 1}
            at = offered["gpu-0"][1]
            assert found[at]["memory_limit"] == 2**29
            assert client.run(steps.visible_gpus, workers=[at]) == {at: "3"}

    api.cluster(str(tmp_path / "cluster.toml"), tell=address.append, until=look)
