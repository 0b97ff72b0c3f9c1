"""Only so many parts of a run are at the scheduler of a cluster at a time, and what follows from that for errors."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchwright.curation import cluster_workers
from benchwright.curation.flow import Flow, join, source, step
from benchwright.curation.keys import how, where
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.run import Progress, run

from tests.curation import steps
from tests.files import files_of

distributed = pytest.importorskip("distributed")

WINDOW = 8


def worker(threads: int = 1, **resources: float) -> dict[str, Any]:
    return {"cls": distributed.Worker, "options": {"nthreads": threads, "resources": resources, "host": "127.0.0.1"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers of one thread in this process, of which the second offers a GPU."""
    workers = {"first": worker(), "second": worker(GPU=1)}
    scheduler = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "dashboard_address": ":0"}}
    with distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs="ERROR") as cluster:
        cluster.wait_for_workers(2, timeout=60)
        yield cluster


class Watch(distributed.SchedulerPlugin):
    """Which parts come to a scheduler, and how many are there at a time."""

    def __init__(self, scheduler: Any) -> None:
        self.seen: set[str] = set()
        self.most = 0
        self.name = "watch"
        self._scheduler = scheduler

    def transition(self, key: str, start: str, finish: str, *_: Any, **__: Any) -> None:
        self.seen.add(key)
        self.most = max(self.most, sum(task.key.startswith("part-") for task in self._scheduler.tasks.values()))


@pytest.fixture
def watch(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(cluster_workers, "_WINDOW", WINDOW)
    watch = Watch(cluster.scheduler)
    cluster.scheduler.add_plugin(watch)
    yield watch
    cluster.scheduler.remove_plugin(watch.name)


@contextlib.contextmanager
def more(cluster: Any, worker: dict[str, Any]) -> Iterator[None]:
    """One more worker in the block."""
    cluster.worker_spec["more"] = worker
    cluster.sync(cluster._correct_state)
    cluster.wait_for_workers(3, timeout=60)
    yield
    del cluster.worker_spec["more"]
    cluster.sync(cluster._correct_state)


def numbered(tmp_path: Path, count: int) -> Flow:
    (tmp_path / "numbers.txt").write_text("".join(f"{n}\n" for n in range(1, count + 1)))
    return source("listed", step(steps.read_numbers, path=where(tmp_path / "numbers.txt")))


def test_no_more_parts_than_the_window_are_at_the_scheduler(cluster: Any, watch: Watch, tmp_path: Path) -> None:
    drawn = numbered(tmp_path, 120).each("drawn", step(steps.draw, factor=3, seed=1), rows_per_part=1)
    done = run(drawn, str(tmp_path / "cluster"), scheduler=cluster.scheduler_address)
    alone = run(drawn, str(tmp_path / "alone"), scheduler="sync")
    assert len(watch.seen) == 121
    assert watch.most == WINDOW
    assert [each.digest for each in done.artifacts] == [each.digest for each in alone.artifacts]
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "alone")


def test_the_window_grows_with_the_cluster(cluster: Any, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_workers, "_PER_THREAD", 6)
    monkeypatch.setattr(cluster_workers, "_SILENCE", 0.1)
    met = numbered(tmp_path, 60).each("met", step(steps.name_worker), rows_per_part=1)
    most: list[int] = []
    with contextlib.ExitStack() as until_the_end:

        def grow(progress: Progress) -> None:
            if progress.stage == "met" and not most:
                most.append(watch.most)
                until_the_end.enter_context(more(cluster, worker(threads=2)))

        run(met, str(tmp_path / "out"), scheduler=cluster.scheduler_address, on_progress=grow)
    assert most == [12]
    assert watch.most == 24


