"""Networks of torchvision and timm as image encoders: the penultimate features, with weights from a file.

Vectors are not normalised, and texts cannot be encoded. So these are not encoders for retrieval.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...curation.encoders.encoder import full_blocks
from ...curation.encoders.one_thread import exact
from ...curation.encoders.preprocess import Crop, cut_centre, normalise, prepare, scaled
from ...curation.stages.decode import decode_rgb
from .headless import headless, load_weights

TIMM = "timm/"


@dataclass(frozen=True)
class Network:
    """A network of torchvision or timm without its last layer, with weights from a file.

    The defaults are CLEAR's: a ResNet-50, Resize(224), CenterCrop(224), ImageNet's mean and deviation.

    Fits: images.

    Attributes:
        model: name in torchvision (``resnet50``), or in timm (``timm/resnet50``).
        resize: ``as_released``: the shorter edge is scaled to ``resize_px`` (bilinear), as torchvision's ``Resize`` does;
            ``as_written``: the longer edge is scaled, and the rest of the square is black.
        resize_px: see ``resize``; pixels.
        side_px: side of the centre crop, pixels.
        mean, std: mean and standard deviation of red, green and blue, for values from 0 to 1.
        prefix: prefix of the names of the weights in the file; None: detected.
        block: images in one forward pass. Short blocks are padded, so that an image's vector never depends on the number of
            images in its block; a different size may change the last bits. 8 suits CPUs, 64 or more GPUs.
    """

    model: str = "resnet50"
    resize: Literal["as_released", "as_written"] = "as_released"
    resize_px: int = 224
    side_px: int = 224
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    prefix: str | None = None
    block: int = 8
    kind: Literal["network"] = "network"

    def __post_init__(self) -> None:
        if ":" in self.model:
            raise ValueError(f"model = {self.model!r}: give a network of torchvision, or timm/NAME; nothing is downloaded")
        if self.resize not in ("as_released", "as_written"):
            raise ValueError(f"resize = {self.resize!r}: 'as_released' or 'as_written'")
        if not (1 <= self.side_px <= 4096 and 1 <= self.resize_px <= 4096):
            raise ValueError(f"side {self.side_px} px of {self.resize_px} px: 1 to 4096 each")
        if self.resize == "as_released" and self.side_px > self.resize_px:
            raise ValueError(f"side {self.side_px} px of {self.resize_px} px: a square is cut out, and is not larger")
        if not 1 <= self.block <= 65_536:
            raise ValueError(f"block = {self.block}: 1 to 65536")
        if not all(deviation > 0 for deviation in self.std):
            raise ValueError(f"std = {list(self.std)}: each should be above 0")


class NetworkEncoder:
    """``Encoder`` of a ``Network``; its vectors are not normalised."""

    def __init__(self, spec: Network, model: Any, device: str) -> None:
        import torch

        self.name = f"{spec.model}/{spec.side_px}px of {spec.resize_px}px, {spec.resize}"
        self._spec, self._device = spec, device
        self._model = model.eval().requires_grad_(False).to(device=device, memory_format=torch.channels_last)

    @functools.cached_property
    def width(self) -> int:
        """Length of a vector, computed from a black square."""
        return self.encode_prepared([np.zeros((3, self._spec.side_px, self._spec.side_px), np.uint8)]).shape[1]

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """Image as uint8 of shape (3, side_px, side_px)."""
        spec = self._spec
        if spec.resize == "as_released":
            return prepare(image, Crop(spec.resize_px, spec.side_px, "bilinear"))
        pixels = decode_rgb(image) if isinstance(image, bytes) else image
        return cut_centre(scaled(pixels, spec.resize_px, edge="longer"), spec.side_px)

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Vectors, float32 (n, width), computed in blocks of constant size."""
        import torch

        spec, found = self._spec, list[np.ndarray]()
        for filled, own in full_blocks(prepared, spec.block):
            with exact(self._device), torch.inference_mode():
                given = normalise(filled, spec.mean, spec.std, self._device).to(memory_format=torch.channels_last)
                found.append(self._model(given).float().flatten(1).cpu().numpy()[:own])
        vectors = np.concatenate(found) if found else np.zeros((0, self.width), np.float32)
        if not np.isfinite(vectors).all():
            why = "its weights are damaged, or belong to another network"
            raise ValueError(f"{spec.model} returned numbers that are not finite: {why}")
        return vectors

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Raise ValueError: the network embeds only images."""
        raise ValueError(f"network {self._spec.model} embeds only images: texts need conse or open_clip")


def network(*, checkpoint: str, device: str, **settings: Any) -> NetworkEncoder:
    """The encoder of a ``Network``; ``curation.encoders.own.load_own`` calls this once per process.

    Args:
        checkpoint: file or URL of the weights, in any form that ``checkpoints`` can read.
        device: torch device.
        settings: fields of ``Network``.

    Raises:
        ValueError: the model does not exist, or the file does not hold its weights.
        FileNotFoundError: the file does not exist.
    """
    spec = Network(**settings)
    try:
        model, left_out = headless("timm" if spec.model.startswith(TIMM) else "torchvision", spec.model.removeprefix(TIMM))
    except ValueError as error:
        raise ValueError(f"encoder.model = {spec.model!r}: {error}") from None
    load_weights(model, spec.model, left_out, checkpoint, spec.prefix)
    return NetworkEncoder(spec, model, device)
