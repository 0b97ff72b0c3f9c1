"""Networks from the transform between two cameras to the light: nine numbers in, two ratios out; many of them side by side.

Source: Abdelhamed, Punnappurath and Brown, "Leveraging the Availability of Two Cameras for Illuminant Estimation", CVPR 2021;
PROTOCOLS.md 3.4. N hidden layers of nine units have 90 N + 20 parameters: 200, 470 and 1,460 for N = 2, 5 and 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

WIDTH = 9
RATIOS = 2


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


class IlluminantNets(nn.Module):
    """R networks of one size along a run axis: one multiplication of stacks does the layer of all.

    A run's numbers do not depend on its neighbours: each matrix of a stack is multiplied by itself. Weights are drawn as
    Keras' Dense does, which the released code uses: Glorot's uniform, biases 0.

    Args:
        hidden_layers: N, at least 1.
        inits: one CPU generator a run, the run's alone.
    """

    def __init__(self, hidden_layers: int, inits: Sequence[torch.Generator]) -> None:
        super().__init__()
        if hidden_layers < 1 or not inits:
            raise ValueError(f"{hidden_layers} hidden layers, {len(inits)} runs: at least one of each")
        shapes = [(WIDTH, WIDTH)] * hidden_layers + [(WIDTH, RATIOS)]
        drawn = [[_glorot(*shape, init) for shape in shapes] for init in inits]
        self.weights = nn.ParameterList([nn.Parameter(torch.stack(layer)) for layer in zip(*drawn, strict=True)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(len(inits), 1, outputs)) for _, outputs in shapes])

    def forward(self, X: Tensor) -> Tensor:
        """Features (R, n, 9) float32, transforms row by row -> (R, n, 2) ratios R/G and B/G, above 0."""
        hidden = X
        for layer in range(len(self.weights) - 1):
            hidden = torch.baddbmm(self.biases[layer], hidden, self.weights[layer]).relu()
        return torch.baddbmm(self.biases[-1], hidden, self.weights[-1]).exp()

    def layers(self, run: int) -> list[tuple[Tensor, Tensor]]:
        """Weights (9, outputs) and biases (outputs,) of one run, from the input on: a copy."""
        stacks = zip(self.weights, self.biases, strict=True)
        return [(weight[run].detach().clone(), bias[run, 0].detach().clone()) for weight, bias in stacks]


def _glorot(inputs: int, outputs: int, init: torch.Generator) -> Tensor:
    bound = math.sqrt(6 / (inputs + outputs))
    return torch.empty(inputs, outputs).uniform_(-bound, bound, generator=init)
