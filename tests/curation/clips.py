"""Clips whose frames are compared in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from benchwright.curation.video.frames import Clip, sample_frames, unpack_frames


def read_clip(row: Clip, **settings: Any) -> SimpleNamespace:
    """What ``sample_frames`` gives, its frames as ``jpegs``."""
    found = vars(sample_frames(row, **settings))
    jpegs = unpack_frames(found["frames"].read(), found["frame_sizes"])
    return SimpleNamespace(**{name: value for name, value in found.items() if name != "frames"}, jpegs=jpegs)
