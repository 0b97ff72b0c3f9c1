"""Drawn transforms and lights, as the two-camera estimators read them."""

from __future__ import annotations

import numpy as np


def drawn(n: int = 60, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Transforms (n, 9) and ratios (n, 2) that depend on them."""
    draw = np.random.default_rng(seed)
    ratios = np.exp(draw.normal(-0.4, 0.25, (n, 2)))
    X = np.tile(np.eye(3).ravel(), (n, 1)) + ratios @ draw.normal(0, 0.3, (2, 9)) + draw.normal(0, 0.02, (n, 9))
    return X.astype(np.float32), ratios


def keys_of(count: int) -> np.ndarray:
    """Names of the test rows of a fold."""
    return np.array([f"t{row:02}" for row in range(count)])
