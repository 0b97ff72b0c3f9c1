"""Partial parser of AV1 headers that finds the dependencies between frames (AV1 specification 5.3 to 5.9 and 7.20).

A frame is predicted (pixels, motion, probabilities and grain) only from eight reference slots, and its header says which slots
it reads and which it fills afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from .nal import Bits, NalError

_SEQUENCE, _FRAME_HEADER, _TILES, _FRAME, _REDUNDANT_HEADER, _PADDING = 1, 3, 4, 6, 7, 15
_KEY, _INTER, _SWITCH = 0, 1, 3
_ALL = 0xFF
_HEAD = 24
"""Bytes of a frame header that are read; the fields up to the slots take at most 17 bytes."""


class FramePart(NamedTuple):
    """A frame of a packet, or the command to show a frame that was decoded before.

    Attributes:
        begins: offsets of its units in the packet.
        reads: bit mask of the slots that it needs.
        fills: bit mask of the slots that it fills.
        shown: whether the packet shows it.
    """

    begins: tuple[int, ...]
    reads: int
    fills: int
    shown: bool


class _Sequence(NamedTuple):
    """Fields of the sequence header that are needed to parse frame headers; 2 means that each frame header decides."""

    screen_tools: int
    integer_motion: int
    order_bits: int


class Av1Reader:
    """Parses the frames of AV1 packet by packet, beginning at a key frame.

    Args:
        extradata: the configuration record (``av1C``); its sequence header is used if the key frame has none.

    Raises:
        NalError: the stream uses unsupported features (layers, numbered frames, a decoder buffer model).
    """

    def __init__(self, extradata: bytes) -> None:
        self._sequence: _Sequence | None = None
        self._header, self._keys = b"", 0
        self.parts(extradata[4:])
        self._header = b""

    def parts(self, packet: bytes) -> list[FramePart]:
        """Return the frames of the next packet. Raises ``NalError`` as the class does."""
        parts: list[FramePart] = []
        for kind, begin, body, end in _units(packet):
            if kind == _SEQUENCE:
                if self._header not in (b"", packet[body:end]):
                    raise NalError("another sequence header")
                self._header = packet[body:end]
                self._sequence = _sequence(Bits(self._header))
            elif kind in (_FRAME, _FRAME_HEADER):
                parts.append(self._part(begin, Bits(packet[body : min(end, body + _HEAD)])))
            elif kind in (_TILES, _REDUNDANT_HEADER):
                if not parts:
                    raise NalError("tiles without a frame")
                parts[-1] = parts[-1]._replace(begins=(*parts[-1].begins, begin))
        return parts

    def _part(self, begin: int, bits: Bits) -> FramePart:
        if self._sequence is None:
            raise NalError("no sequence header")
        screen_tools, integer_motion, order_bits = self._sequence
        if bits.read(1):  # shows the frame in a slot; if that is a key frame, it then fills all slots
            slot = 1 << bits.read(3)
            fills = _ALL if self._keys & slot else 0
            self._keys |= fills
            return FramePart((begin,), slot, fills, True)
        kind, shown = bits.read(2), bits.read(1)
        if not shown:
            bits.read(1)
        fresh = kind == _KEY and shown
        resilient = kind == _SWITCH or fresh or bits.read(1)
        bits.read(1)
        if (bits.read(1) if screen_tools == 2 else screen_tools) and integer_motion == 2:
            bits.read(1)
        if kind != _SWITCH:
            bits.read(1)
        bits.read(order_bits)
        predicted = kind in (_INTER, _SWITCH)
        if predicted and not resilient:
            bits.read(3)
        fills = _ALL if kind == _SWITCH or fresh else bits.read(8)
        self._keys = self._keys | fills if kind == _KEY else self._keys & ~fills
        reads = 0
        if predicted and (resilient or (order_bits and bits.read(1))):
            reads = _ALL  # the slots are coded in another way, which is not parsed
        elif predicted:
            for _ in range(7):
                reads |= 1 << bits.read(3)
        return FramePart((begin,), reads, fills, bool(shown))


def _units(packet: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Type, offset, offset of the body, and end of each open bitstream unit."""
    at = 0
    while at < len(packet):
        begin, body, size, shift = at, at + 1, 0, 0
        if packet[begin] & 0x86 != 2:
            raise NalError("units of layers, or without a size")
        while True:
            if body >= len(packet) or shift > 28:
                raise NalError("ended early")
            size |= (packet[body] & 0x7F) << shift
            body, shift = body + 1, shift + 7
            if packet[body - 1] < 0x80:
                break
        at = body + size
        if at > len(packet):
            raise NalError(f"a unit of {size} bytes at {begin} of {len(packet)}")
        yield packet[begin] >> 3 & 15, begin, body, at


def _sequence(bits: Bits) -> _Sequence:
    bits.read(3)
    if bits.read(2) & 1:
        raise NalError("a still picture")
    if bits.read(1):
        bits.read(64)
        if bits.read(1):
            bits.golomb()
        if bits.read(1):
            raise NalError("a model of the decoder's buffers")
    delays = bits.read(1)
    if bits.read(5):
        raise NalError("several operating points")
    bits.read(12)
    if bits.read(5) > 7:
        bits.read(1)
    if delays and bits.read(1):
        bits.read(4)
    width_bits, height_bits = bits.read(4) + 1, bits.read(4) + 1
    bits.read(width_bits + height_bits)
    if bits.read(1):
        raise NalError("numbered frames")
    bits.read(7)
    ordered = bits.read(1)
    bits.read(2 * ordered)
    screen_tools = 2 if bits.read(1) else bits.read(1)
    integer_motion = 2
    if screen_tools and not bits.read(1):
        integer_motion = bits.read(1)
    return _Sequence(screen_tools, integer_motion, bits.read(3) + 1 if ordered else 0)


def needed_parts(packets: Sequence[Sequence[FramePart]], wanted: Collection[int]) -> list[list[bool]]:
    """For each part of each packet from a key frame on, whether frames shown by the packets ``wanted`` (indices) depend on it.

    The first packet is always needed, for its sequence header.

    Raises:
        NalError: they depend on frames before the first packet.

    >>> key, unused, last = FramePart((0,), 0, 255, True), FramePart((0,), 1, 2, True), FramePart((0,), 1, 0, True)
    >>> needed_parts([[key], [unused], [last]], {2})
    [[True], [False], [True]]
    """
    needed: list[list[bool]] = []
    live = 0
    for place in reversed(range(len(packets))):
        found: list[bool] = []
        for part in reversed(packets[place]):
            found.append(place == 0 or bool(live & part.fills) or (part.shown and place in wanted))
            if found[-1]:
                live = live & ~part.fills | part.reads
        needed.append(found[::-1])
    if live:
        raise NalError("frames before the key frame are needed")
    return needed[::-1]


def as_padding(packet: bytes, parts: Sequence[FramePart]) -> bytes:
    """The packet with these parts replaced by padding, which decoders skip."""
    data = bytearray(packet)
    for part in parts:
        for begin in part.begins:
            data[begin] = data[begin] & 0x87 | _PADDING << 3
    return bytes(data)
