"""The compiled pass of ``key_hashes``, which has the same algorithm for numpy.

Machine code is cached by the text of this file, so nothing of the project is imported here.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

_BYTES, _I64, _U64 = (types.CPointer(kind) for kind in (types.uint8, types.int64, types.uint64))
_N = types.int64
_helper: Any = numba.njit(error_model="numpy")


@_helper
def _mixed(number: Any) -> Any:
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@_helper
def _word(text: Any, at: int, count: int) -> Any:
    """Up to 8 bytes, the first as the lowest."""
    word = np.uint64(0)
    for k in range(count):
        word |= np.uint64(text[at + k]) << np.uint64(8 * k)
    return word


@numba.cfunc(_N(_BYTES, _I64, _N, _N, _U64), error_model="numpy")  # type: ignore[misc]
def hash_keys(text: Any, bounds: Any, count: int, longest: int, found: Any) -> int:
    """Hash ``count`` keys, of which number n is the bytes from ``bounds[n]`` up to ``bounds[n + 1]``, into ``found``; those of
    more than ``longest`` bytes are left out.
    """
    for row in range(count):
        at, end = bounds[row], bounds[row + 1]
        if end - at > longest:
            continue
        number = _mixed(np.uint64(end - at))
        while at + 8 <= end:
            number = _mixed(number ^ _word(text, at, 8))
            at += 8
        if at < end:
            number = _mixed(number ^ _word(text, at, end - at))
        found[row] = number
    return 0
