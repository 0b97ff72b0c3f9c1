"""Partial parser of H.264 and HEVC that finds where decoding may begin and whether pictures are missing.

Reads packets in which each NAL unit follows its length, as in MP4 and Matroska (ITU-T H.264 7.3 and D.1.8,
H.265 7.3.1.2, ISO/IEC 14496-15).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_HIGH_PROFILES = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}
_HEAD = 48
"""Number of bytes of a unit that are read."""
_SLICE = 16
"""Number of bytes of an H.264 slice that are read for its picture number, which ends within the first 77 bits."""


HEAD = 24
"""Number of bytes of a packet that the readers' ``pictures`` needs."""
_LEADING_ZEROS = np.array([8 - each.bit_length() for each in range(256)], dtype=np.uint64)


class NalError(ValueError):
    """The bytes are not laid out as expected."""


class Bits:
    """Reader of bits."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data)
        self._left = 8 * len(data)

    def read(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise NalError("ended early")
        return self._value >> self._left & (1 << count) - 1

    def golomb(self) -> int:
        """Read an unsigned Exp-Golomb number."""
        rest = self._value & (1 << self._left) - 1
        zeros = self._left - rest.bit_length()
        return self.read(2 * zeros + 1) - 1


def _clean(unit: bytes) -> bytes:
    """Remove emulation prevention bytes."""
    return unit.replace(b"\0\0\3", b"\0\0")


def units(packet: memoryview, length_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the first byte and up to 47 further bytes of each NAL unit."""
    at, end = 0, len(packet)
    while at + length_bytes < end:
        begin = at + length_bytes
        head = bytes(packet[at : begin + _HEAD])
        size = int.from_bytes(head[:length_bytes])
        at = begin + size
        if not size or at > end:
            raise NalError(f"a unit of {size} bytes at {begin} of {end}")
        yield head[length_bytes], head[length_bytes + 1 : length_bytes + size]


