"""What a stage cost, as its record says, and what it would cost at another size."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.artifact import load_made
from benchwright.curation.cost import Meter, Use, cost_estimates, peak_bytes_of_all, peaks_of
from benchwright.curation.flow import Flow, PlanError, join, rows_of, source, step
from benchwright.curation.keys import how, where
from benchwright.curation.run import Progress, run, status
from benchwright.curation.stage_rows import Rows
from benchwright.curation.store import Store
from benchwright.pipelines.cli.progress import progress_line

from tests.curation import steps

cloudpickle.register_pickle_by_value(steps)

SPIN = 0.01


def spin(row: steps.Number) -> steps.Number:
    """Work of a known cost: seconds of CPU, however busy the machine is."""
    until = time.thread_time() + SPIN
    while time.thread_time() < until:
        pass
    return row


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["spin"]))


def plan(numbers: Path) -> Flow:
    return source("listed", step(steps.read_numbers, path=where(numbers))).each("spun", step(spin), rows_per_part=5)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "numbers.txt"
    path.write_text("".join(f"{n}\n" for n in range(30)))
    return path


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_cpu_seconds_are_those_of_the_workers(numbers: Path, tmp_path: Path, scheduler: str) -> None:
    run(plan(numbers), str(tmp_path / "out"), scheduler=scheduler, workers=2)
    cost = load_made(Store(str(tmp_path / "out")), "spun")["cost"]
    assert cost["cpu_seconds"] >= 30 * SPIN
    assert (cost["rows"], cost["tasks"], cost["retries"]) == (30, 6, 0)
    assert cost["peak_bytes"] > 10 << 20
    assert 0 <= cost["start_cpu_seconds"] <= cost["cpu_seconds"]
    assert cost["busy_seconds"] >= 30 * SPIN * (
        1 if scheduler == "processes" else 0.5
    )  # two threads of a process are busy once
    assert 0 <= cost["start_busy_seconds"] <= cost["busy_seconds"]


def hold(row: steps.Number) -> steps.Number:
    """Hold 400 MB for a moment at the first row."""
    if not row.value:
        np.ones(50_000_000)
    return row


MEASURE = """
import sys
from tests.curation import test_cost
if __name__ == "__main__":
    print(*test_cost.peaks(*sys.argv[1:]))
"""


def peaks(numbers: str, out: str, scheduler: str) -> list[int]:
    """The memory of each stage, and of this process in all, in MiB."""
    held = source("listed", step(steps.read_numbers, path=where(numbers))).each("held", step(hold))
    done = run(held.each("spun", step(spin)), out, scheduler=scheduler, workers=1)
    found = [load_made(done.store, name)["cost"]["peak_bytes"] for name in ("listed", "held", "spun")]
    return [each >> 20 for each in (*found, peak_bytes_of_all())]


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the system lets no process forget its peak")
@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_memory_is_what_the_stage_held_and_not_one_before(numbers: Path, tmp_path: Path, scheduler: str) -> None:
    script = tmp_path / "measure.py"
    script.write_text(MEASURE)
    command = [sys.executable, str(script), str(numbers), str(tmp_path / "out"), scheduler]
    root = str(Path(__file__).resolve().parents[2])
    told = subprocess.run(command, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True, check=True)
    listed, held, spun, in_all = map(int, told.stdout.split())
    assert held - max(listed, spun) > 300
    assert in_all >= (listed if scheduler == "processes" else held)


def test_retries_are_told_when_a_stage_has_ended() -> None:
    cost = {"cpu_seconds": 75.0, "peak_bytes": 3 << 30, "retries": 2}
    progress = Progress("spun", 1, 2, "done", 30, 30, 0, 40.0, bytes=5 << 20, cost=cost)
    told = "[2/2] spun: 30 rows, 40.0 s, 1 rows/s, cpu 75 s, memory 3.0 GiB, files 5.0 MiB, 2 retries"
    assert progress_line(progress) == told
    assert progress_line(dataclasses.replace(progress, cost=cost | {"retries": 1})) == told[:-9] + "1 retry"


def test_tasks_side_by_side_in_one_process_are_counted_once_in_any_order() -> None:
    uses = [
        Use(("elsewhere", 1), 50 + 2 * begin, 2 * (end - begin), begin, end, 7 << 40)
        for begin, end in ((0.0, 4.0), (1.0, 5.0), (5.0, 6.0), (7.0, 10.0))
    ]
    uses.append(Use(("elsewhere", 2), 50.0, 7.0, 100.0, 103.0, 8 << 40))
    for ordered in itertools.permutations(uses):
        meter = Meter(alone=False)
        for use in ordered:
            meter.add(use)
        cost = meter.cost()
        assert (cost["cpu_seconds"], cost["busy_seconds"]) == (9 + 3, 2 * 9 + 7)
        assert cost["peak_bytes"] == 8 << 40


def test_a_short_task_within_a_long_one_that_ends_later_counts_once() -> None:
    meter = Meter(alone=False)
    for begin, end in ((1.0, 5.0), (0.0, 10.0)):
        meter.add(Use(("elsewhere", 1), begin, end - begin, begin, end, 0))
    assert (meter.cost()["cpu_seconds"], meter.cost()["busy_seconds"]) == (10, 10)


def spun(*, seconds: float) -> Iterator[steps.Number]:
    """Source: one row, and work of a known cost."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    yield steps.Number("only", 0)


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["spun"]))


