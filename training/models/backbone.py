"""Backbones by name: any torchvision or timm network for images or clips without its last layer, with random or loaded
weights."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from ...curation.rows import one_line
from ...datasets.features.headless import (
    LIBRARIES,
    check_network,
    clip_networks,
    headless,
    timm_models,
    torchvision_models,
)
from .classifier import Classifier
from .parts import EachPart
from .picture_net import HEADS
from .weights import load_file

HUB = "hub://"
"""Prefix, in place of a file, for weights that the library publishes, as in ``hub://IMAGENET1K_V1``."""

_MVIT = (16, 3, 224, 224)
"""Shape of the clips that torchvision's MViT takes."""

_drawing = threading.Lock()


class WholeClip(nn.Module):
    """(b, frames, 3, h, w) -> (b, width): adapter for a network that takes (b, 3, frames, h, w)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.network(x.transpose(1, 2))


def backbone_net(
    init: torch.Generator,
    *,
    sample: Sequence[int],
    name: str,
    head: str = "linear",
    dropout: float = 0.0,
    weights: Path | None = None,
) -> Classifier:
    """A torchvision or timm network by name, such as "torchvision/resnet50"; outputs are added as classes appear.

    Networks for clips, such as "torchvision/r2plus1d_18", "torchvision/mvit_v2_s" or "torchvision/swin3d_t", process all
    frames together. MViT takes only 16 frames of 224 x 224; S3D is rejected, because it has no last linear layer. A network for
    images processes each frame of a clip, and the logits are averaged over the frames.

    Fits: images, clips.

    Args:
        init: generator for all weights that are not loaded from a file.
        sample: shape of an image, (3, h, w), or of a clip, (frames, 3, h, w).
        name: see ``backbone``.
        head: "linear", "cosine_kept" or "cosine_reset": see ``Classifier``.
        dropout: rate before the head, in [0, 1).
        weights: file of weights, see ``backbone``.

    Raises:
        ValueError: the network or head is unknown, or the network does not fit the samples or the file.

    >>> init = torch.Generator().manual_seed(0)
    >>> classifier = backbone_net(init, sample=(3, 64, 64), name="timm/resnet10t", head="cosine_kept")
    >>> classifier.grow(5, init)
    >>> classifier.eval()(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 5])
    """
    if len(sample) not in (3, 4):
        shapes = f"pictures, (3, h, w), or clips, (frames, 3, h, w), and samples here are of shape {tuple(sample)}"
        raise ValueError(f"backbone {name!r} takes {shapes}")
    check_backbone_net(name, head, clips=len(sample) == 4)
    network, width = backbone(name, init, weights, sample=sample)
    return Classifier(network, width, dropout=dropout, eta=HEADS[head])


def check_backbone_net(name: str, head: str = "linear", *, clips: bool = False) -> None:
    """Raise ValueError if the head or the network is unknown; ``clips`` allows networks for clips as well as for images."""
    _split(name, clips=clips)
    if head not in HEADS:
        raise ValueError(f"head {head!r}: there are {', '.join(HEADS)}")


def backbone(
    name: str, init: torch.Generator, weights: Path | None = None, *, sample: Sequence[int] = (3, 224, 224)
) -> tuple[nn.Module, int]:
    """Return a network without its last layer, and the width of its features.

    The network maps images (b, 3, h, w) float32 -> (b, width), and clips (b, frames, 3, h, w) -> (b, width), or (b, frames,
    width) if it is a network for images.

    Weights are drawn as in the library, from ``init`` alone. Layers that draw during training (dropout, stochastic depth) are
    switched off, because they would draw from the global generator.

    Args:
        name: "torchvision/NAME" or "timm/NAME".
        init: generator for weights that are not loaded from a file.
        weights: file of this network's weights, in a form that ``datasets.features.checkpoints`` reads (torchvision, MoCo,
            BYOL and others). The last layer is ignored.
        sample: shape of an image or clip.

    Raises:
        ValueError: the network is unknown, has no last linear layer or takes samples of another size, or the file holds another
            network.

    >>> network, width = backbone("torchvision/resnet18", torch.Generator().manual_seed(0))
    >>> width
    512
    """
    clips = len(sample) == 4
    library, own = _split(name, clips=clips)
    if library == "torchvision" and own.startswith("mvit") and tuple(sample) != _MVIT:
        message = f"takes only clips of shape {_MVIT}, but these are {tuple(sample)}"
        raise ValueError(f"backbone {name!r} {message}: sample 16 frames of 224 x 224 px, or name another network")
    seed = int(torch.randint(2**62, (), generator=init))
    # The libraries draw from the global generator, whose state is restored.
    with _drawing, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, heads = headless(library, own, clips=clips)
    _switch_off_draws(network)
    if weights is not None:
        load_file(network, weights, name, heads)
    if clips and library == "torchvision" and own in clip_networks():
        network = WholeClip(network)
    elif clips:
        return EachPart(network), _width(network, name, sample[1:])
    return network, _width(network, name, sample)


def hub_weights(name: str, tag: str = "") -> Path:
    """Return the file of weights that a library publishes for a network; it is downloaded once.

    Args:
        name: see ``backbone``.
        tag: name of the weights: "IMAGENET1K_V1" of torchvision, "a1_in1k" of timm; "": the library's default.

    Raises:
        ValueError: no weights have that name, or they cannot be downloaded.
    """
    check_hub_weights(name, tag)
    library, own = _split(name, clips=True)
    try:
        return _timm_file(own, tag) if library == "timm" else _torchvision_file(own, tag)
    except Exception as error:  # without a network, each library raises the errors of its HTTP client
        raise ValueError(
            f"the weights {tag or 'by default'} of {name} cannot be downloaded: {one_line(error)}: give a file"
        ) from error


def check_hub_weights(name: str, tag: str = "") -> None:
    """Raise ValueError if a library publishes no such weights for the network. Nothing is downloaded.

    >>> check_hub_weights("torchvision/resnet18", "IMAGENET1K_V2")
    Traceback (most recent call last):
        ...
    ValueError: torchvision/resnet18 has no weights 'IMAGENET1K_V2': there are IMAGENET1K_V1, DEFAULT: name one, or give a file
    """
    library, own = _split(name, clips=True)
    if library == "timm":
        known = [each.partition(".")[2] for each in timm_models().list_pretrained(f"{own}.*")]
    else:
        known = list(torchvision_models().get_model_weights(own).__members__)
    if not known or (tag and tag not in known):
        available = f"there are {', '.join(known)}: name one, or" if known else "there are none:"
        raise ValueError(f"{name} has no weights {tag or 'by default'!r}: {available} give a file")


def _timm_file(name: str, tag: str) -> Path:
    import huggingface_hub

    timm = timm_models()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # hide messages about retries: the final error is reported
    found = timm.get_pretrained_cfg(f"{name}.{tag}" if tag else name)
    if found is None or not found.hf_hub_id:
        raise ValueError("there are none")
    return Path(huggingface_hub.hf_hub_download(found.hf_hub_id, "model.safetensors"))


def _torchvision_file(name: str, tag: str) -> Path:
    models = torchvision_models()
    url = models.get_model_weights(name)[tag or "DEFAULT"].url
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), hash_prefix=path.stem.rpartition("-")[2], progress=False)
    return path


def _split(name: str, *, clips: bool = False) -> tuple[str, str]:
    library, _, own = name.partition("/")
    if library not in LIBRARIES or not own:
        raise ValueError(f"backbone {name!r}: write it as torchvision/resnet50 or timm/vit_small_patch16_224")
    check_network(library, own, clips=clips)
    return library, own


def _switch_off_draws(network: nn.Module) -> None:
    for part in network.modules():
        for attribute in ("p", "drop_prob"):  # dropout and stochastic depth of torch, torchvision and timm
            if isinstance(getattr(part, attribute, None), float):
                setattr(part, attribute, 0.0)


def _width(network: nn.Module, name: str, sample: Sequence[int]) -> int:
    """Length of the feature vectors for samples of this shape."""
    network.eval()
    try:
        with torch.no_grad():
            features = network(torch.zeros(1, *sample))
    except (RuntimeError, AssertionError, ValueError) as error:
        what = "pictures" if len(sample) == 3 else "clips"
        raise ValueError(f"backbone {name!r} does not take {what} of shape {tuple(sample)}: {one_line(error)}") from error
    finally:
        network.train()
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise ValueError(f"backbone {name!r} does not return one vector per picture: use another network")
    return features.shape[-1]
