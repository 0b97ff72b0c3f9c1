"""Write arrays as .npy, and read the headers of untrusted .npy files: numpy parses these as Python source, and raises whatever
the parser raises."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from .rows import Blob, one_line

MAX_HEAD_BYTES = 1 << 14
"""Maximum number of bytes read for a header; numpy's own limit for safe headers is 10,000."""

_READERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # in UTF-8, which is the same for numbers and ASCII names
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


def npy_bytes(array: np.ndarray) -> bytes:
    """The bytes of an array as an .npy file, version 1.0, in C order."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def npy_blob(array: np.ndarray) -> Blob:
    """``npy_bytes`` as a payload."""
    return Blob(npy_bytes(array))


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of an .npz file of these arrays; the same arrays give the same bytes with the same numpy."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def read_npy_head(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Read the header of an array: shape, whether in Fortran order, dtype, and the byte at which the values begin.

    The values are not read, and the shape is not checked: it may be negative, or too large for the file.

    Raises:
        ValueError: not a valid header.
    """
    head = io.BytesIO(stream.read(MAX_HEAD_BYTES))
    try:
        version = np.lib.format.read_magic(head)
        if version not in _READERS:
            raise ValueError(f"version {version}")
        shape, fortran, dtype = _READERS[version](head)
    except _DAMAGE as error:
        raise ValueError(f"not a .npy array: {one_line(error)}") from None
    return shape, fortran, dtype, head.tell()
