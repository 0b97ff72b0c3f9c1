"""A perceptron with one hidden layer."""

from __future__ import annotations

import torch
from torch import nn

from .linear import affine


def mlp(features: int, classes: int, *, init: torch.Generator, hidden: int = 2048) -> nn.Module:
    """(n, features) float32 -> hidden -> ReLU -> (n, classes) logits. CLEAR's "2-layer MLP"."""
    return nn.Sequential(affine(features, hidden, init), nn.ReLU(), affine(hidden, classes, init))
