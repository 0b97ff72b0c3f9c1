"""Whether the transform between two cameras depends on the light: if it does not, nothing can be learned from it.

Each of the nine numbers of T is predicted from the light of its pair, by a line in log R/G and log B/G fitted to all other
pairs. Such a line explains the spread over the lights; the rest is noise, and differences between scenes. Repeating this with
shuffled lights shows how much would be explained by chance.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import rng

FEWEST = 8
"""Minimum number of pairs for the test."""

ENOUGH = 30
"""Below this number of pairs, a T that depends on the light is sometimes reported as independent of it."""

_MOST = 300
_SHUFFLES = 499
_CHANCE = 0.01
_ROUNDING = 1e-6  # relative to the largest number: transforms are float32
_LEAST = 2e-3  # relative to the largest number: noise alone bends T by as much, and more if the light is weak in a channel


@dataclasses.dataclass(frozen=True)
class LightDependence:
    """How far lights explain transforms.

    Attributes:
        spread: (9,) standard deviation of each number of T over the pairs.
        left: (9,) root mean square error of its prediction from the light.
        explained: (9,) share of the variance that the light explains; below 0 where the mean predicts better, and 0 where the
            number does not vary.
        moved: largest change of a number due to the light, as a share of the largest number of T.
        chance: share of shuffles in which the most explained number is explained at least as well.
        depends: whether T depends on the light, as far as the pairs show: by more than chance, and by more than 0.2 % of T.

    >>> lights = np.stack([np.linspace(0.5, 1.5, 12), np.ones(12), np.linspace(1.2, 0.6, 12) ** 2], axis=1)
    >>> noise = np.random.default_rng(0).normal(0, 0.01, (12, 3, 3))
    >>> light_dependence(np.eye(3) + noise, lights).depends
    False
    >>> bends = np.zeros((12, 3, 3))
    >>> bends[:, 0, 1] = 0.1 * np.log(lights[:, 0])
    >>> found = light_dependence(np.eye(3) + noise + bends, lights)
    >>> found.depends, int(found.explained.argmax()), round(float(found.explained.max()), 1)
    (True, 1, 1.0)
    """

    spread: NDArray[np.float64]
    left: NDArray[np.float64]
    explained: NDArray[np.float64]
    moved: float
    chance: float
    depends: bool


def light_dependence(transforms: NDArray[np.float64], lights: NDArray[np.float64]) -> LightDependence:
    """How far the lights explain the transforms of measured pairs; at most 300 evenly spaced pairs are used.

    Args:
        transforms: (n, 3, 3).
        lights: (n, 3), above 0, in the camera whose light is estimated.

    Raises:
        ValueError: fewer than ``FEWEST`` pairs, or lights that are all the same.
    """
    if len(transforms) < FEWEST:
        raise ValueError(f"{len(transforms)} pairs: at least {FEWEST} are needed to test whether T depends on the light")
    chosen = np.unique(np.linspace(0, len(transforms) - 1, min(len(transforms), _MOST)).astype(np.int64))
    T = np.asarray(transforms, dtype=np.float64).reshape(-1, 9)[chosen]
    ratios = np.log(lights[chosen][:, [0, 2]] / lights[chosen][:, 1:2])
    ratios -= ratios.mean(axis=0)
    if np.abs(ratios).max() < _ROUNDING:
        raise ValueError("all pairs have the same illuminant: whether T depends on it cannot be determined")
    known = np.column_stack([np.ones(len(T)), ratios])
    hat = known @ np.linalg.pinv(known)
    varies = T.std(axis=0) > _ROUNDING * np.abs(T).max()
    constant = ((T - T.mean(axis=0)) / (1 - 1 / len(T))) ** 2  # each number predicted by the mean of the others
    base = np.where(varies, constant.sum(axis=0), 1.0)

    def explained(values: NDArray[np.float64]) -> NDArray[np.float64]:
        left = (values - hat @ values) / (1 - np.diag(hat))[:, None]
        return np.where(varies, 1 - (left**2).sum(axis=0) / base, 0.0)

    found = explained(T)
    draw = rng(0, "light_dependence")
    by_chance = np.array([explained(T[draw.permutation(len(T))]).max() for _ in range(_SHUFFLES)])
    chance = float((1 + (by_chance >= found.max()).sum()) / (1 + _SHUFFLES))
    left = np.sqrt(base * (1 - found) / len(T)) * varies
    moved = float((T.std(axis=0) * np.sqrt(np.maximum(found, 0))).max() / np.abs(T).max())
    return LightDependence(T.std(axis=0), left, found, moved, chance, moved > _LEAST and chance <= _CHANCE)
