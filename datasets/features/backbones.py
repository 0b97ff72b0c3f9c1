"""Frozen backbones, which turn the frames of a clip into one vector. Weights are local files; nothing is downloaded or trained.

``built_in`` needs no file: it describes the colours and edges of a grid in plain numpy. It is for trials and tests, and no
replacement for a network. ``state_dict`` is a file of weights (safetensors, or ``torch.save(model.state_dict(), file)``, read
with ``weights_only``) for a torchvision model by name; the feature is the input of its last layer, the ``head``. ``network`` is
X3D or TimeSformer by name, with weights from such a file; see ``video_networks.py``. With ``classes``, both return the output
of the last layer instead of its input: the classifier that KOWL calls Original. ``torchscript`` is a model with its code in one
file (``torch.jit.save``), whose output is the feature. Such a file is a program, which may write any file
(``aten::from_file``), and is run only with ``run_code_from_weights``. Files of ``torch.export`` are not read: torch unpickles
their contents, and itself warns against loading them from untrusted sources.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...curation.encoders.preprocess import normalise
from ...curation.rows import one_line
from .checkpoints import read_tables

Embed = Callable[[Sequence[np.ndarray]], np.ndarray]
"""Function from frames, n of uint8 (3, side, side), to one vector, float32 (width,)."""

_GRID = 4
_DIRECTIONS = 8


@dataclass(frozen=True)
class Backbone:
    """A model that turns frames into a vector.

    Attributes:
        kind: kind of model and of weights file; see ``datasets/features/backbones.py``.
        model: for ``state_dict``: name of the model in torchvision (``resnet18``, ``r3d_18``); for ``network``: ``x3d_m``,
            ``timesformer`` or another of ``video_networks.VIDEO_NETWORKS``.
        head: for ``state_dict``: name of the layer whose input is the feature (``fc``; for vision transformers,
            ``heads.head``).
        classes: for ``state_dict`` and ``network``: number of classes of the last layer, whose output, before any softmax, is
            then the vector; 0: the vector is the input of the last layer.
        takes: input of the model: "frames" (n, 3, side, side), whose vectors are averaged, or "clips" (1, 3, n, side, side).
        mean, std: mean and standard deviation of red, green and blue, for values from 0 to 1.
        random_weights: for ``network``: seed of RANDOM weights, for trying a pipeline without a file of weights; the features
            mean nothing.
        run_code_from_weights: for ``torchscript``, which is rejected without it: the file is a program, with the permissions
            of your account. Set it only for your own files, or those of people whose programs you would run.
    """

    kind: Literal["built_in", "torchscript", "state_dict", "network"]
    model: str = ""
    head: str = "fc"
    takes: Literal["frames", "clips"] = "frames"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    run_code_from_weights: bool = False
    random_weights: int | None = None
    classes: int = 0

    def __post_init__(self) -> None:
        if self.classes < 0:
            raise ValueError(f"classes = {self.classes}: 0, or how many classes the last layer has")
        if self.classes and self.kind in ("built_in", "torchscript"):
            raise ValueError(f"classes = {self.classes}: for kind = 'network' and 'state_dict', and not for {self.kind!r}")
        if self.kind == "torchscript" and not self.run_code_from_weights:
            raise ValueError(
                "kind = 'torchscript': such a file is a program that can read and write your files: take kind = 'state_dict', "
                "or set run_code_from_weights = true if you trust whoever made it"
            )


def load_backbone(backbone: Backbone, *, checkpoint: str, device: str = "cpu", frames: int = 0, side_px: int = 0) -> Embed:
    """The backbone, loaded once per process.

    Args:
        checkpoint: local file of the weights; "" for ``built_in`` and for RANDOM weights.
        device: "cpu", "cuda".
        frames, side_px: number and side of the frames of a clip, for ``network``.

    Raises:
        ValueError: the kind or model does not exist, or the file does not hold its weights.
        FileNotFoundError: the checkpoint does not exist.
    """
    if backbone.kind == "built_in":
        return describe
    if backbone.kind not in ("torchscript", "state_dict", "network"):
        raise ValueError(f"backbone kind {backbone.kind!r}: network, built_in, torchscript or state_dict")
    if backbone.kind == "network" and not checkpoint and backbone.random_weights is not None:
        return _load(backbone, "", device, 0, frames, side_px)
    file = Path(checkpoint)
    if not file.is_file():
        raise FileNotFoundError(f"checkpoint {checkpoint!r}: no such file")
    return _load(backbone, checkpoint, device, file.stat().st_mtime_ns, frames, side_px)


@functools.lru_cache(maxsize=2)
def _load(backbone: Backbone, checkpoint: str, device: str, modified: int, frames: int, side_px: int) -> Embed:
    if backbone.kind == "network":
        from .video_networks import video_network

        shape = {"frames": frames, "side_px": side_px, "classes": backbone.classes}
        made = video_network(backbone.model, **shape, checkpoint=checkpoint, seed=backbone.random_weights)
        return functools.partial(_run, made.to(device).eval(), dataclasses.replace(backbone, takes="clips"), device)
    read = _torchscript if backbone.kind == "torchscript" else _state_dict
    return functools.partial(_run, read(backbone, checkpoint, device), backbone, device)


def describe(frames: Sequence[np.ndarray]) -> np.ndarray:
    """The built-in backbone: for each cell of a 4 x 4 grid, the mean and standard deviation of red, green and blue and the
    strength of edges in eight directions; and of these the mean and standard deviation over the frames of the clip.

    Returns:
        float32 (448,): 2 x 16 x (3 + 3 + 8), in [0, 1] or nearly so.
    """
    cells = np.stack([_cells(frame) for frame in frames])
    return np.concatenate([cells.mean(axis=0), cells.std(axis=0)]).astype(np.float32)


def _cells(frame: np.ndarray) -> np.ndarray:
    colours = frame.astype(np.float64) / 255
    grey = colours.mean(axis=0)
    down, across = np.gradient(grey)
    strength = np.hypot(down, across)
    direction = np.floor((np.arctan2(down, across) / (2 * np.pi) + 0.5) * _DIRECTIONS).astype(np.int64) % _DIRECTIONS
    edges = strength * (direction == np.arange(_DIRECTIONS)[:, None, None])
    found: list[np.ndarray] = []
    for rows in np.array_split(np.arange(grey.shape[0]), _GRID):
        for columns in np.array_split(np.arange(grey.shape[1]), _GRID):
            cell = np.ix_(rows, columns)
            inside = colours[:, *cell].reshape(3, -1)
            found += [inside.mean(axis=1), inside.std(axis=1), edges[:, *cell].reshape(_DIRECTIONS, -1).mean(axis=1)]
    return np.concatenate(found)


def _torchscript(backbone: Backbone, checkpoint: str, device: str) -> Any:

    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch.export fixes the input shape; existing files stay
            return torch.jit.load(checkpoint, map_location=device).eval()
    except OSError:
        raise
    except Exception as error:  # a damaged file can make torch's reader raise anything
        message = one_line(error)
        raise ValueError(f"checkpoint {checkpoint} is not a TorchScript model: {message}") from None


def _state_dict(backbone: Backbone, checkpoint: str, device: str) -> Any:
    import torch

    from ...curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    from torchvision import models

    try:
        model = models.get_model(
            backbone.model, weights=None, **({"num_classes": backbone.classes} if backbone.classes else {})
        )
        model.get_submodule(backbone.head)
    except ValueError as error:
        raise ValueError(f"backbone model {backbone.model!r}: torchvision has no such model ({error})") from None
    except AttributeError as error:
        raise ValueError(f"backbone head {backbone.head!r}: {backbone.model} has no such layer ({error})") from None
    try:
        model.load_state_dict(read_tables(checkpoint))
    except OSError:
        raise
    except Exception as error:  # torch raises anything for tables of another form
        message = one_line(error, None).replace(checkpoint, "it", 1)[:200]
        raise ValueError(f"checkpoint {checkpoint} has no weights of {backbone.model}: {message}") from None
    if not backbone.classes:
        parent, _, name = backbone.head.rpartition(".")
        setattr(model.get_submodule(parent), name, torch.nn.Identity())
    return model.to(device).eval()


def _run(model: Any, backbone: Backbone, device: str, frames: Sequence[np.ndarray]) -> np.ndarray:
    import torch

    from ...curation.encoders.one_thread import exact

    with torch.inference_mode(), exact(device):
        pixels = normalise(frames, backbone.mean, backbone.std, device)
        given = pixels if backbone.takes == "frames" else pixels.transpose(0, 1)[None]
        try:
            return model(given).float().flatten(1).mean(dim=0).cpu().numpy()
        except (AttributeError, IndexError, RuntimeError, TypeError) as error:  # also if the output is not a batch
            message = one_line(error, None)[-200:]
            raise ValueError(
                f"backbone {backbone.kind} does not take {backbone.takes} of {tuple(given.shape)}: {message}"
            ) from None
