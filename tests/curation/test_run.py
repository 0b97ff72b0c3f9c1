"""The engine on small plans: one result to the byte whatever the scheduler, cuts, kills and repeats."""

from __future__ import annotations

import dataclasses
import json
import logging
import multiprocessing
import os
import shutil
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation import parcels
from benchwright.curation.artifact import load_artifact, load_run
from benchwright.curation.flow import Flow, PlanError, join, rows_of, source, step
from benchwright.curation.key_hashes import key_hashes
from benchwright.curation.keys import how, where
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.run import Busy, Progress, TooManyRejects, run, status
from benchwright.curation.shard_assignment import Placed, assign_shards
from benchwright.curation.store import Store, StoreError
from benchwright.pipelines import api

from tests.curation import steps
from tests.files import files_of

# Worker processes of a test run cannot import the tests: the steps travel with the tasks, as those of a user's own file do.
cloudpickle.register_pickle_by_value(steps)


def numbers_flow(numbers: Path, *, rows_per_part: int = 7, bad: str = "", factor: int = 3, hurry: int = 1) -> Flow:
    return (
        source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
        .each(
            "drawn",
            step(steps.draw, factor=factor, seed=5, bad=bad, hurry=how(hurry)),
            max_rejects=0.5,
            rows_per_part=rows_per_part,
        )
        .whole("ordered", step(steps.order_by_value, shards=3), gives=steps.Placed)
        .shards("shards", step(steps.sample))
    )


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.txt"
    path.write_text("\n".join([*(str(n) for n in range(40)), "many", "41"]) + "\n")
    return path


def test_rows_rejects_and_sum(numbers: Path, tmp_path: Path) -> None:
    out = run(numbers_flow(numbers, bad="7"), str(tmp_path / "out"), scheduler="sync")
    listed, drawn, ordered, shards = out.artifacts
    assert (listed.rows_in, listed.rows, dict(listed.rejects)) == (42, 41, {"not_a_number": 1})
    assert (drawn.rows_in, drawn.rows, dict(drawn.rejects)) == (41, 37, {"has_bad_digit": 4})
    assert ordered.rows == shards.rows == 37
    rejects = Store(str(tmp_path / "out")).read_parquet("stages/listed/part-00000.rejects.parquet").to_pylist()
    assert rejects == [{"key": "line41", "reason": "not_a_number", "detail": "line 41 is 'many'"}]


def test_shards_place_their_rows(numbers: Path, tmp_path: Path) -> None:
    drawn = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    drawn = drawn.each("drawn", step(steps.draw, factor=3, seed=5, bad="", hurry=how(1)), max_rejects=0.5)
    place = step(assign_shards, by=["value"], max_samples=7)
    written_out = drawn.whole("placed", place, gives=Placed).shards("shards", step(steps.sample))
    short = drawn.shards("shards", step(steps.sample), by=["value"], max_samples=7)
    digests = [run(flow, str(tmp_path / str(n)), scheduler="sync").result.digest for n, flow in enumerate((written_out, short))]
    assert digests[0] == digests[1]
    assert files_of(tmp_path / "0/stages") == files_of(tmp_path / "1/stages")


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_every_scheduler_gives_the_same_bytes(numbers: Path, tmp_path: Path, scheduler: str) -> None:
    run(numbers_flow(numbers), str(tmp_path / "sync"), scheduler="sync")
    run(numbers_flow(numbers), str(tmp_path / "other"), scheduler=scheduler, workers=2)
    assert files_of(tmp_path / "sync") == files_of(tmp_path / "other")


def test_distributed_gives_the_same_bytes(numbers: Path, tmp_path: Path) -> None:
    from distributed import LocalCluster

    run(numbers_flow(numbers), str(tmp_path / "sync"), scheduler="sync")
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp://", dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        run(numbers_flow(numbers), str(tmp_path / "other"), scheduler=cluster.scheduler_address)
    assert files_of(tmp_path / "sync") == files_of(tmp_path / "other")


