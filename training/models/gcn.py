"""Graph convolutional networks on small graphs of one shape, many of them along an axis of streams.

Source: PROTOCOLS.md 5.4, which names dgllife's GCNPredictor. A layer is relu(A Z W + b) + relu(Z R + c), then batch norm over
all nodes of the batch: the graph convolution has no normalisation, and the residual is a linear branch. The read-out puts a
gated sum and the maximum over nodes side by side; a hidden layer of relu and batch norm and a linear layer give the logits.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from torch import Tensor

from .flat import Piece, Pieces

Readout = Literal["weighted_sum_max", "sum_max"]

EPSILON = 1e-5
MOMENTUM = 0.1


@dataclasses.dataclass(frozen=True)
class GraphInputs:
    """Graphs of one batch, node after node: row v n + i of a tensor is node v of graph i.

    Attributes:
        x: (1, V n, F) node features.
        ax: (1, V n, F) the sums over neighbours, which no weight changes.
        graphs: n.
    """

    x: Tensor
    ax: Tensor
    graphs: int


class Gcn:
    """The networks' shape and what they compute; their parameters and statistics are rows that the caller keeps.

    Args:
        adjacency: (V, V) float, with self-loops; entry [i, j] weighs what node i gets from node j.
        features: F, length of a node's vector.
        classes: outputs.
        width: of each layer, at least 1.
        depth: layers, at least 1.
        hidden: width of the classifier's hidden layer.
        readout: "weighted_sum_max" (``as_released``: each node has a learned gate in (0, 1)), or "sum_max" (``as_written``).
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
    ) -> None:
        if min(features, classes, width, depth, hidden) < 1:
            raise ValueError(f"width {width}, depth {depth}, hidden {hidden}, {features} features, {classes} classes: above 0")
        if readout not in ("weighted_sum_max", "sum_max"):
            raise ValueError(f"readout {readout!r}: 'weighted_sum_max' or 'sum_max'")
        self.adjacency, self.width, self.depth, self.classes, self.readout = adjacency, width, depth, classes, readout
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
        self._work = _Workspace()

    def inputs(self, x: Tensor) -> GraphInputs:
        """Node vectors (n, V, F) as the network takes them; sums over neighbours are taken once."""
        by_node = x.transpose(0, 1).contiguous()
        nodes, graphs, features = by_node.shape
        summed = (self.adjacency.to(x.dtype) @ by_node.view(nodes, -1)).view(1, nodes * graphs, features)
        return GraphInputs(by_node.view(1, nodes * graphs, features), summed, graphs)

    def logits(self, flat: Tensor, statistics: Tensor, inputs: GraphInputs, *, training: bool) -> Tensor:
        """(R, n, classes).

        Args:
            flat: (R, P) parameters.
            statistics: (R, S) running means and variances; moved where ``training``, as torch's batch norm moves them.
            inputs: shared by the streams.
            training: normalise by the batch. A gradient can be asked for once, before the next call with ``training``.
        """
        p, seen = self.parameters.views(flat), self.statistics.views(statistics)
        both = _Embed.apply(self, inputs, seen, flat) if training else self.embed(p, seen, inputs, training=False)
        hidden = torch.baddbmm(p["hidden_bias"], both, p["hidden"]).relu()
        normal = batch_norm("hidden", p, seen, hidden, training=training)
        return torch.baddbmm(p["output_bias"], normal, p["output"])

    def embed(self, p: dict[str, Tensor], seen: dict[str, Tensor], inputs: GraphInputs, *, training: bool) -> Tensor:
        """(R, n, 2 width), the read-out, as torch's autograd sees it: what ``_Embed`` computes by hand."""
        z = inputs.x.expand(len(p["hidden"]), -1, -1)
        for layer in range(self.depth):
            az = inputs.ax.expand(len(z), -1, -1) if layer == 0 else self._over_nodes(self.adjacency, z, inputs.graphs)
            conv = torch.baddbmm(p[f"{layer}/conv_bias"], az, p[f"{layer}/conv"]).relu()
            residual = torch.baddbmm(p[f"{layer}/residual_bias"], z, p[f"{layer}/residual"]).relu()
            z = batch_norm(str(layer), p, seen, conv + residual, training=training)
        nodes = z.view(len(z), -1, inputs.graphs, self.width)
        gated = z if "gate" not in p else z * torch.sigmoid(torch.baddbmm(p["gate_bias"], z, p["gate"]))
        return torch.cat([gated.view(nodes.shape).sum(1), nodes.amax(1)], dim=2)

    def topology(self, flat: Tensor, inputs: GraphInputs) -> Tensor:
        """(R,) the norm of the first layer's attention over all edges of the batch (TWP's topological term).

        The attention of node i to its neighbour j is the softmax over i's neighbours of LeakyReLU(h_j . tanh(h_i)), slope 0.2,
        with h = x W of the graph convolution.
        """
        weight = self.parameters.views(flat)["0/conv"]
        h = torch.bmm(inputs.x.expand(len(weight), -1, -1), weight).view(len(weight), -1, inputs.graphs, self.width)
        scores = torch.einsum("rjnw,rinw->rnij", h, h.tanh())
        scores = torch.nn.functional.leaky_relu(scores, 0.2).masked_fill(self.adjacency == 0, -torch.inf)
        return scores.softmax(dim=3).flatten(1).norm(dim=1)

    def _over_nodes(self, operator: Tensor, z: Tensor, graphs: int) -> Tensor:
        nodes = z.view(len(z), -1, graphs * self.width)
        return torch.bmm(operator.to(z.dtype).expand(len(z), -1, -1), nodes).view(z.shape)


