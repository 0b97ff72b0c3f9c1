"""Index of a video file, built from its packets without decoding: frames, their times, and where decoding may begin.

Frame counts in headers are not trusted: packets are counted. The reference is a sequential decode of the whole file; if the
packets do not predict its frames reliably, ``VideoIndex.sequential`` says why, and no seeking is done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from ..child_processes import memory_is_short
from ..rows import MachineFault, Reject
from .avc import AvcReader
from .hevc import HevcReader
from .limits import CONTAINERS, CpuBudget
from .nal import HEAD, NalError
from .tables import TO_THE_END, SampleTables, box_sizes, read_samples

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.error import FFmpegError
    from av.video.stream import VideoStream

_MP4 = "mov,mp4,m4a,3gp,3g2,mj2"
_SEEKABLE = {_MP4, "matroska,webm"}
_FORETOLD = {"h264", "hevc", "vp9", "av1"}
"""Codecs whose packets, in these containers, each hold one frame with its time stamp."""

EXACT = "+bitexact"
"""Flag of decoders: without it frames of MPEG-4 and related codecs depend on the processor and FFmpeg's version."""

StreamChoice = Literal["best"] | int
"""Stream of a file that is used as the video: ``best``, the one that the ffmpeg command selects by default, or a number from 0
over all streams of the file, as printed by ffprobe."""

_ATTACHED = 0x400 | 0x800
"""Dispositions of still pictures: covers and thumbnails."""

_DEFAULT = 0x1
_PIXELS_OF_DEFAULT = 5_000_000
"""Number of pixels that the ffmpeg command adds to a stream that is marked as default when it ranks streams by size."""

_OF_THE_MACHINE = {errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT, errno.ENOSPC}
"""Errors of the system, which FFmpeg passes on; its demuxers and decoders never raise them themselves."""

_NO_TIME = -1 << 63
"""A missing time stamp, as in FFmpeg (AV_NOPTS_VALUE)."""


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


_left_open: WeakKeyDictionary[CpuBudget, InputContainer] = WeakKeyDictionary()
"""Budget of the work on a file -> the container that ``read_index`` opened, in which FFmpeg may have decoded a frame."""


