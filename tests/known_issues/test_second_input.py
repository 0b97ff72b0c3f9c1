"""A step of rows may be given all rows of the stage that it follows; that stopped with a KeyError."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchwright.curation.flow import rows_of, source, step
from benchwright.curation.run import run


@dataclass(frozen=True)
class Number:
    key: str
    value: int


@dataclass(frozen=True)
class Ranked:
    key: str
    value: int
    below: int


def read(*, count: int) -> Iterator[Number]:
    yield from (Number(f"k{n}", n * n) for n in range(count))


def rank(row: Number, *, among: object) -> Ranked:
    values = among.table(["value"])["value"].to_pylist()  # type: ignore[attr-defined]
    return Ranked(row.key, row.value, sum(value < row.value for value in values))


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_step_may_be_given_all_rows_of_the_stage_that_it_follows(tmp_path: Path, scheduler: str) -> None:
    flow = source("numbers", step(read, count=5)).each("ranked", step(rank, among=rows_of("numbers")), rows_per_part=2)
    assert run(flow, str(tmp_path), scheduler=scheduler, workers=2).rows().table()["below"].to_pylist() == [0, 1, 2, 3, 4]