def norm_pieces(name: str, width: int) -> dict[str, Piece]:
    """Scale and shift of a batch norm."""
    return {f"{name}/scale": Piece((1, width), "ones"), f"{name}/shift": Piece((1, width), "zeros")}


def statistics_pieces(name: str, width: int) -> dict[str, Piece]:
    """Running mean and variance of a batch norm."""
    return {f"{name}/mean": Piece((1, width), "zeros"), f"{name}/variance": Piece((1, width), "ones")}


def batch_norm(name: str, p: dict[str, Tensor], seen: dict[str, Tensor], x: Tensor, *, training: bool) -> Tensor:
    """Batch norm of (R, rows, width) over the rows of each stream; moves the running statistics where ``training``."""
    mean, variance = seen[f"{name}/mean"], seen[f"{name}/variance"]
    if training:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).square().mean(1, keepdim=True)
        _move(name, seen, mean, variance, x.shape[1])
    return (x - mean) * (p[f"{name}/scale"] * torch.rsqrt(variance + EPSILON)) + p[f"{name}/shift"]


@torch.no_grad()
def _move(name: str, seen: dict[str, Tensor], mean: Tensor, variance: Tensor, rows: int) -> None:
    seen[f"{name}/mean"].lerp_(mean, MOMENTUM)
    seen[f"{name}/variance"].lerp_(variance * (rows / max(rows - 1, 1)), MOMENTUM)


class _Workspace:
    """Memory that is used again and again: fresh memory for each step costs as much as the sums."""

    def __init__(self) -> None:
        self._held: dict[object, Tensor] = {}
        self.serial = 0

    def __call__(self, name: object, like: Tensor, *shape: int) -> Tensor:
        count = torch.Size(shape).numel()
        held = self._held.get(name)
        if held is None or held.numel() < count or held.dtype != like.dtype or held.device != like.device:
            held = self._held[name] = torch.zeros(count, dtype=like.dtype, device=like.device)
        return held[:count].view(shape)