@contextlib.contextmanager
def open_video(
    path: str, budget: CpuBudget, choice: StreamChoice, *, to_seek: bool = False
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its video stream, with one decoder thread.

    Args:
        path: path of the file.
        budget: processor time for the work on the file.
        choice: stream to use.
        to_seek: whether the caller seeks first, so that the container opened by ``read_index`` can be reused.

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
    """The video streams, without still pictures, in the order in which the ffmpeg command prefers them: by pixels, with a
    bonus for streams marked as default, then by number."""

    def worth(stream: VideoStream) -> int:
        context = stream.codec_context
        pixels = context.width * context.height if context is not None else 0
        return pixels + _PIXELS_OF_DEFAULT * bool(int(stream.disposition) & _DEFAULT)

    moving = [stream for stream in container.streams.video if not int(stream.disposition) & _ATTACHED]
    return sorted(moving, key=worth, reverse=True)  # stable: keeps the order of equals


def _check_machine(error: FFmpegError) -> None:
    """Raise ``MachineFault`` if the error says nothing about the file."""
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
    """Whether the top-level boxes of an MP4 file, including ``moov``, fill the file."""
    size, at, names = os.path.getsize(path), 0, set[bytes]()
    with open(path, "rb") as stream:
        while at < size:
            stream.seek(at)
            head = stream.read(16)
            header, length = box_sizes(head)
            length = size - at if (header, length) == TO_THE_END else length
            names.add(head[4:8])
            if length < 8:
                return True  # damaged rather than truncated
            at += length
    return at == size and b"moov" in names


class _Packets(NamedTuple):
    """The packets of a stream, as columns.

    Attributes:
        pts: time stamps, ``_NO_TIME`` where they are missing, int64 (packets,); so are those of decoding, ``dts``.
        shown: whether they are displayed, bool (packets,).
        keys: indices of those at which decoding may begin, int64 (keys,).
        odd: why they are not reliable, by their contents; "" if they are.
        gaps: indices of those before which others are missing that they need, int64 (gaps,).
        before_gaps: of H.264, indices of the last reference pictures before these, int64 (gaps,); otherwise empty.
        spare: as of ``VideoIndex``.
        last_duration: duration of the last packet; ``last_is_cut``: whether it is cut.
    """

    pts: np.ndarray
    dts: np.ndarray
    shown: np.ndarray
    keys: np.ndarray
    odd: str
    spare: np.ndarray
    gaps: np.ndarray
    before_gaps: np.ndarray
    last_duration: int
    last_is_cut: bool = False


def _by_demuxing(packets: Iterable[Packet[VideoStream]], stream: VideoStream, budget: CpuBudget) -> _Packets:
    from av.error import FFmpegError

    pts, dts, shown, looks = list[int | None](), list[int | None](), list[bool](), _Looks(stream)
    last: Packet[VideoStream] | None = None
    try:
        for packet in packets:
            if not packet.size:
                continue
            if len(pts) % 256 == 0:
                budget.left_s()
                _check(packet, len(pts), budget)
            looks.look(packet.is_keyframe, packet)
            pts.append(packet.pts)
            dts.append(packet.dts)
            shown.append(not packet.is_discard)
            last = packet
    except FFmpegError as error:
        _check_machine(error)
        raise Reject("truncated", f"after {len(pts)} packets: {error.strerror}") from None
    duration, is_cut = (last.duration or 0, last.is_corrupt) if last else (0, False)
    return _Packets(_stamps(pts), _stamps(dts), np.array(shown, dtype=bool), *looks.found(len(pts)), duration, is_cut)


def _demuxed(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    try:
        yield from container.demux(stream)
    except IndexError:  # PyAV has no place for a stream that FFmpeg finds later
        message = "a stream begins after the first seconds: ffmpeg -i FILE -map 0:v:0 -c copy OUT.mkv makes a file without it"
        raise Reject("late_stream", message) from None


def _stamps(stamps: list[int | None]) -> np.ndarray:
    return np.array([_NO_TIME if one is None else one for one in stamps], dtype=np.int64)


def _check(packet: Packet[VideoStream], number: int, budget: CpuBudget) -> None:
    if number >= budget.limits.max_frames:
        raise Reject("too_many_frames", f"more than {budget.limits.max_frames}")
    if packet.has_sidedata("encryption_info"):
        raise Reject("encrypted", "its packets are encrypted")


def _by_tables(
    path: str, container: InputContainer, stream: VideoStream, seen: list[Packet[VideoStream]], budget: CpuBudget
) -> _Packets | None:
    """The same from the tables of an MP4 file; None if they are insufficient. The one packet demuxed is added to ``seen``."""
    from av.error import FFmpegError

    tables = read_samples(path, stream) if container.format.name == _MP4 and codec_of(stream) in _FORETOLD else None
    if tables is None:
        return None
    with contextlib.suppress(FFmpegError):
        seen.extend(islice(container.demux(stream), 1))
    if not seen or seen[0].pts is None or (seen[0].dts, seen[0].size) != (tables.dts[0], tables.size[0]):
        return None
    _check(seen[0], len(tables.dts) - 1, budget)
    pts = tables.dts + tables.delay
    pts += seen[0].pts - pts[0]
    looks = _Looks(stream)
    with open(path, "rb") as file:
        looks.look_at_all(tables, file.fileno())
    return _Packets(pts, tables.dts, tables.shown, *looks.found(len(pts)), tables.last_duration)


_READERS = {"h264": AvcReader, "hevc": HevcReader}


class _Looks:
    """Reads the contents of packets, as far as the syntax of the codec is implemented: see ``avc.py`` and ``hevc.py``."""

    def __init__(self, stream: VideoStream) -> None:
        self._reader: AvcReader | HevcReader | None = None
        self._pictures: list[tuple[int, ...]] | np.ndarray = []
        """Of each packet, whether decoding may begin at it, and what else its reader tells."""
        self._odd = ""
        reader = _READERS.get(codec_of(stream))
        try:
            self._reader = reader and reader(bytes(stream.codec_context.extradata or b""))
        except NalError as error:
            self._odd = f"extradata: {error}"

    def look(self, is_key: bool, packet: Packet[VideoStream]) -> None:
        """Read the next packet; ``is_key``: whether the file marks it as key frame. All packets must be read in order."""
        if self._odd:
            return
        try:
            picture = self._reader.picture(memoryview(packet), is_key) if self._reader else (is_key,)
            cast("list[tuple[int, ...]]", self._pictures).append(picture)
        except NalError as error:
            self._odd = f"packets: {error}"

    def look_at_all(self, tables: SampleTables, file: int) -> None:
        """Read all packets of a file, by its descriptor."""
        if self._reader is None:
            self._pictures = tables.key[:, None]
            return
        pictures, skips = _first_pictures(self._reader, file, tables.begin, tables.size, tables.key)
        place = len(pictures)
        try:
            for place in np.flatnonzero(skips).tolist():
                packet = os.pread(file, int(tables.size[place]), int(tables.begin[place]))
                pictures[place] = self._reader.picture(memoryview(packet), bool(tables.key[place]))
        except NalError as error:
            self._odd, pictures = f"packets: {error}", pictures[:place]
        self._pictures = pictures

    def found(self, count: int) -> tuple[np.ndarray, str, np.ndarray, np.ndarray, np.ndarray]:
        """``keys``, ``odd``, ``spare``, ``gaps`` and ``before_gaps`` of ``_Packets``, of ``count`` packets."""
        odd, spare, pictures = self._odd, np.zeros(count, dtype=bool), self._pictures
        gaps = before = np.zeros(0, dtype=np.int64)
        if not len(pictures):
            return gaps, odd, spare, gaps, before
        if not isinstance(pictures, np.ndarray):
            pictures = np.fromiter(chain.from_iterable(pictures), np.int64).reshape(len(pictures), -1)
        if isinstance(self._reader, AvcReader) and not odd:
            gaps, before, complete = self._reader.gaps(pictures)
            odd = "" if complete else "numbers of pictures do not tell whether some are missing"
        if isinstance(self._reader, HevcReader) and not odd:
            gaps, spare = self._reader.gaps(pictures), spare_pictures(pictures)
        return np.flatnonzero(pictures[:, 0]), odd, spare, gaps, before


def _first_pictures(
    reader: AvcReader | HevcReader, file: int, begins: np.ndarray, sizes: np.ndarray, keys: np.ndarray, tries: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """``reader.pictures`` of the packets of a file, behind up to ``tries`` units that tell nothing."""
    heads = b"".join([os.pread(file, HEAD, begin).ljust(HEAD) for begin in begins.tolist()])
    pictures, skips = reader.pictures(np.frombuffer(heads, np.uint8).reshape(-1, HEAD), sizes, keys)
    rows = np.flatnonzero(skips > 0)
    if tries and len(rows):
        over = skips[rows]
        found = _first_pictures(reader, file, begins[rows] + over, sizes[rows] - over, keys[rows], tries - 1)
        pictures[rows], skips[rows] = found
    return pictures, skips


def spare_pictures(pictures: np.ndarray) -> np.ndarray:
    """Mask of the pictures from which no other is predicted, bool (pictures,): those of the highest temporal layer that no
    picture of their layer needs. In lower layers, a picture may be needed by a higher layer (H.265, 7.4.2.2).

    Args:
        pictures: attributes of ``HevcPicture``, int64 (pictures, 6).

    >>> spare_pictures(np.array([[1, 0, 0, 20, 0, 0], [0, 0, 1, 0, 2, 1], [0, 1, 1, 0, 1, 2]]))
    array([False, False,  True])
    """
    _, layers, spare, *_ = pictures.T
    return (spare > 0) & (layers == layers.max())


def codec_of(stream: VideoStream) -> str:
    """FFmpeg's name of the codec, which can differ from that of the decoder: AV1 is decoded by ``libdav1d``."""
    return stream.codec_context.codec.canonical_name


def read_index(path: str, *, budget: CpuBudget, stream: StreamChoice = "best") -> VideoIndex:
    """Build the index of a file from all packets of its video. If the best stream shows no frame, the next best one is used.

    Raises:
        Reject: as ``open_video``; also ``no_frames``, ``truncated``, ``missing_pictures``, ``late_stream``, ``encrypted``,
            ``unsupported_pixels``, ``too_long`` or ``too_many_frames``.
    """
    if os.path.getsize(path) == 0:
        raise Reject("empty_file", "0 bytes")
    choices: list[StreamChoice] = [stream]
    while True:
        with open_video(path, budget, choices[0]) as (container, video):
            choices = [one.index for one in _ranked(container)] if choices == ["best"] else choices
            seen: list[Packet[VideoStream]] = []
            packets = _by_tables(path, container, video, seen, budget)
            packets = packets or _by_demuxing(chain(seen, _demuxed(container, video)), video, budget)
            if packets.shown.any() or len(choices) == 1:
                index = _index(path, container, video, packets, budget)
                _left_open[budget] = container
                break
        choices = choices[1:]
    limits = budget.limits
    if index.n_frames > limits.max_frames:
        raise Reject("too_many_frames", f"{index.n_frames}, limit {limits.max_frames}")
    if index.times_s[-1] > limits.max_duration_s:
        raise Reject("too_long", f"{index.times_s[-1]:.1f} s, limit {limits.max_duration_s:g}")
    return index


def _sets_back(path: str, budget: CpuBudget, choice: StreamChoice, place: int) -> bool:
    """Whether the picture of a packet sets the numbers of H.264 back to 0 (7.4.3.3), as otherwise only IDR pictures do."""
    from av import logging
    from av.bitstream import BitStreamFilterContext

    level = logging.get_level()
    logging.set_level(logging.INFO)
    try:
        with open_video(path, budget, choice) as (container, stream), logging.Capture() as log:
            fields = BitStreamFilterContext("trace_headers", stream)
            for packet in islice(container.demux(stream), place, place + 1):
                fields.filter(packet)
    finally:
        logging.set_level(level)
    return any(re.match(r".*memory_management_control_operation\S* .*= 5\s*$", text) for _, _, text in log)


def _index(path: str, container: InputContainer, stream: VideoStream, packets: _Packets, budget: CpuBudget) -> VideoIndex:
    context, seekable = stream.codec_context, container.format.name in _SEEKABLE
    if not packets.shown.any():
        raise Reject("no_frames", f"{len(packets.pts)} packets, none of which is displayed")
    if seekable and packets.last_is_cut:
        raise Reject("truncated", f"the last of {len(packets.pts)} packets is cut")
    if len(packets.gaps) and not (len(packets.before_gaps) and _sets_back(path, budget, stream.index, packets.before_gaps[0])):
        raise Reject(
            "missing_pictures",
            f"packet {packets.gaps[0]} of {len(packets.pts)} needs pictures before it that are not in the file: "
            "copy the file from its source again",
        )
    sequential = _why_sequential(container.format.name, codec_of(stream), bool(context.has_b_frames), packets)
    shown = np.flatnonzero(packets.shown)
    pts = packets.pts[shown]
    base = Fraction(stream.time_base or 1)
    if _NO_TIME in pts:
        rate = float(stream.average_rate or 25)
        places, times_s, start_s = shown, np.arange(len(shown) + 1) / rate, 0.0
    else:
        order = np.argsort(pts, kind="stable")
        places, pts = shown[order], pts[order]
        step = packets.last_duration or (int(pts[-1] - pts[0]) / max(1, len(pts) - 1)) or float(1 / (25 * base))
        times_s = (np.append(pts, pts[-1] + step) - pts[0]).astype(np.float64) * float(base)
        start_s = float(pts[0] * base)
    missing = packets.pts == _NO_TIME
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


def _why_sequential(container: str, codec: str, has_b_frames: bool, packets: _Packets) -> str:
    """Why seeking by packets is not reliable; "" if it is."""
    if container not in _SEEKABLE:
        return f"container {container}"
    if codec not in _FORETOLD:
        return f"codec {codec}"
    if packets.odd:
        return packets.odd
    if _NO_TIME in packets.pts or not np.diff(np.sort(packets.pts)).all():
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