def test_the_cut_into_parts_changes_no_digest(numbers: Path, tmp_path: Path) -> None:
    one = run(numbers_flow(numbers, rows_per_part=5), str(tmp_path / "a"), scheduler="sync")
    other = run(numbers_flow(numbers, rows_per_part=1000), str(tmp_path / "b"), scheduler="sync")
    assert [a.digest for a in one.artifacts] == [a.digest for a in other.artifacts]
    tars = [sorted((tmp_path / n / "stages/shards").glob("*.tar")) for n in "ab"]
    assert [p.read_bytes() for p in tars[0]] == [p.read_bytes() for p in tars[1]]
    assert len(tars[0]) == 3


def test_what_a_kill_left_half_written_goes_where_the_stage_is_used_again(numbers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(numbers_flow(numbers), str(out), scheduler="sync")
    whole = files_of(out)
    left = out / "stages/listed/.tmp-4711-0123456789ab"
    left.write_bytes(b"half")
    run(numbers_flow(numbers), str(out), scheduler="sync")
    assert not left.exists()
    assert files_of(out) == whole


def test_a_second_run_makes_nothing(numbers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(numbers_flow(numbers), str(out), scheduler="sync")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    seen: list[Progress] = []
    run(numbers_flow(numbers, hurry=9), str(out), scheduler="sync", on_progress=seen.append)
    assert {p.state for p in seen} == {"reused"}
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}


def test_a_changed_setting_makes_what_follows_and_no_more(numbers: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run(numbers_flow(numbers), out, scheduler="sync")
    seen: list[Progress] = []
    changed = run(numbers_flow(numbers, factor=4), out, scheduler="sync", on_progress=seen.append)
    states = {p.stage: p.state for p in seen}
    assert states == {"listed": "reused", "drawn": "done", "ordered": "done", "shards": "done"}
    fresh = run(numbers_flow(numbers, factor=4), str(tmp_path / "fresh"), scheduler="sync")
    assert changed.result.digest == fresh.result.digest
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


def test_a_changed_source_is_read_again_and_an_equal_one_stops_there(numbers: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run(numbers_flow(numbers), out, scheduler="sync")
    numbers.write_text(numbers.read_text().replace("many", "MANY"))
    seen: list[Progress] = []
    run(numbers_flow(numbers), out, scheduler="sync", on_progress=seen.append)
    states = {p.stage: p.state for p in seen}
    assert states == {"listed": "done", "drawn": "reused", "ordered": "reused", "shards": "reused"}


def test_parts_of_a_broken_run_are_kept(numbers: Path, tmp_path: Path) -> None:
    flow, out = numbers_flow(numbers), tmp_path / "out"
    run(flow, str(out), scheduler="sync")
    whole = files_of(out)
    (out / "stages/drawn/artifact.json").unlink()
    (out / "stages/drawn/part-00002.parquet").unlink()
    (out / "stages/drawn/part-00003.blobs").write_bytes(b"short")
    (out / "stages/drawn/.tmp-1-dead").write_bytes(b"left behind")
    kept = (out / "stages/drawn/part-00001.parquet").stat().st_mtime_ns
    run(flow, str(out), scheduler="sync")
    assert files_of(out) == whole
    assert (out / "stages/drawn/part-00001.parquet").stat().st_mtime_ns == kept


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_of_several_that_fail_the_first_in_the_plan_is_told(scheduler: str, tmp_path: Path) -> None:
    """Of two sources side by side the one that failed first was told, which may be the other one the next time."""
    folder = tmp_path / "met"
    folder.mkdir()
    first = source("first", step(steps.fail, folder=str(folder), name="one", after="two"), gives=steps.Number)
    second = source("second", step(steps.fail, folder=str(folder), name="two"), gives=steps.Number)
    with pytest.raises(StepFailed, match="stage 'first', part 0: ValueError: one"):
        run(join(first, second), str(tmp_path / "run"), scheduler=scheduler, workers=2)


def test_a_budget_that_is_exceeded_is_told_by_the_first_parts(numbers: Path, tmp_path: Path) -> None:
    """Which rejects the message counted and named went by the order in which parts ended."""
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    flow = listed.each("rejected", step(steps.reject_slowly, slow="line1"), max_rejects=1, rows_per_part=1)
    with pytest.raises(TooManyRejects, match=r"rejected 2 rows, .*: 2 unwanted, such as 'line1'"):
        run(flow, str(tmp_path / "run"), scheduler="threads", workers=2)


def test_budget_of_rejects(numbers: Path, tmp_path: Path) -> None:
    flow = source("listed", step(steps.read_numbers, path=where(numbers)))
    for _ in range(2):  # what was made stays, and is over its budget as before
        with pytest.raises(TooManyRejects, match=r"'listed' rejected 1 rows, and max_rejects is 0"):
            run(flow, str(tmp_path / "out"), scheduler="sync")


def test_an_exception_names_stage_and_row(numbers: Path, tmp_path: Path) -> None:
    flow = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None).each("broken", step(steps.breaks))
    with pytest.raises(StepFailed, match=r"stage 'broken', row 'line4': ZeroDivisionError: .*by zero"):
        run(flow, str(tmp_path / "out"), scheduler="threads")


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
@pytest.mark.parametrize(("how", "told"), [("lock", "HoldsALock: no server"), ("recursion", "RecursionError: max")])
def test_an_exception_that_nobody_can_carry_still_names_stage_and_row(
    numbers: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], scheduler: str, how: str, told: str
) -> None:
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    flow = listed.each("odd", step(steps.breaks_oddly, how=how), rows_per_part=9)
    with pytest.raises(StepFailed, match=f"^stage 'odd', row 'line4': {told}") as caught:
        run(flow, str(tmp_path / "out"), scheduler=scheduler, workers=2)
    assert "in breaks_oddly" in "".join(traceback.format_exception(caught.value))  # what --debug prints
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_warnings_of_steps_arrive(
    numbers: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], scheduler: str
) -> None:
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    caplog.set_level(logging.WARNING, "benchwright")
    run(listed.each("warned", step(steps.warns), rows_per_part=9), str(tmp_path / "out"), scheduler=scheduler, workers=2)
    told = sorted(record.getMessage() for record in caplog.records if record.name == "benchwright")
    assert told == ["line14 is a three", "line24 is a three", "line34 is a three", "line4 is a three"]
    assert capfd.readouterr().err == ""


