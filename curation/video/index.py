"""What a video file holds, told from its packets without decoding them: frames, their times, and where decoding may begin.

Headers are not believed: packets are counted. The definition of a video's frames is what a sequential decode of the whole file
gives; where the packets do not foretell that for certain, ``VideoIndex.sequential`` says why, and no seeking is done.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from ..child_processes import memory_is_short
from ..rows import MachineFault, Reject
from .limits import CONTAINERS, CpuBudget
from .nal import HEAD, AvcPicture, AvcReader, HevcPicture, NalError, hevc_picture
from .tables import TO_THE_END, SampleTables, box_sizes, read_samples

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.error import FFmpegError
    from av.video.stream import VideoStream

_MP4 = "mov,mp4,m4a,3gp,3g2,mj2"
_SEEKABLE = {_MP4, "matroska,webm"}
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


_left_open: WeakKeyDictionary[CpuBudget, InputContainer] = WeakKeyDictionary()
"""By the budget of the work on it: the file that ``read_index`` has opened, for which FFmpeg may have decoded a frame."""


@contextlib.contextmanager
def open_video(
    path: str, budget: CpuBudget, choice: StreamChoice, *, to_seek: bool = False
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The file and its stream of moving pictures, with one decoder thread.

    Args:
        path: of the file.
        budget: for the work on it.
        choice: of the stream.
        to_seek: whether it need not stand at its begin: then it may be the one that ``read_index`` opened.

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
    name, container = f"file:{path}", _left_open.pop(budget, None)
    try:
        with contextlib.ExitStack() as closing:
            if container is None or not to_seek or container.name != name:
                container = av.open(name, options=options, container_options=allowed, metadata_errors="replace")
            closing.push(lambda *_: None if _left_open.get(budget) is container else container.close())
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
            header, length = box_sizes(head)
            length = size - at if (header, length) == TO_THE_END else length
            names.add(head[4:8])
            if length < 8:
                return True  # damaged, rather than cut
            at += length
    return at == size and b"moov" in names


@dataclass
class _Packets:
    """The packets of a stream, as columns.

    Attributes:
        odd: why they are not to be relied on, from their contents.
    """

    pts: list[int | None] = field(default_factory=list)
    dts: list[int | None] = field(default_factory=list)
    shown: list[bool] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    last_duration: int = 0
    last_is_cut: bool = False
    odd: str = ""
    spare: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def look_into(self, looks: _Looks) -> None:
        """Take what was seen in the packets, all of which were shown."""
        self.keys, self.odd = looks.keys, looks.why_odd()
        fits = looks.hevc and not self.odd
        self.spare = spare_pictures(looks.hevc) if fits else np.zeros(len(self.pts), dtype=bool)


def _by_demuxing(packets: Iterable[Packet[VideoStream]], stream: VideoStream, budget: CpuBudget) -> _Packets:
    from av.error import FFmpegError

    found, looks = _Packets(), _Looks(stream)
    try:
        for packet in packets:
            if not packet.size:
                continue
            if len(found.pts) % 256 == 0:
                budget.left_s()
                _check(packet, len(found.pts), budget)
            looks.look(len(found.pts), packet.is_keyframe, packet)
            found.pts.append(packet.pts)
            found.dts.append(packet.dts)
            found.shown.append(not packet.is_discard)
            found.last_is_cut = packet.is_corrupt
            found.last_duration = packet.duration or 0
    except FFmpegError as error:
        _check_machine(error)
        raise Reject("truncated", f"after {len(found.pts)} packets: {error.strerror}") from None
    found.look_into(looks)
    return found


def _check(packet: Packet[VideoStream], number: int, budget: CpuBudget) -> None:
    if number >= budget.limits.max_frames:
        raise Reject("too_many_frames", f"more than {budget.limits.max_frames}")
    if packet.has_sidedata("encryption_info"):
        raise Reject("encrypted", "its packets are encrypted")


def _by_tables(
    path: str, container: InputContainer, stream: VideoStream, seen: list[Packet[VideoStream]], budget: CpuBudget
) -> _Packets | None:
    """The same from an MP4 file's tables, or None where they do not tell all; what is demuxed, one packet, goes to ``seen``."""
    from av.error import FFmpegError

    told = read_samples(path, stream) if container.format.name == _MP4 and codec_of(stream) in _FORETOLD else None
    if told is None:
        return None
    with contextlib.suppress(FFmpegError):
        seen.extend(islice(container.demux(stream), 1))
    if not seen or seen[0].pts is None or (seen[0].dts, seen[0].size) != (told.dts[0], told.size[0]):
        return None
    _check(seen[0], len(told.dts) - 1, budget)
    pts = told.dts + told.delay
    pts += seen[0].pts - pts[0]
    found = _Packets(pts.tolist(), told.dts.tolist(), told.shown.tolist(), last_duration=told.last_duration)
    looks = _Looks(stream)
    with open(path, "rb") as file:
        looks.look_at_all(told, lambda begin, size: os.pread(file.fileno(), size, begin))
    found.look_into(looks)
    return found


