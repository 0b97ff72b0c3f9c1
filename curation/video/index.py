"""What a video file holds, told from its packets without decoding them: frames, their times, and where decoding may begin.

Headers are not believed: packets are counted. The definition of a video's frames is what a sequential decode of the whole file
gives; where the packets do not foretell that for certain, ``VideoIndex.sequential`` says why, and no seeking is done.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ..child_processes import memory_is_short
from ..rows import MachineFault, Reject
from .limits import CONTAINERS, CpuBudget
from .nal import AvcReader, HevcPicture, NalError, hevc_picture

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.error import FFmpegError
    from av.video.stream import VideoStream

_SEEKABLE = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"}
_FORETOLD = {"h264", "hevc", "vp9", "av1"}
"""Codecs whose packets in those containers are a frame each, every one with its time stamp."""

EXACT = "+bitexact"
"""Flag of decoders: without it MPEG-4's and its relatives' frames depend on the processor and on FFmpeg's version."""

StreamChoice = Literal["best"] | int
"""Which stream of a file is the video: the one that the ffmpeg command takes by itself, or the one of a number, counted from 0
over all streams of the file as ffprobe prints them."""

_ATTACHED = 0x400 | 0x800
"""Dispositions of pictures that are not moving: covers and thumbnails."""

_DEFAULT = 0x1
_PIXELS_OF_DEFAULT = 5_000_000
"""To the ffmpeg command it is worth as many pixels that a stream is marked as the default."""

_OF_THE_MACHINE = {errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT, errno.ENOSPC}
"""Errors that no demuxer or decoder makes up: FFmpeg passes them on from the system."""


class KeyFrame(NamedTuple):
    """A packet from which decoding may begin: its place in the file's order, and its time stamp."""

    place: int
    pts: int


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """What a file holds.

    Attributes:
        path: of the file.
        container: FFmpeg's name of the demuxer; ``codec`` and ``pix_fmt`` likewise.
        stream: number of the video stream in the file.
        width_px: of the stored frames, before rotation; so is ``height_px``.
        full_range: whether luma goes from 0 to 255 rather than from 16 to 235.
        colour_matrix: FFmpeg's number of the matrix from RGB (AVCOL_SPC).
        time_base: seconds a tick of the time stamps.
        fps: frames a second, on average.
        packet_pts: time stamps of all packets, in the file's order; int64 (packets,); empty where some have none.
        spare: packets whose pictures no other is predicted from, bool (packets,); of HEVC only, else all False.
        places: for each frame, in order of display, the place of its packet in the file's order; int64 (frames,).
        times_s: seconds from the first frame at which frames begin, and the last ends; float64 (frames + 1,).
        start_s: time stamp of the first frame.
        keys: where decoding may begin, in order.
        sequential: why frames must be decoded from the start; "" if they need not.
        size_bytes: of the file.
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
        """Frames in the file."""
        return len(self.times_s) - 1


@contextmanager
def open_video(path: str, budget: CpuBudget, choice: StreamChoice) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The file and its stream of moving pictures, with one decoder thread.

    Raises:
        Reject: ``empty_file``, ``not_a_video``, ``truncated``, ``corrupt``, ``no_video_stream``, ``unsupported_codec``,
            ``too_many_pixels`` or ``timed_out``; also for whatever FFmpeg raises in the body.
        MachineFault: the system refuses memory or open files.
    """
    import av
    from av.error import FFmpegError

    budget.left_s()
    max_pixels = budget.limits.max_pixels
    options = {"max_pixels": str(max_pixels), "threads": "1", "flags": EXACT}
    allowed = {"format_whitelist": CONTAINERS, "protocol_whitelist": "file"}
    try:
        with av.open(f"file:{path}", options=options, container_options=allowed, metadata_errors="replace") as container:
            stream = next((one for one in _ranked(container) if choice in ("best", one.index)), None)
            if stream is None:
                which = "none of them" if choice == "best" else f"number {choice} is not"
                raise Reject("no_video_stream", f"{len(container.streams)} streams, {which} moving pictures")
            context = stream.codec_context
            if context is None:
                raise Reject("unsupported_codec", "no decoder for the video stream")
            if context.width * context.height > max_pixels:
                raise Reject("too_many_pixels", f"{context.width}x{context.height}, limit {max_pixels} pixels")
            context.options = options
            context.thread_count = 1
            yield container, stream
    except FFmpegError as error:
        _check_machine(error)
        raise Reject(*_why_unreadable(path, error)) from None


def _ranked(container: InputContainer) -> list[VideoStream]:
    """The streams of moving pictures, that first which the ffmpeg command takes by itself: the one marked as default, or else
    that of most pixels, or else the first."""

    def worth(stream: VideoStream) -> int:
        context = stream.codec_context
        pixels = context.width * context.height if context is not None else 0
        return pixels + _PIXELS_OF_DEFAULT * bool(int(stream.disposition) & _DEFAULT)

    moving = [stream for stream in container.streams.video if not int(stream.disposition) & _ATTACHED]
    return sorted(moving, key=worth, reverse=True)  # which keeps the order of equals


