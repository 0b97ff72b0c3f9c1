"""ResNet-18, -34 and -50 without their last layer, from a local weights file or from a generator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .linear import init_network

RESNETS = {"resnet18": 512, "resnet34": 512, "resnet50": 2048}
"""Name -> width of the features."""


def resnet(name: str, init: torch.Generator, weights: Path | None) -> tuple[nn.Module, int]:
    """Return the backbone, (b, 3, h, w) float32 -> (b, width), and its width.

    Args:
        name: one of ``RESNETS``.
        init: generator for weights that are not loaded from a file (He normal, as in torchvision).
        weights: a state dict of torchvision's model, such as ``resnet34-b627a593.pth``; only tensors are read from it.

    Raises:
        ValueError: the file is damaged or holds another network.
    """
    from ...curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    from torchvision.models import resnet as torchvision_resnet

    # On the meta device nothing is drawn: torchvision itself would draw from the global generator.
    with torch.device("meta"):
        make: Callable[..., Any] = getattr(torchvision_resnet, name)
        network: nn.Module = make(weights=None)
    network.fc = nn.Identity()
    network = init_network(network.to_empty(device="cpu"), init)
    if weights is not None:
        try:
            held: dict[str, torch.Tensor] = torch.load(weights, map_location="cpu", weights_only=True)
            network.load_state_dict({key: value for key, value in held.items() if not key.startswith("fc.")})
        except OSError:
            raise
        except Exception as error:  # torch's reader may raise anything for a damaged file
            told = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(f"{weights} does not contain the weights of {name}: {told}") from error
    return network, RESNETS[name]
