"""Reads the packets of a stream without decoding: their times, where decoding may begin, and whether pictures are missing."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..rows import Reject
from .avc import AvcReader
from .hevc import CRA, TAIL, HevcReader
from .limits import CpuBudget
from .nal import HEAD, NalError
from .opening import check_machine, open_video
from .tables import SampleTables, read_samples

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.video.stream import VideoStream

MP4 = "mov,mp4,m4a,3gp,3g2,mj2"
FORETOLD = {"h264", "hevc", "vp9", "av1"}
"""Codecs whose packets, in these containers, each hold one frame with its time stamp."""

NO_TIME = -1 << 63
"""A missing time stamp, as in FFmpeg (AV_NOPTS_VALUE)."""


class Packets(NamedTuple):
    """The packets of a stream, as columns.

    Attributes:
        pts: time stamps, ``NO_TIME`` where they are missing, int64 (packets,); so are those of decoding, ``dts``.
        shown: whether they are displayed, bool (packets,): not if an edit list or, of HEVC, the decoder leaves them out.
        keys: indices of those at which decoding may begin, int64 (keys,).
        odd: why they are not reliable, by their contents; "" if they are.
        gaps: indices of those before which others are missing that they need, int64 (gaps,).
        resets: of each gap, the index of the packet that explains it if it sets the numbers of H.264 back to 0, or -1.
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
    resets: np.ndarray
    last_duration: int
    last_is_cut: bool


def by_demuxing(packets: Iterable[Packet[VideoStream]], stream: VideoStream, budget: CpuBudget) -> Packets:
    """The packets of a stream, read one after another.

    Raises:
        Reject: ``truncated``, ``too_many_frames`` or ``encrypted``.
    """
    from av.error import FFmpegError

    pts, dts, shown, looks = list[int | None](), list[int | None](), list[bool](), _Looks(stream)
    last: Packet[VideoStream] | None = None
    try:
        for packet in packets:
            if len(pts) % 256 == 0:
                budget.left_s()
                _check(packet, len(pts), budget)
            looks.look(packet.is_keyframe, packet)
            pts.append(packet.pts)
            dts.append(packet.dts)
            shown.append(not packet.is_discard)
            last = packet
    except FFmpegError as error:
        check_machine(error)
        raise Reject("truncated", f"after {len(pts)} packets: {error.strerror}") from None
    duration, is_cut = (last.duration or 0, last.is_corrupt) if last else (0, False)
    return looks.packets(_stamps(pts), _stamps(dts), np.array(shown, dtype=bool), duration, last_is_cut=is_cut)


