"""dask.distributed with worker processes: the bytes of a run on threads; and an address where nobody answers."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from benchwright.curation import cluster_workers
from benchwright.curation.artifact import load_made
from benchwright.curation.flow import Flow, PlanError, source, step
from benchwright.curation.keys import how, where
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.run import Progress, run
from benchwright.curation.store import Store
from benchwright.curation.verify import verify
from benchwright.pipelines import api
from benchwright.pipelines.cli import main as cli

from tests.curation import steps
from tests.curation.test_run import numbers, numbers_flow
from tests.files import files_of

__all__ = ["numbers"]

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
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


def test_a_lost_worker_is_counted_where_it_was_lost(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    flow = flow.each("met", step(steps.end_once, folder=str(tmp_path)), rows_per_part=1)
    run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    costs = {name: load_made(Store(str(tmp_path / "out")), name)["cost"] for name in ("listed", "met")}
    assert costs["listed"]["retries"] == 0
    assert costs["met"]["retries"] >= 1


def test_a_part_that_ends_its_workers_is_told_of_before_they_are_too_many(
    cluster: Any, on_warning: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    flow = flow.each("met", step(steps.end_thrice, folder=str(tmp_path)), rows_per_part=1)

    def let_go() -> None:  # at any warning after the third loss, while the part waits for it
        if (tmp_path / "ended2").exists():
            (tmp_path / "go").touch()

    on_warning(let_go)
    assert run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address).result.rows == 3
    told = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert len(told) <= 3, told
    assert told[-1].startswith("stage 'met', part 1: workers lost that had this part: 3, probably for lack of memory: ")


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ([{0: 1, 1: 1, 2: 1}], [(0, 1)]),
        ([{0: 1, 1: 2}, {1: 3}, {1: 4}, {1: 9}], [(1, 2), (1, 3)]),
        ([{1: 9}, {1: 10}, {1: 29}, {1: 100}], [(1, 9), (1, 10), (1, 100)]),
        ([{}, {0: 0}], []),
    ],
)
def test_losses_are_told_more_and_more_rarely(
    caplog: pytest.LogCaptureFixture, times: list[dict[int, int]], told: list[tuple[int, int]]
) -> None:
    jobs: Any = [SimpleNamespace(task=SimpleNamespace(stage=SimpleNamespace(name="met"), number=n)) for n in range(3)]
    known: dict[int, int] = {}
    for each in times:
        cluster_workers._tell_losses(jobs, each, known)
    begins = [f"stage 'met', part {part}: workers lost that had this part: {lost}, " for part, lost in told]
    found = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert [text.startswith(begin) for text, begin in zip(found, begins, strict=True)] == [True] * len(told)


def test_a_part_that_was_told_of_is_forgotten(cluster: Any, tmp_path: Path) -> None:
    """Else a cluster makes it again where the worker that made it is lost, over the files of a finished stage."""
    (tmp_path / "numbers.txt").write_text("1\n2\n4\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    known: list[int] = []

    def forgotten(progress: Progress) -> None:
        if progress.stage == "met" and progress.rows == 2:  # two of three are told of, and the first of them was released
            until = time.monotonic() + 30
            while not known or (known[-1] > 2 and time.monotonic() < until):
                known.append(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        flow = flow.each("met", step(steps.warns), rows_per_part=1)
        run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address, on_progress=forgotten)
    assert known[-1] <= 2


def three(tmp_path: Path, kinds: list[str], **how: Any) -> Flow:
    """Three numbers, of which the second meets machines that fail, or a bug."""
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n")
    (tmp_path / "failed").mkdir()
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    return flow.each("met", step(steps.fail_here, folder=str(tmp_path / "failed"), kinds=kinds), rows_per_part=1, **how)


def tried_at(tmp_path: Path) -> list[str]:
    """Addresses of the workers at which its second was tried."""
    return [path.read_text() for path in sorted((tmp_path / "failed").iterdir())]


def test_a_part_at_which_a_machine_failed_is_tried_at_the_other_worker(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.wait_for_workers(2, timeout=60)  # a test before may have ended one
    done = run(three(tmp_path, ["disk"]), str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert done.rows().table(["value"])["value"].to_pylist() == [1, 2, 3]
    assert load_made(Store(str(tmp_path / "out")), "met")["cost"]["retries"] == 1
    told = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert len(told) == 1, told
    assert told[0].startswith("stage 'met', row 'line2': OSError: [Errno 28] No space left on device: '/scratch'")
    assert told[0].endswith(": retrying the part (retry 1 of 2)")


@pytest.mark.parametrize(("kind", "tries", "told"), [("disk", 3, "No space left on device"), ("bug", 1, "ValueError: a bug")])
def test_a_part_is_tried_three_times_where_machines_fail_and_once_where_code_does(
    cluster: Any, tmp_path: Path, kind: str, tries: int, told: str
) -> None:
    cluster.wait_for_workers(2, timeout=60)  # a test before may have ended one
    with pytest.raises(StepFailed, match=f"^stage 'met', row 'line2': .*{told}"):
        run(three(tmp_path, [kind] * 9), str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    at = tried_at(tmp_path)
    assert len(at) == tries
    assert len(set(at[:2])) == min(tries, 2)  # the second try was at the other one of the two workers


@pytest.mark.parametrize(("device", "needs"), [("cuda", None), ("cpu", "GPU")])
def test_what_needs_a_gpu_goes_to_workers_that_offer_one(tmp_path: Path, device: str, needs: str | None) -> None:
    (tmp_path / "numbers.txt").write_text("".join(f"{n}\n" for n in range(8)))
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    flow = flow.each("met", step(steps.name_worker, device=device), rows_per_part=1, needs=needs)
    with offering(without={}, having={"GPU": 1}, neither={}) as cluster:
        done = run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert set(done.rows("met").table(["worker"])["worker"].to_pylist()) == {"having"}


def offering(**workers: dict[str, int]) -> Any:
    """A cluster of workers in this process, with the resources that each offers."""
    made = {name: {"cls": distributed.Worker, "options": {"nthreads": 2, "resources": each}} for name, each in workers.items()}
    scheduler = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "dashboard_address": ":0"}}
    return distributed.SpecCluster(workers=made, scheduler=scheduler, silence_logs="ERROR")


@pytest.mark.parametrize("others", [{}, {"second": {"GPU": 1}}])
def test_a_part_that_needs_a_gpu_is_tried_again_where_there_is_one(tmp_path: Path, others: dict[str, dict[str, int]]) -> None:
    with offering(first={"GPU": 1}, **others, without={}, neither={}) as cluster:
        with_gpu = {worker.address for worker in cluster.workers.values() if worker.state.total_resources}
        done = run(three(tmp_path, ["disk"], needs="GPU"), str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert done.rows().table(["value"])["value"].to_pylist() == [1, 2, 3]
    assert len(tried_at(tmp_path)) == 2
    assert {*tried_at(tmp_path)} == with_gpu


def test_a_part_is_tried_wherever_it_can_be_once_the_others_are_gone(tmp_path: Path) -> None:
    """It failed at one of two workers, and the other, which was to try it, died and came back as a new one."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "resources": {"GPU": 1}, "host": "127.0.0.1"}
    with distributed.LocalCluster(**settings, protocol="tcp://", dashboard_address=None, silence_logs="ERROR") as cluster:
        flow = three(tmp_path, ["disk", "death"], needs="GPU")
        assert run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address).result.rows == 3
    first, second, third = tried_at(tmp_path)
    assert first != second != third


