"""Sample tables of MP4 files: positions and times of all packets without reading the packets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import attrgetter
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from av.index import IndexEntry
    from av.video.stream import VideoStream

_MAX_BYTES = 256 << 20
"""Maximum size of the box ``moov``; a million packets take some 20 MB."""
_MAX_OFFSET = 1 << 28
"""Maximum composition offset in ticks; FFmpeg treats larger ones as damage and ignores them."""


class SampleTables(NamedTuple):
    """The packets of a stream, int64 or bool (packets,), in file order; time stamps in ticks of the stream.

    Attributes:
        begin: offset of each packet in the file, in bytes; ``size`` is in bytes, too.
        dts: decoding time stamp of each packet.
        delay: time from decoding to display, up to a constant.
        key: whether the file marks the packet as key frame; ``shown``: whether the edit list keeps it.
        last_duration: duration of the last packet.
    """

    begin: np.ndarray
    size: np.ndarray
    dts: np.ndarray
    delay: np.ndarray
    key: np.ndarray
    shown: np.ndarray
    last_duration: int


def read_samples(path: str, stream: VideoStream) -> SampleTables | None:
    """The packets of a newly opened stream. None if FFmpeg's index, which applies edit lists, does not match the packets of the
    tables one by one, or if packets are in fragments, encrypted or not in the file."""
    entries = stream.index_entries[:]
    if not entries:
        return None
    begin, size, dts = (_column(entries, name, np.int64) for name in ("pos", "size", "timestamp"))
    key, discard = (_column(entries, name, np.bool_) for name in ("is_keyframe", "is_discard"))
    if size.min() <= 0 or (begin + size).max() > os.path.getsize(path):
        return None
    with open(path, "rb") as file:
        for stbl in _tables(_moov(file)):
            described, count = stbl.get(b"stsd", b""), len(size)
            if described[4:8] != b"\0\0\0\1" or described[12:16] == b"encv" or not _are(size, stbl.get(b"stsz", b"")):
                continue
            delay = _each(stbl[b"ctts"], count) if b"ctts" in stbl else np.zeros(count, dtype=np.int64)
            durations = _each(stbl.get(b"stts", b""), count)
            if delay is not None and durations is not None and np.abs(delay).max() < _MAX_OFFSET:
                return SampleTables(begin, size, dts, delay, key, ~discard, int(durations[-1]))
    return None


def _column(entries: list[IndexEntry], name: str, kind: type[np.generic]) -> np.ndarray:
    return np.fromiter(map(attrgetter(name), entries), kind, len(entries))


TO_THE_END = 8, 0
"""Result of ``box_sizes`` for a box that extends to the end of its parent."""


def box_sizes(head: bytes | memoryview) -> tuple[int, int]:
    """Sizes of the header of a box and of the whole box, in bytes, from its first 16 bytes (ISO/IEC 14496-12, 4.2).

    >>> box_sizes(bytes.fromhex("00000018 66747970"))
    (8, 24)
    """
    length = int.from_bytes(head[:4])
    return (16, int.from_bytes(head[8:16])) if length == 1 else (8, length)


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    at = 0
    while at + 8 <= len(data):
        header, length = box_sizes(data[at : at + 16])
        length = length or len(data) - at
        if length < header:
            return
        yield bytes(data[at + 4 : at + 8]), data[at + header : at + length]
        at += length


def _moov(file: IO[bytes]) -> memoryview:
    """The contents of the box ``moov``; empty if there is not exactly one, or it is too large."""
    found, at, end = memoryview(b""), 0, os.fstat(file.fileno()).st_size
    while len(head := file.read(16)) >= 8:
        header, length = box_sizes(head)
        if length < 8:
            break  # extends to the end of the file, or damaged
        if head[4:8] == b"moov":
            if found or length > _MAX_BYTES:
                return memoryview(b"")
            file.seek(at + header)
            found = memoryview(file.read(length - header))
        at = min(at + length, end)  # some file systems refuse a far larger one
        file.seek(at)
    return found


def _tables(moov: memoryview) -> Iterator[dict[bytes, memoryview]]:
    """Yield the boxes of the ``stbl`` of each track; none if the file may have fragments."""
    boxes = list(_boxes(moov))
    for name, inside in boxes if all(name != b"mvex" for name, _ in boxes) else ():
        for wanted in (b"mdia", b"minf", b"stbl") if name == b"trak" else ():
            inside = dict(_boxes(inside)).get(wanted, memoryview(b""))
        if name == b"trak":
            yield dict(_boxes(inside))


def _are(sizes: np.ndarray, stsz: memoryview | bytes) -> bool:
    """Whether the sizes equal those of the table ``stsz``."""
    equal, count = (int.from_bytes(stsz[at : at + 4]) for at in (4, 8))
    if count != len(sizes) or equal:
        return count == len(sizes) and bool((sizes == equal).all())
    return len(stsz) >= 12 + 4 * count and bool((np.frombuffer(stsz, ">u4", count, 12) == sizes).all())


def _each(table: memoryview | bytes, count: int) -> np.ndarray | None:
    """Expand a table of (repetitions, value) pairs to int64 (count,); None if it does not have ``count`` values."""
    pairs = np.frombuffer(table[8 : len(table) // 8 * 8], ">i4").reshape(-1, 2)[: int.from_bytes(table[4:8])].astype(np.int64)
    fits = len(pairs) and pairs[:, 0].min() >= 0 and pairs[:, 0].sum() == count
    return np.repeat(pairs[:, 1], pairs[:, 0]) if fits else None
