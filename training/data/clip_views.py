"""From the frames of a clip to a tensor: TSN's augmentation for training, one centre crop for evaluation.

Source: Wang et al., "Temporal segment networks", ECCV 2016, with the settings of vCLIMB's released code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...curation.encoders.preprocess import Crop, normalise, prepare

Frame = NDArray[np.uint8]


@dataclass(frozen=True)
class ClipView:
    """How a clip is looked at.

    Attributes:
        segments: frames that the model sees.
        side_px: side of the square input.
        scales: sides that multi-scale cropping chooses from, as shares of the frame's shorter side; the two sides of a crop
            are neighbours in this list at most.
        flip: probability in [0, 1] that a clip is mirrored.
        mean, std: of red, green, blue, where white is 1.
    """

    segments: int
    side_px: int
    scales: tuple[float, ...]
    flip: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        if self.segments < 1 or self.side_px < 1 or not self.scales:
            raise ValueError(f"{self.segments} segments, side {self.side_px} px, scales {self.scales}: at least one each")
        if not all(0 < scale <= 1 for scale in self.scales) or not 0 <= self.flip <= 1:
            raise ValueError(f"scales {self.scales} in (0, 1], flip {self.flip} in [0, 1]")


def evaluation_view(frames: Sequence[Frame], view: ClipView) -> Tensor:
    """The shorter side scaled to 256 / 224 of the input's, the centre cut out: (segments, 3, side, side) float32."""
    crop = Crop(resize_px=view.side_px * 256 // 224, side_px=view.side_px, interpolation="bilinear")
    return normalise([prepare(frame, crop) for frame in frames], view.mean, view.std)


def training_view(frames: Sequence[Frame], view: ClipView, draws: np.random.Generator) -> Tensor:
    """One crop and one flip for all frames of a clip, drawn from ``draws``: (segments, 3, side, side) float32."""
    height, width = frames[0].shape[:2]
    left, top, crop_width, crop_height = draw_crop(height, width, view, draws)
    pixels = np.stack([frame[top : top + crop_height, left : left + crop_width] for frame in frames])
    if draws.random() < view.flip:
        pixels = pixels[:, :, ::-1]
    cut = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2)
    side = (view.side_px, view.side_px)
    if cut.shape[2:] != side:
        cut = torch.nn.functional.interpolate(cut, size=side, mode="bilinear", align_corners=False, antialias=True)
    return normalise(list(cut.numpy()), view.mean, view.std)


def draw_crop(height: int, width: int, view: ClipView, draws: np.random.Generator) -> tuple[int, int, int, int]:
    """(left, top, width, height) of a crop, in pixels: TSN's group multi-scale crop.

    Sides are the scales of the shorter side, cut to whole pixels, and within 3 px of the input's side exactly that; both
    come from places of the list that are at most one apart. The corner is one of 13: a grid of four quarters of the
    room that the crop leaves.
    """
    sides = [int(min(height, width) * scale) for scale in view.scales]
    sides = [
        view.side_px if abs(side - view.side_px) < 3 and view.side_px <= min(height, width) else max(side, 1) for side in sides
    ]
    pairs = [(w, h) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= 1]
    crop_width, crop_height = pairs[int(draws.integers(len(pairs)))]
    step_x, step_y = (width - crop_width) // 4, (height - crop_height) // 4
    x, y = _CORNERS[int(draws.integers(len(_CORNERS)))]
    return x * step_x, y * step_y, crop_width, crop_height


# Corners, centre, middles of the sides, and the middles of the four quarters, in quarters of the room.
_CORNERS = (
    *((x, y) for y in (0, 2, 4) for x in (0, 2, 4)),
    *((x, y) for y in (1, 3) for x in (1, 3)),
)
