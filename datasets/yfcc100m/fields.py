"""The columns of YFCC100M's metadata, and the rules that make a row of them a photo with two usable times."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import REJECTS, Sifted
from .sqlite import COLUMN_NAMES

COLUMNS = tuple(COLUMN_NAMES)
"""The 23 columns in order. The 25-column form has the line number before the id and the photo's hash after it."""

LAYOUTS = {23: COLUMNS, 25: ("line", "id", "hash", *COLUMNS[1:])}

NEEDED = ("id", "date_taken", "date_uploaded", "url", "licence", "extension", "marker")

ENCODED = frozenset({"nickname", "device", "title", "description", "user_tags", "machine_tags"})
"""Columns that are URL-encoded in the file, with + for a space."""

EXTRA = tuple(name for name in LAYOUTS[25] if name not in (*NEEDED, "line"))
"""Columns that can be asked for beside those of ``metadata.Photo``, all as text."""

_ID = r"^[1-9][0-9]{0,17}$"
_TAKEN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_SECONDS = r"^[1-9][0-9]{0,9}$"
_MICROSECONDS = pl.Datetime("us")
_FIRST = dt.datetime(1, 1, 1)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the rows of a frame come from: names those that have no id of their own.

    Attributes:
        file: name of the file within the source.
        unit: ``byte``, ``line`` or ``rowid``.
    """

    file: str
    unit: str

    def key(self, place: int) -> str:
        """Key of a row without an id."""
        return f"{self.file}:{place}"


@dataclasses.dataclass(frozen=True)
class Parsed:
    """Some lines.

    Attributes:
        good: columns of ``metadata.Photo`` and those asked for, as text, of the rows that are known to keep all rules.
        index: int64 of shape (good,), increasing: which line each is.
        rest: the other rows: the columns ``NEEDED`` and those asked for as text, empty or null where the field was empty;
            ``index``, increasing, and ``place``, the place of the line in the unit of ``place``, both int64.
        lines: how many there are, those that are rejected with them.
        rejected: lines whose fields could not be distinguished, with the columns ``REJECTS``.
    """

    good: pa.Table
    index: np.ndarray
    rest: pa.Table
    lines: int
    rejected: pa.Table


def rest_table(index: Sequence[int] | np.ndarray, place: Sequence[int] | np.ndarray, texts: Mapping[str, Any]) -> pa.Table:
    """``Parsed.rest`` of its columns."""
    integers = {"index": pa.array(index, pa.int64()), "place": pa.array(place, pa.int64())}
    schema = pa.schema([*((name, pa.int64()) for name in integers), *((name, pa.string()) for name in texts)])
    return pa.table({**integers, **texts}, schema=schema)


def row_schema(extra: Sequence[str]) -> pa.Schema:
    """Columns of ``metadata.Photo`` and ``extra``, none with a missing value."""
    times, texts = ("date_taken", "date_uploaded"), ("uploaded_unix", "url", "extension", "licence", *extra)
    named = [("key", pa.string()), *((name, pa.timestamp("us")) for name in times), *((name, pa.string()) for name in texts)]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in named])


def sift_fields(blocks: Iterable[Parsed], *, place: Place, licences: Sequence[str] | None, extra: Sequence[str]) -> Sifted:
    """Put blocks together as rows of ``metadata.Photo``, and reject rows that break a rule.

    Args:
        blocks: of one file, in order, at least one; only what is kept of one is in memory when the next is requested.
        place: names the rows without a valid id.
        licences: names of licences to keep; None for all. The rows ``good`` have been asked for theirs.
        extra: further columns to give, decoded where they are ``ENCODED``.
    """
    good, index, rest, rejected = list[pa.Table](), list[np.ndarray](), list[pa.Table](), list[pa.Table]()
    total = 0
    for block in blocks:
        good.append(block.good)
        index.append(block.index + total)
        rest.append(block.rest.set_column(0, "index", pc.add(block.rest["index"], total)))
        rejected.append(block.rejected)
        total += block.lines
    rows = pa.concat_tables(good)
    others = pl.DataFrame(pa.concat_tables(rest))
    if others.height:  # of all blocks at once, as there are few
        others = _timed(others.with_columns(pl.col(pl.String).replace("", None)))
        late = others.select(_good(licences)).to_series()
        rejected.append(_rejects(others.filter(~late), place, licences))
        if late.any():
            order = np.argsort(np.concatenate([*index, others.filter(late)["index"].to_numpy()]))
            rows = pa.concat_tables([rows, _rows(others.filter(late), extra)]).combine_chunks().take(pa.array(order))
    for name in extra:
        if name in ENCODED:
            decoded = pl.DataFrame(rows.select([name])).select(_decoded(name)).to_arrow(compat_level=pl.CompatLevel.oldest())
            rows = rows.set_column(rows.column_names.index(name), name, decoded[name].cast(pa.string()))
    return Sifted(rows, pa.concat_tables(rejected))


def _good(licences: Sequence[str] | None) -> pl.Expr:
    good = (
        pl.col("id_fits")
        & (pl.col("marker") == "0")
        & (pl.col("taken") < pl.col("uploaded"))
        & (pl.col("taken") >= _FIRST)
        & pl.col("url").is_not_null()
    )
    if licences is not None:
        good &= pl.col("licence").is_in(list(licences))
    return good.fill_null(False)


def _timed(frame: pl.DataFrame) -> pl.DataFrame:
    """The same with whether the id fits, and ``taken`` and ``uploaded``, null where they cannot be read."""
    fraction = pl.col("date_taken").str.slice(20).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
    seconds = pl.col("date_taken").str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, cache=False)
    uploaded = pl.col("date_uploaded").cast(pl.Int64, strict=False) * 1_000_000
    return frame.with_columns(
        pl.col("id").str.contains(_ID).fill_null(False).alias("id_fits"),
        pl.when(pl.col("date_taken").str.contains(_TAKEN))
        .then(seconds + pl.duration(microseconds=fraction))
        .cast(_MICROSECONDS)
        .alias("taken"),
        pl.when(pl.col("date_uploaded").str.contains(_SECONDS)).then(uploaded).cast(_MICROSECONDS).alias("uploaded"),
    )


def _rows(frame: pl.DataFrame, extra: Sequence[str]) -> pa.Table:
    filled = (pl.col(name).fill_null("") for name in ("extension", "licence", *extra))
    columns = frame.select(
        pl.col("id").alias("key"),
        pl.col("taken").alias("date_taken"),
        pl.col("uploaded").alias("date_uploaded"),
        pl.col("date_uploaded").alias("uploaded_unix"),
        "url",
        *filled,
    )
    return columns.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(row_schema(extra))


def _decoded(name: str) -> pl.Expr:
    """URL-decoded text. Bytes that are not UTF-8 once decoded become U+FFFD: a garbled title is no reason to lose a photo."""
    unquote = functools.partial(urllib.parse.unquote_plus, errors="replace")
    escaped = pl.col(name).str.contains("%", literal=True)
    return (
        pl.when(escaped)
        .then(pl.when(escaped).then(name).map_elements(unquote, return_dtype=pl.String, skip_nulls=True))
        .otherwise(pl.col(name).str.replace_all("+", " ", literal=True))
        .fill_null("")
        .alias(name)
    )


def _rejects(bad: pl.DataFrame, place: Place, licences: Sequence[str] | None) -> pa.Table:
    null_taken, null_uploaded = (
        pl.col(name).is_null() | pl.col(name).str.to_lowercase().eq("null") for name in ("date_taken", "date_uploaded")
    )

    def seen(name: str, rule: str) -> pl.Expr:
        value = pl.col(name).fill_null("").str.slice(0, 80)
        return pl.format("{} '{}' {}", pl.lit(name), value, pl.lit(rule))

    rules = {
        "bad_id": (~pl.col("id_fits"), seen("id", "is not a positive whole number of at most 18 digits")),
        "bad_marker": (~pl.col("marker").is_in(["0", "1"]).fill_null(False), seen("marker", "is not 0 or 1")),
        "not_a_photo": (pl.col("marker") != "0", seen("marker", "is not 0: a video")),
        "null_date_taken": (null_taken, seen("date_taken", "is not a time")),
        "bad_date_taken": (
            pl.col("taken").is_null() | (pl.col("taken") < _FIRST),
            seen("date_taken", "is not like 2006-02-28 20:33:06.0"),
        ),
        "null_date_uploaded": (null_uploaded, seen("date_uploaded", "is not a time")),
        "bad_date_uploaded": (pl.col("uploaded").is_null(), seen("date_uploaded", "is not seconds since 1970")),
        "taken_not_before_upload": (
            pl.col("taken") >= pl.col("uploaded"),
            pl.format("date_taken {} is not before date_uploaded {}", "date_taken", pl.col("uploaded").dt.to_string("iso")),
        ),
        "no_url": (pl.col("url").is_null(), pl.lit("url is empty")),
        "licence_not_wanted": (pl.lit(licences is not None), seen("licence", "is not among those requested")),
    }
    reason, detail = pl.lit(None, dtype=pl.String), pl.lit(None, dtype=pl.String)
    for name, (rule, what) in reversed(rules.items()):
        reason, detail = pl.when(rule).then(pl.lit(name)).otherwise(reason), pl.when(rule).then(what).otherwise(detail)
    placed = pl.format("{} {}: ", pl.lit(place.unit), "place")
    table = bad.select(
        pl.when("id_fits").then("id").otherwise(pl.format("{}:{}", pl.lit(place.file), "place")).alias("key"),
        reason.alias("reason"),
        pl.when("id_fits").then(detail).otherwise(placed + detail).alias("detail"),
    )
    return table.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(REJECTS)
