"""Partial parser of HEVC that finds where decoding may begin, which pictures no other needs, and whether pictures are missing
(ITU-T H.265 7.3 and 8.3).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from .nal import Bits, NalError, between_start_codes, clean, counted_units, first_units, has_start_codes, units


class HevcPicture(NamedTuple):
    """Properties of an HEVC picture, read from the header of its first slice.

    Attributes:
        starts: whether decoding may begin at it: a random access point that the file marks as key frame.
        layer: temporal layer, from 0.
        spare: whether no other picture of its layer is predicted from it.
        kind: type of its units.
        order: lower bits of its number in order of display.
        references: number of the set of pictures that it is predicted from, in ``HevcReader.references``.
        after_end: whether a sequence ends before it: it is decoded as the first picture of a file (8.1.3).
        drops: whether it begins a sequence and drops those pictures before it that are not displayed yet (C.5.2.2).
    """

    starts: bool
    layer: int
    spare: bool
    kind: int
    order: int
    references: int
    after_end: bool
    drops: bool


_ReferenceSet = dict[int, bool]
"""Pictures by their number in order of display, relative to the picture: whether the picture itself is predicted from them."""


class _Sequence(NamedTuple):
    """Fields of a sequence parameter set: number of bits of a picture's order, sets of references, and whether colours are
    coded apart."""

    order_bits: int
    sets: list[_ReferenceSet]
    colours_apart: bool


class _Slice(NamedTuple):
    """Fields of a slice header: its picture's order, the first bit of it and their number, references, and where these end."""

    order: int
    order_at: int
    order_bits: int
    references: tuple[int, ...]
    end: int


_SLICE = 100
"""Number of bytes of a slice that are read for its references."""
_SEQUENCE_SET, _PICTURE_SET = 33, 34
"""Types of parameter sets."""
CRA = 21
"""Type of random access points that may have leading pictures which need earlier ones."""
_ENDS = (36, 37)
"""Types of units that end a sequence, or all sequences."""
TAIL = 16
"""Number of bytes at the end of a packet that ``HevcReader.ends`` needs."""


