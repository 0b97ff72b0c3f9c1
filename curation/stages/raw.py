"""Camera raw files to linear raw RGB: black level subtracted, full scale at 1, no white balance, colour matrix or tone curve.

LibRaw (rawpy) decodes. Files that it cannot decode, or without a 2 x 2 Bayer pattern (X-Trans, Foveon, linear DNG), are
rejected.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
import rawpy

from ..rows import Reject
from .in_flight import ROOM

Demosaic = Literal["bin2", "bilinear", "ahd", "vng", "ppg", "dcb", "dht"]

MAX_PIXELS = 150_000_000
"""Default limit of pixels: more than any single-shot camera of 2026 has; 300 MB of raw values."""

SATURATED = 0.98
"""Default share of full scale from which a value counts as saturated."""

_TO_MIDDLE = {0: np.array([0, 0.75, 0.25], np.float32), 1: np.array([0.25, 0.75, 0], np.float32)}
"""Row or column of a site in its 2 x 2 block -> weights of the previous, this and the next site of its colour."""

_STRIP_ROWS = 64

_ORIENTATION = {0: 1, 3: 3, 5: 8, 6: 6}  # LibRaw's flip -> EXIF orientation


@dataclass(frozen=True)
class Bayer:
    """Mosaic of raw sensor values.

    Attributes:
        mosaic: raw levels of the visible part, uint16 (height, width), both even.
        pattern: colours of the first two rows and columns, row by row, such as ``RGGB``.
        black: black level of the four sites, float64 (2, 2).
        white: saturation level of the four sites, float64 (2, 2).
        as_shot_neutral: white point that the camera chose, raw R, G, B with G at 1, float64 (3,); None if it is not stored.
        orientation: EXIF orientation, 1, 3, 6 or 8, that brings the picture upright; the mosaic is not rotated.
    """

    mosaic: np.ndarray
    pattern: str
    black: np.ndarray
    white: np.ndarray
    as_shot_neutral: np.ndarray | None
    orientation: int


@dataclass(frozen=True)
class Linear:
    """A picture of linear raw RGB.

    Attributes:
        rgb: (height, width, 3); float32, 0 black and 1 full scale, noise may lie below 0; or uint16, 65535 full scale.
        saturated: bool (height, width): whether a raw value that the pixel is made of is saturated.
        scale: raw pixels along the side of a pixel, 1 or 2. Pixel ``x`` is at raw column ``scale * x + (scale - 1) / 2``.
    """

    rgb: np.ndarray
    saturated: np.ndarray
    scale: int

    @property
    def full_scale(self) -> int:
        """The value of ``rgb`` at full scale."""
        return 65535 if self.rgb.dtype == np.uint16 else 1


def read_bayer(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Bayer:
    """Decode a raw file.

    Args:
        data: bytes of a DNG, CR2, NEF, ARW, KDC or any other file that LibRaw reads.
        max_pixels: limit of width times height of the sensor, checked before any pixel is decoded.

    Raises:
        Reject: ``empty_file``, ``not_raw``, ``truncated``, ``corrupt``, ``too_many_pixels``, ``no_bayer``, ``bad_levels``.
    """
    with _opened(data, max_pixels) as raw:
        return _bayer(raw)


_BYTES_A_PIXEL = 24
"""Memory per sensor pixel in LibRaw and the steps after it: levels, four colours, the copy of the mosaic, the picture."""


class _opened:
    """An unpacked rawpy handle, which holds memory of ``ROOM`` while it is open. Errors of LibRaw become a ``Reject``."""

    def __init__(self, data: bytes, max_pixels: int) -> None:
        if not data:
            raise Reject("empty_file", "0 bytes")
        self._raw = rawpy.RawPy()
        self._held = contextlib.ExitStack()
        try:
            self._raw.open_buffer(io.BytesIO(data))
            sizes: Any = self._raw.sizes
            if sizes.raw_width * sizes.raw_height > max_pixels:
                raise Reject("too_many_pixels", f"{sizes.raw_width}x{sizes.raw_height} pixels, limit {max_pixels}")
            self._held.enter_context(ROOM.taken(sizes.raw_width * sizes.raw_height * _BYTES_A_PIXEL))
            self._raw.unpack()
        except BaseException as error:
            self.__exit__()
            raise _reject_of(error, data) from None

    def __enter__(self) -> Any:
        return self._raw

    def __exit__(self, *_: object) -> None:
        self._raw.close()
        self._held.close()


def _reject_of(error: BaseException, data: bytes) -> BaseException:
    if isinstance(error, rawpy.LibRawFileUnsupportedError):
        return Reject("not_raw", f"begins with {data[:16]!r}")
    if isinstance(error, rawpy.LibRawIOError):
        return Reject("truncated", f"{len(data)} bytes: {_error_text(error)}")
    if isinstance(error, rawpy.LibRawError | ValueError | OverflowError):
        return Reject("corrupt", _error_text(error))
    return error


def _error_text(error: Exception) -> str:
    text = error.args[0] if error.args else error
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def _bayer(raw: Any) -> Bayer:
    pattern = raw.raw_pattern if raw.raw_type == rawpy.RawType.Flat else None
    if pattern is None or pattern.shape != (2, 2):
        shape = "none" if pattern is None else f"{pattern.shape[0]} x {pattern.shape[1]}"
        raise Reject("no_bayer", f"colour pattern {shape}, expected 2 x 2")
    names = raw.color_desc.decode("ascii", "replace")
    letters = "".join(names[index] for index in pattern.ravel())
    if sorted(letters) != ["B", "G", "G", "R"]:
        raise Reject("no_bayer", f"colours {letters}, expected one R, two G and one B")
    visible = raw.raw_image_visible
    height, width = visible.shape[0] // 2 * 2, visible.shape[1] // 2 * 2
    if not height or not width:
        raise Reject("no_bayer", f"{visible.shape[1]}x{visible.shape[0]} pixels: smaller than one mosaic pattern")
    black = np.asarray(raw.black_level_per_channel, dtype=np.float64)[pattern]
    # LibRaw's own maximum is the highest value that the data can have; a camera may give its own, channel by channel.
    levels = raw.camera_white_level_per_channel
    white = np.full((2, 2), float(raw.white_level)) if levels is None else np.asarray(levels, dtype=np.float64)[pattern]
    white = np.where(white > 0, white, float(raw.white_level))
    if not (white > black).all():
        raise Reject("bad_levels", f"white {white.ravel().tolist()} is not above black {black.ravel().tolist()}")
    gains = np.asarray(raw.camera_whitebalance, dtype=np.float64)[:3]
    known = np.isfinite(gains).all() and (gains > 0).all() and not (gains == gains[0]).all()
    orientation = _ORIENTATION.get(int(raw.sizes.flip), 1)
    neutral = gains[1] / gains if known else None
    return Bayer(visible[:height, :width].copy(), letters, black, white, neutral, orientation)


def demosaic(bayer: Bayer, *, method: Literal["bin2", "bilinear"], saturated: float = SATURATED) -> Linear:
    """Convert a mosaic to linear raw RGB.

    Args:
        bayer: see ``read_bayer``.
        method: ``bin2`` makes one pixel of every 2 x 2 sites, at half the size. The value at the centre of the four sites is
            interpolated linearly from sites of the same colour: all channels are equally sharp, and edges have no colour
            fringes, which would bias a fit between two cameras. ``bilinear`` keeps the size (OpenCV, 16 bits: noise below
            black is cut off).
        saturated: share of full scale from which a value counts as saturated.
    """
    if method == "bin2":
        return _binned(bayer, saturated)
    levels = np.empty(bayer.mosaic.shape, dtype=np.uint16)
    over = np.empty(bayer.mosaic.shape, dtype=np.uint8)
    for _, row, column in _sites(bayer.pattern):
        site, black, white = bayer.mosaic[row::2, column::2], bayer.black[row, column], bayer.white[row, column]
        share = (site - black) / (white - black)
        levels[row::2, column::2] = np.round(np.clip(share, 0, 1) * 65535)
        over[row::2, column::2] = site >= _level(black, white, saturated)
    code = getattr(cv2, f"COLOR_Bayer{bayer.pattern}2RGB")
    return Linear(cv2.demosaicing(levels, code), _spread(over), 1)


def _binned(bayer: Bayer, saturated: float) -> Linear:
    """``demosaic`` by ``bin2``, in strips, so that intermediate values stay in the processor's cache."""
    height, width = bayer.mosaic.shape[0] // 2, bayer.mosaic.shape[1] // 2
    rgb = np.empty((height, width, 3), dtype=np.float32)
    over = np.zeros((height, width), dtype=bool)
    for top in range(0, height, _STRIP_ROWS):
        bottom = min(top + _STRIP_ROWS, height)
        first, last = max(top - 1, 0), min(bottom + 1, height)  # with the neighbours of the strip's first and last row
        planes: dict[str, list[np.ndarray]] = {"R": [], "G": [], "B": []}
        for letter, row, column in _sites(bayer.pattern):
            site = np.ascontiguousarray(bayer.mosaic[2 * first + row : 2 * last : 2, column::2])
            black, white = bayer.black[row, column], bayer.white[row, column]
            over[top:bottom] |= site[top - first : bottom - first] >= _level(black, white, saturated)
            gain = (0.5 if letter == "G" else 1.0) / (white - black)
            across, down = _TO_MIDDLE[column] * np.float32(gain), _TO_MIDDLE[row]
            filtered = cv2.sepFilter2D(site, cv2.CV_32F, across, down, delta=-gain * black, borderType=cv2.BORDER_REPLICATE)
            planes[letter].append(filtered[top - first : bottom - first])
        planes["G"][0] += planes["G"][1]
        cv2.merge([planes[letter][0] for letter in "RGB"], dst=rgb[top:bottom])
    return Linear(rgb, _spread(over), 2)


