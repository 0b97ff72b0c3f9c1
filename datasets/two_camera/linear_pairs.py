"""Pairs from your own source: two linear pictures on one pixel grid, with their lights and charts if known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...curation.npy import npy_blob
from ...curation.rows import Blob, Reject
from ...curation.stages.colour_chart import Patches, light
from ...curation.stages.raw import SATURATED, as_uint16
from ..reader.decode import decode_npy
from .pair_files import MAX_BYTES
from .pictures import PairToMeasure
from .transforms import checked_light, checked_numbers


@dataclass(frozen=True)
class LinearPair:
    """A pair from your own source. Raw files can be converted to such pictures by ``curation.stages.raw.read_linear``, and two
    of them aligned by ``curation.stages.alignment.align``.

    Attributes:
        key: unique; letters, digits, ``_`` and ``-``.
        name: name of the pair in the source.
        image_1: .npy of (height, width, 3): the first camera's linear raw R, G, B, black level subtracted; uint16, 65535 at
            full scale, or float, 1 at full scale.
        image_2: the same scene by the second camera, aligned pixel by pixel.
        valid: .npy of bool (height, width): which pixels count (not saturated, not of the chart); None: all.
        gt_1: light in the first camera's raw colours (3,), any scale; None: from the chart's greys.
        gt_2: the same light in the second camera's raw colours.
        patches_1: linear colours of the chart's 24 patches in the first camera (72,), 1 at full scale, from dark skin to
            black; None if there is no chart.
        patches_2: the colours in the second camera.
    """

    key: str
    name: str
    image_1: Blob
    image_2: Blob
    valid: Blob | None
    gt_1: list[float] | None
    gt_2: list[float] | None
    patches_1: list[float] | None
    patches_2: list[float] | None


def check_pair(row: LinearPair, *, charts: bool) -> PairToMeasure:
    """Each step: check the pair, and convert it to the form of the other sources of pictures.

    Args:
        charts: whether every pair must have a chart; without one it cannot be re-illuminated.

    Raises:
        Reject: ``bad_picture``, ``bad_mask``, ``bad_numbers``, ``no_chart``, ``no_light`` (neither light nor chart),
            ``chart_saturated``, ``chart_dark``.
    """
    images = [_picture(blob, name) for blob, name in ((row.image_1, "image_1"), (row.image_2, "image_2"))]
    shape = images[0].shape
    if images[1].shape != shape:
        raise Reject("bad_picture", f"image_2 of shape {images[1].shape}, where image_1 has {shape}")
    valid = np.ones(shape[:2], dtype=bool) if row.valid is None else _array(row.valid, "valid", "bad_mask")
    if valid.dtype != np.bool_ or valid.shape != shape[:2]:
        raise Reject("bad_mask", f"valid is {valid.dtype} {valid.shape}: expected bool {shape[:2]}")
    if (row.patches_1 is None) != (row.patches_2 is None):
        raise Reject("bad_numbers", "patches of one camera only: the chart must be visible to both, or to neither")
    if charts and row.patches_1 is None:
        raise Reject("no_chart", "augmentation re-illuminates pictures by their charts: remove it, or give patches")
    patches = [
        None if given is None else checked_numbers(given, f"patches_{number}", 72).tolist()
        for number, given in ((1, row.patches_1), (2, row.patches_2))
    ]
    lights = [_light(given, of, f"gt_{number}") for number, given, of in ((1, row.gt_1, patches[0]), (2, row.gt_2, patches[1]))]
    one, two = patches
    over: list[bool] | None = None
    if one is not None and two is not None:
        over = np.any(np.reshape([one, two], (2, 24, 3)) >= SATURATED, axis=(0, 2)).tolist()  # type: ignore[assignment]
    image_1, image_2, mask = map(npy_blob, (*images, valid))
    return PairToMeasure(row.key, row.name, image_1, image_2, mask, one, two, over, lights[0], lights[1])


def _array(blob: Blob, what: str, reason: str) -> np.ndarray:
    if blob.size > MAX_BYTES:
        raise Reject(reason, f"{what}: {blob.size} bytes, limit {MAX_BYTES}")
    try:
        return decode_npy(blob.read())
    except ValueError as error:
        raise Reject(reason, f"{what} is not an .npy file: {error}") from None


def _picture(blob: Blob, what: str) -> np.ndarray:
    """The picture as uint16 (height, width, 3)."""
    found = _array(blob, what, "bad_picture")
    if found.ndim != 3 or found.shape[2] != 3 or (found.dtype != np.uint16 and found.dtype.kind != "f"):
        raise Reject("bad_picture", f"{what} is {found.dtype} {found.shape}: expected uint16 or float (height, width, 3)")
    if found.dtype == np.uint16:
        return found
    if not np.isfinite(found).all():
        raise Reject("bad_picture", f"{what} holds a value that is not finite")
    return as_uint16(found)


def _light(given: list[float] | None, patches: list[float] | None, what: str) -> list[float]:
    if given is not None:
        return checked_light(given, what)
    if patches is None:
        raise Reject("no_light", f"{what}: give the light, or the colours of a chart")
    colours = np.reshape(patches, (24, 3))
    return light(Patches(colours, colours.max(axis=1) >= SATURATED, np.ones(24, dtype=np.int64), np.zeros(24))).tolist()