@pytest.mark.parametrize("scheduler", ["sync", "processes"])
def test_each_of_several_sources_that_are_made_together_has_its_own_cost(tmp_path: Path, scheduler: str) -> None:
    """As the trainings of one command have."""
    work = [0.2, 0.4, 0.1, 0.3, 0.2, 0.5]
    flow = Flow(tuple(stage for n, s in enumerate(work) for stage in source(f"spun_{n}", step(spun, seconds=s)).stages))
    run(flow, str(tmp_path / "out"), scheduler=scheduler, workers=1)
    made = [load_made(Store(str(tmp_path / "out")), f"spun_{n}") for n in range(len(work))]
    for each, seconds in zip(made[1:], work[1:], strict=True):  # the first one loads what a process loads once
        assert seconds <= each["seconds"]
        assert seconds - 0.02 <= each["cost"]["cpu_seconds"] < seconds + 0.5


def test_an_interrupted_run_counts_what_it_made_itself(numbers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(plan(numbers), str(out), scheduler="sync")
    for name in ("artifact.json", "part-00001.parquet", "part-00002.parquet"):
        (out / "stages/spun" / name).unlink()
    run(plan(numbers), str(out), scheduler="sync")
    cost = load_made(Store(str(out)), "spun")["cost"]
    assert (cost["rows"], cost["tasks"]) == (10, 2)


def test_an_estimate_grows_with_the_rows_besides_the_start(numbers: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run(plan(numbers), out, scheduler="sync")
    sample = status(plan(numbers), out)
    cost = {"rows": 30, "tasks": 6, "retries": 0, "cpu_seconds": 20.0, "peak_bytes": 5}
    once = {**cost, "start_seconds": 4.0, "start_cpu_seconds": 2.0}
    made = {
        "listed": {"seconds": 1.0, "cost": {**once, "tasks": 1, "start_seconds": 0.0}},
        "spun": {"seconds": 10.0, "cost": once},
    }
    listed, spun = cost_estimates(sample, made, {"listed": 300})
    assert (listed.seconds, listed.rough, spun.rough) == (10.0, True, False)
    assert (spun.rows_in, spun.rows, spun.seconds, spun.cpu_seconds) == (300, 300, 64.0, 182.0)
    _, kept = cost_estimates(sample, made, {"listed": 300, "spun": 30})  # keeps a number of rows, and looks at all of them
    assert (kept.rows_in, kept.rows, kept.seconds) == (300, 30, 64.0)
    _, resumed = cost_estimates(sample, {**made, "spun": {"seconds": 10.0, "cost": {**once, "rows": 15}}}, {})
    assert resumed.seconds == 4.0 + 2 * 6.0


def test_two_samples_tell_the_start_of_a_stage_of_one_part(numbers: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run(plan(numbers), out, scheduler="sync")
    sample = status(plan(numbers), out)

    def record(rows: int, seconds: float, cpu: float) -> dict[str, Any]:
        known = {"tasks": 1, "retries": 0, "peak_bytes": 5, "start_seconds": 0.0, "start_cpu_seconds": 0.0}
        return {"seconds": seconds, "cost": {**known, "rows": rows, "cpu_seconds": cpu}}

    made = {"listed": record(30, 1.0, 1.0), "spun": record(30, 10.0, 8.0)}
    smaller = {"listed": (10, record(10, 1.0, 1.0)), "spun": (10, record(10, 6.0, 4.0))}
    listed, spun = cost_estimates(sample, made, {"listed": 300}, smaller)
    assert not listed.rough
    assert not spun.rough
    assert listed.seconds == listed.cpu_seconds == 1.0  # takes as long for any number of rows
    assert (spun.seconds, spun.cpu_seconds) == (4.0 + 10 * 6.0, 2.0 + 10 * 6.0)
    made["spun"]["cost"]["rows"] = smaller["spun"][1]["cost"]["rows"] = 0  # as of a stage that takes all rows at once
    assert cost_estimates(sample, made, {"listed": 300}, smaller)[1] == spun
    made["spun"]["cost"]["rows"] = 30
    for bad in ((30, record(30, 6.0, 4.0)), (10, record(4, 6.0, 4.0)), (10, {"seconds": 6.0})):
        _, spun = cost_estimates(sample, made, {"listed": 300}, {"spun": bad})  # as many rows, resumed, or without a record
        assert (spun.seconds, spun.cpu_seconds, spun.rough) == (100.0, 80.0, True)


def on_gpu(row: steps.Number, *, device: str) -> steps.Number:
    """Nothing, on a GPU."""
    return row


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["on_gpu"]))


def test_gpu_time_is_that_of_all_workers(numbers: Path, tmp_path: Path) -> None:
    todo = source("listed", step(steps.read_numbers, path=where(numbers))).each("coded", step(on_gpu, device=how("cuda")))
    run(todo, str(tmp_path / "out"), scheduler="sync")
    sample = status(todo, str(tmp_path / "out"))
    # Four workers that wait 5 s, load for 1 s each, and work for 4 s each.
    cost = {"rows": 30, "tasks": 8, "retries": 0, "cpu_seconds": 20.0, "peak_bytes": 5}
    old: dict[str, Any] = {"seconds": 10.0, "cost": {**cost, "start_seconds": 6.0, "start_cpu_seconds": 4.0}}
    new: dict[str, Any] = {"seconds": 10.0, "cost": {**old["cost"], "busy_seconds": 20.0, "start_busy_seconds": 4.0}}
    listed, rows = {"seconds": 1.0, "cost": {**old["cost"], "busy_seconds": 1.0}}, {"listed": 300}
    of_source, coded = cost_estimates(sample, {"listed": listed, "coded": new}, rows)
    assert (of_source.gpu_seconds, coded.seconds, coded.gpu_seconds) == (0.0, 6.0 + 10 * 4.0, 4.0 + 10 * 16.0)
    _, coded = cost_estimates(sample, {"listed": listed, "coded": old}, rows)
    assert coded.gpu_seconds == coded.seconds == 46.0
    smaller = {"coded": (10, {"seconds": 8.0, "cost": {**new["cost"], "rows": 10, "busy_seconds": 10.0}})}
    _, coded = cost_estimates(sample, {"listed": listed, "coded": new}, rows, smaller)
    assert coded.gpu_seconds == 5.0 + 10 * 15.0


def hold_each(rows: Rows) -> Iterator[pa.Table]:
    """Hold 400 kB for each row, until the last one is read."""
    held: list[np.ndarray] = []
    for batch in rows.batches():
        held += [np.ones(50_000) for _ in range(batch.num_rows)]
        yield batch


def hold_one(row: steps.Number) -> steps.Number:
    """Hold 40 MB for a moment."""
    np.ones(5_000_000)
    return row


for name in ("hold_each", "hold_one"):
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=[name]))


