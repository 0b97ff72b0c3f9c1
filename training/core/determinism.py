"""What makes a training a function of its arguments: generators by name. See ``curation.encoders.one_thread`` too."""

from __future__ import annotations

import contextlib

import torch

from ...curation.encoders.one_thread import one_thread as one_thread
from ...curation.rng import rng


def repeatable(device: torch.device, *, half: bool) -> contextlib.AbstractContextManager[None]:
    """On a GPU, convolutions that give the same bits every time, and of float32 in full unless ``half`` the precision will do.

    What other threads compute there meanwhile is right, too.
    """
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=half)


def generator(seed: int, stage: str, key: str = "") -> torch.Generator:
    """A CPU generator that depends on (seed, stage, key) alone; the global one is never touched."""
    return torch.Generator().manual_seed(int(rng(seed, stage, key).integers(2**63)))
