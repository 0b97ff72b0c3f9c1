"""Networks of torchvision and timm as encoders of images: what goes into the last layer, by weights from a file.

A vector is as the network gives it: its norm is not 1, and it has no texts. So it is no encoder for retrieval.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...curation.encoders.one_thread import one_thread
from ...curation.encoders.preprocess import Crop, normalise, prepare
from ...curation.encoders.torchvision_compat import ensure_torchvision
from ...curation.stages.decode import decode_rgb
from .checkpoints import Wanted, read_checkpoint, weights_of

TIMM = "timm/"


@dataclass(frozen=True)
class Network:
    """A network of torchvision or timm without its last layer. Its weights are a file.

    The defaults are CLEAR's: a ResNet-50, Resize(224), CenterCrop(224), ImageNet's mean and deviation.

    Fits: images.

    Attributes:
        model: name in torchvision (``resnet50``), or in timm (``timm/resnet50``).
        resize: ``as_released``: the shorter edge is scaled to ``resize_px`` (bilinear), as torchvision's ``Resize`` does;
            ``as_written``: the longer one, and what the square has beside the picture is black.
        resize_px: see above.
        side_px: side of the square that is cut from the centre.
        mean, std: of red, green and blue, where white is 1.
        prefix: what stands before the names of the weights in the file; None: what is found there.
        block: images in one forward pass. Short blocks are filled up, so that an image's vector never depends on how many
            others it comes with; another size may change the last bits. 8 suits CPUs, 64 or more GPUs.
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
            raise ValueError(f"model = {self.model!r}: name one of torchvision, or timm/NAME; nothing is fetched")
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
    """``Encoder`` of a ``Network``, but that vectors are as the network gives them."""

    def __init__(self, spec: Network, model: Any, device: str) -> None:
        import torch

        self.name = f"{spec.model}/{spec.side_px}px of {spec.resize_px}px, {spec.resize}"
        self._spec, self._device = spec, device
        self._model = model.eval().requires_grad_(False).to(device=device, memory_format=torch.channels_last)

    @functools.cached_property
    def width(self) -> int:
        """Length of a vector, of a black square."""
        return self.encode_prepared([np.zeros((3, self._spec.side_px, self._spec.side_px), np.uint8)]).shape[1]

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """uint8 of shape (3, side_px, side_px)."""
        spec = self._spec
        if spec.resize == "as_released":
            return prepare(image, Crop(spec.resize_px, spec.side_px, "bilinear"))
        pixels = decode_rgb(image) if isinstance(image, bytes) else image
        return within_square(pixels, spec.resize_px, spec.side_px)

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Block by block, the last one filled up with its first image: float32 (n, width)."""
        import torch

        spec, found = self._spec, list[np.ndarray]()
        for start in range(0, len(prepared), spec.block):
            part = list(prepared[start : start + spec.block])
            filled = part + part[:1] * (spec.block - len(part))
            with one_thread(), torch.inference_mode():
                pixels = normalise(filled, spec.mean, spec.std)
                given = pixels.to(device=self._device, memory_format=torch.channels_last)
                found.append(self._model(given).float().flatten(1).cpu().numpy()[: len(part)])
        vectors = np.concatenate(found) if found else np.zeros((0, self.width), np.float32)
        if not np.isfinite(vectors).all():
            raise ValueError(f"{spec.model} gives numbers that are not finite: its weights are damaged, or of another network")
        return vectors

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Raises ValueError: there are none."""
        raise ValueError(f"network {self._spec.model} has vectors of images alone: texts need conse or open_clip")


