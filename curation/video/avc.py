"""Partial parser of H.264 that finds where decoding may begin, and whether pictures are missing (ITU-T H.264 7.3 and D.1.8)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .nal import Bits, NalError, between_start_codes, clean, counted_units, first_units, has_start_codes, units

_SEQUENCE = 7
"""Type of a sequence parameter set."""
_HIGH_PROFILES = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}
_SLICE = 16
"""Number of bytes of a slice that are read for its picture number, which ends within the first 77 bits."""
_LEADING_ZEROS = np.array([8 - each.bit_length() for each in range(256)], dtype=np.uint64)


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
        if has_start_codes(extradata):
            self._length_bytes = 0
            self._sets = {unit for unit in between_start_codes(extradata) if unit[0] & 31 == _SEQUENCE}
        elif len(extradata) < 8 or extradata[0] != 1:
            raise NalError("no avcC")
        else:
            self._length_bytes = (extradata[4] & 3) + 1
            self._sets = set(counted_units(extradata, 6, extradata[5] & 31)[0])
        numbering = {_numbering(unit[1:]) for unit in self._sets}
        if len(numbering) != 1:
            raise NalError(f"{len(numbering)} different sequence parameter sets")
        self._frame_num_bits, self._may_skip, self._has_fields = numbering.pop()

    def picture(self, packet: memoryview, is_key: bool) -> AvcPicture:
        """The picture of a packet; ``is_key``: whether the file marks it as key frame. Raises ``NalError`` if there is none."""
        exact = False
        for header, body in units(packet, self._length_bytes):
            kind = header & 31
            if kind == 6 and is_key:
                exact = exact or _recovers_at_once(body)
            elif kind == _SEQUENCE and bytes([header]) + body not in self._sets:
                raise NalError("another sequence parameter set")
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
        length, header, _ = first_units(heads, at)
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
        ignored = ~is_slice & ~(keys & (kind == 6)) & (kind != _SEQUENCE) & (length > 0) & (length < sizes - at)
        return pictures, np.select([known, ignored], [0, at + length], -1)

    def gaps(self, pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Pictures before which others are missing, by the numbers of reference pictures, and whether the numbers tell all.

        Args:
            pictures: attributes of ``AvcPicture`` of all pictures of a file, in file order, int64 (pictures, 4).

        Returns:
            Indices of the pictures whose number neither follows that of the last reference picture, nor repeats it, as the
            second field of a frame does; for each, the index of that reference picture if the number follows 0, to which it may
            have set it back, otherwise -1; and whether all numbers follow, from an IDR picture at the start.
        """
        _, instant, number, needed = pictures.T
        places = np.maximum.accumulate(np.where(needed, np.arange(len(number)), -1))
        before = np.append(-1, places[:-1])
        steps = (number - number[before]) % (1 << self._frame_num_bits)
        known = (instant == 0) & (before >= 0)
        follows = (steps == 1) | ((steps == 0) & self._has_fields) | self._may_skip
        gaps = np.flatnonzero(known & ~follows)
        from_0 = (number == 1) | ((number == 0) & self._has_fields)
        return gaps, np.where(from_0, before, -1)[gaps], bool(np.where(instant, number == 0, known & (steps == 1)).all())


def _frame_num(slice_: bytes, count: int) -> int:
    """Read ``frame_num``, of ``count`` bits, of a slice. Does not use ``Bits``, since it is called for many packets."""
    head = clean(slice_[:_SLICE])
    value, left = int.from_bytes(head), 8 * len(head)
    for _ in range(3):  # Exp-Golomb numbers: first macroblock, slice type, picture parameter set
        left -= 2 * (left - value.bit_length()) + 1
        if left < count:
            raise NalError("ended early")
        value &= (1 << left) - 1
    return value >> left - count


def _numbering(sps: bytes) -> tuple[int, bool, bool]:
    """Bits of ``frame_num``, whether its values may be skipped, and whether pictures may be fields, by an H.264 sequence
    parameter set behind its header."""
    bits = Bits(clean(sps))
    profile = bits.read(8)
    bits.read(16)
    bits.golomb()
    if profile in _HIGH_PROFILES:
        chroma = bits.golomb()
        if chroma == 3:
            bits.read(1)
        bits.golomb()
        bits.golomb()
        bits.read(1)
        if bits.read(1):
            for number in range(12 if chroma == 3 else 8):
                if bits.read(1):
                    _skip_scaling_list(bits, 16 if number < 6 else 64)
    count = bits.golomb() + 4
    order = bits.golomb()
    if order == 0:
        bits.golomb()
    elif order == 1:
        bits.read(1)
        for _ in range(2):
            bits.golomb()
        for _ in range(bits.golomb()):
            bits.golomb()
    bits.golomb()
    may_skip = bits.read(1) == 1
    bits.golomb()
    bits.golomb()
    return count, may_skip, bits.read(1) == 0


def _skip_scaling_list(bits: Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.signed_golomb()) % 256
        last = following or last


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
            bits = Bits(clean(sei[at : at + size]))
            return bits.golomb() == 0 and bits.read(1) == 1
        at += size
    return False
