"""What makes a training a function of its arguments: generators by name. See ``curation.encoders.one_thread`` too."""

from __future__ import annotations

import torch

from ...curation.encoders.one_thread import one_thread as one_thread
from ...curation.rng import rng


def generator(seed: int, stage: str, key: str = "") -> torch.Generator:
    """A CPU generator that depends on (seed, stage, key) alone; the global one is never touched."""
    return torch.Generator().manual_seed(int(rng(seed, stage, key).integers(2**63)))
