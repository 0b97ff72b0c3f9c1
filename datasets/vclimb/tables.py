"""Tables about a split: the counts of Table 1, clips by task, leaks between roles, what a copy lacks, the size of memories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import polars as pl
import pyarrow as pa

from ...curation.package_data import FactTable
from ..videos.rows import ROLES


def per_task(clips: pa.Table) -> pa.Table:
    """One row per task, in order: ``task``, ``classes``, and ``train``, ``val``, ``test`` clips (int64).

    Args:
        clips: columns ``task``, ``label``, ``role``.
    """
    frame = pl.DataFrame(pl.from_arrow(clips.select(["task", "label", "role"])))
    counts = {role: (pl.col("role") == role).sum().cast(pl.Int64) for role in ROLES}
    table = frame.group_by("task").agg(classes=pl.col("label").n_unique().cast(pl.Int64), **counts).sort("task")
    return table.to_arrow()


def table_1(clips: pa.Table, rule: Literal["floor", "round"]) -> dict[str, int]:
    """Clips a task of every role that has any, as Table 1 prints them: role -> mean over tasks, cut off or rounded.

    Args:
        clips: columns ``task``, ``label``, ``role``.
        rule: how the mean becomes a whole number; ``round`` goes to the even one from a half (770.5 stands as 770).
    """
    table = per_task(clips)
    sums = {role: sum(table[role].to_pylist()) / table.num_rows for role in ROLES}
    return {role: math.floor(mean) if rule == "floor" else round(mean) for role, mean in sums.items() if mean}


class Leaks(NamedTuple):
    """What train shares with another role.

    Attributes:
        classes: classes with a group on both sides.
        groups: groups on both sides, and ``of`` how many groups in all.
        clips: clips of the other role whose group is in train, and ``tested`` how many clips it has.
        by_class: columns ``label``, ``groups``, ``shared``, ``clips``, ``leaked``; one row per class, by name.
    """

    classes: int
    groups: int
    of: int
    clips: int
    tested: int
    by_class: pa.Table


def leaks(clips: pa.Table, *, by: str = "group", role: str = "test") -> Leaks:
    """Groups, or videos, that stand both in train and in another role.

    Args:
        clips: columns ``label``, ``role`` and that of ``by``.
        by: ``group`` or ``name`` (the video).
        role: the other role.
    """
    frame = pl.DataFrame(pl.from_arrow(clips.select(["label", "role", by]).rename_columns(["label", "role", "group"])))
    trained = (pl.col("role") == "train").any()
    groups = frame.group_by("label", "group").agg(trained=trained, tested=(pl.col("role") == role).sum())
    shared = pl.col("trained") & (pl.col("tested") > 0)
    by_class = (
        groups.group_by("label")
        .agg(
            groups=pl.len().cast(pl.Int64),
            shared=shared.sum().cast(pl.Int64),
            clips=pl.col("tested").sum().cast(pl.Int64),
            leaked=pl.col("tested").filter(shared).sum().cast(pl.Int64),
        )
        .sort("label")
    )
    sums = by_class.select(pl.col("groups", "shared", "clips", "leaked").sum()).row(0)
    return Leaks(by_class.filter(pl.col("shared") > 0).height, sums[1], sums[0], sums[3], sums[2], by_class.to_arrow())


def coverage(clips: pa.Table, rejects: pa.Table) -> pa.Table:
    """What a copy lacks, by task, class and role.

    Args:
        clips: all clips of the split: ``key``, ``task``, ``label``, ``role``.
        rejects: of every later stage: columns ``key`` and ``reason``.

    Returns:
        ``task``, ``label``, ``role``, ``listed``, ``usable``, and a column of counts a reason (int64), sorted by task, label
        and role.
    """
    place = ["task", "label", "role"]
    frame = pl.DataFrame(pl.from_arrow(clips.select(["key", *place])))
    gone = pl.DataFrame(pl.from_arrow(rejects.select(["key", "reason"]))).unique("key", keep="first", maintain_order=True)
    known = frame.join(gone, on="key", how="left", maintain_order="left")
    reasons = sorted(known["reason"].drop_nulls().unique())
    counts = {reason: (pl.col("reason") == reason).sum().cast(pl.Int64) for reason in reasons}
    table = known.group_by(place).agg(
        listed=pl.len().cast(pl.Int64), usable=pl.col("reason").is_null().sum().cast(pl.Int64), **counts
    )
    order = pl.col("role").replace_strict({name: n for n, name in enumerate(ROLES)})
    return table.sort("task", "label", order).to_arrow()


def clips_of_unknown_recordings(clips: pa.Table, *, youtube: bool) -> int:
    """How many clips have no group but their own file, so that is unknown which others show the same recording.

    A YouTube id names a recording, and so do groups of UCF101 and of a list's column.

    Args:
        clips: columns ``group`` and ``name`` (the video).
        youtube: whether names of 11 characters are YouTube's ids, and not somebody's own.

    >>> names, groups = ["v_Surfing_g01_c02", "abcdefghijk", "surf/a.mp4"], ["Surfing/g01", "abcdefghijk", "surf/a.mp4"]
    >>> table = pa.table({"name": names, "group": groups})
    >>> clips_of_unknown_recordings(table, youtube=True), clips_of_unknown_recordings(table, youtube=False)
    (1, 2)
    """
    frame = pl.DataFrame(pl.from_arrow(clips.select(["group", "name"])))
    alone = pl.col("group") == pl.col("name")
    if youtube:
        alone &= ~pl.col("name").str.contains(r"^[A-Za-z0-9_-]{11}$")
    return int(frame.select(alone.sum()).item())


class MemoryLine(NamedTuple):
    """Frames that a memory of ``videos`` holds at ``frames_per_video`` (None: all of them, at the published average)."""

    dataset: str
    videos: int
    frames_per_video: int | None
    frames: int
    in_paper: int


def memory_lines(memory: Mapping[str, Sequence[int]], average: Mapping[str, int], settings: Sequence[int]) -> list[MemoryLine]:
    """The paper's statements of memory, computed: videos times frames, beside what it prints.

    Args:
        memory: data set -> videos, the paper's frames where all are kept, and its frames for each of ``settings``.
        average: data set -> frames a video on average.
        settings: frames a stored video.
    """
    lines: list[MemoryLine] = []
    for dataset, (videos, everything, *stated) in memory.items():
        lines.append(MemoryLine(dataset, videos, None, videos * average[dataset], everything))
        pairs = zip(settings, stated, strict=True)
        lines += [MemoryLine(dataset, videos, frames, videos * frames, in_paper) for frames, in_paper in pairs]
    return lines


def memory_share(frames: int, dataset: FactTable) -> float:
    """Percent of the training frames of a data set that a memory of so many frames is.

    Args:
        frames: in the memory.
        dataset: its facts: clips for training, or those a task where the sum is not known, and frames a video on average.

    >>> from benchwright.datasets.vclimb.facts import facts
    >>> [round(memory_share(4000 * n, facts().datasets["activitynet_trim"]), 2) for n in (8, 3879)]
    [0.05, 25.96]
    """
    clips = dataset.clips.get("train") or 10 * dataset.per_task[10]["train"]
    return 100 * frames / (clips * dataset.frames_per_video)