def test_lost_and_swapped_rows_are_noticed(numbers: Path, tmp_path: Path) -> None:
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    with pytest.raises(StepFailed, match="41 in, 40 out and 0 rejected"):
        run(listed.whole("lost", step(steps.lose_one), gives=steps.Number), str(tmp_path / "a"), scheduler="sync")
    swapped = listed.whole("swapped", step(steps.rename_one), gives=steps.Number)
    for again in range(2):  # the second time, the run before made the rows that are compared
        with pytest.raises(StepFailed, match="'swapped' returned keys, as rows or rejects, that are not those"):
            run(swapped, str(tmp_path / "b"), scheduler="threads" if again else "sync")


@pytest.mark.parametrize("scheduler", ["sync", "processes"])
def test_each_key_is_hashed_once(numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str) -> None:
    hashed: list[int] = []

    def counted(keys: pa.ChunkedArray) -> np.ndarray:
        hashed.append(len(keys))
        return key_hashes(keys)

    for module in ("digest", "stage_maker"):
        monkeypatch.setattr(f"benchwright.curation.{module}.key_hashes", counted)
    flow = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    for name in ("once", "twice"):
        flow = flow.whole(name, step(steps.keep_all), gives=steps.Number)
    run(flow, str(tmp_path / "out"), scheduler=scheduler, workers=2)
    assert sum(hashed) == 3 * 41


