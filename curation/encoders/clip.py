"""CLIP-like models of the package open_clip, from a pretrained tag or from a checkpoint file."""

from __future__ import annotations

import http.client
import os
import pickle
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..rows import one_line
from .encoder import EncoderUnavailable, full_blocks, unit_rows
from .image_towers import ImageTower, image_tower
from .one_thread import exact
from .preprocess import Crop, normalise, prepare
from .spec import OpenClip
from .torchvision_compat import ensure_torchvision

_REACH_TIMEOUT_S = 10.0


class ClipEncoder:
    """``Encoder`` of ``OpenClip``; the width depends on the model (RN50 1024, ViT-B-32 512)."""

    def __init__(self, spec: OpenClip, model: Any, tokenizer: Any, device: str) -> None:
        import torch

        self.name = f"open_clip/{spec.model}/{spec.weights or 'checkpoint'}/{spec.backend} {spec.precision}"
        self._spec = spec
        self._device = device
        dtype = torch.bfloat16 if (spec.precision, spec.backend) == ("bf16", "torch") else torch.float32
        self._model = model.eval().requires_grad_(False).to(device=device, dtype=dtype)
        self._tokenizer = tokenizer
        pixels = model.visual.preprocess_cfg
        self._crop = _crop(spec, pixels)
        self._mean, self._std = pixels["mean"], pixels["std"]
        self._tower: ImageTower | None = None
        self._making = threading.Lock()
        self.width = int(self.encode_texts(["a"]).shape[1])

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """Pixels, uint8 of shape (3, side, side), as in open_clip's own transform before ToTensor."""
        return prepare(image, self._crop)

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Encode in blocks of constant size."""
        blocks = [np.zeros((0, self.width), dtype=np.float32)]
        vectors_of = self._images()
        for filled, own in full_blocks(prepared, self._spec.block):
            with exact(self._device):
                blocks.append(vectors_of(normalise(filled, self._mean, self._std, self._device))[:own])
        return unit_rows(np.concatenate(blocks))

    def _images(self) -> ImageTower:
        """The image tower, built on first use, so that encoding only texts does not wait for it."""
        with self._making:
            if self._tower is None:
                self._tower = image_tower(self._spec, self._model, self._crop.side_px)
            return self._tower

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Encode one text per pass, in torch; tokens beyond the model's context (usually 77) are dropped, as in open_clip."""
        import torch

        rows: list[np.ndarray] = []
        with exact(self._device), torch.inference_mode():
            for text in texts:
                rows.append(self._model.encode_text(self._tokenizer([text]).to(self._device)).float().cpu().numpy())
        return unit_rows(np.concatenate(rows)) if rows else np.zeros((0, self.width), dtype=np.float32)


def load_clip(spec: OpenClip, *, checkpoint: str = "", device: str = "cpu") -> ClipEncoder:
    """Build the model and load its weights; see ``load_encoder``."""
    if spec.backend != "torch" and device != "cpu":
        raise ValueError(
            f"encoder.backend = {spec.backend!r} runs only on CPUs, but the device is {device!r}: set the backend "
            "to 'torch', or the device to 'cpu'"
        )
    check_architecture(spec.model)
    import open_clip

    tag: dict[str, Any] = open_clip.get_pretrained_cfg(spec.model, spec.weights) if spec.weights else {}
    if spec.weights and not tag:
        known = ", ".join(open_clip.list_pretrained_tags_by_model(spec.model)) or "none"
        raise ValueError(f"encoder {spec.model}: weights={spec.weights!r} is not among its pretrained tags: {known}")
    path = checkpoint or _fetch(spec, tag)
    if not Path(path).is_file():
        raise EncoderUnavailable(f"encoder {spec.model}: checkpoint={path} is not a file")
    return ClipEncoder(spec, _build(spec, tag, Path(os.path.realpath(path))), open_clip.get_tokenizer(spec.model), device)