def demuxed(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """The packets of a stream, without empty ones, which would drain a decoder: PyAV adds one, and files may have some.

    PyAV numbers the streams of a container when it opens it. Of one that FFmpeg finds later, it reads beyond the end of a list:
    sometimes, and only when all packets have been given, it raises an error.
    """
    with contextlib.suppress(IndexError):
        yield from (packet for packet in container.demux(stream) if packet.size)


def _stamps(stamps: list[int | None]) -> np.ndarray:
    return np.array([NO_TIME if one is None else one for one in stamps], dtype=np.int64)


def _check(packet: Packet[VideoStream], number: int, budget: CpuBudget) -> None:
    if number >= budget.limits.max_frames:
        raise Reject("too_many_frames", f"more than {budget.limits.max_frames}")
    if packet.has_sidedata("encryption_info"):
        raise Reject("encrypted", "its packets are encrypted")


def by_tables(
    path: str, container: InputContainer, stream: VideoStream, seen: list[Packet[VideoStream]], budget: CpuBudget
) -> Packets | None:
    """The same from the tables of an MP4 file; None if they are insufficient. The one packet demuxed is added to ``seen``."""
    from av.error import FFmpegError

    tables = read_samples(path, stream) if container.format.name == MP4 and codec_of(stream) in FORETOLD else None
    if tables is None:
        return None
    with contextlib.suppress(FFmpegError):
        seen.extend(islice(demuxed(container, stream), 1))
    if not seen or seen[0].pts is None or (seen[0].dts, seen[0].size) != (tables.dts[0], tables.size[0]):
        return None
    _check(seen[0], len(tables.dts) - 1, budget)
    pts = tables.dts + tables.delay
    pts += seen[0].pts - pts[0]
    looks = _Looks(stream)
    with open(path, "rb") as file:
        looks.look_at_all(tables, file.fileno())
    return looks.packets(pts, tables.dts, tables.shown, tables.last_duration, last_is_cut=False)


_READERS = {"h264": AvcReader, "hevc": HevcReader}


class _Looks:
    """Reads the contents of packets, as far as the syntax of the codec is implemented: see ``avc.py`` and ``hevc.py``."""

    def __init__(self, stream: VideoStream) -> None:
        self._reader: AvcReader | HevcReader | None = None
        self._pictures: list[tuple[int, ...]] | np.ndarray = []
        """Of each packet, whether decoding may begin at it, and what else its reader tells."""
        self._behind_ends: list[int] = []
        """Of HEVC, indices of packets behind one that ends a sequence; of an MP4 file only those of type CRA."""
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
            data = memoryview(packet)
            picture = self._reader.picture(data, is_key) if self._reader else (is_key,)
            cast("list[tuple[int, ...]]", self._pictures).append(picture)
            if isinstance(self._reader, HevcReader) and self._reader.ends(bytes(data[-TAIL:])):
                self._behind_ends.append(len(self._pictures))
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
        if isinstance(self._reader, HevcReader):
            for place in np.flatnonzero(pictures[1:, 3] == CRA).tolist():
                tail = os.pread(file, TAIL, max(0, int(tables.begin[place] + tables.size[place]) - TAIL))
                self._behind_ends += [place + 1] * self._reader.ends(tail)
        self._pictures = pictures

    def packets(self, pts: np.ndarray, dts: np.ndarray, shown: np.ndarray, last_duration: int, *, last_is_cut: bool) -> Packets:
        """The packets, of which all have been read; the arguments are columns of ``Packets``, but for pictures left out."""
        odd, pictures = self._odd, self._pictures
        spare, gaps = np.zeros(len(pts), dtype=bool), np.zeros(0, dtype=np.int64)
        resets = gaps
        if not len(pictures):
            return Packets(pts, dts, shown, gaps, odd, spare, gaps, resets, last_duration, last_is_cut)
        if not isinstance(pictures, np.ndarray):
            pictures = np.fromiter(chain.from_iterable(pictures), np.int64).reshape(len(pictures), -1)
        if isinstance(self._reader, AvcReader) and not odd:
            gaps, resets, complete = self._reader.gaps(pictures)
            odd = "" if complete else "numbers of pictures do not tell whether some are missing"
        if isinstance(self._reader, HevcReader) and not odd:
            behind = [place for place in self._behind_ends if place < len(pictures) and pictures[place, 3] == CRA]
            pictures[behind, 6] = True
            gaps, left_out, drops = self._reader.gaps(pictures)
            odd = "pictures may be dropped where a sequence begins" if drops else ""
            resets, spare, shown = np.full(len(gaps), -1), spare_pictures(pictures), shown & ~left_out
        return Packets(pts, dts, shown, np.flatnonzero(pictures[:, 0]), odd, spare, gaps, resets, last_duration, last_is_cut)


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
        pictures: attributes of ``HevcPicture``, int64 (pictures, 8).

    >>> spare_pictures(np.array([[1, 0, 0, 20, 0, 0, 0, 0], [0, 0, 1, 0, 2, 1, 0, 0], [0, 1, 1, 0, 1, 2, 0, 0]]))
    array([False, False,  True])
    """
    _, layers, spare, *_ = pictures.T
    return (spare > 0) & (layers == layers.max())


def codec_of(stream: VideoStream) -> str:
    """FFmpeg's name of the codec, which can differ from that of the decoder: AV1 is decoded by ``libdav1d``."""
    return stream.codec_context.codec.canonical_name


def first_gap(path: str, stream: int, packets: Packets, budget: CpuBudget) -> int | None:
    """Index of the first packet before which others are missing, or None.

    Reads the file again, up to there, if pictures of H.264 may have set their numbers back.
    """
    gap_behind = dict(zip(packets.resets[::-1].tolist(), packets.gaps[::-1].tolist(), strict=True))
    unexplained = gap_behind.pop(-1, None)
    places = sorted(place for place, gap in gap_behind.items() if unexplained is None or gap < unexplained)
    place = _first_that_counts_on(path, stream, places, budget)
    return unexplained if place is None else gap_behind[place]


def _first_that_counts_on(path: str, choice: int, places: list[int], budget: CpuBudget) -> int | None:
    """The first of the packets whose picture does not set the numbers of H.264 back to 0 (7.4.3.3), as IDR pictures do."""
    from av import logging
    from av.bitstream import BitStreamFilterContext

    if not places:
        return None
    level, asked = logging.get_level(), set(places)
    logging.set_level(logging.INFO)
    try:
        with open_video(path, budget, choice) as (container, stream), logging.Capture() as log:
            fields = BitStreamFilterContext("trace_headers", stream)
            for place, packet in enumerate(islice(demuxed(container, stream), places[-1] + 1)):
                if place not in asked:
                    continue
                budget.left_s()
                log.clear()
                fields.filter(packet)
                if not any(re.match(r".*memory_management_control_operation\S* .*= 5\s*$", text) for _, _, text in log):
                    return place
    finally:
        logging.set_level(level)
    return None
