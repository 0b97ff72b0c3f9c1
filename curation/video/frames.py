"""Steps that probe clips and extract their frames as JPEGs, chosen by a plan."""

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
from .limits import VideoLimits
from .opening import StreamChoice
from .work import FrameSettings

NO_SURPRISES = VideoLimits()
AS_USUAL = FrameSettings()


@dataclass(frozen=True)
class Clip:
    """A video, or the part of it from ``t_start`` to ``t_end`` seconds; None for its start or end."""

    key: str
    video: str
    t_start: float | None
    t_end: float | None


@dataclass(frozen=True)
class ProbedClip:
    """A clip with the properties of its file.

    Attributes:
        container: FFmpeg's name of the demuxer.
        codec: FFmpeg's name of the codec.
        stream: number of the video among all streams of the file, from 0.
        width_px: width as displayed, after rotation; so is ``height_px``.
        rotation_deg: clockwise rotation of frames for display: 0, 90, 180 or 270.
        fps: frames per second, on average.
        n_frames: number of frames, counted from packets or decoded frames, not read from a header.
        duration_s: seconds from the start of the first frame to the end of the last.
        start_s: time stamp of the first frame in seconds.
        size_bytes: size of the file.
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
        n_available: number of frames of the clip, at the rate of the plan, from which the frames were chosen.
        frame_index: numbers of the chosen frames in the file, in order of display, from 0.
        frame_time_s: display times of the chosen frames, in seconds from the first frame of the video.
        width_px: width of the JPEGs; so is ``height_px``.
        frames: the JPEGs, concatenated.
        frame_sizes: size of each JPEG in bytes.
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
    """Read the properties of a clip's file from its packets and first frame. A step of kind ``each``.

    If the packets of a container or codec do not predict the frames reliably, all frames are decoded and counted.

    Args:
        root: folder of videos; mark it with ``where``.
        plan: clips from which this plan cannot choose frames are rejected, as by ``sample_frames``.
        stream: stream of the file that is used as the video.
        limits: see ``VideoLimits``.
        wall_limit_s: seconds without an answer after which the run stops, without rejecting a row; mark it with ``how``.

    Raises:
        Reject: ``outside_folder``, ``missing_file``, ``not_a_file``, ``unreadable``, ``empty_file``, ``not_a_video``,
            ``truncated``, ``corrupt``, ``missing_pictures``, ``no_video_stream``, ``no_frames``,
            ``encrypted``, ``unsupported_codec``, ``unsupported_rotation``, ``too_many_pixels``, ``too_many_frames``,
            ``too_long``, ``timed_out`` or ``decoder_died``; with a plan ``bad_segment`` or ``too_few_frames``.
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
    """Extract the frames of a clip that a plan chooses as JPEGs, exactly those of a sequential decode. A step of kind ``each``.

    Args:
        root: folder of videos; mark it with ``where``.
        plan: plan that chooses the frames; its random draws depend on the key of the row.
        settings: how frames are converted to JPEGs.
        stream: as for ``probe_clip``; so are ``limits`` and ``wall_limit_s``.

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
    """Return the frames of a clip that a plan chooses as pixels: uint8 of shape (frames, height, width, 3). Arguments and
    errors are those of ``sample_frames``; ``jpeg_quality`` is not used."""
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
    """Split the concatenated JPEGs of ``SampledClip.frames``.

    Raises:
        ValueError: the sizes do not match the bytes.
    """
    if sum(sizes) != len(frames) or min(sizes, default=0) < 0:
        raise ValueError(f"{len(frames)} bytes of frames, and sizes that add up to {sum(sizes)}")
    ends = list(itertools.accumulate(sizes))
    return [frames[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def frame_members(jpegs: Sequence[bytes]) -> dict[str, bytes]:
    """Members of a sample in a shard: ``0000.jpg``, ``0001.jpg``, ... in order.

    With more than 10,000 frames (13 videos of ActivityNet-Untrim) all names of the sample have more digits, so that sorting
    by name keeps the order.
    """
    digits = max(4, len(str(len(jpegs) - 1)))
    return {f"{place:0{digits}d}.jpg": jpeg for place, jpeg in enumerate(jpegs)}