class HevcReader:
    """Reads the pictures of HEVC. References to long-term pictures are not read.

    Args:
        extradata: the decoder configuration record (``hvcC``), or parameter sets behind start codes.

    Raises:
        NalError: the parameter sets are missing or unsupported.

    Attributes:
        references: sets of pictures that a picture is predicted from, by their numbers in order of display relative to its own.
    """

    def __init__(self, extradata: bytes) -> None:
        self.references: list[tuple[int, ...]] = [()]
        self._order_bits = 0
        self._heads: dict[tuple[int, int, int, int], dict[tuple[int, int], int]] = {}
        """Mask of a header without its order, ends of both, mask of an order -> type, masked header -> number of references."""
        self._parameters: dict[tuple[int, int], bytes] = {}
        self._sequences: dict[int, _Sequence] = {}
        self._pictures: dict[int, tuple[_Sequence, bool, int]] = {}
        if has_start_codes(extradata):
            self._length_bytes = 0
            units_ = between_start_codes(extradata)
        elif len(extradata) < 23 or extradata[0] != 1:
            raise NalError("no hvcC")
        else:
            self._length_bytes = (extradata[21] & 3) + 1
            units_, at = list[bytes](), 23
            for _ in range(extradata[22]):
                found, at = counted_units(extradata, at + 3, int.from_bytes(extradata[at + 1 : at + 3]))
                units_ += found
        before = (2).to_bytes(self._length_bytes) if self._length_bytes else b"\0\0\1"
        self._ends = tuple(before + bytes([kind << 1, 1]) for kind in _ENDS)
        for unit in sorted(units_, key=lambda unit: unit[:1]):  # sequences come first
            self._take(unit)

    def picture(self, packet: memoryview, is_key: bool) -> HevcPicture:
        """The picture of a packet; ``is_key``: whether the file marks it as key frame. Raises ``NalError`` if there is none."""
        after_end = False
        for header, body in units(packet, self._length_bytes):
            kind = header >> 1 & 63
            if not body:
                raise NalError("ended early")
            if kind in (_SEQUENCE_SET, _PICTURE_SET):
                self._take(bytes([header]) + body)
            elif kind in _ENDS:
                after_end = True
            elif kind < 32:
                second, of_another_view = body[0], header & 1 or body[0] >> 3
                order, references = self._order_and_references(kind, clean(body[1:_SLICE]))
                return HevcPicture(
                    is_key and 16 <= kind <= CRA,
                    (second & 7) - 1,
                    kind < 16 and kind % 2 == 0 and not of_another_view,
                    kind,
                    order,
                    references,
                    after_end,
                    16 <= kind < CRA and body[1] & 0x40 != 0,
                )
        raise NalError("no slice")

    def ends(self, tail: bytes) -> bool:
        """Whether the last unit of a packet ends a sequence; ``tail``: its last ``TAIL`` bytes."""
        return tail.rstrip(b"\0").endswith(self._ends)

    def pictures(self, heads: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As of ``AvcReader``: the attributes of ``HevcPicture``, int64 (packets, 8)."""
        at = self._length_bytes
        length, header, second = first_units(heads, at)
        kind, body = header >> 1 & 63, np.ascontiguousarray(heads[:, at : at + 16])
        known = (kind < 32) & (length > 2) & (length <= sizes - at)
        known[[found.start() // 16 for found in re.finditer(b"\0\0\3", body.tobytes())]] = False
        words = body.view(">u8").T.astype(np.uint64)
        starts = keys & (kind >= 16) & (kind <= CRA)
        spare = (kind < 16) & (kind % 2 == 0) & (header & 1 == 0) & (second >> 3 == 0)
        order, references = np.zeros((2, len(heads)), dtype=np.int64)
        left = np.flatnonzero(known)
        while len(left):  # the headers of many pictures differ in nothing but their order
            try:
                head = self._slice(int(kind[left[0]]), body[left[0], 2:].tobytes())
            except NalError:
                known[left[0]], left = False, left[1:]
                continue
            order_at, end = 16 + head.order_at, 16 + head.end
            relevant = _ones(0, end) & ~_ones(order_at, order_at + head.order_bits)
            same = np.ones(len(left), dtype=bool)
            for column, mask in zip(words, divmod(relevant, 1 << 64), strict=True):
                if mask:
                    same &= (column[left] ^ column[left[0]]) & np.uint64(mask) == 0
            alike, left = left[same], left[~same]
            known[alike] = (end <= 8 * length[alike]) & (order_at + head.order_bits <= 64)
            order[alike] = words[0, alike] >> np.uint64(max(0, 64 - order_at - head.order_bits))
            order[alike] &= (1 << head.order_bits) - 1
            references[alike] = self._number(head.references)
        drops = (kind >= 16) & (kind < CRA) & (body[:, 2] & 0x40 > 0)
        columns = [starts, (second & 7) - 1, spare, kind, order, references, np.zeros_like(kind), drops]
        pictures = np.stack(columns, axis=1).astype(np.int64)
        is_ignored = (kind >= 32) & ~np.isin(kind, (_SEQUENCE_SET, _PICTURE_SET, *_ENDS))
        ignored = is_ignored & (length > 1) & (length < sizes - at)
        return pictures, np.select([known, ignored], [0, at + length], -1)

    def gaps(self, pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Pictures before which others are missing, those that decoders leave out, and whether they may drop others.

        Args:
            pictures: attributes of ``HevcPicture`` of all pictures of a file, in file order, int64 (pictures, 8).

        Returns:
            Indices of the pictures that are predicted from others that are not in the file; and mask, bool (pictures,), of the
            leading pictures that need others before the first picture, before a broken link or before the end of a sequence;
            and whether pictures may be dropped where a sequence begins, which depends on what a decoder has displayed by then.
        """
        _, layer, _, kind, order, references, after_end, drops = pictures.T
        rows = np.arange(len(kind))
        begins = ((kind >= 16) & (kind < CRA)) | (after_end > 0) | (rows == 0)
        numbers = (np.cumsum(begins) << 34) + self._in_order(begins, (layer == 0) & ~_is_odd_one_out(kind), order)
        random_access = np.maximum.accumulate(np.where((kind >= 16) & (kind <= CRA), rows, -1))
        skipped = ((kind == 8) | (kind == 9)) & (random_access >= 0) & begins[random_access]
        by_number = np.argsort(numbers, kind="stable")
        sorted_ = numbers[by_number]
        ranks = np.empty_like(rows)
        ranks[by_number] = rows
        most = max(map(len, self.references))
        deltas = np.array([(*each, *[0] * (most - len(each))) for each in self.references], dtype=np.int64)[references]
        deltas[skipped] = 0
        wanted = numbers[:, None] + deltas
        at = np.clip(ranks[:, None] + deltas, 0, len(rows) - 1)  # where no number is left out
        missing = (sorted_[at] != wanted) | (by_number[at] > rows[:, None])
        if missing.any():
            at = np.minimum(np.searchsorted(sorted_, wanted), len(rows) - 1)
            missing = (sorted_[at] != wanted) | (by_number[at] > rows[:, None])
        twice = by_number[1:][np.diff(sorted_) == 0]
        return np.unique(np.append(np.nonzero(missing)[0], twice)), skipped, bool((after_end | drops)[1:].any())

    def _in_order(self, begins: np.ndarray, anchors: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Numbers of pictures in order of display, from the first of their sequence, by their lower bits (H.265 8.3.1)."""
        size, rows = 1 << self._order_bits, np.arange(len(order))

        def steps(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
            return size // 2 - (size // 2 - (later - earlier) & size - 1)

        anchors = anchors | begins
        at = np.flatnonzero(anchors)
        sums = np.zeros(len(order), dtype=np.int64)
        sums[at[1:]] = np.cumsum(steps(order[at[1:]], order[at[:-1]]))
        first = np.maximum.accumulate(np.where(begins, rows, 0))
        sums = sums - sums[first] + order[first]
        last = np.append(0, np.maximum.accumulate(np.where(anchors, rows, 0))[:-1])
        return np.where(anchors, sums, sums[last] + steps(order, order[last]))

    def _number(self, references: tuple[int, ...]) -> int:
        if references not in self.references:
            self.references.append(references)
        return self.references.index(references)

    def _take(self, unit: bytes) -> None:
        """Take in a parameter set."""
        kind = unit[0] >> 1 & 63
        if kind not in (_SEQUENCE_SET, _PICTURE_SET) or unit[0] & 1 or unit[1] >> 3 or unit in self._parameters.values():
            return
        bits = Bits(clean(unit[2:]))
        number, found = _sequence(bits) if kind == _SEQUENCE_SET else (bits.golomb(), bits)
        if (kind, number) in self._parameters:
            raise NalError("another parameter set")
        self._parameters[kind, number] = unit
        if isinstance(found, _Sequence):
            self._sequences[number] = found
            if self._order_bits not in (0, found.order_bits):
                raise NalError("different sequence parameter sets")
            self._order_bits = found.order_bits
        elif (sequence := self._sequences.get(bits.golomb())) is not None:
            bits.read(1)
            self._pictures[number] = (sequence, bits.read(1) == 1, bits.read(3))

    def _order_and_references(self, kind: int, data: bytes) -> tuple[int, int]:
        """The order of a picture and the number of its references, by its first slice behind the unit's header.

        Headers that differ in nothing but the order are read once.
        """
        begin = int.from_bytes(data[:16].ljust(16, b"\0"))
        for (mask, end, order_end, order_mask), known in self._heads.items():
            if end <= 8 * len(data) and (references := known.get((kind, begin & mask))) is not None:
                return begin >> 128 - order_end & order_mask, references
        head = self._slice(kind, data)
        references = self._number(head.references)
        if head.end <= 128:
            order_end = head.order_at + head.order_bits
            mask = _ones(0, head.end) & ~_ones(head.order_at, order_end)
            known = self._heads.setdefault((mask, head.end, order_end, (1 << head.order_bits) - 1), {})
            known[kind, begin & mask] = references
        return head.order, references

    def _slice(self, kind: int, data: bytes) -> _Slice:
        """Read the first slice of a picture behind the unit's header."""
        bits = Bits(data)
        if not bits.read(1):
            raise NalError("no first slice")
        if kind >= 16:
            bits.read(1)
        number = bits.golomb()
        if number not in self._pictures:
            raise NalError("no parameter set")
        sequence, has_output_flag, extra_bits = self._pictures[number]
        bits.read(extra_bits)
        bits.golomb()
        bits.read(has_output_flag + 2 * sequence.colours_apart)
        at = 8 * len(data) - bits.left
        if kind in (19, 20):
            return _Slice(0, at, 0, (), at)
        order = bits.read(sequence.order_bits)
        if not bits.read(1):
            used = _reference_set(bits, sequence.sets, of_slice=True)
        else:
            number = bits.read((len(sequence.sets) - 1).bit_length()) if sequence.sets else -1
            if not 0 <= number < len(sequence.sets):
                raise NalError("no set of references")
            used = sequence.sets[number]
        references = tuple(delta for delta, is_used in used.items() if is_used) if kind < 16 else ()
        return _Slice(order, at, sequence.order_bits, references, 8 * len(data) - bits.left)


def _ones(begin: int, end: int) -> int:
    """128 bits of which only those from ``begin`` to ``end`` are 1."""
    return (1 << end - begin) - 1 << 128 - end


def _is_odd_one_out(kind: np.ndarray) -> np.ndarray:
    """Whether pictures of this type are left out where the higher bits of the order are counted: leading or not referenced."""
    return ((kind >= 6) & (kind <= 9)) | ((kind < 16) & (kind % 2 == 0))


def _sequence(bits: Bits) -> tuple[int, _Sequence]:
    """The number of a sequence parameter set, and its fields."""
    bits.read(4)
    layers = bits.read(3)
    bits.read(1 + 96)
    present = [(bits.read(1), bits.read(1)) for _ in range(layers)]
    bits.read(2 * (8 - layers) if layers else 0)
    for profile, level in present:
        bits.read(88 * profile + 8 * level)
    number = bits.golomb()
    colours_apart = bits.golomb() == 3 and bits.read(1) == 1
    bits.golomb()
    bits.golomb()
    if bits.read(1):
        for _ in range(4):
            bits.golomb()
    bits.golomb()
    bits.golomb()
    order_bits = bits.golomb() + 4
    for _ in range(3 * (layers + 1 if bits.read(1) else 1) + 6):
        bits.golomb()
    if bits.read(1) and bits.read(1):
        _skip_scaling_lists(bits)
    bits.read(2)
    if bits.read(1):
        bits.read(8)
        bits.golomb()
        bits.golomb()
        bits.read(1)
    sets = list[_ReferenceSet]()
    for _ in range(_at_most(64, bits.golomb())):
        sets.append(_reference_set(bits, sets))
    return number, _Sequence(_at_most(16, order_bits), sets, colours_apart)


def _at_most(limit: int, number: int) -> int:
    if number > limit:
        raise NalError(f"{number} above {limit}")
    return number


def _skip_scaling_lists(bits: Bits) -> None:
    for size in range(4):
        for _ in range(2 if size == 3 else 6):
            if not bits.read(1):
                bits.golomb()
                continue
            for _ in range(min(64, 16 << 2 * size) + (size > 1)):
                bits.golomb()


def _reference_set(bits: Bits, before: list[_ReferenceSet], *, of_slice: bool = False) -> _ReferenceSet:
    """Read a set of short-term reference pictures (H.265 7.3.7), the nearest ones first; ``before``: sets of the sequence."""
    found: _ReferenceSet = {}
    if before and bits.read(1):
        back = bits.golomb() + 1 if of_slice else 1
        if back > len(before):
            raise NalError("no set of references")
        sign = bits.read(1)
        step = (1 - 2 * sign) * (bits.golomb() + 1)
        for delta in [*before[-back], 0]:
            used = bits.read(1)
            if (used or bits.read(1)) and delta + step:
                found[delta + step] = used == 1
        return dict(sorted(found.items(), key=lambda each: (each[0] > 0, abs(each[0]))))
    counts = [_at_most(16, bits.golomb()) for _ in range(2)]
    for sign, count in zip((-1, 1), counts, strict=True):
        delta = 0
        for _ in range(count):
            delta += sign * (bits.golomb() + 1)
            found[delta] = bits.read(1) == 1
    return found
