"""A small convolutional backbone, for inputs of 24 to 128 pixels on a CPU."""

from __future__ import annotations

import torch
from torch import nn

from .linear import allocated, init_network


def small_cnn(width: int, init: torch.Generator, *, last_relu: bool = True) -> tuple[nn.Module, int]:
    """Three convolutions of stride 2 with norm and ReLU, then global average pooling.

    Args:
        width: channels of the first convolution; the others have twice and four times as many.
        init: generator for the weights.
        last_relu: False leaves out the last ReLU, so that features have both signs, as cosine heads need.

    Returns:
        The network (b, 3, h, w) float32 -> (b, 4 width), and 4 width.

    >>> network, width = small_cnn(8, torch.Generator().manual_seed(0))
    >>> network(torch.zeros(2, 3, 16, 16)).shape, width
    (torch.Size([2, 32]), 32)
    """
    with torch.device("meta"):
        layers: list[nn.Module] = []
        for before, after in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
            layers += [
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        if not last_relu:
            layers.pop()
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return init_network(allocated(network), init), 4 * width
