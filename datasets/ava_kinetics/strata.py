"""The lists of AVA-Kinetics as rows, and strata of clips by the annotations of their key frames.

The strata are those of KOWL, section 5.3, for which no code was released.

Our choices where the paper is not specific:

* a key frame belongs to a clip of its video with ``time_start`` <= time <= ``time_end``, both ends included; of several,
  the one nearest to the clip's middle is used, the earlier one if two are equally near. Nearly all key frames of the test list
  are within the clip of their video that Kinetics-400 or -600 lists;
* a key frame without annotated persons, as all of the test list, counts as not annotated: N/A;
* the number of actions is that of different actions; ``count = "all"`` counts every action of every person instead, since
  section 5.3 can be read either way;
* a person is identified by the person's number if the list has one, and else by the box;
* thirds are computed over the annotated clips among the rows; equal areas are ordered by key;
* the activity types are those of AVA's actions in the frame, as in the caption of Figure 12. A clip that shows two types
  belongs to both. Section 5.3 has types of Kinetics' actions instead, one for each clip; we know of no such grouping.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import fsspec
import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.bounded_reading import text_blocks
from ...curation.package_data import package_toml
from ...curation.rows import Sifted, sift

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows


THIRDS = ("SM", "AVG", "LG")
TYPES = ("PM", "OM", "PI")
NOT_ANNOTATED = "N/A"
Count = Literal["different", "all"]
STRATIFICATIONS = ("actions", "persons", "area", "activity")


@dataclass(frozen=True)
class Stratified:
    """Columns that ``add_strata`` adds; None, or N/A, if nothing is annotated.

    Attributes:
        ava_timestamp_s: time of the key frame in its video; also if nobody is annotated in it.
        ava_actions: number of different actions, or of all actions of all persons.
        ava_persons: number of persons.
        ava_area: mean area of the persons' boxes as a share of the frame, in (0, 1].
        stratum_area: SM, AVG or LG.
        stratum_activity: those of PM (person movement), OM (object manipulation), PI (person interaction), in this order.
    """

    key: str
    ava_timestamp_s: float | None
    ava_actions: int | None
    ava_persons: int | None
    ava_area: float | None
    stratum_area: str
    stratum_activity: list[str]


def action_types() -> Mapping[str, tuple[int, int]]:
    """Type -> first and last id of its actions."""
    return {name: (first, last) for name, (first, last) in package_toml(__package__, "action_types.toml").items()}


def key_frames(annotations: pl.DataFrame, types: Mapping[str, tuple[int, int]], count: Count = "different") -> pl.DataFrame:
    """One row per key frame, in the order of (youtube_id, timestamp_s).

    Args:
        annotations: columns of ``Annotated``.
        types: see ``action_types``.
        count: see ``add_strata``.

    Returns:
        ``youtube_id``, ``timestamp_s``, ``actions``, ``persons``, ``area`` (None if nobody is annotated), ``activity``.
    """
    frame = ["youtube_id", "timestamp_s"]
    box = ["x1", "y1", "x2", "y2"]
    seen = annotations.with_columns(who=pl.coalesce(pl.col("person").cast(pl.String), pl.concat_str(box, separator=" ")))
    shown = seen.filter(pl.col("action").is_not_null())
    persons = shown.unique([*frame, "who"], keep="first", maintain_order=True).with_columns(
        area=(pl.col("x2") - pl.col("x1")) * (pl.col("y2") - pl.col("y1"))
    )
    activity = [pl.when(pl.col("action").is_between(*types[name]).any()).then(pl.lit(name)).alias(name) for name in TYPES]
    number = pl.struct("who", "action") if count == "all" else pl.col("action")
    actions = shown.group_by(frame).agg(number.n_unique().cast(pl.Int64).alias("actions"), *activity)
    # Areas are summed in the order of the persons' names, so that the order of the lines does not matter.
    areas = (
        persons.sort([*frame, "who"]).group_by(frame).agg(persons=pl.len().cast(pl.Int64), area=pl.col("area").sum() / pl.len())
    )
    every = annotations.select(frame).unique().join(actions, on=frame, how="left").join(areas, on=frame, how="left")
    return every.sort(frame).select(*frame, "actions", "persons", "area", activity=pl.concat_list(TYPES).list.drop_nulls())


def add_strata(
    rows: Rows, *, annotations: Rows, types: Mapping[str, tuple[int, int]], count: Count = "different"
) -> Iterator[pa.Table]:
    """Whole step: add the columns of ``Stratified``.

    Args:
        rows: rows with columns ``key``, ``youtube_id``, ``time_start``, ``time_end`` (seconds).
        annotations: rows of ``Annotated``; all of them are held in memory.
        types: ``action_types()``, called in the plan so that the types are part of the recipe.
        count: what ``ava_actions`` counts: "different" actions, or "all" pairs of a person and an action.

    Yields:
        All rows in their order, batch by batch.
    """
    names = ["youtube_id", "timestamp_s", "x1", "y1", "x2", "y2", "action", "person"]
    frames = key_frames(pl.DataFrame(pl.from_arrow(annotations.table(names))), types, count)
    clips = pl.DataFrame(pl.from_arrow(rows.table(["key", "youtube_id", "time_start", "time_end"])))
    found = _matched(clips, frames)
    del clips
    found = found.with_columns(
        stratum_area=pl.Series(thirds(found["area"].to_numpy(), found["key"].to_list()), dtype=pl.String)
    )
    added = found.select(
        ava_timestamp_s="timestamp_s",
        ava_actions="actions",
        ava_persons="persons",
        ava_area="area",
        stratum_area="stratum_area",
        stratum_activity=pl.when(pl.col("actions").is_null()).then(pl.lit([NOT_ANNOTATED])).otherwise("activity"),
    ).to_arrow()
    start = 0
    for table in rows.batches():
        some = added.slice(start, table.num_rows)
        start += table.num_rows
        for name in added.column_names:
            table = table.append_column(name, some[name])
        yield table


def _matched(clips: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """The clips, row for row, with the columns of their key frame."""
    numbered = clips.with_row_index("number")
    pairs = numbered.select("number", "youtube_id", "time_start", "time_end").join(frames, on="youtube_id")
    pairs = pairs.filter(pl.col("timestamp_s").is_between(pl.col("time_start"), pl.col("time_end")))
    off = (pl.col("timestamp_s") - (pl.col("time_start") + pl.col("time_end")) / 2).abs()
    nearest = pairs.sort("number", off, "timestamp_s").unique("number", keep="first", maintain_order=True)
    columns = ["number", "timestamp_s", "actions", "persons", "area", "activity"]
    return numbered.join(nearest.select(columns), on="number", how="left", maintain_order="left")


def thirds(areas: np.ndarray, keys: list[str]) -> list[str]:
    """SM, AVG or LG for each of n areas, ascending, in equal counts (if not divisible, the first third has one more, then the
    second); equal areas are ordered by key. N/A if the area is NaN."""
    areas = np.asarray(areas, dtype=np.float64)
    there = np.flatnonzero(~np.isnan(areas))
    named = np.asarray([keys[n] for n in there.tolist()], dtype=np.str_)
    order = there[np.lexsort((named, areas[there]))]
    names = [NOT_ANNOTATED] * len(areas)
    for name, part in zip(THIRDS, np.array_split(order, len(THIRDS)), strict=True):
        for n in part.tolist():
            names[n] = name
    return names


def strata_of(samples: pa.Table) -> pa.Table:
    """Strata in the long form that ``open_world.measures.measures_by_stratum`` takes.

    Args:
        samples: table with ``key`` and the columns of ``Stratified``.

    Returns:
        ``uid``, ``stratification`` (one of ``STRATIFICATIONS``), ``stratum``: one row for each stratum of a sample.
    """
    frame = pl.DataFrame(
        pl.from_arrow(samples.select(["key", "ava_actions", "ava_persons", "stratum_area", "stratum_activity"]))
    )
    of = {
        "actions": pl.col("ava_actions").cast(pl.String).fill_null(NOT_ANNOTATED),
        "persons": pl.col("ava_persons").cast(pl.String).fill_null(NOT_ANNOTATED),
        "area": pl.col("stratum_area"),
        "activity": pl.col("stratum_activity"),
    }
    long = [
        frame.select(uid="key", stratification=pl.lit(name), stratum=of[name]).explode("stratum")
        if name == "activity"
        else frame.select(uid="key", stratification=pl.lit(name), stratum=of[name])
        for name in STRATIFICATIONS
    ]
    return pl.concat(long).to_arrow()


ACTIONS = 80
_COLUMNS = ("youtube_id", "timestamp_s", "x1", "y1", "x2", "y2", "action", "person")


@dataclass(frozen=True)
class Annotated:
    """One line. ``key`` is ``<file>:<line>``; box, action and person are None if the list does not have them."""

    key: str
    youtube_id: str
    timestamp_s: float
    x1: float | None
    y1: float | None
    x2: float | None
    y2: float | None
    action: int | None
    person: int | None


def ava_lists(*, path: str) -> list[str]:
    """The lists at ``path``, for ``read_ava_list``: the file itself, or the CSV files (gzipped or not) of a folder, sorted.

    Raises:
        FileNotFoundError: the path does not exist, or is a folder without CSV files.
    """
    fs, place = fsspec.core.url_to_fs(path)
    if fs.isfile(place):
        return [""]
    names = sorted(posixpath.basename(name) for name in fs.ls(place, detail=False)) if fs.isdir(place) else []
    found = [name for name in names if name.endswith((".csv", ".csv.gz"))]
    if not found:
        raise FileNotFoundError(f"AVA-Kinetics list {path}: no such file, nor a folder with CSV files")
    return found


def read_ava_list(piece: str, *, path: str) -> Iterator[Sifted]:
    """Source step: one of ``ava_lists``, see ``read_annotations``."""
    return read_annotations(path=posixpath.join(path, piece) if piece else path)


def read_annotations(*, path: str) -> Iterator[Sifted]:
    """Source step: the lines of a list (gzipped or not), in its order, without header. The number of columns gives the form::

        000QsbOC-a4,191.000000                                      a key frame (test lists: nothing is annotated)
        tt0t0a0t1tA,5.000000,,,,,                                   a key frame without annotated persons
        tt0t0a0t1tA,5.000000,0.10,0.20,0.50,0.90,12                 box x1, y1, x2, y2 and action
        tt0t0a0t1tA,5.000000,0.10,0.20,0.50,0.90,12,0               the same with the person's number, as in AVA

    Times are seconds from the start of the *video*; boxes are shares of the frame's width and height.

    Yields:
        Rows of ``Annotated``. Rejected: ``malformed_row`` (not 2, 7 or 8 fields; a blank line; an incomplete annotation),
        ``bad_id``, ``bad_time``, ``bad_box`` (not numbers with 0 <= x1 < x2 <= 1, and likewise for y), ``bad_action``
        (not 1 to 80) and ``bad_person``.
    """
    for start, lines in text_blocks(path):
        yield _sifted(lines, posixpath.basename(path), start)


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
    table = read.select("key", "youtube_id", *(pl.col(f"{c}_").alias(c) for c in _COLUMNS[1:])).to_arrow()
    return sift(table, {reason: broken[reason].to_numpy() for reason in rules}, detail=text["line"].to_arrow())