def _spread(over: np.ndarray) -> np.ndarray:
    """Mark also the neighbours of saturated pixels, since interpolation uses neighbouring values."""
    return cv2.dilate(over.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)


def _sites(pattern: str) -> list[tuple[str, int, int]]:
    return [(letter, place // 2, place % 2) for place, letter in enumerate(pattern)]


def _level(black: float, white: float, share: float) -> int:
    return int(np.ceil(black + share * (white - black)))


def read_linear(
    data: bytes, *, method: Demosaic = "bin2", saturated: float = SATURATED, max_pixels: int = MAX_PIXELS
) -> tuple[Linear, Bayer]:
    """Decode a raw file to linear raw RGB, and return its mosaic as well.

    Args:
        data: see ``read_bayer``.
        method: see ``demosaic``; further methods are those of LibRaw, at full size, in 16 bits, noise below black cut off.
        saturated: share of full scale from which a value counts as saturated.
        max_pixels: see ``read_bayer``.

    Raises:
        Reject: as ``read_bayer``.
    """
    with _opened(data, max_pixels) as raw:
        bayer = _bayer(raw)
        if method in ("bin2", "bilinear"):
            return demosaic(bayer, method=method, saturated=saturated), bayer
        try:
            rgb = raw.postprocess(
                demosaic_algorithm=rawpy.DemosaicAlgorithm[method.upper()],
                output_color=rawpy.ColorSpace.raw,
                output_bps=16,
                gamma=(1, 1),
                no_auto_bright=True,
                adjust_maximum_thr=0.0,
                user_wb=[1.0, 1.0, 1.0, 1.0],
                user_flip=0,
            )
        except rawpy.LibRawError as error:
            raise Reject("corrupt", _error_text(error)) from None
    height, width = bayer.mosaic.shape
    over = np.empty((height, width), dtype=bool)
    for _, row, column in _sites(bayer.pattern):
        level = _level(bayer.black[row, column], bayer.white[row, column], saturated)
        over[row::2, column::2] = bayer.mosaic[row::2, column::2] >= level
    return Linear(rgb[:height, :width], _spread(over), 1), bayer


def as_uint16(rgb: np.ndarray) -> np.ndarray:
    """Linear values as uint16 of the same shape: 0 and below become 0, 1 and above 65535."""
    return np.round(np.clip(rgb, 0, 1) * 65535).astype(np.uint16)


def upright(picture: np.ndarray, orientation: int) -> np.ndarray:
    """Rotate a picture (height, width, ...) upright by its EXIF orientation 1, 3, 6 or 8."""
    return np.rot90(picture, {1: 0, 3: 2, 6: -1, 8: 1}[orientation])
