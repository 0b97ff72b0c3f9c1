"""X3D of pytorchvideo and TimeSformer of transformers as frozen backbones: architectures by name, weights from a file.

KOWL uses their features: the 2,048 outputs of ``lin_5`` of X3D-M, before its ReLU, as the authors' code saves them, and the 768
numbers of TimeSformer's class token after the last norm. Weights are FAIR's releases: for X3D ``X3D_M.pyth`` in the model zoo
of pytorchvideo; for TimeSformer ``TimeSformer_divST_8x32_224_K400.pyth``, or ``timesformer-base-finetuned-k400`` of
transformers, which holds the same weights. These files also hold the last layers, whose outputs for Kinetics-400 are the
predictor Original of the paper's Table 3 and Figures 13 and 14: see ``classes``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ...curation.encoders.torchvision_compat import ensure_torchvision
from .headless import load_weights

_X3D = {"x3d_xs": 2.2, "x3d_s": 2.2, "x3d_m": 2.2, "x3d_l": 5.0}
"""Name -> depth factor. The networks were trained on clips of 4 x 160, 13 x 160, 16 x 224 and 16 x 312 px."""

_TIMESFORMER = "timesformer"
VIDEO_NETWORKS = (*_X3D, _TIMESFORMER)

_RELEASED = (
    (r"^model\.|^module\.", ""),
    (r"^(cls_token)$", r"embeddings.\1"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^time_embed$", "embeddings.time_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.", "encoder.layer."),
    (r"\.temporal_norm1\.", ".temporal_layernorm."),
    (r"\.norm1\.", ".layernorm_before."),
    (r"\.norm2\.", ".layernorm_after."),
    (r"\.temporal_fc\.", ".temporal_dense."),
    (r"\.((?:temporal_)?)attn\.qkv\.", r".\1attention.attention.qkv."),
    (r"\.((?:temporal_)?)attn\.proj\.", r".\1attention.output.dense."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
)
"""Names of weights in TimeSformer's original release -> names in transformers."""


def video_network(name: str, *, frames: int, side_px: int, checkpoint: str, seed: int | None = None, classes: int = 0) -> Any:
    """A network from clips (n, 3, frames, side_px, side_px) to features (n, width) or class logits (n, classes).

    Args:
        name: one of ``VIDEO_NETWORKS``.
        frames: number of frames of a clip.
        side_px: side of a frame.
        checkpoint: file of the weights, read with ``weights_only`` if it is not safetensors; "" for RANDOM weights.
        seed: seed of the random weights.
        classes: number of classes of the last layer, whose logits are returned; 0: return the input of the last layer.

    Raises:
        ValueError: the network does not exist, or the file does not hold its weights.
    """
    import torch

    if name not in VIDEO_NETWORKS:
        raise ValueError(f"backbone model {name!r}: one of {', '.join(VIDEO_NETWORKS)}")
    ensure_torchvision()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed or 0)
        made = timesformer(frames, side_px, classes) if name == _TIMESFORMER else _x3d(name, frames, side_px, classes)
        network, head, rename = made
    if checkpoint:
        try:
            load_weights(network.inner if name == _TIMESFORMER else network, name, (head,), checkpoint, rename=rename)
        except ValueError as error:
            message = str(error).replace("encoder.model", "features.backbone.model, features.frames or features.side_px")
            raise ValueError(message.replace("encoder.prefix", "a file of only the network")) from None
    return network


_Made = tuple[Any, str, Callable[[Mapping[str, Any]], dict[str, Any]] | None]
"""A network, the layer that was removed ("" for none), and the function that converts names of weights to the network's."""


def _x3d(name: str, frames: int, side_px: int, classes: int) -> _Made:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it compiles an activation with torch.jit
        from pytorchvideo.models.x3d import create_x3d
    given: dict[str, Any] = {"input_clip_length": frames, "input_crop_size": side_px, "depth_factor": _X3D[name]}
    given |= {"head_activation": None, "head_output_with_global_average": bool(classes)}
    if classes:
        given["model_num_class"] = classes
    network: Any = create_x3d(**given)
    if classes:
        return network, "", None
    last = network.blocks[-1]
    last.pool.post_act, last.dropout, last.proj = (torch.nn.Identity() for _ in range(3))
    return network, "blocks.5.proj", None


def timesformer(frames: int, side_px: int, classes: int = 0, **more: Any) -> _Made:
    """TimeSformer-base for clips, or with other settings of ``transformers.TimesformerConfig``; its weights are RANDOM."""
    import torch
    from transformers import TimesformerConfig, TimesformerForVideoClassification, TimesformerModel

    given: dict[str, Any] = {"image_size": side_px, "num_frames": frames, **({"num_labels": classes} if classes else {})}
    config = TimesformerConfig(**given, **more)

    class ClassToken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner: Any = TimesformerForVideoClassification(config) if classes else TimesformerModel(config)

        def forward(self, clips: torch.Tensor) -> torch.Tensor:
            given = self.inner(pixel_values=clips.transpose(1, 2))
            return given.logits if classes else given.last_hidden_state[:, 0]

    return ClassToken(), "", _with_classifier if classes else released_names


def _with_classifier(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """``released_names`` for a whole TimeSformer, including its last layer."""
    found = released_names(tensors)
    if found.keys() == tensors.keys():  # transformers' own names
        return found
    return {
        re.sub(r"^(?!classifier\.)", "timesformer.", re.sub(r"^head\.", "classifier.", name)): found[name] for name in found
    }


def released_names(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors of TimeSformer's original release by the names in transformers; other tensors unchanged."""
    if not any(name.endswith("blocks.0.temporal_fc.weight") for name in tensors):
        return dict(tensors)
    return {_renamed(name): value for name, value in tensors.items()}


def _renamed(name: str) -> str:
    name = name.removeprefix("model_state.")
    for pattern, by in _RELEASED:
        name = re.sub(pattern, by, name)
    return name
