"""Temporal segment network: a picture network on each segment's frame, the mean of their logits (Wang et al., ECCV 2016)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from .classifier import Classifier
from .resnet import RESNETS, resnet
from .small_cnn import small_cnn

BACKBONES = (*RESNETS, "small_cnn")


class Segments(nn.Module):
    """(b, segments, 3, h, w) -> (b, segments, width): the network on every segment."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def tsn(
    init: torch.Generator,
    *,
    backbone: str,
    dropout: float,
    head_std: float | None,
    weights: Path | None = None,
    width: int = 16,
) -> Classifier:
    """A classifier of clips without outputs yet.

    Args:
        init: of all weights that no file gives.
        backbone: one of ``BACKBONES``.
        dropout: before the head, 0.5 in vCLIMB.
        head_std: of new outputs' weights, 0.001 in TSN's code; None: see ``Classifier``.
        weights: file of ResNet weights; None: random ones.
        width: of ``small_cnn``.

    Raises:
        ValueError: no backbone has that name, or weights are given for ``small_cnn``.
    """
    if backbone in RESNETS:
        network, features = resnet(backbone, init, weights)
    elif backbone == "small_cnn" and weights is None:
        network, features = small_cnn(width, init)
    elif backbone == "small_cnn":
        raise ValueError(f"weights {weights}: small_cnn has none but random ones")
    else:
        raise ValueError(f"no backbone is called {backbone!r}: there are {', '.join(BACKBONES)}")
    return Classifier(Segments(network), features, dropout=dropout, head_std=head_std)
