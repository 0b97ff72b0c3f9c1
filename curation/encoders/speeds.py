"""How fast a CLIP-like model encodes pictures on this machine, by backend and precision."""

from __future__ import annotations

import dataclasses
import io
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..extras import EXTRAS, missing
from ..requirements import check_device
from .encoder import Encoder
from .spec import OpenClip

WAYS: tuple[dict[str, Any], ...] = (
    {"backend": "torch", "precision": "float32"},
    {"backend": "torch", "precision": "bf16"},
    {"backend": "onnxruntime", "precision": "float32"},
    {"backend": "openvino", "precision": "float32"},
    {"backend": "openvino", "precision": "bf16"},
)
"""Settings of ``OpenClip`` among which to choose."""

_TURNS, _ENOUGH_S = 3, 20.0
_PACKAGES = {"onnxruntime": ("onnx", "onnxruntime"), "openvino": ("openvino",)}


@dataclasses.dataclass(frozen=True)
class EncoderSpeed:
    """What was measured with one backend and precision.

    Attributes:
        backend: as of ``OpenClip``; so is ``precision``.
        images_per_s: images a second on one thread; on a GPU, as one process encodes. None if it was not measured.
        start_s: seconds until the first block of vectors, once the packages are imported.
        cosine: least cosine to the vectors of torch in float32.
        lacks: extra to install, if it was not measured for that reason.
    """

    backend: str
    precision: str
    images_per_s: float | None = None
    start_s: float = 0.0
    cosine: float = 0.0
    lacks: str = ""


def encoder_speeds(
    model: str, *, weights: str = "", checkpoint: str = "", device: str = "cpu", images: int = 64
) -> Iterator[EncoderSpeed]:
    """Measure all backends and precisions in turn, each from files of drawn pictures to vectors.

    Args:
        model, weights: as of ``OpenClip``. Without weights and checkpoint, they are random: rates do not depend on them.
        checkpoint: file of weights.
        device: torch device; on a GPU, torch alone is measured.
        images: number of pictures, of 500 x 375 pixels; at least 1. After a first block of them, all are encoded up to three
            times, and the fastest counts; where that takes long, only once, and one block.

    Raises:
        ValueError: the model does not exist, its weights cannot be loaded, torch cannot use the device, or no pictures are
            asked for.

    >>> speed = next(encoder_speeds("ViT-S-32-alt", images=1))
    >>> speed.backend, speed.precision, round(speed.cosine, 4)
    ('torch', 'float32', 1.0)
    """
    from .clip import load_clip

    if images < 1:
        raise ValueError(f"images={images}: at least 1 is needed")
    check_device(device)
    files, first = _pictures(images), None
    with tempfile.TemporaryDirectory() as folder:
        place = checkpoint or ("" if weights else random_checkpoint(model, folder))
        for way in WAYS if device == "cpu" else WAYS[:2]:
            if lacks := [name for name in _PACKAGES.get(way["backend"], ()) if missing(name)]:
                yield EncoderSpeed(**way, lacks=EXTRAS[lacks[0]])
                continue
            spec = OpenClip(model, weights, **way)
            began = time.perf_counter()
            encoder = load_clip(spec, checkpoint=place, device=device)
            block = files[: spec.block]
            vectors, _ = _encoded(encoder, block)
            start, rate = time.perf_counter() - began, 0.0
            first = vectors if first is None else first
            for _ in range(_TURNS):
                slow = time.perf_counter() - began > _ENOUGH_S
                some = block if slow else files
                rate = max(rate, len(some) / _encoded(encoder, some)[1])
                if slow:
                    break
            cosine = float((vectors * first).sum(axis=1).min())
            yield EncoderSpeed(**way, images_per_s=rate, start_s=start, cosine=cosine)


def random_checkpoint(model: str, folder: str) -> str:
    """Write seeded random weights of a model of open_clip into a folder, and return the path of the file."""
    from .clip import check_architecture

    check_architecture(model)
    import open_clip
    import torch

    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # open_clip warns of weights that are random
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            path = Path(folder, "random.pt")
            torch.save(open_clip.create_model(model, pretrained=None).state_dict(), path)
    finally:
        logging.disable(level)
    return str(path)


def _pictures(count: int) -> list[bytes]:
    """JPEG files with smooth shapes and some noise."""
    from PIL import Image

    draw, files = np.random.default_rng(0), list[bytes]()
    for _ in range(count):
        shapes = Image.fromarray(draw.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
        noisy = np.asarray(shapes, dtype=np.int16) + draw.integers(-8, 9, (375, 500, 3))
        file = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def _encoded(encoder: Encoder, files: Sequence[bytes]) -> tuple[np.ndarray, float]:
    """Vectors of image files, and the seconds that they took."""
    began = time.perf_counter()
    vectors = encoder.encode_prepared([encoder.prepare(file) for file in files])
    return vectors, time.perf_counter() - began