def test_a_pipeline_of_ones_own_travels_to_the_workers(cluster: Any, tmp_path: Path) -> None:
    words = Path(__file__).resolve().parents[2] / "docs/examples/words.py"
    (tmp_path / "texts").mkdir()
    for number in range(9):
        (tmp_path / "texts" / f"text{number}.txt").write_text(f"{number} words and the end")
    run = ["run", str(words), "--set", f"folder={tmp_path / 'texts'}", "--quiet", "--out"]
    assert cli.call([*run, str(tmp_path / "cluster"), "--scheduler", cluster.scheduler_address]) == 0
    assert cli.call([*run, str(tmp_path / "threads")]) == 0
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "threads")


ENCODER = """
import numpy as np
from shades_beside import LEAST

class Shade:
    def encode_image(self, pixels):
        return pixels.reshape(-1, 3).mean(axis=0) + LEAST

    def encode_text(self, text):
        return np.array([1.0 + (name in text) for name in ("red", "green", "blue")])
"""


def test_code_that_settings_name_runs_on_workers_and_is_reloaded_when_it_changed(cluster: Any, tmp_path: Path) -> None:
    encoder = tmp_path / "shades_on_workers.py"
    encoder.write_text(ENCODER)
    settings = ["source.count=300", f"encoder.kind={encoder}:Shade"]
    found: list[str] = []
    for least in (1, 60):  # the workers stay, and have loaded both files by then
        (tmp_path / "shades_beside.py").write_text(f"LEAST = {least}\n")
        job = api.job("clear", config="tiny", overrides=settings)
        api.run(job, str(tmp_path / f"cluster{least}"), scheduler=cluster.scheduler_address)
        api.run(job, str(tmp_path / f"threads{least}"), scheduler="threads")
        assert files_of(tmp_path / f"cluster{least}") == files_of(tmp_path / f"threads{least}")
        found.append(api.show(str(tmp_path / f"cluster{least}"))["stages"][5]["digest"])
    assert len(set(found)) == 2


