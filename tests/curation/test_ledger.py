"""A stage's digest is that of its parts in order, whenever they end and whoever adds them."""

from __future__ import annotations

import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pyarrow as pa
import pytest
from benchwright.curation.digest import ContentDigest, Ledger
from benchwright.curation.flow import Stage
from benchwright.curation.part_writer import PartRecord
from benchwright.curation.rows import REJECTS

NO_REJECTS = REJECTS.empty_table()


def part(number: int) -> pa.Table:
    return pa.table({"key": [f"{number}-{row}" for row in range(number % 5 + 1)], "value": [number] * (number % 5 + 1)})


class Reading:
    """A store of the parts that knows which were read back, and cannot read those that are ``away``."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.away: set[int] = set()
        self.local: str | None = "here"

    def read_parquet(self, name: str, columns: object = None, *, size: int) -> pa.Table:
        (number,) = map(int, re.findall(r"\d+", name.rpartition("/")[2]))
        self.read.append(number)
        if number in self.away:
            raise ConnectionResetError("the store is not there")
        assert size == 100 + number
        return part(number)


def ledger() -> tuple[Ledger, Reading]:
    store = Reading()
    return Ledger(cast(Any, store), Stage("some", "table", cast(Any, None), "before")), store


def record(number: int) -> PartRecord:
    return PartRecord(number, 1, 1, {}, {f"part-{number:05}.parquet": {"size": 100 + number}})


def told(ledger: Ledger, count: int) -> tuple[str, int]:
    digest = ledger.finish([record(number) for number in range(count)])
    assert ledger.keys is not None
    return digest, ledger.keys.total()


def in_order(count: int) -> tuple[str, int]:
    return told(ledger()[0], count)


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_many_threads_in_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled, count = random.Random(seed), 80
    update = ContentDigest.update

    def slowly(self: ContentDigest, table: pa.Table) -> None:
        time.sleep(shuffled.choice([0, 0, 0.0002, 0.002]))
        update(self, table)

    expected = in_order(count)
    monkeypatch.setattr(ContentDigest, "update", slowly)
    if seed % 3:
        monkeypatch.setattr("benchwright.curation.digest._AT_ONCE", 0)  # each part by itself
    many, _ = ledger()

    def make(number: int) -> None:
        time.sleep(shuffled.choice([0, 0, 0.0005, 0.02 if seed % 2 else 0.003]))
        many.offer(number, part(number), NO_REJECTS)

    numbers = sorted(range(count), key=lambda number: number + shuffled.random() * shuffled.choice([1, 30]))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, numbers))
    assert told(many, count) == expected


def test_small_parts_are_added_together_and_large_ones_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, added, update = in_order(40), list[int](), ContentDigest.update

    def counted(self: ContentDigest, table: pa.Table) -> None:
        added.append(table.num_rows)
        update(self, table)

    monkeypatch.setattr(ContentDigest, "update", counted)
    for most in (5, 12, 4096):
        monkeypatch.setattr("benchwright.curation.digest._AT_ONCE", most)
        one, _ = ledger()
        for number in range(40):
            one.offer(number, part(number), NO_REJECTS)
        assert told(one, 40) == expected
        assert max(added) <= most
        assert (len(added) == 3) == (most == 4096)
        added.clear()


def test_the_part_that_many_wait_for_is_taken() -> None:
    one, store = ledger()
    for number in [*range(1, 17), 0, *range(17, 40)]:
        one.offer(number, part(number), NO_REJECTS)
    assert told(one, 40) == in_order(40)
    assert store.read == []


def test_parts_that_came_too_early_are_read_back() -> None:
    one, store = ledger()
    for number in [*range(1, 21), 0]:
        one.offer(number, part(number), NO_REJECTS)
    assert told(one, 21) == in_order(21)
    assert store.read == [17, 18, 19, 20]


@pytest.mark.parametrize("local", ["here", None])
def test_parts_of_other_processes_are_read_back_while_others_are_made(local: str | None) -> None:
    one, store = ledger()
    store.local = local
    records: dict[int, PartRecord] = {}
    for number in random.Random(5).sample(range(60), 60):
        records[number] = record(number)
        one.follow(records)
    assert len(store.read) > 40
    assert told(one, 60) == in_order(60)
    assert sorted(store.read) == list(range(60))


def test_what_cannot_be_read_back_now_is_read_in_the_end() -> None:
    one, store = ledger()
    records = {number: record(number) for number in range(20)}
    store.away = {3}
    one.follow(records)
    one.follow(records)
    assert store.read == [0, 1, 2, 3]
    with pytest.raises(ConnectionResetError):
        told(one, 20)
    store.away = set()
    assert told(one, 20) == in_order(20)


def test_nobody_waits_for_one_who_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = ledger()
    adding, full = threading.Event(), threading.Event()

    def fails(self: ContentDigest, table: pa.Table) -> None:
        adding.set()
        full.wait(10)
        raise MemoryError("no room for these rows")

    monkeypatch.setattr(ContentDigest, "update", fails)
    monkeypatch.setattr("benchwright.curation.digest._AT_ONCE", 0)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(one.offer, 0, part(0), NO_REJECTS)
        assert adding.wait(10)
        others = [pool.submit(one.offer, number, part(number), NO_REJECTS) for number in range(2, 20)]
        while sum(other.done() for other in others) < 16:
            time.sleep(0.001)
        full.set()
        with pytest.raises(MemoryError):
            first.result(10)
        for other in others:
            other.result(10)
