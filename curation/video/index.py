"""Index of a video file, built from its packets without decoding: frames, their times, and where decoding may begin.

Frame counts in headers are not trusted: packets are counted. The reference is a sequential decode of the whole file; if the
packets do not predict its frames reliably, ``VideoIndex.sequential`` says why, and no seeking is done.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..rows import Reject
from .limits import CpuBudget
from .opening import StreamChoice, left_open, open_video, ranked
from .packets import FORETOLD, MP4, NO_TIME, Packets, by_demuxing, by_tables, codec_of, demuxed, first_gap

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.video.stream import VideoStream

_SEEKABLE = {MP4, "matroska,webm"}


class KeyFrame(NamedTuple):
    """A packet at which decoding may begin: its index in file order, and its time stamp."""

    place: int
    pts: int


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """Contents of a video file.

    Attributes:
        path: path of the file.
        container: FFmpeg's name of the demuxer; ``codec`` and ``pix_fmt`` are FFmpeg's names, too.
        stream: number of the video stream in the file.
        width_px: width of the stored frames, before rotation; so is ``height_px``.
        full_range: whether luma ranges from 0 to 255, not from 16 to 235.
        colour_matrix: FFmpeg's number of the matrix from RGB (AVCOL_SPC).
        time_base: seconds per tick of the time stamps.
        fps: frames per second, on average.
        packet_pts: time stamps of all packets, in file order; int64 (packets,); empty if some are missing.
        spare: packets from whose pictures no other is predicted, bool (packets,); only for HEVC, otherwise all False.
        places: index in file order of the packet of each frame, in order of display; int64 (frames,).
        times_s: start of each frame and end of the last, in seconds from the first frame; float64 (frames + 1,).
        start_s: time stamp of the first frame in seconds.
        keys: packets at which decoding may begin, in file order.
        sequential: why frames must be decoded from the start; "" if seeking is safe.
        size_bytes: size of the file.
    """

    path: str
    container: str
    codec: str
    pix_fmt: str
    stream: int
    width_px: int
    height_px: int
    full_range: bool
    colour_matrix: int
    time_base: Fraction
    fps: float
    packet_pts: np.ndarray
    spare: np.ndarray
    places: np.ndarray
    times_s: np.ndarray
    start_s: float
    keys: tuple[KeyFrame, ...]
    sequential: str
    size_bytes: int

    @property
    def n_frames(self) -> int:
        """Number of frames in the file."""
        return len(self.times_s) - 1


def read_index(path: str, *, budget: CpuBudget, stream: StreamChoice = "best") -> VideoIndex:
    """Build the index of a file from all packets of its video. If the best stream shows no frame, the next best one is used.

    Raises:
        Reject: as ``open_video``; also ``no_frames``, ``truncated``, ``missing_pictures``, ``encrypted``,
            ``unsupported_pixels``, ``too_long`` or ``too_many_frames``.
    """
    if os.path.getsize(path) == 0:
        raise Reject("empty_file", "0 bytes")
    choices: list[StreamChoice] = [stream]
    while True:
        with open_video(path, budget, choices[0]) as (container, video):
            choices = [one.index for one in ranked(container)] if choices == ["best"] else choices
            seen: list[Packet[VideoStream]] = []
            packets = by_tables(path, container, video, seen, budget)
            packets = packets or by_demuxing(chain(seen, demuxed(container, video)), video, budget)
            if packets.shown.any() or len(choices) == 1:
                index = _index(path, container, video, packets, budget)
                left_open[budget] = container
                break
        choices = choices[1:]
    limits = budget.limits
    if index.n_frames > limits.max_frames:
        raise Reject("too_many_frames", f"{index.n_frames}, limit {limits.max_frames}")
    if index.times_s[-1] > limits.max_duration_s:
        raise Reject("too_long", f"{index.times_s[-1]:.1f} s, limit {limits.max_duration_s:g}")
    return index


def _index(path: str, container: InputContainer, stream: VideoStream, packets: Packets, budget: CpuBudget) -> VideoIndex:
    context, seekable = stream.codec_context, container.format.name in _SEEKABLE
    if not packets.shown.any():
        raise Reject("no_frames", f"{len(packets.pts)} packets, none of which is displayed")
    if seekable and packets.last_is_cut:
        raise Reject("truncated", f"the last of {len(packets.pts)} packets is cut")
    if (gap := first_gap(path, stream.index, packets, budget)) is not None:
        raise Reject(
            "missing_pictures",
            f"packet {gap} of {len(packets.pts)} needs pictures before it that are not in the file: "
            "copy the file from its source again",
        )
    sequential = _why_sequential(container.format.name, codec_of(stream), bool(context.has_b_frames), packets)
    shown = np.flatnonzero(packets.shown)
    base = Fraction(stream.time_base or 1)
    clock = packets.pts
    if NO_TIME not in packets.pts:
        usual = float(1 / (stream.average_rate or 25) / base)
        clock = one_clock(packets.pts, packets.dts, base, packets.last_duration or usual)
        sequential = sequential or "time stamps go back" * (clock is not packets.pts)
    pts = clock[shown]
    if NO_TIME in pts:
        rate = float(stream.average_rate or 25)
        places, times_s, start_s = shown, np.arange(len(shown) + 1) / rate, 0.0
    else:
        order = np.argsort(pts, kind="stable")
        places, pts = shown[order], pts[order]
        step = packets.last_duration or (int(pts[-1] - pts[0]) / max(1, len(pts) - 1)) or float(1 / (25 * base))
        times_s = (np.append(pts, pts[-1] + step) - pts[0]).astype(np.float64) * float(base)
        start_s = float(pts[0] * base)
    missing = packets.pts == NO_TIME
    key_pts = np.where(missing, 0, packets.pts)[packets.keys]
    return VideoIndex(
        path=path,
        container=container.format.name,
        codec=codec_of(stream),
        pix_fmt=context.pix_fmt or "",
        stream=stream.index,
        width_px=context.width,
        height_px=context.height,
        full_range=int(context.color_range) == 2 or (context.pix_fmt or "").startswith("yuvj"),
        colour_matrix=int(context.colorspace),
        time_base=base,
        fps=_rate(stream, times_s),
        packet_pts=packets.pts[: 0 if missing.any() else None],
        spare=packets.spare,
        places=places.astype(np.int64),
        times_s=times_s,
        start_s=start_s,
        keys=tuple(map(KeyFrame, packets.keys.tolist(), key_pts.tolist())),
        sequential=sequential,
        size_bytes=os.path.getsize(path),
    )


def one_clock(pts: np.ndarray, dts: np.ndarray, base: Fraction, step: float) -> np.ndarray:
    """Time stamps by one clock also of joined files, in each part of which those of decoding begin again.

    Args:
        pts: time stamps in file order, int64 (packets,), none missing; ``dts``: those of decoding.
        base: seconds per tick.
        step: ticks from the last picture of a part to the first one of the next.

    Returns:
        ``pts`` itself if no part begins. One does where decoding goes back by more than 0.1 s, as for the ffmpeg command.

    >>> one_clock(np.array([50, 51, 52, 0, 1]), np.array([50, 51, 52, 0, 1]), Fraction(1, 25), 1).tolist()
    [50, 51, 52, 53, 54]
    """
    known = np.flatnonzero(dts != NO_TIME)
    begins = known[1:][np.diff(dts[known]) < float(-1 / (10 * base))].tolist()
    if not begins:
        return pts
    pts, last = pts.copy(), pts[: begins[0]].max()
    for begin, end in pairwise([*begins, len(pts)]):
        pts[begin:end] += last + round(step) - pts[begin:end].min()
        last = pts[begin:end].max()
    return pts


def _why_sequential(container: str, codec: str, has_b_frames: bool, packets: Packets) -> str:
    """Why seeking by packets is not reliable; "" if it is."""
    if container not in _SEEKABLE:
        return f"container {container}"
    if codec not in FORETOLD:
        return f"codec {codec}"
    if packets.odd:
        return packets.odd
    if NO_TIME in packets.pts or not np.diff(np.sort(packets.pts)).all():
        return "time stamps are missing or repeated"
    if np.array_equal(packets.pts, packets.dts) and has_b_frames:
        return "time stamps do not determine the display order"
    if not len(packets.keys) or packets.keys[0] != 0:
        return "no key frame at the start"
    if packets.pts.min() < packets.pts[0]:
        return "frames are displayed before the first key frame"
    return ""


def _rate(stream: VideoStream, times_s: np.ndarray) -> float:
    """Frames per second: the rate in the header if the time stamps confirm it within 2 %, otherwise that of the time stamps."""
    measured = (len(times_s) - 1) / float(times_s[-1]) if times_s[-1] > 0 else 25.0
    stated = float(stream.average_rate or 0)
    return stated if abs(stated - measured) <= 0.02 * measured else measured