class _Looks:
    """Looks into packets, for as much as the codec's syntax is known here: see ``nal.py``."""

    def __init__(self, stream: VideoStream) -> None:
        self._codec = codec_of(stream)
        self._extradata = bytes(stream.codec_context.extradata or b"")
        self._avc: AvcReader | None = None
        self._odd = ""
        self._pictures: list[AvcPicture] | np.ndarray = []
        self.hevc: list[HevcPicture] = []
        self.keys: list[int] = []
        """Places of packets at which decoding may begin."""
        if self._codec == "h264":
            try:
                self._avc = AvcReader(self._extradata)
            except NalError as error:
                self._odd = f"extradata: {error}"

    def look(self, place: int, is_key: bool, packet: Packet[VideoStream] | bytes) -> None:
        """At the packet of a place; ``is_key``: whether the file calls it a key frame. All must be seen in order."""
        if self._odd:
            return
        try:
            starts = is_key
            if self._avc is not None:
                cast("list[AvcPicture]", self._pictures).append(self._avc.picture(memoryview(packet), is_key))
                starts = self._pictures[-1].starts
            elif self._codec == "hevc":
                self.hevc.append(hevc_picture(memoryview(packet), self._extradata))
                starts = is_key and self.hevc[-1].starts
            if starts:
                self.keys.append(place)
        except NalError as error:
            self._odd = f"packets: {error}"

    def look_at_all(self, told: SampleTables, read: Callable[[int, int], bytes]) -> None:
        """At all packets; ``read(begin, size)`` gives bytes of the file."""
        begins, sizes, keys = told.begin.tolist(), told.size.tolist(), told.key.tolist()
        if self._codec == "hevc":
            for place, (begin, size, is_key) in enumerate(zip(begins, sizes, keys, strict=True)):
                self.look(place, is_key, read(begin, size))
        elif self._avc is None:
            self.keys = np.flatnonzero(told.key).tolist()
        else:
            heads = b"".join(read(begin, HEAD).ljust(HEAD) for begin in begins)
            pictures, known = self._avc.pictures(np.frombuffer(heads, np.uint8).reshape(-1, HEAD), told.size)
            try:
                for place in np.flatnonzero(~known).tolist():
                    packet = read(begins[place], sizes[place])
                    pictures[place] = self._avc.picture(memoryview(packet), keys[place])
            except NalError as error:
                self._odd = f"packets: {error}"
            self._pictures, self.keys = pictures, np.flatnonzero(pictures[:, 0]).tolist()

    def why_odd(self) -> str:
        """Why the packets are not to be relied on, or ""."""
        if self._odd or self._avc is None or not len(self._pictures):
            return self._odd
        return "" if self._avc.complete(np.asarray(self._pictures)) else "pictures are missing"


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
            seen: list[Packet[VideoStream]] = []
            packets = _by_tables(path, container, video, seen, budget)
            packets = packets or _by_demuxing(chain(seen, container.demux(video)), video, budget)
            if any(packets.shown) or len(choices) == 1:
                index = _index(path, container, video, packets)
                _left_open[budget] = container
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
