"""Orders and choices of rows that are not held at once, beside plain ones: many small stretches, parts and ranges."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.shard_assignment import assign_shards
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.stages import buckets, choose, external_sort, image_sources, ranks, reorder, spill, unique_keys
from benchwright.curation.store import Store
from benchwright.curation.tasks import _shard_bounds
from benchwright.datasets.clear.samples import place
from benchwright.datasets.clear.splits import SEEDS, assign_iid_splits, order_stream

COUNT = 1_003


def parted(table: pa.Table, size: int = 90) -> Rows:
    """The table in parts, an empty one among them."""
    parts = {f"{start:05}": table.slice(start, size) for start in range(0, table.num_rows, size)}
    parts["00000a"] = table.slice(0, 0)
    parts = dict(sorted(parts.items()))
    return Rows(Store("."), table.schema, tuple(PartInfo(name, len(part)) for name, part in parts.items()), parts)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a thousand rows take several stretches, tables and ranges."""
    monkeypatch.setattr(external_sort, "HELD_ROWS", 256)
    monkeypatch.setattr(external_sort, "HELD_NUMBERS", 256)
    monkeypatch.setattr(external_sort, "_DRAWN", 8)
    monkeypatch.setattr(spill, "HELD_BYTES", 400)
    monkeypatch.setattr(spill, "_BLOCK", 150)
    monkeypatch.setattr(ranks, "TABLE_ROWS", 150)
    monkeypatch.setattr(reorder, "TABLE_ROWS", 70)
    monkeypatch.setattr(reorder, "HELD_BYTES", 1_000)
    monkeypatch.setattr(choose, "TABLE_ROWS", 40)
    monkeypatch.setattr(unique_keys, "HELD_HASHES", 100)


def drawn() -> pa.Table:
    draw = np.random.default_rng(4)
    keys = [f"{'k' * int(number % 3)}{number:04}" for number in draw.permutation(COUNT)]
    when = draw.integers(0, 20, COUNT)
    return pa.table(
        {
            "key": keys,
            "bucket": draw.integers(0, 3, COUNT),
            "label": draw.integers(0, 4, COUNT),
            "concept": [("BACKGROUND", "bus", "camera", "dog")[at] for at in draw.integers(0, 4, COUNT)],
            "score": draw.integers(0, 9, COUNT) / 10,
            "when": pa.array([None if at == 7 else int(at) for at in when], pa.int64()),
            "size": draw.integers(1, 4_000, COUNT),
        }
    )


@pytest.mark.parametrize(
    ("by", "way"),
    [
        (["key"], "ascending"),
        (["key"], "descending"),
        (["when"], "ascending"),
        (["bucket", "score"], "descending"),
        (["concept", "when", "score"], "ascending"),
    ],
)
@pytest.mark.usefixtures("small")
def test_ranks_are_those_of_a_stable_sort(by: list[str], way: str) -> None:
    table = drawn()
    values = [[(value is None, value) for value in table[name].to_pylist()] for name in by]
    order = sorted(range(COUNT), key=lambda row: [column[row] for column in values], reverse=way == "descending")
    assert np.argsort(ranks.ranks(parted(table), [(name, way) for name in by])[:]).tolist() == order


@pytest.mark.usefixtures("small")
def test_stretches_are_many_and_of_some_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    take = spill.SpilledBatches.take

    def told(cuts: spill.SpilledBatches, number: int) -> pa.Table:
        seen.append(len(table := take(cuts, number)))
        return table

    monkeypatch.setattr(spill.SpilledBatches, "take", told)
    rows, by = parted(drawn()), [("bucket", "ascending"), ("key", "ascending")]
    assert len(list(external_sort.sorted_by_columns(rows.batches, rows.schema, COUNT, by))) > 10
    assert sum(seen) == COUNT
    assert max(seen) < 256


@pytest.mark.usefixtures("small")
def test_tables_of_all_rows() -> None:
    table = drawn()
    found = list(ranks.in_tables(parted(table)))
    assert [first for first, _ in found] == list(range(0, COUNT, 180))
    assert pa.concat_tables(part for _, part in found).equals(table)
    assert [len(part) for _, part in ranks.in_tables(Rows.of(table.slice(0, 0)))] == [0]


