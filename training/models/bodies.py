"""Networks that see one body, run over each body of a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn


class EachBody(nn.Module):
    """A network run over each body by itself; a ``Classifier`` takes the mean of what it gives.

    An absent body, of zeros alone, counts as the others do, as in the code of CTR-GCN and ST-GCN; and the moments of batch norm
    are over all bodies, as in that of ST-GCN.

    Args:
        network: of one body, (n, ...) -> (n, width).

    Attributes:
        width: of its features.

    >>> import torch
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(6, 4))
    >>> network.width = 4
    >>> EachBody(network)(torch.zeros(5, 2, 3, 2)).shape  # five samples of two bodies, each of three joints
    torch.Size([5, 2, 4])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.width = network, getattr(network, "width", None)

    def forward(self, x: Tensor) -> Tensor:
        """(n, M, ...) -> (n, M, width); of a network that gives several vectors a body, all of them."""
        return self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2]).flatten(1, -2)

    def topology(self, x: Tensor) -> Tensor:
        """What the network's own ``topology`` gives for the bodies of all samples."""
        return cast("Callable[[Tensor], Tensor]", self.network.topology)(x.flatten(0, 1))