def check_architecture(model: str) -> None:
    """Raise ``ValueError`` if open_clip has no such model."""
    ensure_torchvision()
    import open_clip

    if open_clip.get_model_config(model) is None:
        raise ValueError(f"encoder {model}: no such architecture in open_clip (open_clip.list_models() has them)")


def _build(spec: OpenClip, tag: dict[str, Any], path: Path) -> Any:
    """The model with the weights in the file, plain tensors only: ``weights_only`` refuses pickles that contain code.

    If a tag's weights were trained with another activation than the architecture's name implies (OpenAI's QuickGELU), open_clip
    itself only warns, and computes different vectors; here the tag determines the activation.
    """
    import open_clip

    statistics = {key: tag[key] for key in ("mean", "std", "interpolation", "resize_mode") if key in tag}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch warns of pickles that it reads only in part; faults are raised
            return open_clip.create_model(
                spec.model,
                pretrained=str(path),
                force_quick_gelu=bool(tag.get("quick_gelu", False)),
                force_preprocess_cfg=statistics or None,
                weights_only=True,
            )
    except pickle.UnpicklingError as error:
        raise ValueError(f"checkpoint {path}: not a plain file of tensors, and is not unpickled: {one_line(error)}") from None
    except RuntimeError as error:
        hint = ""
        if "TorchScript" in str(error):
            hint = "; this is a TorchScript archive: use the .safetensors or .bin file of the same weights"
        raise ValueError(f"checkpoint {path}: not the weights of {spec.model}: {one_line(error)}{hint}") from None
    except OSError:
        raise
    except Exception as error:  # for a damaged file the readers may raise any exception, even StopIteration
        message = one_line(error)
        raise ValueError(f"checkpoint {path}: not the weights of {spec.model}, or damaged: {message}") from None


def _fetch(spec: OpenClip, tag: dict[str, Any]) -> str:
    """Local path of a tag's weights, from the cache or the network. Fails within seconds if there is no network."""
    if not tag:
        raise EncoderUnavailable(f"encoder {spec.model}: neither weights=TAG nor checkpoint=FILE is given")
    from open_clip import download_pretrained

    hub = str(tag.get("hf_hub", ""))
    origin = f"https://huggingface.co/{hub.rstrip('/')}" if hub else str(tag.get("url", ""))
    cached = _cached(hub)
    if cached:
        return cached
    wanted = f"the weights {spec.weights!r} of {spec.model} ({origin})"
    advice = "fetch the file elsewhere and give checkpoint=FILE"
    problem = _unreachable(origin)
    if problem:
        raise EncoderUnavailable(f"cannot fetch {wanted}: {problem}; {advice}")
    try:
        return str(download_pretrained(tag))
    except (OSError, RuntimeError) as error:
        raise EncoderUnavailable(f"cannot fetch {wanted}: {one_line(error)}; {advice}") from error


def _cached(hub: str) -> str:
    """Path of a downloaded file in huggingface_hub's cache, or ""."""
    from huggingface_hub import try_to_load_from_cache

    repository, _, named = hub.rpartition("/")
    for file in [named] if named else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]:
        found = try_to_load_from_cache(repository, file) if repository else None
        if isinstance(found, str):
            return found
    return ""


def _unreachable(url: str) -> str:
    """Why the server of ``url`` does not answer, or "". huggingface_hub itself would retry for 45 seconds."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        asked = urllib.request.Request(url.replace("https://huggingface.co", constants.ENDPOINT), method="HEAD")
        urllib.request.urlopen(asked, timeout=_REACH_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return ""  # it answers
    except (OSError, ValueError, http.client.HTTPException) as error:
        return one_line(error)
    return ""


def _crop(spec: OpenClip, pixels: dict[str, Any]) -> Crop:
    size = pixels["size"]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    if pixels["resize_mode"] not in ("shortest", "squash") or height != width:
        raise ValueError(f"encoder {spec.model}: inputs of {width}x{height}, {pixels['resize_mode']}, are not supported")
    return Crop(height, height, pixels["interpolation"], pixels["resize_mode"] == "squash", spec.scaled_decode)
