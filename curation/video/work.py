"""Work on one video file; arguments are paths and plain values, so that a child process can run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ..rows import Reject
from .decoders import DECODERS, Miscounted, all_frames
from .frame_plans import FramePlan, choose_frames
from .index import VideoIndex, one_clock, read_index
from .limits import CpuBudget, VideoLimits
from .opening import StreamChoice
from .pixels import Orientation, RgbConverter, encode_jpeg, orientation_of


@dataclass(frozen=True)
class FrameSettings:
    """How frames are converted to JPEGs.

    Attributes:
        short_side_px: frames are scaled down so that the shorter side has this many pixels; None keeps the stored size.
        jpeg_quality: JPEG quality, 1 to 100.
        decoder: ``pyav`` or ``ffmpeg``: both give the same bytes.
    """

    short_side_px: int | None = 256
    jpeg_quality: int = 90
    decoder: Literal["pyav", "ffmpeg"] = "pyav"

    def __post_init__(self) -> None:
        if self.short_side_px is not None and self.short_side_px < 1:
            raise ValueError(f"short_side_px={self.short_side_px}: at least 1, or None")
        if not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"jpeg_quality={self.jpeg_quality}: from 1 to 100")
        if self.decoder not in DECODERS:
            raise ValueError(f"decoder={self.decoder!r}: one of {', '.join(DECODERS)}")


FileFacts = dict[str, Any]
"""JSON-compatible results of work on a file."""


def probe_file(
    path: str, *, limits: VideoLimits, stream: StreamChoice, plan: FramePlan | None, cut: Mapping[str, Any]
) -> tuple[FileFacts, list[bytes]]:
    """Read the properties of a file: the facts of ``frames.ProbedClip``. Raises ``Reject`` as ``frames.probe_clip``."""
    budget = CpuBudget(limits)
    index = read_index(path, budget=budget, stream=stream)
    first, count = None, index.n_frames
    for number, frame in enumerate(all_frames(index, budget=budget)):
        first = orientation_of(frame) if first is None else first
        if not index.sequential:
            break
        count = number + 1
    if first is None:
        raise Reject("no_frames", f"{index.n_frames} packets, none of which yields a frame")
    if plan is not None:
        known = index if count == index.n_frames else counted(index, budget=budget)
        choose_frames(plan, known.times_s, fps=known.fps, **cut)
    width, height = (index.height_px, index.width_px) if first.transposed else (index.width_px, index.height_px)
    facts = {
        "container": index.container,
        "codec": index.codec,
        "stream": index.stream,
        "width_px": width,
        "height_px": height,
        "rotation_deg": first.rotation_deg,
        "fps": index.fps,
        "n_frames": count,
        "duration_s": float(index.times_s[-1]),
        "start_s": index.start_s,
        "size_bytes": index.size_bytes,
    }
    return facts, []


def sample_file(
    path: str, *, limits: VideoLimits, stream: StreamChoice, plan: FramePlan, settings: FrameSettings, cut: Mapping[str, Any]
) -> tuple[FileFacts, list[bytes]]:
    """Extract the frames that a plan chooses: facts of ``frames.SampledClip``, and the JPEGs. Raises as ``sample_frames``.

    Args:
        cut: ``t_start``, ``t_end`` and ``key`` of ``frame_plans.choose_frames``.
    """
    facts, jpegs = _read(path, limits, stream, plan, settings, cut, lambda pixels: encode_jpeg(pixels, settings.jpeg_quality))
    return facts, [jpegs[place] for place in facts["frame_index"]]


def decode_file(
    path: str, *, limits: VideoLimits, stream: StreamChoice, plan: FramePlan, settings: FrameSettings, cut: Mapping[str, Any]
) -> tuple[FileFacts, list[bytes]]:
    """Extract the same frames as raw pixel bytes, each frame once, in order of display."""
    facts, pixels = _read(path, limits, stream, plan, settings, cut, np.ndarray.tobytes)
    return facts, [pixels[place] for place in sorted(pixels)]


def _read(
    path: str,
    limits: VideoLimits,
    stream: StreamChoice,
    plan: FramePlan,
    settings: FrameSettings,
    cut: Mapping[str, Any],
    encode: Callable[[np.ndarray], bytes],
) -> tuple[FileFacts, dict[int, bytes]]:
    budget = CpuBudget(limits)
    index = _index_of(path, stream, budget)
    try:
        return _sampled(index, budget, plan, settings, cut, encode)
    except Miscounted:
        index = counted(index, budget=budget)
    try:
        return _sampled(index, budget, plan, settings, cut, encode)
    except Miscounted as error:
        raise Reject("corrupt", f"one decoder gives {index.n_frames} frames, another {error.n_frames}") from None


_kept: dict[tuple[Any, ...], VideoIndex] = {}


def _index_of(path: str, stream: StreamChoice, budget: CpuBudget) -> VideoIndex:
    """``read_index``, cached for the next clip, which may be from the same file."""
    found = os.stat(path)
    key = (path, found.st_ino, found.st_size, found.st_mtime_ns, stream, budget.limits)
    if key not in _kept:
        _kept.clear()
        _kept[key] = read_index(path, budget=budget, stream=stream)
    return _kept[key]


def counted(index: VideoIndex, *, budget: CpuBudget) -> VideoIndex:
    """Correct the number and times of the frames in an index by decoding the whole file.

    Raises:
        Reject: ``no_frames``, or as ``all_frames``.
    """
    stamps = [frame.pts for frame in all_frames(index, budget=budget)]
    if not stamps:
        raise Reject("no_frames", f"{index.n_frames} packets, none of which yields a frame")
    if None in stamps:
        times_s = np.arange(len(stamps) + 1) / index.fps
    else:
        pts = np.asarray(stamps, dtype=np.int64)
        ticks = np.maximum.accumulate(one_clock(pts, pts, index.time_base, float(1 / (index.fps * index.time_base))))
        begin_s = (ticks - ticks[0]) * float(index.time_base)
        times_s = np.append(begin_s, begin_s[-1] + 1 / index.fps)
    return replace(index, times_s=times_s, sequential=index.sequential or "packets and frames differ in number")


def _sampled(
    index: VideoIndex,
    budget: CpuBudget,
    plan: FramePlan,
    settings: FrameSettings,
    cut: Mapping[str, Any],
    encode: Callable[[np.ndarray], bytes],
) -> tuple[FileFacts, dict[int, bytes]]:
    """Facts, and frame number -> encoded frame."""
    places, n_available = choose_frames(plan, index.times_s, fps=index.fps, **cut)
    converter = RgbConverter(index, settings.short_side_px)
    orientation: Orientation | None = None
    jpegs: dict[int, bytes] = {}
    height = width = 0
    for place, frame in DECODERS[settings.decoder](index, sorted(set(places)), budget=budget):
        if orientation is None:
            first_frame = frame if settings.decoder == "pyav" else next(all_frames(index, budget=budget), None)
            orientation = orientation_of(first_frame) if first_frame is not None else Orientation()
        pixels = converter.rgb(frame, orientation)
        height, width = pixels.shape[:2]
        jpegs[place] = encode(pixels)
    facts = {
        "n_available": n_available,
        "frame_index": places,
        "frame_time_s": index.times_s[places].tolist(),
        "width_px": width,
        "height_px": height,
    }
    return facts, jpegs


WORK = {"probe": probe_file, "sample": sample_file, "decode": decode_file}
"""Work that a child process can run, by name."""
