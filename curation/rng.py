"""Random numbers that depend on (seed, stage, row key), never on which worker draws them or when.

Every draw comes from Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), a counter-based generator,
keyed by (seed, stage, row key): chunk size, scheduler and number of workers cannot change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def _digest(seed: int, stage: str, key: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{stage}\0{key}".encode()).digest()


def rng(seed: int, stage: str, key: str = "") -> np.random.Generator:
    """A separate generator for one row of one stage.

    Args:
        seed: seed of the run; there is no default.
        stage: name of the stage or purpose, so that two stages never share a stream.
        key: key of the row, or "" for draws that concern the whole stage.

    >>> rng(0, "choose", "photo7").random(3).round(3)
    array([0.429, 0.383, 0.255])
    >>> rng(0, "choose", "photo7").random(3).round(3)  # the same, in any process
    array([0.429, 0.383, 0.255])
    >>> rng(0, "choose", "photo8").random(3).round(3)
    array([0.571, 0.543, 0.057])
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(seed, stage, key)[:16], "little")))


def uniform(seed: int, stage: str, keys: Iterable[str]) -> np.ndarray:
    """One number in [0, 1) per key, float64 of shape (n,): a sort key for a random order or selection of rows.

    >>> uniform(0, "choose", ["a", "b", "c"]).round(3)
    array([0.238, 0.891, 0.865])
    >>> uniform(0, "choose", ["c"]).round(3)  # the same, whatever stands beside it
    array([0.865])
    """
    words = (int.from_bytes(_digest(seed, stage, key)[:8], "little") >> 11 for key in keys)
    return np.fromiter(words, dtype=np.float64) / 2.0**53
