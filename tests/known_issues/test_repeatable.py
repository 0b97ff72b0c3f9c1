"""A run that nobody can repeat is found out when it is made: an object's place in memory is another one in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.curation.flow import Flow, PlanError, source, step
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.rows import Reject, Sifted, sift
from benchwright.curation.run import run


@dataclass(frozen=True)
class Row:
    key: str
    said: str


class Thing:
    """An object without a ``repr`` of its own."""


def listed(*, count: int) -> Iterator[Row]:
    for number in range(count):
        yield Row(f"row{number}", repr(Thing()))


def named_by_objects(*, count: int) -> Iterator[Row]:
    for _ in range(count):
        yield Row(repr(Thing()), "")


def turned_away(row: Row) -> Row:
    if row.key == "row2":
        return row
    raise Reject("unread", f"cannot read {row.said}, from {listed!r} at 0x1f")


def sifted(rows: pa.Table) -> Sifted:
    return sift(rows, {"unread": [True] * rows.num_rows}, detail="said")


def said(flow: Flow, out: Path) -> list[str]:
    done = run(flow, str(out), scheduler="sync")
    return [text for name in done.result.reject_files() for text in done.store.read_parquet(name)["detail"].to_pylist()]


def test_details_of_rejects_name_no_place_in_memory(tmp_path: Path) -> None:
    flow = source("listed", step(listed, count=3)).each("read", step(turned_away), max_rejects=None)
    thing = f"<{__name__}.Thing object at ...>"
    assert said(flow, tmp_path / "rows") == [f"cannot read {thing}, from <function listed at ...> at 0x1f"] * 2
    flow = source("listed", step(listed, count=3)).table("read", step(sifted), max_rejects=None)
    assert said(flow, tmp_path / "table") == [thing] * 3


def test_a_key_with_a_place_in_memory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"stage 'listed'.*Thing object at 0x.* contains a memory address"):
        run(source("listed", step(named_by_objects, count=3)), str(tmp_path), scheduler="sync")


def with_setting(*, made_by: str) -> Iterator[Row]:
    yield Row("row0", made_by)


def test_a_setting_with_a_place_in_memory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"stage 'listed': setting made_by = .* contains a memory address"):
        run(source("listed", step(with_setting, made_by=repr(Thing()))), str(tmp_path), scheduler="sync")
