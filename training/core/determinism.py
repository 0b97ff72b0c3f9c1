"""Named generators of random numbers. See also ``curation.encoders.one_thread``."""

from __future__ import annotations

import torch

from ...curation.rng import rng


def generator(seed: int, stage: str, key: str = "") -> torch.Generator:
    """A CPU generator that depends on (seed, stage, key) alone; the global generator is not used."""
    return torch.Generator().manual_seed(int(rng(seed, stage, key).integers(2**63)))