def holding(folder: Path, count: int) -> Flow:
    """A ``whole`` stage that holds its rows, and a stage in parts that does not."""
    path = folder / f"{count}.txt"
    path.write_text("".join(f"{n}\n" for n in range(count)))
    flow = source("listed", step(steps.read_numbers, path=where(path)), rows_per_part=1000)
    return flow.whole("held", step(hold_each)).each("spun", step(hold_one), rows_per_part=10)


HOLD = """
import sys
from pathlib import Path
from benchwright.curation.run import run
from tests.curation.test_cost import holding
for count in (100, 300, 1200):
    run(holding(Path(sys.argv[1]), count), f"{sys.argv[1]}/{count}", scheduler="sync")
"""
"""In a process of its own, which keeps nothing of other tests."""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the system lets no process forget its peak")
def test_memory_grows_with_the_rows_of_a_stage_that_takes_all_of_them(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, "-c", HOLD, str(tmp_path)], env=environment, check=True)
    sample = status(holding(tmp_path, 300), str(tmp_path / "300"))
    less, made, more = (
        {stage.name: load_made(Store(str(tmp_path / count)), stage.name) for stage, _ in sample}
        for count in ("100", "300", "1200")
    )
    smaller = {name: (100, each) for name, each in less.items()}
    real = {name: each["cost"]["peak_bytes"] for name, each in more.items()}
    listed, held, spun = cost_estimates(sample, made, {"listed": 1200})
    assert (listed.peak_at_least, held.peak_at_least, spun.peak_at_least) == (True, True, False)
    assert held.peak_bytes == made["held"]["cost"]["peak_bytes"] < real["held"] - (250 << 20)
    assert spun.peak_bytes == made["spun"]["cost"]["peak_bytes"] == pytest.approx(real["spun"], abs=60 << 20)
    listed, held, spun = cost_estimates(sample, made, {"listed": 1200}, smaller)
    assert (listed.peak_at_least, held.peak_at_least, spun.peak_at_least) == (True, False, False)
    assert held.peak_bytes == pytest.approx(real["held"], abs=60 << 20)
    assert spun.peak_bytes == made["spun"]["cost"]["peak_bytes"]
    _, held, _ = cost_estimates(sample, made, {}, smaller)  # no more rows than the sample had
    assert (held.peak_bytes, held.peak_at_least) == (made["held"]["cost"]["peak_bytes"], False)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_memory_of_a_worker_is_told_where_it_is_a_process(numbers: Path, tmp_path: Path, scheduler: str) -> None:
    out = str(tmp_path / "out")
    run(plan(numbers), out, scheduler=scheduler, workers=2)
    cost = load_made(Store(out), "spun")["cost"]
    _, told = cost_estimates(status(plan(numbers), out), {n: load_made(Store(out), n) for n in ("listed", "spun")}, {})
    assert (told.worker_peak_bytes, told.peak_bytes) == (cost["worker_peak_bytes"], cost["peak_bytes"])
    assert (told.worker_peak_bytes > 10 << 20) == (scheduler == "processes")
    assert told.worker_peak_bytes <= told.peak_bytes


