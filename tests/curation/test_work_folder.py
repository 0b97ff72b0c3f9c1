"""Folders of parts that are being made, plans that add to a folder, and what changed in code since, told without a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchwright.curation.artifact import load_artifact, load_run
from benchwright.curation.code_changes import recipe_change
from benchwright.curation.flow import Flow, join, rows_of, source, step
from benchwright.curation.keys import named, work_folder
from benchwright.curation.parts import StepFailed
from benchwright.curation.run import run
from benchwright.curation.stage_rows import Rows
from benchwright.curation.store import Store


@dataclass(frozen=True)
class Sum:
    key: str
    value: int


def add_up(*, limit: int, stop: int, folder: str) -> Iterator[Sum]:
    """Adds one a step, and keeps the sum in its folder; fails at ``stop``."""
    held = Path(folder) / "held"
    value = int(held.read_text()) if held.exists() else 0
    started = value
    while value < limit:
        value += 1
        held.write_text(str(value))
        if value == stop and not os.environ.get("GO_ON"):
            raise RuntimeError("interrupted")
    yield Sum("sum", value - started)


def twice(*, before: Rows) -> Iterator[Sum]:
    for value in before.table(["value"])["value"].to_pylist():
        yield Sum("twice", 2 * value)


def with_function(*, made_by: object) -> Iterator[Sum]:
    yield Sum("one", made_by())  # type: ignore[operator]


def plan(limit: int) -> Flow:
    return source(f"up_to_{limit}", step(add_up, limit=limit, stop=3, folder=work_folder()), gives=Sum)


def test_a_part_that_broke_off_finds_its_folder_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StepFailed, match="interrupted"):
        run(plan(5), str(tmp_path))
    (work,) = (tmp_path / "stages/up_to_5/.work").iterdir()
    assert (work / "held").read_text() == "3"
    monkeypatch.setenv("GO_ON", "1")
    done = run(plan(5), str(tmp_path))
    assert done.rows().table(["value"])["value"].to_pylist() == [2]  # it went on from 3
    assert not (tmp_path / "stages/up_to_5/.work").exists()
    assert run(plan(6), str(tmp_path / "other")).rows().table(["value"])["value"].to_pylist() == [6]


def test_a_folder_gathers_what_several_plans_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GO_ON", "1")
    run(plan(5), str(tmp_path), add=True)
    run(plan(6), str(tmp_path), add=True)
    told: list[str] = []
    run(plan(5), str(tmp_path), add=True, on_progress=lambda each: told.append(each.state))
    assert told == ["reused"]
    assert load_run(Store(str(tmp_path))).stages == ("up_to_5", "up_to_6")


def test_a_source_may_read_what_another_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GO_ON", "1")
    both = [source(f"twice_{n}", step(twice, before=rows_of(f"up_to_{n}")), gives=Sum) for n in (5, 6)]
    for scheduler in ("sync", "threads"):
        done = run(join(plan(5), plan(6), *both), str(tmp_path / scheduler), scheduler=scheduler)
        assert [done.rows(f"twice_{n}").table(["value"])["value"].to_pylist() for n in (5, 6)] == [[10], [12]]


def test_what_changed_in_code_is_told_without_the_plan(tmp_path: Path) -> None:
    (own := tmp_path / "own_code_of_a_test.py").write_text("def one():\n    return helper()\n\ndef helper():\n    return 1\n")
    flow = source("named", step(with_function, made_by=named(f"{own}:one")), gives=Sum)
    run(flow, str(tmp_path / "out"))
    store = Store(str(tmp_path / "out"))
    artifact = load_artifact(store, "named")
    assert artifact is not None
    assert recipe_change(artifact, store, {}) == ""
    own.write_text("def one():\n    return helper()\n\ndef helper():\n    return 2\n")
    assert recipe_change(artifact, store, {}) == "own_code_of_a_test.helper changed"
    own.unlink()
    assert "no such file" in recipe_change(artifact, store, {})
