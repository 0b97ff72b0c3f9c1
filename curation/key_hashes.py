"""Hashes of keys, many at a time: for counting and finding keys within one process, never for what is written."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

_WORD = 8
_LONG = 1024
"""Keys of more bytes are hashed one by one."""

_KEPT = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], dtype=np.uint64)
"""Bits of a word that belong to a key, by the bytes that are left of it."""


def key_hashes(keys: pa.ChunkedArray) -> np.ndarray:
    """(rows,) uint64, equal for equal text, and else equal with the chance of random numbers of 64 bits.

    >>> import pyarrow as pa
    >>> one, other, again = key_hashes(pa.chunked_array([["a", "b"], ["a"]]))
    >>> one == again, one == other
    (np.True_, np.False_)
    """
    parts = [_hashes(chunk.cast(pa.large_binary())) for chunk in keys.cast(pa.large_string()).chunks]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def _hashes(keys: pa.LargeBinaryArray) -> np.ndarray:
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    text = memoryview(data or b"")[bounds[0] : bounds[-1]]
    padded = np.frombuffer(bytes(text) + bytes(_WORD), dtype=np.uint8)
    words = np.ndarray(len(text) + 1, dtype="<u8", buffer=padded, strides=(1,))  # the word at every byte
    found = _mixed(lengths.astype(np.uint64))
    rows = np.flatnonzero(lengths <= _LONG)
    for at in range(0, int(lengths[rows].max(initial=0)), _WORD):
        rows = rows[lengths[rows] > at]
        word = words[starts[rows] + at] & _KEPT[np.minimum(lengths[rows] - at, _WORD)]
        found[rows] = _mixed(found[rows] ^ word)
    for row in np.flatnonzero(lengths > _LONG):
        digest = hashlib.blake2b(text[starts[row] : starts[row] + lengths[row]], digest_size=_WORD).digest()
        found[row] = int.from_bytes(digest, "little")
    return found


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Each number to another one, all of whose bits depend on all bits of the first (Steele et al., SplittableRandom, 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
