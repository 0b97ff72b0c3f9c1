"""Divide dated rows into time buckets: of equal count, between fixed limits, or by the calendar.

The steps are ``whole`` steps. Each yields all columns of its rows and a column ``bucket`` (int, from 0), ordered by bucket and
time; rows of equal time keep their order. A row without a time is rejected as ``no_time``.

CLEAR's ``as_released`` variant sorts by the upload timestamp as text, here ``by="uploaded_unix"``: the same order as by time
if all timestamps have equal length, as all since 2001-09-09 do.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..rows import REJECTS, Sifted
from ..threads import ahead
from .external_sort import DIGITS, MOST_DIGITS, NO_NUMBER, RowOrder, numbers_of_digits, sorted_by_numbers
from .reorder import StoredRows, reorder
from .spill import SpillableArray


@dataclasses.dataclass(frozen=True)
class Bucketed:
    """Columns that the steps add.

    Attributes:
        key: key of the row.
        bucket: number of its bucket, from 0.

    >>> Bucketed("photo7", bucket=0)
    Bucketed(key='photo7', bucket=0)
    """

    key: str
    bucket: int


@dataclasses.dataclass(frozen=True)
class BucketLimits:
    """First and last time of a bucket, both inclusive, as ``2007-04-09 03:27:17`` (naive).

    >>> checked_limits([BucketLimits("2007-04-09 03:27:17", "2006-01-01 00:00:00")])
    Traceback (most recent call last):
        ...
    ValueError: bucket limits 2007-04-09 03:27:17 to 2006-01-01 00:00:00 run backwards
    """

    start: str
    end: str


def divide(count: int, parts: int) -> np.ndarray:
    """Divide ``count`` items into ``parts`` runs; the first ``count % parts`` get one item more (``more_itertools.divide``).

    Returns:
        The bounds, int64 of shape (parts + 1,), from 0 to ``count``; run i is [bounds[i], bounds[i + 1]). If there are fewer
        items than parts, the last runs are empty.

    Raises:
        ValueError: less than one part, or a negative count.

    >>> divide(11, 3)  # 4, 4 and 3 items
    array([ 0,  4,  8, 11])
    """
    if parts < 1 or count < 0:
        raise ValueError(f"{count} items in {parts} parts: at least 0 items and 1 part are needed")
    each, more = divmod(count, parts)
    sizes = np.full(parts, each, dtype=np.int64)
    sizes[:more] += 1
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])


def assign_equal_count_buckets(
    rows: StoredRows, *, by: str = "date_uploaded", buckets: int = 11, scratch: str | None = None
) -> Iterator[pa.Table | Sifted]:
    """Divide rows into buckets of equal count (CLEAR, section 3; its code uses ``more_itertools.divide``).

    Args:
        rows: rows with the column ``by``.
        by: column to sort by: times, integers, or text of at most 17 digits, which is compared as text.
        buckets: number of buckets; if the rows do not divide evenly, the first buckets get one row more.
        scratch: folder for a temporary file as large as the rows; default: the system's.

    Raises:
        ValueError: a column of another type, or text that is not digits.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": list("abcde"), "year": [2007, 2005, 2006, 2004, 2008]}))
    >>> table = pa.concat_tables(assign_equal_count_buckets(rows, by="year", buckets=2))
    >>> table["year"].to_pylist(), table["bucket"].to_pylist()
    ([2004, 2005, 2006, 2007, 2008], [0, 0, 0, 1, 1])
    """
    times = _times(rows, by, scratch)
    without = yield from _rejected(rows, times, _absent, "no_time", by)
    yield from _tables(rows, times, divide(len(times) - without, buckets), np.arange(buckets), scratch)


def assign_buckets_by_limits(
    rows: StoredRows, *, limits: Sequence[BucketLimits], by: str = "date_uploaded", scratch: str | None = None
) -> Iterator[pa.Table | Sifted]:
    """Assign rows to buckets between fixed times; rows outside all of them are rejected as ``outside_every_bucket``.

    Args:
        rows: rows with the column ``by``, of times.
        limits: limits of the buckets in order of time, not overlapping. Gaps are allowed, as between CLEAR's published limits.
        by: column of times.
        scratch: as for ``assign_equal_count_buckets``.

    Raises:
        ValueError: limits that overlap or run backwards.

    >>> import datetime as dt
    >>> from benchwright.curation.stage_rows import Rows
    >>> times = pa.array([dt.datetime(2007, 5, 1), dt.datetime(2009, 5, 1)], pa.timestamp("us"))
    >>> rows = Rows.of(pa.table({"key": ["a", "b"], "taken": times}))
    >>> limits = [BucketLimits("2007-01-01 00:00:00", "2007-12-31 23:59:59")]
    >>> for table in assign_buckets_by_limits(rows, limits=limits, by="taken"):
    ...     print(table.rejected["reason"].to_pylist() if isinstance(table, Sifted) else table["bucket"].to_pylist())
    ['outside_every_bucket']
    [0]
    """
    starts, ends = checked_limits(limits)
    times = _times(rows, by, scratch, only_times=True)
    yield from _rejected(rows, times, _absent, "no_time", by)

    def number_of(some: np.ndarray) -> np.ndarray:
        number = np.searchsorted(starts, some, side="right") - 1
        number[(number < 0) | (some > ends[np.maximum(number, 0)])] = NO_NUMBER
        return number

    def outside(some: np.ndarray) -> np.ndarray:
        return ~_absent(some) & (number_of(some) == NO_NUMBER)

    yield from _rejected(rows, times, outside, "outside_every_bucket", by)
    inside = SpillableArray(np.int64, scratch=scratch)
    for _, some in times.blocks():
        inside.append(np.where(outside(some), NO_NUMBER, some))
    numbers, bounds = _counted(inside, number_of)
    yield from _tables(rows, inside, bounds, numbers, scratch)


def assign_calendar_buckets(
    rows: StoredRows, *, period: Literal["year", "month"], by: str = "date_uploaded", scratch: str | None = None
) -> Iterator[pa.Table | Sifted]:
    """Make a bucket of every year or month that has rows, numbered from 0 in order of time.

    Args:
        rows: rows with the column ``by``, of times.
        period: length of a bucket.
        by: column of times.
        scratch: as for ``assign_equal_count_buckets``.

    Raises:
        ValueError: ``period`` is neither year nor month.

    >>> import datetime as dt
    >>> from benchwright.curation.stage_rows import Rows
    >>> times = pa.array([dt.datetime(2007, 5, 1), dt.datetime(2007, 8, 1), dt.datetime(2009, 5, 1)], pa.timestamp("us"))
    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c"], "taken": times}))
    >>> pa.concat_tables(assign_calendar_buckets(rows, period="year", by="taken"))["bucket"].to_pylist()
    [0, 0, 1]
    """
    if period not in ("year", "month"):
        raise ValueError(f"period {period!r}: a calendar bucket is a year or a month")
    times = _times(rows, by, scratch, only_times=True)
    yield from _rejected(rows, times, _absent, "no_time", by)
    unit = "datetime64[Y]" if period == "year" else "datetime64[M]"
    numbers, bounds = _counted(times, lambda some: some.view("datetime64[us]").astype(unit).astype(np.int64))
    yield from _tables(rows, times, bounds, np.arange(len(numbers)), scratch)


# ------------------------------------------------------------------------------------------------------------- times


def _times(rows: StoredRows, by: str, scratch: str | None, *, only_times: bool = False) -> SpillableArray:
    """The column as int64 that sort as its values do (microseconds for times); ``NO_NUMBER`` for rows without a value."""
    if by not in rows.schema.names:
        raise ValueError(f"no column {by!r} to make buckets by: there are {', '.join(rows.schema.names)}")
    kind = rows.schema.field(by).type
    text = pa.types.is_string(kind)
    if not (pa.types.is_timestamp(kind) or (not only_times and (text or pa.types.is_integer(kind)))):
        rule = "a time" if only_times else "a time, a number or digits"
        raise ValueError(f"column {by!r} is of type {kind}: buckets are made by {rule}")
    if text:
        numbers = numbers_of_digits(lambda: rows.batches([by]), by, scratch=scratch)
        if numbers is None:
            texts = (table[by] for table in rows.batches([by]))
            other = next(some[0].as_py() for each in texts if len(some := _not_digits(each)))
            raise ValueError(f"column {by!r} holds {other!r}: text to make buckets by is 1 to {MOST_DIGITS} digits")
        return numbers
    values = SpillableArray(np.int64, scratch=scratch)
    for table in ahead(rows.batches([by])):
        column = table[by].cast(pa.timestamp("us")) if pa.types.is_timestamp(kind) else table[by]
        values.append(column.cast(pa.int64()).fill_null(NO_NUMBER).to_numpy())
    return values


def _not_digits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.filter(pc.invert(pc.match_substring_regex(column, DIGITS).fill_null(True)))


def _absent(times: np.ndarray) -> np.ndarray:
    return times == NO_NUMBER


def checked_limits(limits: Sequence[BucketLimits]) -> tuple[np.ndarray, np.ndarray]:
    """First and last time of each bucket in microseconds since 1970, int64 of shape (n,) each.

    Raises:
        ValueError: no limits, or limits that overlap, are not in order of time, or run backwards.

    >>> first, last = checked_limits([BucketLimits("1970-01-01 00:00:00", "1970-01-01 00:00:01")])
    >>> first, last
    (array([0]), array([1000000]))
    """
    if not limits:
        raise ValueError("no limits: at least one bucket is needed")
    edges = [[dt.datetime.fromisoformat(text) for text in (limit.start, limit.end)] for limit in limits]
    for before, after in zip([None, *edges], edges, strict=False):
        if after[0] > after[1]:
            raise ValueError(f"bucket limits {after[0]} to {after[1]} run backwards")
        if before is not None and after[0] <= before[1]:
            raise ValueError(
                f"bucket limits {after[0]} to {after[1]} do not begin after {before[1]}, where the last bucket ends"
            )
    micros = np.asarray(edges, dtype="datetime64[us]").astype(np.int64)
    return micros[:, 0], micros[:, 1]


# ----------------------------------------------------------------------------------------------------------- results


def _counted(times: SpillableArray, number_of: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of buckets that occur, ascending, and the bounds of the rows of each in the order of time."""
    counts = Counter[int]()
    for _, some in times.blocks():
        numbers, many = np.unique(number_of(some[~_absent(some)]), return_counts=True)
        counts.update(dict(zip(numbers.tolist(), many.tolist(), strict=True)))
    numbers = sorted(counts)
    return np.array(numbers, dtype=np.int64), np.array([0, *np.cumsum([counts[n] for n in numbers])], dtype=np.int64)


