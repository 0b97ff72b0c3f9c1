"""Plans that choose frames of a clip, applied before anything is decoded.

A frame is identified by its number in order of display, from 0, in a sequential decode of the whole file. A plan with ``fps``
instead uses a clock of that rate, as if the video had first been extracted at ``fps``: frame k of the clock is the frame of the
file on display at k / fps seconds after the first one, so that frames of a video with a lower rate repeat.

The rules are those of vCLIMB (Villa et al., CVPR 2022), as released: uniform frames ``int(tick / 2 + tick * i)`` with
``tick = n_frames / n``, for evaluation and for the memory; for training one frame of each of n segments of
``floor(n_frames / n)`` frames; a segment of a video is ``[round(t_start * fps) : round(t_end * fps)]`` of its frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..rng import rng
from ..rows import Reject

_SOON_S = 1e-6
"""Tolerance in seconds: a frame that begins this much after a tick counts as on display at it, since containers round times."""


def uniform_frames(n_frames: int, n: int) -> np.ndarray:
    """Choose ``n`` evenly spaced frames, the middles of n equal parts: ``int(tick / 2 + tick * i)``, ``tick = n_frames / n``.

    Returns:
        int64 of shape (n,), not decreasing, in [0, n_frames); frames repeat if ``n_frames < n``.
    """
    _check_counts(n_frames, n)
    tick = n_frames / n
    return np.asarray([int(tick / 2 + tick * i) for i in range(n)], dtype=np.int64)


def segment_frames(n_frames: int, n: int, draws: np.random.Generator) -> np.ndarray:
    """Draw one frame from each of ``n`` segments of ``floor(n_frames / n)`` frames, as TSN does (Wang et al., ECCV 2016).

    The last ``n_frames mod n`` frames are never drawn. With fewer than ``n`` frames all are used, repeated in order: with 4
    frames and n = 8 each twice, as released; if n is not a multiple, ``floor(i * n_frames / n)``, which is our choice.

    Returns:
        int64 of shape (n,), not decreasing, in [0, n_frames).
    """
    _check_counts(n_frames, n)
    if n_frames < n:
        return np.arange(n, dtype=np.int64) * n_frames // n
    length = n_frames // n
    return np.arange(n, dtype=np.int64) * length + draws.integers(0, length, size=n)


def dense_frames(n_frames: int, n: int, stride: int, draws: np.random.Generator | None) -> np.ndarray:
    """Choose ``n`` frames, ``stride`` apart: a window at a random position, or in the middle of the clip.

    In a clip that is shorter than the window, frames are spread evenly, and repeat if there are fewer than n.

    Args:
        n_frames: number of frames of the clip.
        n: number of frames to choose.
        stride: distance between chosen frames, at least 1.
        draws: random generator for the position; None: the window is in the middle.

    Returns:
        int64 of shape (n,), not decreasing, in [0, n_frames).

    >>> dense_frames(100, 4, 2, None).tolist(), dense_frames(3, 4, 2, None).tolist()
    ([46, 48, 50, 52], [0, 0, 1, 2])
    """
    _check_counts(n_frames, n)
    if stride < 1:
        raise ValueError(f"stride {stride}: at least 1")
    room = n_frames - ((n - 1) * stride + 1)
    if room < 0:
        return np.arange(n, dtype=np.int64) * n_frames // n
    start = room // 2 if draws is None else int(draws.integers(room + 1))
    return start + stride * np.arange(n, dtype=np.int64)


def view_frames(n_frames: int, n: int, stride: int, clips: int, starts: Literal["as_released", "even"]) -> np.ndarray:
    """Choose the frames of several windows of a video, concatenated: ``n`` frames of each window, ``stride`` apart.

    Args:
        n_frames: number of frames of the video.
        n: number of frames per window.
        stride: distance between chosen frames, at least 1.
        clips: number of windows.
        starts: ``as_released`` (KOWL): among the k frames that are every stride-th of the video, window i begins at
            i * ((k - n) // clips); ``even``: the first window begins with the video, the last one ends with it, a single one
            is in the middle.

    Returns:
        int64 of shape (clips * n,), in [0, n_frames); if the video is too short, its last frame repeats.

    >>> view_frames(40, 4, 2, 2, "as_released").tolist(), view_frames(40, 4, 2, 2, "even").tolist()
    ([0, 2, 4, 6, 16, 18, 20, 22], [0, 2, 4, 6, 33, 35, 37, 39])
    >>> view_frames(5, 4, 2, 1, "even").tolist()
    [0, 2, 4, 4]
    """
    _check_counts(n_frames, n)
    if stride < 1 or clips < 1:
        raise ValueError(f"{clips} windows of stride {stride}: at least 1 each")
    room = max(n_frames - ((n - 1) * stride + 1), 0)
    if starts == "as_released":
        step = max(-(-n_frames // stride) - n, 0) // clips
        begins = stride * step * np.arange(clips)
    else:
        begins = np.array([room // 2]) if clips == 1 else room * np.arange(clips) // (clips - 1)
    return np.minimum(begins[:, None] + stride * np.arange(n), n_frames - 1).reshape(-1).astype(np.int64)


def memory_frames(n_frames: int, n: int | None) -> np.ndarray:
    """Frames of a clip that an episodic memory keeps: ``n`` uniform ones, or all if n is None or at least ``n_frames``.

    Returns:
        int64 of shape (min(n, n_frames),), increasing.
    """
    return np.arange(n_frames, dtype=np.int64) if n is None or n >= n_frames else uniform_frames(n_frames, n)


def _check_counts(n_frames: int, n: int) -> None:
    if n_frames < 1 or n < 1:
        raise ValueError(f"{n} frames of {n_frames}: both must be at least 1")


@dataclass(frozen=True)
class FramePlan:
    """How frames are chosen from a clip.

    Attributes:
        kind: ``uniform`` (n evenly spaced), ``segments`` (one drawn from each of n segments), ``views`` (``view_frames``) or
            ``all``.
        n: number of frames (for ``views``: per window); None for ``all``.
        fps: rate of the clock on which frames are counted; None for the file's own frames.
        min_frames: clips with fewer frames are rejected (vCLIMB: 8).
        seed: seed for the draws of ``segments``; None for the other kinds.
        stride, clips, starts: arguments of ``view_frames``, for ``views``.
    """

    kind: Literal["uniform", "segments", "views", "all"]
    n: int | None = None
    fps: float | None = None
    min_frames: int = 1
    seed: int | None = None
    stride: int = 1
    clips: int = 1
    starts: Literal["as_released", "even"] = "as_released"

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "segments", "views", "all"):
            raise ValueError(f"plan of kind {self.kind!r}: uniform, segments, views or all")
        if self.starts not in ("as_released", "even"):
            raise ValueError(f"plan with starts={self.starts!r}: as_released or even")
        if (self.n is None) != (self.kind == "all") or (self.n is not None and self.n < 1):
            raise ValueError(f"plan {self.kind!r} with n={self.n}: it must be None for 'all', and at least 1 otherwise")
        if (self.seed is None) != (self.kind != "segments"):
            raise ValueError(f"plan {self.kind!r} with seed={self.seed}: needed for 'segments', and must be None otherwise")
        if self.fps is not None and not 0 < self.fps <= 1000:
            raise ValueError(f"plan with fps={self.fps}: above 0 and at most 1000")
        if self.min_frames < 1:
            raise ValueError(f"plan with min_frames={self.min_frames}: at least 1")


def choose_frames(
    plan: FramePlan, times_s: np.ndarray, *, fps: float, t_start: float | None = None, t_end: float | None = None, key: str = ""
) -> tuple[list[int], int]:
    """Apply a plan to a video, or to the part of it between two times.

    Args:
        plan: the plan.
        times_s: float64 of shape (frames + 1,): start of each frame and end of the last, in seconds from the first frame.
        fps: the file's own rate, which converts the times of a segment to frames if the plan has no ``fps``.
        t_start: start of the segment in seconds; None for the start of the video.
        t_end: end of the segment in seconds; None for the end of the video.
        key: key of the row, on which the draws of ``segments`` depend.

    Returns:
        Numbers of the chosen frames in the file, in order of display, possibly repeated; and the number of frames of the
        clip, on the plan's clock, from which they were chosen.

    Raises:
        Reject: ``bad_segment`` if the times are not a valid interval, ``too_few_frames`` below the plan's ``min_frames``.
    """
    total = len(times_s) - 1 if plan.fps is None else max(1, round(float(times_s[-1]) * plan.fps))
    begin, end = segment_bounds(total, plan.fps or fps, t_start, t_end)
    clock = np.arange(begin, end, dtype=np.int64)
    if plan.fps is not None:
        clock = np.maximum(np.searchsorted(times_s[:-1], clock / plan.fps + _SOON_S, side="right") - 1, 0)
    if len(clock) < plan.min_frames:
        place = "" if t_start is None and t_end is None else f" from {t_start} to {t_end} s"
        raise Reject("too_few_frames", f"{len(clock)} frames{place}, expected at least {plan.min_frames}")
    if plan.kind == "uniform":
        clock = clock[uniform_frames(len(clock), plan.n or 1)]
    elif plan.kind == "views":
        clock = clock[view_frames(len(clock), plan.n or 1, plan.stride, plan.clips, plan.starts)]
    elif plan.kind == "segments":
        clock = clock[segment_frames(len(clock), plan.n or 1, rng(plan.seed or 0, "tsn_segments", key))]
    return clock.tolist(), end - begin


def segment_bounds(n_frames: int, fps: float, t_start: float | None, t_end: float | None) -> tuple[int, int]:
    """Bounds of the frames of a segment: ``[round(t_start * fps) : round(t_end * fps)]``, clipped to the video.

    Raises:
        Reject: ``bad_segment`` if a time is negative or not finite, or the end is not after the start.
    """
    start_s, end_s = 0.0 if t_start is None else t_start, n_frames / fps if t_end is None else t_end
    if not (np.isfinite([start_s, end_s]).all() and start_s >= 0 and (t_end is None or end_s > start_s)):
        raise Reject("bad_segment", f"from {t_start} to {t_end} s: both at least 0, the end after the start")
    begin = min(round(start_s * fps), n_frames)
    return begin, n_frames if t_end is None else max(begin, min(round(end_s * fps), n_frames))
