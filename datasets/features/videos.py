"""Features of clips directly from video files: frames are decoded, transformed and encoded without being stored.

::

    files = source("video_files", step(list_videos, root=where(folder)), gives=VideoFile, max_rejects=None)
    named = flow.table("named", step(name_clips), gives=NamedClip)
    matched = join(files, named).whole("matched", step(match_videos, videos=rows_of("video_files"), names="youtube"), ...)
    matched.each_batch("extracted", step(extract_videos, root=where(folder), views=Views(frames=16, stride=5, clips=4), ...))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import pyarrow as pa

from ...curation.encoders.preprocess import scaled
from ...curation.rows import Rejected
from ...curation.stages.visual_transforms import OwnTransform, Ranges
from ...curation.video.frame_plans import FramePlan
from ...curation.video.frames import Clip, decode_frames
from ...curation.video.work import FrameSettings
from .backbones import Backbone, load_backbone
from .extract import Extracted, Nuisance, See, each_extracted


@dataclass(frozen=True)
class Views:
    """Which parts of a video are the input of a backbone, and how their vectors are combined.

    Attributes:
        frames: number of frames of a view.
        stride: distance between the frames of a view, in frames of the video.
        clips: number of windows in time.
        crops: squares of each window: 1, the centre; or 3 along the longer side.
        starts: starts of the windows, see ``frame_plans.view_frames``.
        join: ``beside``: the views' vectors are concatenated, as the 4 x 2,048 numbers of KOWL's X3D; or their ``mean``.
        resize_px: shorter side after scaling, pixels.
        side_px: side of the squares, pixels.
    """

    frames: int
    stride: int
    clips: int
    crops: Literal[1, 3]
    starts: Literal["as_released", "even"]
    join: Literal["beside", "mean"]
    resize_px: int
    side_px: int

    def __post_init__(self) -> None:
        if self.side_px > self.resize_px:
            raise ValueError(f"side_px = {self.side_px} of resize_px = {self.resize_px}: a square is cut out, so not larger")


@dataclass(frozen=True)
class NamedClip:
    """Columns that ``name_clips`` adds, as ``videos.inventory.match_videos`` needs them."""

    key: str
    name: str
    t_start: float | None
    t_end: float | None


def name_clips(table: pa.Table) -> pa.Table:
    """Table step: add the name of a sample's video, and the start and end times in it."""
    for name, column in (("name", "youtube_id"), ("t_start", "time_start"), ("t_end", "time_end")):
        table = table.append_column(name, table[column].cast(pa.string() if name == "name" else pa.float64()))
    return table


@dataclass(frozen=True)
class ClipOfVideo:
    """A sample, and its video file and part of it."""

    key: str
    role: str
    increment: int
    video: str
    t_start: float | None
    t_end: float | None


def extract_videos(
    rows: Sequence[ClipOfVideo],
    *,
    root: str,
    views: Views,
    backbone: Backbone,
    checkpoint: str,
    width: int,
    nuisance: Nuisance | None,
    ranges: Ranges,
    seed: int,
    transforms: Mapping[str, OwnTransform] = MappingProxyType({}),
    device: str = "cpu",
) -> list[Extracted | Rejected]:
    """Step of kind ``each_batch``: a vector for every clip.

    Args:
        root: folder of the videos; mark it with ``where``.
        views: see ``Views``.

    The other arguments and the errors are those of ``extract.extract_features``; rejects are those of
    ``curation.video.frames.sample_frames``.
    """
    embed = load_backbone(backbone, checkpoint=checkpoint, device=device, frames=views.frames, side_px=views.side_px)
    plan = FramePlan("views", views.frames, stride=views.stride, clips=views.clips, starts=views.starts)
    settings = FrameSettings(short_side_px=views.resize_px)

    def vector(at: int, see: See) -> np.ndarray:
        row = rows[at]
        clip = Clip(row.key, row.video, row.t_start, row.t_end)
        pixels = see(decode_frames(clip, root=root, plan=plan, settings=settings))
        small = [scaled(frame, views.resize_px, edge="shorter") for frame in pixels]
        seen = [
            embed([_cut(frame, views.side_px, place) for frame in small[start : start + views.frames]])
            for start in range(0, len(small), views.frames)
            for place in ((0.5,) if views.crops == 1 else (0.0, 0.5, 1.0))
        ]
        return np.concatenate(seen) if views.join == "beside" else np.asarray(np.mean(seen, axis=0), np.float32)

    return each_extracted(rows, vector, width=width, nuisance=nuisance, ranges=ranges, seed=seed, transforms=transforms)


def _cut(pixels: np.ndarray, side_px: int, place: float) -> np.ndarray:
    """A square of a frame (3, height, width): at 0 the start of the longer side, at 1 its end; centred on the shorter side."""
    height, width = pixels.shape[1:]
    down, across = (place, 0.5) if height > width else (0.5, place)
    top, left = round(down * (height - side_px)), round(across * (width - side_px))
    return np.ascontiguousarray(pixels[:, top : top + side_px, left : left + side_px])
