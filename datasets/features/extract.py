"""Features of clips by a frozen backbone: frames are read from a shard, transformed for some clips, and turned into a vector.

Transformed clips are *nuisance novelty* (KOWL, section 4.3): the label stays and the picture changes. Which clips are
transformed, and how, depends only on the seed and the clip's key; all frames of a clip are transformed alike
(``curation/stages/visual_transforms.py``).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, cast

import numpy as np

from ...curation.encoders.preprocess import Crop, prepare
from ...curation.rng import uniform
from ...curation.rows import Reject, Rejected, Shape
from ...curation.shards import read_sample
from ...curation.stages.decode import decode_rgb
from ...curation.stages.visual_transforms import (
    OwnTransform,
    Ranges,
    TransformKind,
    choose_kind,
    draw_parameters,
    transform_by,
    transform_frames,
)
from ..reader.index import ShardFiles
from .backbones import Backbone, Embed, load_backbone
from .frames import frames_of

UNTRANSFORMED = "none"


@dataclass(frozen=True)
class ClipPlace:
    """A sample and the place of its frames; see ``frames.WithFrames``. ``Nuisance`` selects by ``role`` and ``increment``."""

    key: str
    role: str
    increment: int
    clip_sample: str
    clip_shard: str
    clip_offset: int
    clip_size: int


@dataclass(frozen=True)
class Extracted:
    """The sample with its vector.

    Attributes:
        feature: float32 (width,).
        transform: kind of the visual transform applied to the frames, or "none".
        transform_parameters: parameters drawn for the transform, as JSON.
    """

    key: str
    role: str
    increment: int
    feature: Annotated[np.ndarray, Shape((-1,), "float32")]
    transform: str
    transform_parameters: str


@dataclass(frozen=True)
class Nuisance:
    """Which clips are transformed.

    Attributes:
        kinds: kinds of transforms; each clip gets one of them.
        share: share of the clips of these roles and increments that are transformed, in [0, 1].
        roles: "train", "val", "test".
        from_increment: first increment with transformed clips.
    """

    kinds: tuple[str, ...]
    share: float
    roles: tuple[str, ...] = ("test",)
    from_increment: int = 0


def extract_features(
    rows: Sequence[ClipPlace],
    *,
    root: str,
    backbone: Backbone,
    checkpoint: str,
    frames: int,
    crop: Crop,
    width: int,
    nuisance: Nuisance | None,
    ranges: Ranges,
    seed: int,
    transforms: Mapping[str, OwnTransform] = MappingProxyType({}),
    device: str = "cpu",
) -> list[Extracted | Rejected]:
    """Step of kind ``each_batch``: a vector for every clip.

    Args:
        root: folder or URL of the shards of frames; mark it with ``where``.
        backbone: see ``backbones.py``.
        checkpoint: file of the backbone's weights; mark it with ``where``.
        frames: number of frames of each clip, see ``frames.frames_of``.
        crop: how frames are scaled and cropped.
        width: length of a vector, as a check.
        nuisance: which clips are transformed; None: no clip.
        ranges: ``visual_transforms.our_ranges()``, called in the plan so that the ranges are part of the recipe.
        seed: seed for the transforms.
        transforms: user-defined transforms by the names that ``nuisance`` has for them; mark them with ``named``.
        device: "cpu", "cuda"; mark it with ``how``.

    Returns:
        Rows; rejects are ``frame_sizes`` and the reasons of ``decode_rgb`` and ``prepare`` for a frame.

    Raises:
        ValueError: the backbone cannot be loaded, or its vectors are not finite or not of length ``width``.
        ShardError: a shard changed during the run.
    """
    embed = load_backbone(backbone, checkpoint=checkpoint, device=device, frames=frames, side_px=crop.side_px)
    files = ShardFiles(root)
    spans = iter(files.read([(row.clip_shard, row.clip_offset, row.clip_size) for row in rows]))

    def vector(at: int, see: See) -> np.ndarray:
        row = rows[at]
        members = read_sample(next(spans), row.clip_sample, place=files.place(row.clip_shard), base=row.clip_offset)
        return _vector(frames_of(members, frames), see, crop, embed)

    return each_extracted(rows, vector, width=width, nuisance=nuisance, ranges=ranges, seed=seed, transforms=transforms)


See = Callable[[np.ndarray], np.ndarray]
"""Function that applies a clip's visual transform to its frames (n, height, width, 3)."""


def each_extracted(
    rows: Sequence[Any],
    vector_of: Callable[[int, See], np.ndarray],
    *,
    width: int,
    nuisance: Nuisance | None,
    ranges: Ranges,
    seed: int,
    transforms: Mapping[str, OwnTransform],
) -> list[Extracted | Rejected]:
    """The rows with vectors computed by ``vector_of`` from the row number and the transform; it may raise ``Reject``.

    The other arguments are those of ``extract_features``; rows have ``key``, ``role`` and ``increment``.
    """
    found: list[Extracted | Rejected] = []
    for at, (row, kind) in enumerate(zip(rows, _transformed(rows, nuisance, seed, transforms), strict=True)):
        see = functools.partial(see_through, kind=kind, seed=seed, key=row.key, ranges=ranges, own=transforms)
        try:
            vector = vector_of(at, see)
        except Reject as reject:
            found.append(Rejected(row.key, reject.reason, reject.detail))
            continue
        if vector.shape != (width,) or not np.isfinite(vector).all():
            raise ValueError(f"clip {row.key!r}: the backbone returned {vector.shape}, expected finite numbers ({width},)")
        drawn = {} if kind is None or kind in transforms else draw_parameters(cast(TransformKind, kind), seed, row.key, ranges)
        parameters = json.dumps(drawn, sort_keys=True)
        found.append(Extracted(row.key, row.role, row.increment, vector, kind or UNTRANSFORMED, parameters))
    return found


def _transformed(
    rows: Sequence[Any], nuisance: Nuisance | None, seed: int, own: Mapping[str, OwnTransform]
) -> list[str | None]:
    """The kind of transform of every clip, or None."""
    if nuisance is None:
        return [None] * len(rows)
    draws = uniform(seed, "nuisance", [row.key for row in rows])
    return [
        choose_kind(nuisance.kinds, seed, row.key, own)
        if draw < nuisance.share and row.role in nuisance.roles and row.increment >= nuisance.from_increment
        else None
        for row, draw in zip(rows, draws.tolist(), strict=True)
    ]


def see_through(
    pixels: np.ndarray, *, kind: str | None, seed: int, key: str, ranges: Ranges, own: Mapping[str, OwnTransform]
) -> np.ndarray:
    """Apply a visual transform to the frames (n, height, width, 3) of a clip; None: return them unchanged."""
    if kind is None:
        return pixels
    if kind in own:
        return transform_by(own[kind], pixels, seed, key)
    return transform_frames(pixels, cast(TransformKind, kind), seed, key, ranges=ranges)


def _vector(files: Sequence[bytes], see: See, crop: Crop, embed: Embed) -> np.ndarray:
    pixels = [decode_rgb(data) for data in files]
    if len({frame.shape for frame in pixels}) > 1:
        raise Reject("frame_sizes", f"frames of {len({frame.shape for frame in pixels})} sizes in one clip")
    return embed([prepare(frame, crop) for frame in see(np.stack(pixels))])
