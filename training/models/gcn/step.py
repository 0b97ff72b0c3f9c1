"""A training step of graph networks: logits and their gradient, with matrix products by torch and the rest by ``passes``.

A batch norm maps a column x to x slope + offset, which is folded into the weights of the next layer, so that it needs no pass
over the rows; the sums over rows in its gradient follow from the products that give the gradient of those weights.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batch_norm import Array, Norm
from ..flat import Pieces
from . import passes


@dataclasses.dataclass(frozen=True)
class _Layer:
    """Values of a layer that its gradient needs.

    Attributes:
        given: (R, n, V, k): the features, or ``total`` of the layer below.
        weights: (R, k, 2 width): weights of the two branches, concatenated.
        total: (R, n, V, width): the branches' sum.
        active: which branches are above zero, see ``passes.activate``.
        norm: batch norm of ``total``.
    """

    given: Array
    weights: Array
    total: Array
    active: Array
    norm: Norm


@dataclasses.dataclass(frozen=True)
class _ReadOut:
    """Values of the read-out and the classifier that their gradient needs.

    Attributes:
        gate: (R, width), or (R, 0) without gates.
        opened: (R, n, V): the gates.
        both: (R, n, 2 width): sums and maxima.
        hidden: (R, n, hidden): the hidden layer after its relu.
        norm: batch norm of ``hidden``.
    """

    gate: Array
    opened: Array
    both: Array
    hidden: Array
    norm: Norm


class GcnStep:
    """Networks of one shape, with buffers that are reused: allocating them for each step costs as much as the computation.

    Args:
        adjacency: (V, V) float.
        parameters: named as in ``network.Gcn``.
        statistics: named as in ``network.Gcn``.
        width: width of each layer.
        depth: number of layers.
    """

    def __init__(self, adjacency: Tensor, parameters: Pieces, statistics: Pieces, *, width: int, depth: int) -> None:
        dense = adjacency.numpy(force=True)
        self._edges, self._transposed = passes.edges(dense), passes.edges(dense.T)
        self._degrees = dense.sum(1, keepdims=True)
        self._parameters, self._statistics, self._width, self._depth = parameters, statistics, width, depth
        self._held: dict[object, Array] = {}
        self._serial = 0

    def forward(self, x: Tensor, transposed: Tensor, statistics: Tensor, flat: Tensor) -> tuple[Tensor, Any]:
        """Return the logits (R, n, classes), and what ``backward`` needs; updates the statistics."""
        p, seen = self._parameters.arrays(flat), self._statistics.arrays(statistics)
        features = x.expand(len(flat), -1, -1).numpy().reshape(len(flat), -1, len(self._degrees), x.shape[2])
        given, below, layers = features, None, list[_Layer]()
        for number in range(self._depth):
            layers.append(self._layer(number, given, below, p, seen))
            given, below = layers[-1].total, layers[-1].norm
        logits, read_out = self._classify(layers[-1], p, seen)
        self._serial += 1
        return torch.from_numpy(logits), (self._serial, p, layers, read_out, transposed)

    def backward(self, kept: Any, d_logits: Tensor) -> Tensor:
        """Return the gradient with respect to ``flat``; 0 for parameters that the logits do not depend on.

        Raises:
            RuntimeError: ``forward`` was called again in between.
        """
        serial, p, layers, read_out, transposed = kept
        if serial != self._serial:
            raise RuntimeError("the network was used again before this gradient was requested")
        gradient = d_logits.new_zeros(len(d_logits), self._parameters.size)
        found = self._parameters.arrays(gradient)
        d_both = self._classifier_gradient(p, read_out, d_logits.contiguous().numpy(), found)
        dz, d_slope, d_offset = self._read_out_gradient(layers[-1], read_out, d_both, found)
        streams, graphs, nodes, width = dz.shape
        d_conv, d_products = (
            self._work(name, dz.dtype, streams, graphs, nodes, columns)
            for name, columns in (("conv", width), ("products", 2 * width))
        )
        for layer in reversed(range(self._depth)):
            here: _Layer = layers[layer]
            by_total, constant = here.norm.gradient(d_slope, d_offset, found)
            d_offsets = np.empty((streams, nodes, 2 * width), dz.dtype)
            passes.deactivate(here.total, here.active, here.norm.slope, by_total, constant, dz, d_conv, d_products, d_offsets)
            passes.over_neighbours(d_conv, *self._transposed, d_products)
            d_biases = d_offsets.sum(1, keepdims=True, dtype=np.float64)
            found[f"{layer}/conv_bias"][:], found[f"{layer}/residual_bias"][:] = d_biases[..., :width], d_biases[..., width:]
            if layer == 0:
                d_weights = _product(transposed.expand(streams, -1, -1).numpy(), d_products)
            else:
                d_weights = _product(here.given, d_products, transposed=True)
                below: Norm = layers[layer - 1].norm
                d_added = d_biases.astype(dz.dtype)
                d_added[..., :width] = (self._degrees * d_offsets[..., :width]).sum(1, keepdims=True)
                d_slope = (here.weights * d_weights).sum(2, dtype=np.float64)[:, None]
                d_offset = d_added @ here.weights.transpose(0, 2, 1)
                _multiply(d_products, np.ascontiguousarray(here.weights.transpose(0, 2, 1)), dz)
                d_weights = below.slope.transpose(0, 2, 1) * d_weights + below.offset.transpose(0, 2, 1) * d_added
            found[f"{layer}/conv"][:], found[f"{layer}/residual"][:] = d_weights[..., :width], d_weights[..., width:]
        return gradient

    def _layer(self, number: int, given: Array, below: Norm | None, p: dict[str, Array], seen: dict[str, Array]) -> _Layer:
        """A layer applied to ``given``, after the batch norm ``below`` if there is one."""
        by_node, width = given.shape[:3], self._width
        products, conv = (
            self._work(name, given.dtype, *by_node, size) for name, size in (("products", 2 * width), ("conv", width))
        )
        weights = np.concatenate([p[f"{number}/conv"], p[f"{number}/residual"]], axis=2)
        scaled, added = weights, np.zeros_like(weights[:, :1])
        if below is not None:
            scaled, added = below.slope.transpose(0, 2, 1) * weights, below.offset @ weights
        _multiply(given, scaled, products)
        passes.over_neighbours(products, *self._edges, conv)
        conv_offset = p[f"{number}/conv_bias"] + self._degrees * added[..., :width]
        residual_offset = p[f"{number}/residual_bias"] + added[..., width:]
        total = self._work((number, "total"), given.dtype, *by_node, width)
        active = self._work((number, "active"), np.uint8, *by_node, width)
        means, squares = np.empty((2, *conv_offset.shape), given.dtype)
        passes.activate(conv, products, conv_offset, residual_offset, total, active, means, squares)
        rows = by_node[1] * by_node[2]
        mean = means.mean(1, keepdims=True, dtype=np.float64)
        within = squares.sum(1, keepdims=True, dtype=np.float64) / rows
        norm = Norm.of(str(number), p, seen, mean, within + np.square(means - mean).mean(1, keepdims=True), rows)
        return _Layer(given, weights, total, active, norm)

    def _classify(self, last: _Layer, p: dict[str, Array], seen: dict[str, Array]) -> tuple[Array, _ReadOut]:
        streams, graphs, nodes, width = last.total.shape
        dtype, gated = last.total.dtype, "gate" in p
        gate = p["gate"][..., 0] if gated else np.empty((streams, 0), dtype)
        bias = p["gate_bias"][..., 0] if gated else np.empty((streams, 1), dtype)
        opened, both = np.empty((streams, graphs, nodes), dtype), np.empty((streams, graphs, 2 * width), dtype)
        passes.read_out(last.total, last.norm.slope, last.norm.offset, gate, bias, opened, both)
        hidden = _product(both, p["hidden"]) + p["hidden_bias"]
        np.maximum(hidden, 0, out=hidden)
        mean = hidden.mean(1, keepdims=True, dtype=np.float64)
        norm = Norm.of("hidden", p, seen, mean, np.square(hidden - mean).mean(1, keepdims=True), graphs)
        logits = _product(hidden * norm.slope + norm.offset, p["output"]) + p["output_bias"]
        return logits, _ReadOut(gate, opened, both, hidden, norm)

    def _classifier_gradient(self, p: dict[str, Array], kept: _ReadOut, d_logits: Array, found: dict[str, Array]) -> Array:
        """The gradient with respect to the read-out, (R, n, 2 width)."""
        found["output"][:] = _product(kept.hidden * kept.norm.slope + kept.norm.offset, d_logits, transposed=True)
        found["output_bias"][:] = d_logits.sum(1, keepdims=True)
        dz = _product(d_logits, np.ascontiguousarray(p["output"].transpose(0, 2, 1)))
        sums = ((dz * kept.hidden).sum(1, keepdims=True), dz.sum(1, keepdims=True))
        by_hidden, constant = kept.norm.gradient(*sums, found)
        d_hidden = (dz * kept.norm.slope + kept.hidden * by_hidden + constant) * (kept.hidden > 0)
        found["hidden"][:] = _product(kept.both, d_hidden, transposed=True)
        found["hidden_bias"][:] = d_hidden.sum(1, keepdims=True)
        return _product(d_hidden, np.ascontiguousarray(p["hidden"].transpose(0, 2, 1)))

    def _read_out_gradient(
        self, last: _Layer, kept: _ReadOut, d_both: Array, found: dict[str, Array]
    ) -> tuple[Array, Array, Array]:
        """The gradient dz with respect to node vectors, (R, n, V, width); the sums of dz total and of dz, (R, 1, width)."""
        dz = self._work("dz", d_both.dtype, *last.total.shape)
        d_slope, d_offset, d_gate = np.empty(last.norm.slope.shape), np.empty(last.norm.slope.shape), np.empty(kept.gate.shape)
        d_gate_bias = np.empty((len(dz), 1))
        norm = last.norm.slope, last.norm.offset
        sums = d_slope, d_offset, d_gate, d_gate_bias
        passes.into_nodes(last.total, *norm, kept.gate, kept.opened, kept.both, d_both, dz, *sums)
        if "gate" in found:
            found["gate"][..., 0], found["gate_bias"][..., 0] = d_gate, d_gate_bias
        return dz, d_slope, d_offset

    def _work(self, name: object, dtype: Any, *shape: int) -> Array:
        count, held = math.prod(shape), self._held.get(name)
        if held is None or held.size < count or held.dtype != dtype:
            # Torch's memory is cache-aligned: with NumPy's, products take a tenth longer.
            held = self._held[name] = torch.empty(count, dtype=getattr(torch, np.dtype(dtype).name)).numpy()
        return held[:count].reshape(shape)


class StepLogits(torch.autograd.Function):
    """``GcnStep.forward`` for torch's autograd."""

    @staticmethod
    def forward(ctx: Any, step: GcnStep, x: Tensor, transposed: Tensor, statistics: Tensor, flat: Tensor) -> Tensor:
        """(R, n, classes)."""
        logits, ctx.kept = step.forward(x, transposed, statistics, flat)
        ctx.step = step
        return logits

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient with respect to ``flat``."""
        return None, None, None, None, ctx.step.backward(ctx.kept, upstream[0])


def _multiply(one: Array, two: Array, out: Array, *, transposed: bool = False) -> None:
    """(R, ..., k) times (R, k, w), or ``one`` transposed times (R, ..., w), by torch; the caller limits its threads."""
    first, second, into = (torch.from_numpy(array.reshape(len(array), -1, array.shape[-1])) for array in (one, two, out))
    torch.bmm(first.mT if transposed else first, second, out=into)


def _product(one: Array, two: Array, *, transposed: bool = False) -> Array:
    """``_multiply`` into new memory."""
    out = np.empty((len(one), one.shape[-1] if transposed else one.shape[1], two.shape[-1]), one.dtype)
    _multiply(one, two, out, transposed=transposed)
    return out
