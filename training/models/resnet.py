"""ResNet-18, -34 and -50 without their last layer, from a local weights file or from a generator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .linear import allocated, init_network
from .weights import load_file

RESNETS = {"resnet18": 512, "resnet34": 512, "resnet50": 2048}
"""Name -> width of the features."""


def resnet(name: str, init: torch.Generator, weights: Path | None) -> tuple[nn.Module, int]:
    """Return the backbone, (b, 3, h, w) float32 -> (b, width), and its width.

    Args:
        name: one of ``RESNETS``.
        init: generator for weights that are not loaded from a file (He normal, as in torchvision).
        weights: torchvision's weights, such as ``resnet34-b627a593.pth``, or others that ``load_file`` reads.

    Raises:
        ValueError: see ``load_file``.
    """
    from ...curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    from torchvision.models import resnet as torchvision_resnet

    # On the meta device nothing is drawn: torchvision itself would draw from the global generator.
    with torch.device("meta"):
        make: Callable[..., Any] = getattr(torchvision_resnet, name)
        network: nn.Module = make(weights=None)
    network.fc = nn.Identity()
    network = init_network(allocated(network), init)
    if weights is not None:
        load_file(network, weights, name, ("fc",))
    return network, RESNETS[name]
