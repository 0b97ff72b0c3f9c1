"""Draws depend on seed, stage and key, on each of them apart, and on nothing else."""

from __future__ import annotations

import itertools

import numpy as np
from benchwright.curation.rng import rng, uniform

PLACES = list(itertools.product((0, 1, 10), ("a", "b", "0a", ""), ("", "0", "a", "0a", "b")))


def test_every_place_has_draws_of_its_own() -> None:
    assert len({rng(*place).integers(2**62) for place in PLACES}) == len(PLACES)
    assert len({uniform(seed, stage, [key])[0] for seed, stage, key in PLACES}) == len(PLACES)


def test_draws_do_not_depend_on_their_company() -> None:
    keys = [f"k{n}" for n in range(100)]
    together = uniform(5, "choose", keys)
    assert together.tolist() == [uniform(5, "choose", [key])[0] for key in keys]
    assert together.min() >= 0
    assert together.max() < 1
    assert abs(together.mean() - 0.5) < 0.1


def test_draws_do_not_change_with_versions() -> None:
    # By the definition: SHA-256 of "7\0stage\0key", the upper 53 of its first 64 bits (little-endian) over 2**53.
    assert uniform(7, "stage", ["key"]).tolist() == [0.1822741430127054]
    assert rng(7, "stage", "key").integers(1000, size=4).tolist() == [602, 376, 796, 84]
    assert np.array_equal(rng(7, "stage", "key").random(3), rng(7, "stage", "key").random(3))
