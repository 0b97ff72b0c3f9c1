"""Camera raw files to linear raw RGB: black level taken off, full scale at 1, no white balance, no colour matrix, no curve.

LibRaw (rawpy) decodes; what it cannot, and files without a 2 x 2 Bayer pattern (X-Trans, Foveon, linear DNG), are ``Reject``.
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
"""Default limit: above every single-shot camera's of 2026, and 300 MB of raw values."""

SATURATED = 0.98
"""Default share of full scale from which a value counts as saturated."""

_TO_MIDDLE = {0: np.array([0, 0.75, 0.25], np.float32), 1: np.array([0.25, 0.75, 0], np.float32)}
"""Weights of a site's column or row and its neighbours in the middle of 2 x 2 sites."""

_STRIP_ROWS = 64

_ORIENTATION = {0: 1, 3: 3, 5: 8, 6: 6}  # LibRaw's flip -> EXIF's orientation


@dataclass(frozen=True)
class Bayer:
    """A mosaic as the sensor gave it.

    Attributes:
        mosaic: uint16 (height, width), the visible part, both even; raw levels.
        pattern: colours of its first two rows and columns, row by row, such as ``RGGB``.
        black: level of black of the four sites, float64 (2, 2).
        white: level of saturation of the four sites, float64 (2, 2).
        as_shot_neutral: what the camera took for white, raw R, G, B with G at 1, float64 (3,); None if it does not say.
        orientation: EXIF's, 1 to 8, which brings the picture upright; nothing here is turned.
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
        """The value of ``rgb`` that stands for full scale."""
        return 65535 if self.rgb.dtype == np.uint16 else 1


def read_bayer(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Bayer:
    """Decode a raw file.

    Args:
        data: of a DNG, CR2, NEF, ARW, KDC or any other file that LibRaw reads.
        max_pixels: limit of width times height of the sensor, judged before any pixel is decoded.

    Raises:
        Reject: ``empty_file``, ``not_raw``, ``truncated``, ``corrupt``, ``too_many_pixels``, ``no_bayer``, ``bad_levels``.
    """
    with _opened(data, max_pixels) as raw:
        return _bayer(raw)


_BYTES_A_PIXEL = 24
"""Memory that LibRaw and what follows take for a pixel of the sensor: levels, four colours, the mosaic's copy, the picture."""


class _opened:
    """An unpacked rawpy handle. What LibRaw says against the file becomes a ``Reject``; other pictures wait for its room."""

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
        return Reject("truncated", f"{len(data)} bytes: {_told(error)}")
    if isinstance(error, rawpy.LibRawError | ValueError | OverflowError):
        return Reject("corrupt", _told(error))
    return error


def _told(error: Exception) -> str:
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
    # LibRaw's own maximum is what the data can reach; a camera may tell more, channel by channel.
    told = raw.camera_white_level_per_channel
    white = np.full((2, 2), float(raw.white_level)) if told is None else np.asarray(told, dtype=np.float64)[pattern]
    white = np.where(white > 0, white, float(raw.white_level))
    if not (white > black).all():
        raise Reject("bad_levels", f"white {white.ravel().tolist()} is not above black {black.ravel().tolist()}")
    gains = np.asarray(raw.camera_whitebalance, dtype=np.float64)[:3]
    known = np.isfinite(gains).all() and (gains > 0).all() and not (gains == gains[0]).all()
    orientation = _ORIENTATION.get(int(raw.sizes.flip), 1)
    neutral = gains[1] / gains if known else None
    return Bayer(visible[:height, :width].copy(), letters, black, white, neutral, orientation)


def demosaic(bayer: Bayer, *, method: Literal["bin2", "bilinear"], saturated: float = SATURATED) -> Linear:
    """Linear raw RGB of a mosaic.

    Args:
        bayer: see ``read_bayer``.
        method: ``bin2`` makes one pixel of every 2 x 2 sites, at half the size. Each site lies half a raw pixel beside the
            middle, to which it is brought by straight lines between its like: all channels are then sharp alike, and edges have
            no fringes, which would bend a fit between two cameras. ``bilinear`` keeps the size (OpenCV, 16 bits: noise below
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
    """``demosaic`` by ``bin2``, in strips: what lies between mosaic and picture stays in the processor's cache."""
    height, width = bayer.mosaic.shape[0] // 2, bayer.mosaic.shape[1] // 2
    rgb = np.empty((height, width, 3), dtype=np.float32)
    over = np.zeros((height, width), dtype=bool)
    for top in range(0, height, _STRIP_ROWS):
        bottom = min(top + _STRIP_ROWS, height)
        first, last = max(top - 1, 0), min(bottom + 1, height)  # the neighbours of its first and last row
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
    """Saturation of a pixel and its neighbours, of which it is made, too."""
    return cv2.dilate(over.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)


def _sites(pattern: str) -> list[tuple[str, int, int]]:
    return [(letter, place // 2, place % 2) for place, letter in enumerate(pattern)]


def _level(black: float, white: float, share: float) -> int:
    return int(np.ceil(black + share * (white - black)))


def read_linear(
    data: bytes, *, method: Demosaic = "bin2", saturated: float = SATURATED, max_pixels: int = MAX_PIXELS
) -> tuple[Linear, Bayer]:
    """Decode a raw file to linear raw RGB, and give its mosaic, too.

    Args:
        data: see ``read_bayer``.
        method: see ``demosaic``; the others are LibRaw's at full size, in 16 bits, noise below black cut off.
        saturated: share of full scale from which a value counts as saturated.
        max_pixels: see ``read_bayer``.

    Raises:
        Reject: like ``read_bayer``.
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
            raise Reject("corrupt", _told(error)) from None
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
    """A picture (height, width, ...) turned by EXIF's orientation 1, 3, 6 or 8."""
    return np.rot90(picture, {1: 0, 3: 2, 6: -1, 8: 1}[orientation])
