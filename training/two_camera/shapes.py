"""Shapes of networks on transforms: nine inputs, hidden layers, two ratios. Needs no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from ...curation.registry import check_values

INPUTS = 9
RATIOS = 2

ActivationName = Literal["elu", "relu", "sigmoid", "softplus", "tanh"]


@dataclasses.dataclass(frozen=True)
class NetworkShape:
    """Layers and activation of a network.

    Attributes:
        hidden: units of each hidden layer, first layer first; at least one layer.
        activation: activation of the hidden units.

    >>> NetworkShape((16, 8), "tanh").parameters, str(NetworkShape((16, 8), "tanh"))
    (314, '9-16-8-2, tanh')
    """

    hidden: tuple[int, ...]
    activation: ActivationName = "relu"

    def __post_init__(self) -> None:
        check_values(NetworkShape, vars(self))
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden {list(self.hidden)}: at least one layer of at least one unit")

    def __str__(self) -> str:
        return f"{'-'.join(map(str, self.widths))}, {self.activation}"

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the input, the hidden layers and the output."""
        return (INPUTS, *self.hidden, RATIOS)

    @property
    def parameters(self) -> int:
        """Weights and biases of one network."""
        return sum(before * after + after for before, after in pairwise(self.widths))

    @property
    def operations(self) -> int:
        """Multiply-add operations for one estimate."""
        return sum(before * after for before, after in pairwise(self.widths))


def nines(hidden_layers: int) -> NetworkShape:
    """The paper's shape: hidden layers of nine units.

    >>> [nines(layers).parameters for layers in (2, 5, 16)]
    [200, 470, 1460]
    """
    return NetworkShape((INPUTS,) * hidden_layers)


def shape_of(parameters: int) -> NetworkShape:
    """The paper's shape with this number of parameters.

    Raises:
        ValueError: no such shape exists.
    """
    layers, rest = divmod(parameters - INPUTS * RATIOS - RATIOS, INPUTS * INPUTS + INPUTS)
    if rest or layers < 1:
        raise ValueError(
            f"{parameters} parameters: the paper's networks have 90 N + 20, such as 200, 470 and 1460; for others set hidden"
        )
    return nines(layers)


def chosen_shape(
    *, parameters: int | None = None, hidden: Sequence[int] | None = None, activation: ActivationName = "relu"
) -> NetworkShape:
    """The paper's shape with ``parameters`` parameters, or a shape with the hidden layers ``hidden``.

    >>> str(chosen_shape(parameters=200)), str(chosen_shape(hidden=[16], activation="tanh"))
    ('9-9-9-2, relu', '9-16-2, tanh')
    """
    if (parameters is None) == (hidden is None):
        raise ValueError(f"parameters {parameters}, hidden {hidden}: expected one of the two")
    return NetworkShape(tuple(hidden) if hidden is not None else shape_of(parameters or 0).hidden, activation)
