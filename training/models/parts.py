"""Apply a network for one part of a sample, such as a segment of a clip or a body, to each part."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn


class EachPart(nn.Module):
    """A network applied to each part of a sample separately; a ``Classifier`` averages the logits over the parts.

    Parts are the segments or frames of a clip, or the bodies of a skeleton. An absent body, all zeros, counts like any other,
    as in the code of CTR-GCN and ST-GCN; batch norm computes its moments over all parts, as in the code of TSN and ST-GCN.

    Args:
        network: network for one part, (n, ...) -> (n, width).

    Attributes:
        width: length of a feature vector.

    >>> import torch
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(6, 4))
    >>> network.width = 4
    >>> EachPart(network)(torch.zeros(5, 2, 3, 2)).shape  # five samples of two bodies, each of three joints
    torch.Size([5, 2, 4])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.width = network, getattr(network, "width", None)

    def forward(self, x: Tensor) -> Tensor:
        """(n, k, ...) -> (n, k, width), or (n, k m, width) for a network that returns m vectors per part."""
        return self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2]).flatten(1, -2)

    def topology(self, x: Tensor) -> Tensor:
        """Return the network's own ``topology`` for the parts of all samples."""
        return cast("Callable[[Tensor], Tensor]", self.network.topology)(x.flatten(0, 1))
