"""Graph convolutional networks on small graphs of one shape, many of them along a stream axis.

The architecture is dgllife's GCNPredictor, which CGLB uses. A layer is relu(A Z W + b) + relu(Z R + c), then batch norm over
all nodes of the batch: the graph convolution has no normalisation, and the residual is a linear branch. The read-out
concatenates a gated sum and the maximum over nodes; a hidden layer of relu and batch norm and a linear layer give the logits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ....curation.registry import checked
from ..batch_norm import batch_norm, norm_pieces, statistics_pieces
from ..flat import FlatNetwork, GraphBackbone, Piece, Pieces
from ..registry import Depth, Width
from .step import GcnStep, StepLogits

Readout = Literal["weighted_sum_max", "sum_max"]


@checked
def gcn(
    init: torch.Generator,
    *,
    sample: Sequence[int],
    adjacency: Tensor,
    width: Width = 64,
    depth: Depth = 2,
    hidden: Width = 64,
    readout: Readout = "weighted_sum_max",
    bodies: int = 1,
) -> GraphBackbone:
    """A GCN on graphs whose nodes have vectors, ``sample`` = (V, F); see ``Gcn``.

    Args:
        init: generator for all weights.
        sample: (V, F): nodes, and features per node.
        adjacency: (V, V) float, with self-loops.
        width: length of a node's feature vector.
        depth: number of layers, at least 1.
        hidden: width of the hidden layer.
        readout: see ``Gcn``.
        bodies: M, bodies per sample; above 1 samples are (M, V, F).

    >>> chain = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])  # three joints, each with its neighbours
    >>> network = gcn(torch.Generator().manual_seed(0), sample=(3, 5), adjacency=chain, width=8, hidden=8)
    >>> network(torch.zeros(2, 3, 5)).shape, network.width
    (torch.Size([2, 8]), 8)
    """
    if len(sample) != 2 or adjacency.ndim != 2:
        raise ValueError(f"a GCN needs node vectors (V, F) and an adjacency (V, V), not {sample}, {tuple(adjacency.shape)}")
    shape = {"width": width, "depth": depth, "hidden": hidden}
    make = functools.partial(Gcn, adjacency, sample[1], **shape, readout=readout, bodies=bodies)
    return GraphBackbone(make, hidden, init)


@dataclasses.dataclass(frozen=True)
class GraphInputs:
    """Graphs of one batch, concatenated: row i V + v of a tensor is node v of graph i. Each body is a graph.

    Attributes:
        x: (1, n V, F) node features.
        transposed: (1, F, n V), ``x`` transposed, which makes the product in the gradient a fifth faster.
        graphs: n, the number of graphs of all bodies.
    """

    x: Tensor
    transposed: Tensor
    graphs: int


class Gcn(FlatNetwork):
    """The networks' architecture and computation; the caller holds their parameters and statistics as rows.

    Args:
        adjacency: (V, V) float, with self-loops; entry [i, j] is the weight of the edge from node j to node i.
        features: F, length of a node's vector.
        classes: number of outputs.
        width: width of each layer, at least 1.
        depth: number of layers, at least 1.
        hidden: width of the classifier's hidden layer.
        readout: "weighted_sum_max" (``as_released``: each node has a learned gate in (0, 1)), or "sum_max" (``as_written``).
        bodies: M, graphs per sample, whose features are averaged before the output layer, including those of absent bodies.
    """

    def __init__(
        self,
        adjacency: Tensor,
        features: int,
        classes: int,
        *,
        width: int = 64,
        depth: int = 2,
        hidden: int = 64,
        readout: Readout = "weighted_sum_max",
        bodies: int = 1,
    ) -> None:
        if min(features, classes, width, depth, hidden, bodies) < 1:
            message = f"width {width}, depth {depth}, hidden {hidden}, {features} features, {classes} classes, {bodies} bodies"
            raise ValueError(f"{message}: above 0")
        self.adjacency, self.width, self.depth, self.classes, self.readout = adjacency, width, depth, classes, readout
        self.bodies = bodies
        pieces: dict[str, Piece] = {}
        norms: dict[str, Piece] = {}
        for layer in range(depth):
            inputs = features if layer == 0 else width
            pieces |= {
                f"{layer}/conv": Piece((inputs, width), "glorot"),
                f"{layer}/conv_bias": Piece((1, width), "zeros"),
                f"{layer}/residual": Piece((inputs, width), "linear", inputs),
                f"{layer}/residual_bias": Piece((1, width), "linear", inputs),
                **norm_pieces(str(layer), width),
            }
            norms |= statistics_pieces(str(layer), width)
        if readout == "weighted_sum_max":
            pieces |= {"gate": Piece((width, 1), "linear", width), "gate_bias": Piece((1, 1), "linear", width)}
        pieces |= {
            "hidden": Piece((2 * width, hidden), "linear", 2 * width),
            "hidden_bias": Piece((1, hidden), "linear", 2 * width),
            **norm_pieces("hidden", hidden),
            "output": Piece((hidden, classes), "linear", hidden),
            "output_bias": Piece((1, classes), "linear", hidden),
        }
        self.parameters, self.statistics = Pieces(pieces), Pieces(norms | statistics_pieces("hidden", hidden))
        self._step = GcnStep(adjacency, self.parameters, self.statistics, width=width, depth=depth)

    def inputs(self, x: Tensor) -> GraphInputs:
        """Inputs of the network from node vectors (n, V, F), or (n, M, V, F) for several bodies: a cache-aligned copy."""
        rows = x.clone().view(1, -1, x.shape[-1])
        return GraphInputs(rows, rows.mT.contiguous(), len(x) * self.bodies)

    def logits(self, flat: Tensor, statistics: Tensor, inputs: GraphInputs, *, training: bool, twice: bool = False) -> Tensor:
        """(R, n, classes).

        Args:
            flat: (R, P) parameters.
            statistics: (R, S) running means and variances; updated if ``training``, as in torch's batch norm.
            inputs: shared by the streams.
            training: normalise by the batch. A gradient can be computed once, before the next call with ``training``.
            twice: allow gradients of any order, at any time; slower.
        """
        if training and flat.device.type == "cpu" and not twice:
            # The mean of the bodies' logits is the logits of their mean features.
            return self._over_bodies(StepLogits.apply(self._step, inputs.x, inputs.transposed, statistics, flat))
        return self.logits_by_autograd(flat, statistics, inputs, training=training)

    def logits_by_autograd(self, flat: Tensor, statistics: Tensor, inputs: GraphInputs, *, training: bool) -> Tensor:
        """``logits`` by torch's operations alone, which have gradients of any order on any device."""
        p = self.parameters.views(flat)
        return torch.baddbmm(p["output_bias"], self.features(flat, statistics, inputs, training=training), p["output"])

    def features(self, flat: Tensor, statistics: Tensor, inputs: GraphInputs, *, training: bool) -> Tensor:
        """(R, n, hidden): input of the last layer."""
        p, seen = self.parameters.views(flat), self.statistics.views(statistics)
        z = inputs.x.expand(len(flat), -1, -1)
        for layer in range(self.depth):
            conv = self._by_graph(torch.bmm(z, p[f"{layer}/conv"]), inputs)
            conv = (self.adjacency.to(z) @ conv).flatten(1, 2) + p[f"{layer}/conv_bias"]
            residual = torch.baddbmm(p[f"{layer}/residual_bias"], z, p[f"{layer}/residual"])
            z = batch_norm(str(layer), p, seen, conv.relu() + residual.relu(), training=training)
        gated = z if "gate" not in p else z * torch.sigmoid(torch.baddbmm(p["gate_bias"], z, p["gate"]))
        both = torch.cat([self._by_graph(gated, inputs).sum(2), self._by_graph(z, inputs).amax(2)], dim=2)
        hidden = torch.baddbmm(p["hidden_bias"], both, p["hidden"]).relu()
        return self._over_bodies(batch_norm("hidden", p, seen, hidden, training=training))

    def _over_bodies(self, found: Tensor) -> Tensor:
        """(R, n M, k) -> (R, n, k)."""
        return found if self.bodies == 1 else found.unflatten(1, (-1, self.bodies)).mean(2)

    def topology(self, flat: Tensor, inputs: GraphInputs) -> Tensor:
        """(R,) the norm of the first layer's attention over all edges of the batch (TWP's topological term).

        The attention of node i to its neighbour j is the softmax over i's neighbours of LeakyReLU(h_j . tanh(h_i)), slope 0.2,
        with h = x W of the graph convolution.
        """
        weight = self.parameters.views(flat)["0/conv"]
        h = self._by_graph(torch.bmm(inputs.x.expand(len(weight), -1, -1), weight), inputs)
        scores = torch.einsum("rnjw,rniw->rnij", h, h.tanh())
        scores = torch.nn.functional.leaky_relu(scores, 0.2).masked_fill(self.adjacency == 0, -torch.inf)
        return scores.softmax(dim=3).flatten(1).norm(dim=1)

    @staticmethod
    def _by_graph(rows: Tensor, inputs: GraphInputs) -> Tensor:
        """(R, n V, k) as (R, n, V, k)."""
        return rows.view(len(rows), inputs.graphs, -1, rows.shape[2])
