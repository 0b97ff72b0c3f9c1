"""Perceptrons on stored features: a classifier with one hidden layer, and a backbone."""

from __future__ import annotations

import torch
from torch import nn

from .linear import affine
from .weights import init_network


def mlp(features: int, classes: int, *, init: torch.Generator, hidden: int = 2048) -> nn.Module:
    """(n, features) float32 -> hidden -> ReLU -> (n, classes) logits. CLEAR's "2-layer MLP"."""
    return nn.Sequential(affine(features, hidden, init), nn.ReLU(), affine(hidden, classes, init))


def vector_net(inputs: int, width: int, init: torch.Generator) -> tuple[nn.Module, int]:
    """A backbone for vectors: (b, inputs) float32 -> hidden -> norm -> ReLU -> (b, width), and ``width``.

    Its features have both signs, as heads of cosines need them.
    """
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(inputs, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))
    return init_network(network.to_empty(device="cpu"), init), width
