"""A cluster as docs/examples/cluster/compose.yaml begins it, whose workers share an object store and nothing else.

Its commands are run as they stand there, with moto's S3 in place of MinIO, and an emulator of Google's store beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchwright.curation.artifact import load_made
from benchwright.curation.flow import source, step
from benchwright.curation.keys import how, work_folder
from benchwright.curation.run import Progress, run
from benchwright.curation.store import Store
from benchwright.pipelines import api

from tests.curation import steps
from tests.curation.test_store_s3 import endpoint

__all__ = ["endpoint"]

distributed = pytest.importorskip("distributed")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docs/examples/cluster/compose.yaml"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Services:
    """The services of compose.yaml as processes of this machine."""

    def __init__(self, store: str, logs: Path) -> None:
        self._services = yaml.safe_load(COMPOSE.read_text())["services"]
        self._port, self._logs = free_port(), logs
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.environment = {**self._services["worker"]["environment"], "AWS_ENDPOINT_URL": store}
        self.replicas: int = self._services["worker"]["deploy"]["replicas"] - 1  # two are enough for one of them to go on

    def begin(self, name: str) -> subprocess.Popen[bytes]:
        places: dict[str, str] = {"python": sys.executable, "dask": str(Path(sys.executable).with_name("dask"))}
        places |= {"tcp://scheduler:8786": self.address, "8786": str(self._port), "0.0.0.0": "127.0.0.1"}
        command: list[str] = [places.get(str(word), str(word)) for word in self._services[name]["command"]]
        environment = {**os.environ, **self._services[name]["environment"], **self.environment, "PYTHONPATH": str(ROOT)}
        with (self._logs / name).open("ab") as log:
            return subprocess.Popen(command, cwd=self._logs, env=environment, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def google() -> Iterator[str]:
    """Where the emulator of Google's store serves the bucket ``runs``; "" where it is not installed."""
    try:
        from gcp_storage_emulator.server import create_server
    except ImportError:
        yield ""
        return
    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="runs")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture(scope="module")
def cluster(endpoint: str, google: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    services = Services(endpoint, tmp_path_factory.mktemp("services"))
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as running:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        patch.setenv("STORAGE_EMULATOR_HOST", google)
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # it would look for credentials
        for name, value in services.environment.items():
            patch.setenv(name, value)
        assert services.begin("bucket").wait() == 0
        for name in ("scheduler", *["worker"] * services.replicas):
            running.callback(ended, services.begin(name))
        with distributed.Client(services.address, timeout=120, set_as_default=False) as client:
            client.wait_for_workers(services.replicas, timeout=120)
        yield services


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def test_another_worker_goes_on_from_the_checkpoint_of_a_killed_one(cluster: Services, tmp_path: Path) -> None:
    counted = step(steps.count_up, counted=how(str(tmp_path)), ends=how(4), folder=work_folder())
    out = "s3://runs/counted"
    done = run(source("counted", counted), out, scheduler=cluster.address)
    assert done.rows().table(["value"])["value"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["0", "4"]
    assert load_made(Store(out), "counted")["cost"]["retries"] == 1
    assert Store(out).folders("stages/counted") == []  # what was kept for the other worker is gone
    assert api.verify(out) == []


QUICK = "evaluation.networks.network-200.settings={epochs=2, batch_size=64, learning_rate=1e-2, schedule='cosine'}"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """The folder and the results of one process."""
    pytest.importorskip("torch")
    out = str(tmp_path_factory.mktemp("here") / "cameras")
    api.run(api.job("two_camera", config="tiny", overrides=["source.pairs=40", QUICK]), out, scheduler="sync")
    return out, api.train(out, methods=["network-200"], scheduler="sync")


@pytest.mark.parametrize("protocol", ["s3", "gs"])
def test_a_benchmark_with_its_trainings_is_that_of_one_process(
    cluster: Services, google: str, here: tuple[str, Any], protocol: str
) -> None:
    """A worker comes and goes meanwhile."""
    if protocol == "gs":
        pytest.importorskip("gcsfs", reason="gs:// needs gcsfs")
        if not google:
            pytest.skip("there is no Google store to test with: gcp-storage-emulator is not installed")
    out = f"{protocol}://runs/cameras"
    more: list[subprocess.Popen[bytes]] = []

    def made(progress: Progress) -> None:
        if progress.state == "done":
            change(progress)

    told = itertools.count()

    def change(_: object) -> None:
        if (number := next(told)) == 0:
            more.append(cluster.begin("worker"))
        elif number == 3:
            ended(more.pop())

    with contextlib.ExitStack() as running:
        running.callback(lambda: [ended(each) for each in more])
        todo = api.job("two_camera", config="tiny", overrides=["source.pairs=40", QUICK])
        api.run(todo, out, scheduler=cluster.address, on_progress=made)
        results = api.train(out, methods=["network-200"], scheduler=cluster.address, progress=change)
    assert results == here[1] == api.scores(out)
    assert api.verify(out) == []
    for inner in ("", "/experiments"):
        assert all(each.same for each in api.compare(out + inner, here[0] + inner))
