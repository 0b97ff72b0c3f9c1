"""Spatial-temporal graph convolutional networks (Yan et al., AAAI 2018), along a stream axis.

Each block has a convolution over the joints of a frame and one over frames, both with batch norm; a mean over frames and joints
and a linear layer follow. Two forms:

``ctr_gcn``: the baseline in the code of CTR-GCN (Chen et al., ICCV 2021), which the paper calls ST-GCN. Three fully learned
graphs, initialised to identities, so that the skeleton's edges are not used; their columns are normalised to length 1; temporal
kernels of five frames. The graph convolution has a residual connection, and its output is initially almost zero.

``yan``: as published. Three partitions of the skeleton's edges, a learned weight per edge; temporal kernels of nine frames.

In both, a block's input is added to its output, except in the first block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ...curation.registry import checked
from .batch_norm import MOMENTUM, norm_pieces, statistics_pieces
from .flat import FlatNetwork, GraphBackbone, Piece, Pieces
from .registry import Depth, Width

BlockForm = Literal["ctr_gcn", "yan"]
_FRAMES: dict[BlockForm, int] = {"ctr_gcn": 5, "yan": 9}
"""Length of the temporal kernels, in frames."""


@checked
def st_gcn(
    init: torch.Generator,
    *,
    sample: Sequence[int],
    partitions: Tensor,
    width: Width = 64,
    depth: Depth = 2,
    form: BlockForm = "ctr_gcn",
    bodies: int = 1,
) -> GraphBackbone:
    """An ST-GCN on sequences of graphs, ``sample`` = (C, T, V); see ``StGcn``.

    Args:
        init: generator for all weights.
        sample: (C, T, V): channels, frames, joints.
        partitions: (K, V, V) float.
        width: channels of each block.
        depth: number of blocks, at least 1.
        form: "ctr_gcn" or "yan": see above.
        bodies: M, bodies per sample; above 1 samples are (M, C, T, V).

    >>> network = st_gcn(torch.Generator().manual_seed(0), sample=(3, 16, 4), partitions=torch.eye(4)[None], width=8)
    >>> network(torch.zeros(2, 3, 16, 4)).shape, network.width
    (torch.Size([2, 8]), 8)
    """
    if len(sample) != 3 or partitions.ndim != 3:
        raise ValueError(f"ST-GCN needs tensors (C, T, V) and partitions (K, V, V), not {sample}, {tuple(partitions.shape)}")
    make = functools.partial(StGcn, partitions, sample[0], width=width, depth=depth, form=form, bodies=bodies)
    return GraphBackbone(make, width, init)


class StGcn(FlatNetwork):
    """The networks' architecture and computation; the caller holds their parameters and statistics as rows.

    Streams are computed one after the other, since each uses the whole processor.

    Args:
        partitions: (K, V, V) float; entry [k, i, j] is the weight of the edge from node i to node j.
        channels: C of a sample (C, T, V).
        classes: number of outputs.
        width: channels of each block.
        depth: number of blocks.
        form: "ctr_gcn" or "yan": see above.
        bodies: M, bodies per sample: features are averaged over all bodies, including absent ones, before the output layer. The
            batch norm of the input has separate scales and moments per body in the form "ctr_gcn", and shared ones in "yan".
    """

    alone = True
    """Streams are trained one at a time, see ``graph_streams.learn``."""

    def __init__(
        self,
        partitions: Tensor,
        channels: int,
        classes: int,
        *,
        width: int = 64,
        depth: int = 2,
        form: BlockForm = "ctr_gcn",
        bodies: int = 1,
    ) -> None:
        if min(channels, classes, width, depth, bodies) < 1:
            raise ValueError(f"width {width}, depth {depth}, {channels} channels, {classes} classes, {bodies} bodies: above 0")
        self.partitions, self.width, self.depth, self.form, self.frames = partitions, width, depth, form, _FRAMES[form]
        self.bodies, self._together = bodies, bodies if form == "ctr_gcn" else 1
        columns = self._together * partitions.shape[1] * channels
        pieces, norms = norm_pieces("input", columns), statistics_pieces("input", columns)
        for block in range(depth):
            pieces |= self._block(block, channels if block == 0 else width)
            names = ["spatial", "temporal", *(["down"] if f"{block}/down" in pieces else [])]
            for name in names:
                norms |= statistics_pieces(f"{block}/{name}", width)
        head = Piece((classes, width), "linear", width) if form == "yan" else _normal((classes, width), 2 / classes)
        pieces |= {"output": head, "output_bias": Piece((classes,), "linear", width)}
        self.parameters, self.statistics = Pieces(pieces), Pieces(norms)

    def _block(self, block: int, inputs: int) -> dict[str, Piece]:
        parts, nodes = self.partitions.shape[:2]
        width, frames = self.width, self.frames
        spatial, temporal = (parts * width, inputs, 1, 1), (width, width, frames, 1)
        if self.form == "yan":
            return {
                f"{block}/spatial": Piece(spatial, "linear", inputs),
                f"{block}/spatial_bias": Piece((parts * width,), "linear", inputs),
                f"{block}/edges": Piece((parts, nodes, nodes), "ones"),
                **norm_pieces(f"{block}/spatial", width),
                f"{block}/temporal": Piece(temporal, "linear", width * frames),
                f"{block}/temporal_bias": Piece((width,), "linear", width * frames),
                **norm_pieces(f"{block}/temporal", width),
            }
        found = {
            f"{block}/spatial": _normal(spatial, 2 / (width * inputs * parts)),
            f"{block}/spatial_bias": Piece((parts * width,), "zeros"),
            f"{block}/edges": Piece((parts, nodes, nodes), "identities"),
            f"{block}/spatial/scale": Piece((1, width), "ones", scale=1e-6),
            f"{block}/spatial/shift": Piece((1, width), "zeros"),
            f"{block}/temporal": _normal(temporal, 2 / (width * frames)),
            f"{block}/temporal_bias": Piece((width,), "zeros"),
            **norm_pieces(f"{block}/temporal", width),
        }
        if inputs == width:
            return found
        down = {f"{block}/down": _normal((width, inputs), 2 / width), f"{block}/down_bias": Piece((width,), "zeros")}
        return found | down | norm_pieces(f"{block}/down", width)

    def inputs(self, x: Tensor) -> Tensor:
        """Return ``x`` unchanged: (n, C, T, V), or (n, M, C, T, V) for several bodies."""
        return x

    def logits(self, flat: Tensor, statistics: Tensor, inputs: Tensor, *, training: bool, twice: bool = False) -> Tensor:
        """(R, n, classes), as ``Gcn.logits``."""
        p = self.parameters.views(flat)
        seen = self.features(flat, statistics, inputs, training=training)
        return torch.stack([nn.functional.linear(each, p["output"][r], p["output_bias"][r]) for r, each in enumerate(seen)])

    def features(self, flat: Tensor, statistics: Tensor, inputs: Tensor, *, training: bool) -> Tensor:
        """(R, n, width): input of the last layer."""
        p, seen = self.parameters.views(flat), self.statistics.views(statistics)
        each = [
            self._one({n: v[r] for n, v in p.items()}, {n: v[r] for n, v in seen.items()}, inputs, training)
            for r in range(len(flat))
        ]
        return torch.stack(each)

    def topology(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """(R,) the norm of an attention over the skeleton's edges, in all frames of the batch (TWP's topological term).

        ST-GCN has no attention. This is the attention that TWP defines for any network, see ``Gcn.topology``, on the K
        convolutions of the first block: h = W_k x of a joint in a frame, with x normalised by the batch's own statistics, and
        the softmax over a joint and its neighbours in the skeleton, regardless of the learned graph.
        """
        parts, near = len(self.partitions), (self.partitions.sum(0) + torch.eye(self.partitions.shape[1]).to(inputs)) > 0
        p = self.parameters.views(flat)
        norms: list[Tensor] = []
        for r in range(len(flat)):
            scale, shift = p["input/scale"][r].view(-1), p["input/shift"][r].view(-1)
            x = self._by_frame(nn.functional.batch_norm(self._by_joint(inputs), None, None, scale, shift, True), inputs.shape)
            weight = p["0/spatial"][r].view(parts, self.width, -1)
            h = torch.einsum("ntvc,kwc->ntkvw", x, weight)
            scores = nn.functional.leaky_relu(h.tanh() @ h.mT, 0.2).masked_fill(~near.T, -torch.inf)
            norms.append(scores.softmax(dim=-1).norm())
        return torch.stack(norms)

    def _one(self, p: dict[str, Tensor], seen: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
        def norm(name: str, values: Tensor) -> Tensor:
            mean, variance = seen[f"{name}/mean"].view(-1), seen[f"{name}/variance"].view(-1)
            scale, shift = p[f"{name}/scale"].view(-1), p[f"{name}/shift"].view(-1)
            return nn.functional.batch_norm(values, mean, variance, scale, shift, training, MOMENTUM)

        frames, nodes = x.shape[-2:]
        # Channels last throughout, which products and convolutions read fastest.
        h = self._by_frame(norm("input", self._by_joint(x)), x.shape)
        samples = len(h)
        for block in range(self.depth):
            y = norm(f"{block}/spatial", self._over_joints(p, block, h))
            if self.form == "ctr_gcn":
                rows = h.reshape(-1, h.shape[-1])
                if f"{block}/down" in p:
                    rows = norm(f"{block}/down", nn.functional.linear(rows, p[f"{block}/down"], p[f"{block}/down_bias"]))
                y = y + rows
            y = y.relu().view(samples, frames, nodes, self.width).permute(0, 3, 1, 2)
            weight, bias = p[f"{block}/temporal"], p[f"{block}/temporal_bias"]
            out = norm(f"{block}/temporal", nn.functional.conv2d(y, weight, bias, padding=(self.frames // 2, 0)))
            out = out.permute(0, 2, 3, 1)
            h = (out if block == 0 else out + h).relu()
        found = h.mean((1, 2))
        return found if self.bodies == 1 else found.unflatten(0, (-1, self.bodies)).mean(1)

    def _by_joint(self, x: Tensor) -> Tensor:
        """(n, C, T, V) -> (n, V C, T): the coordinates of all joints, as the batch norm of the input takes them.

        For several bodies (n, M, C, T, V) -> (n, M V C, T), or (n M, V C, T) if bodies share the batch norm.
        """
        channels, frames, nodes = x.shape[-3:]
        return x.movedim(-1, -3).reshape(-1, self._together * nodes * channels, frames)

    def _by_frame(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """Result of ``_by_joint`` -> (n M, T, V, C)."""
        channels, frames, nodes = shape[-3:]
        return rows.view(-1, nodes, channels, frames).permute(0, 3, 1, 2).contiguous()

    def _over_joints(self, p: dict[str, Tensor], block: int, h: Tensor) -> Tensor:
        """(n, T, V, C) -> (n T V, width): gather the neighbours' features by every graph, then apply that graph's weights."""
        parts, nodes = self.partitions.shape[:2]
        weight, bias = p[f"{block}/spatial"].view(parts, self.width, -1), p[f"{block}/spatial_bias"].view(parts, self.width)
        edges = p[f"{block}/edges"]
        if self.form == "yan":
            graph = self.partitions.to(h) * edges
            offset = graph.sum(1).T @ bias
        else:
            graph = edges / (edges.norm(dim=1, keepdim=True) + 1e-4)
            offset = bias.sum(0).expand(nodes, -1)
        frames = h.reshape(-1, nodes, h.shape[-1])
        gathered = torch.bmm(graph.permute(2, 0, 1).reshape(-1, nodes).expand(len(frames), -1, -1), frames)
        found = gathered.view(-1, parts * h.shape[-1]) @ weight.mT.reshape(-1, self.width)
        return (found.view(-1, nodes, self.width) + offset).view(-1, self.width)


def _normal(shape: tuple[int, ...], variance: float) -> Piece:
    return Piece(shape, "normal", scale=math.sqrt(variance))