def within_square(image: np.ndarray, longer_px: int, side_px: int) -> np.ndarray:
    """Scale the longer edge to ``longer_px``, and put the picture into the centre of a black square; what is larger is cut.

    Args:
        image: upright RGB, uint8 of shape (height, width, 3).
        longer_px: see above. The shorter edge is cut to a whole number, as torchvision's ``Resize`` does it.
        side_px: of the square.

    Returns:
        uint8 of shape (3, side_px, side_px).
    """
    import torch

    height, width = image.shape[:2]
    longer = max(height, width)
    size = [max(1, longer_px * edge // longer) for edge in (height, width)]
    pixels = torch.from_numpy(np.require(image, requirements=["C", "W"])).permute(2, 0, 1)[None]
    with one_thread():
        if size != [height, width]:
            pixels = torch.nn.functional.interpolate(pixels, size=size, mode="bilinear", align_corners=False, antialias=True)
    square = np.zeros((3, side_px, side_px), np.uint8)
    # As torchvision's CenterCrop: it pads what is too small, the smaller half before, and cuts what is too large.
    (top, down, rows), (left, across, columns) = (_centred(edge, side_px) for edge in size)
    square[:, top : top + rows, left : left + columns] = pixels[0, :, down : down + rows, across : across + columns].numpy()
    return square


def _centred(edge: int, side: int) -> tuple[int, int, int]:
    """Where a picture's edge begins in the square's, and what of it is taken: its begin and length."""
    if edge <= side:
        return (side - edge) // 2, 0, edge
    return 0, round((edge - side) / 2), side


def network(*, checkpoint: str, device: str, **settings: Any) -> NetworkEncoder:
    """The encoder of a ``Network``: what ``curation.encoders.own.load_own`` calls, once a process.

    Args:
        checkpoint: file or URL of the weights, in any form that ``checkpoints`` finds them in.
        device: torch device.
        settings: fields of ``Network``.

    Raises:
        ValueError: no such model, or a file that does not hold its weights.
        FileNotFoundError: no such file.
    """
    import torch

    spec = Network(**settings)
    if device.startswith("cuda"):
        # cuDNN would otherwise choose its algorithm by timing, and convolve in TensorFloat-32.
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.backends.cudnn.allow_tf32 = False
    model, head = _of_timm(spec.model) if spec.model.startswith(TIMM) else _of_torchvision(spec.model)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    wanted = Wanted(spec.model, shapes, head, [name for name, _ in model.named_children()])
    model.load_state_dict(weights_of(read_checkpoint(checkpoint), wanted, checkpoint, spec.prefix), strict=False)
    return NetworkEncoder(spec, model, device)


def _of_torchvision(name: str) -> tuple[Any, str]:
    """A network for images without its last layer, which computes classes, and that layer's name."""
    import torch

    ensure_torchvision()
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        told = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"encoder.model = {name!r}: torchvision has no network of this name for images{told}")
    model = models.get_model(name, weights=None)
    linear = [at for at, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)]
    if not linear or model.get_submodule(linear[-1]).out_features != 1000:
        raise ValueError(f"encoder.model = {name!r}: it does not end with a layer of classes: take it from timm, as timm/NAME")
    parent, _, last = linear[-1].rpartition(".")
    setattr(model.get_submodule(parent), last, torch.nn.Identity())
    return model, linear[-1]


def _of_timm(name: str) -> tuple[Any, str]:
    ensure_torchvision()
    try:
        timm = importlib.import_module("timm")
    except ModuleNotFoundError:
        raise ValueError(f"encoder.model = {name!r}: the package timm is not installed: pip install timm") from None
    if not timm.is_model(name.removeprefix(TIMM)):
        near = difflib.get_close_matches(name.removeprefix(TIMM), timm.list_models(), n=1, cutoff=0.6)
        told = f"; did you mean {TIMM + near[0]!r}?" if near else ""
        raise ValueError(f"encoder.model = {name!r}: timm has no network of this name{told}")
    model = timm.create_model(name.removeprefix(TIMM), pretrained=False, num_classes=0)
    settings: Mapping[str, Any] = model.default_cfg
    head = settings.get("classifier") or ""
    return model, head if isinstance(head, str) else head[0]
