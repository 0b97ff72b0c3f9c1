"""The frames of a clip as JPEGs, chosen by a plan: steps, and the function that they share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows import Blob
from ..stages.folder import open_folder
from .child import WALL_LIMIT_S, in_child
from .frame_plans import FramePlan
from .index import StreamChoice
from .limits import VideoLimits
from .work import FrameSettings

NO_SURPRISES = VideoLimits()
AS_USUAL = FrameSettings()


@dataclass(frozen=True)
class Clip:
    """A video, or the part of it from ``t_start`` to ``t_end`` seconds; None for the whole."""

    key: str
    video: str
    t_start: float | None
    t_end: float | None


@dataclass(frozen=True)
class ProbedClip:
    """A clip with what its file is.

    Attributes:
        container: FFmpeg's name of the demuxer.
        codec: FFmpeg's name of the codec.
        stream: number of the video among all streams of the file, from 0.
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
    stream: int
    width_px: int
    height_px: int
    rotation_deg: int
    fps: float
    n_frames: int
    duration_s: float
    start_s: float
    size_bytes: int
    t_start: float | None
    t_end: float | None


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


def probe_clip(
    row: Clip,
    *,
    root: str,
    plan: FramePlan | None = None,
    stream: StreamChoice = "best",
    limits: VideoLimits = NO_SURPRISES,
    wall_limit_s: float = WALL_LIMIT_S,
) -> ProbedClip:
    """Step: what a clip's file is, from its packets and its first frame; of a container or codec whose packets do not
    foretell the frames for certain, all are decoded and counted.

    Args:
        root: folder of videos; mark it with ``where``.
        plan: a clip of which it cannot choose frames is rejected, as ``sample_frames`` would.
        stream: which stream of a file is the video.
        limits: see ``VideoLimits``.
        wall_limit_s: seconds without an answer after which the run stops, and no row is rejected; mark it with ``how``.

    Raises:
        Reject: ``outside_folder``, ``missing_file``, ``not_a_file``, ``unreadable``, ``empty_file``, ``not_a_video``,
            ``truncated``, ``corrupt``, ``no_video_stream``, ``no_frames``, ``encrypted``, ``unsupported_codec``,
            ``unsupported_rotation``, ``too_many_pixels``, ``too_many_frames``, ``too_long``, ``timed_out`` or
            ``decoder_died``; with a plan ``bad_segment`` or ``too_few_frames``.
        MachineFault: as ``child.in_child``.
    """
    asked = {"limits": limits, "stream": stream, "plan": plan, "cut": _cut(row)}
    facts, _ = in_child("probe", open_folder(root).local_path(row.video), wall_limit_s=wall_limit_s, **asked)
    return ProbedClip(row.key, row.video, **facts, t_start=row.t_start, t_end=row.t_end)


def sample_frames(
    row: Clip,
    *,
    root: str,
    plan: FramePlan,
    settings: FrameSettings = AS_USUAL,
    stream: StreamChoice = "best",
    limits: VideoLimits = NO_SURPRISES,
    wall_limit_s: float = WALL_LIMIT_S,
) -> SampledClip:
    """Step: the frames of a clip that a plan chooses, exactly those of a sequential decode, as JPEGs.

    Args:
        root: folder of videos; mark it with ``where``.
        plan: which frames; its draws are named by the row's key.
        settings: how they become JPEGs.
        stream: as of ``probe_clip``; so are ``limits`` and ``wall_limit_s``.

    Raises:
        Reject: as ``probe_clip``; also ``bad_segment``, ``too_few_frames``, ``size_changes`` or ``unsupported_pixels``.
    """
    asked = {"limits": limits, "stream": stream, "plan": plan, "settings": settings, "cut": _cut(row)}
    facts, jpegs = in_child("sample", open_folder(root).local_path(row.video), wall_limit_s=wall_limit_s, **asked)
    return sampled_clip(row, jpegs, **facts)


def decode_frames(
    row: Clip,
    *,
    root: str,
    plan: FramePlan,
    settings: FrameSettings = AS_USUAL,
    stream: StreamChoice = "best",
    limits: VideoLimits = NO_SURPRISES,
    wall_limit_s: float = WALL_LIMIT_S,
) -> np.ndarray:
    """The frames of a clip that a plan chooses, as pixels: uint8 of shape (frames, height, width, 3). Arguments and errors are
    those of ``sample_frames``; ``jpeg_quality`` is not used."""
    asked = {"limits": limits, "stream": stream, "plan": plan, "settings": settings, "cut": _cut(row)}
    facts, frames = in_child("decode", open_folder(root).local_path(row.video), wall_limit_s=wall_limit_s, **asked)
    places = sorted(set(facts["frame_index"]))
    pixels = np.frombuffer(b"".join(frames), np.uint8).reshape(len(places), facts["height_px"], facts["width_px"], 3)
    return pixels[np.searchsorted(places, facts["frame_index"])]


def sampled_clip(row: Clip, jpegs: Sequence[bytes], **facts: Any) -> SampledClip:
    """A clip with its frames; ``facts`` are the other attributes of ``SampledClip``."""
    part = {"t_start": row.t_start, "t_end": row.t_end}
    return SampledClip(row.key, row.video, **part, **facts, frames=Blob(b"".join(jpegs)), frame_sizes=[*map(len, jpegs)])


def _cut(row: Clip) -> dict[str, float | str | None]:
    return {"t_start": row.t_start, "t_end": row.t_end, "key": row.key}


def unpack_frames(frames: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The JPEGs that ``SampledClip.frames`` holds one after another.

    Raises:
        ValueError: the sizes are not those of the frames.
    """
    if sum(sizes) != len(frames) or min(sizes, default=0) < 0:
        raise ValueError(f"{len(frames)} bytes of frames, and sizes that add up to {sum(sizes)}")
    ends = list(itertools.accumulate(sizes))
    return [frames[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def frame_members(jpegs: Sequence[bytes]) -> dict[str, bytes]:
    """Members of a shard's sample: ``0000.jpg``, ``0001.jpg``, ... in order.

    A sample of more than 10,000 frames (13 videos of ActivityNet-Untrim) has more digits, all its members as many: sorted by
    name they are in order.
    """
    digits = max(4, len(str(len(jpegs) - 1)))
    return {f"{place:0{digits}d}.jpg": jpeg for place, jpeg in enumerate(jpegs)}
