"""The columns of YFCC100M's metadata, and the rules that make a row of them a photo with two usable times."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
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

_TAKEN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_SECONDS = r"^[1-9][0-9]{0,9}$"
_MICROSECONDS, _TIME = pl.Datetime("us"), pa.timestamp("us")
_FIRST = dt.datetime(1, 1, 1)


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


@dataclasses.dataclass(frozen=True)
class Block:
    """Fields of some lines.

    Attributes:
        frame: the columns ``NEEDED`` and those asked for, all ``String``, null where the field was empty.
        place: names the rows without a valid id.
        rejected: lines whose fields could not be told apart, with the columns ``REJECTS``.
    """

    frame: pl.DataFrame
    place: Place
    rejected: pa.Table


def sift_fields(blocks: Iterable[Block], *, licences: Sequence[str] | None, extra: Sequence[str]) -> Sifted:
    """Turn columns of text into rows of ``metadata.Photo``, and turn away those that break a rule.

    Args:
        blocks: of one file, in order; only what is kept of one is in memory when the next is asked for.
        licences: names of licences to keep; None for all.
        extra: further columns to give, decoded where they are ``ENCODED``.
    """
    kept, left, rejected = list[pa.Table](), list[pa.Table](), list[pa.Table]()
    file = unit = ""
    total = 0
    for block in blocks:
        frame = block.frame.with_columns(_decoded(name) for name in extra if name in ENCODED) if extra else block.frame
        # polars cuts a frame in many: what follows works on whole columns.
        table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        table = table.cast(pa.schema([pa.field(name, pa.string()) for name in table.column_names]))
        good, id_fits, taken, uploaded = _usual(table, licences)
        kept.append(_rows(table, taken, uploaded, extra).filter(good))
        if kept[-1].num_rows < table.num_rows:
            index = np.flatnonzero(~good.to_numpy())
            named = id_fits.to_numpy()[index]
            places = np.zeros(len(index), dtype=np.int64)
            if not named.all():  # finding where a line lies costs a pass over the text
                places[~named] = block.place.of(index[~named])
            rest = table.filter(pc.invert(good)).append_column("id_fits", pa.array(named))
            left.append(rest.append_column("place", pa.array(places)).append_column("index", pa.array(index + total)))
        rejected.append(block.rejected)
        file, unit, total = block.place.file, block.place.unit, total + table.num_rows
    rows = pa.concat_tables(kept)
    if left:
        rest = pa.concat_tables(left)
        frame = _timed(pl.DataFrame(rest))
        late = frame.select(_good(licences)).to_series()
        rejected.append(_rejects(frame.filter(~late), file, unit, licences))
        if late.any():
            index = rest["index"].to_numpy()
            order = np.concatenate([np.delete(np.arange(total), index), index[late.to_numpy()]])
            found = _rows(rest, frame["taken"].to_arrow(), frame["uploaded"].to_arrow(), extra).filter(late.to_arrow())
            rows = pa.concat_tables([rows, found]).combine_chunks().take(pa.array(np.argsort(order)))
    return Sifted(rows, pa.concat_tables(rejected))


def _usual(table: pa.Table, licences: Sequence[str] | None) -> tuple[Any, Any, Any, Any]:
    """Which rows are good and written as nearly all are, with times like ``2006-02-28 20:33:06.0`` and ``1141158786``.

    Arrow reads columns of such values several times faster than patterns read any values, but gives up at the first that
    is none: then no row counts as good here.

    Returns:
        Whether each row is good, whether its id fits (bool, not null), and its times (null where they are not as above).
    """
    key, taken, uploaded = table["id"], table["date_taken"], table["date_uploaded"]
    id_fits = _all(pc.ascii_is_decimal(key), pc.less_equal(pc.binary_length(key), 18), pc.invert(pc.starts_with(key, "0")))
    usual = _all(
        pc.equal(pc.binary_length(taken), 21),
        pc.match_substring(taken, " "),  # and no T between date and time
        pc.equal(pc.binary_length(uploaded), 10),
        pc.ascii_is_decimal(uploaded),
        pc.invert(pc.starts_with(uploaded, "0")),
    )
    null = pa.scalar(None, pa.string())
    try:
        taken = pc.if_else(usual, taken, null).cast(_TIME)
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.repeat(False, table.num_rows)]), id_fits, *[pa.nulls(table.num_rows, _TIME)] * 2
    uploaded = pc.multiply(pc.if_else(usual, uploaded, null).cast(pa.int64()), 1_000_000).cast(_TIME)
    good = _all(
        id_fits,
        pc.equal(table["marker"], "0"),
        pc.less(taken, uploaded),
        pc.greater_equal(taken, _FIRST),
        pc.is_valid(table["url"]),
        *([] if licences is None else [pc.is_in(table["licence"], pa.array(licences, pa.string()))]),
    )
    return good, id_fits, taken, uploaded


def _all(*conditions: Any) -> Any:
    """Rows for which all hold; a condition that is null does not hold."""
    return functools.reduce(pc.and_, conditions).fill_null(False)


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
    """The same with ``taken`` and ``uploaded``, null where they cannot be read."""
    fraction = pl.col("date_taken").str.slice(20).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
    seconds = pl.col("date_taken").str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, cache=False)
    uploaded = pl.col("date_uploaded").cast(pl.Int64, strict=False) * 1_000_000
    return frame.with_columns(
        pl.when(pl.col("date_taken").str.contains(_TAKEN))
        .then(seconds + pl.duration(microseconds=fraction))
        .cast(_MICROSECONDS)
        .alias("taken"),
        pl.when(pl.col("date_uploaded").str.contains(_SECONDS)).then(uploaded).cast(_MICROSECONDS).alias("uploaded"),
    )


def _rows(table: pa.Table, taken: Any, uploaded: Any, extra: Sequence[str]) -> pa.Table:
    columns = {"key": table["id"], "date_taken": taken, "date_uploaded": uploaded, "uploaded_unix": table["date_uploaded"]}
    filled = {name: pc.fill_null(table[name], "") for name in ("extension", "licence", *extra)}
    return pa.table({**columns, "url": table["url"], **filled})


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
        "null_date_taken": (null_taken, seen("date_taken", "is no time")),
        "bad_date_taken": (
            pl.col("taken").is_null() | (pl.col("taken") < _FIRST),
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
    placed = pl.format("{} {}: ", pl.lit(unit), "place")
    table = bad.select(
        pl.when("id_fits").then("id").otherwise(pl.format("{}:{}", pl.lit(file), "place")).alias("key"),
        reason.alias("reason"),
        pl.when("id_fits").then(detail).otherwise(placed + detail).alias("detail"),
    )
    return table.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(REJECTS)