def _check_machine(error: FFmpegError) -> None:
    """Raise ``MachineFault`` if the error says nothing of the file."""
    if error.errno in _OF_THE_MACHINE:
        raise MachineFault(f"{error.strerror}: use fewer --workers, or fix what the system lacks") from None
    if error.errno == errno.ENOMEM and memory_is_short():
        raise MachineFault("memory is short: use fewer --workers, or more memory") from None


def _why_unreadable(path: str, error: Exception) -> tuple[str, str]:
    with open(path, "rb") as stream:
        head = stream.read(16)
    if isinstance(error, EOFError):
        return "no_frames", "the file ends behind its header"
    text = f"{type(error).__name__}: {getattr(error, 'strerror', '')}"
    if not head:
        return "empty_file", "0 bytes"
    if head[4:8] == b"ftyp":
        return (
            ("corrupt", text) if _boxes_are_whole(path) else ("truncated", "the file ends before its boxes do, or lacks moov")
        )
    known = head.startswith((b"\x1aE\xdf\xa3", b"OggS", b"FLV", b"\x00\x00\x01", b"G", b"GIF8")) or head[8:12] == b"AVI "
    return ("corrupt", text) if known else ("not_a_video", f"begins with {head!r}")


def _boxes_are_whole(path: str) -> bool:
    """Whether the boxes of an MP4 file's top level fill it, ``moov`` among them."""
    size, at, names = os.path.getsize(path), 0, set[bytes]()
    with open(path, "rb") as stream:
        while at < size:
            stream.seek(at)
            head = stream.read(16)
            length = int.from_bytes(head[:4], "big")
            length = int.from_bytes(head[8:16], "big") if length == 1 else (size - at if length == 0 else length)
            names.add(head[4:8])
            if length < 8:
                return True  # damaged, rather than cut
            at += length
    return at == size and b"moov" in names


class _Packets:
    """The packets of a stream, as columns."""

    def __init__(self, container: InputContainer, stream: VideoStream, budget: CpuBudget) -> None:
        from av.error import FFmpegError

        self.pts: list[int | None] = []
        self.dts: list[int | None] = []
        self.shown: list[bool] = []
        self.keys: list[int] = []
        self.last_duration = 0
        self.last_is_cut = False
        self.odd = ""
        """Why the packets are not to be relied on, from their contents."""
        looks = _Looks(stream)
        try:
            for packet in container.demux(stream):
                if not packet.size:
                    continue
                if len(self.pts) % 256 == 0:
                    self._check(packet, budget)
                if looks.may_start(packet):
                    self.keys.append(len(self.pts))
                self.pts.append(packet.pts)
                self.dts.append(packet.dts)
                self.shown.append(not packet.is_discard)
                self.last_is_cut = packet.is_corrupt
                self.last_duration = packet.duration or 0
        except FFmpegError as error:
            _check_machine(error)
            raise Reject("truncated", f"after {len(self.pts)} packets: {error.strerror}") from None
        self.odd = looks.odd
        self.spare = spare_pictures(looks.pictures) if looks.pictures and not self.odd else np.zeros(len(self.pts), dtype=bool)

    def _check(self, packet: Packet[VideoStream], budget: CpuBudget) -> None:
        budget.left_s()
        if len(self.pts) >= budget.limits.max_frames:
            raise Reject("too_many_frames", f"more than {budget.limits.max_frames}")
        if packet.has_sidedata("encryption_info"):
            raise Reject("encrypted", "its packets are encrypted")


class _Looks:
    """Looks into packets, for as much as the codec's syntax is known here: see ``nal.py``."""

    def __init__(self, stream: VideoStream) -> None:
        self._codec = codec_of(stream)
        self._extradata = bytes(stream.codec_context.extradata or b"")
        self._avc: AvcReader | None = None
        self.odd = ""
        self.pictures: list[HevcPicture] = []
        if self._codec == "h264":
            try:
                self._avc = AvcReader(self._extradata)
            except NalError as error:
                self.odd = f"extradata: {error}"

    def may_start(self, packet: Packet[VideoStream]) -> bool:
        """Whether decoding may begin at the packet. Must see all packets in order."""
        if self.odd:
            return False
        try:
            if self._avc is not None:
                starts = self._avc.may_start(memoryview(packet), packet.is_keyframe)
                if not self._avc.complete:
                    self.odd = "pictures are missing"
                return starts
            if self._codec != "hevc":
                return packet.is_keyframe
            self.pictures.append(hevc_picture(memoryview(packet), self._extradata))
            return packet.is_keyframe and self.pictures[-1].starts
        except NalError as error:
            self.odd = f"packets: {error}"
            return False


