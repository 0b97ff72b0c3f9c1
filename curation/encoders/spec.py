"""What an encoder is: small frozen records that can be written as JSON, keyed, and read from a TOML file.

A spec says everything that decides the vectors and nothing that does not: where a checkpoint lies, on which device it runs
and with how many threads are arguments of ``load_encoder`` and of the stage.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Literal

from ..registry import Registry

_PRECISIONS = ("float32", "bf16", "auto")
_BACKENDS = ("torch", "onnxruntime", "auto")


_CONVOLUTIONAL = ("RN", "convnext")
"""How the names of open_clip's models begin that ONNX Runtime computes faster than torch on processors without AVX-512."""


def _can(flag: str) -> bool:
    """Whether this machine's processor has what Linux calls so: ``amx_bf16`` multiplies matrices in bfloat16."""
    try:
        return flag in Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False


@dataclasses.dataclass(frozen=True)
class OpenClip:
    """A CLIP-like model of the package ``open_clip`` (Radford et al., ICML 2021; CLEAR uses OpenAI's ``RN50``).

    Attributes:
        model: a built-in architecture of open_clip, such as ``RN50`` or ``ViT-B-32``.
        weights: pretrained tag, such as ``openai``: where the weights come from, unless a checkpoint is given, and in
            any case which activation and pixel statistics go with them. "" for a checkpoint of one's own; ``model``
            must then say ``-quickgelu`` where that is meant.
        precision: ``float32``, or ``bf16`` for weights and arithmetic in bfloat16: twice as fast or more on processors with AMX
            and on GPUs, twice as fast to slower on others, and other vectors (cosine to float32 about 0.9999). ``auto`` is
            ``bf16`` where this machine's processor has AMX, or else ``float32``.
        backend: what computes the vectors of images: ``torch``; or ``onnxruntime``, on processors, in float32: faster there for
            some models, after some seconds at the start, with cosines of 0.9999 or more to torch's vectors. ``auto`` is
            ``onnxruntime`` where precision is ``float32``, onnx and onnxruntime are installed, and the model is a ResNet or
            ConvNeXt or the processor has AVX-512, or else ``torch``. No ``auto`` measures: what it became is part of the key
            and stands in the records. ``benchmarks/bench_encode.py`` measures.
        block: images in one forward pass. Short blocks are filled up, so that an image's vector never depends on how many
            others it comes with; another size may change the last bits. 32 suits processors, 64 or more GPUs.
        scaled_decode: decode large JPEGs at a smaller scale, with sides at least twice what is needed: faster on
            photos of several megapixels, 0.3 grey levels away in the mean.
    """

    model: str
    weights: str = ""
    precision: Literal["float32", "bf16", "auto"] = "float32"
    block: int = 32
    scaled_decode: bool = False
    backend: Literal["torch", "onnxruntime", "auto"] = "torch"
    kind: Literal["open_clip"] = "open_clip"

    def __post_init__(self) -> None:
        if ":" in self.model:
            raise ValueError(f"encoder {self.model}: only built-in architectures; for others give a local checkpoint")
        for setting, known in (("precision", _PRECISIONS), ("backend", _BACKENDS)):
            if getattr(self, setting) not in known:
                raise ValueError(f"encoder {self.model}: {setting}={getattr(self, setting)!r} is none of {', '.join(known)}")
        if self.precision == "auto":
            object.__setattr__(self, "precision", "bf16" if _can("amx_bf16") else "float32")
        if self.backend == "auto":
            fits = self.precision == "float32" and all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))
            fits = fits and (self.model.startswith(_CONVOLUTIONAL) or _can("avx512f"))
            object.__setattr__(self, "backend", "onnxruntime" if fits else "torch")
        if (self.backend, self.precision) == ("onnxruntime", "bf16"):
            raise ValueError(
                f"encoder {self.model}: backend='onnxruntime' computes in float32: set precision='float32', or 'torch'"
            )
        if not 1 <= self.block <= 65_536:
            raise ValueError(f"encoder {self.model}: block={self.block} must be between 1 and 65536")


@dataclasses.dataclass(frozen=True)
class Conse:
    """ConSE from packaged weights: no download (Norouzi et al., "Zero-shot learning by convex combination of semantic
    embeddings", ICLR 2014).

    Attributes:
        top_classes: T of the paper's eq. 3: how many of the likeliest ImageNet classes are combined.
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

    The weights were trained on the 1,000 classes of ImageNet: whatever is measured on such classes is no test of new ones.

    Attributes:
        resize_px: length to which the shorter side of an image is scaled (bicubic).
        side_px: side of the square that is cut from the centre.
    """

    resize_px: int = 256
    side_px: int = 224
    kind: Literal["efficientnet_lite"] = "efficientnet_lite"

    def __post_init__(self) -> None:
        if not 32 <= self.side_px <= self.resize_px <= 1024:
            raise ValueError(
                f"encoder efficientnet_lite: side {self.side_px} px of {self.resize_px} px: 32 <= side <= resize <= 1024"
            )


EncoderSpec = OpenClip | Conse | Colours | EfficientNetLite

ENCODERS = Registry(
    "encoder",
    {
        "colours": "benchwright.curation.encoders.spec:Colours",
        "conse": "benchwright.curation.encoders.spec:Conse",
        "efficientnet_lite": "benchwright.curation.encoders.spec:EfficientNetLite",
        "network": "benchwright.datasets.features.networks:Network",
        "open_clip": "benchwright.curation.encoders.spec:OpenClip",
    },
    fits={
        "colours": "images, texts",
        "conse": "images, texts",
        "efficientnet_lite": "images",
        "open_clip": "images, texts",
    },
)
"""Encoders by name: the kinds of settings above; what others must have is said by ``own.WrappedEncoder``."""