def test_expanding_stage_accounts_by_source_key(numbers: Path, tmp_path: Path) -> None:
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    out = run(
        listed.whole("twice", step(steps.twice), gives=steps.Doubled, expands=True),
        str(tmp_path / "a"),
        scheduler="sync",
    )
    assert out.result.rows == 82
    with pytest.raises(StepFailed, match="keys"):
        run(
            listed.whole("half", step(steps.twice, skip=3), gives=steps.Doubled, expands=True),
            str(tmp_path / "b"),
            scheduler="sync",
        )


def test_arrays_are_mapped_and_gathered(numbers: Path, tmp_path: Path) -> None:
    out = run(numbers_flow(numbers, rows_per_part=6), str(tmp_path / "out"), scheduler="sync")
    drawn = out.rows("drawn")
    blocks = list(drawn.arrays("vector"))
    assert [len(block) for block in blocks] == [6, 6, 6, 6, 6, 6, 5]
    assert isinstance(blocks[0].base, np.memmap) or isinstance(blocks[0], np.memmap)
    ordered = out.rows("ordered")
    stacked = np.concatenate(list(ordered.arrays("vector")))
    assert stacked.shape == (41, 4)
    assert np.array_equal(stacked[:, 0], ordered.table(["value"])["value"].to_numpy())
    assert np.array_equal(ordered.gather("vector", [3, 1]), stacked[[3, 1]])
    texts = [blob.read() for blob in ordered.blobs("text")]
    assert texts[0] == b"0"
    assert len(texts) == 41


def test_a_column_that_a_step_gives_replaces_one_that_it_did_not_take(numbers: Path, tmp_path: Path) -> None:
    flow = numbers_flow(numbers).after("drawn").each("relabelled", step(steps.relabel))
    rows = run(flow, str(tmp_path / "out"), scheduler="sync").rows("relabelled")
    assert sorted(rows.column_names) == ["key", "noise", "value", "vector"]
    assert set(rows.table(["value"])["value"].to_pylist()) == {1, 2}


def test_plans_are_checked_before_anything_runs(numbers: Path, tmp_path: Path) -> None:
    listed = source("listed", step(steps.read_numbers, path=where(numbers)))
    with pytest.raises(PlanError, match="takes a column 'vector', which 'listed' does not give: it gives key, value"):
        listed.each("late", step(steps.needs_vector)).schemas()
    with pytest.raises(PlanError, match="no setting 'factr'; it has bad, factor, hurry, seed"):
        step(steps.draw, factr=1, seed=0)  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="setting 'seed' is missing"):
        step(steps.draw, factor=1)  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="top level"):
        step(lambda row: row)
    with pytest.raises(PlanError, match="appears twice"):
        listed.each("listed", step(steps.breaks)).schemas()
    assert not (tmp_path / "out").exists()


