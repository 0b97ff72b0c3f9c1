"""Which frames of a clip are wanted: plans as values, made before anything is decoded.

A frame is named by its place in order of display, from 0, in a sequential decode of the whole file. A plan with ``fps`` deals
instead in the frames of a clock of that rate, as if the video had first been extracted at ``fps``: frame k of the clock is the
file's frame on display at k / fps seconds after the first one, so that a slow video's frames come several times.

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
"""A frame that begins this little after a tick of the clock is on display at the tick: times are rounded in containers."""


def uniform_frames(n_frames: int, n: int) -> np.ndarray:
    """``n`` frames, evenly placed, each in the middle of its share: ``int(tick / 2 + tick * i)``, ``tick = n_frames / n``.

    Returns:
        int64 of shape (n,), not decreasing, in [0, n_frames); frames come several times where ``n_frames < n``.
    """
    _check_counts(n_frames, n)
    tick = n_frames / n
    return np.asarray([int(tick / 2 + tick * i) for i in range(n)], dtype=np.int64)


def segment_frames(n_frames: int, n: int, draws: np.random.Generator) -> np.ndarray:
    """One frame drawn from each of ``n`` segments of ``floor(n_frames / n)`` frames, as TSN trains (Wang et al., ECCV 2016).

    The last ``n_frames mod n`` frames are never drawn. Of fewer than ``n`` frames each is taken, repeated in order: with 4
    frames and n = 8 each twice, as released; where n is no multiple, ``floor(i * n_frames / n)``, which is our choice.

    Returns:
        int64 of shape (n,), not decreasing, in [0, n_frames).
    """
    _check_counts(n_frames, n)
    if n_frames < n:
        return np.arange(n, dtype=np.int64) * n_frames // n
    length = n_frames // n
    return np.arange(n, dtype=np.int64) * length + draws.integers(0, length, size=n)


def dense_frames(n_frames: int, n: int, stride: int, draws: np.random.Generator | None) -> np.ndarray:
    """``n`` frames, ``stride`` apart: a window at a place that is drawn, or in the middle of the clip.

    Of a clip that is shorter than the window, frames are spread evenly, and come several times where there are fewer than n.

    Args:
        n_frames: of the clip.
        n: how many.
        stride: frames from one to the next, at least 1.
        draws: None: the window in the middle.

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
    """Frames of several windows of a video, one after another: of each window ``n`` frames, ``stride`` apart.

    Args:
        n_frames: of the video.
        n: frames of a window.
        stride: frames from one to the next, at least 1.
        clips: windows.
        starts: ``as_released`` (KOWL): of every stride-th frame there are k; windows begin at i * ((k - n) // clips), the first
            at 0; ``even``: the first window begins with the video, the last one ends with it, a single one is in the middle.

    Returns:
        int64 of shape (clips * n,), in [0, n_frames); the last frame stands for those that a short video lacks.

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
    """Frames that an episodic memory keeps of a clip: ``n`` uniform ones, or all where n is None or not below ``n_frames``.

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
        kind: ``uniform`` (n evenly placed), ``segments`` (one drawn from each of n segments), ``views`` (``view_frames``) or
            ``all``.
        n: number of frames; None for ``all``.
        fps: rate of the clock on which frames are counted; None for the file's own frames.
        min_frames: clips with fewer frames are rejected (vCLIMB: 8).
        seed: of the draws of ``segments``; None for the other kinds.
        stride, clips, starts: of ``views``.
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
        plan: what is wanted.
        times_s: float64 of shape (frames + 1,): seconds from the first frame at which each frame begins, and the last ends.
        fps: the file's own rate, by which the times of a segment become frames where the plan has no clock of its own.
        t_start: start of the segment in seconds; None for the video's.
        t_end: end of the segment in seconds; None for the video's.
        key: names the draws of ``segments``.

    Returns:
        Places in the file, in order of display, the same one maybe several times; and of how many frames of the clip, on the
        plan's clock, they were chosen.

    Raises:
        Reject: ``bad_segment`` where the times are no stretch, ``too_few_frames`` below the plan's ``min_frames``.
    """
    if plan.fps is None:
        clock = np.arange(len(times_s) - 1, dtype=np.int64)
    else:
        ticks = np.arange(max(1, round(float(times_s[-1]) * plan.fps))) / plan.fps
        clock = np.maximum(np.searchsorted(times_s[:-1], ticks + _SOON_S, side="right") - 1, 0)
    begin, end = segment_bounds(len(clock), plan.fps or fps, t_start, t_end)
    clock = clock[begin:end]
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
    """First frame of a segment, and the one after its last: ``[round(t_start * fps) : round(t_end * fps)]``, cut to the video.

    Raises:
        Reject: ``bad_segment`` where a time is negative or not finite, or the end does not follow the start.
    """
    start_s, end_s = 0.0 if t_start is None else t_start, n_frames / fps if t_end is None else t_end
    if not (np.isfinite([start_s, end_s]).all() and start_s >= 0 and (t_end is None or end_s > start_s)):
        raise Reject("bad_segment", f"from {t_start} to {t_end} s: both at least 0, the end after the start")
    begin = min(round(start_s * fps), n_frames)
    return begin, n_frames if t_end is None else max(begin, min(round(end_s * fps), n_frames))
