"""Two random views of a picture for MoCo v2; the draws depend on the seed, the epoch, the key and the view alone.

Pictures are cropped one by one as bytes, since they differ in size; colours and blur are applied to batches, on any device,
with one number per picture for each operation. Operations are torchvision's (``transforms.v2.functional``, on floats, without
Pillow's rounding to bytes in between) in the order of the released code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...curation.rng import rng
from ..data.pictures import Pixels
from .settings import MocoView

_TRIES = 10
_LUMA = (0.2989, 0.587, 0.114)


@dataclass(frozen=True)
class Draws:
    """Random draws for n views, one row each.

    Attributes:
        crops: (n, 2 * 10 + 2) numbers in [0, 1): area and aspect of ten tries, vertical and horizontal position.
        flip: (n,) whether the view is mirrored.
        order: (n, 4) the order of brightness, contrast, saturation and hue (0 to 3).
        factors: (n, 4) their factors; not used where jitter is off.
        jitter, grey: (n,) whether they are applied.
        sigma: (n,) standard deviation of the blur in pixels; 0 for none.
    """

    crops: NDArray[np.float64]
    flip: NDArray[np.bool_]
    order: NDArray[np.int64]
    factors: NDArray[np.float32]
    jitter: NDArray[np.bool_]
    grey: NDArray[np.bool_]
    sigma: NDArray[np.float32]

    def __getitem__(self, rows: slice) -> Draws:
        return Draws(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def draw_views(view: MocoView, *, seed: int, epoch: int, keys: Sequence[str], number: int) -> Draws:
    """Draw view ``number`` of the pictures ``keys`` in an epoch."""
    count = 2 * _TRIES + 2
    u = np.stack([rng(seed, "moco view", f"{epoch}\0{number}\0{key}").random(count + 13) for key in keys])
    crops, chances, order, where = u[:, :count], u[:, count : count + 4], u[:, count + 4 : count + 8], u[:, count + 8 :]
    spread = np.array([view.brightness, view.contrast, view.saturation, view.hue])
    low, high = view.blur_sigma_px
    return Draws(
        crops,
        flip=chances[:, 0] < view.flip_chance,
        order=np.argsort(order, axis=1, kind="stable"),
        factors=(np.array([1, 1, 1, 0]) + spread * (2 * where[:, :4] - 1)).astype(np.float32),
        jitter=chances[:, 1] < view.jitter_chance,
        grey=chances[:, 2] < view.grey_chance,
        sigma=np.where(chances[:, 3] < view.blur_chance, low + (high - low) * where[:, 4], 0).astype(np.float32),
    )


def crop_box(height: int, width: int, u: NDArray[np.float64], view: MocoView) -> tuple[int, int, int, int]:
    """(top, left, height, width) of a crop as in torchvision's ``RandomResizedCrop``: the first try that fits, or the largest
    centre crop with an allowed aspect ratio.

    Args:
        height, width: size of the picture.
        u: a row of ``Draws.crops``.
        view: limits of area and aspect ratio.
    """
    (small, large), (narrow, wide) = view.crop_area, view.crop_aspect
    for area, ratio in u[: 2 * _TRIES].reshape(_TRIES, 2).tolist():
        share = (small + (large - small) * area) * height * width
        aspect = math.exp(math.log(narrow) + ratio * (math.log(wide) - math.log(narrow)))
        h, w = round(math.sqrt(share / aspect)), round(math.sqrt(share * aspect))
        if 0 < h <= height and 0 < w <= width:
            return int(u[-2] * (height - h + 1)), int(u[-1] * (width - w + 1)), h, w
    h = min(height, max(round(width / narrow), 1)) if width < narrow * height else height
    w = min(width, max(round(height * wide), 1)) if width > wide * height else width
    return (height - h) // 2, (width - w) // 2, h, w


def crops(pictures: Sequence[Pixels], draws: Draws, view: MocoView) -> Tensor:
    """(n, 3, side, side) uint8: a crop of each picture, scaled (bilinear, antialiased) and mirrored as drawn."""
    made = torch.empty((len(pictures), 3, view.side_px, view.side_px), dtype=torch.uint8)
    for number, picture in enumerate(pictures):
        top, left, height, width = crop_box(picture.shape[0], picture.shape[1], draws.crops[number], view)
        cut = torch.from_numpy(picture[top : top + height, left : left + width]).permute(2, 0, 1)[None]
        if (height, width) != (view.side_px, view.side_px):
            size = (view.side_px, view.side_px)
            cut = F.interpolate(cut, size=size, mode="bilinear", align_corners=False, antialias=True)
        made[number] = cut[0].flip(-1) if draws.flip[number] else cut[0]
    return made


def coloured(cuts: Tensor, draws: Draws, view: MocoView) -> Tensor:
    """(n, 3, side, side) float32, normalised: the crops with colour jitter, greyscale and blur, as drawn."""
    x = cuts.float().div_(255)
    order = np.where(draws.jitter[:, None], draws.order, -1)
    for place in range(4):
        for operation, change in enumerate(_CHANGES):
            _on_rows(x, order[:, place] == operation, change, draws.factors[:, operation])
    _on_rows(x, draws.grey, lambda some, _: _grey(some).expand_as(some), draws.sigma)
    _on_rows(x, draws.sigma > 0, lambda some, sigma: _blurred(some, sigma, view.blur_reach_px), draws.sigma)
    mean, std = (torch.tensor(each, device=x.device).view(1, 3, 1, 1) for each in (view.mean, view.std))
    return x.sub_(mean).div_(std)


def _on_rows(
    x: Tensor, which: NDArray[np.bool_], change: Callable[[Tensor, Tensor], Tensor], numbers: NDArray[np.float32]
) -> None:
    """Change some pictures in place, each with its own entry of ``numbers``."""
    rows = np.flatnonzero(which)
    if not len(rows):
        return
    number = torch.from_numpy(numbers[rows]).to(x.device).view(-1, 1, 1, 1)
    if len(rows) == len(x):
        x.copy_(change(x, number))
        return
    at = torch.from_numpy(rows).to(x.device)
    x[at] = change(x[at], number)


def _grey(x: Tensor) -> Tensor:
    """(n, 1, h, w)."""
    return (_LUMA[0] * x[:, :1]).add_(x[:, 1:2], alpha=_LUMA[1]).add_(x[:, 2:], alpha=_LUMA[2])


def _brightness(x: Tensor, factor: Tensor) -> Tensor:
    return (x * factor).clamp_(0, 1)


def _contrast(x: Tensor, factor: Tensor) -> Tensor:
    mean = _grey(x).mean((1, 2, 3), keepdim=True)
    return (x * factor).add_(mean * (1 - factor)).clamp_(0, 1)


def _saturation(x: Tensor, factor: Tensor) -> Tensor:
    return (x * factor).add_(_grey(x).mul_(1 - factor)).clamp_(0, 1)


def _hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of HSV by a share of the circle; value and chroma stay."""
    r, g, b = x.split(1, 1)
    high = torch.maximum(torch.maximum(r, g), b)
    chroma = high - torch.minimum(torch.minimum(r, g), b)
    safe = torch.where(chroma == 0, 1, chroma)
    sixths = torch.where(high == r, (g - b) / safe, torch.where(high == g, (b - r) / safe + 2, (r - g) / safe + 4))
    sixths += 6 * turn
    # How far each channel lies below the highest, by its distance on the circle of hues.
    shift = torch.tensor([5.0, 3.0, 1.0], device=x.device).view(1, 3, 1, 1)
    place = shift + sixths
    place -= (place / 6).floor_().mul_(6)  # five times as fast as torch's remainder
    return high - torch.minimum(place, 4 - place).clamp_(0, 1).mul_(chroma)


_CHANGES = (_brightness, _contrast, _saturation, _hue)


def _blurred(x: Tensor, sigma: Tensor, reach: int) -> Tensor:
    """Gaussian blur with each picture's own standard deviation, mirrored at the border.

    Computed by shifted sums, as the kernel is symmetric: on the CPU two to five times as fast as convolutions with one group
    per plane.
    """
    offsets = torch.arange(reach + 1, device=x.device, dtype=torch.float32)
    kernel = torch.exp(-0.5 * (offsets / sigma.view(-1, 1)) ** 2)
    kernel /= 2 * kernel.sum(1, keepdim=True) - kernel[:, :1]
    weights = kernel.view(len(x), 1, 1, 1, reach + 1).unbind(-1)
    for axis in (3, 2):
        size = x.shape[axis]
        padded = F.pad(x, (reach, reach, 0, 0) if axis == 3 else (0, 0, reach, reach), mode="reflect")
        x = x * weights[0]
        for far in range(1, reach + 1):
            both = padded.narrow(axis, reach - far, size) + padded.narrow(axis, reach + far, size)
            x.addcmul_(both, weights[far])
    return x
