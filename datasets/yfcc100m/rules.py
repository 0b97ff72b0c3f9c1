"""The rules that make a row of YFCC100M's metadata a photo with two usable times."""

from __future__ import annotations

import datetime as dt
import functools
import urllib.parse
from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.rows import REJECTS

_ID = r"^[1-9][0-9]{0,17}$"
_TAKEN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_SECONDS = r"^[1-9][0-9]{0,9}$"
_MICROSECONDS = pl.Datetime("us")
_FIRST = dt.datetime(1, 1, 1)


def judged(
    rest: pa.Table, *, file: str, unit: str, licences: Sequence[str] | None, schema: pa.Schema
) -> tuple[np.ndarray, pa.Table, pa.Table]:
    """Apply the rules to rows.

    Args:
        rest: as in ``fields.Parsed.rest``.
        file, unit: as in ``fields.Place``; they name the rows without a valid id.
        licences: names of licences to keep; None for all.
        schema: schema of the kept rows: ``fields.row_schema``.

    Returns:
        ``index`` of the kept rows, int64 of shape (kept,); the kept rows; and the rejects.
    """
    frame = pl.DataFrame(rest)
    frame = _timed(frame.with_columns(pl.col(pl.String).replace("", None)))
    kept = frame.select(_good(licences)).to_series()
    late = frame.filter(kept)
    return late["index"].to_numpy(), _rows(late, schema), _rejects(frame.filter(~kept), file, unit, licences)


def decoded(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A URL-encoded column of text, decoded."""
    texts = pl.DataFrame(rows.select([name])).select(_decoded(name)).to_arrow(compat_level=pl.CompatLevel.oldest())
    return texts[name].cast(pa.string())


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
    """The frame with ``id_fits``, and ``taken`` and ``uploaded``, null if they cannot be parsed."""
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


def _rows(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    filled = (pl.col(name).fill_null("") for name in schema.names[schema.names.index("url") + 1 :])
    columns = frame.select(
        pl.col("id").alias("key"),
        pl.col("taken").alias("date_taken"),
        pl.col("uploaded").alias("date_uploaded"),
        pl.col("date_uploaded").alias("uploaded_unix"),
        "url",
        *filled,
    )
    return columns.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)


def _decoded(name: str) -> pl.Expr:
    """URL-decoded text. Decoded bytes that are not UTF-8 become U+FFFD: a garbled title is no reason to reject a photo."""
    unquote = functools.partial(urllib.parse.unquote_plus, errors="replace")
    escaped = pl.col(name).str.contains("%", literal=True)
    return (
        pl.when(escaped)
        .then(pl.when(escaped).then(name).map_elements(unquote, return_dtype=pl.String, skip_nulls=True))
        .otherwise(pl.col(name).str.replace_all("+", " ", literal=True))
        .fill_null("")
        .alias(name)
    )


def _rejects(bad: pl.DataFrame, file: str, unit: str, licences: Sequence[str] | None) -> pa.Table:
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
    placed = pl.format("{} {}: ", pl.lit(unit), "place")
    table = bad.select(
        pl.when("id_fits").then("id").otherwise(pl.format("{}:{}", pl.lit(file), "place")).alias("key"),
        reason.alias("reason"),
        pl.when("id_fits").then(detail).otherwise(placed + detail).alias("detail"),
    )
    return table.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(REJECTS)
