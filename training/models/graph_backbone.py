"""A network along an axis of streams as a module of one: a backbone for the learner of all other benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class GraphBackbone(nn.Module):
    """One stream of a network, without its outputs.

    Args:
        along_streams: classes -> the network over a stream axis, see ``graph_streams.streams.GraphNet``; it has ``features``.
        width: of the features.
        init: of the weights.

    Attributes:
        along_streams: see above: streams that learn side by side are computed by it.
        width: see above.
    """

    def __init__(self, along_streams: Callable[[int], Any], width: int, init: torch.Generator) -> None:
        super().__init__()
        self.along_streams, self.width = along_streams, width
        self._net = along_streams(1)
        weights, statistics = self._net.draw(init)
        self.weights = nn.Parameter(weights[None])
        self.register_buffer("statistics", statistics[None])

    def forward(self, x: Tensor) -> Tensor:
        """Samples as the network takes them -> (n, width)."""
        return self._net.features(self.weights, self.statistics, self._net.inputs(x), training=self.training)[0]
