"""Rows that were rejected for a passing reason are tried again, and nothing else is made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import how, where
from benchwright.curation.run import Progress, run
from benchwright.curation.store import StoreError
from benchwright.curation.verify import verify

from tests.curation import steps
from tests.curation.test_run import numbers
from tests.files import files_of

__all__ = ["numbers"]


def asking(numbers: Path, server: Path) -> Flow:
    return (
        source("listed", step(steps.read_numbers, path=where(numbers)), max_rejects=None)
        .each("asked", step(steps.ask, server=how(str(server))), max_rejects=None, rows_per_part=4)
        .whole("ordered", step(steps.order_by_value, shards=3), gives=steps.Placed)
    )


def test_only_parts_with_such_rejects_are_made_again(numbers: Path, tmp_path: Path) -> None:
    server, out, never_down = tmp_path / "server", tmp_path / "out", tmp_path / "never_down"
    flow = asking(numbers, server)
    down = run(flow, str(out), scheduler="sync")
    assert dict(down.artifacts[1].rejects) == {"unreachable": 4}
    server.touch()
    assert dict(run(flow, str(out), scheduler="sync").artifacts[1].rejects) == {"unreachable": 4}  # not asked to try again
    before = {path.name: path.stat().st_mtime_ns for path in (out / "stages" / "asked").glob("part-*[0-9].parquet")}
    told: list[Progress] = []
    tried = run(flow, str(out), scheduler="sync", retry=["unreachable"], on_progress=told.append)
    assert tried.artifacts[1].rejects == {}
    after = {path.name: path.stat().st_mtime_ns for path in (out / "stages" / "asked").glob("part-*[0-9].parquet")}
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"part-00000.parquet", "part-00003.parquet", "part-00005.parquet", "part-00008.parquet"}
    assert [one.stage for one in told if one.state == "reused"] == ["listed"]
    assert verify(str(out)) == []
    run(flow, str(never_down), scheduler="sync")
    assert files_of(out) == files_of(never_down)


def test_a_reason_that_no_row_has_is_told_with_those_there_are(numbers: Path, tmp_path: Path) -> None:
    flow, out = asking(numbers, tmp_path / "server"), tmp_path / "out"
    with pytest.raises(StoreError, match="rejected for 'unreachable': none was rejected"):
        run(flow, str(out), scheduler="sync", retry=["unreachable"])
    run(flow, str(out), scheduler="sync")
    before = files_of(out)
    with pytest.raises(StoreError, match="rejected for 'timed_out': there are not_a_number, unreachable"):
        run(flow, str(out), scheduler="sync", retry=["unreachable", "timed_out"])
    with pytest.raises(TypeError, match="retry='unreachable': a list of reasons"):
        run(flow, str(out), scheduler="sync", retry="unreachable")
    assert files_of(out) == before
