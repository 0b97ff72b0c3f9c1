"""Bright pixels: the average of the brightest few, which are white surfaces, highlights, or the light source.

Source: Joze, Drew, Finlayson and Troncoso Rey, "The Role of Bright Pixels in Illumination Estimation", Color and Imaging
Conference 2012: brightness is R + G + B, and the brightest fraction is averaged by a Minkowski norm.
"""

from __future__ import annotations

import numpy as np

from .gray_edge import norm
from .pictures import Illuminants, LinearPictures, unit


def bright_pixels(pictures: LinearPictures, *, fraction: float, p: float) -> Illuminants:
    """The illuminant of each picture from its brightest pixels.

    Args:
        pictures: n pictures.
        fraction: fraction of the usable pixels, in (0, 1], at least one pixel. Pixels tied with the last one are included, so
            that the order of pixels does not matter.
        p: exponent of the Minkowski norm, >= 1; ``math.inf`` takes the maximum.

    Returns:
        (n, 3) of length 1.

    Raises:
        ValueError: settings outside these ranges.

    >>> view = np.full((4, 4, 3), 0.1)
    >>> view[0, 0] = [0.6, 0.0, 0.8]
    >>> bright_pixels(LinearPictures.of(view), fraction=0.05, p=1).round(6)
    array([[0.6, 0. , 0.8]])
    """
    if not 0 < fraction <= 1 or not p >= 1:
        raise ValueError(f"fraction {fraction}, p {p}: a fraction in (0, 1] and p >= 1 are needed")
    brightness = np.where(pictures.usable, pictures.images.sum(axis=3), -1)
    counts = np.maximum(np.round(fraction * pictures.usable.sum(axis=(1, 2))), 1).astype(np.int64)
    ranked = np.sort(brightness.reshape(len(pictures), -1), axis=1)
    last = ranked[np.arange(len(pictures)), ranked.shape[1] - counts]
    return unit(norm(pictures.images, brightness >= last[:, None, None], p=p))
