"""The content of samples, and the meaning of their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...curation.rows import Blob
from ...curation.shards import row_values
from .rows import PairNumbers

IMAGES = ("image_1.npy", "image_2.npy")
"""Members with the two pictures: linear raw RGB, uint16 (height, width, 3), black at 0 and full scale at 65535."""

VALID = "valid.npy"
"""Member with the mask of valid pixels (neither saturated, nor out of view, nor of the chart): bool (height, width). Without it
all pixels are valid."""

FULL_SCALE = 65535

COLUMNS = {
    "name": "of the pair in its source",
    "source_key": "key of the measured pair that the row was made from; its own where it is original",
    "target_key": "key of the pair whose light it was given; empty where it is original",
    "original": "whether it was measured, and not re-illuminated",
    "fold": "part in which it is tested, from 0; of the radiometric set 0 training, 1 validation, 2 test",
    "gt_1": "light in the first camera's linear raw R, G, B; its scale means nothing",
    "gt_2": "the same in the second camera",
    "transform_1to2": "3 x 3 row by row: colour_2 = colour_1 @ T, least squares over the valid pixels",
    "transform_2to1": "the same the other way",
    "transform_chart_1to2": "the same from the 24 patches of the chart; null where there is none",
    "transform_chart_2to1": "the same the other way",
    "condition_1": "condition number of the first camera's colours",
    "condition_2": "condition number of the second camera's colours",
}
"""Meaning of the columns, for the dataset's card."""

RELIT_COLUMNS = {
    "relight_1": "3 x 3 row by row: takes the first picture's colours to those under the other light; null where original",
    "relight_2": "the same of the second picture",
}
"""Meaning of the additional columns of re-illuminated sets."""


@dataclass(frozen=True)
class PatchSample(PairNumbers):
    """A generated row as it is written to a shard."""

    colours_1: list[float]
    colours_2: list[float]


@dataclass(frozen=True)
class PictureSample(PairNumbers):
    """A photographed or re-illuminated row as it is written to a shard; a re-illuminated one has no pictures."""

    image_1: Blob | None
    image_2: Blob | None
    valid: Blob | None


def patch_picture(colours: np.ndarray, *, columns: int, patch_px: int) -> np.ndarray:
    """A picture of patches, row by row: 24 colours, 6 columns and 8 pixels give 32 x 48.

    Args:
        colours: linear (n, 3), 0 to 1; n a multiple of ``columns``.
        columns: number of patches in a row of the picture.
        patch_px: side of a patch, pixels.

    Returns:
        uint16 (height, width, 3), 65535 for 1.
    """
    levels = np.round(np.clip(colours, 0, 1) * FULL_SCALE).astype(np.uint16).reshape(-1, columns, 3)
    return levels.repeat(patch_px, axis=0).repeat(patch_px, axis=1)


def patch_sample(row: PatchSample, *, columns: int, patch_px: int) -> dict[str, Any]:
    """Members of a generated pair: two thumbnails, and the numbers as JSON. ``patch_px`` 0 omits the thumbnails."""
    members: dict[str, Any] = {"json": row_values(row, but=["colours_1", "colours_2"])}
    if patch_px:
        for name, colours in zip(IMAGES, (row.colours_1, row.colours_2), strict=True):
            members[name] = patch_picture(np.reshape(colours, (-1, 3)), columns=columns, patch_px=patch_px)
    return members


def picture_sample(row: PictureSample) -> dict[str, Any]:
    """Members of a photographed pair: pictures and mask if the row has them, and the numbers as JSON."""
    members: dict[str, Any] = {"json": row_values(row, but=["image_1", "image_2", "valid"])}
    for name, blob in zip((*IMAGES, VALID), (row.image_1, row.image_2, row.valid), strict=True):
        if blob is not None:
            members[name] = blob.read()
    return members


def plain_sample(row: PairNumbers) -> dict[str, Any]:
    """Members of a pair with numbers only: the numbers as JSON."""
    return {"json": row_values(row)}
