"""Decode image files to upright RGB pixels, safe with hostile files: files that cannot be decoded are rejected.

JPEGs are decoded by libjpeg-turbo (simplejpeg), which is strict about damaged data and can scale while it decodes; all other
formats by Pillow, limited to the plugins of ``PILLOW_NAMES`` (some other plugins of Pillow start external programs).
"""

from __future__ import annotations

import contextlib
import io
import logging
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from ..rows import Reject
from .exif import read_exif
from .image_format import PILLOW_NAMES, sniff_extension
from .in_flight import ROOM

MAX_PIXELS = 100_000_000
"""Default limit of pixels in a picture: more than any camera of 2014 has; 300 MB as RGB."""

PILLOW_MAX_PIXELS = 178_956_970
"""Pillow refuses larger pictures itself (twice its MAX_IMAGE_PIXELS, which is not changed here)."""

MAX_SCANS = 100
"""Maximum number of scans of a JPEG. Progressive JPEGs have some ten. Each costs a pass over all pixels, so that decoding a
small file with thousands of scans takes hours (libjpeg-turbo's "Two issues with the JPEG standard", 2015)."""

# Warnings of libjpeg after which the data are still read in full: the picture is complete.
_HARMLESS_IN_JPEG = (
    "extraneous bytes",
    "Unknown Adobe",
    "unknown JFIF",
    "Invalid SOS",
    "Inconsistent progression",
    "ICC",
)
_UNSUPPORTED_IN_JPEG = ("Unsupported", "unsupported", "not supported", "Sorry", "subsampling")

# Without a handler, Python prints the errors that Pillow logs beside raising them.
logging.getLogger("PIL").addHandler(logging.NullHandler())

# Exceptions of Pillow's parsers for malformed data; MemoryError is left out, since it is a fault of the machine.
PILLOW_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
)

_TRANSPOSED = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a),
}


@dataclass(frozen=True, slots=True)
class Header:
    """Properties of an image file, known before its pixels are decoded.

    Attributes:
        extension: the true format, ``jpg``, ``png``, ``gif``, ``webp``, ``bmp`` or ``tif``.
        width: pixels as displayed, after the rotation by EXIF; so is ``height``.
        mode: Pillow's name of the pixel type: ``L``, ``RGB``, ``P``, ``RGBA``, ``CMYK``, ``I;16``, ...
        animated: whether the file is an animation of more than one frame.
    """

    extension: str
    width: int
    height: int
    mode: str
    animated: bool = False


