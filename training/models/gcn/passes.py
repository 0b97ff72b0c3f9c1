"""Compiled parts of a graph network's training step, between its matrix products.

Each passes over its arrays once; torch would pass over them for each of a dozen operations. Arrays are NumPy's, of shape
(R, n, V, w) for R streams of n graphs of V nodes, float32 or float64 in one call. Sums over graphs are taken in their order.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ....curation.compiled import compiled
from ..batch_norm import Array

_CONV, _RESIDUAL = 1, 2


def edges(adjacency: Array) -> tuple[Array, Array, Array]:
    """The nonzero entries of (V, V) ``adjacency``, row by row, each row padded with zeros to a multiple of three.

    Returns:
        ``first`` (V + 1,), ``neighbour`` and ``weight``: the edges of node v are ``first[v]`` to ``first[v + 1]``.
    """
    first, neighbour, weight = [0], list[int](), list[float]()
    for v, row in enumerate(adjacency):
        found = np.flatnonzero(row).tolist()
        fill = max(1, -(-len(found) // 3)) * 3 - len(found)
        neighbour += [*found, *[v] * fill]
        weight += [*row[found].tolist(), *[0.0] * fill]
        first.append(len(weight))
    return np.asarray(first), np.asarray(neighbour), np.asarray(weight, dtype=adjacency.dtype)


@compiled
def over_neighbours(given: Array, first: Array, neighbour: Array, weight: Array, out: Array) -> None:
    """Weighted sum of the rows of each node's neighbours, for the columns that both arrays have.

    Args:
        given: (R, n, V, w or more).
        first: from ``edges``, like ``neighbour`` and ``weight``.
        out: out, (R, n, V, w or more).
    """
    streams, graphs, nodes, _ = given.shape
    width = min(given.shape[3], out.shape[3])
    for r in range(streams):
        for i in range(graphs):
            for v in range(nodes):
                row = out[r, i, v]
                # Three neighbours at a time: most joints have two neighbours and a self-loop.
                for edge in range(first[v], first[v + 1], 3):
                    a, b, c = weight[edge], weight[edge + 1], weight[edge + 2]
                    one, two, three = (
                        given[r, i, neighbour[edge]],
                        given[r, i, neighbour[edge + 1]],
                        given[r, i, neighbour[edge + 2]],
                    )
                    if edge == first[v]:
                        for j in range(width):
                            row[j] = a * one[j] + b * two[j] + c * three[j]
                    else:
                        for j in range(width):
                            row[j] += a * one[j] + b * two[j] + c * three[j]


@compiled
def activate(
    conv: Array,
    products: Array,
    conv_offset: Array,
    residual_offset: Array,
    total: Array,
    active: Array,
    mean: Array,
    squares: Array,
) -> None:
    """relu(conv + conv_offset) + relu(residual + residual_offset), and each node's moments over the graphs (Welford 1962).

    Args:
        conv: (R, n, V, w).
        products: (R, n, V, 2 w), with residual in the second half of the columns.
        conv_offset: (R, V, w).
        residual_offset: (R, 1, w).
        total: out, (R, n, V, w).
        active: out, (R, n, V, w) uint8: branches that let a gradient pass, as bits.
        mean: out, (R, V, w).
        squares: out, (R, V, w), sum of squared distances to the mean.
    """
    streams, graphs, nodes, width = conv.shape
    zero, one = conv.dtype.type(0), conv.dtype.type(1)
    for r in range(streams):
        mean[r], squares[r] = 0, 0
        for i in range(graphs):
            share = one / conv.dtype.type(i + 1)
            for v in range(nodes):
                first, second, passes, out = conv[r, i, v], products[r, i, v, width:], active[r, i, v], total[r, i, v]
                first_offset, second_offset = conv_offset[r, v], residual_offset[r, 0]
                middle, spread = mean[r, v], squares[r, v]
                for j in range(width):
                    x, y = first[j] + first_offset[j], second[j] + second_offset[j]
                    # Compared this way round, NaN stays NaN.
                    passes[j] = (0 if x <= zero else _CONV) | (0 if y <= zero else _RESIDUAL)
                    found = (zero if x <= zero else x) + (zero if y <= zero else y)
                    ahead = found - middle[j]
                    middle[j] += ahead * share
                    spread[j] += ahead * (found - middle[j])
                    out[j] = found


# Summing in any order is what makes it fast; rounding depends on the width of the processor's registers.
@functools.partial(compiled, fastmath={"reassoc"})
def _dot(one: Array, two: Array) -> Any:
    found = one[0] * two[0]
    for j in range(1, len(one)):
        found += one[j] * two[j]
    return found


@compiled
def read_out(total: Array, slope: Array, offset: Array, gate: Array, gate_bias: Array, opened: Array, both: Array) -> None:
    """The gated sum and the maximum over a graph's nodes of z = total slope + offset.

    Args:
        total: (R, n, V, w).
        slope: (R, 1, w).
        offset: (R, 1, w).
        gate: (R, w), or (R, 0) if there is none.
        gate_bias: (R, 1).
        opened: out, (R, n, V): sigmoid(z gate + gate_bias), or 1.
        both: out, (R, n, 2 w): the sum of z opened, and the maximum of z.
    """
    streams, graphs, nodes, width = total.shape
    z = np.empty(width, total.dtype)
    for r in range(streams):
        for i in range(graphs):
            sums, most = both[r, i, :width], both[r, i, width:]
            sums[:] = 0
            most[:] = -np.inf
            for v in range(nodes):
                for j in range(width):
                    z[j] = total[r, i, v, j] * slope[r, 0, j] + offset[r, 0, j]
                if gate.shape[1]:
                    opened[r, i, v] = 1 / (1 + math.exp(-(_dot(z, gate[r]) + gate_bias[r, 0])))
                else:
                    opened[r, i, v] = 1
                share = opened[r, i, v]
                for j in range(width):
                    sums[j] += share * z[j]
                    most[j] = most[j] if z[j] <= most[j] else z[j]


@compiled
def into_nodes(
    total: Array,
    slope: Array,
    offset: Array,
    gate: Array,
    opened: Array,
    both: Array,
    d_both: Array,
    dz: Array,
    d_slope: Array,
    d_offset: Array,
    d_gate: Array,
    d_gate_bias: Array,
) -> None:
    """The gradient of ``read_out``, whose arguments come first; nodes that tie for a maximum share its gradient.

    Args:
        d_both: (R, n, 2 w).
        dz: out, (R, n, V, w).
        d_slope: out, (R, 1, w) float64: the sum of dz total.
        d_offset: out, (R, 1, w) float64: the sum of dz.
        d_gate: out, (R, w) float64, or (R, 0).
        d_gate_bias: out, (R, 1) float64.
    """
    streams, graphs, nodes, width = total.shape
    zero, one = total.dtype.type(0), total.dtype.type(1)
    z, share = np.empty((nodes, width), total.dtype), np.empty(width, total.dtype)
    offsets, slopes, gates = np.empty_like(share), np.empty_like(share), np.empty_like(share)
    for r in range(streams):
        d_offset[r], d_slope[r], d_gate[r], d_gate_bias[r] = 0, 0, 0, 0
        for i in range(graphs):
            top, d_sum, d_top = both[r, i, width:], d_both[r, i, :width], d_both[r, i, width:]
            share[:], offsets[:], slopes[:], gates[:] = 0, 0, 0, 0
            for v in range(nodes):
                for j in range(width):
                    z[v, j] = total[r, i, v, j] * slope[r, 0, j] + offset[r, 0, j]
                    share[j] += one if z[v, j] == top[j] else zero
            for j in range(width):
                share[j] = d_top[j] / share[j]
            for v in range(nodes):
                out, passed = dz[r, i, v], opened[r, i, v]
                for j in range(width):
                    out[j] = passed * d_sum[j] + (share[j] if z[v, j] == top[j] else zero)
                if gate.shape[1]:
                    d_opened = _dot(z[v], d_sum) * passed * (one - passed)
                    d_gate_bias[r, 0] += d_opened
                    for j in range(width):
                        out[j] += d_opened * gate[r, j]
                        gates[j] += d_opened * z[v, j]
                for j in range(width):
                    offsets[j] += out[j]
                    slopes[j] += out[j] * total[r, i, v, j]
            for j in range(width):
                d_offset[r, 0, j] += offsets[j]
                d_slope[r, 0, j] += slopes[j]
            for j in range(gate.shape[1]):
                d_gate[r, j] += gates[j]


@compiled
def deactivate(
    total: Array,
    active: Array,
    slope: Array,
    by_total: Array,
    constant: Array,
    dz: Array,
    d_conv: Array,
    d_products: Array,
    d_offsets: Array,
) -> None:
    """The gradient of ``activate`` and of the batch norm after it.

    Args:
        total: from ``activate``, like ``active``.
        slope: (R, 1, w): the gradient with respect to ``total`` is dz slope + total by_total + constant.
        by_total: (R, 1, w).
        constant: (R, 1, w).
        dz: (R, n, V, w).
        d_conv: out, (R, n, V, w).
        d_products: out, (R, n, V, 2 w), of which the second half of the columns is written.
        d_offsets: out, (R, V, 2 w): the sums of both over the graphs.
    """
    streams, graphs, nodes, width = total.shape
    zero = total.dtype.type(0)
    for r in range(streams):
        d_offsets[r] = 0
        for i in range(graphs):
            for v in range(nodes):
                given, passes, up = total[r, i, v], active[r, i, v], dz[r, i, v]
                first, second = d_conv[r, i, v], d_products[r, i, v, width:]
                first_sum, second_sum = d_offsets[r, v, :width], d_offsets[r, v, width:]
                for j in range(width):
                    found = up[j] * slope[r, 0, j] + given[j] * by_total[r, 0, j] + constant[r, 0, j]
                    x, y = found if passes[j] & _CONV else zero, found if passes[j] & _RESIDUAL else zero
                    first_sum[j] += x
                    second_sum[j] += y
                    first[j] = x
                    second[j] = y