@pytest.mark.parametrize(
    ("more", "less", "expected"),
    [
        ((400, 200), (399, 100), ((840, 840), False)),  # the process of the run, with 400 MiB, does not read the rows
        ((400, 50), (400, 30), ((400, 178), False)),
        ((400, 200), (300, 190), ((400, 200), True)),
        ((400, 200), (300, 0), ((400, 200), True)),  # the smaller sample was made by threads, and so was the larger below
        ((400, 0), (300, 200), ((400, 0), True)),
        ((400, 0), (300, 0), ((1040, 0), False)),
        ((400, 0), (500, 0), ((400, 0), True)),
    ],
)
def test_memory_is_fitted_to_the_process_that_reads_the_rows(
    more: tuple[int, int], less: tuple[int, int], expected: tuple[tuple[int, int], bool]
) -> None:
    in_bytes = [(peak << 20, worker << 20) for peak, worker in (more, less)]
    (peak, worker), at_least = peaks_of(*in_bytes, rows=300, fewer=150, factor=4.2)
    assert ((round(peak / 2**20), round(worker / 2**20)), at_least) == expected


def beside(row: steps.Number, *, known: Rows) -> steps.Number:
    """Nothing, with the rows of another stage at hand."""
    return row


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["beside"]))


def test_memory_may_grow_with_the_rows_of_another_stage_and_where_parts_were_few(numbers: Path, tmp_path: Path) -> None:
    other = source("others", step(steps.read_numbers, path=where(numbers)))
    todo = join(other, plan(numbers)).each("matched", step(beside, known=rows_of("others")), rows_per_part=5)
    todo = todo.each("few", step(spin), rows_per_part=15)
    run(todo, str(tmp_path / "out"), scheduler="sync")
    sample = status(todo, str(tmp_path / "out"))
    made = {stage.name: load_made(Store(str(tmp_path / "out")), stage.name) for stage, _ in sample}

    def at_least(rows: dict[str, int]) -> list[str]:
        return [each.stage for each in cost_estimates(sample, made, rows) if each.peak_at_least]

    assert at_least({}) == []
    assert at_least({"listed": 300}) == ["listed", "matched", "few"]
    assert at_least({"others": 300}) == ["others", "matched"]


def test_an_estimate_without_a_sample_says_what_it_needs(numbers: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"finished sample, and stage 'listed' has not"):
        cost_estimates(status(plan(numbers), str(tmp_path)), {}, {})
    with pytest.raises(PlanError, match=r"no stage 'nope' to estimate from: there are listed, spun"):
        cost_estimates(status(plan(numbers), str(tmp_path)), {}, {"nope": 3})
