"""Linear regression from the transform between two cameras to the illuminant; needs no torch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...curation.npy import npz_bytes
from ...datasets.two_camera.folds import Fold, Lights

FloatArray = NDArray[np.floating[Any]]


def ratios_of(lights: Lights) -> Lights:
    """(n, 3) RGB, green above 0 -> (n, 2) R/G and B/G."""
    return lights[:, [0, 2]] / lights[:, 1:2]


def with_green(ratios: NDArray[np.floating[Any]]) -> Lights:
    """(n, 2) R/G and B/G -> (n, 3) RGB, green 1."""
    values = ratios.astype(np.float64)
    return np.stack([values[:, 0], np.ones(len(values)), values[:, 1]], axis=1)


LEAST_RATIO = 1e-3
"""Lower limit of an estimated ratio, since a linear map has none."""

_ROUNDING = 1e-6
"""Singular values below this share of the largest are rounding errors of float32: rows of a T of chromaticities sum to 1, and
otherwise weights of some thousands would be fitted to the seventh digit."""


class LinearEstimator:
    """Least squares from the nine numbers and a constant to [R/G, B/G]: the "linear regression" of the paper's Table 3.

    >>> from benchwright.eval.protocols.cross_validation import PairExamples, rotating_folds
    >>> pairs, draw = np.array([f"pair{n}" for n in range(24)]), np.random.default_rng(0)
    >>> X = draw.random((24, 9)).astype(np.float32)
    >>> lights = np.stack([X[:, 0] + 0.5, np.ones(24), X[:, 8] + 0.5], axis=1)  # linear in two of the nine numbers
    >>> rows = PairExamples(pairs, pairs, pairs, X, lights, np.arange(24) % 2, np.ones(24, bool))
    >>> folds = rotating_folds(rows, reveal_test=True)
    >>> [first, _] = LinearEstimator().estimate_folds(folds)[0]
    >>> bool(np.allclose(first, folds[0].gt_test, atol=1e-4))
    True
    """

    def __init__(self) -> None:
        self._weights: dict[str, FloatArray] = {}

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[int, list[Lights]]:
        """0 -> (n, 3) lights of each fold's test rows, green 1; ratios are at least 0.001."""
        self._weights = {
            fold.name: np.linalg.lstsq(_with_one(fold.X_train), ratios_of(fold.gt_train), rcond=_ROUNDING)[0] for fold in folds
        }
        return {0: [with_green(linear_ratios(fold.X_test, self._weights[fold.name])) for fold in folds]}

    def artifacts(self) -> dict[str, bytes]:
        """``linear.npz``: the weights (10, 2) float64 of each fold by its name, the constants last. Empty before
        ``estimate_folds``."""
        return {"linear.npz": npz_bytes(self._weights)} if self._weights else {}


def linear_ratios(X: NDArray[np.float32], weights: FloatArray) -> FloatArray:
    """Ratios (n, 2) of row-major transforms (n, 9), by weights (10, 2)."""
    return np.maximum(_with_one(X) @ weights, LEAST_RATIO)


def load_linear(data: bytes) -> FloatArray:
    """Load the weights (10, 2) of a single fold that ``LinearEstimator.artifacts`` wrote. Raises ``ValueError`` if invalid."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            [name] = arrays.files
            return arrays[name]
    except (OSError, ValueError) as error:
        raise ValueError(f"these bytes are not linear.npz of one fold: {error}") from None


def _with_one(X: NDArray[np.float32]) -> Lights:
    return np.concatenate([X.astype(np.float64), np.ones((len(X), 1))], axis=1)
