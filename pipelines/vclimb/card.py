"""Publication of a vCLIMB run: the dataset, its card, and warnings about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...curation.artifact import Artifact
from ...curation.publish import HUB_SPLITS, DatasetCard, names_of
from ...curation.run import Run
from ...datasets.vclimb.samples import COLUMNS, NOT_IN_INDEX
from ...datasets.vclimb.tables import clips_of_unknown_recordings, leaks, per_task
from ..publish import publish_shards
from .config import DrawnVideos, VclimbConfig


def split_stage(made: Iterable[str]) -> str | None:
    """The stage with all clips of the split, their tasks and roles, among the finished stages; None if none is finished."""
    names = list(made)
    return next((name for name in ("split", "untrimmed", "unique") if name in names), None)


def publish(run: Run, config: VclimbConfig, folder: str) -> None:
    """Write the dataset: shards, index, card, manifest."""
    index = run.rows().table(["task", "label", "role", "group", "name", "frames", "class_index"])
    frames = config.frames
    chosen = "all frames" if frames.kind == "all" else f"{frames.n} frames each ({frames.kind})"
    clock = "" if frames.fps is None else f" on a clock of {frames.fps:g} frames a second"
    card = DatasetCard(
        title="A vCLIMB-style benchmark",
        summary="\n\n".join([_summary(config, index, f"{chosen}{clock}"), *_warnings(config, run.artifacts, index)]),
        pipeline="vclimb",
        digest=run.result.digest,
        licence="other",
        citation=_CITATION,
        members={
            "NNNN.jpg": {"holds": "the frames in order, from 0000", "quality": frames.jpeg_quality},
            "json": {"holds": "label, task, role, video, times; places and times of the frames in the file"},
        },
        columns=COLUMNS,
        tags=["continual-learning", "video-classification"],
        tasks=["video-classification"],
        labels={name: names_of(index, "class_index", "label") for name in ("class_index", "label")},
        configurations={"default": {hub: {"role": role} for role, hub in HUB_SPLITS.items()}},
    )
    publish_shards(run, card, folder, leave_out=NOT_IN_INDEX)


_CITATION = """A. Villa, K. Alhamoud, V. Escorcia, F. Caba Heilbron, J. Leon Alcazar, B. Ghanem. vCLIMB: A Novel Video Class
Incremental Learning Benchmark. CVPR 2022."""


def _summary(config: VclimbConfig, index: Any, chosen: str) -> str:
    lines = ["| task | classes | train | val | test |", "| --- | --- | --- | --- | --- |"]
    lines += ["| {task} | {classes} | {train} | {val} | {test} |".format(**row) for row in per_task(index).to_pylist()]
    return (
        f"Video clips in classes that come in {len(lines) - 2} tasks, following the vCLIMB recipe; of every clip "
        f"{chosen}, decoded by {config.frames.decoder}.\n\n" + "\n".join(lines)
    )


def _warnings(config: VclimbConfig, artifacts: Sequence[Artifact], index: Any) -> list[str]:
    role = config.evaluation.roles[2]
    about = cut_warning(config), leak_warning(index, role) or unknown_warning(config, index, role)
    lines = [warning for warning in about if warning]
    if isinstance(config.source, DrawnVideos):
        lines.append("The videos are SYNTHETIC, generated from a seed.")
    lost = sum(sum(a.rejects.values()) for a in artifacts if a.stage in ("matched", "probed", "sampled"))
    if lost:
        lines.append(f"{lost:,} clips of the split are not in it: no video, or none that can be used.")
    return lines


def cut_warning(config: VclimbConfig) -> str:
    """A warning if train and test are pieces of the same recordings; "" if they are not."""
    if isinstance(config.split.roles, str):
        return ""
    return (
        f"Every video was cut into {len(config.split.roles)} segments ({', '.join(config.split.roles)}): train and test come "
        "from the SAME RECORDINGS. Scores show that the pipeline works, not that classes are recognised."
    )


def leak_warning(clips: Any, role: str) -> str:
    """A warning if groups are in train and in the reported role; "" if none is."""
    found = leaks(clips, role=role)
    if not found.clips:
        return ""
    return (
        f"Groups leak: {found.clips:,} of {found.tested:,} {role} clips share a group with a training clip, in {found.classes} "
        "classes."
    )


_BY_YOUTUBE = ("activitynet", "activitynet_csv", "kinetics", "split_file")
"""Sources whose videos are named by YouTube ids."""


def unknown_warning(config: VclimbConfig, clips: Any, role: str) -> str:
    """A warning if it is unknown whether clips share recordings; "" if it is known for all."""
    youtube = config.source.kind in _BY_YOUTUBE or config.videos.names == "youtube"
    unknown = clips_of_unknown_recordings(clips, youtube=youtube)
    if not unknown:
        return ""
    near = "" if config.near_duplicates else "; near_duplicates looks for clips of near-equal frames"
    return (
        f"Whether train and {role} share recordings is not known: {unknown:,} of {clips.num_rows:,} clips have no group "
        f'but their own file. A column group of a CSV file (source.kind = "csv") says which clips belong together{near}.'
    )
