"""Image classifiers: IIRC's reduced ResNet for small images, torchvision's ResNets for large ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ...curation.registry import checked
from .classifier import Classifier
from .linear import allocated, init_network
from .mlp import vector_net
from .registry import Depth, Width
from .resnet import RESNETS, resnet
from .small_cnn import small_cnn

BACKBONES = (*RESNETS, "mlp", "reduced_resnet", "small_cnn")
Initial = Literal["torchvision", "iirc"]
HEADS: dict[str, Literal["kept", "reset"] | None] = {"linear": None, "cosine_kept": "kept", "cosine_reset": "reset"}


class _Block(nn.Module):
    """Residual block of two convolutions; the shortcut is a convolution with norm where shapes change."""

    def __init__(self, before: int, after: int, stride: int, *, relu: bool) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.past = nn.Sequential()
        if stride != 1 or before != after:
            self.past = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))
        self.last = nn.ReLU() if relu else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(b, before, h, w) -> (b, after, h / stride, w / stride)."""
        return self.last(self.path(x) + self.past(x))


def reduced_resnet(
    blocks: int, width: int, init: torch.Generator, *, fan: Literal["fan_in", "fan_out"] = "fan_out"
) -> tuple[nn.Module, int]:
    """ResNet for images of 32 x 32 pixels (He et al., CVPR 2016, section 4.2): three stages, then global average pooling.

    The last block has no final ReLU, so that features have both signs (a change by LUCIR, adopted by IIRC).

    Args:
        blocks: blocks per stage; 5 for ResNet-32.
        width: channels of the first stage, 16 in the paper; the others have twice and four times as many.
        init: generator for the weights.
        fan: see ``init_network``.

    Returns:
        The network (b, 3, h, w) float32 -> (b, 4 width), and 4 width.

    >>> network, width = reduced_resnet(1, 4, torch.Generator().manual_seed(0))
    >>> network(torch.zeros(2, 3, 32, 32)).shape, width
    (torch.Size([2, 16]), 16)
    """
    with torch.device("meta"):
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
        for stage in range(3):
            for block in range(blocks):
                after, last = width << stage, stage == 2 and block == blocks - 1
                layers.append(_Block(before, after, 2 if stage and not block else 1, relu=not last))
                before = after
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return init_network(allocated(network), init, fan=fan), 4 * width


@checked
def picture_net(
    init: torch.Generator,
    *,
    sample: Sequence[int],
    backbone: str,
    blocks: Depth,
    width: Width,
    head: str,
    initial: Initial = "torchvision",
) -> Classifier:
    """A classifier of images or vectors on one of ``BACKBONES``; outputs are added as classes appear.

    Args:
        init: generator for all weights.
        sample: shape of an image, (3, h, w), or, for ``mlp``, of a vector, (d,).
        backbone: one of ``BACKBONES``.
        blocks: blocks per stage of ``reduced_resnet``.
        width: width of ``reduced_resnet``, ``mlp`` or ``small_cnn``; ``small_cnn`` also has no final ReLU here.
        head: "linear", "cosine_kept" or "cosine_reset": see ``Classifier``.
        initial: initial weights of ``reduced_resnet``: "torchvision" draws those of convolutions by fan-out, as for other
            ResNets here; "iirc" by fan-in, and those of a linear head from N(0, 1 / features), as in IIRC's code (biases are 0
            here, uniform there).

    Raises:
        ValueError: see ``check_picture_net``.

    >>> init = torch.Generator().manual_seed(0)
    >>> classifier = picture_net(init, sample=(3, 32, 32), backbone="small_cnn", blocks=1, width=8, head="linear")
    >>> classifier.grow(5, init)
    >>> classifier(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 5])
    """
    check_picture_net(backbone, head, vectors=len(sample) == 1)
    if backbone == "reduced_resnet":
        network, features = reduced_resnet(blocks, width, init, fan="fan_in" if initial == "iirc" else "fan_out")
        if initial == "iirc" and head == "linear":
            return Classifier(network, features, head_std=features**-0.5)
    elif backbone == "small_cnn":
        network, features = small_cnn(width, init, last_relu=False)
    elif backbone == "mlp":
        network, features = vector_net(sample[0], width, init)
    else:
        network, features = resnet(backbone, init, None)
    return Classifier(network, features, eta=HEADS[head])


def check_picture_net(backbone: str, head: str, *, vectors: bool) -> None:
    """Raise ValueError for an unknown word, for images with ``mlp``, or for vectors with another backbone."""
    if backbone not in BACKBONES or head not in HEADS:
        known = ", ".join((*BACKBONES, *HEADS))
        raise ValueError(
            f"backbone {backbone!r}, head {head!r}: there are {known}; a network of your own is named as the model"
        )
    if (backbone == "mlp") != vectors:
        raise ValueError(
            f"backbone {backbone!r} for {'vectors' if vectors else 'pictures'}: 'mlp' is for vectors, and they for it"
        )
