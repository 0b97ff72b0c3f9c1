"""Principal direction of the brightest and the darkest pixels.

Source: Cheng, Prasad and Brown, "Illuminant estimation for color constancy: why spatial-domain methods work and the role
of the color distribution", JOSA A 31(5), 2014: pixels are ranked by their projection on the mean colour; the first and
the last n per cent (3.5 in the paper) are kept, and the illuminant is the first principal direction of these colours,
which are not centred.
"""

from __future__ import annotations

import numpy as np

from .gray_edge import norm
from .pictures import Illuminants, LinearPictures, unit


def bright_dark_pca(pictures: LinearPictures, *, fraction: float) -> Illuminants:
    """The illuminant of each picture from the colours farthest from its mean colour.

    Args:
        pictures: n pictures.
        fraction: fraction of the usable pixels at either end, in (0, 0.5], at least one pixel. Pixels tied with the last one
            are included.

    Returns:
        (n, 3) of length 1.

    >>> pixels = np.linspace(0.1, 1.0, 64).reshape(1, 8, 8, 1) * [0.6, 0.64, 0.48]  # one hue, dark to bright
    >>> bright_dark_pca(LinearPictures.of(pixels), fraction=0.1).round(3)
    array([[0.6 , 0.64, 0.48]])
    """
    if not 0 < fraction <= 0.5:
        raise ValueError(f"fraction {fraction}: expected a share in (0, 0.5] for each end")
    colours = pictures.images.reshape(len(pictures), -1, 3)
    usable = pictures.usable.reshape(len(pictures), -1)
    mean = unit(norm(pictures.images, pictures.usable, p=1)).astype(np.float32)
    along = np.matmul(colours, mean[:, :, None])[..., 0]
    sizes = usable.sum(axis=1)
    counts = np.maximum(np.round(fraction * sizes), 1).astype(np.int64)
    ranked = np.sort(np.where(usable, along, np.inf), axis=1)  # hidden pixels come last
    rows = np.arange(len(pictures))
    dark, bright = ranked[rows, counts - 1], ranked[rows, sizes - counts]
    kept = usable & ((along <= dark[:, None]) | (along >= bright[:, None]))
    chosen = np.where(kept[..., None], colours, 0)
    chosen /= chosen.max(axis=(1, 2), keepdims=True)
    scatter = np.matmul(chosen.transpose(0, 2, 1), chosen).astype(np.float64)
    # Colours are not negative, so neither is the first direction, once its sign is chosen.
    return unit(np.abs(np.linalg.eigh(scatter).eigenvectors[:, :, -1]))
