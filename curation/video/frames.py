"""The frames of a clip as JPEGs, chosen by a plan: steps, and the function that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..rows import Blob
from .limits import Limits
from .plans import FramePlan

DecoderName = Literal["pyav", "ffmpeg"]


@dataclass(frozen=True)
class VideoFile:
    """A video as listed: ``video`` is its path relative to the folder of videos."""

    key: str
    video: str


@dataclass(frozen=True)
class ProbedVideo:
    """The same with what the file is.

    Attributes:
        container: FFmpeg's name of the demuxer.
        codec: FFmpeg's name of the codec.
        width_px: as displayed, after rotation; so is ``height_px``.
        rotation_deg: by which frames are turned clockwise for display: 0, 90, 180 or 270.
        fps: frames a second, on average.
        n_frames: packets that show a frame; headers are not believed.
        duration_s: from the first frame's begin to the last one's end.
        start_s: time stamp of the first frame.
        size_bytes: of the file.
    """

    key: str
    video: str
    container: str
    codec: str
    width_px: int
    height_px: int
    rotation_deg: int
    fps: float
    n_frames: int
    duration_s: float
    start_s: float
    size_bytes: int


@dataclass(frozen=True)
class Clip:
    """A video, or the part of it from ``t_start`` to ``t_end`` seconds; None for the whole."""

    key: str
    video: str
    t_start: float | None
    t_end: float | None


@dataclass(frozen=True)
class FrameSettings:
    """How frames are made into JPEGs.

    Attributes:
        short_side_px: frames are scaled so that the shorter side has that many pixels, never up; None for as stored.
        jpeg_quality: 1 to 100.
        decoder: ``pyav`` or ``ffmpeg``: both give the same bytes.
    """

    short_side_px: int | None = 256
    jpeg_quality: int = 90
    decoder: DecoderName = "pyav"


@dataclass(frozen=True)
class SampledClip:
    """A clip with its frames.

    Attributes:
        n_available: frames of the clip, on the plan's clock, from which those were chosen.
        frame_index: places of the chosen frames in the file, in order of display, from 0.
        frame_time_s: seconds from the video's first frame at which they are displayed.
        width_px: of the JPEGs; so is ``height_px``.
        frames: the JPEGs, one after another.
        frame_sizes: bytes of each.
    """

    key: str
    video: str
    t_start: float | None
    t_end: float | None
    n_available: int
    frame_index: list[int]
    frame_time_s: list[float]
    width_px: int
    height_px: int
    frames: Blob
    frame_sizes: list[int]


def probe_video(row: VideoFile, *, root: str, limits: Limits = Limits()) -> ProbedVideo:  # noqa: B008  # a frozen value
    """Step: what a video file is; turns away what cannot be decoded. ``root``: folder of videos, mark it with ``where``."""
    raise NotImplementedError


def sample_frames(
    row: Clip,
    *,
    root: str,
    plan: FramePlan,
    settings: FrameSettings = FrameSettings(),  # noqa: B008
    limits: Limits = Limits(),  # noqa: B008
) -> SampledClip:
    """Step: the frames of a clip that a plan chooses. ``root``: folder of videos, mark it with ``where``."""
    raise NotImplementedError


def unpack_frames(frames: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The JPEGs that ``SampledClip.frames`` holds one after another."""
    raise NotImplementedError


def frame_members(jpegs: Sequence[bytes]) -> dict[str, bytes]:
    """Members of a shard's sample: ``0000.jpg``, ``0001.jpg``, ... in order."""
    return {f"{place:04d}.jpg": jpeg for place, jpeg in enumerate(jpegs)}
