"""Spatial-temporal graph convolutional networks (Yan et al., AAAI 2018), along an axis of streams.

Two or more blocks: a convolution over the joints of a frame by three partitions of the graph, each edge with a learned weight;
batch norm and relu; a convolution over nine frames and batch norm; the block's input added, but in the first. Then the mean
over frames and joints and a linear layer. CTR-GCN's ST-GCN, which the paper names, has an adaptive graph besides: not here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .batch_norm import MOMENTUM, norm_pieces, statistics_pieces
from .flat import GraphBackbone, Piece, Pieces

FRAMES = 9
"""Length of a convolution over time."""


def st_gcn(
    init: torch.Generator, *, sample: Sequence[int], partitions: Tensor, width: int = 64, depth: int = 2
) -> GraphBackbone:
    """An ST-GCN on sequences of graphs, ``sample`` = (C, T, V); see ``StGcn``.

    Args:
        init: of all weights.
        sample: (C, T, V): channels, frames, joints.
        partitions: (K, V, V) float.
        width: channels of each block.
        depth: blocks, at least 2.

    >>> network = st_gcn(torch.Generator().manual_seed(0), sample=(3, 16, 4), partitions=torch.eye(4)[None], width=8)
    >>> network(torch.zeros(2, 3, 16, 4)).shape, network.width
    (torch.Size([2, 8]), 8)
    """
    if len(sample) != 3 or partitions.ndim != 3:
        raise ValueError(f"ST-GCN needs tensors (C, T, V) and partitions (K, V, V), not {sample}, {tuple(partitions.shape)}")
    return GraphBackbone(functools.partial(StGcn, partitions, sample[0], width=width, depth=depth), width, init)


class StGcn:
    """The networks' shape and what they compute; their parameters and statistics are rows that the caller keeps.

    Streams are computed one after the other: each fills the processor by itself.

    Args:
        partitions: (K, V, V) float; entry [k, i, j] weighs what node j gets from node i.
        channels: C of a sample (C, T, V).
        classes: outputs.
        width: channels of each block.
        depth: blocks.
    """

    def __init__(self, partitions: Tensor, channels: int, classes: int, *, width: int = 64, depth: int = 2) -> None:
        if min(channels, classes, width, depth) < 1:
            raise ValueError(f"width {width}, depth {depth}, {channels} channels, {classes} classes: above 0")
        self.partitions, self.width, self.depth = partitions, width, depth
        parts, nodes = partitions.shape[:2]
        pieces, norms = norm_pieces("input", nodes * channels), statistics_pieces("input", nodes * channels)
        for block in range(depth):
            inputs = channels if block == 0 else width
            pieces |= {
                f"{block}/spatial": Piece((parts * width, inputs, 1, 1), "linear", inputs),
                f"{block}/spatial_bias": Piece((parts * width,), "linear", inputs),
                f"{block}/edges": Piece((parts, nodes, nodes), "ones"),
                **norm_pieces(f"{block}/spatial", width),
                f"{block}/temporal": Piece((width, width, FRAMES, 1), "linear", width * FRAMES),
                f"{block}/temporal_bias": Piece((width,), "linear", width * FRAMES),
                **norm_pieces(f"{block}/temporal", width),
            }
            norms |= statistics_pieces(f"{block}/spatial", width) | statistics_pieces(f"{block}/temporal", width)
        pieces |= {"output": Piece((classes, width), "linear", width), "output_bias": Piece((classes,), "linear", width)}
        self.parameters, self.statistics = Pieces(pieces), Pieces(norms)

    def draw(self, init: torch.Generator) -> tuple[Tensor, Tensor]:
        """(P,) parameters, from ``init`` alone, and (S,) statistics."""
        return self.parameters.draw(init), self.statistics.draw(torch.Generator())

    def inputs(self, x: Tensor) -> Tensor:
        """(n, C, T, V), as they are."""
        return x

    def logits(self, flat: Tensor, statistics: Tensor, inputs: Tensor, *, training: bool) -> Tensor:
        """(R, n, classes), as ``Gcn.logits``."""
        p = self.parameters.views(flat)
        seen = self.features(flat, statistics, inputs, training=training)
        return torch.stack([nn.functional.linear(each, p["output"][r], p["output_bias"][r]) for r, each in enumerate(seen)])

    def features(self, flat: Tensor, statistics: Tensor, inputs: Tensor, *, training: bool) -> Tensor:
        """(R, n, width): what the last layer sees."""
        p, seen = self.parameters.views(flat), self.statistics.views(statistics)
        each = [
            self._one({n: v[r] for n, v in p.items()}, {n: v[r] for n, v in seen.items()}, inputs, training)
            for r in range(len(flat))
        ]
        return torch.stack(each)

    def topology(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """Raises ValueError: TWP's attention is defined on a GCN's layer."""
        raise ValueError("twp takes its attention from a GCN: architecture 'st_gcn' has none")

    def _one(self, p: dict[str, Tensor], seen: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
        def norm(name: str, values: Tensor) -> Tensor:
            mean, variance = seen[f"{name}/mean"].view(-1), seen[f"{name}/variance"].view(-1)
            scale, shift = p[f"{name}/scale"].view(-1), p[f"{name}/shift"].view(-1)
            return nn.functional.batch_norm(values, mean, variance, scale, shift, training, MOMENTUM)

        samples, channels, frames, nodes = x.shape
        flat = x.permute(0, 3, 1, 2).reshape(samples, nodes * channels, frames)
        h = norm("input", flat).view(samples, nodes, channels, frames).permute(0, 2, 3, 1)
        for block in range(self.depth):
            spread = nn.functional.conv2d(h, p[f"{block}/spatial"], p[f"{block}/spatial_bias"])
            spread = spread.view(samples, len(self.partitions), self.width, frames, nodes)
            graph = self.partitions.to(x) * p[f"{block}/edges"]
            spatial = norm(f"{block}/spatial", torch.einsum("nkctv,kvw->nctw", spread, graph)).relu()
            weight, bias = p[f"{block}/temporal"], p[f"{block}/temporal_bias"]
            out = norm(f"{block}/temporal", nn.functional.conv2d(spatial, weight, bias, padding=(FRAMES // 2, 0)))
            h = (out if block == 0 else out + h).relu()
        return h.mean((2, 3))
