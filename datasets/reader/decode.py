"""Decode the bytes of members into arrays and values."""

from __future__ import annotations

import functools
import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from ...curation.npy import MAX_HEAD_BYTES, read_npy_head
from ...curation.stages.decode import MAX_SCANS, PILLOW_ERRORS, is_damage_in_jpeg
from ...curation.stages.image_format import PILLOW_NAMES
from ...curation.ustar import ShardError

MAX_PIXELS = 1 << 28
"""Largest image that is decoded, in pixels: a small file can expand to many gigabytes."""

_FORMATS = (*PILLOW_NAMES.values(), "PPM")
"""Pillow's names of the formats that are read: no member, whatever its name, reaches a plugin that starts a program."""


def decode_image(data: bytes, *, min_side_px: int = 0) -> np.ndarray:
    """Pixels as stored, uint8 RGB of shape (height, width, 3), 0-255; EXIF orientation and colour profile are not applied.

    JPEG is decoded by libjpeg-turbo (the same pixels as Pillow, in less time). JPEGs in CMYK or of an unusual kind, and all
    other formats, are decoded by Pillow.

    Args:
        data: the file.
        min_side_px: decode a JPEG at a reduced scale, in eighths, with sides at least this long; 0: at the stored size.

    Raises:
        ValueError: not an image, a broken image, more than ``MAX_PIXELS`` pixels, or more than ``MAX_SCANS`` scans in a JPEG.

    >>> import numpy as np
    >>> from benchwright.curation.png import stored_png
    >>> decode_image(stored_png(np.full((2, 3), 7, np.uint8))).shape
    (2, 3, 3)
    """
    if data[:2] == b"\xff\xd8":
        if (scans := data.count(b"\xff\xda")) > MAX_SCANS:
            raise ValueError(f"{scans} scans: at most {MAX_SCANS} are decoded")
        try:
            height, width, space, _ = simplejpeg.decode_jpeg_header(data)
            if int(width) * int(height) <= MAX_PIXELS:
                colours_are_exact = space in ("YCbCr", "Gray", "RGB")
                side = min_side_px if colours_are_exact else 1
                pixels = simplejpeg.decode_jpeg(data, colorspace="RGB", min_height=side, min_width=side)
                if colours_are_exact:
                    return pixels
        except KeyError:
            pass  # a subsampling or colour space that simplejpeg does not name
        except ValueError as error:
            if is_damage_in_jpeg(str(error)):  # Pillow would overlook it
                raise ValueError(f"no image that can be decoded: {error}") from error
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels: at most {MAX_PIXELS} are decoded")
            return np.array(image.convert("RGB"))
    except (*PILLOW_ERRORS, Image.DecompressionBombError) as error:
        raise ValueError(f"no image that can be decoded: {error}") from error


@functools.lru_cache(maxsize=256)
def _npy_head(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Cached ``read_npy_head``: the heads of a dataset's arrays rarely differ."""
    return read_npy_head(io.BytesIO(head))


def decode_npy(data: bytes) -> np.ndarray:
    """The array of an .npy file, of any shape and plain dtype, as a writable copy.

    Raises:
        ValueError: not .npy, truncated, longer than its head says, or an array of objects.

    >>> stream = io.BytesIO()
    >>> np.save(stream, np.array([1, 2, 3]))
    >>> decode_npy(stream.getvalue()).tolist()
    [1, 2, 3]
    """
    length = 10 + int.from_bytes(data[8:10], "little") if data[6:7] == b"\x01" else 12 + int.from_bytes(data[8:12], "little")
    shape, fortran, dtype, start = _npy_head(data[: min(length, MAX_HEAD_BYTES)])
    if dtype.hasobject:
        raise ValueError(f".npy of dtype {dtype}: objects would need pickle, which is not read")
    if not dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError(f"no .npy file: dtype {dtype}, shape {str(shape)[:200]}")
    claimed, held = math.prod(shape) * dtype.itemsize, len(data) - start
    if claimed != held:
        raise ValueError(f"values {str(shape)[:200]} of {dtype} are {claimed} bytes, and it holds {held}")
    values = np.frombuffer(data, dtype=dtype, offset=start) if held else np.empty(0, dtype)
    return values.reshape(shape, order="F" if fortran else "C").copy()


def _text(data: bytes) -> str:
    return data.decode()


_IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm")

DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(_IMAGES, decode_image),
    "json": json.loads,
    "npy": decode_npy,
    "txt": _text,
    "cls": int,
}
"""Default decoders by the last part of the extension. Members of other extensions stay bytes."""


def decode_member(extension: str, data: bytes, decoders: Mapping[str, Callable[[bytes], Any]], *, key: str, place: str) -> Any:
    """Decode by the whole extension (``seg.png``) or else its last part (``png``); without a decoder the bytes stay.

    Raises:
        ShardError: the decoder rejects the bytes.

    >>> decode_member("txt", b"surfing", DECODERS, key="a", place="test-00000.tar")
    'surfing'
    >>> decode_member("json", b"{", DECODERS, key="a", place="test-00000.tar")
    Traceback (most recent call last):
        ...
    benchwright.curation.ustar.ShardError: test-00000.tar: member a.json of 1 bytes cannot be decoded: Expecting ...
    """
    decoder = decoders.get(extension) or decoders.get(extension.rpartition(".")[2])
    if decoder is None:
        return data
    try:
        return decoder(data)
    except (ValueError, SyntaxError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ShardError(f"{place}: member {key}.{extension} of {len(data)} bytes cannot be decoded: {error}") from error
