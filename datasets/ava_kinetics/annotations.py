"""The lists of AVA-Kinetics as rows: one line is one action of one person in the key frame of a clip.

No header; the columns tell the form::

    000QsbOC-a4,191.000000                                      a key frame (test lists: nothing is annotated)
    tt0t0a0t1tA,5.000000,,,,,                                   a key frame in which nobody is annotated
    tt0t0a0t1tA,5.000000,0.10,0.20,0.50,0.90,12                 box x1, y1, x2, y2 and action
    tt0t0a0t1tA,5.000000,0.10,0.20,0.50,0.90,12,0               the same with the person's number, as AVA has it

Times are seconds from the start of the *video*, boxes shares of the frame's width and height.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

import fsspec
import polars as pl

from ...curation.rows import Sifted, sift
from ...curation.streams import compression_by_name, line_blocks

ACTIONS = 80
_COLUMNS = ("youtube_id", "timestamp_s", "x1", "y1", "x2", "y2", "action", "person")


@dataclass(frozen=True)
class Annotated:
    """One line. ``key`` is ``<file>:<line>``; box, action and person are None where the list does not have them."""

    key: str
    youtube_id: str
    timestamp_s: float
    x1: float | None
    y1: float | None
    x2: float | None
    y2: float | None
    action: int | None
    person: int | None


def pieces(*, path: str) -> list[str]:
    """The lists at ``path``, for ``read_list``: the file itself, or the CSV files (gzipped or not) of a folder, sorted.

    Raises:
        FileNotFoundError: nothing is there.
    """
    fs, place = fsspec.core.url_to_fs(path)
    if fs.isfile(place):
        return [""]
    names = sorted(posixpath.basename(name) for name in fs.ls(place, detail=False)) if fs.isdir(place) else []
    found = [name for name in names if name.endswith((".csv", ".csv.gz"))]
    if not found:
        raise FileNotFoundError(f"AVA-Kinetics list {path}: no such file, nor a folder with CSV files")
    return found


def read_list(piece: str, *, path: str) -> Iterator[Sifted]:
    """Source step: one of ``pieces``, see ``read_annotations``."""
    return read_annotations(path=posixpath.join(path, piece) if piece else path)


def read_annotations(*, path: str) -> Iterator[Sifted]:
    """Source step: the lines of one list (gzipped or not), in its order.

    Yields:
        Rows of ``Annotated``. Rejected: ``malformed_row`` (not 2, 7 or 8 fields; a blank line; a part of an annotation
        missing), ``bad_id``, ``bad_time``, ``bad_box`` (not 0 <= x1 < x2 <= 1 and so for y, or no numbers), ``bad_action``
        (not 1 to 80) and ``bad_person``.
    """
    name = posixpath.basename(path)
    start, none = 0, True
    with fsspec.open(path, "rb") as stream:
        for lines in line_blocks(cast("IO[bytes]", stream), f"list {path!r}", kind=compression_by_name(path)):
            yield _sifted([line.decode("utf-8", "replace") for line in lines], name, start)
            start, none = start + len(lines), False
    if none:
        yield _sifted([], name, 0)


def _sifted(lines: list[str], name: str, start: int) -> Sifted:
    fields = pl.col("line").str.split(",")
    text = pl.DataFrame({"line": lines}, schema={"line": pl.String}).with_columns(
        *(fields.list.get(n, null_on_oob=True).str.strip_chars().replace("", None).alias(c) for n, c in enumerate(_COLUMNS)),
        fields=fields.list.len(),
        key=pl.format(f"{name.replace('{}', '')}:{{}}", pl.int_range(1, pl.len() + 1) + start),
    )
    boxes, numbers = ("x1", "y1", "x2", "y2"), ("action", "person")
    read = text.with_columns(
        *(pl.col(column).cast(pl.Float64, strict=False).alias(f"{column}_") for column in ("timestamp_s", *boxes)),
        *(pl.col(column).cast(pl.Float64, strict=False).cast(pl.Int64, strict=False).alias(f"{column}_") for column in numbers),
    )
    annotation = (*boxes, "action")
    some = pl.any_horizontal(pl.col(column).is_not_null() for column in annotation)
    every = pl.all_horizontal(pl.col(column).is_not_null() for column in annotation)
    within = [
        (pl.col(f"{low}_") >= 0) & (pl.col(f"{low}_") < pl.col(f"{high}_")) & (pl.col(f"{high}_") <= 1)
        for low, high in (("x1", "x2"), ("y1", "y2"))
    ]
    time = pl.col("timestamp_s_")
    rules = {
        "malformed_row": ~pl.col("fields").is_in([2, 7, 8]) | (some & ~every),
        "bad_id": ~pl.col("youtube_id").str.contains(r"^[A-Za-z0-9_-]{11}$").fill_null(False),
        "bad_time": ~(time.is_finite() & (time >= 0)).fill_null(False),
        "bad_box": some & ~(within[0] & within[1]).fill_null(False),
        "bad_action": some & ~pl.col("action_").is_between(1, ACTIONS).fill_null(False),
        "bad_person": pl.col("person").is_not_null() & pl.col("person_").is_null(),
    }
    broken = read.select(**rules)
    table = read.select("key", "youtube_id", *(pl.col(f"{c}_").alias(c) for c in _COLUMNS[1:]), "line").to_arrow()
    sifted = sift(table, {reason: broken[reason].to_numpy() for reason in rules}, detail="line")
    return Sifted(sifted.kept.drop_columns(["line"]), sifted.rejected)
