"""From an image file's bytes to upright RGB pixels, safe with hostile files: what cannot be decoded is a ``Reject``.

JPEG goes through libjpeg-turbo (simplejpeg), which is strict about damaged data and can scale while it decodes; every
other format through Pillow, with plugins limited to those of ``PILLOW_NAMES`` (others of Pillow's start programs).
"""

from __future__ import annotations

import contextlib
import io
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
"""Default limit of pixels in a picture: above every camera's of 2014, and 300 MB as RGB."""

PILLOW_MAX_PIXELS = 178_956_970
"""Pillow refuses larger pictures itself (twice its MAX_IMAGE_PIXELS, which is not changed here)."""

MAX_SCANS = 100
"""Progressive JPEGs have some ten scans. Each costs a pass over all pixels, so that a small file with thousands of them
decodes for hours (libjpeg-turbo's "Two issues with the JPEG standard", 2015)."""

# Messages of libjpeg about data that are read in full none the less: the picture is whole.
_HARMLESS_IN_JPEG = (
    "extraneous bytes",
    "Unknown Adobe",
    "unknown JFIF",
    "Invalid SOS",
    "Inconsistent progression",
    "ICC",
)
_UNSUPPORTED_IN_JPEG = ("Unsupported", "unsupported", "not supported", "Sorry", "subsampling")

# What Pillow's parsers raise when the bytes are not what they expect; MemoryError is the machine's and is not listed.
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
    """What a file says about itself before its pixels are decoded.

    Attributes:
        extension: the true format, ``jpg``, ``png``, ``gif``, ``webp``, ``bmp`` or ``tif``.
        width: pixels as displayed, after EXIF's rotation; so is ``height``.
        mode: Pillow's name of the pixel type: ``L``, ``RGB``, ``P``, ``RGBA``, ``CMYK``, ``I;16``, ...
        animated: whether it has more than one frame to be shown in turn.
    """

    extension: str
    width: int
    height: int
    mode: str
    animated: bool = False


def decode_rgb(data: bytes, *, min_short_side_px: int | None = None, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode an image file to upright RGB.

    EXIF's orientation is applied; palettes, greys and CMYK are converted as by Pillow's ``convert("RGB")``, which drops
    alpha; 16-bit greys keep their upper eight bits; of an animation the first frame is taken; ICC profiles are ignored.

    Args:
        data: bytes of a JPEG, PNG, GIF, WebP, BMP or TIFF file.
        min_short_side_px: where the caller scales down anyway, a JPEG may be decoded at a smaller size (in eighths),
            the shorter side being at least this long, or as stored if that is less. Other formats decode in full.
        max_pixels: a picture with more is refused before it is decoded.

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
    """``decode_rgb`` for who makes the pixels smaller at once: other decoders wait for the room that they take."""
    header = read_header(data, max_pixels=max_pixels)
    orientation = read_exif(data).orientation
    short = min(header.width, header.height)
    side = min(min_short_side_px, short) if min_short_side_px else 0
    if header.extension == "tif":
        orientation = 1  # Pillow turns it
    if header.extension == "jpg" and header.mode != "CMYK":
        with ROOM.taken(_jpeg_bytes(data, header, side)):
            if (pixels := _decode_jpeg(data, side)) is not None:
                yield _upright(pixels, orientation)
                return
    with ROOM.taken(_pillow_bytes(header)):
        yield _upright(_decode_pillow(data, header.extension, max_pixels), orientation)


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    return np.ascontiguousarray(pixels if orientation == 1 else _TRANSPOSED[orientation](pixels))


def _jpeg_bytes(data: bytes, header: Header, side: int) -> int:
    """Memory that ``_decode_jpeg`` and turning take at most, as measured."""
    pixels = header.width * header.height
    eighths = min(-(-8 * side // min(header.width, header.height)), 8) if side else 8
    # Of a progressive one all coefficients are held.
    return pixels * 6 * eighths**2 // 64 + (pixels * 6 if b"\xff\xc2" in data else 0)


def _pillow_bytes(header: Header) -> int:
    """Memory that ``_decode_pillow`` takes at most, as measured."""
    return header.width * header.height * (22 if header.extension == "webp" else 14)


def read_header(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Header:
    """Format, size and pixel type, without decoding. Raises ``Reject`` like ``decode_rgb``.

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
    """Read all of the file's pixel data, for ``truncated`` and ``corrupt`` rejects; cheaper than ``decode_rgb``.

    For JPEG all data pass through the entropy decoder, where damage shows, and only an eighth of the size is
    transformed.
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
    except (ValueError, KeyError) as error:  # KeyError: a subsampling or colour space that it has no name for
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


def _decode_jpeg(data: bytes, min_side_px: int) -> np.ndarray | None:
    """RGB pixels as stored; None if libjpeg complained of something harmless, so that Pillow's reading may judge."""
    try:
        return simplejpeg.decode_jpeg(data, "RGB", min_height=min_side_px, min_width=min_side_px, strict=True)
    except (ValueError, KeyError) as error:
        if any(words in str(error) for words in _HARMLESS_IN_JPEG):
            return None
        raise Reject(*_jpeg_reason(data, str(error))) from None


def _pillow_header(data: bytes, extension: str, max_pixels: int) -> Header:
    # A PNG may lack its end and yet have given all its lines; GIFs in use often lack theirs.
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
    """The opened image; whatever Pillow raises about it, here or in the body, becomes a ``Reject``."""
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

    ``warnings.catch_warnings`` changes the process and is unsafe where threads leave it in another order than they
    entered; the first of our threads enters it here and the last one leaves.
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
