"""Networks from the transform between two cameras to the light: nine numbers in, two ratios out; many of them side by side.

Source: Abdelhamed, Punnappurath and Brown, "Leveraging the Availability of Two Cameras for Illuminant Estimation", CVPR 2021,
section 3.3, and its released code. N hidden layers of nine units have 90 N + 20 parameters: 200, 470, 1,460 for N = 2, 5, 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

WIDTH = 9
RATIOS = 2
_ROW = 64  # floats: a multiple of every processor's vector registers


def parameter_count(hidden_layers: int) -> int:
    """Parameters of one network: (9 * 9 + 9) a hidden layer, 9 * 2 + 2 of the output."""
    return hidden_layers * (WIDTH * WIDTH + WIDTH) + WIDTH * RATIOS + RATIOS


def hidden_layers_of(parameters: int) -> int:
    """Inverse of ``parameter_count``.

    Raises:
        ValueError: no network of this shape has that many.
    """
    layers, rest = divmod(parameters - parameter_count(0), parameter_count(1) - parameter_count(0))
    if rest or layers < 1:
        raise ValueError(f"{parameters} parameters: networks have 90 N + 20, such as 200, 470 and 1460")
    return layers


def layers_of(flat: Tensor, hidden_layers: int) -> list[tuple[Tensor, Tensor]]:
    """Weights (..., 9, outputs) and biases (..., outputs) of parameters (..., P or more), from the input on: views."""
    outputs = [WIDTH] * hidden_layers + [RATIOS]
    sizes = [size for count in outputs for size in (WIDTH * count, count)]
    pieces = flat[..., : sum(sizes)].split(sizes, dim=-1)
    return [(pieces[2 * at].unflatten(-1, (WIDTH, count)), pieces[2 * at + 1]) for at, count in enumerate(outputs)]


class IlluminantNets(nn.Module):
    """R networks of one size along a run axis: one multiplication of stacks does the layer of all.

    A run's numbers do not depend on its neighbours: each matrix of a stack is multiplied by itself, and all of a run's
    parameters are one row of one tensor, so that an optimiser too does its sums for all at once. Rows are padded with zeros,
    which stay zeros, to whole vector registers: torch's fused optimisers round differently in what is left over.

    Args:
        hidden_layers: N, at least 1.
        runs: R, at least 1. All weights are 0; ``draw_nets`` draws them.
    """

    def __init__(self, hidden_layers: int, runs: int) -> None:
        super().__init__()
        if hidden_layers < 1 or runs < 1:
            raise ValueError(f"{hidden_layers} hidden layers, {runs} runs: at least one of each")
        self.hidden_layers, self.runs = hidden_layers, runs
        count = parameter_count(hidden_layers)
        self.flat = nn.Parameter(torch.zeros(runs, count + -count % _ROW))

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights (R, 9, outputs) and biases (R, 1, outputs), from the input on: views."""
        return [(weight, bias[:, None]) for weight, bias in layers_of(self.flat, self.hidden_layers)]

    def forward(self, X: Tensor) -> Tensor:
        """Features (R, n, 9) float32, transforms row by row -> (R, n, 2) ratios R/G and B/G, above 0."""
        *hidden_layers, (weight, bias) = self.layers()
        hidden = X
        for hidden_weight, hidden_bias in hidden_layers:
            hidden = torch.baddbmm(hidden_bias, hidden, hidden_weight).relu()
        return torch.baddbmm(bias, hidden, weight).exp()


def draw_nets(hidden_layers: int, inits: Sequence[torch.Generator]) -> IlluminantNets:
    """Networks with weights as Keras' Dense draws them, which the released code uses: Glorot's uniform, biases 0.

    Args:
        hidden_layers: N, at least 1.
        inits: one CPU generator a run, the run's alone.
    """
    nets = IlluminantNets(hidden_layers, len(inits))
    with torch.no_grad():
        for run, init in enumerate(inits):
            for weight, _ in nets.layers():
                bound = math.sqrt(6 / sum(weight[run].shape))
                weight[run] = torch.empty(weight[run].shape).uniform_(-bound, bound, generator=init)
    return nets
