"""Corrected moments: roots of an image's moments, mapped to its illuminant by one matrix per camera.

Source: Finlayson, "Corrected-Moment Illuminant Estimation", ICCV 2013. The moments of degree d are the d-th roots of the
means of all products of d channels: 3 of degree 1 (corrected gray world), 9 up to degree 2, 19 up to degree 3. The roots make
them proportional to the exposure. The matrix C is trained by alternating least squares, since only the direction of a training
illuminant is known: min |D M C - L|^2, where the diagonal D scales each picture's moments M, and D and C are updated in turn.
(Scaling the lights L instead would let those of unusual pictures shrink to zero, and the matrix with them.)
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from .gray_edge import magnitude, positive
from .pictures import AnyPictures, Illuminants, LinearPictures, in_blocks, unit


def moments(pictures: LinearPictures, *, degree: int, order: int, sigma: float) -> NDArray[np.float64]:
    """Roots of moments up to ``degree`` (1, 2 or 3) of colours (order 0) or edges (1, 2): (n, 3), (n, 9) or (n, 19).

    >>> moments(LinearPictures.of(np.full((1, 2, 2, 3), [0.2, 0.4, 0.6])), degree=1, order=0, sigma=0).round(3)
    array([[0.2, 0.4, 0.6]])
    """
    if degree not in (1, 2, 3):
        raise ValueError(f"degree {degree}: moments of degree 1, 2 or 3 are known")
    values = magnitude(pictures.images, order=order, sigma=sigma) * pictures.usable[..., None]
    scale = values.max(axis=(1, 2, 3)).astype(np.float64)
    channels = np.moveaxis(values / np.where(scale > 0, scale, 1)[:, None, None, None].astype(np.float32), 3, 0)
    counts = pictures.usable.sum(axis=(1, 2))
    found: list[NDArray[np.float64]] = []
    for d in range(1, degree + 1):
        for chosen in combinations_with_replacement(range(3), d):
            product = channels[chosen[0]]
            for c in chosen[1:]:
                product = product * channels[c]
            found.append((product.sum(axis=(1, 2), dtype=np.float64) / counts) ** (1 / d))
    return np.stack(found, axis=1) * scale[:, None]


def fit_corrected_moments(
    pictures: AnyPictures, illuminants: Illuminants, *, degree: int, order: int, sigma: float, rounds: int = 100
) -> dict[str, NDArray[np.float64]]:
    """Train the matrix.

    Args:
        pictures: n pictures.
        illuminants: (n, 3), of any length.
        degree, order, sigma: see ``moments``.
        rounds: maximum number of alternations; training stops early when the matrix has converged.

    Returns:
        "matrix": (3, 9 or 19, 3).

    Raises:
        ValueError: fewer pictures than moments.

    >>> lights = np.random.default_rng(0).uniform(0.5, 1.0, (6, 3))
    >>> pictures = LinearPictures.of(np.tile(lights[:, None, None], (1, 4, 4, 1)))
    >>> fit_corrected_moments(pictures, lights, degree=1, order=0, sigma=0)["matrix"].shape
    (3, 3)
    """
    rows = unit(np.concatenate([moments(each, degree=degree, order=order, sigma=sigma) for each in in_blocks(pictures)]))
    lights = unit(illuminants)
    if len(rows) < rows.shape[1]:
        raise ValueError(f"{len(rows)} pictures: a matrix of {rows.shape[1]} moments needs at least as many")
    scales = np.ones((len(rows), 1))
    matrix = np.linalg.pinv(rows) @ lights
    for _ in range(rounds):
        mapped = rows @ matrix
        scales = (mapped * lights).sum(axis=1, keepdims=True) / np.maximum((mapped**2).sum(axis=1, keepdims=True), 1e-300)
        new = np.linalg.pinv(scales * rows) @ lights
        done = np.abs(new - matrix).max() <= 1e-10 * np.abs(matrix).max()
        matrix = new
        if done:
            break
    return {"matrix": matrix}


def corrected_moments(
    pictures: LinearPictures, matrix: NDArray[np.float64], *, degree: int, order: int, sigma: float
) -> Illuminants:
    """The illuminant of each picture from a learned matrix on moments of its colours or edges: (n, 3) of length 1.

    Negative components become 0; a picture without positive components gets the gray-world estimate.

    >>> lights = np.random.default_rng(0).uniform(0.5, 1.0, (6, 3))
    >>> pictures = LinearPictures.of(np.tile(lights[:, None, None], (1, 4, 4, 1)))  # all grey, each under its light
    >>> state = fit_corrected_moments(pictures, lights, degree=1, order=0, sigma=0)
    >>> found = corrected_moments(pictures, **state, degree=1, order=0, sigma=0)
    >>> bool(np.allclose(found, lights / np.linalg.norm(lights, axis=1, keepdims=True), atol=1e-3))
    True
    """
    rows = moments(pictures, degree=degree, order=order, sigma=sigma)
    return positive(rows @ matrix, pictures)
