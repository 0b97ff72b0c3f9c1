"""Hashes of keys, and their sums: the check that no key was lost, for the commit of a stage."""

from __future__ import annotations

import functools
import hashlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from .stages.spill import SpilledNumbers

_WORD = 8
_LONG = 1024
"""Keys of more bytes than this are hashed one by one."""

_HASHED = 1 << 14
"""Number of keys that are hashed at a time: few enough that intermediate results fit in the cache."""

_MANY = 1 << 16
"""Number of keys from which on they are hashed by a compiled pass, in processes that have loaded others already."""

_KEPT = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], dtype=np.uint64)
"""Mask of the bits of a word that belong to a key, by the number of bytes left in the key (0 to 8)."""


def key_hashes(keys: pa.ChunkedArray) -> np.ndarray:
    """Hashes of keys, uint64 of shape (rows,). Different keys have the same hash with the probability of random 64-bit numbers.

    >>> import pyarrow as pa
    >>> one, other, again = key_hashes(pa.chunked_array([["a", "b"], ["a"]]))
    >>> one == again, one == other
    (np.True_, np.False_)
    """
    chunks = keys.cast(pa.large_string()).cast(pa.large_binary()).chunks
    if len(keys) >= _MANY and f"{__package__}.compiled" in sys.modules:
        parts = [_compiled_hashes(chunk) for chunk in chunks]
    else:
        parts = [_hashes(chunk.slice(at, _HASHED)) for chunk in chunks for at in range(0, len(chunk), _HASHED)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def _load() -> ModuleType:
    from . import key_hash_passes

    return key_hash_passes


@functools.cache
def _passes() -> Any:
    from .compiled import Passes

    return Passes(f"{__package__}.key_hash_passes", _load)


def _compiled_hashes(keys: pa.LargeBinaryArray) -> np.ndarray:
    bounds, text = _bounds_and_bytes(keys)
    found = np.empty(len(keys), dtype=np.uint64)
    _passes().hash_keys(np.frombuffer(text or b" ", dtype=np.uint8), bounds, len(keys), _LONG, found)
    _hash_long(found, text, bounds)
    return found


def _bounds_and_bytes(keys: pa.LargeBinaryArray) -> tuple[np.ndarray, memoryview]:
    """Where each key starts and the last ends, int64 (rows + 1,), in the bytes of all of them; and these bytes."""
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
    return bounds - bounds[0], memoryview(data or b"")[bounds[0] : bounds[-1]]


def _hash_long(found: np.ndarray, text: memoryview, bounds: np.ndarray) -> None:
    for row in np.flatnonzero(np.diff(bounds) > _LONG):
        digest = hashlib.blake2b(text[bounds[row] : bounds[row + 1]], digest_size=_WORD).digest()
        found[row] = int.from_bytes(digest, "little")


def _hashes(keys: pa.LargeBinaryArray) -> np.ndarray:
    bounds, text = _bounds_and_bytes(keys)
    starts, lengths = bounds[:-1], np.diff(bounds)
    padded = np.frombuffer(bytes(text) + bytes(_WORD), dtype=np.uint8)
    words = np.ndarray(len(text) + 1, dtype="<u8", buffer=padded, strides=(1,))  # the word at every byte
    found = _mixed(lengths.astype(np.uint64))
    short = lengths <= _LONG
    least = int(lengths.min()) if short.all() else 0
    for at in range(0, int(lengths[short].max(initial=0)), _WORD):
        rows = slice(None) if at < least else np.flatnonzero(short & (lengths > at))
        word = words[starts[rows] + at]
        if at + _WORD > least:
            word &= _KEPT[np.minimum(lengths[rows] - at, _WORD)]
        found[rows] = _mixed(found[rows] ^ word)
    _hash_long(found, text, bounds)
    return found


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Mix each number, so that all bits of the result depend on all of its bits (Steele et al., SplittableRandom, 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


_HELD, _RANGES = 1 << 22, 256
"""Number of hashes from which on a sum of distinct keys keeps them in a file, and of ranges of hashes in it."""


class KeySum:
    """Sum of key hashes, independent of their order, to compare the keys of two stages.

    Args:
        distinct: count repeated keys once. The hashes, 8 bytes of each row, are then in a temporary file if they are many.
    """

    def __init__(self, *, distinct: bool) -> None:
        self._distinct = distinct
        self._sum = self._count = 0
        self._hashes: list[np.ndarray] = []
        self._ranges: SpilledNumbers | None = None

    def add(self, hashes: np.ndarray) -> None:
        """Add keys to the sum by their ``key_hashes``."""
        if not self._distinct:
            self._sum += int(np.add.reduce(hashes, dtype=np.uint64))
            return
        self._hashes.append(hashes)
        self._count += len(hashes)
        if self._count >= _HELD:
            self._ranges = self._ranges or SpilledNumbers(_RANGES, [np.uint64])
            self._spill(self._ranges)

    def _spill(self, ranges: SpilledNumbers) -> None:
        for hashes in self._hashes:
            ranges.add(hashes >> np.uint64(56), [hashes])
        self._hashes, self._count = [], 0

    def total(self) -> int:
        """The sum modulo 2**64."""
        if self._ranges is not None:
            self._spill(self._ranges)
            return sum(_distinct_sum(self._ranges.take(number)[0]) for number in range(_RANGES)) % 2**64
        return (_distinct_sum(np.concatenate(self._hashes)) if self._hashes else self._sum) % 2**64


def _distinct_sum(hashes: np.ndarray) -> int:
    # For a million numbers, sorting is thirty times as fast as the hash table of np.unique.
    hashes = np.sort(hashes)
    first = np.ones(len(hashes), dtype=bool)
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    return int(np.add.reduce(hashes[first], dtype=np.uint64))
