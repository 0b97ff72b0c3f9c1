"""Batch norm along a stream axis: its parameters, a version for torch's autograd, and one with explicit gradients.

Running statistics are updated as in torch's batch norm: with momentum 0.1, the variance with Bessel's correction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .flat import Piece

Array = NDArray[Any]

EPSILON = 1e-5
MOMENTUM = 0.1


def norm_pieces(name: str, width: int) -> dict[str, Piece]:
    """Scale and shift of a batch norm."""
    return {f"{name}/scale": Piece((1, width), "ones"), f"{name}/shift": Piece((1, width), "zeros")}


def statistics_pieces(name: str, width: int) -> dict[str, Piece]:
    """Running mean and variance of a batch norm."""
    return {f"{name}/mean": Piece((1, width), "zeros"), f"{name}/variance": Piece((1, width), "ones")}


def batch_norm(name: str, p: dict[str, Tensor], seen: dict[str, Tensor], x: Tensor, *, training: bool) -> Tensor:
    """Batch norm of (R, rows, width) over the rows of each stream; updates the running statistics if ``training``."""
    mean, variance = seen[f"{name}/mean"], seen[f"{name}/variance"]
    if training:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).square().mean(1, keepdim=True)
        _move(name, seen, mean.detach(), variance.detach(), x.shape[1])
    return (x - mean) * (p[f"{name}/scale"] * torch.rsqrt(variance + EPSILON)) + p[f"{name}/shift"]


def _move(name: str, seen: MutableMapping[str, Any], mean: Any, variance: Any, rows: int) -> None:
    for running, value in ("mean", mean), ("variance", variance * (rows / max(rows - 1, 1))):
        seen[f"{name}/{running}"] += MOMENTUM * (value - seen[f"{name}/{running}"])


@dataclasses.dataclass(frozen=True)
class Norm:
    """Batch norm of one batch: z = x slope + offset.

    Attributes:
        name: name in the parameters.
        rows: number of rows in the batch.
        mean: (R, 1, width) float64, the mean of x.
        inverse: (R, 1, width) float64, 1 / the standard deviation of x.
        slope: (R, 1, width), of the parameters' dtype, like ``offset``.
    """

    name: str
    rows: int
    mean: Array
    inverse: Array
    slope: Array
    offset: Array

    @classmethod
    def of(
        cls, name: str, p: Mapping[str, Array], seen: MutableMapping[str, Array], mean: Array, variance: Array, rows: int
    ) -> Norm:
        """Make it from the moments of x over the rows, (R, 1, width) float64; updates the running statistics."""
        _move(name, seen, mean, variance, rows)
        scale, inverse = p[f"{name}/scale"], 1 / np.sqrt(variance + EPSILON)
        slope = scale * inverse
        offset = p[f"{name}/shift"] - mean * slope
        return cls(name, rows, mean, inverse, slope.astype(scale.dtype), offset.astype(scale.dtype))

    def gradient(self, d_slope: Array, d_offset: Array, found: Mapping[str, Array]) -> tuple[Array, Array]:
        """Write the gradients of scale and shift; return first and second in the gradient of x: dz slope + x first + second.

        Args:
            d_slope: (R, 1, width): dz x, summed over the rows.
            d_offset: (R, 1, width): dz, summed over the rows.
            found: name -> (R, 1, width) gradients, written here.
        """
        d_scale = self.inverse * (d_slope - self.mean * d_offset)
        found[f"{self.name}/scale"][:], found[f"{self.name}/shift"][:] = d_scale, d_offset
        # The gradient of x is slope (dz - mean of dz - x' mean of dz x'), with x' = (x - mean) inverse.
        first = self.slope * self.inverse * d_scale / -self.rows
        second = self.slope * d_offset / -self.rows - first * self.mean
        return first.astype(self.slope.dtype), second.astype(self.slope.dtype)