@pytest.mark.usefixtures("small")
def test_wide_rows_come_in_smaller_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    table = drawn()
    monkeypatch.setattr(ranks, "TABLE_BYTES", table.slice(0, 90).nbytes // 2)
    assert [first for first, _ in ranks.in_tables(parted(table))] == list(range(0, COUNT, 90))
    monkeypatch.setattr(reorder, "TABLE_BYTES", 10 * table.nbytes // COUNT)
    back = np.arange(COUNT)[::-1]
    order = external_sort.RowOrder([back], COUNT)
    for held in (0, 1 << 30):  # through a file, and in memory
        found = [part for _, part in reorder.reorder(parted(table), lambda: order, [], held_bytes=held)]
        assert 5 < max(map(len, found)) < 15
        assert pa.concat_tables(found).equals(table.take(back))


@pytest.mark.parametrize("order", [(), ("label", "key")])
@pytest.mark.parametrize("limit", [None, 20_000])
@pytest.mark.usefixtures("small")
def test_shards_of_parts_are_those_of_the_table(order: tuple[str, ...], limit: int | None) -> None:
    table = drawn()
    settings = {"by": ["concept", "bucket"], "max_samples": 9, "max_bytes": limit, "sized_by": ["size"] if limit else []}
    found = list(assign_shards(parted(table), order=order, **settings))  # type: ignore[call-overload]
    assert len(found) > 10
    groups: dict[str, list[dict[str, object]]] = {}
    rows = sorted(table.to_pylist(), key=lambda row: tuple(row[name] for name in order)) if order else table.to_pylist()
    for row in rows:
        groups.setdefault(f"{row['concept']}-bucket{row['bucket']:02}", []).append(row)
    expected: list[dict[str, object]] = []
    for name, mine in sorted(groups.items()):
        number, samples, size = 0, 0, 0
        for row in mine:
            weight = 512 + -(-int(str(row["size"])) // 512) * 512
            if samples == 9 or (limit and samples and size + weight > limit):
                number, samples, size = number + 1, 0, 0
            samples, size = samples + 1, size + weight
            expected.append({**row, "shard": f"{name}-{number:05}"})
    assert pa.concat_tables(found).to_pylist() == expected


@pytest.mark.usefixtures("small")
def test_first_keys_by_ranges_of_hashes() -> None:
    table = drawn()
    twice = pa.concat_tables([table, table.slice(100, 50), table.slice(0, 3)])
    kept, away = _sifted(unique_keys.take_first(parted(twice), n=900))
    assert kept.equals(table.slice(0, 900))
    assert away["key"].to_pylist() == [*table["key"].to_pylist()[900:], *twice["key"].to_pylist()[COUNT:]]
    assert away["reason"].to_pylist() == ["beyond_first_n"] * (COUNT - 900) + ["duplicate_key"] * 53


@pytest.mark.usefixtures("small")
def test_one_number_may_be_most_of_all() -> None:
    numbers = np.random.default_rng(3).integers(0, 1 << 63, (20, 100)).astype(np.uint64)
    numbers[:, ::2] = 7
    numbers[1:3, 1] = numbers[0, 1]
    found = unique_keys.repeated_numbers(iter(numbers), numbers.size)
    assert found.tolist() == sorted([7, int(numbers[0, 1])])


@pytest.mark.usefixtures("small")
def test_first_contents_by_ranges_of_digests() -> None:
    draw = np.random.default_rng(9)
    digests = [draw.bytes(32).hex() for _ in range(300)]
    digests += [digests[0][:16] + draw.bytes(24).hex()]  # another content whose first 64 bits are the same
    digests += digests[:20] + digests[300:]
    images = [{"sha256": digest, "size": 1, "file": "", "offset": 0} for digest in digests]
    keys = [f"{at:03}" for at in range(len(digests))]
    kept, away = _sifted(image_sources.drop_duplicate_content(parted(pa.table({"key": keys, "image": images}))))
    assert kept["key"].to_pylist() == keys[:301]
    assert away["key"].to_pylist() == keys[301:]
    assert away["detail"].to_pylist() == [f"same bytes as {key}" for key in [*keys[:20], keys[300]]]


def _sifted(parts: Iterator[tuple[pa.Table, pa.Table]]) -> tuple[pa.Table, pa.Table]:
    kept, away = zip(*parts, strict=True)
    return pa.concat_tables(kept), pa.concat_tables(away)


@pytest.mark.parametrize("method", ["random", "top_score"])
def test_choice_by_parts_is_that_of_all_rows(method: str, request: pytest.FixtureRequest) -> None:
    table = drawn()
    settings = {"classes": ["BACKGROUND", "bus", "camera", "dog"], "per_class": 7, "method": method, "seed": 5}
    plain = _sifted(choose.choose(Rows.of(table), background="BACKGROUND", **settings))  # type: ignore[arg-type]
    request.getfixturevalue("small")
    found = list(choose.choose(parted(table), background="BACKGROUND", **settings))  # type: ignore[arg-type]
    assert len(found) > 3
    assert all(one.equals(other) for one, other in zip(_sifted(iter(found)), plain, strict=True))
    assert plain[0].num_rows == 7 * 3 * 4


@pytest.mark.parametrize("rule", ["as_released", "as_written"])
def test_splits_and_places_by_parts_are_those_of_all_rows(rule: str, request: pytest.FixtureRequest) -> None:
    table = drawn()
    split = {"rule": rule, "test_share": 0.3}

    def made(rows: Rows) -> list[pa.Table]:
        steps = assign_iid_splits(rows, **split), order_stream(rows), place(rows, max_samples=11)  # type: ignore[arg-type]
        return [pa.concat_tables(tables) for tables in steps]

    plain = made(Rows.of(table))
    request.getfixturevalue("small")
    assert [one.to_pylist() for one in made(parted(table))] == [one.to_pylist() for one in plain]
    _check_splits(plain[0], rule)
    placed = plain[2].to_pylist()
    assert placed == sorted(placed, key=lambda row: (row["bucket"], row["label"], row["key"]))


def _check_splits(table: pa.Table, rule: str) -> None:
    rows = table.to_pylist()
    by = ("bucket",) if rule == "as_released" else ("bucket", "label")
    for seed, of in itertools.product(SEEDS, {tuple(row[name] for name in by) for row in rows}):
        mine = [row for row in rows if tuple(row[name] for name in by) == of]
        assert sum(row[f"iid_seed{seed}"] == "test" for row in mine) == int(0.3 * len(mine))


@pytest.mark.usefixtures("small")
def test_buckets_with_rows_of_no_time_in_between() -> None:
    table = drawn().set_column(
        5, "when", pa.array([None if at % 5 == 0 else at % 17 for at in range(COUNT)], pa.timestamp("s"))
    )
    limits = [buckets.BucketLimits("1970-01-01 00:00:02", "1970-01-01 00:00:06")]
    limits += [buckets.BucketLimits("1970-01-01 00:00:09", "1970-01-01 00:00:12")]
    found = list(buckets.assign_buckets_by_limits(parted(table), limits=limits, by="when"))
    kept = pa.concat_tables([each for each in found if isinstance(each, pa.Table)])
    there = [at for at in range(COUNT) if at % 5 and (2 <= at % 17 <= 6 or 9 <= at % 17 <= 12)]
    order = sorted(there, key=lambda at: at % 17)
    assert kept.to_pylist() == [
        {**row, "bucket": int(at % 17 >= 9)} for at, row in zip(order, table.take(order).to_pylist(), strict=True)
    ]


def test_shards_go_on_over_parts() -> None:
    names = ["a"] * 100 + ["b"] * 30 + ["c"] * 140 + ["d"] * 90 + ["e"]
    rows = parted(pa.table({"shard": names}))
    assert _shard_bounds(rows) == [(0, 100), (100, 130), (130, 270), (270, 360), (360, 361)]
    assert _shard_bounds(Rows.of(pa.table({"shard": pa.array([], pa.string())}))) == [(0, 0)]
    for apart in (["a"] * 90 + ["b"] * 90 + ["a"], ["a", "b", "a"]):
        with pytest.raises(StepFailed, match="are not contiguous"):
            _shard_bounds(parted(pa.table({"shard": apart})))


def test_an_order_of_numbers_needs_one_array() -> None:
    values = np.random.default_rng(0).integers(0, 1 << 40, 1 << 21)
    tracemalloc.start()
    external_sort.stable_order(values)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < values.nbytes // 2
