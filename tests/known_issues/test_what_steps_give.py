"""Steps that give what no step may give: each is told in one line that names the stage and the place."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.rows import Reject, Rejected
from benchwright.curation.run import run
from benchwright.curation.stage_rows import Rows


@dataclass(frozen=True)
class Number:
    key: str
    value: int


@dataclass(frozen=True)
class Dated:
    key: str
    when: dt.datetime


@dataclass(frozen=True)
class Named:
    key: str
    name: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class Placed:
    key: str
    shard: str


def read(*, count: int) -> Iterator[Number]:
    yield from (Number(f"k{n}", n) for n in range(count))


def leaves(row: Number) -> Number:
    sys.exit(0)


def gives_none(row: Number) -> Number:
    return None  # type: ignore[return-value]


def gives_dated(row: Number) -> Number:
    return Dated(row.key, dt.datetime(2020, 1, 1))  # type: ignore[return-value]


def renames(row: Number) -> Number:
    return Number(f"x{row.key}", row.value)


def halves(row: Number) -> Number:
    return Number(row.key, row.value + 0.5)  # type: ignore[arg-type]


def in_japan(row: Number) -> Dated:
    return Dated(row.key, dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=9))))


def turns_round(rows: Sequence[Number]) -> Sequence[Number]:
    return rows[::-1]


def batch_of_none(rows: Sequence[Number]) -> Sequence[Number]:
    return None  # type: ignore[return-value]


def batch_rejects(rows: Sequence[Number]) -> Sequence[Number]:
    raise Reject("bad_batch")


def read_half_a_pair() -> Iterator[Named | Rejected]:
    yield Rejected("k0\ud800", "bad_name")
    yield Named("k1", "a", ("b", "c"))
    yield Named("k2", "a", ("b", "\ud800"))


def says_much(row: Number) -> Number:
    raise Reject("bad_name", "caf\udce9")


def table_of_none(table: pa.Table) -> pa.Table:
    return None


def whole_of_none(rows: Rows) -> pa.Table:
    return None


def read_nothing() -> Iterator[Number]:
    return None  # type: ignore[return-value]


def read_shouting() -> Iterator[Number | Rejected]:
    yield Rejected("k", "TOO BAD!")


def place(rows: Rows) -> pa.Table:
    return rows.table().append_column("shard", pa.array(["s"] * rows.num_rows, pa.string()))


def sample(row: Number) -> dict[str, Any]:
    return {"json": {"value": row.value}}


def dotted(row: Number) -> dict[str, Any]:
    return {"../json": b""}


def no_sample(row: Number) -> dict[str, Any]:
    return None  # type: ignore[return-value]


def numbers(count: int = 3) -> Flow:
    return source("read", step(read, count=count), may_be_empty=not count)


def shards_of(function: Any, count: int = 3) -> Flow:
    return numbers(count).whole("placed", step(place), gives=Placed).shards("made", step(function))


BROKEN = {
    # It ended the command with exit code 0 in the middle of the run.
    "exit": (numbers().each("made", step(leaves)), r"stage 'made', row 'k\d': SystemExit: 0"),
    # These came out as bare AttributeError and TypeError, without stage or row.
    "none": (numbers().each("made", step(gives_none)), r"stage 'made', row 'k\d': the step returned NoneType"),
    "other": (numbers().each("made", step(gives_dated)), "without the planned field 'value'"),
    "batch": (numbers().each_batch("made", step(batch_of_none)), "returned NoneType, which holds no rows"),
    "batch_reject": (numbers().each_batch("made", step(batch_rejects)), "stage 'made', part 0: Reject"),
    "table": (numbers().table("made", step(table_of_none)), "stage 'made', part 0: the step returned NoneType"),
    "whole": (numbers().whole("made", step(whole_of_none)), "stage 'made', part 0: the step returned NoneType"),
    "source": (source("made", step(read_nothing)), "stage 'made', part 0: the step returned NoneType"),
    "extension": (shards_of(dotted), "stage 'made', part 0: shard 's': extension '../json'"),
    "sample": (shards_of(no_sample), r"stage 'made', row 'k0': TypeError: the step returned NoneType"),
    # Rows changed their names on the way, or their places, and nothing noticed.
    "renamed": (
        numbers().each("made", step(renames)),
        r"row 'k\d': the step returned a row with key 'xk\d': a row keeps its key",
    ),
    "turned": (numbers().each_batch("made", step(turns_round)), "row 'k0': the step returned a row with key 'k2'"),
    # Arrow cut 0.5 to 0, and made 2020-01-01 00:00 in Japan 2019-12-31 15:00, without a word.
    "cut": (numbers().each("made", step(halves)), "column 'value': 0.5 is not a whole number"),
    "zone": (numbers().each("made", step(in_japan)), "column 'when': .* has a time zone"),
    # One text that cannot be stored stopped a run of millions of rows, and named none of them.
    "half": (source("made", step(read_half_a_pair), max_rejects=None), r"row 'k2', column 'others': 'utf-8' codec .*'\\ud800'"),
    # Reasons of rejects that are given as values were not looked at.
    "reason": (source("made", step(read_shouting), max_rejects=None), "reject reason 'TOO BAD!' is not snake_case"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_no_step_may_give(name: str, tmp_path: Path) -> None:
    """See the comments at ``BROKEN`` for what went wrong with each."""
    flow, told = BROKEN[name]
    with pytest.raises(StepFailed, match=told):
        run(flow, str(tmp_path), scheduler="sync")


def test_a_detail_that_is_no_utf8(tmp_path: Path) -> None:
    """A reject that quoted the name of a file stopped the whole run where that name was no UTF-8."""
    done = run(numbers().each("made", step(says_much), max_rejects=None), str(tmp_path), scheduler="sync")
    detail = done.store.read_parquet("stages/made/part-00000.rejects.parquet")["detail"][0].as_py()
    assert detail == "caf\\udce9"


def test_shards_of_no_rows(tmp_path: Path) -> None:
    """A run whose rows were all rejected failed at its shards with "made no part"."""
    done = run(shards_of(sample, count=0), str(tmp_path), scheduler="sync")
    assert (done.result.stage, done.result.rows, done.rows().table().num_rows) == ("made", 0, 0)
