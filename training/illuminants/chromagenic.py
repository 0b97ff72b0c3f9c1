"""Chromagenic estimation: the training light whose map from the first to the second camera fits a pair of images best.

Source: Finlayson, Hordley and Morovic, "Colour Constancy Using the Chromagenic Constraint", CVPR 2005. For each training
light a 3 x 3 map T takes colours without a filter to colours through it, here colours of one camera to those of another;
the estimate is the light of the map with the least sum of squares |P T - Q|^2 over the pixels of the pair.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .pictures import AnyPictures, Illuminants, LinearPictures, PictureArrays, in_blocks, unit

_BLOCK = 512  # rows of errors at once


def fit_chromagenic(pictures: AnyPictures, illuminants: Illuminants, *, chromaticities: bool) -> dict[str, NDArray[np.float64]]:
    """Fit one map per light.

    Args:
        pictures: n pairs, with ``second``.
        illuminants: (n, 3); pictures whose lights agree in direction, to six digits, share a light and its map.
        chromaticities: divide each pixel by its R + G + B first, so that the two cameras need no common exposure.

    Returns:
        "maps": (lights, 3, 3), rows times map; "lights": (lights, 3) of length 1. A light whose pixels do not span
        three dimensions gets the map of least norm.

    >>> view = np.random.default_rng(0).random((1, 8, 8, 3))
    >>> pictures = LinearPictures.of(view, second=view * [0.5, 1.0, 0.8])
    >>> state = fit_chromagenic(pictures, np.array([[1.0, 1.0, 1.0]]), chromaticities=False)
    >>> np.diag(state["maps"][0]).round(3)
    array([0.5, 1. , 0.8])
    """
    lights, group = np.unique(np.round(unit(illuminants), 6), axis=0, return_inverse=True)
    sums = [np.zeros((len(lights), 3, 3)) for _ in range(2)]
    first = 0
    for block in in_blocks(pictures):
        mine = group.reshape(-1)[first : first + len(block)]
        for total, part in zip(sums, _products(block, chromaticities)[:2], strict=True):
            np.add.at(total, mine, part)
        first += len(block)
    return {"maps": np.linalg.pinv(sums[0], rcond=1e-12, hermitian=True) @ sums[1], "lights": unit(lights)}


def chromagenic(
    pictures: LinearPictures, maps: NDArray[np.float64], lights: NDArray[np.float64], *, chromaticities: bool
) -> Illuminants:
    """The illuminant of each pair in the first camera, (n, 3) of length 1: one of ``lights``; ties go to the first.

    >>> view = np.random.default_rng(0).random((2, 8, 8, 3))
    >>> view[1] *= [2.0, 1.0, 1.0]  # under a red light, which the two filters see otherwise
    >>> pictures = LinearPictures.of(view, second=np.stack([view[0] * [0.5, 1.0, 0.8], view[1] * [0.4, 1.0, 0.9]]))
    >>> state = fit_chromagenic(pictures, np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0]]), chromaticities=False)
    >>> chromagenic(pictures, **state, chromaticities=False).round(2)
    array([[0.58, 0.58, 0.58],
           [0.82, 0.41, 0.41]])
    """
    pp, pq, qq = _products(pictures, chromaticities)
    # |P T - Q|^2 = tr(T' P'P T) - 2 tr(T' P'Q) + |Q|^2: linear in (T T', T), so that all lights are one product of matrices.
    of_map = np.concatenate([(maps @ maps.transpose(0, 2, 1)).reshape(-1, 9), -2 * maps.reshape(-1, 9)], axis=1)
    of_pair = np.concatenate([pp.reshape(-1, 9), pq.reshape(-1, 9)], axis=1) / qq[:, None]
    best = [(of_pair[start : start + _BLOCK] @ of_map.T).argmin(axis=1) for start in range(0, len(of_pair), _BLOCK)]
    return lights[np.concatenate(best)]


def _products(
    pictures: LinearPictures, chromaticities: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """P'P, P'Q, both (n, 3, 3), and |Q|^2, (n,), over the usable pixels."""
    if pictures.second is None:
        raise ValueError("chromagenic estimation needs pairs: pictures have no second camera")
    p, q = (_pixels(view, pictures.usable, chromaticities) for view in (pictures.images, pictures.second))
    return p.transpose(0, 2, 1) @ p, p.transpose(0, 2, 1) @ q, (q**2).sum(axis=(1, 2))


def _pixels(view: PictureArrays, usable: NDArray[np.bool_], chromaticities: bool) -> NDArray[np.float64]:
    """(n, pixels, 3), zeros where hidden."""
    colours = view.astype(np.float64)
    if chromaticities:
        total = colours.sum(axis=3, keepdims=True)
        colours /= np.where(total > 0, total, 1)
    return (colours * usable[..., None]).reshape(len(view), -1, 3)