def _tables(
    rows: StoredRows, times: SpillableArray, bounds: np.ndarray, numbers: np.ndarray, scratch: str | None
) -> Iterator[pa.Table]:
    """Rows that have a time, in the order of time, with their bucket."""

    def order() -> RowOrder:
        return RowOrder(sorted_by_numbers(times, absent=NO_NUMBER, scratch=scratch), len(times), scratch=scratch)

    for first, table in reorder(rows, order, bounds.tolist(), scratch=scratch):
        bucket = int(numbers[np.searchsorted(bounds, first, side="right") - 1])
        column = pa.array(np.full(table.num_rows, bucket, dtype=np.int64))
        yield table.drop_columns(["bucket"] if "bucket" in table.column_names else []).append_column("bucket", column)


def _rejected(
    rows: StoredRows, times: SpillableArray, out: Callable[[np.ndarray], np.ndarray], reason: str, by: str
) -> Generator[Sifted, None, int]:
    """Reject the rows of the times that are ``out``; returns their number."""
    count = sum(int(np.count_nonzero(out(some))) for _, some in times.blocks())
    if not count:
        return 0
    schema = rows.schema.remove_metadata()
    if "bucket" not in schema.names:
        schema = schema.append(pa.field("bucket", pa.int64()))
    at = 0
    for table in rows.batches(["key", by]):
        mask = out(times[at : at + table.num_rows])
        at += table.num_rows
        if mask.any():
            away = table.filter(pa.array(mask))
            details = pc.binary_join_element_wise(by, away[by].cast(pa.string()).fill_null("missing"), " ")
            reasons = pa.array([reason] * away.num_rows, pa.string())
            yield Sifted(schema.empty_table(), pa.table([away["key"], reasons, details], schema=REJECTS))
    return count
