"""Convert decoded frames to upright RGB and JPEG: the same for every decoder, with the same bytes on every processor.

Conversion is by swscale with its exact and bit-exact settings: without them the result depends on the processor's
instruction set. Pixels are treated as square.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import simplejpeg

from ..rows import Reject

if TYPE_CHECKING:
    from av import VideoFrame
    from av.sidedata.sidedata import SideData

    from .index import VideoIndex

_FULL_RANGE = 2
_LIMITED_RANGE = 1


class Orientation(NamedTuple):
    """Transformation of stored frames for display: transposed first, then flipped."""

    transposed: bool = False
    upside_down: bool = False
    mirrored: bool = False

    def turn(self, pixels: np.ndarray) -> np.ndarray:
        """Return the upright picture of a stored one, (height, width, 3), as a view."""
        if self.transposed:
            pixels = pixels.transpose(1, 0, 2)
        return pixels[:: -1 if self.upside_down else 1, :: -1 if self.mirrored else 1]

    @property
    def rotation_deg(self) -> int:
        """Clockwise rotation in degrees, 0, 90, 180 or 270; with a flip, the rotation before it."""
        if self.transposed:
            return 270 if self.upside_down else 90
        return 180 if self.upside_down else 0


def orientation_of(frame: VideoFrame) -> Orientation:
    """Orientation by a frame's display matrix. Raises ``Reject`` (``unsupported_rotation``) unless it is by quarter turns."""
    from av.sidedata.sidedata import Type

    side_data = cast("Iterable[SideData]", frame.side_data)
    matrix = next((bytes(data) for data in side_data if data.type is Type.DISPLAYMATRIX), None)
    if matrix is None:
        return Orientation()
    a, b, _, c, d = struct.unpack("=5i", matrix[:20])
    if a and d and not b and not c:
        return Orientation(False, d < 0, a < 0)
    if b and c and not a and not d:
        return Orientation(True, b < 0, c < 0)
    raise Reject("unsupported_rotation", f"display matrix {a} {b} {c} {d}, in 1/65536: only quarter turns are made")


def scaled_size(width_px: int, height_px: int, short_side_px: int | None) -> tuple[int, int]:
    """Width and height with the shorter side at ``short_side_px``, the other in proportion; never enlarged."""
    short = min(width_px, height_px)
    if short_side_px is None or short <= short_side_px:
        return width_px, height_px
    return max(1, round(width_px * short_side_px / short)), max(1, round(height_px * short_side_px / short))


class RgbConverter:
    """Scales the frames of one video and converts them to RGB by the file's colour matrix (default BT.601) and range.

    Args:
        index: index of the file.
        short_side_px: length of the shorter side, or None for as stored; see ``scaled_size``.
    """

    def __init__(self, index: VideoIndex, short_side_px: int | None) -> None:
        from av.video.reformatter import ColorRange, Interpolation, VideoReformatter

        self._index = index
        self._size = scaled_size(index.width_px, index.height_px, short_side_px)
        self._reformatter = VideoReformatter()
        self._how = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT
        self._range_out = ColorRange.JPEG

    def rgb(self, frame: VideoFrame, orientation: Orientation) -> np.ndarray:
        """Convert a frame to upright RGB, uint8 of shape (height, width, 3), 0 to 255.

        Raises:
            Reject: ``size_changes`` if the size of the frame is not that of the video, ``unsupported_pixels``.
        """
        index = self._index
        if (frame.width, frame.height) != (index.width_px, index.height_px):
            stated = f"{index.width_px}x{index.height_px}"
            raise Reject("size_changes", f"{stated} according to the file, but {frame.width}x{frame.height} in a frame")
        frame = _bare(frame)
        frame.colorspace = index.colour_matrix
        frame.color_range = _FULL_RANGE if index.full_range else _LIMITED_RANGE
        try:
            small = self._reformatter.reformat(
                frame, *self._size, "rgb24", interpolation=self._how, dst_color_range=self._range_out, threads=1
            )
        except (ValueError, OSError) as error:
            raise Reject("unsupported_pixels", f"{frame.format.name}: {error}") from None
        return np.ascontiguousarray(orientation.turn(small.to_ndarray()))


def _bare(frame: VideoFrame) -> VideoFrame:
    """The pixels of a frame without other metadata of the decoder (interlacing, chroma sample position).

    swscale would use this metadata, and frames from a decoder that does not set it would differ slightly.
    """
    from av import VideoFrame

    bare = VideoFrame(frame.width, frame.height, frame.format.name)
    for old, new in zip(frame.planes, bare.planes, strict=True):
        if old.buffer_size == new.buffer_size:
            new.update(cast(bytes, old))  # accepts any object with a buffer
            continue
        rows = np.zeros((new.buffer_size // new.line_size, new.line_size), np.uint8)
        width = min(old.line_size, new.line_size)
        rows[:, :width] = np.frombuffer(cast(bytes, old), np.uint8).reshape(-1, old.line_size)[: len(rows), :width]
        new.update(rows.tobytes())
    return bare


def encode_jpeg(pixels: np.ndarray, quality: int) -> bytes:
    """Encode uint8 RGB of shape (height, width, 3) as baseline JPEG with 4:2:0 chroma subsampling."""
    return simplejpeg.encode_jpeg(pixels, quality=quality, colorspace="RGB", colorsubsampling="420")
