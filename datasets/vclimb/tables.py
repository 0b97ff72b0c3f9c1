"""Tables about a split: the counts of Table 1, clips per task, leaks between roles, missing clips, and memory sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.package_data import FactTable
from ..roles import ROLES


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
    """Mean number of clips per task, for each role that has clips, rounded down or to nearest as in Table 1.

    Args:
        clips: columns ``task``, ``label``, ``role``.
        rule: how the mean becomes an integer; ``round`` rounds halves to even (770.5 becomes 770).
    """
    table = per_task(clips)
    sums = {role: sum(table[role].to_pylist()) / table.num_rows for role in ROLES}
    return {role: math.floor(mean) if rule == "floor" else round(mean) for role, mean in sums.items() if mean}


def frames_per_video(clips: pa.Table, fps: float, role: str) -> int | None:
    """Table 1's frames per video: the mean over the clips of a role, each with all frames of its video, rounded down.

    None if the lengths of some videos are unknown. For ActivityNet's val clips the result is the paper's; its train clips have
    3,845 (Trim) and 3,516 (Untrim).

    Args:
        clips: columns ``role`` and ``video_s``, seconds.
        fps: frames per second.
        role: the role, as ``evaluation.roles`` has it for the report.

    >>> clips = pa.table({"role": ["train", "val", "val"], "video_s": [9.0, 10.0, 10.1]})
    >>> frames_per_video(clips, 30.0, "val")
    301
    """
    seconds = clips["video_s"].filter(pc.equal(clips["role"], role))
    return None if seconds.null_count or not len(seconds) else math.floor(pc.mean(seconds).as_py() * fps)


class Leaks(NamedTuple):
    """Groups and clips that train shares with another role.

    Attributes:
        classes: number of classes with a group in both roles.
        groups: number of groups in both roles, of ``of`` groups in total.
        clips: number of clips of the other role whose group is in train, of ``tested`` clips in total.
        by_class: columns ``label``, ``groups``, ``shared``, ``clips``, ``leaked``; one row per class, by name.
    """

    classes: int
    groups: int
    of: int
    clips: int
    tested: int
    by_class: pa.Table


def leaks(clips: pa.Table, *, by: str = "group", role: str = "test") -> Leaks:
    """Groups, or videos, that are both in train and in another role.

    Args:
        clips: columns ``label``, ``role`` and the column ``by``.
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
    """Listed and usable clips by task, class and role, with the reasons for missing ones.

    Args:
        clips: all clips of the split: ``key``, ``task``, ``label``, ``role``.
        rejects: rejects of all later stages: columns ``key`` and ``reason``.

    Returns:
        ``task``, ``label``, ``role``, ``listed``, ``usable``, and a column of counts per reason (int64), sorted by task, label
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
    """Number of clips whose group is only their own file, so that other clips of the same recording are unknown.

    A YouTube id identifies a recording, and so do groups of UCF101 and of a list's column.

    Args:
        clips: columns ``group`` and ``name`` (the video).
        youtube: whether names of 11 characters are YouTube ids rather than other names.

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
    """Frames in a memory of ``videos`` with ``frames_per_video`` each (None: all frames, at the published average)."""

    dataset: str
    videos: int
    frames_per_video: int | None
    frames: int
    in_paper: int


def memory_lines(memory: Mapping[str, FactTable], average: Mapping[str, int]) -> list[MemoryLine]:
    """The memory sizes stated in the paper, computed as videos times frames, next to the printed numbers.

    Args:
        memory: dataset -> the paper's memory, as in ``facts.toml``.
        average: dataset -> average number of frames per video.
    """
    lines: list[MemoryLine] = []
    for dataset, one in memory.items():
        stated = {None: one.get("all_frames_in_paper"), **one.frames_in_paper}
        lines += [
            MemoryLine(dataset, one.videos, frames, one.videos * (frames or average[dataset]), in_paper)
            for frames, in_paper in stated.items()
            if in_paper is not None
        ]
    return lines


def memory_share(frames: int, dataset: FactTable) -> float:
    """Size of a memory as a percentage of the training frames of a dataset.

    Args:
        frames: number of frames in the memory.
        dataset: facts of the dataset: training clips, or those per task if the total is unknown, and average frames per video.

    >>> from benchwright.datasets.vclimb.facts import facts
    >>> [round(memory_share(4000 * n, facts().datasets["activitynet_trim"]), 2) for n in (8, 3879)]
    [0.05, 25.96]
    """
    clips = dataset.clips.get("train") or 10 * dataset.per_task[10]["train"]
    return 100 * frames / (clips * dataset.frames_per_video)
