"""Drawn transforms and lights, and folds of them, as the two-camera estimators read them."""

from __future__ import annotations

import dataclasses

import numpy as np


def drawn(n: int = 60, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Transforms (n, 9) and ratios (n, 2) that depend on them."""
    draw = np.random.default_rng(seed)
    ratios = np.exp(draw.normal(-0.4, 0.25, (n, 2)))
    X = np.tile(np.eye(3).ravel(), (n, 1)) + ratios @ draw.normal(0, 0.3, (2, 9)) + draw.normal(0, 0.02, (n, 9))
    return X.astype(np.float32), ratios


@dataclasses.dataclass
class Part:
    """A fold; ``gt_test`` is None where its truth is held back."""

    name: str
    X_train: np.ndarray
    gt_train: np.ndarray
    pair_train: np.ndarray
    light_train: np.ndarray
    X_validate: np.ndarray
    gt_validate: np.ndarray
    X_test: np.ndarray
    gt_test: np.ndarray | None = None
