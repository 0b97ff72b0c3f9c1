"""Networks that estimate the illuminant from the transform between two cameras: nine inputs, two ratios; many in parallel.

Source: Abdelhamed, Punnappurath and Brown, "Leveraging the Availability of Two Cameras for Illuminant Estimation", CVPR 2021,
section 3.3, and its released code. N hidden layers of nine units have 90 N + 20 parameters: 200, 470, 1,460 for N = 2, 5, 16.
Other widths and activations are our additions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..two_camera.shapes import ActivationName, NetworkShape

_ROW = 64  # floats: a multiple of every processor's vector registers


class Activation(NamedTuple):
    """An activation function ``of`` the input, its derivative ``slope`` as a function of its output, and its name in ONNX."""

    of: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    onnx: str


ACTIVATIONS: dict[ActivationName, Activation] = {
    "elu": Activation(nn.functional.elu, lambda value: torch.where(value > 0, 1.0, value + 1), "Elu"),
    "relu": Activation(torch.relu, lambda value: (value > 0).to(value.dtype), "Relu"),
    "sigmoid": Activation(torch.sigmoid, lambda value: value * (1 - value), "Sigmoid"),
    "softplus": Activation(nn.functional.softplus, lambda value: -torch.expm1(-value), "Softplus"),
    "tanh": Activation(torch.tanh, lambda value: 1 - value.square(), "Tanh"),
}


def layers_of(flat: Tensor, shape: NetworkShape) -> list[tuple[Tensor, Tensor]]:
    """Weights (..., inputs, outputs) and biases (..., outputs): views of parameters (..., P or more), first layer first."""
    sizes = [size for before, after in pairwise(shape.widths) for size in (before * after, after)]
    pieces = flat[..., : sum(sizes)].split(sizes, dim=-1)
    return [(pieces[2 * at].unflatten(-1, widths), pieces[2 * at + 1]) for at, widths in enumerate(pairwise(shape.widths))]


class IlluminantNets(nn.Module):
    """R networks of one shape along a run axis: one batched multiplication computes a layer of all networks.

    A run's results do not depend on other runs: the matrices of a batch are multiplied separately, and all parameters of a run
    are one row of one tensor, so that an optimiser also updates all runs at once. Rows are padded with zeros, which stay zero,
    to a multiple of the vector registers: torch's fused optimisers round differently in the remainder.

    Args:
        shape: shape of each network.
        runs: R, at least 1. All weights are 0; ``draw_nets`` draws them.
    """

    def __init__(self, shape: NetworkShape, runs: int) -> None:
        super().__init__()
        if runs < 1:
            raise ValueError(f"{runs} runs: at least one")
        self.shape, self.runs = shape, runs
        self.flat = nn.Parameter(torch.zeros(runs, shape.parameters + -shape.parameters % _ROW))

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights (R, inputs, outputs) and biases (R, 1, outputs): views, first layer first."""
        return [(weight, bias[:, None]) for weight, bias in layers_of(self.flat, self.shape)]

    def forward(self, X: Tensor) -> Tensor:
        """Features (R, n, 9) float32, row-major transforms -> (R, n, 2) ratios R/G and B/G, above 0."""
        *hidden_layers, (weight, bias) = self.layers()
        hidden, activation = X, ACTIVATIONS[self.shape.activation].of
        for hidden_weight, hidden_bias in hidden_layers:
            hidden = activation(torch.baddbmm(hidden_bias, hidden, hidden_weight))
        return torch.baddbmm(bias, hidden, weight).exp()


def draw_nets(shape: NetworkShape, inits: Sequence[torch.Generator]) -> IlluminantNets:
    """Networks initialised like Keras' Dense, which the released code uses: Glorot uniform weights, zero biases.

    Args:
        shape: shape of each network.
        inits: one CPU generator per run, used by that run alone.
    """
    nets = IlluminantNets(shape, len(inits))
    with torch.no_grad():
        for run, init in enumerate(inits):
            for weight, _ in nets.layers():
                bound = math.sqrt(6 / sum(weight[run].shape))
                weight[run] = torch.empty(weight[run].shape).uniform_(-bound, bound, generator=init)
    return nets
