"""Gaussian mixtures with full covariance, many at once: one matrix product for the densities of a block."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .predictor import Features, Labels

Shrinkage = Literal["none", "oas"]


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Gaussian components with uniform weights.

    Attributes:
        mean: (k, d).
        whiten: (k, d, d); (x - mean) @ whiten is standard normal: the transposed inverse of the covariance's Cholesky factor.
        log_scale: (k,) log-density at the mean.
    """

    mean: Tensor
    whiten: Tensor
    log_scale: Tensor

    def __len__(self) -> int:
        return len(self.mean)


FIELDS = tuple(field.name for field in dataclasses.fields(Mixture))


def fit_mixture(
    X: Features, clusters: Labels, *, epsilon: float, shrinkage: Shrinkage = "none", dtype: torch.dtype, device: str
) -> Mixture:
    """One Gaussian per cluster: mean and unbiased covariance + epsilon I; epsilon I alone below 2 rows (KOWL's released code).

    If rounding makes a covariance not positive definite, its epsilon is multiplied by ten until it is (our choice).

    Args:
        X: (n, d) float32.
        clusters: (n,) numbers 0..k-1, each with at least one row.
        shrinkage: "none" as released. A cluster with no more rows than features then has a singular covariance, and outside its
            subspace only epsilon determines the density. "oas" (our choice) shrinks every covariance towards a multiple of I,
            more so for few rows (Chen, Wiesel, Eldar and Hero, "Shrinkage Algorithms for MMSE Covariance Estimation", IEEE TSP
            58(10), 2010, Eq. 23; scikit-learn omits its terms in 2 / d, and shrinks few features more); a cluster without
            variance gets the mean variance within the others.
    """
    points = torch.from_numpy(X).to(device, dtype)
    parts = [points[torch.from_numpy(np.flatnonzero(clusters == k))] for k in range(int(clusters.max()) + 1)]
    covariances = [_covariance(part) for part in parts]
    if shrinkage == "oas":
        free = len(points) - len(parts)
        within = sum((c.trace() * (len(p) - 1) for c, p in zip(covariances, parts, strict=True)), points.new_zeros(()))
        covariances = [
            _shrunk(c, len(part), within / max(free, 1) / X.shape[1]) for c, part in zip(covariances, parts, strict=True)
        ]
    fitted = [_gaussian(part.mean(0), c, epsilon) for part, c in zip(parts, covariances, strict=True)]
    mean, whiten, log_scale = (torch.stack(column) for column in zip(*fitted, strict=True))
    return Mixture(mean, whiten, log_scale)


def _covariance(X: Tensor) -> Tensor:
    centred = X - X.mean(0)
    return centred.T @ centred / max(len(X) - 1, 1)


def _shrunk(covariance: Tensor, rows: int, otherwise: Tensor) -> Tensor:
    """Shrink a covariance by OAS; ``otherwise`` is the variance used if it is zero."""
    d = len(covariance)
    variance = covariance.trace() / d
    eye = torch.eye(d, dtype=covariance.dtype, device=covariance.device)
    if not bool(variance > 0):
        return otherwise * eye
    square = (covariance * covariance).sum()
    share = ((1 - 2 / d) * square + (d * variance) ** 2) / ((rows + 1 - 2 / d) * (square - d * variance**2))
    share = share.nan_to_num(1.0).clamp(0, 1)
    return (1 - share) * covariance + share * variance * eye


def _gaussian(mean: Tensor, covariance: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    d = len(mean)
    eye = torch.eye(d, dtype=mean.dtype, device=mean.device)
    while True:
        factor, failed = torch.linalg.cholesky_ex(covariance + epsilon * eye)
        if not bool(failed):
            break
        epsilon *= 10
    whiten = torch.linalg.solve_triangular(factor, eye, upper=False).T.contiguous()
    return mean, whiten, -0.5 * d * math.log(2 * math.pi) - factor.diagonal().log().sum()


def joined(mixtures: Sequence[Mixture]) -> Mixture:
    """Concatenate the components of all mixtures."""
    return Mixture(*(torch.cat([getattr(m, name) for m in mixtures]) for name in FIELDS))


def component_log_densities(X: Features, components: Mixture, *, batch_size: int = 256, width: int = 1024) -> Tensor:
    """Log-density of each row under each component.

    Args:
        X: (n, d) float32.
        batch_size, width: rows and columns of a product. Its result should stay in a core's cache, since it is read twice
            more: 8,192 x 4,096 takes seven times as long for 32 features. On a GPU larger values are better.

    Returns:
        (n, k) of the mixture's dtype.
    """
    k, d = components.mean.shape
    found = torch.empty((len(X), k), dtype=components.mean.dtype, device=components.mean.device)
    step = max(1, width // d)
    offsets = torch.einsum("kd,kde->ke", components.mean, components.whiten)
    for at in range(0, k, step):
        side_by_side = components.whiten[at : at + step].permute(1, 0, 2).reshape(d, -1)
        for start in range(0, len(X), batch_size):
            block = torch.from_numpy(np.array(X[start : start + batch_size])).to(found.device, found.dtype)
            z = (block @ side_by_side).view(len(block), -1, d).sub_(offsets[at : at + step])
            found[start : start + len(block), at : at + step] = z.square_().sum(2)
    return found.mul_(-0.5).add_(components.log_scale)


def mixture_log_densities(X: Features, mixtures: Sequence[Mixture], *, batch_size: int = 1024) -> NDArray[np.float64]:
    """Log-density of each row under each mixture, (n, m) float64: the log of the mean of its components' densities."""
    found = np.empty((len(X), len(mixtures)))
    sizes = [len(mixture) for mixture in mixtures]
    everything = joined(mixtures)
    block = {"width": 1024, "batch_size": 256} if everything.mean.device.type == "cpu" else {"width": 8192, "batch_size": 8192}
    for start in range(0, len(X), batch_size):
        densities = component_log_densities(X[start : start + batch_size], everything, **block)
        parts = [part.logsumexp(1) - math.log(part.shape[1]) for part in densities.split(sizes, dim=1)]
        found[start : start + batch_size] = torch.stack(parts, dim=1).double().cpu().numpy()
    return found
