"""NAL units of H.264 and HEVC packets, and the bits in them.

Units follow their lengths, as in MP4 and Matroska (ISO/IEC 14496-15), or start codes, as in transport streams (ITU-T H.264 and
H.265, annex B).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

HEAD = 24
"""Number of bytes of a packet that the ``pictures`` of ``AvcReader`` and ``HevcReader`` needs."""

_START = b"\0\0\1"
"""What is before a unit that does not follow its length."""


class NalError(ValueError):
    """The bytes are not laid out as expected."""


class Bits:
    """Reader of bits."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data)
        self.left = 8 * len(data)

    def read(self, count: int) -> int:
        self.left -= count
        if self.left < 0:
            raise NalError("ended early")
        return self._value >> self.left & (1 << count) - 1

    def golomb(self) -> int:
        """Read an unsigned Exp-Golomb number."""
        rest = self._value & (1 << self.left) - 1
        zeros = self.left - rest.bit_length()
        return self.read(2 * zeros + 1) - 1

    def signed_golomb(self) -> int:
        """Read a signed Exp-Golomb number."""
        number = self.golomb()
        return (number + 1) // 2 if number % 2 else -(number // 2)


def clean(unit: bytes) -> bytes:
    """Remove emulation prevention bytes."""
    return unit.replace(b"\0\0\3", b"\0\0")


def units(packet: memoryview, length_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the first byte and the further bytes of each NAL unit; ``length_bytes`` is 0 if units follow start codes."""
    if not length_bytes:
        yield from ((unit[0], unit[1:]) for unit in between_start_codes(bytes(packet)))
        return
    at, end = 0, len(packet)
    while at + length_bytes < end:
        begin = at + length_bytes
        size = int.from_bytes(packet[at:begin])
        at = begin + size
        if not size or at > end:
            raise NalError(f"a unit of {size} bytes at {begin} of {end}")
        yield packet[begin], bytes(packet[begin + 1 : at])


def has_start_codes(extradata: bytes) -> bool:
    """Whether the units of a stream follow start codes."""
    return extradata.startswith((_START, b"\0" + _START))


def between_start_codes(data: bytes) -> list[bytes]:
    """Units that follow start codes."""
    return [unit for each in data.split(_START)[1:] if (unit := each.rstrip(b"\0"))]


def counted_units(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Units of a decoder configuration record, each behind its length of two bytes, and the offset of what follows them."""
    found = list[bytes]()
    for _ in range(count):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        found.append(data[at + 2 : end])
        at = end
    return found, at


def first_units(heads: np.ndarray, length_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Length of the NAL unit at the start of each packet, and its first and second byte, int64 (packets,)."""
    wide = heads[:, : length_bytes + 2].astype(np.int64)
    length = np.zeros(len(heads), dtype=np.int64)
    for place in range(length_bytes):
        length = length << 8 | wide[:, place]
    return length, wide[:, length_bytes], wide[:, length_bytes + 1]