def test_a_step_that_fails_on_a_worker_is_one_line(cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = tmp_path / "failing_words.py"
    example = Path(__file__).resolve().parents[2] / "docs/examples/words.py"
    words.write_text(example.read_text().replace("if len(words) < min_words:", "if 1 / (len(words) - 5):"))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "five.txt").write_text("one two three four five")
    run = ["run", str(words), "--config", str(example.with_suffix(".toml")), "--set", f"folder={tmp_path / 'texts'}", "-q"]
    assert cli.call([*run, "--out", str(tmp_path / "out"), "--scheduler", cluster.scheduler_address]) == 1
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("benchwright: ")]
    line = next(at for at, text in enumerate(words.read_text().splitlines(), 1) if "1 / (len(words) - 5)" in text)
    place = f"({words}, line {line})"
    assert told == [f"benchwright: stage 'counted', row 'five': ZeroDivisionError: division by zero {place}"]


def test_exceptions_that_nobody_can_carry_and_warnings_arrive(
    cluster: Any, numbers: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "benchwright")
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    warned = listed.each("warned", step(steps.warns), rows_per_part=9)
    run(warned, str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    told = sorted(record.getMessage() for record in caplog.records if record.name == "benchwright")
    assert told == ["line14 is a three", "line24 is a three", "line34 is a three", "line4 is a three"]
    for kind, error in (("lock", "HoldsALock: no server"), ("recursion", "RecursionError: max")):
        odd = warned.each("odd", step(steps.breaks_oddly, how=kind))
        with pytest.raises(StepFailed, match=f"^stage 'odd', row 'line4': {error}"):
            run(odd, str(tmp_path / "out"), scheduler=cluster.scheduler_address)


class Then(logging.Handler):
    """Does something when the run warns."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        self._act()


@pytest.fixture
def on_warning() -> Iterator[Callable[[Callable[[], object]], None]]:
    logger, handlers = logging.getLogger("benchwright"), list[logging.Handler]()

    def act(what: Callable[[], object]) -> None:
        handlers.append(Then(what))
        logger.addHandler(handlers[-1])

    yield act
    for handler in handlers:
        logger.removeHandler(handler)


def test_a_run_without_workers_says_so_and_goes_on_when_one_comes(
    on_warning: Callable[..., None],
    numbers: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_workers, "_NO_WORKER", 4.0)  # an adaptive cluster has none at first
    caplog.set_level(logging.WARNING, "benchwright")
    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, processes=False, protocol="tcp://", host="127.0.0.1", dashboard_address=None
    ) as cluster:
        on_warning(lambda: (waited.append(time.monotonic() - begun), cluster.scale(1)))
        address = cluster.scheduler_address
        waited, begun = list[float](), time.monotonic()
        assert run(numbers_flow(numbers), str(tmp_path / "out"), scheduler=address).result.rows == 41
    assert waited[0] >= 4.0
    told = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert told == [f"no worker is connected to {address}: the run waits until one is"]


def in_this_process(*, offered: Mapping[str, float] = MappingProxyType({"GPU": 1}), **settings: Any) -> Any:
    """A cluster of one worker; ``scale`` adds some that offer what is given."""
    worker = {"cls": distributed.Worker, "options": {"nthreads": 1, **settings}}
    more = {"cls": distributed.Worker, "options": {"nthreads": 1, "resources": {**offered}}}
    scheduler = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "dashboard_address": ":0"}}
    return distributed.SpecCluster(workers={"first": worker}, worker=more, scheduler=scheduler, silence_logs="CRITICAL")


@pytest.mark.parametrize(
    ("device", "planned", "needs"),
    [
        pytest.param("cpu", "GPU", {}, id="by the plan"),
        pytest.param("cuda:1", None, {}, id="by its device"),
        pytest.param("cpu", "BIG_MEMORY", {"met": "GPU"}, id="by the run"),
    ],
)
def test_a_run_waits_for_a_worker_that_offers_what_a_stage_needs(
    on_warning: Callable[..., None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    device: str,
    planned: str | None,
    needs: dict[str, str],
) -> None:
    caplog.set_level(logging.WARNING, "benchwright")
    (tmp_path / "numbers.txt").write_text("1\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    with in_this_process() as cluster:
        on_warning(lambda: cluster.scale(2))
        flow = flow.each("met", step(steps.name_worker, device=device), needs=planned)
        assert run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address, needs=needs).result.rows == 1
    told = f"stage 'met' waits for a worker of {cluster.scheduler_address} that offers 'GPU': start one with `dask worker "
    assert [record.getMessage() for record in caplog.records if record.name == "benchwright"] == [
        f"{told}{cluster.scheduler_address} --resources GPU=1`"
    ]


def test_a_run_waits_for_a_worker_that_offers_enough(
    on_warning: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "numbers.txt").write_text("1\n2\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    flow = flow.each("met", step(steps.name_worker), needs="GPU=2, LARGE", rows_per_part=1)
    with in_this_process(offered={"GPU": 2, "LARGE": 1}, resources={"GPU": 1, "LARGE": 1}) as cluster:
        on_warning(lambda: cluster.scale(2))
        done = run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert "first" not in done.rows().table(["worker"])["worker"].to_pylist()
    place = cluster.scheduler_address
    assert [record.getMessage() for record in caplog.records if record.name == "benchwright"] == [
        f"stage 'met' waits for a worker of {place} that offers 'GPU=2,LARGE': start one with `dask worker {place} "
        "--resources GPU=2,LARGE=1`"
    ]


@pytest.mark.parametrize("needs", ["GPU=two", "GPU=0", "=2", "GPU=nan"])
def test_needs_that_are_no_resource(tmp_path: Path, needs: str) -> None:
    (tmp_path / "numbers.txt").write_text("1\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")), needs=needs)
    with pytest.raises(PlanError, match=f"^stage 'listed' needs '{needs}': RESOURCE, or RESOURCE=AMOUNT such as GPU=2"):
        run(flow, str(tmp_path / "out"), scheduler="sync")


def test_what_says_cuda_runs_without_a_gpu_where_the_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    flow = flow.each("met", step(steps.name_worker, device="cuda"))
    with in_this_process() as cluster:
        done = run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address, needs={"met": ""})
        again = run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address)  # which no worker could make
    assert done.rows().table(["worker"])["worker"].to_pylist() == ["first"]
    assert again.artifacts == done.artifacts


def test_needs_of_the_command_line_are_those_of_the_run(
    on_warning: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = Path(__file__).resolve().parents[2] / "docs/examples/words.py"
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "five.txt").write_text("one two three four five")
    with in_this_process() as cluster:
        on_warning(lambda: cluster.scale(2))
        run = ["run", words, "--set", f"folder={tmp_path / 'texts'}", "--out", tmp_path / "out", "-q", "--needs", "counted=GPU"]
        assert cli.call([*map(str, run), "--scheduler", cluster.scheduler_address]) == 0
    assert [record.getMessage().partition(" of ")[0] for record in caplog.records if record.name == "benchwright"] == [
        "stage 'counted' waits for a worker"
    ]


def test_a_run_says_that_every_worker_is_paused_for_want_of_memory(
    on_warning: Callable[..., None], numbers: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "benchwright")
    with in_this_process(memory_limit="1kB") as cluster, distributed.Client(cluster, set_as_default=False) as client:

        def status() -> list[str]:
            return [each["status"] for each in client.scheduler_info(n_workers=-1)["workers"].values()]

        def give_memory() -> None:
            for worker in cluster.workers.values():
                worker.memory_manager.memory_limit = 2**60

        until = time.monotonic() + 60
        while status() != ["paused"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        on_warning(give_memory)
        assert run(numbers_flow(numbers), str(tmp_path / "out"), scheduler=cluster.scheduler_address).result.rows == 41
    told = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert len(told) == 1
    assert told[0].startswith(f"every worker of {cluster.scheduler_address} is paused: each is close to its memory limit")


def test_a_part_that_ends_after_its_run_takes_no_place(cluster: Any, tmp_path: Path) -> None:
    """A worker hears nothing of a run that was interrupted while it is at a part, nor of one that began since."""
    (tmp_path / "numbers.txt").write_text("1\n2\n")
    (tmp_path / "calls").mkdir()
    listed = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    waiting = listed.each("met", step(steps.wait_to_go, folder=str(tmp_path / "calls")), rows_per_part=1)
    out = str(tmp_path / "out")

    def interrupt(progress: Progress) -> None:
        until = time.monotonic() + 60
        while progress.stage == "met" and not list((tmp_path / "calls").glob("line2-*")):
            assert time.monotonic() < until
            time.sleep(0.02)
        if progress.stage == "met":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(waiting, out, scheduler=cluster.scheduler_address, on_progress=interrupt)
    run(listed.each("met", step(steps.warns), rows_per_part=1), out, scheduler="sync")
    made = files_of(tmp_path / "out")
    (tmp_path / "calls" / "go").touch()
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        until = time.monotonic() + 60
        while any(client.run(lambda dask_worker: len(dask_worker.active_threads)).values()):
            assert time.monotonic() < until
    assert files_of(tmp_path / "out") == made
    assert api.verify(out) == []


def test_a_scheduler_that_is_killed_is_one_line(
    on_warning: Callable[..., None], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_workers, "_NO_WORKER", 1.0)
    place = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    scheduler = subprocess.Popen([*command, "--scheduler-file", str(place)], stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 60
        while not (place.exists() and place.read_text().endswith("}")):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        address = json.loads(place.read_text())["address"]
        on_warning(scheduler.kill)  # it warns, for there is no worker
        code = cli.call(["run", "clear", "--config", "tiny", "--out", str(tmp_path / "out"), "--scheduler", address])
    finally:
        scheduler.kill()
        scheduler.wait()
    assert code == 75
    lines = [line for line in capfd.readouterr().err.splitlines() if "no worker is connected" not in line]
    assert lines == [f"benchwright: the scheduler at {address} is gone; finished parts are kept: run again when it is back"]


SERVE = """
import asyncio, sys
from distributed import Scheduler, Worker

async def until_killed():
    async with Scheduler(host="127.0.0.1", port=int(sys.argv[1]), dashboard_address=":0") as scheduler:
        async with Worker(scheduler.address, nthreads=1, name=sys.argv[2]):
            await scheduler.finished()

asyncio.run(until_killed())
"""
"""A scheduler at a port, and its only worker."""


@pytest.mark.parametrize("busy_s", [0, 2])
def test_a_run_waits_for_its_scheduler_and_goes_on_at_the_next_one(
    on_warning: Callable[..., None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    busy_s: float,
) -> None:
    """None is there at first; the first one is killed, with its worker, and a second one begun at its address.

    The client has given up when a run that was busy meanwhile looks again.
    """
    monkeypatch.setattr(cluster_workers, "_ANSWER", 0.5 if busy_s else 5.0)
    (tmp_path / "numbers.txt").write_text("".join(f"{n}\n" for n in range(1, 9)))
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    flow = flow.each("met", step(steps.name_worker), rows_per_part=1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    begun: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        command = [sys.executable, "-c", SERVE, str(port), ("first", "second")[len(begun)]]
        begun.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    def kill_first(progress: Progress) -> None:
        if progress.stage == "met" and progress.rows == 3:
            begun[0].kill()
            time.sleep(busy_s)

    on_warning(begin)
    try:
        done = run(flow, str(tmp_path / "out"), scheduler=address, wait_for_scheduler_s=60, on_progress=kill_first)
    finally:
        for process in begun:
            process.kill()
            process.wait()
    told = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert told == [f"the scheduler at {address} does not answer: waiting up to 60 s for it"] * 2
    makers = done.rows().table(["worker"])["worker"].to_pylist()
    assert makers[:3] == ["first"] * 3
    assert makers[-1] == "second"


def test_a_worker_that_outlives_its_scheduler_writes_no_part_that_the_next_one_has_made(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1\n2\n")
    flow = source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))
    flow = flow.each("met", step(steps.outlive, folder=how(str(tmp_path))), rows_per_part=1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    address, begun = f"tcp://127.0.0.1:{port}", list[subprocess.Popen[bytes]]()

    def begin(module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{module}", "--no-dashboard", *arguments]
        begun.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    def serve(worker: str) -> None:
        begin("scheduler", "--host", "127.0.0.1", "--port", str(port))
        begin("worker", address, "--no-nanny", "--nthreads", "1", "--name", worker, "--local-directory", str(tmp_path))

    def replace() -> None:
        while not (tmp_path / "started").exists():
            time.sleep(0.02)
        begun[0].kill()
        serve("second")

    replacing = threading.Thread(target=replace)
    serve("first")
    try:
        replacing.start()
        done = run(flow, str(tmp_path / "out"), scheduler=address, wait_for_scheduler_s=60)
    finally:
        (tmp_path / "started").touch()
        replacing.join()
        for process in begun:
            process.kill()
            process.wait()
    assert done.rows().table(["worker"])["worker"].to_pylist() == ["second", "second"]
    assert verify(str(tmp_path / "out")) == []


@pytest.mark.parametrize("waits", [False, True])
def test_nobody_answers_at_the_address(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr(cluster_workers, "_ANSWER", 0.5)  # nobody does, however long is waited
    with socket.socket() as taken:  # bound and not listening: who connects is refused
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        how = [
            "--out",
            str(tmp_path / "out"),
            "-q",
            "--scheduler",
            address,
            *(["--wait-for-scheduler", "0.5"] if waits else []),
        ]
        code = cli.call(["run", "clear", "--config", "tiny", *how])
    *warned, told = capfd.readouterr().err.splitlines()
    assert code == 75
    waiting = f"benchwright: warning: the scheduler at {address} does not answer: waiting up to 0.5 s for it"
    assert warned == [waiting] * waits
    assert told.startswith(f"benchwright: scheduler {address!r} does not answer")


def test_an_address_that_can_never_answer_is_not_worth_repeating(tmp_path: Path) -> None:
    """TLS without certificates."""
    tiny = ["run", "clear", "--config", "tiny", "--out", str(tmp_path / "out"), "-q", "--scheduler"]
    assert cli.call([*tiny, "tls://127.0.0.1:8786"]) == 1
