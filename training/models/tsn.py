"""Temporal segment network (Wang et al., ECCV 2016): an image network on one frame per segment, with averaged logits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from .classifier import Classifier
from .parts import EachPart
from .registry import Width
from .resnet import RESNETS, resnet
from .small_cnn import small_cnn

BACKBONES = (*RESNETS, "small_cnn")


def tsn(
    init: torch.Generator,
    *,
    sample: Sequence[int],
    backbone: str,
    dropout: float,
    head_std: float | None,
    weights: Path | None = None,
    width: Width = 16,
) -> Classifier:
    """TSN (Wang et al., ECCV 2016): logits are averaged over segments; outputs are added as classes appear.

    Args:
        init: generator for all weights that are not loaded from a file.
        sample: shape of a clip, (segments, 3, h, w); weights do not depend on it.
        backbone: one of ``BACKBONES``.
        dropout: rate before the head, 0.5 in vCLIMB.
        head_std: standard deviation of the weights of new outputs, 0.001 in TSN's code; None: see ``Classifier``.
        weights: file of ResNet weights; None: random ones.
        width: width of ``small_cnn``.

    Raises:
        ValueError: see ``check_tsn``; or samples are not clips.

    >>> init = torch.Generator().manual_seed(0)
    >>> classifier = tsn(init, sample=(8, 3, 32, 32), backbone="small_cnn", dropout=0.5, head_std=0.001)
    >>> classifier.grow(5, init)
    >>> classifier(torch.zeros(2, 8, 3, 32, 32)).shape  # the mean over 8 segments
    torch.Size([2, 5])
    """
    check_tsn(backbone, weights)
    if len(sample) != 4:
        raise ValueError(f"samples of shape {tuple(sample)}: tsn takes clips, (segments, 3, height, width)")
    network, features = resnet(backbone, init, weights) if backbone in RESNETS else small_cnn(width, init)
    return Classifier(EachPart(network), features, dropout=dropout, head_std=head_std)


def check_tsn(backbone: str, weights: Path | None) -> None:
    """Raise ValueError for an unknown backbone, or for weights with ``small_cnn``."""
    if backbone not in BACKBONES:
        raise ValueError(f"no backbone is called {backbone!r}: there are {', '.join(BACKBONES)}")
    if backbone == "small_cnn" and weights is not None:
        raise ValueError(f"weights {weights}: small_cnn has none but random ones")
