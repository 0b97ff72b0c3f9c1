"""The columns of YFCC100M's metadata, and the rules that make a row of them a photo with two usable times."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import urllib.parse
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

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


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the rows of a frame come from: names those that have no id of their own.

    Attributes:
        file: name of the file within the source.
        unit: ``byte``, ``line`` or ``rowid``.
        of: places of the rows at some indices of the frame.
    """

    file: str
    unit: str
    of: Callable[[np.ndarray], np.ndarray]

    def key(self, place: int) -> str:
        """Key of a row without an id."""
        return f"{self.file}:{place}"


def sift_fields(frame: pl.DataFrame, place: Place, *, licences: Sequence[str] | None, extra: Sequence[str]) -> Sifted:
    """Turn columns of text into rows of ``metadata.Photo``, and turn away those that break a rule.

    Args:
        frame: the columns ``NEEDED`` and those of ``extra``, all ``String``, null where the field was empty.
        place: names the rows without a valid id.
        licences: names of licences to keep; None for all.
        extra: further columns to give, decoded where they are ``ENCODED``.
    """
    frame = frame.with_columns(
        pl.col("date_taken").str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, cache=False).alias("taken"),
        pl.col("date_uploaded").cast(pl.Int64, strict=False).alias("seconds"),
        pl.col("date_taken").str.contains(_TAKEN).fill_null(False).alias("taken_fits"),
        pl.col("date_uploaded").str.contains(_SECONDS).fill_null(False).alias("seconds_fit"),
        pl.col("id").str.contains(_ID).fill_null(False).alias("id_fits"),
    )
    whole = frame["date_taken"].str.ends_with(".0") | (frame["date_taken"].str.len_bytes() == 19)
    if not whole.all():
        fraction = pl.col("date_taken").str.slice(20).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
        frame = frame.with_columns(taken=pl.col("taken") + pl.duration(microseconds=fraction))
    frame = frame.with_columns(
        taken=pl.when("taken_fits").then("taken"),
        uploaded=(pl.when("seconds_fit").then("seconds") * 1_000_000).cast(_MICROSECONDS),
    )
    good = (
        pl.col("id_fits")
        & (pl.col("marker") == "0")
        & (pl.col("taken") < pl.col("uploaded"))
        & (pl.col("taken") >= dt.datetime(1, 1, 1))
        & pl.col("url").is_not_null()
    )
    if licences is not None:
        good &= pl.col("licence").is_in(list(licences))
    mask = frame.select(good.fill_null(False)).to_series()
    if mask.all():
        return Sifted(_rows(frame, extra), REJECTS.empty_table())
    return Sifted(_rows(frame.filter(mask), extra), _rejects(frame, ~mask, place, licences))


def _rows(frame: pl.DataFrame, extra: Sequence[str]) -> pa.Table:
    columns = frame.select(
        pl.col("id").alias("key"),
        pl.col("taken").alias("date_taken"),
        pl.col("uploaded").alias("date_uploaded"),
        pl.col("date_uploaded").alias("uploaded_unix"),
        "url",
        pl.col("extension").fill_null(""),
        pl.col("licence").fill_null(""),
        *(_decoded(name) if name in ENCODED else pl.col(name).fill_null("") for name in extra),
    )
    table = columns.to_arrow(compat_level=pl.CompatLevel.oldest())
    text = [pa.field(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(text))


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


def _rejects(frame: pl.DataFrame, broken: pl.Series, place: Place, licences: Sequence[str] | None) -> pa.Table:
    bad = frame.filter(broken)
    # Finding out where a row lies costs a pass over the text: only for those that have no other name.
    nameless = ~bad["id_fits"].to_numpy()
    places = np.zeros(len(nameless), dtype=np.int64)
    if nameless.any():
        places[nameless] = place.of(np.flatnonzero(broken.to_numpy())[nameless])
    bad = bad.with_columns(place=pl.Series(places), file=pl.lit(place.file))
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
        "null_date_taken": (null_taken, seen("date_taken", "is no time")),
        "bad_date_taken": (
            pl.col("taken").is_null() | (pl.col("taken") < dt.datetime(1, 1, 1)),
            seen("date_taken", "is not like 2006-02-28 20:33:06.0"),
        ),
        "null_date_uploaded": (null_uploaded, seen("date_uploaded", "is no time")),
        "bad_date_uploaded": (pl.col("uploaded").is_null(), seen("date_uploaded", "is not seconds since 1970")),
        "taken_not_before_upload": (
            pl.col("taken") >= pl.col("uploaded"),
            pl.format("date_taken {} is not before date_uploaded {}", "date_taken", pl.col("uploaded").dt.to_string("iso")),
        ),
        "no_url": (pl.col("url").is_null(), pl.lit("url is empty")),
        "licence_not_wanted": (pl.lit(licences is not None), seen("licence", "is not among those asked for")),
    }
    reason, detail = pl.lit(None, dtype=pl.String), pl.lit(None, dtype=pl.String)
    for name, (rule, what) in reversed(rules.items()):
        reason, detail = pl.when(rule).then(pl.lit(name)).otherwise(reason), pl.when(rule).then(what).otherwise(detail)
    placed = pl.format("{} {}: ", pl.lit(place.unit), "place")
    table = bad.select(
        pl.when("id_fits").then("id").otherwise(pl.format("{}:{}", "file", "place")).alias("key"),
        reason.alias("reason"),
        pl.when("id_fits").then(detail).otherwise(placed + detail).alias("detail"),
    )
    return table.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(REJECTS)
