"""What a user's copy of a video data set holds, or lacks, as downloaders and loaders list it; and the rows that go with it.

One video a line, in any of the forms in which such lists circulate::

    -3B32lodo2M_000059_000069          -3B32lodo2M            -3B32lodo2M_59_69.pt
    train/playing guitar/-3B32lodo2M_000059_000069.mp4        v_-3B32lodo2M.mkv
    abseiling/-3B32lodo2M_000059_000069.mp4 0                 abseiling,-3B32lodo2M,59,69,train,0

``find videos -type f > held.txt`` makes one. A line without times stands for every clip of its video.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal, cast

import fsspec
import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.rows import Sifted, sift
from ...curation.streams import compression_by_name, line_blocks

if TYPE_CHECKING:
    from ...curation.store import Rows

_FILE = r"(?:^|[/\\])(?:v_)?([A-Za-z0-9_-]{11})(?:_(\d{1,6})_(\d{1,6}))?(?:$|[.,\s])"
_CSV = r"(?:^|,)([A-Za-z0-9_-]{11}),(\d{1,6})(?:\.0*)?,(\d{1,6})(?:\.0*)?(?:$|,)"
_HEADER = r"^[A-Za-z_ ]+(?:,[A-Za-z_ ]+)+$"


@dataclass(frozen=True)
class Held:
    """A line that names a video: ``key`` is its number from 1; the times (seconds) are None where it does not say them."""

    key: str
    youtube_id: str
    time_start: int | None
    time_end: int | None


def read_inventory(*, path: str) -> Iterator[Sifted]:
    """Source step: the lines of a text file. Rejected: ``blank_line``, ``header`` (a first line of words with commas), and
    ``no_video_name``, such as other files.
    """
    start, none = 0, True
    with fsspec.open(path, "rb") as stream:
        for lines in line_blocks(cast("IO[bytes]", stream), f"list {path!r}", kind=compression_by_name(path)):
            yield _sifted([line.decode("utf-8", "replace") for line in lines], start)
            start, none = start + len(lines), False
    if none:
        yield _sifted([], 0)


def _sifted(lines: list[str], start: int) -> Sifted:
    text = pl.DataFrame({"line": lines}, schema={"line": pl.String})
    line = pl.col("line").str.strip_chars().str.strip_chars('"')
    parts = [pl.coalesce(line.str.extract(_CSV, n), line.str.extract(_FILE, n)) for n in (1, 2, 3)]
    table: pa.Table = text.select(
        key=(pl.int_range(1, pl.len() + 1) + start).cast(pl.String),
        youtube_id=parts[0],
        time_start=parts[1].cast(pl.Int64),
        time_end=parts[2].cast(pl.Int64),
        line=pl.col("line"),
    ).to_arrow()
    unnamed = table["youtube_id"].is_null()
    blank = (text["line"].str.strip_chars() == "").to_numpy()
    header = (text["line"].str.contains(_HEADER) & (pl.int_range(text.height, eager=True) + start == 0)).to_numpy()
    rules = {"blank_line": blank, "header": header & np.asarray(unnamed), "no_video_name": unnamed}
    sifted = sift(table, rules, detail="line")
    return Sifted(sifted.kept.drop_columns(["line"]), sifted.rejected)


def keep_held(
    rows: Rows, *, inventory: Rows, means: Literal["present", "missing"], reason: Literal["no_video", "no_feature"]
) -> Iterator[Sifted]:
    """Whole step: reject the clips that a copy does not hold.

    Args:
        rows: with columns ``youtube_id``, ``time_start``, ``time_end``.
        inventory: rows of ``Held``.
        means: whether the inventory lists what is there or what is missing.
        reason: of the rejects.

    Yields:
        The rows in their order, part by part.

    Raises:
        ValueError: for a ``means`` or ``reason`` that is not known.
    """
    if means not in ("present", "missing") or reason not in ("no_video", "no_feature"):
        raise ValueError(f"means is {means!r} and reason {reason!r}: 'present' or 'missing', 'no_video' or 'no_feature'")
    clip = ["youtube_id", "time_start", "time_end"]
    held = pl.DataFrame(pl.from_arrow(inventory.table(clip)))
    timed = held.filter(pl.col("time_start").is_not_null()).unique().with_columns(timed=True)
    whole = held.filter(pl.col("time_start").is_null()).select("youtube_id").unique().with_columns(whole=True)
    for table in rows.batches():
        asked = pl.DataFrame(pl.from_arrow(table.select(clip)))
        found = asked.join(timed, on=clip, how="left", maintain_order="left").join(
            whole, on="youtube_id", how="left", maintain_order="left"
        )
        listed = found.select(pl.col("timed").fill_null(False) | pl.col("whole").fill_null(False)).to_series().to_numpy()
        yield sift(table, {reason: ~listed if means == "present" else listed})
