"""Videos that a user's copy of a dataset has or lacks, as listed by downloaders and loaders; and the rows that match them.

One video per line, in any of the usual forms of such lists::

    -3B32lodo2M_000059_000069          -3B32lodo2M            -3B32lodo2M_59_69.pt
    train/playing guitar/-3B32lodo2M_000059_000069.mp4        v_-3B32lodo2M.mkv
    abseiling/-3B32lodo2M_000059_000069.mp4 0                 abseiling,-3B32lodo2M,59,69,train,0

``find videos -type f > held.txt`` creates one. A line without times refers to every clip of its video. Ids are YouTube ids, or
match a pattern that you set: a line that matches it as a whole is an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.bounded_reading import text_blocks
from ...curation.rows import Sifted, schema_of, sift, with_column
from ...curation.stages.unique_keys import repeated_keys
from ..roles import ROLE_NAMES
from ..videos.rows import ListedClip
from .lists import ID

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows


_TIME = r"(\d{1,6})"
_FINE = r"(\d{1,6}(?:\.\d{3})?)"
_FILE = r"(?:^|[/\\])(?:v_)?(ID)(?:_TIME_TIME)?(?:$|[.,\s])"
_CSV = r"(?:^|,)(ID),TIME(?:\.0*)?,TIME(?:\.0*)?(?:$|,)"
_WHOLE = r"^(ID)$"
_HEADER = r"^[A-Za-z_ ]+(?:,[A-Za-z_ ]+)+$"


@dataclass(frozen=True)
class Held:
    """A line that names a video: ``key`` is its number from 1; the times (seconds) are None if the line has none."""

    key: str
    youtube_id: str
    time_start: int | None
    time_end: int | None


@dataclass(frozen=True)
class HeldMoment:
    """``Held`` for clips whose times may be fractions of seconds, with three decimals, ``000007.250``."""

    key: str
    youtube_id: str
    time_start: float | None
    time_end: float | None


def read_inventory(*, path: str, id_pattern: str = ID, fractions: bool = False) -> Iterator[Sifted]:
    """Source step: the lines of a text file. Rejected: ``blank_line``, ``header`` (a first line of words with commas), and
    ``no_video_name`` (such as other files).

    Args:
        path: path of the file.
        id_pattern: regular expression for a whole id, without groups.
        fractions: whether times may be fractions: rows are then ``HeldMoment``, else ``Held``.

    Raises:
        ValueError: ``id_pattern`` is not a regular expression, or has groups.
    """
    check_id_pattern(id_pattern)
    for start, lines in text_blocks(path):
        yield _sifted(lines, start, id_pattern, fractions)


def check_id_pattern(pattern: str) -> None:
    """Raise ``ValueError`` if a pattern is not a regular expression, or has groups."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"id_pattern {pattern!r} is not a regular expression: {error}") from None
    if groups:
        raise ValueError(f"id_pattern {pattern!r} has groups: write (?:...) in place of (...)")


def _sifted(lines: list[str], start: int, id_pattern: str, fractions: bool) -> Sifted:
    text = pl.DataFrame({"line": lines}, schema={"line": pl.String})
    line = pl.col("line").str.strip_chars().str.strip_chars('"')
    time, number = (_FINE, pl.Float64) if fractions else (_TIME, pl.Int64)
    csv, file, whole = (form.replace("TIME", time).replace("ID", f"(?:{id_pattern})") for form in (_CSV, _FILE, _WHOLE))
    timed = [pl.coalesce(line.str.extract(csv, n), line.str.extract(file, n)) for n in (1, 2, 3)]
    parts = [pl.coalesce(line.str.extract(whole, 1), timed[0])]
    parts += [pl.when(line.str.contains(whole)).then(None).otherwise(part) for part in timed[1:]]
    table: pa.Table = text.select(
        key=(pl.int_range(1, pl.len() + 1) + start).cast(pl.String),
        youtube_id=parts[0],
        time_start=parts[1].cast(number),
        time_end=parts[2].cast(number),
    ).to_arrow()
    unnamed = table["youtube_id"].is_null()
    blank = (text["line"].str.strip_chars() == "").to_numpy()
    header = (text["line"].str.contains(_HEADER) & (pl.int_range(text.height, eager=True) + start == 0)).to_numpy()
    rules = {"blank_line": blank, "header": header & np.asarray(unnamed), "no_video_name": unnamed}
    return sift(table, rules, detail=text["line"].to_arrow())


