"""Frames of a run's clips for people to look at, where features are taken from videos or from shards of frames."""

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

if TYPE_CHECKING:  # a training that reads clips is none of the settings' code
    from .config import ExtractedFeatures, KowlConfig, VideoFeatures

PLACED = "increments"
"""Stage of a run whose rows say where clips lie."""

COLUMNS, ROWS = 3, 2
"""Frames of a contact sheet."""

FRAME_PX = 256
"""Longer side of each."""


def with_clips(config: KowlConfig) -> list[ExtractedFeatures | VideoFeatures]:
    """The features of a run whose clips can be looked at."""
    every = (config.features, *config.feature_sets.values())
    return [each for each in every if each is not None and (each.kind == "extracted" or each.kind == "videos")]


def places(features: ExtractedFeatures | VideoFeatures) -> tuple[str, ...]:
    """Columns that say where a clip lies."""
    return (
        ("video", "t_start", "t_end")
        if features.kind == "videos"
        else ("clip_sample", "clip_shard", "clip_offset", "clip_size")
    )


def pixels_of(features: ExtractedFeatures | VideoFeatures, row: Mapping[str, Any], count: int) -> np.ndarray:
    """Frames of a clip, evenly over its length, (count, height, width, 3). Raises ``Reject`` or ``ValueError`` where it cannot
    be read."""
    if features.kind == "videos":
        clip = Clip(row["key"], row["video"], row["t_start"], row["t_end"])
        plan, small = FramePlan("uniform", count), FrameSettings(short_side_px=features.resize_px)
        return decode_frames(clip, root=features.root, plan=plan, settings=small)
    files = ShardFiles(features.root)
    [span] = files.read([(row["clip_shard"], row["clip_offset"], row["clip_size"])])
    members = read_sample(span, row["clip_sample"], place=files.place(row["clip_shard"]), base=row["clip_offset"])
    return np.stack([decode_rgb(data) for data in frames_of(members, count)])


def contact_sheet(features: ExtractedFeatures | VideoFeatures, row: Mapping[str, Any]) -> bytes:
    """A JPEG of some frames of a clip, line by line in the order of time. Raises as ``pixels_of``."""
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
