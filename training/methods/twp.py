"""Topology-aware weight preserving (Liu et al., AAAI 2021): weights matter for the loss, and for a graph's attention."""

from __future__ import annotations

from torch import Tensor


def importance(loss: Tensor, topology: Tensor, *, strength_loss: float, strength_topology: float) -> Tensor:
    """lambda_l g^2 + lambda_t h^2, by which (theta - theta*)^2 is weighed.

    Args:
        loss: g, the gradient of the loss on the task that has been learned.
        topology: h, the gradient of the norm of its attention.
    """
    return strength_loss * loss**2 + strength_topology * topology**2
