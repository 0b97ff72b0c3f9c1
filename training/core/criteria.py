"""Losses on logits that several methods use, and label sets as tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def multi_hot(labels: Tensor, classes: int) -> Tensor:
    """(b, classes) float32, 1 at every label of a sample.

    Args:
        labels: (b,) or (b, k) int64 class indices below ``classes``; -1 where a set has fewer than k.

    >>> multi_hot(torch.tensor([[2, 0], [1, -1]]), 3)
    tensor([[1., 0., 1.],
            [0., 1., 0.]])
    """
    at = labels[:, None] if labels.ndim == 1 else labels
    # The last column takes the padding.
    found = torch.zeros((len(at), classes + 1), device=at.device)
    return found.scatter_(1, torch.where(at < 0, classes, at), 1.0)[:, :classes]


def predicted_sets(logits: Tensor) -> Tensor:
    """(b, classes) bool: whether the sigmoid is above one half, that is, the logit above 0.

    >>> predicted_sets(torch.tensor([[1.5, -0.2]]))  # a probability above a half
    tensor([[ True, False]])
    """
    return logits > 0


def sample_pw_jaccard(predicted: Tensor, labels: Tensor) -> Tensor:
    """(b,) float64: |Y and P| / |Y or P| * |Y and P| / |P|, 0 where nothing is predicted (IIRC's pw-JS).

    Args:
        predicted: (b, classes) bool.
        labels: see ``multi_hot``.

    >>> sample_pw_jaccard(torch.tensor([[True, False, True]]), torch.tensor([[0, 1]]))  # 1/3 * 1/2
    tensor([0.1667], dtype=torch.float64)
    """
    true = multi_hot(labels, predicted.shape[1]).bool()
    common = (true & predicted).sum(1).double()
    return common / (true | predicted).sum(1).clamp(min=1) * common / predicted.sum(1).clamp(min=1)


Criterion = Callable[[Tensor, Tensor], Tensor]
"""(b, classes) logits and (b,) int64 class indices, or (b, classes) float targets in [0, 1] -> the mean loss."""


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the softmax over all classes seen so far, mean over samples, in nats.

    Args:
        logits: (b, classes).
        targets: (b,) int64 class indices, or (b, classes) float in [0, 1].

    >>> round(cross_entropy(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # ln 4
    1.3863
    """
    return nn.functional.cross_entropy(logits, targets)


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy with one sigmoid per class, mean over samples and classes seen so far, in nats (IIRC's loss).

    ``targets`` may also be (b, k) sets of class indices, padded with -1.

    >>> sets = torch.tensor([[0, 2], [1, -1]])  # two labels, and one
    >>> round(binary_cross_entropy(torch.zeros(2, 3), sets).item(), 4)  # ln 2
    0.6931
    """
    if not targets.is_floating_point():
        targets = multi_hot(targets, logits.shape[1])
    return nn.functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


CRITERIA: dict[str, Criterion] = {"binary_cross_entropy": binary_cross_entropy, "cross_entropy": cross_entropy}


def softened_distillation(logits: Tensor, old: Tensor, temperature: float) -> Tensor:
    """-sum_c p_c log q_c, mean over samples; p and q are softmaxes of ``old`` / T and ``logits`` / T, both (..., b, c).

    Not multiplied by T squared.

    Returns:
        (...): one number per model, if there are several in parallel.

    >>> old = torch.tensor([[4.0, 0.0]])
    >>> round(softened_distillation(old, old, temperature=2.0).item(), 4)  # what is left is the entropy of softmax(2, 0)
    0.3653
    """
    target = torch.softmax(old / temperature, dim=-1)
    return -(target * torch.log_softmax(logits / temperature, dim=-1)).sum(-1).mean(-1)


def sigmoid_distillation(logits: Tensor, old: Tensor, temperature: float) -> Tensor:
    """Binary cross-entropy of the sigmoids of ``logits`` / T against those of ``old`` / T, mean over samples and classes.

    Both have the shape (b, c); returns one number, as a tensor of shape ().

    >>> old = torch.tensor([[4.0, 0.0]])
    >>> round(sigmoid_distillation(torch.zeros(1, 2), old, temperature=1.0).item(), 4)  # ln 2
    0.6931
    """
    return nn.functional.binary_cross_entropy_with_logits(logits / temperature, torch.sigmoid(old / temperature))
