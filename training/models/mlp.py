"""Perceptrons on stored features: a classifier with one hidden layer, and a backbone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from .classifier import Classifier
from .linear import affine, allocated, flat, init_network
from .registry import Width


def mlp(init: torch.Generator, *, sample: Sequence[int], hidden: Width = 2048) -> Classifier:
    """All numbers of a sample -> hidden -> ReLU -> head. CLEAR's "2-layer MLP".

    Args:
        init: generator for the hidden layer's weights.
        sample: (d,) of a vector, or (channels, times) of a signal.
        hidden: width of the hidden layer.

    >>> classifier = mlp(torch.Generator().manual_seed(0), sample=(2, 4), hidden=8)
    >>> classifier.penultimate(torch.zeros(1, 2, 4)).shape
    torch.Size([1, 8])
    """
    return Classifier(nn.Sequential(*flat(sample), affine(math.prod(sample), hidden, init), nn.ReLU()), hidden)


def vector_net(inputs: int, width: int, init: torch.Generator) -> tuple[nn.Module, int]:
    """A backbone for vectors: (b, inputs) float32 -> hidden -> norm -> ReLU -> (b, width), and ``width``.

    The features have both signs, as cosine heads need.

    >>> network, width = vector_net(4, 8, torch.Generator().manual_seed(0))
    >>> network(torch.zeros(2, 4)).shape, width
    (torch.Size([2, 8]), 8)
    """
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(inputs, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))
    return init_network(allocated(network), init), width