def decode_rgb(data: bytes, *, min_short_side_px: int | None = None, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode an image file to upright RGB.

    The EXIF orientation is applied; palettes, greys and CMYK are converted as by Pillow's ``convert("RGB")``, which drops
    alpha; 16-bit greys keep their upper eight bits; an animation gives its first frame; ICC profiles are ignored.

    Args:
        data: bytes of a JPEG, PNG, GIF, WebP, BMP or TIFF file.
        min_short_side_px: for callers that scale down: a JPEG may be decoded at a smaller size (in eighths) at which the
            shorter side is at least this long, or as stored if that is less. Other formats are decoded in full.
        max_pixels: a picture with more pixels is rejected before it is decoded.

    Returns:
        uint8 of shape (height, width, 3), C-contiguous, 0 to 255, as encoded (sRGB as a rule).

    Raises:
        Reject: ``empty_file``, ``not_an_image``, ``unsupported_format``, ``too_many_pixels``, ``too_many_scans``,
            ``truncated`` or ``corrupt``.

    >>> from benchwright.curation.png import stored_png
    >>> decode_rgb(stored_png(np.full((2, 3), 200, np.uint8)))[0, 0]  # grey becomes RGB
    array([200, 200, 200], dtype=uint8)
    >>> decode_rgb(b"<html>")
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: not_an_image: begins with b'<html>'
    """
    with decoded_rgb(data, min_short_side_px=min_short_side_px, max_pixels=max_pixels) as pixels:
        return pixels


@contextlib.contextmanager
def decoded_rgb(data: bytes, *, min_short_side_px: int | None = None, max_pixels: int = MAX_PIXELS) -> Iterator[np.ndarray]:
    """Context manager form of ``decode_rgb``: the memory of the pixels counts in ``ROOM`` until the block ends."""
    header = read_header(data, max_pixels=max_pixels)
    orientation = read_exif(data).orientation
    short = min(header.width, header.height)
    side = min(min_short_side_px, short) if min_short_side_px else 0
    if header.extension == "tif":
        orientation = 1  # Pillow applies it itself
    if header.extension == "jpg" and header.mode != "CMYK":
        with ROOM.taken(_jpeg_bytes(data, header, side)):
            if (pixels := _decode_jpeg(data, side)) is not None:
                yield _upright(pixels, orientation)
                return
    if header.mode == "CMYK" and header.extension == "jpg":
        check_pixels(data, header, max_pixels=max_pixels)  # Pillow decodes the colours as specified, but overlooks damage
    with ROOM.taken(_pillow_bytes(header)):
        yield _upright(_decode_pillow(data, header.extension, max_pixels), orientation)


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    return np.ascontiguousarray(pixels if orientation == 1 else _TRANSPOSED[orientation](pixels))


def _jpeg_bytes(data: bytes, header: Header, side: int) -> int:
    """Maximum memory of ``_decode_jpeg`` and the rotation, as measured."""
    pixels = header.width * header.height
    eighths = min(-(-8 * side // min(header.width, header.height)), 8) if side else 8
    # For a progressive JPEG all coefficients are held in memory.
    return pixels * 6 * eighths**2 // 64 + (pixels * 6 if b"\xff\xc2" in data else 0)


def _pillow_bytes(header: Header) -> int:
    """Maximum memory of ``_decode_pillow``, as measured."""
    return header.width * header.height * (22 if header.extension == "webp" else 14)


def read_header(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Header:
    """Return format, size and pixel type without decoding. Raises ``Reject`` as ``decode_rgb`` does.

    >>> from benchwright.curation.png import stored_png
    >>> read_header(stored_png(np.zeros((48, 64, 3), np.uint8)))
    Header(extension='png', width=64, height=48, mode='RGB', animated=False)
    """
    if not data:
        raise Reject("empty_file", "0 bytes")
    extension = sniff_extension(data)
    if extension is None:
        raise Reject("not_an_image", f"begins with {data[:16]!r}")
    if extension not in PILLOW_NAMES:
        raise Reject("unsupported_format", f"{extension} is not among {', '.join(PILLOW_NAMES)}")
    header = _jpeg_header(data) if extension == "jpg" else _pillow_header(data, extension, max_pixels)
    if header.width < 1 or header.height < 1:
        raise Reject("corrupt", f"{header.width}x{header.height} pixels")
    _check_pixels(header.width, header.height, max_pixels)
    return header


def check_pixels(data: bytes, header: Header, *, max_pixels: int = MAX_PIXELS) -> None:
    """Read all pixel data of a file to detect ``truncated`` and ``corrupt`` files; cheaper than ``decode_rgb``.

    For JPEG all data pass through the entropy decoder, which detects damage; the picture is decoded at an eighth of its size.
    """
    if header.extension == "jpg":
        with ROOM.taken(_jpeg_bytes(data, header, 1)):
            if _decode_jpeg(data, 1) is not None:
                return
    with ROOM.taken(_pillow_bytes(header)), _pillow(data, header.extension, max_pixels) as image:
        _load(image)


def _check_pixels(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise Reject("too_many_pixels", f"{width}x{height} = {width * height} pixels, limit {max_pixels}")


def _jpeg_header(data: bytes) -> Header:
    try:
        rows, columns, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except KeyError as error:
        raise Reject(*_jpeg_reason(data, f"Unsupported subsampling or colour space: number {error} of TurboJPEG")) from None
    except ValueError as error:
        raise Reject(*_jpeg_reason(data, str(error))) from None
    scans = data.count(b"\xff\xda")
    if scans > MAX_SCANS:
        raise Reject("too_many_scans", f"{scans} scans, limit {MAX_SCANS}")
    height, width = int(rows), int(columns)
    if read_exif(data).orientation >= 5:
        height, width = width, height
    return Header("jpg", width, height, {"Gray": "L", "CMYK": "CMYK", "YCCK": "CMYK"}.get(colours, "RGB"))


def _jpeg_reason(data: bytes, message: str) -> tuple[str, str]:
    if "Premature end of JPEG" in message or b"\xff\xda" not in data:
        return "truncated", message
    if any(word in message for word in _UNSUPPORTED_IN_JPEG):
        return "unsupported_format", message
    return "corrupt", message


def is_damage_in_jpeg(message: str) -> bool:
    """Whether an error of simplejpeg tells that data are missing or damaged.

    >>> is_damage_in_jpeg("Corrupt JPEG data: bad Huffman code"), is_damage_in_jpeg("Unsupported JPEG process: SOF type 0xc9")
    (True, False)
    """
    return not any(words in message for words in (*_HARMLESS_IN_JPEG, *_UNSUPPORTED_IN_JPEG))


def _decode_jpeg(data: bytes, min_side_px: int) -> np.ndarray | None:
    """RGB pixels as stored; None after a harmless warning of libjpeg, so that Pillow decodes the file instead."""
    try:
        return simplejpeg.decode_jpeg(data, "RGB", min_height=min_side_px, min_width=min_side_px, strict=True)
    except ValueError as error:
        if any(words in str(error) for words in _HARMLESS_IN_JPEG):
            return None
        raise Reject(*_jpeg_reason(data, str(error))) from None


def _pillow_header(data: bytes, extension: str, max_pixels: int) -> Header:
    # Pillow does not notice a missing end if all rows of a PNG are there. GIFs are not checked: many lack their end.
    if extension == "png" and b"IEND" not in data:
        raise Reject("truncated", "no IEND chunk")
    with _pillow(data, extension, max_pixels) as image:
        width, height = image.size
        # More pages of a TIFF are not an animation. `is_animated` looks for a second frame and returns to the first.
        animated = extension != "tif" and bool(getattr(image, "is_animated", False))
        turned = extension != "tif" and read_exif(data).orientation >= 5
        return Header(extension, *((height, width) if turned else (width, height)), image.mode, animated)


def _decode_pillow(data: bytes, extension: str, max_pixels: int) -> np.ndarray:
    with _pillow(data, extension, max_pixels) as image:
        _load(image)
        if image.mode.startswith("I;16"):
            grey = np.asarray(image).astype(np.uint16) >> 8  # Pillow's own conversion would clip at 255
            return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)
        return np.asarray(image.convert("RGB"))


def _load(image: Image.Image) -> None:
    if image.mode in ("I", "F"):
        raise Reject("unsupported_format", f"pixels of mode {image.mode} have no range that is known")
    image.load()


@contextlib.contextmanager
def _pillow(data: bytes, extension: str, max_pixels: int) -> Iterator[Image.Image]:
    """Open an image; whatever Pillow raises about it, here or in the body of the block, becomes a ``Reject``."""
    try:
        with _quiet(), Image.open(io.BytesIO(data), formats=[PILLOW_NAMES[extension]]) as image:
            _check_pixels(*image.size, max_pixels)
            yield image
    except Image.DecompressionBombError as error:
        raise Reject("too_many_pixels", str(error)) from None
    except PILLOW_ERRORS as error:
        message = f"{type(error).__name__}: {error}"
        cut = isinstance(error, EOFError) or "truncated" in message.lower()
        raise Reject("truncated" if cut else "corrupt", message.replace("\n", " ")[:200]) from None


_quiet_lock = threading.Lock()
_quiet_state: dict[str, Any] = {"depth": 0, "manager": None}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Pillow's warnings about the picture (bombs, damaged metadata) from the user's terminal.

    ``warnings.catch_warnings`` changes process-wide state and is unsafe if threads leave it in another order than they
    entered it; here the first thread enters it and the last one leaves it.
    """
    with _quiet_lock:
        if _quiet_state["depth"] == 0:
            manager = warnings.catch_warnings()
            manager.__enter__()
            warnings.simplefilter("ignore")
            _quiet_state["manager"] = manager
        _quiet_state["depth"] += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_state["depth"] -= 1
            if _quiet_state["depth"] == 0:
                _quiet_state["manager"].__exit__(None, None, None)
