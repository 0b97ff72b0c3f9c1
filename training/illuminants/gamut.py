"""Gamut mapping, on colours and on edges: find the lights under which all observed colours are possible.

Sources: Forsyth, "A Novel Algorithm for Color Constancy", International Journal of Computer Vision 5(1), 1990; on edges,
Gijsenij, Gevers and van de Weijer, "Generalized Gamut Mapping using Image Derivative Structures for Color Constancy",
IJCV 86, 2010.

The canonical gamut is the convex hull of all colours seen under white light: training images, divided by their lights. A
diagonal map d is feasible for an image if it maps each of the image's colours into that hull. Each face of the hull and each
extreme colour of the image give one linear inequality in d, and the feasible map with the largest trace is chosen: a linear
program in three unknowns. Its light is 1 / d.
"""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import NDArray

from .gray_edge import gradients, magnitude, or_gray_world
from .pictures import AnyPictures, Illuminants, LinearPictures, in_blocks, unit

Floats = NDArray[np.float64]
_BLOCK = 256  # images at once
_FITS = 1e-3  # a map with a channel below this share of what the channel alone would allow does not fit
_GROWTH = 1.05
_TOLERANCE = 1e-9


def fit_gamut(
    pictures: AnyPictures, illuminants: Illuminants, *, order: int, sigma: float, levelled: bool = False
) -> dict[str, Floats]:
    """Compute the canonical gamut.

    Args:
        pictures: n pictures.
        illuminants: (n, 3); pictures whose light is 0 in a channel are ignored. The hull is tighter if lengths are the
            strengths of the lights.
        order: 0 for colours, 1 for edges.
        sigma: width of the Gaussian, in pixels; 0 for none, allowed only for colours.
        levelled: scale every picture to one level first (the 99th percentile of its strongest channel): if lights have no
            strength and exposures differ, the hull is otherwise that of the brightest pictures.

    Returns:
        "corners": (m, 3), the hull's extreme colours: black and others, or edges and their opposites.

    Raises:
        ValueError: the colours span no volume.

    >>> pictures = LinearPictures.of(np.random.default_rng(0).random((2, 8, 8, 3)))
    >>> fit_gamut(pictures, np.ones((2, 3)), order=0, sigma=0)["corners"].shape[1]
    3
    """
    lights = np.asarray(illuminants, dtype=np.float64)
    known = np.flatnonzero((lights > 0).all(axis=1))
    corners = np.zeros((1, 3))
    lights, pictures = lights[known], pictures[known]
    at = 0
    for block in in_blocks(pictures):
        levels = _levels(block) if levelled else np.ones(len(block))
        seen = _values(block, order, sigma) / (lights[at : at + len(block)] * levels[:, None])[:, None]
        at += len(block)
        corners = _extreme(np.concatenate([corners, seen[seen.any(axis=2)]]))
    corners = np.concatenate([corners, -corners]) if order else corners
    _faces(corners)
    return {"corners": corners}


def gamut(pictures: LinearPictures, corners: Floats, *, order: int, sigma: float, levelled: bool = False) -> Illuminants:
    """The illuminant of each picture from its gamut, mapped into the gamut of the canonical light: (n, 3) of length 1.

    If no map fits, the canonical gamut is enlarged about its centre by 5 per cent at a time, up to twice its size (our choice);
    a picture that still does not fit, or has no edge in some channel, gets the gray-world estimate. The picture's own level
    does not matter, so ``levelled`` affects only the training.

    >>> pictures = LinearPictures.of(np.random.default_rng(0).random((2, 16, 16, 3)))
    >>> state = fit_gamut(pictures, np.ones((2, 3)), order=0, sigma=0)
    >>> gamut(pictures[:1], **state, order=0, sigma=0).round(1)  # the light of a picture that was learned from
    array([[0.6, 0.6, 0.6]])
    """
    lights = np.zeros((len(pictures), 3))
    for start in range(0, len(pictures), _BLOCK):
        rows = slice(start, start + _BLOCK)
        values = _values(pictures[rows], order, sigma)
        lights[rows] = _lights([_extreme(a) for a in values], corners)
    return unit(or_gray_world(lights, pictures))


