"""Frames of a run's clips for viewing, if features are computed from videos or from shards of frames."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ...curation.shards import read_sample
from ...curation.stages.decode import decode_rgb
from ...curation.video.frame_plans import FramePlan
from ...curation.video.frames import Clip, decode_frames
from ...curation.video.work import FrameSettings
from ...datasets.features.frames import frames_of
from ...datasets.reader.index import ShardFiles

if TYPE_CHECKING:  # a training that reads clips does not depend on the code of the settings
    from .config import ExtractedFeatures, KowlConfig, VideoFeatures

PLACED = "increments"
"""Stage of a run whose rows contain the locations of clips."""

COLUMNS, ROWS = 3, 2
"""Columns and rows of frames in a contact sheet."""

FRAME_PX = 256
"""Longer side of each frame."""


def with_clips(config: KowlConfig) -> list[ExtractedFeatures | VideoFeatures]:
    """The features of a run whose clips can be viewed."""
    return [each for each in config.sets.values() if each.kind == "extracted" or each.kind == "videos"]


def places(features: ExtractedFeatures | VideoFeatures) -> tuple[str, ...]:
    """Columns with the location of a clip."""
    return (
        ("video", "t_start", "t_end")
        if features.kind == "videos"
        else ("clip_sample", "clip_shard", "clip_offset", "clip_size")
    )


def pixels_of(features: ExtractedFeatures | VideoFeatures, row: Mapping[str, Any], count: int) -> np.ndarray:
    """Evenly spaced frames of a clip, (count, height, width, 3). Raises ``Reject`` or ``ValueError`` if it cannot be
    read."""
    if features.kind == "videos":
        clip = Clip(row["key"], row["video"], row["t_start"], row["t_end"])
        plan, small = FramePlan("uniform", count), FrameSettings(short_side_px=features.resize_px)
        return decode_frames(clip, root=features.root, plan=plan, settings=small)
    files = ShardFiles(features.root)
    [span] = files.read([(row["clip_shard"], row["clip_offset"], row["clip_size"])])
    members = read_sample(span, row["clip_sample"], place=files.place(row["clip_shard"]), base=row["clip_offset"])
    return np.stack([decode_rgb(data) for data in frames_of(members, count)])


def contact_sheet(features: ExtractedFeatures | VideoFeatures, row: Mapping[str, Any]) -> bytes:
    """A JPEG with frames of a clip, row by row in order of time. Raises as ``pixels_of``."""
    frames = pixels_of(features, row, COLUMNS * ROWS)
    height, width = frames.shape[1:3]
    scale = FRAME_PX / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    sheet = Image.new("RGB", (COLUMNS * size[0], ROWS * size[1]))
    for number, frame in enumerate(frames):
        at = number % COLUMNS * size[0], number // COLUMNS * size[1]
        sheet.paste(Image.fromarray(frame).resize(size, Image.Resampling.BILINEAR), at)
    data = io.BytesIO()
    sheet.save(data, "JPEG", quality=90)
    return data.getvalue()
