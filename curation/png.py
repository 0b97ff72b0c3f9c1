"""PNG files whose bytes do not depend on the version of an encoder: the pixels are stored, not compressed."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BLOCK = 0xFFFF


def stored_png(pixels: NDArray[np.uint8]) -> bytes:
    r"""A picture as a lossless PNG (ISO/IEC 15948), a few bytes longer than its pixels.

    For sources whose pictures are not files: if compressed, the same pixels could give other bytes with each release of zlib.

    Args:
        pixels: (height, width, 3) uint8 RGB, or (height, width) grey.

    Raises:
        ValueError: another dtype or shape, or no pixels.

    >>> png = stored_png(np.zeros((2, 3), np.uint8))  # 2 rows of 3 black pixels
    >>> png[:4], len(png)
    (b'\x89PNG', 76)
    >>> stored_png(np.zeros((2, 3)))
    Traceback (most recent call last):
        ...
    ValueError: pixels float64 (2, 3): uint8 (height, width, 3) or (height, width)
    """
    grey = pixels.ndim == 2
    if pixels.dtype != np.uint8 or not (grey or (pixels.ndim == 3 and pixels.shape[2] == 3)) or not pixels.size:
        raise ValueError(f"pixels {pixels.dtype} {pixels.shape}: uint8 (height, width, 3) or (height, width)")
    height, width = pixels.shape[:2]
    lines = np.zeros((height, 1 + width * (1 if grey else 3)), dtype=np.uint8)  # each begins with its filter: none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if grey else 2, 0, 0, 0)
    return b"".join((_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", _stored(lines.tobytes())), _chunk(b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def _stored(data: bytes) -> bytes:
    """A zlib stream (RFC 1950) of stored deflate blocks (RFC 1951, 3.2.4)."""
    blocks = [b"\x78\x01"]
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        last = start + _BLOCK >= len(data)
        blocks += [struct.pack("<BHH", last, len(block), len(block) ^ _BLOCK), block]
    return b"".join((*blocks, struct.pack(">I", zlib.adler32(data))))