def _first_units(heads: np.ndarray, length_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Length of the NAL unit at the start of each packet, and its first and second byte, int64 (packets,)."""
    wide = heads[:, : length_bytes + 2].astype(np.int64)
    length = np.zeros(len(heads), dtype=np.int64)
    for place in range(length_bytes):
        length = length << 8 | wide[:, place]
    return length, wide[:, length_bytes], wide[:, length_bytes + 1]


class AvcPicture(NamedTuple):
    """Properties of an H.264 picture, read from its first slice.

    Attributes:
        starts: whether decoding may begin at it: an IDR picture, or an exact recovery point without delay.
        instant: whether it is an IDR picture.
        number: ``frame_num``, which counts reference pictures.
        needed: whether other pictures may be predicted from it.
    """

    starts: bool
    instant: bool
    number: int
    needed: bool


class AvcReader:
    """Reads the pictures of H.264.

    Args:
        extradata: the decoder configuration record (``avcC``).

    Raises:
        NalError: the record is missing or unsupported.
    """

    def __init__(self, extradata: bytes) -> None:
        if len(extradata) < 8 or extradata[0] != 1:
            raise NalError("no avcC")
        self._length_bytes = (extradata[4] & 3) + 1
        at, bits = 6, set[int]()
        for _ in range(extradata[5] & 31):
            size = int.from_bytes(extradata[at : at + 2], "big")
            bits.add(_frame_num_bits(extradata[at + 3 : at + 2 + size]))
            at += 2 + size
        if len(bits) != 1:
            raise NalError(f"{len(bits)} different sequence parameter sets")
        self._frame_num_bits = bits.pop()

    def picture(self, packet: memoryview, is_key: bool) -> AvcPicture:
        """The picture of a packet; ``is_key``: whether the file marks it as key frame. Raises ``NalError`` if there is none."""
        exact = False
        for header, body in units(packet, self._length_bytes):
            kind = header & 31
            if kind == 6 and is_key:
                exact = exact or _recovers_at_once(body)
            elif kind in (1, 5):
                number = _frame_num(body, self._frame_num_bits)
                return AvcPicture(kind == 5 or exact, kind == 5, number, header & 0x60 != 0)
        raise NalError("no slice")

    def pictures(self, heads: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pictures of many packets at once, as far as their first unit tells.

        Args:
            heads: the first ``HEAD`` bytes of each packet, uint8 (packets, HEAD).
            sizes: size of each packet in bytes.
            keys: whether the file marks them as key frames, bool (packets,).

        Returns:
            The attributes of ``AvcPicture``, int64 (packets, 4); and, int64 (packets,), 0 where they are valid, the size of the
            first unit where ``picture`` would go on behind it, or -1 where ``picture`` is needed.
        """
        at = self._length_bytes
        length, header, _ = _first_units(heads, at)
        body = heads[:, at + 1 : at + 1 + _SLICE]
        escaped = (body[:, :-2] == 0) & (body[:, 1:-1] == 0) & (body[:, 2:] == 3)
        kind = header & 31
        instant, is_slice = kind == 5, (kind == 1) | (kind == 5)
        known = is_slice & ~escaped.any(axis=1) & (length > _SLICE) & (length <= sizes - at)
        value = np.ascontiguousarray(body[:, :8]).view(">u8")[:, 0].astype(np.uint64)
        for _ in range(3):  # as in ``_frame_num``; with at most 7 leading zeros each, all bits are in these 8 bytes
            zeros = _LEADING_ZEROS[value >> np.uint64(56)]
            known &= zeros < 8
            value <<= 2 * zeros + np.uint64(1)
        number = (value >> np.uint64(64 - self._frame_num_bits)).astype(np.int64)
        pictures = np.stack([instant, instant, number, header & 0x60 != 0], axis=1).astype(np.int64)
        ignored = ~is_slice & ~(keys & (kind == 6)) & (length > 0) & (length < sizes - at)
        return pictures, np.select([known, ignored], [0, at + length], -1)

    def complete(self, pictures: np.ndarray) -> bool:
        """Whether no picture is missing, by the numbers of reference pictures.

        Args:
            pictures: attributes of ``AvcPicture`` of all pictures of a file, in file order, int64 (pictures, 4).
        """
        _, instant, number, needed = pictures.T
        places = np.maximum.accumulate(np.where(needed, np.arange(len(number)), -1))
        before = np.append(-1, places[:-1])
        follows = (before >= 0) & (number == (number[before] + 1) % (1 << self._frame_num_bits))
        return bool(np.where(instant, number == 0, follows).all())


def _frame_num(slice_: bytes, count: int) -> int:
    """Read ``frame_num``, of ``count`` bits, of a slice. Does not use ``Bits``, since it is called for many packets."""
    clean = _clean(slice_[:_SLICE])
    value, left = int.from_bytes(clean), 8 * len(clean)
    for _ in range(3):  # Exp-Golomb numbers: first macroblock, slice type, picture parameter set
        left -= 2 * (left - value.bit_length()) + 1
        if left < count:
            raise NalError("ended early")
        value &= (1 << left) - 1
    return value >> left - count


def _frame_num_bits(sps: bytes) -> int:
    bits = Bits(_clean(sps))
    profile = bits.read(8)
    bits.read(16)
    bits.golomb()
    if profile in _HIGH_PROFILES:
        if bits.golomb() == 3:
            bits.read(1)
        bits.golomb()
        bits.golomb()
        bits.read(1)
        if bits.read(1):
            raise NalError("scaling matrices")
    return bits.golomb() + 4


def _recovers_at_once(sei: bytes) -> bool:
    at = 0
    while at + 2 < len(sei):
        kind = size = 0
        while sei[at] == 255 and at + 1 < len(sei):
            kind, at = kind + 255, at + 1
        kind, at = kind + sei[at], at + 1
        while at + 1 < len(sei) and sei[at] == 255:
            size, at = size + 255, at + 1
        size, at = size + sei[at], at + 1
        if kind == 6 and at < len(sei):
            bits = Bits(_clean(sei[at : at + size]))
            return bits.golomb() == 0 and bits.read(1) == 1
        at += size
    return False


class HevcPicture(NamedTuple):
    """Properties of an HEVC picture, read from the header of its first slice.

    Attributes:
        starts: whether decoding may begin at it: a random access point that the file marks as key frame.
        layer: temporal layer, from 0.
        spare: whether no other picture of its layer is predicted from it.
    """

    starts: bool
    layer: int
    spare: bool


class HevcReader:
    """Reads the pictures of HEVC.

    Args:
        extradata: the decoder configuration record (``hvcC``).
    """

    def __init__(self, extradata: bytes) -> None:
        self._length_bytes = (extradata[21] & 3) + 1 if len(extradata) >= 23 and extradata[0] == 1 else 0

    def picture(self, packet: memoryview, is_key: bool) -> HevcPicture:
        """The picture of a packet; ``is_key``: whether the file marks it as key frame. Raises ``NalError`` if there is none."""
        if not self._length_bytes:
            raise NalError("no hvcC")
        for header, body in units(packet, self._length_bytes):
            kind = header >> 1 & 63
            if kind < 32:
                if not body:
                    raise NalError("ended early")
                of_another_view = header & 1 or body[0] >> 3
                spare = kind < 16 and kind % 2 == 0 and not of_another_view
                return HevcPicture(is_key and 16 <= kind <= 21, (body[0] & 7) - 1, spare)
        raise NalError("no slice")

    def pictures(self, heads: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As of ``AvcReader``: the attributes of ``HevcPicture``, int64 (packets, 3)."""
        at = self._length_bytes
        length, header, second = _first_units(heads, at)
        kind = header >> 1 & 63
        known = (kind < 32) & (length >= 2) & (length <= sizes - at)
        starts = keys & (kind >= 16) & (kind <= 21)
        spare = (kind < 16) & (kind % 2 == 0) & (header & 1 == 0) & (second >> 3 == 0)
        pictures = np.stack([starts, (second & 7) - 1, spare], axis=1).astype(np.int64)
        ignored = (kind >= 32) & (length > 0) & (length < sizes - at)
        return pictures, np.select([known, ignored], [0, at + length], -1)
