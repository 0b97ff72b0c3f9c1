"""Buckets of time: equal counts, given limits and calendar periods, in bounded memory and with every row accounted for."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.parquet import write_parquet
from benchwright.curation.rows import REJECTS, Sifted
from benchwright.curation.run import run
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.stages import external_sort, reorder
from benchwright.curation.stages.buckets import (
    Bucketed,
    BucketLimits,
    assign_buckets_by_limits,
    assign_calendar_buckets,
    assign_equal_count_buckets,
    divide,
)
from benchwright.curation.stages.unique_keys import take_first
from benchwright.curation.store import Store
from benchwright.datasets.yfcc100m.metadata import Photo, pieces, read_metadata

PUBLISHED = Path(__file__).parents[2] / "datasets" / "clear" / "bucket_limits.toml"


def stored(folder: Path, table: pa.Table, parts: int = 3) -> Rows:
    """A table as the parts of a stage."""
    store = Store(str(folder))
    infos: list[PartInfo] = []
    bounds = divide(table.num_rows, parts).tolist()
    for number, (low, high) in enumerate(itertools.pairwise(bounds)):
        name = f"part-{number:05d}.parquet"
        with store.writing(name) as stream:
            write_parquet(stream, table.slice(low, high - low), {})
        infos.append(PartInfo(name, high - low))
    return Rows(store, table.schema, tuple(infos))


def photos(times: Sequence[dt.datetime | None], **columns: Sequence[object]) -> pa.Table:
    keys = [f"k{n}" for n in range(len(times))]
    return pa.table({"key": keys, "date_uploaded": pa.array(times, pa.timestamp("us")), **columns})


def gathered(results: Iterable[pa.Table | Sifted]) -> tuple[pa.Table, list[dict[str, str]]]:
    parts = [item if isinstance(item, Sifted) else Sifted(item, REJECTS.empty_table()) for item in results]
    rejects = [reject for part in parts for reject in part.rejected.to_pylist()]
    return pa.concat_tables([part.kept for part in parts]), rejects


def seconds(*numbers: int) -> list[dt.datetime]:
    return [dt.datetime(2010, 1, 1) + dt.timedelta(seconds=number) for number in numbers]


@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [
        (0, 3, [0, 0, 0]),
        (2, 5, [1, 1, 0, 0, 0]),  # more_itertools.divide(5, [1, 2]) -> [1] [2] [] [] []
        (7, 3, [3, 2, 2]),  # its documentation's example
        (6, 2, [3, 3]),
        (7_850_000, 11, [713_637] * 4 + [713_636] * 7),
    ],
)
def test_divide(count: int, parts: int, sizes: list[int]) -> None:
    assert np.diff(divide(count, parts)).tolist() == sizes


def test_the_papers_size_is_not_that_of_its_images() -> None:
    # 713,626 a bucket, as the paper says, makes 7,849,886 and not the 7,850,000 that it says as well.
    assert 713_626 * 11 == 7_849_886
    assert divide(7_850_000, 11)[-1] == 7_850_000


@pytest.mark.parametrize(("count", "parts"), [(5, 0), (-1, 3)])
def test_divide_refuses(count: int, parts: int) -> None:
    with pytest.raises(ValueError, match="at least 0 items and 1 part"):
        divide(count, parts)


@pytest.mark.parametrize("held", [0, 2_000, 1 << 28])
@pytest.mark.parametrize("buckets", [1, 4, 11])
def test_equal_counts_in_stable_order(tmp_path: Path, buckets: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "HELD_BYTES", held)
    monkeypatch.setattr(reorder, "TABLE_ROWS", 7)
    monkeypatch.setattr(reorder, "_MOST", 20)
    times = np.random.default_rng(5).integers(0, 40, 203).tolist()
    texts = [None if n % 10 == 0 else "x" * (n % 13) for n in range(203)]
    kinds = [None if n % 10 == 0 else "few" if n < 30 else f"many {n}" for n in range(203)]  # a dictionary in the first part
    table = photos(seconds(*times), text=texts, kind=kinds, ref=[{"sha256": str(n), "row": n} for n in range(203)])
    rows = stored(tmp_path, table, 9)
    tables = list(assign_equal_count_buckets(rows, buckets=buckets))
    assert max(part.num_rows for part in tables) <= 7
    assert rows.repetitive() == ["kind"]
    kept = pa.concat_tables(tables)
    order = sorted(range(203), key=lambda n: times[n])
    expected = table.take(order).append_column("bucket", pa.array(np.repeat(range(buckets), np.diff(divide(203, buckets)))))
    assert kept.combine_chunks().equals(expected.combine_chunks())


def test_fewer_rows_than_buckets_and_none(tmp_path: Path) -> None:
    kept, _ = gathered(assign_equal_count_buckets(stored(tmp_path / "a", photos(seconds(5, 1, 3)), 1), buckets=11))
    assert kept.to_pydict() == {"key": ["k1", "k2", "k0"], "date_uploaded": seconds(1, 3, 5), "bucket": [0, 1, 2]}
    assert list(assign_equal_count_buckets(stored(tmp_path / "b", photos([]), 1))) == []


def test_the_released_order_compares_stamps_as_text(tmp_path: Path) -> None:
    stamps = ["1000000000", "999999999", "1141639556", "1141639556", "10", "9", "1", None]
    table = photos(seconds(*range(8)), uploaded_unix=pa.array(stamps, pa.string()))
    kept, rejects = gathered(assign_equal_count_buckets(stored(tmp_path, table), by="uploaded_unix", buckets=2))
    present = [n for n, stamp in enumerate(stamps) if stamp is not None]
    assert kept["key"].to_pylist() == [f"k{n}" for n in sorted(present, key=lambda n: str(stamps[n]))]
    assert kept["uploaded_unix"].to_pylist()[-1] == "999999999"  # before 2001-09-09, and yet the last
    assert rejects == [{"key": "k7", "reason": "no_time", "detail": "uploaded_unix missing"}]


def test_text_order_is_that_of_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    stamps = [str(rng.integers(0, 10 ** int(digits))) for digits in rng.integers(1, 18, 500)]
    table = photos(seconds(*range(500)), uploaded_unix=stamps)
    kept, _ = gathered(assign_equal_count_buckets(stored(tmp_path, table), by="uploaded_unix", buckets=3))
    assert kept["uploaded_unix"].to_pylist() == sorted(stamps)


def test_columns_that_cannot_be_sorted(tmp_path: Path) -> None:
    rows = stored(tmp_path, photos(seconds(1, 2), name=["7", "seven"], share=[0.5, 1.0]))
    with pytest.raises(ValueError, match="column 'name' holds 'seven': text to make buckets by is 1 to 17 digits"):
        list(assign_equal_count_buckets(rows, by="name"))
    with pytest.raises(ValueError, match="column 'share' is of type double"):
        list(assign_equal_count_buckets(rows, by="share"))
    with pytest.raises(ValueError, match="no column 'when' to make buckets by: there are key, date_uploaded"):
        list(assign_equal_count_buckets(rows, by="when"))
    with pytest.raises(ValueError, match="column 'name' is of type string: buckets are made by a time"):
        list(assign_calendar_buckets(rows, by="name", period="year"))


@pytest.mark.parametrize("values", [[-(2**62), 2**62, 0, 5, 5, -7], [3, 3, 3], [], [1_000_000, 0, 2_000_000, 0]])
def test_stable_order_of_any_numbers(values: list[int]) -> None:
    array = np.asarray(values, dtype=np.int64)
    assert external_sort.stable_order(array.copy()).tolist() == np.argsort(array, kind="stable").tolist()


def published() -> list[BucketLimits]:
    return [BucketLimits(**limits) for limits in tomllib.loads(PUBLISHED.read_text())["limits"]]


def test_published_limits_are_those_of_the_release(shared_data: Path) -> None:
    import json

    released = json.loads((shared_data / "clear" / "clear_10_time.json").read_text())
    assert [f"{limits.start}.0" for limits in published()] == [bucket["start"] for bucket in released]
    assert [f"{limits.end}.0" for limits in published()] == [bucket["end"] for bucket in released]


def test_published_limits_assign_their_own_ends(tmp_path: Path) -> None:
    limits = published()
    assert len(limits) == 11
    ends = [dt.datetime.fromisoformat(text) for one in limits for text in (one.start, one.end)]
    second = dt.timedelta(seconds=1)
    outside = [ends[0] - second, ends[1] + second, ends[-1] + second, None]
    rows = stored(tmp_path, photos([*reversed(ends), *outside]))
    kept, rejects = gathered(assign_buckets_by_limits(rows, limits=limits))
    assert kept["date_uploaded"].to_pylist() == ends
    assert kept["bucket"].to_pylist() == [n // 2 for n in range(22)]
    assert [(reject["key"], reject["reason"]) for reject in rejects] == [
        ("k25", "no_time"),
        *((f"k{n}", "outside_every_bucket") for n in (22, 23, 24)),
    ]
    assert rejects[1]["detail"] == "date_uploaded 2004-01-01 11:52:12.000000"


def test_an_empty_bucket_between_full_ones(tmp_path: Path) -> None:
    limits = [BucketLimits(f"2010-01-01 00:00:{n}0", f"2010-01-01 00:00:{n}9") for n in range(3)]
    kept, rejects = gathered(assign_buckets_by_limits(stored(tmp_path, photos(seconds(25, 3, 20))), limits=limits))
    assert (kept["key"].to_pylist(), kept["bucket"].to_pylist(), rejects) == (["k1", "k2", "k0"], [0, 2, 2], [])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ([], "no limits"),
        ([BucketLimits("2010-01-02", "2010-01-01")], "run backwards"),
        ([BucketLimits("2010-01-01", "2010-02-01"), BucketLimits("2010-02-01", "2010-03-01")], "do not begin after 2010-02-01"),
    ],
)
def test_limits_that_make_no_sense(tmp_path: Path, limits: list[BucketLimits], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(assign_buckets_by_limits(stored(tmp_path, photos(seconds(1))), limits=limits))


@pytest.mark.parametrize(("period", "buckets"), [("year", [0, 0, 1, 1, 2]), ("month", [0, 1, 2, 2, 3])])
def test_calendar(tmp_path: Path, period: str, buckets: list[int]) -> None:
    days = [(1969, 1, 31), (1969, 12, 31), (2010, 2, 1), (2010, 2, 28), (2012, 2, 29)]
    times = [dt.datetime(*day, 23, 59, 59) for day in days]
    rows = stored(tmp_path, photos([times[n] for n in (3, 4, 0, 2, 1)] + [None]))
    kept, rejects = gathered(assign_calendar_buckets(rows, period=period))  # type: ignore[arg-type]
    assert kept["date_uploaded"].to_pylist() == times
    assert kept["bucket"].to_pylist() == buckets
    assert [reject["reason"] for reject in rejects] == ["no_time"]
    with pytest.raises(ValueError, match="'week'"):
        list(assign_calendar_buckets(rows, period="week"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "keys"), [(None, "abcdef"), (4, "abcd"), (0, ""), (100, "abcdef")])
def test_take_first(tmp_path: Path, n: int | None, keys: str) -> None:
    table = pa.table({"key": list("abacbbdaefa"), "place": list(range(11))})
    kept, rejects = gathered(take_first(stored(tmp_path, table, 4), n=n))
    assert "".join(kept["key"].to_pylist()) == keys
    assert kept["place"].to_pylist() == [table["key"].to_pylist().index(key) for key in keys]
    assert sorted(reject["key"] for reject in rejects if reject["reason"] == "duplicate_key") == list("aaabb")
    assert sum(reject["reason"] == "beyond_first_n" for reject in rejects) == 6 - len(keys)


def test_take_first_refuses_a_negative_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="n is -1"):
        list(take_first(stored(tmp_path, photos(seconds(1)), 1), n=-1))


@dataclasses.dataclass(frozen=True)
class Nothing:
    key: str


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_metadata_through_the_engine(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from make_yfcc import make

    path = tmp_path / "m.tsv"
    make(3_000, path, columns=23, broken=0.02, seed=1)
    place = where(path)
    flow = (
        source(
            "listed",
            step(read_metadata, path=place),
            pieces=step(pieces, path=place, piece_bytes=300_000),
            gives=Photo,
            max_rejects=None,
        )
        .whole("first", step(take_first, n=2_500), gives=Nothing, max_rejects=None)
        .whole("bucketed", step(assign_equal_count_buckets, buckets=11), gives=Bucketed)
    )
    made = run(flow, str(tmp_path / "out"), scheduler=scheduler, workers=2)
    listed, first, bucketed = made.artifacts
    assert listed.rows + sum(listed.rejects.values()) == listed.rows_in == 3_000
    assert first.rejects == {"beyond_first_n": listed.rows - 2_500}
    table = made.rows().table()
    assert np.bincount(table["bucket"].to_numpy()).tolist() == np.diff(divide(2_500, 11)).tolist()
    times = table["date_uploaded"].to_numpy()
    assert (times[1:] >= times[:-1]).all()
    assert bucketed.rows == 2_500
