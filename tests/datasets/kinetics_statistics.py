"""Statistics of lists: rows, ids that are used again, durations; and what two lists share."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl
import pyarrow as pa


def list_statistics(rows: pa.Table) -> pa.Table:
    """One row for each release and split, in the order in which they come.

    Args:
        rows: columns of ``lists.Listed``.

    Returns:
        ``release``, ``split``; int64 columns ``rows``, ``labels`` (distinct, 0 for a list without), ``videos`` (distinct ids),
        ``reused_rows`` (rows of the ids that come more than once), ``reused_videos`` (such ids), ``overlapping_videos``
        and ``separate_videos`` (those of them with and without two clips that share a moment), ``repeats`` (rows beyond
        the first of each id); and ``durations_s``, a list of {duration_s, rows} in rising order.
    """
    frame = pl.DataFrame(pl.from_arrow(rows)).with_columns(duration_s=pl.col("time_end") - pl.col("time_start"))
    place = ["release", "split"]
    clips = frame.sort("time_start", "time_end").group_by([*place, "youtube_id"], maintain_order=True)
    # In order of their starts, two clips of a video overlap where one begins before an earlier one has ended.
    videos = clips.agg(
        clips=pl.len(), overlap=(pl.col("time_start") < pl.col("time_end").cum_max().shift(1)).fill_null(False).any()
    )
    again = pl.col("clips") > 1
    by_video = videos.group_by(place).agg(
        videos=pl.len().cast(pl.Int64),
        reused_rows=pl.col("clips").filter(again).sum().cast(pl.Int64),
        reused_videos=again.sum().cast(pl.Int64),
        overlapping_videos=pl.col("overlap").sum().cast(pl.Int64),
        separate_videos=(again & ~pl.col("overlap")).sum().cast(pl.Int64),
        repeats=(pl.col("clips") - 1).sum().cast(pl.Int64),
    )
    durations = (
        frame.group_by([*place, "duration_s"])
        .agg(rows=pl.len().cast(pl.Int64))
        .sort("duration_s")
        .group_by(place, maintain_order=True)
        .agg(durations_s=pl.struct("duration_s", "rows"))
    )
    return (
        frame.group_by(place, maintain_order=True)
        .agg(rows=pl.len().cast(pl.Int64), labels=pl.col("label").drop_nulls().n_unique().cast(pl.Int64))
        .join(by_video, on=place, maintain_order="left")
        .join(durations, on=place, maintain_order="left")
        .to_arrow()
    )


class Shared(NamedTuple):
    """Videos that two lists share, and how many of them have no label in common."""

    videos: int
    relabelled: int


def shared_videos(first: pa.Table, second: pa.Table) -> Shared:
    """Compare two lists by video id: columns ``youtube_id`` and ``label``.

    A video is relabelled where none of its labels in the first list is among its labels in the second (an id may come more
    than once).
    """
    one, two = (
        pl.DataFrame(pl.from_arrow(rows.select(["youtube_id", "label"]))).drop_nulls().unique() for rows in (first, second)
    )
    both = one.join(two, on="youtube_id", suffix="_second")
    same = both.group_by("youtube_id").agg(kept=(pl.col("label") == pl.col("label_second")).any())
    return Shared(same.height, int((~same["kept"]).sum()))
