"""Networks from the transform between two cameras to the light: nine numbers in, two ratios out; many of them side by side.

Source: Abdelhamed, Punnappurath and Brown, "Leveraging the Availability of Two Cameras for Illuminant Estimation", CVPR 2021,
section 3.3, and its released code. N hidden layers of nine units have 90 N + 20 parameters: 200, 470, 1,460 for N = 2, 5, 16.
Other widths and activations are ours.
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
    """What hidden units do: ``of`` their sum; ``slope``, its derivative by the value that it gave; and ONNX's name for it."""

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
    """Weights (..., inputs, outputs) and biases (..., outputs) of parameters (..., P or more), from the input on: views."""
    sizes = [size for before, after in pairwise(shape.widths) for size in (before * after, after)]
    pieces = flat[..., : sum(sizes)].split(sizes, dim=-1)
    return [(pieces[2 * at].unflatten(-1, widths), pieces[2 * at + 1]) for at, widths in enumerate(pairwise(shape.widths))]


class IlluminantNets(nn.Module):
    """R networks of one shape along a run axis: one multiplication of stacks does the layer of all.

    A run's numbers do not depend on its neighbours: each matrix of a stack is multiplied by itself, and all of a run's
    parameters are one row of one tensor, so that an optimiser too does its sums for all at once. Rows are padded with zeros,
    which stay zeros, to whole vector registers: torch's fused optimisers round differently in what is left over.

    Args:
        shape: of each.
        runs: R, at least 1. All weights are 0; ``draw_nets`` draws them.
    """

    def __init__(self, shape: NetworkShape, runs: int) -> None:
        super().__init__()
        if runs < 1:
            raise ValueError(f"{runs} runs: at least one")
        self.shape, self.runs = shape, runs
        self.flat = nn.Parameter(torch.zeros(runs, shape.parameters + -shape.parameters % _ROW))

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights (R, inputs, outputs) and biases (R, 1, outputs), from the input on: views."""
        return [(weight, bias[:, None]) for weight, bias in layers_of(self.flat, self.shape)]

    def forward(self, X: Tensor) -> Tensor:
        """Features (R, n, 9) float32, transforms row by row -> (R, n, 2) ratios R/G and B/G, above 0."""
        *hidden_layers, (weight, bias) = self.layers()
        hidden, activation = X, ACTIVATIONS[self.shape.activation].of
        for hidden_weight, hidden_bias in hidden_layers:
            hidden = activation(torch.baddbmm(hidden_bias, hidden, hidden_weight))
        return torch.baddbmm(bias, hidden, weight).exp()


def draw_nets(shape: NetworkShape, inits: Sequence[torch.Generator]) -> IlluminantNets:
    """Networks with weights as Keras' Dense draws them, which the released code uses: Glorot's uniform, biases 0.

    Args:
        shape: of each.
        inits: one CPU generator a run, the run's alone.
    """
    nets = IlluminantNets(shape, len(inits))
    with torch.no_grad():
        for run, init in enumerate(inits):
            for weight, _ in nets.layers():
                bound = math.sqrt(6 / sum(weight[run].shape))
                weight[run] = torch.empty(weight[run].shape).uniform_(-bound, bound, generator=init)
    return nets