def spare_pictures(pictures: Sequence[HevcPicture]) -> np.ndarray:
    """Pictures that no other is predicted from: those of the highest temporal layer that none of their own layer needs. What
    none of a lower layer needs may be needed by a higher one (H.265, 7.4.2.2). Bool (pictures,).

    >>> spare_pictures([HevcPicture(True, 0, False), HevcPicture(False, 0, True), HevcPicture(False, 1, True)])
    array([False, False,  True])
    """
    highest = max(picture.layer for picture in pictures)
    return np.array([picture.spare and picture.layer == highest for picture in pictures])


def codec_of(stream: VideoStream) -> str:
    """FFmpeg's name of the codec, which is not that of the decoder: AV1 is decoded by ``libdav1d``."""
    return stream.codec_context.codec.canonical_name


def read_index(path: str, *, budget: CpuBudget, stream: StreamChoice = "best") -> VideoIndex:
    """Look at all packets of a file's video. Where the best stream shows no frame, the next best one is the video.

    Raises:
        Reject: as ``open_video``; also ``no_frames``, ``truncated``, ``encrypted``, ``unsupported_pixels``, ``too_long`` or
            ``too_many_frames``.
    """
    if os.path.getsize(path) == 0:
        raise Reject("empty_file", "0 bytes")
    choices: list[StreamChoice] = [stream]
    while True:
        with open_video(path, budget, choices[0]) as (container, video):
            choices = [one.index for one in _ranked(container)] if choices == ["best"] else choices
            packets = _Packets(container, video, budget)
            if any(packets.shown) or len(choices) == 1:
                index = _index(path, container, video, packets)
                break
        choices = choices[1:]
    limits = budget.limits
    if index.n_frames > limits.max_frames:
        raise Reject("too_many_frames", f"{index.n_frames}, limit {limits.max_frames}")
    if index.times_s[-1] > limits.max_duration_s:
        raise Reject("too_long", f"{index.times_s[-1]:.1f} s, limit {limits.max_duration_s:g}")
    return index


def _index(path: str, container: InputContainer, stream: VideoStream, packets: _Packets) -> VideoIndex:
    context, seekable = stream.codec_context, container.format.name in _SEEKABLE
    if not any(packets.shown):
        raise Reject("no_frames", f"{len(packets.pts)} packets, none of which is displayed")
    if seekable and packets.last_is_cut:
        raise Reject("truncated", f"the last of {len(packets.pts)} packets is cut")
    sequential = _why_sequential(container.format.name, codec_of(stream), bool(context.has_b_frames), packets)
    shown = np.flatnonzero(packets.shown)
    stamps = [packets.pts[place] for place in shown]
    base = Fraction(stream.time_base or 1)
    if None in stamps:
        rate = float(stream.average_rate or 25)
        places, times_s, start_s = shown, np.arange(len(shown) + 1) / rate, 0.0
    else:
        pts = np.asarray(stamps, dtype=np.int64)
        order = np.argsort(pts, kind="stable")
        places, pts = shown[order], pts[order]
        step = packets.last_duration or (int(pts[-1] - pts[0]) / max(1, len(pts) - 1)) or float(1 / (25 * base))
        times_s = (np.append(pts, pts[-1] + step) - pts[0]).astype(np.float64) * float(base)
        start_s = float(pts[0] * base)
    complete = None not in packets.pts
    keys = tuple(KeyFrame(place, packets.pts[place] or 0) for place in packets.keys)
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
        packet_pts=np.asarray(packets.pts if complete else [], dtype=np.int64),
        spare=packets.spare,
        places=places.astype(np.int64),
        times_s=times_s,
        start_s=start_s,
        keys=keys,
        sequential=sequential,
        size_bytes=os.path.getsize(path),
    )


def _why_sequential(container: str, codec: str, has_b_frames: bool, packets: _Packets) -> str:
    """Why seeking by packets cannot be relied on; "" if it can."""
    if container not in _SEEKABLE:
        return f"container {container}"
    if codec not in _FORETOLD:
        return f"codec {codec}"
    if packets.odd:
        return packets.odd
    if None in packets.pts or len(set(packets.pts)) < len(packets.pts):
        return "time stamps are missing or repeated"
    if packets.pts == packets.dts and has_b_frames:
        return "time stamps do not determine the display order"
    if not packets.keys or packets.keys[0] != 0:
        return "no key frame at the start"
    first = packets.pts[0] or 0
    if any((pts or 0) < first for pts in packets.pts):
        return "frames are displayed before the first key frame"
    return ""


def _rate(stream: VideoStream, times_s: np.ndarray) -> float:
    """Frames a second: what the header says where the time stamps bear it out, or else what they say."""
    measured = (len(times_s) - 1) / float(times_s[-1]) if times_s[-1] > 0 else 25.0
    stated = float(stream.average_rate or 0)
    return stated if abs(stated - measured) <= 0.02 * measured else measured