def test_a_source_in_pieces_and_a_second_input(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "cab":
        (folder / f"{name}.txt").write_text(f"1\n2\n{name}\n")
    split = source(
        "listed",
        step(steps.read_piece, root=where(folder)),
        pieces=step(steps.list_pieces, root=where(folder)),
        max_rejects=None,
    )
    flow = split.whole("counted", step(steps.count_of, other=rows_of("listed")), gives=steps.Counted)
    out = run(flow, str(tmp_path / "out"), workers=2)
    assert out.rows("listed").table(["key"])["key"].to_pylist() == ["a:1", "a:2", "b:1", "b:2", "c:1", "c:2"]
    assert dict(out.artifacts[0].rejects) == {"not_a_number": 3}
    assert set(out.rows().table(["rows"])["rows"].to_pylist()) == {6}


def test_a_source_without_pieces_or_rows_is_an_empty_stage(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    flow = source(
        "listed",
        step(steps.read_piece, root=where(tmp_path / "in")),
        pieces=step(steps.list_pieces, root=where(tmp_path / "in")),
        may_be_empty=True,
    ).whole("counted", step(steps.count_of, other=rows_of("listed")), gives=steps.Counted)
    assert [a.rows for a in run(flow, str(tmp_path / "out"), scheduler="sync").artifacts] == [0, 0]


def test_waiting_for_a_file_that_a_person_brings(numbers: Path, tmp_path: Path) -> None:
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    votes = tmp_path / "votes.txt"
    flow = listed.whole("voted", step(steps.with_votes, votes=where(votes)), gives=steps.Number, waits="bring the votes")
    first = run(flow, str(tmp_path / "out"), scheduler="sync")
    assert first.waiting == "bring the votes"
    assert [a.stage for a in first.artifacts] == ["listed"]
    votes.write_text("x")
    assert run(flow, str(tmp_path / "out"), scheduler="sync").waiting == ""


def test_status_writes_nothing_and_knows_what_is_there(numbers: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert [a for _, a in status(numbers_flow(numbers), out)] == [None] * 4
    assert not Path(out).exists()
    run(numbers_flow(numbers), out, scheduler="sync")
    assert all(a is not None for _, a in status(numbers_flow(numbers), out))
    assert [a is not None for _, a in status(numbers_flow(numbers, factor=9), out)] == [True, False, False, False]


def test_two_runs_in_one_folder_are_refused(numbers: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")

    def meddle(_: Progress) -> None:
        with pytest.raises(Busy, match="another run is in progress"):
            run(numbers_flow(numbers), out, scheduler="sync")

    run(numbers_flow(numbers), out, scheduler="sync", on_progress=meddle)


def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(numbers: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "out" / ".lock").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(StoreError, match=r"\.lock is a symbolic link"):
        run(numbers_flow(numbers), str(tmp_path / "out"), scheduler="sync")
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["stages", "stages/listed", "stages/older", "dataset"])
def test_a_folder_that_is_a_link_is_refused_and_its_target_left_alone(numbers: Path, tmp_path: Path, name: str) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    victim.mkdir()
    (victim / "letter.txt").write_text("mine")
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(victim)
    with pytest.raises(StoreError, match=f"{name} is a symbolic link"):
        run(numbers_flow(numbers), str(out), scheduler="sync")
    assert [path.name for path in victim.iterdir()] == ["letter.txt"]


def test_a_copied_run_is_up_to_date_by_what_its_sources_hold(numbers: Path, tmp_path: Path) -> None:
    """Elsewhere the copies of its folder and sources have other places, times and inodes."""
    run(numbers_flow(numbers), str(tmp_path / "out"), scheduler="sync")
    there = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "out", there / "run", copy_function=shutil.copyfile)
    copied = Path(shutil.copyfile(numbers, there / "copied.txt"))
    os.utime(copied, (1, 1))
    flow = numbers_flow(copied)
    assert [artifact is not None for _, artifact in status(flow, str(there / "run"))] == [True] * 4
    states: list[str] = []
    run(flow, str(there / "run"), scheduler="sync", on_progress=lambda progress: states.append(progress.state))
    assert states == ["reused"] * 4
    copied.write_text(copied.read_text().replace("1", "3", 1))
    os.utime(copied, (1, 1))  # of the same size and time
    assert status(flow, str(there / "run"))[0][1] is None


def test_a_damaged_witness_does_not_match(numbers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = run(numbers_flow(numbers), str(out), scheduler="sync")
    (out / "stages/drawn/.witness").write_bytes(b"\xff\xfe")
    assert [a is not None for _, a in status(numbers_flow(numbers), str(out))] == [True, False, False, False]
    assert run(numbers_flow(numbers), str(out), scheduler="sync").artifacts == whole.artifacts


def test_what_a_worker_of_an_earlier_run_writes_until_it_is_refused_is_seen(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    whole = run(numbers_flow(numbers), str(out), scheduler="sync")
    (out / "stages/drawn/artifact.json").unlink()
    (out / "stages/drawn/.begun").write_text("earlier")
    remove = Store.remove

    def write_and_remove(store: Store, names: Sequence[str]) -> None:
        if "stages/drawn/.begun" in names:
            store.write("stages/drawn/part-00001.blobs", b"of other settings")
        remove(store, names)

    monkeypatch.setattr(Store, "remove", write_and_remove)
    assert run(numbers_flow(numbers), str(out), scheduler="sync").artifacts == whole.artifacts
    assert api.verify(str(out)) == []


def test_a_folder_that_another_pipeline_filled_is_refused(numbers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(numbers_flow(numbers), str(out), scheduler="sync", pipeline="numbers")
    before = files_of(out)
    with pytest.raises(PlanError, match="was made by 'numbers': choose another --out"):
        run(numbers_flow(numbers, factor=9), str(out), scheduler="sync", pipeline="words")
    assert files_of(out) == before


def test_a_run_that_fails_keeps_the_record_of_what_was_published(numbers: Path, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "out"))
    run(numbers_flow(numbers), store.url, scheduler="sync", config={"seed": 1})
    dataclasses.replace(load_run(store), published="digest").save(store)
    fails = source("listed", step(steps.read_numbers, path=where(numbers)))
    for seed, outdated in ((1, False), (2, True), (1, True)):
        with pytest.raises(TooManyRejects):
            run(fails, store.url, scheduler="sync", config={"seed": seed})
        assert (load_run(store).published, load_run(store).outdated) == ("digest", outdated)


def test_a_store_by_url(numbers: Path, tmp_path: Path) -> None:
    memory = run(numbers_flow(numbers), "memory://engine-test/out", scheduler="sync")
    local = run(numbers_flow(numbers), f"file://{tmp_path}/out", scheduler="sync")
    assert [a.to_json() for a in memory.artifacts] == [a.to_json() for a in local.artifacts]
    assert load_artifact(Store("memory://engine-test/out"), "shards") == memory.result
    assert status(numbers_flow(numbers), "memory://engine-test/out")[-1][1] == memory.result


@pytest.mark.parametrize("scheduler", ["processes", "tcp://127.0.0.1:9"])
def test_workers_elsewhere_cannot_write_to_the_memory_of_this_process(numbers: Path, scheduler: str) -> None:
    with pytest.raises(PlanError, match="memory://apart is in the memory of this process"):
        run(numbers_flow(numbers), "memory://apart", scheduler=scheduler)


def test_artifact_names_the_recipe(numbers: Path, tmp_path: Path) -> None:
    run(numbers_flow(numbers), str(tmp_path / "out"), scheduler="sync")
    recipe = json.loads((tmp_path / "out/stages/drawn/artifact.json").read_text())["recipe"]
    assert recipe["settings"] == {"bad": "", "factor": 3, "seed": 5}
    assert recipe["step"].endswith("steps.draw")
    assert str(tmp_path) not in json.dumps(recipe)


def test_sources_that_stand_together_are_made_together(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    flow = join(*(source(name, step(steps.meet, folder=how(str(meeting)), name=name, wanted=2)) for name in ("one", "two")))
    seen: list[tuple[str, str]] = []
    made = run(
        flow,
        str(tmp_path / "out"),
        scheduler="threads",
        workers=2,
        on_progress=lambda told: seen.append((told.stage, told.state)),
    )
    assert [artifact.stage for artifact in made.artifacts] == ["one", "two"]
    assert sorted(seen) == [(name, state) for name in ("one", "two") for state in ("done", "running")]
    again = run(flow, str(tmp_path / "again"), scheduler="processes", workers=2)
    assert [artifact.digest for artifact in again.artifacts] == [artifact.digest for artifact in made.artifacts]


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
@pytest.mark.parametrize("rows_per_part", [1, 10])
def test_what_a_failed_run_still_makes_does_not_get_into_the_next_run(
    tmp_path: Path, scheduler: str, rows_per_part: int
) -> None:
    folder, out = tmp_path / "calls", tmp_path / "out"
    folder.mkdir()
    fails = source("fails", step(steps.fail, folder=str(folder), name="failed", after="begun"))

    def waiting(value: int) -> Flow:
        return source("met", step(steps.wait_within, folder=str(folder), value=value), rows_per_part=rows_per_part)

    threads, processes = threading.enumerate(), multiprocessing.active_children()
    with pytest.raises(StepFailed, match="failed"):
        run(join(fails, waiting(1)), str(out), scheduler=scheduler, workers=2)
    run(waiting(2), str(out), scheduler="sync")
    made = files_of(out)
    (folder / "go").touch()
    for late in {*threading.enumerate()} - {*threads}:
        late.join(60)
    assert {*multiprocessing.active_children()} <= {*processes}
    assert files_of(out) == made
    assert [each.place for each in api.verify(str(out))] == ["stages/fails"]  # left over from the first plan


def test_a_kill_before_the_record_of_a_stage_leaves_a_stage_that_is_not_finished(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``artifact.json``, which says that a stage is finished, is the last of its files."""
    out, write = tmp_path / "out", Store.write_json

    def killed(store: Store, name: str, value: object) -> None:
        if name == "stages/drawn/artifact.json":
            raise KeyboardInterrupt
        write(store, name, value)

    monkeypatch.setattr(Store, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        run(numbers_flow(numbers), str(out))
    left = {path.name for path in (out / "stages" / "drawn").iterdir()}
    assert {"made.json", "code.json"} < left
    assert load_artifact(Store(str(out)), "drawn") is None
    monkeypatch.setattr(Store, "write_json", write)
    run(numbers_flow(numbers), str(out))
    run(numbers_flow(numbers), str(tmp_path / "other"))
    assert files_of(out / "stages") == files_of(tmp_path / "other" / "stages")


def test_joined_plans_have_the_result_of_the_last(numbers: Path) -> None:
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    drawn = listed.each("drawn", step(steps.draw, factor=1, seed=5))
    assert join(listed, drawn).last == "drawn"
    assert join(drawn, listed).last == "listed"
    assert [stage.name for stage in join(drawn, listed).ordered()] == ["listed", "drawn"]


def test_worker_processes_have_the_environment_of_their_run_and_random_numbers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be forked from a server that an earlier run has started."""
    found: list[dict[str, object]] = []
    for value in ("first", "second"):
        monkeypatch.setenv("BENCHWRIGHT_TEST_VARIABLE", value)
        flow = source("found", step(steps.look_around, name="BENCHWRIGHT_TEST_VARIABLE"))
        run(flow, str(tmp_path / value), scheduler="processes", workers=1)
        found += Store(str(tmp_path / value)).read_parquet("stages/found/part-00000.parquet").to_pylist()
    assert [row["variable"] for row in found] == ["first", "second"]
    assert found[0]["drawn"] != found[1]["drawn"]


def test_worker_processes_unpickle_once_what_the_parts_of_a_stage_share(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the code of a user's file loads a model once in each process, not for each part."""
    folder, packed = tmp_path / "loaded", list[str]()
    folder.mkdir()
    pack = parcels.packed
    monkeypatch.setattr(parcels, "packed", lambda task: packed.append(task.stage.name) or pack(task))
    listed = source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
    flow = listed.each("loaded", step(steps.load_once, folder=how(str(folder))), rows_per_part=2)
    assert len(run(flow, str(tmp_path / "out"), scheduler="processes", workers=2).result.parts) == 21
    assert packed == ["listed", "loaded"]
    assert len([*folder.iterdir()]) <= 2