def keep_held(
    rows: Rows, *, inventory: Rows, means: Literal["present", "missing"], reason: Literal["no_video", "no_feature"]
) -> Iterator[Sifted]:
    """Whole step: reject the clips that a copy does not contain.

    Args:
        rows: rows with columns ``youtube_id``, ``time_start``, ``time_end``.
        inventory: rows of ``Held`` or ``HeldMoment``.
        means: whether the inventory lists the videos that are present or those that are missing.
        reason: reason of the rejects.

    Yields:
        The rows in their order, batch by batch.

    Raises:
        ValueError: ``means`` or ``reason`` is unknown.
    """
    if means not in ("present", "missing") or reason not in ("no_video", "no_feature"):
        raise ValueError(f"means is {means!r} and reason {reason!r}: 'present' or 'missing', 'no_video' or 'no_feature'")
    clip = ["youtube_id", "time_start", "time_end"]
    moments = [(pl.col(name) * 1000).round().cast(pl.Int64) for name in clip[1:]]
    held = pl.DataFrame(pl.from_arrow(inventory.table(clip))).with_columns(moments)
    timed = held.filter(pl.col("time_start").is_not_null()).unique().with_columns(timed=True)
    whole = held.filter(pl.col("time_start").is_null()).select("youtube_id").unique().with_columns(whole=True)
    for table in rows.batches():
        asked = pl.DataFrame(pl.from_arrow(table.select(clip))).with_columns(moments)
        found = asked.join(timed, on=clip, how="left", maintain_order="left").join(
            whole, on="youtube_id", how="left", maintain_order="left"
        )
        listed = found.select(pl.col("timed").fill_null(False) | pl.col("whole").fill_null(False)).to_series().to_numpy()
        yield sift(table, {reason: ~listed if means == "present" else listed})


@dataclass(frozen=True)
class KineticsClip(ListedClip):
    """A ``ListedClip`` and ``source_key``, the key of the row of its list."""

    source_key: str


def as_clips(rows: Rows) -> Iterator[Sifted]:
    """Whole step (``expands``): columns of ``lists.Listed``, and those of ``videos.rows.ListedClip``.

    Keys are ``<id>_<start>_<end>`` with six digits each, as downloaders name clips. Rejected: ``no_label``, and
    ``repeated_clip`` for a clip that occurs earlier in any list.

    Yields:
        The rows in their order, batch by batch.
    """
    again = repeated_keys(lambda: map(_keys, rows.batches(["youtube_id", "time_start", "time_end"])), rows.num_rows)
    first = 0
    for table in rows.batches():
        repeated = np.zeros(table.num_rows, dtype=bool)
        repeated[again[slice(*np.searchsorted(again, [first, first + table.num_rows]))] - first] = True
        yield _as_clips(table, repeated)
        first += table.num_rows


def _keys(lines: pa.Table) -> pa.ChunkedArray:
    frame = pl.DataFrame(pl.from_arrow(lines))
    digits = [pl.col(name).cast(pl.String).str.zfill(6) for name in ("time_start", "time_end")]
    keys = frame.select(pl.concat_str("youtube_id", *digits, separator="_")).to_series()
    return pa.chunked_array([keys.to_arrow().cast(pa.string())])


def _as_clips(lines: pa.Table, repeated: np.ndarray) -> Sifted:
    clips = pl.DataFrame(pl.from_arrow(lines)).with_columns(
        key=pl.Series(pl.from_arrow(_keys(lines))),
        name="youtube_id",
        label=pl.col("label").fill_null(""),
        role=pl.col("split").replace_strict(ROLE_NAMES),
        group="youtube_id",
        t_start=pl.col("time_start").cast(pl.Float64),
        t_end=pl.col("time_end").cast(pl.Float64),
        video_s=pl.lit(None, pl.Float64),
        listed="key",
        source_key="key",
    )
    table: pa.Table = clips.to_arrow()
    for field in schema_of(KineticsClip):
        table = with_column(table, field.name, table[field.name].cast(field.type))
    # Rejects have the key of the listed row: two clips with one key could not be distinguished in a table of rejects.
    return sift(table, {"no_label": clips["label"] == "", "repeated_clip": repeated}, detail="key", key="source_key")
