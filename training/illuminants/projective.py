"""Bias correction: another estimator's answer, mapped by a projective transform that is learned from training pictures.

Sources: Finlayson, "Colour and illumination in computer vision", Interface Focus 8, 2018: only a light's direction matters, so
a 3 x 3 matrix is a homography of chromaticities. It is fitted by alternating least squares, min |D E H - L|^2 over H and a
diagonal D: the estimates E of training pictures are scaled to be nearest to the true lights L, and H is fitted again. Afifi,
Punnappurath, Finlayson and Brown, "As-projective-as-possible bias correction for illumination estimation algorithms", JOSA A
36(1), 2019: each answer has its own homography, in which training pictures with a similar estimate count more. A picture's
weight is exp(-angle / sigma^2), with the angle between the two estimates in degrees, and at least gamma; both sides of the
equation are multiplied by it. With gamma = 1 this is the single homography of all.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bright_dark_pca import bright_dark_pca
from .bright_pixels import bright_pixels
from .gray_edge import gray_edge, positive
from .pictures import AnyPictures, Illuminants, LinearPictures, in_blocks, unit
from .weighted_gray_edge import weighted_gray_edge

Floats = NDArray[np.float64]

_SETTLED = 1e-6  # root of the mean squared change of the scales in a round
_STEP = 1.9  # factor on a round's change: over-relaxation converges to the same in half the rounds

_CORRECTED: dict[str, Callable[..., Illuminants]] = {
    each.__name__: each for each in (bright_dark_pca, bright_pixels, gray_edge, weighted_gray_edge)
}


def homographies(estimates: Illuminants, lights: Illuminants, weights: Floats, *, rounds: int = 1000) -> Floats:
    """Matrices H, (m, 3, 3), for which ``estimates @ H`` has the directions of ``lights``, by alternating least squares.

    Args:
        estimates, lights: (n, 3), of any length.
        weights: (m, n) weights of the rows in each fit, above 0.
        rounds: maximum number of rounds; a fit ends when its scales have converged.

    Raises:
        ValueError: fewer than three rows.

    >>> estimates = np.random.default_rng(0).uniform(0.2, 1.0, (9, 3))
    >>> bias = np.array([[1.0, 0.1, 0.2], [0.1, 0.8, 0.3], [0.4, 0.2, 1.5]])
    >>> [found] = homographies(estimates, estimates @ bias, np.ones((1, 9)))
    >>> (found / found[0, 0]).round(3)
    array([[1. , 0.1, 0.2],
           [0.1, 0.8, 0.3],
           [0.4, 0.2, 1.5]])
    """
    if len(estimates) < 3:
        raise ValueError(f"{len(estimates)} pictures: a homography of lights needs 3 at least")
    rows, truth = unit(estimates), unit(lights)
    # A round depends on the rows only through linear functions of these products: (n, 9) each.
    own, other = ((rows[:, :, None] * each[:, None, :]).reshape(-1, 9) for each in (rows, truth))
    squares = weights**2
    scales = np.broadcast_to((rows * truth).sum(axis=1), weights.shape).copy()
    found = np.empty((len(weights), 3, 3))
    todo = np.arange(len(weights))
    for _ in range(rounds):
        scaled = squares[todo] * scales[todo]
        gram, cross = ((scaled * scales[todo]) @ own).reshape(-1, 3, 3), (scaled @ other).reshape(-1, 3, 3)
        matrix = found[todo] = np.linalg.pinv(gram, rcond=1e-12, hermitian=True) @ cross
        lengths = (matrix @ matrix.transpose(0, 2, 1)).reshape(-1, 9) @ own.T  # |row H|^2
        change = matrix.reshape(-1, 9) @ other.T / np.maximum(lengths, 1e-300) - scales[todo]
        scales[todo] += _STEP * change
        todo = todo[np.sqrt((change**2).mean(axis=1)) >= _SETTLED]
        if not len(todo):
            break
    return found


def fit_projective(pictures: AnyPictures, illuminants: Illuminants, *, of: str, **settings: Any) -> dict[str, Floats]:
    """Train a single homography for all pictures.

    Args:
        pictures: n pictures, at least 3.
        illuminants: (n, 3), of any length.
        of: the estimator to correct, such as ``gray_edge``.
        settings: settings of that estimator.

    Returns:
        "matrix": (3, 3).

    >>> lights = np.random.default_rng(0).uniform(0.5, 1.0, (6, 3))
    >>> pictures = LinearPictures.of(np.tile(lights[:, None, None], (1, 4, 4, 1)))
    >>> fit_projective(pictures, lights, of="gray_edge", order=0, p=1, sigma=0)["matrix"].shape
    (3, 3)
    """
    [matrix] = homographies(_answers(pictures, of, settings), illuminants, np.ones((1, len(pictures))))
    return {"matrix": matrix}


def projective(pictures: LinearPictures, matrix: Floats, *, of: str, **settings: Any) -> Illuminants:
    """The illuminant of each picture from another estimator, corrected by one homography: (n, 3) of length 1.

    >>> lights = np.random.default_rng(0).uniform(0.5, 1.0, (6, 3))
    >>> pictures = LinearPictures.of(np.tile(lights[:, None, None], (1, 4, 4, 1)))
    >>> state = fit_projective(pictures, lights * [2.0, 1.0, 1.0], of="gray_edge", order=0, p=1, sigma=0)
    >>> found = projective(pictures, **state, of="gray_edge", order=0, p=1, sigma=0)
    >>> bool(np.allclose(found, unit(lights * [2.0, 1.0, 1.0]), atol=1e-3))
    True
    """
    return positive(_answers(pictures, of, settings) @ matrix, pictures)


def fit_as_projective_as_possible(
    pictures: AnyPictures, illuminants: Illuminants, *, width_deg: float, least: float, of: str, **settings: Any
) -> dict[str, Floats]:
    """Store the estimates of the training pictures with their lights: a homography is fitted for each answer.

    Args:
        pictures, illuminants, of, settings: see ``fit_projective``.
        width_deg, least: parameters of the weights, see ``as_projective_as_possible``.

    Returns:
        "estimates" and "lights": (n, 3) of length 1.

    Raises:
        ValueError: fewer than 3 pictures, or settings outside their range.

    >>> pictures = LinearPictures.of(np.random.default_rng(0).random((4, 8, 8, 3)))
    >>> state = fit_as_projective_as_possible(
    ...     pictures, np.ones((4, 3)), width_deg=3, least=0.065, of="gray_edge", order=0, p=1, sigma=0
    ... )
    >>> state["estimates"].shape, state["lights"].shape
    ((4, 3), (4, 3))
    """
    _check_weights(width_deg, least)
    if len(pictures) < 3:
        raise ValueError(f"{len(pictures)} pictures: a homography of lights needs 3 at least")
    return {"estimates": _answers(pictures, of, settings), "lights": unit(illuminants)}


def as_projective_as_possible(
    pictures: LinearPictures,
    estimates: Floats,
    lights: Floats,
    *,
    width_deg: float,
    least: float,
    of: str,
    **settings: Any,
) -> Illuminants:
    """The illuminant of each picture from another estimator, corrected by its own homography: (n, 3) of length 1.

    Args:
        pictures: n pictures.
        estimates, lights: estimates and lights of the training pictures.
        width_deg: above 0; a training picture whose estimate is width_deg^2 degrees away has weight 1 / e. The authors' code
            has 3.
        least: weight of distant training pictures, in (0, 1]; 1 is ``projective``. The authors' code has 0.065.
        of, settings: see ``fit_projective``.

    >>> lights = np.random.default_rng(0).uniform(0.5, 1.0, (6, 3))
    >>> pictures = LinearPictures.of(np.tile(lights[:, None, None], (1, 4, 4, 1)))
    >>> own = dict(width_deg=3.0, least=0.065, of="gray_edge", order=0, p=1, sigma=0)
    >>> state = fit_as_projective_as_possible(pictures, lights * [2.0, 1.0, 1.0], **own)
    >>> bool(np.allclose(as_projective_as_possible(pictures, **state, **own), unit(lights * [2.0, 1.0, 1.0]), atol=1e-3))
    True
    """
    _check_weights(width_deg, least)
    answers = _answers(pictures, of, settings)
    angles = np.degrees(np.arccos(np.clip(answers @ estimates.T, -1, 1)))
    weights = np.maximum(np.exp(-angles / width_deg**2), least)
    return positive((answers[:, None] @ homographies(estimates, lights, weights))[:, 0], pictures)


def _check_weights(width_deg: float, least: float) -> None:
    if not 0 < width_deg < math.inf or not 0 < least <= 1:
        raise ValueError(f"width_deg {width_deg}, least {least}: a width above 0 and a least weight in (0, 1] are needed")


def _answers(pictures: AnyPictures, of: str, settings: dict[str, Any]) -> Illuminants:
    if of not in _CORRECTED:
        raise ValueError(f"of {of!r}: answers of {', '.join(_CORRECTED)} can be corrected")
    try:
        inspect.signature(_CORRECTED[of]).bind(pictures, **settings)
    except TypeError as error:
        raise ValueError(f"settings of {of}, whose answers are corrected: {error}") from None
    return np.concatenate([_CORRECTED[of](block, **settings) for block in in_blocks(pictures)])