def largest_trace(points: Floats, normals: Floats, offsets: Floats, reach: Floats) -> Floats:
    """Diagonal maps d >= 0 of largest trace that map points into a convex body, by the dual simplex method for all images.

    Args:
        points: (n, m, 3); in each channel of each image some value is not 0. Repeated points have no effect.
        normals, offsets: (faces, 3), (faces,): x is in the body if normals x <= offsets. The origin is in it.
        reach: (3,), |x| <= reach for all x in the body.

    Returns:
        (n, 3), such that normals (d * point) <= offsets for all points, with the largest sum.
    """
    bound = reach / np.abs(points).max(axis=1)  # each channel alone cannot leave the body's box
    active = np.broadcast_to(np.eye(3), (len(points), 3, 3)).copy()  # three inequalities a d <= bound that hold with equality
    d = bound.copy()
    slack = _TOLERANCE * reach.max()
    todo = np.arange(len(points))
    for _ in range(200):  # images need 10 to 20; the limit is for cycles among equal faces
        excess = ((points[todo] * d[todo, None]) @ normals.T - offsets).reshape(len(todo), -1)
        worst = excess.argmax(axis=1)
        point, face = np.divmod(worst, len(offsets))
        entering, enters = normals[face] * points[todo, point], offsets[face]
        channel = d[todo].argmin(axis=1)
        below = d[todo, channel] < -slack
        entering[below], enters[below] = -np.eye(3)[channel[below]], 0
        wrong = below | (excess[np.arange(len(todo)), worst] > slack)
        todo, entering, enters = todo[wrong], entering[wrong], enters[wrong]
        if not len(todo):
            break
        # The trace's gradient combines the active inequalities with weights >= 0; the one whose weight reaches 0 first leaves.
        turned = active[todo].transpose(0, 2, 1)
        sides = np.stack([np.ones_like(entering), entering], axis=2)
        weight, share = np.moveaxis(np.linalg.solve(turned, sides), 2, 0)
        rises = share > _TOLERANCE * np.abs(share).max(axis=1, keepdims=True)
        leaves = np.where(rises, np.maximum(weight, 0) / np.where(rises, share, 1), np.inf).argmin(axis=1)
        active[todo, leaves], bound[todo, leaves] = entering, enters
        d[todo] = np.linalg.solve(active[todo], bound[todo][..., None])[..., 0]
    return np.maximum(d, 0)


def _lights(seen: list[Floats], corners: Floats) -> Floats:
    """1 / d for each image's extreme values; zeros where no map fits."""
    most = max(len(a) for a in seen)
    points = np.stack([np.pad(a, ((0, most - len(a)), (0, 0)), mode="edge") for a in seen])
    scale = np.abs(points).max(axis=(1, 2))
    points /= np.where(scale > 0, scale, 1)[:, None, None]
    largest = np.abs(points).max(axis=1)
    lights = np.zeros((len(points), 3))
    todo = np.flatnonzero((largest > 0).all(axis=1))
    normals, offsets = _faces(corners)
    centre, reach = corners.mean(axis=0), np.abs(corners).max(axis=0)
    size = 1.0
    while len(todo) and size <= 2:
        grown = size * offsets + (1 - size) * (normals @ centre)
        d = largest_trace(points[todo], normals, grown, size * reach + (size - 1) * np.abs(centre))
        fits = (d * largest[todo] > _FITS * reach).all(axis=1)
        lights[todo[fits]] = scale[todo[fits], None] / d[fits]
        todo = todo[~fits]
        size *= _GROWTH
    return lights


def _faces(corners: Floats) -> tuple[Floats, Floats]:
    """Normals (m, 3) and offsets (m,) of a hull's faces, each face once."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        equations = ConvexHull(corners).equations
    except (QhullError, ValueError) as error:
        raise ValueError(f"a gamut of {len(corners)} extreme values has no volume: it has too few colours") from error
    faces = np.unique(np.round(equations, 12), axis=0)  # qhull cuts a face of many corners into triangles
    return faces[:, :3], np.maximum(-faces[:, 3], 0)  # the origin is inside


def _levels(pictures: LinearPictures) -> Floats:
    """Level of each picture, (n,), above 0."""
    strongest = pictures.images.max(axis=3)
    levels = [np.quantile(one[usable], 0.99) for one, usable in zip(strongest, pictures.usable, strict=True)]
    return np.where(np.array(levels) > 0, levels, strongest.max(axis=(1, 2))).astype(np.float64)


def _values(pictures: LinearPictures, order: int, sigma: float) -> Floats:
    """Colours or edges, (n, m, 3) float64; zeros where hidden."""
    usable = pictures.usable.reshape(len(pictures), -1, 1)
    if order == 1:
        parts = gradients(pictures.images, sigma=sigma)
    elif order == 0:
        parts = (magnitude(pictures.images, order=0, sigma=sigma),)
    else:
        raise ValueError(f"order {order}: gamuts of colours (0) and of edges (1) are known")
    return np.concatenate([a.reshape(len(pictures), -1, 3) * usable for a in parts], axis=1).astype(np.float64)


def _extreme(values: Floats) -> Floats:
    """The values that span the convex hull; all distinct ones if they span no volume."""
    from scipy.spatial import ConvexHull, QhullError

    with contextlib.suppress(QhullError, ValueError):
        values = values[ConvexHull(values).vertices]
    rows = values[np.lexsort(values.T)]  # np.unique of rows sorts ten times slower
    return rows[np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)])]
