"""Specs of encoders: small frozen records that can be written as JSON, used in keys, and read from a TOML file.

A spec contains everything that determines the vectors and nothing else: the path of a checkpoint, the device and the number of
threads are arguments of ``load_encoder`` and of the stage.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Literal

_PRECISIONS = ("float32", "bf16", "auto")
_BACKENDS = ("torch", "onnxruntime", "openvino", "auto")


_CONVOLUTIONAL = ("RN", "convnext")
"""Prefixes of the open_clip models that are faster in ONNX Runtime than in torch on CPUs without AVX-512."""


def _can(flag: str) -> bool:
    """Whether this machine's CPU has a feature, by its flag in Linux; ``amx_bf16`` and ``avx512_bf16`` multiply in bfloat16."""
    try:
        return flag in Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False


@dataclasses.dataclass(frozen=True)
class OpenClip:
    """A CLIP-like model of the package ``open_clip`` (Radford et al., ICML 2021; CLEAR uses OpenAI's ``RN50``).

    Attributes:
        model: a built-in architecture of open_clip, such as ``RN50`` or ``ViT-B-32``.
        weights: pretrained tag, such as ``openai``: the weights to load, unless a checkpoint is given, and in any case the
            activation and pixel statistics that belong to them. "" for your own checkpoint; ``model`` must then end in
            ``-quickgelu`` if the checkpoint needs that activation.
        precision: ``float32``, or ``bf16`` for weights and arithmetic in bfloat16: about twice as fast on GPUs and on CPUs with
            AMX or AVX-512 BF16, slower on some others, with different vectors (cosine to float32 about 0.9999). ``auto`` is
            ``bf16`` if this machine's CPU has one of the two, otherwise ``float32``.
        backend: library that computes the vectors of images: ``torch``, or on CPUs ``onnxruntime`` in float32 or ``openvino``:
            faster for some models after a start-up of a few seconds, with cosines of at least 0.9999 to torch's vectors. Texts
            are computed in torch, beside ``openvino`` in float32. ``auto`` is ``onnxruntime`` if ``precision`` is
            ``float32``, onnx and onnxruntime are installed, and the model is a ResNet or ConvNeXt or the CPU has AVX-512;
            otherwise ``torch``. The choice of ``auto`` is part of the key and is recorded; it is not based on measurements,
            which ``benchmarks/bench_encode.py`` makes.
        block: images in one forward pass. Short blocks are padded, so that an image's vector never depends on the number of
            images in its block; a different size may change the last bits. 32 suits CPUs, 64 or more GPUs.
        scaled_decode: decode large JPEGs at a reduced scale, with sides at least twice the required length: faster for photos
            of several megapixels, with a mean difference of 0.3 grey levels.
    """

    model: str
    weights: str = ""
    precision: Literal["float32", "bf16", "auto"] = "float32"
    block: int = 32
    scaled_decode: bool = False
    backend: Literal["torch", "onnxruntime", "openvino", "auto"] = "torch"
    kind: Literal["open_clip"] = "open_clip"

    def __post_init__(self) -> None:
        if ":" in self.model:
            raise ValueError(f"encoder {self.model}: only built-in architectures; for others give a local checkpoint")
        for setting, known in (("precision", _PRECISIONS), ("backend", _BACKENDS)):
            if getattr(self, setting) not in known:
                raise ValueError(f"encoder {self.model}: {setting}={getattr(self, setting)!r} is none of {', '.join(known)}")
        if self.precision == "auto":
            object.__setattr__(self, "precision", "bf16" if _can("amx_bf16") or _can("avx512_bf16") else "float32")
        if self.backend == "auto":
            fits = self.precision == "float32" and all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))
            fits = fits and (self.model.startswith(_CONVOLUTIONAL) or _can("avx512f"))
            object.__setattr__(self, "backend", "onnxruntime" if fits else "torch")
        if (self.backend, self.precision) == ("onnxruntime", "bf16"):
            raise ValueError(
                f"encoder {self.model}: backend='onnxruntime' computes in float32: set precision='float32', or another backend"
            )
        if not 1 <= self.block <= 65_536:
            raise ValueError(f"encoder {self.model}: block={self.block} must be between 1 and 65536")


@dataclasses.dataclass(frozen=True)
class Conse:
    """ConSE from packaged weights: no download (Norouzi et al., "Zero-shot learning by convex combination of semantic
    embeddings", ICLR 2014).

    Attributes:
        top_classes: number of most likely ImageNet classes that are combined, T in eq. 3 of the paper.
        scaled_decode: as in ``OpenClip``.
    """

    top_classes: int = 10
    scaled_decode: bool = False
    kind: Literal["conse"] = "conse"

    def __post_init__(self) -> None:
        if not 1 <= self.top_classes <= 1000:
            raise ValueError(f"encoder conse: top_classes={self.top_classes} must be between 1 and 1000")


@dataclasses.dataclass(frozen=True)
class Colours:
    """Shares of the eleven basic colour terms: a toy for tests and tiny configs, bit-identical on every machine."""

    kind: Literal["colours"] = "colours"


@dataclasses.dataclass(frozen=True)
class EfficientNetLite:
    """EfficientNet-Lite0 without its last layer, from packaged weights: only images, no texts.

    The weights were trained on the 1,000 classes of ImageNet: results on these classes do not test generalisation to new ones.

    Attributes:
        resize_px: length of the shorter side after scaling (bicubic), pixels.
        side_px: side of the centre crop, pixels.
    """

    resize_px: int = 256
    side_px: int = 224
    kind: Literal["efficientnet_lite"] = "efficientnet_lite"

    def __post_init__(self) -> None:
        if not 32 <= self.side_px <= self.resize_px <= 1024:
            raise ValueError(
                f"encoder efficientnet_lite: side {self.side_px} px of {self.resize_px} px: 32 <= side <= resize <= 1024"
            )


TextImageSpec = OpenClip | Conse | Colours
"""Built-in encoders of images and texts, which retrieval needs."""

EncoderSpec = TextImageSpec | EfficientNetLite
"""All built-in encoders."""
