"""Arrays as the bytes of .npy files, and the heads of those of strangers: numpy's readers of them raise whatever the parser of
Python's source raises."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from .rows import Blob

MAX_HEAD_BYTES = 1 << 14
"""numpy's own limit of what it takes for safe is 10,000."""

_READERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # of UTF-8, which numbers and plain names are
}
_DAMAGE = (
    ValueError,
    TypeError,
    SyntaxError,
    LookupError,
    AttributeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    RecursionError,
    tokenize.TokenError,
)


def npy_blob(array: np.ndarray) -> Blob:
    """An array as .npy 1.0, in C order."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return Blob(stream.getvalue())


def read_npy_head(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether in columns, dtype, and the byte at which the values begin; no more than the head is read.

    Raises:
        ValueError: no such head. Sides may be below 0, or more than there is.
    """
    head = io.BytesIO(stream.read(MAX_HEAD_BYTES))
    try:
        version = np.lib.format.read_magic(head)
        if version not in _READERS:
            raise ValueError(f"version {version}")
        shape, fortran, dtype = _READERS[version](head)
    except _DAMAGE as error:
        told = " ".join(str(error).split())[:200]
        raise ValueError(f"not a .npy array: {told or type(error).__name__}") from None
    return shape, fortran, dtype, head.tell()