class _Embed(torch.autograd.Function):
    """``Gcn.embed`` in training, with its gradient by hand: in memory that is there, with as few passes as can be."""

    @staticmethod
    def forward(ctx: Any, net: Gcn, inputs: GraphInputs, seen: dict[str, Tensor], flat: Tensor) -> Tensor:
        """The read-out; keeps what the gradient needs in ``net``'s workspace."""
        p = net.parameters.views(flat.detach())
        work, width, graphs = net._work, net.width, inputs.graphs  # pyright: ignore[reportPrivateUsage]
        work.serial += 1
        streams, rows = len(flat), inputs.x.shape[1]
        ones = torch.ones(1, 1, rows, dtype=flat.dtype, device=flat.device).expand(streams, 1, rows)
        operator = net.adjacency.to(ones.dtype).expand(streams, -1, -1)
        spare = work("spare", ones, streams, rows, width)
        z, moments = inputs.x.expand(streams, -1, -1), list[tuple[Tensor, Tensor]]()
        for layer in range(net.depth):
            kept = {name: work((layer, name), ones, streams, rows, width) for name in ("conv", "residual", "sum", "z", "az")}
            az = inputs.ax.expand(streams, -1, -1) if layer == 0 else kept["az"]
            if layer:
                by_node = (streams, -1, graphs * width)
                torch.bmm(operator, z.view(by_node), out=az.view(by_node))
            torch.bmm(az, p[f"{layer}/conv"], out=kept["conv"]).add_(p[f"{layer}/conv_bias"]).relu_()
            torch.bmm(z, p[f"{layer}/residual"], out=kept["residual"]).add_(p[f"{layer}/residual_bias"]).relu_()
            torch.add(kept["conv"], kept["residual"], out=kept["sum"])
            mean = torch.bmm(ones, kept["sum"]) / rows
            z = torch.sub(kept["sum"], mean, out=kept["z"])
            variance = torch.bmm(ones, torch.mul(z, z, out=spare)) / rows
            _move(str(layer), seen, mean, variance, rows)
            inverse = torch.rsqrt(variance + EPSILON)
            z.mul_(inverse * p[f"{layer}/scale"]).add_(p[f"{layer}/shift"])
            moments.append((mean, inverse))
        nodes = z.view(streams, -1, graphs, width)
        gate = torch.sigmoid(torch.bmm(z, p["gate"]) + p["gate_bias"]) if "gate" in p else None
        summed = (nodes if gate is None else torch.mul(z, gate, out=spare).view(nodes.shape)).sum(1)
        top = nodes.amax(1)
        ctx.net, ctx.inputs, ctx.p, ctx.serial = net, inputs, p, work.serial
        ctx.moments, ctx.gate, ctx.top, ctx.ones, ctx.operator = moments, gate, top, ones, operator
        return torch.cat([summed, top], dim=2)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of ``flat``; 0 where the read-out does not depend on a parameter."""
        net, inputs, p = ctx.net, ctx.inputs, ctx.p
        work, width, graphs = net._work, net.width, inputs.graphs
        if work.serial != ctx.serial:
            raise RuntimeError("the network was used again before this gradient was asked for")
        ones, streams, rows = ctx.ones, len(ctx.ones), inputs.x.shape[1]
        spare, d_conv, d_residual, dz = (
            work(name, ones, streams, rows, width) for name in ("spare", "d_conv", "d_residual", "dz")
        )
        gradient = torch.zeros(streams, net.parameters.size, dtype=ones.dtype, device=ones.device)
        found = net.parameters.views(gradient)
        _into_nodes(ctx, upstream[0], work((net.depth - 1, "z"), ones, streams, rows, width), spare, dz, found)
        for layer in reversed(range(net.depth)):
            kept = {name: work((layer, name), ones, streams, rows, width) for name in ("conv", "residual", "sum", "az")}
            mean, inverse = ctx.moments[layer]
            d_shift = found[f"{layer}/shift"].copy_(torch.bmm(ones, dz))
            d_scale = (torch.bmm(ones, torch.mul(dz, kept["sum"], out=spare)) - mean * d_shift) * inverse
            scale = inverse * p[f"{layer}/scale"]
            slope = -scale * inverse * d_scale / rows
            dz.mul_(scale).addcmul_(kept["sum"], slope).sub_(scale * d_shift / rows + slope * mean)
            threshold = torch.ops.aten.threshold_backward.grad_input
            threshold(dz, kept["conv"], 0, grad_input=d_conv)
            threshold(dz, kept["residual"], 0, grad_input=d_residual)
            last = layer == 0
            az = inputs.ax.expand(streams, -1, -1) if last else kept["az"]
            z = inputs.x.expand(streams, -1, -1) if last else work((layer - 1, "z"), ones, streams, rows, width)
            found[f"{layer}/scale"].copy_(d_scale)
            for branch, given, into in ("conv", az, d_conv), ("residual", z, d_residual):
                found[f"{layer}/{branch}"].copy_(torch.bmm(given.transpose(1, 2), into))
                found[f"{layer}/{branch}_bias"].copy_(torch.bmm(ones, into))
            if not last:
                by_node = (streams, -1, graphs * width)
                torch.bmm(d_conv, p[f"{layer}/conv"].transpose(1, 2), out=spare)
                torch.bmm(ctx.operator.transpose(1, 2), spare.view(by_node), out=dz.view(by_node))
                dz.baddbmm_(d_residual, p[f"{layer}/residual"].transpose(1, 2))
        return None, None, None, gradient


def _into_nodes(ctx: Any, upstream: Tensor, z: Tensor, spare: Tensor, dz: Tensor, found: dict[str, Tensor]) -> None:
    """Write the read-out's gradient by the nodes' vectors into ``dz``, and that of the gate into ``found``."""
    width, shape = z.shape[2], (len(z), -1, ctx.inputs.graphs, z.shape[2])
    nodes, by_node, d_nodes = z.view(shape), spare.view(shape), dz.view(shape)
    d_sum, d_top = (part[:, None] for part in upstream.split(width, dim=2))
    # Nodes that share the maximum share its gradient: then the order of the nodes does not matter.
    torch.eq(nodes, ctx.top[:, None], out=by_node)
    torch.mul(by_node, d_top / by_node.sum(1, keepdim=True), out=d_nodes)
    if ctx.gate is None:
        d_nodes.add_(d_sum)
        return
    d_nodes.addcmul_(ctx.gate.view(len(z), -1, ctx.inputs.graphs, 1), d_sum)
    torch.mul(nodes, d_sum, out=by_node)
    d_gate = spare.sum(2, keepdim=True) * ctx.gate * (1 - ctx.gate)
    dz.addcmul_(d_gate, ctx.p["gate"].transpose(1, 2))
    found["gate"].copy_(torch.bmm(z.transpose(1, 2), d_gate))
    found["gate_bias"].copy_(d_gate.sum(1, keepdim=True))