def test_parts_whose_submission_fails_are_submitted_by_the_next_connection(
    cluster: Any, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first connection ends as the run submits parts for the third time, while others are at the scheduler."""
    connected, connections = cluster_workers._connected, list[Any]()

    def connect(address: str, timeout_s: float) -> Any:
        client = connected(address, timeout_s)
        submit, calls = client.map, itertools.count(1)

        def end_and_submit(*arguments: Any, **settings: Any) -> Any:
            if client is connections[0] and next(calls) == 3:
                client.close()
            return submit(*arguments, **settings)

        client.map = end_and_submit
        connections.append(client)
        return client

    monkeypatch.setattr(cluster_workers, "_connected", connect)
    drawn = numbered(tmp_path, 60).each("drawn", step(steps.draw, factor=3, seed=1), rows_per_part=1)
    done = run(drawn, str(tmp_path / "cluster"), scheduler=cluster.scheduler_address, wait_for_scheduler_s=60)
    alone = run(drawn, str(tmp_path / "alone"), scheduler="sync")
    assert len(connections) == 2
    assert [each.digest for each in done.artifacts] == [each.digest for each in alone.artifacts]


def test_after_a_failure_no_later_part_is_submitted(cluster: Any, watch: Watch, tmp_path: Path) -> None:
    """The first part waits for the failure of the second."""
    (tmp_path / "calls").mkdir()
    broken = step(steps.break_second, folder=str(tmp_path / "calls"))
    flow = numbered(tmp_path, 60).each("broken", broken, rows_per_part=1)
    with pytest.raises(StepFailed, match=r"^stage 'broken', row 'line2': ValueError: two"):
        run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert len(watch.seen) == 1 + WINDOW
    assert (tmp_path / "out/stages/broken/part-00000.parquet").exists()
    called = {path.name for path in (tmp_path / "calls").iterdir()}
    assert called <= {f"line{n}" for n in range(1, WINDOW + 1)}
    until = time.monotonic() + 30
    while any(key.startswith("part-") for key in cluster.scheduler.tasks):
        assert time.monotonic() < until


@pytest.mark.parametrize("bad", ["", "piece39"])
def test_earlier_parts_that_wait_for_a_resource_decide_which_error_is_told(
    cluster: Any, watch: Watch, tmp_path: Path, bad: str
) -> None:
    """They are submitted after a later stage has failed, which does not wait for theirs."""
    folder, met = tmp_path / "in", tmp_path / "met"
    folder.mkdir()
    met.mkdir()
    for number in range(40):
        (folder / f"piece{number:02}").write_text(f"{number}\n")
    read = step(steps.read_piece_after, root=where(folder), after=how(str(met / "failed")), bad=bad)
    first = source("first", read, pieces=step(steps.list_pieces, root=where(folder)), needs="GPU")
    fails = source("fails", step(steps.fail, folder=how(str(met)), name="failed"), gives=steps.Number)
    told = f"stage 'first', piece '{bad}': ValueError: bad" if bad else "stage 'fails', part 0: ValueError: failed"
    with pytest.raises(StepFailed, match=f"^{told}"):
        run(join(first, fails), str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert len(watch.seen) == 41
    assert len(list((tmp_path / "out/stages/first").glob("part-*.parquet"))) == 40 - bool(bad)
    assert watch.most <= WINDOW + 1  # of each resource


def test_a_long_queue_of_one_resource_does_not_delay_the_others(cluster: Any, watch: Watch, tmp_path: Path) -> None:
    """More parts than the window wait for a worker that nobody has begun, until a part behind them is made."""
    told: list[str] = []
    (tmp_path / "in").mkdir()
    for number in range(3 * WINDOW):
        (tmp_path / "in" / f"piece{number:02}").write_text(f"{number}\n")
    pieces = step(steps.list_pieces, root=where(tmp_path / "in"))
    scarce = source("scarce", step(steps.read_piece, root=where(tmp_path / "in")), pieces=pieces, needs="SCARCE")
    with contextlib.ExitStack() as until_the_end:

        def begin(progress: Progress) -> None:
            if not told:
                until_the_end.enter_context(more(cluster, worker(SCARCE=1)))
            told.append(progress.stage)

        flow = join(scarce, numbered(tmp_path, 3))
        run(flow, str(tmp_path / "out"), scheduler=cluster.scheduler_address, on_progress=begin)
    assert told[0] == "listed"
    assert told.count("scarce") == 3 * WINDOW + 1
