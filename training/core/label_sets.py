"""Sets of labels as tensors: what IIRC's losses and its choice of epochs need of them."""

from __future__ import annotations

import torch
from torch import Tensor


def multi_hot(labels: Tensor, classes: int) -> Tensor:
    """(b, classes) float32, 1 at every label of a sample.

    Args:
        labels: (b,) or (b, k) int64 class indices below ``classes``; -1 where a set has fewer than k.

    >>> multi_hot(torch.tensor([[2, 0], [1, -1]]), 3)
    tensor([[1., 0., 1.],
            [0., 1., 0.]])
    """
    at = labels[:, None] if labels.ndim == 1 else labels
    # One column more takes what only fills up.
    found = torch.zeros((len(at), classes + 1), device=at.device)
    return found.scatter_(1, torch.where(at < 0, classes, at), 1.0)[:, :classes]


def predicted_sets(logits: Tensor) -> Tensor:
    """(b, classes) bool: a sigmoid above one half, which is a logit above 0.

    >>> predicted_sets(torch.tensor([[1.5, -0.2]]))  # a probability above a half
    tensor([[ True, False]])
    """
    return logits > 0


def precision_weighted_jaccard(predicted: Tensor, labels: Tensor) -> Tensor:
    """(b,) float64: |Y and P| / |Y or P| * |Y and P| / |P|, 0 where nothing is predicted (IIRC's pw-JS).

    Args:
        predicted: (b, classes) bool.
        labels: see ``multi_hot``.

    >>> precision_weighted_jaccard(torch.tensor([[True, False, True]]), torch.tensor([[0, 1]]))  # 1/3 * 1/2
    tensor([0.1667], dtype=torch.float64)
    """
    true = multi_hot(labels, predicted.shape[1]).bool()
    common = (true & predicted).sum(1).double()
    return common / (true | predicted).sum(1).clamp(min=1) * common / predicted.sum(1).clamp(min=1)
