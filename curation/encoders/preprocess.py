"""From an image file to an encoder's input, as by torchvision's Resize, CenterCrop and ToTensor, but three times as fast.

libjpeg-turbo decodes (``stages/decode.py``), and torch's uint8 antialiased resampling scales. Compared with the resampling of
Pillow, which open_clip's own transform uses, pixels differ by 0.003 grey levels on average and by at most 1. Unlike in
open_clip's transform, the EXIF rotation is applied: people see, caption and judge the upright picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..rows import Reject
from ..stages.decode import decoded_rgb
from .one_thread import one_thread

if TYPE_CHECKING:
    import torch

_MAX_ASPECT = 64
"""Scaling a strip of 1 x 20,000 pixels so that its shorter side is 224 would take 3 GB; panoramas end at about 20."""


@dataclass(frozen=True)
class Crop:
    """Scaling and centre crop of one encoder.

    Attributes:
        resize_px: length of the shorter side after scaling, in pixels.
        side_px: side of the square centre crop, in pixels.
        interpolation: ``bicubic`` or ``bilinear``, both antialiased.
        squash: scale both sides to ``resize_px``, whatever the aspect ratio.
        scaled_decode: decode large JPEGs at a smaller scale, with sides of at least twice ``resize_px``.
    """

    resize_px: int
    side_px: int
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    squash: bool = False
    scaled_decode: bool = False


def prepare(image: bytes | np.ndarray, crop: Crop) -> np.ndarray:
    """Decode, scale and crop one image.

    Args:
        image: an image file, or upright RGB pixels, uint8 of shape (height, width, 3).

    Returns:
        uint8 of shape (3, side_px, side_px), 0 to 255.

    Raises:
        Reject: the file cannot be decoded (``stages/decode.py`` has the reasons), or ``too_elongated``.
    """
    if isinstance(image, bytes):
        with one_thread(), decoded_rgb(image, min_short_side_px=2 * crop.resize_px if crop.scaled_decode else None) as pixels:
            return _cut(pixels, crop)
    with one_thread():
        return _cut(image, crop)


def _cut(image: np.ndarray, crop: Crop) -> np.ndarray:
    import torch

    if max(image.shape[:2]) > _MAX_ASPECT * min(image.shape[:2]):
        raise Reject("too_elongated", f"{image.shape[1]}x{image.shape[0]} pixels: aspect above {_MAX_ASPECT}")
    height, width = _scaled_size(image.shape[0], image.shape[1], crop)
    # A channels-last view of the decoder's memory: torch has a fast path for it, and nothing is copied.
    pixels = torch.from_numpy(np.require(image, requirements=["C", "W"])).permute(2, 0, 1)[None]
    if (height, width) != image.shape[:2]:
        pixels = torch.nn.functional.interpolate(
            pixels, size=(height, width), mode=crop.interpolation, align_corners=False, antialias=True
        )
    # Halves are rounded to even, as in torchvision's CenterCrop: a shift by one pixel would change pixels by 6.7 grey levels.
    top, left = round((height - crop.side_px) / 2), round((width - crop.side_px) / 2)
    return np.ascontiguousarray(pixels[0, :, top : top + crop.side_px, left : left + crop.side_px].numpy())


def _scaled_size(height: int, width: int, crop: Crop) -> tuple[int, int]:
    """Size after torchvision's Resize: the shorter side is exact, the longer one is truncated to an integer, not rounded."""
    if crop.squash:
        return crop.resize_px, crop.resize_px
    if height <= width:
        return crop.resize_px, int(crop.resize_px * width / height)
    return int(crop.resize_px * height / width), crop.resize_px


def scaled(image: np.ndarray, px: int, *, edge: Literal["shorter", "longer"]) -> np.ndarray:
    """The whole picture, scaled to ``px`` on one edge; the other is truncated to an integer, as in torchvision's Resize.

    Args:
        image: upright RGB, uint8 of shape (height, width, 3).
        px: length of the edge after scaling, in pixels.
        edge: the edge that ``px`` refers to.

    Returns:
        uint8 of shape (3, height, width).

    Raises:
        Reject: ``too_elongated``.
    """
    import torch

    height, width = image.shape[:2]
    by = min(height, width) if edge == "shorter" else max(height, width)
    if by * _MAX_ASPECT < max(height, width):
        raise Reject("too_elongated", f"{width}x{height} pixels: aspect above {_MAX_ASPECT}")
    size = tuple(px if side == by else max(px * side // by, 1) for side in (height, width))
    pixels = torch.from_numpy(np.require(image, requirements=["C", "W"])).permute(2, 0, 1)[None]
    if size != (height, width):
        with one_thread():
            pixels = torch.nn.functional.interpolate(pixels, size=size, mode="bilinear", align_corners=False, antialias=True)
    return np.ascontiguousarray(pixels[0].numpy())


def cut_centre(pixels: np.ndarray, side_px: int) -> np.ndarray:
    """Centre crop of shape (3, side_px, side_px) from (3, height, width), padded with black, as by torchvision's CenterCrop.

    Halves are rounded to even for cropping, and down for padding.
    """
    lengths = pixels.shape[1:]
    return _cut_at(pixels, side_px, [round((n - side_px) / 2) if n >= side_px else (side_px - n) // 2 for n in lengths])


def cut_window(pixels: np.ndarray, side_px: int, down: float, across: float) -> np.ndarray:
    """As ``cut_centre``, but with the position of the square chosen by two numbers in [0, 1)."""
    pairs = zip(pixels.shape[1:], (down, across), strict=True)
    return _cut_at(pixels, side_px, [int(number * (abs(length - side_px) + 1)) for length, number in pairs])


def _cut_at(pixels: np.ndarray, side: int, chosen: Sequence[int]) -> np.ndarray:
    """Square of the picture; ``chosen`` are the offsets (y, x) of the square in the picture, or, along an edge on which the
    picture is smaller, of the picture in the square.
    """
    sides = zip(pixels.shape[1:], chosen, strict=True)
    (top, y, rows), (left, x, columns) = ((at, 0, side) if length >= side else (0, at, length) for length, at in sides)
    if rows == columns == side:
        return pixels[:, top : top + side, left : left + side]
    made = np.zeros((3, side, side), dtype=np.uint8)
    made[:, y : y + rows, x : x + columns] = pixels[:, top : top + rows, left : left + columns]
    return made


def normalise(prepared: Sequence[np.ndarray], mean: Sequence[float], std: Sequence[float], device: str = "cpu") -> torch.Tensor:
    """(x / 255 - mean) / std by channel, equal to ToTensor and Normalize up to the last bit or two.

    Args:
        prepared: n arrays, uint8 of shape (3, side, side).
        mean: means of red, green and blue, in units in which white is 1.
        std: standard deviations of the channels, in the same units.
        device: torch device that computes, and to which pixels are sent as bytes.

    Returns:
        float32 of shape (n, 3, side, side), on the device.
    """
    import torch

    pixels = torch.from_numpy(np.stack(prepared)).to(device).to(torch.float32)
    shift, scale = (255 * torch.tensor(each, device=device).view(1, 3, 1, 1) for each in (mean, std))
    return pixels.sub_(shift).div_(scale)
