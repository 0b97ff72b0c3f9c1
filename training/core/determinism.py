"""Deterministic training: named generators and reproducible convolutions. See also ``curation.encoders.one_thread``."""

from __future__ import annotations

import contextlib

import torch

from ...curation.encoders.one_thread import one_thread as one_thread
from ...curation.rng import rng


def repeatable(device: torch.device, *, half: bool) -> contextlib.AbstractContextManager[None]:
    """On a GPU, make convolutions bit-reproducible, and disable TF32 unless ``half``.

    Results of other threads that use the GPU meanwhile stay correct.
    """
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=half)


def generator(seed: int, stage: str, key: str = "") -> torch.Generator:
    """A CPU generator that depends on (seed, stage, key) alone; the global generator is not used."""
    return torch.Generator().manual_seed(int(rng(seed, stage, key).integers(2**63)))
