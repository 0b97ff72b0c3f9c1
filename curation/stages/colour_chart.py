"""The classic ColorChecker in a linear picture: positions and colours of its 24 patches, and the illuminant on its greys.

Patches are numbered as on the chart: 0 dark skin to 5 bluish green in the first row, 18 white to 23 black in the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from ..rows import Reject
from .raw import Linear

ROWS, COLUMNS = 4, 6
GREYS = (18, 19, 20, 21, 22)
"""White to the second darkest grey; without the black patch, which is mostly noise and flare."""

_MARGIN = 1.35  # patch spacings from the centre of a corner patch to the corner of the mask: the frame is as wide as a patch
_MIN_PIXELS = 9
_TRIMMED = 0.2


@dataclass(frozen=True)
class Patches:
    """Colours of the patches.

    Attributes:
        colours: float64 (24, 3), linear raw RGB.
        saturated: bool (24,): whether a measured pixel is saturated.
        pixels: int64 (24,): number of measured pixels.
        spread: float64 (24,): standard deviation of green over its mean within the patch; large if the position is wrong.
    """

    colours: np.ndarray
    saturated: np.ndarray
    pixels: np.ndarray
    spread: np.ndarray


def patch_centres(corners: np.ndarray) -> np.ndarray:
    """Centres of all patches, float64 (24, 2), from those of the corner patches dark skin, bluish green, black, white, (4, 2).

    >>> patch_centres(np.array([[0.0, 0.0], [50.0, 0.0], [50.0, 30.0], [0.0, 30.0]]))[:3]
    array([[ 0.,  0.],
           [10.,  0.],
           [20.,  0.]])
    """
    known = np.array([[0, 0], [COLUMNS - 1, 0], [COLUMNS - 1, ROWS - 1], [0, ROWS - 1]], dtype=np.float32)
    grid = np.stack(np.meshgrid(np.arange(COLUMNS), np.arange(ROWS)), axis=-1).reshape(-1, 2)
    return _placed(grid, known, corners)


def outline(corners: np.ndarray) -> np.ndarray:
    """Outline of the chart with its frame, as a polygon (4, 2), from the centres of its corner patches."""
    known = np.array([[0, 0], [COLUMNS - 1, 0], [COLUMNS - 1, ROWS - 1], [0, ROWS - 1]], dtype=np.float32)
    return _placed(known + _MARGIN * np.sign(known - known.mean(axis=0)), known, corners)


def _placed(grid: np.ndarray, known: np.ndarray, corners: np.ndarray) -> np.ndarray:
    place = cv2.getPerspectiveTransform(known, np.asarray(corners, dtype=np.float32))
    return cv2.perspectiveTransform(grid.astype(np.float64)[None], place)[0]


def measure_patches(picture: Linear, corners: np.ndarray, *, share: float = 0.5) -> Patches:
    """Trimmed mean colour of the middle of each patch: per channel without the lowest and the highest tenth of its values.

    Args:
        picture: picture of the chart.
        corners: centres of the patches dark skin, bluish green, black and white in raw pixels (4, 2).
        share: side of the measured area, as a share of the distance between patches; a patch takes about 0.8 of it.

    Raises:
        Reject: ``chart_outside`` or ``chart_too_small``.
    """
    small = (np.asarray(corners, dtype=np.float64) - (picture.scale - 1) / 2) / picture.scale
    centres = patch_centres(small).reshape(ROWS, COLUMNS, 2)
    across = np.asarray(np.gradient(centres, axis=1)) * share / 2
    down = np.asarray(np.gradient(centres, axis=0)) * share / 2
    corner = np.stack([centres - across - down, centres + across - down, centres + across + down, centres - across + down], 2)
    height, width = picture.rgb.shape[:2]
    low, high = corner.min(axis=(0, 1, 2)), corner.max(axis=(0, 1, 2))
    if not np.isfinite(corner).all() or (low < 0).any() or high[0] > width - 1 or high[1] > height - 1:
        raise Reject("chart_outside", f"patches from {np.round(low).tolist()} to {np.round(high).tolist()} of {width}x{height}")
    colours, spread = np.empty((24, 3)), np.empty(24)
    saturated, pixels = np.empty(24, dtype=bool), np.empty(24, dtype=np.int64)
    for number, quad in enumerate(corner.reshape(-1, 4, 2)):
        (left, top), (right, bottom) = np.floor(quad.min(axis=0)).astype(int), np.ceil(quad.max(axis=0)).astype(int) + 1
        inside = np.zeros((bottom - top, right - left), dtype=np.uint8)
        cv2.fillConvexPoly(inside, np.round(quad - [left, top]).astype(np.int32), (1, 1, 1, 1))
        values = np.sort(picture.rgb[top:bottom, left:right][inside > 0].astype(np.float64), axis=0)
        pixels[number] = len(values)
        if len(values) < _MIN_PIXELS:
            raise Reject("chart_too_small", f"patch {number} has {len(values)} pixels, expected at least {_MIN_PIXELS}")
        cut = int(len(values) * _TRIMMED / 2)
        colours[number] = values[cut : len(values) - cut].mean(axis=0) / picture.full_scale
        spread[number] = values[:, 1].std() / max(values[:, 1].mean(), 1e-9)
        saturated[number] = picture.saturated[top:bottom, left:right][inside > 0].any()
    return Patches(colours, saturated, pixels, spread)


def light(patches: Patches, *, min_level: float = 0.01) -> np.ndarray:
    """Illuminant on the chart in raw R, G, B, float64 (3,), G at 1: the sum of all greys that are neither saturated nor dark.

    Args:
        patches: see ``measure_patches``.
        min_level: minimum of the weakest channel, as a share of full scale.

    Raises:
        Reject: ``chart_saturated`` or ``chart_dark`` if no grey is left.
    """
    greys = np.asarray(GREYS)
    clear = greys[~patches.saturated[greys]]
    if not len(clear):
        raise Reject("chart_saturated", "all grey patches are saturated")
    usable = clear[patches.colours[clear].min(axis=1) >= min_level]
    if not len(usable):
        brightest = patches.colours[clear].min(axis=1).max()
        raise Reject("chart_dark", f"the brightest grey that is not saturated has {brightest:.4f}, limit {min_level:g}")
    total = patches.colours[usable].sum(axis=0)
    return total / total[1]


def find_chart(picture: Linear) -> np.ndarray:
    """Centres of the corner patches in raw pixels, float64 (4, 2), in the order of ``patch_centres``, by OpenCV's detector.

    Raises:
        Reject: ``no_chart``.
    """
    bright = np.clip(picture.rgb / max(float(np.percentile(picture.rgb[::4, ::4], 99.5)), 1e-9), 0, 1)
    neutral = bright / np.maximum(bright.mean(axis=(0, 1)) / bright.mean(), 1e-9)
    shown = np.round(255 * np.clip(neutral, 0, 1) ** (1 / 2.2)).astype(np.uint8)
    detector = cv2.mcc.CCheckerDetector.create()
    detector.setColorChartType(cv2.mcc.MCC24)
    if not detector.process(np.ascontiguousarray(shown[..., ::-1]), 1):
        raise Reject("no_chart", "OpenCV's detector finds no 24-patch chart")
    # The detector returns the corners of the area of all 24 patches, clockwise from dark skin; centres lie half a patch inside.
    box = np.asarray(detector.getBestColorChecker().getBox(), dtype=np.float32)
    area = np.array([[-0.5, -0.5], [COLUMNS - 0.5, -0.5], [COLUMNS - 0.5, ROWS - 0.5], [-0.5, ROWS - 0.5]], dtype=np.float32)
    known = np.array([[0, 0], [COLUMNS - 1, 0], [COLUMNS - 1, ROWS - 1], [0, ROWS - 1]], dtype=np.float32)
    return _placed(known, area, box) * picture.scale + (picture.scale - 1) / 2
