"""Real pairs: raw files of two fixed cameras, aligned on one grid, with the chart measured and masked.

Source: Abdelhamed, Punnappurath and Brown, CVPR 2021, sections 3.1 and 4.3. Each device has its own homography. The paper does
not say how pictures were reduced by a factor of 6: here by area averaging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ...curation.npy import npy_blob
from ...curation.rows import Blob, Reject, schema_of, with_column
from ...curation.stages.alignment import (
    LEAST_AGREEMENT,
    Homography,
    align,
    check_one_scene,
    fit_homography,
    mapped,
    match_points,
    tile_points,
)
from ...curation.stages.colour_chart import Patches, find_chart, light, measure_patches, outline
from ...curation.stages.ranks import coded, in_tables
from ...curation.stages.raw import Bayer, Demosaic, Linear, as_uint16, read_linear
from ..reader.decode import decode_npy
from .pair_files import read_within
from .transforms import TransformPreset, checked_fit

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

Chart = Literal["listed", "fixed", "found"]
MAX_CHART_SPREAD = 0.5
_RESIDUAL_PX = 3.0
_FEWEST_PIXELS = 100


@dataclass(frozen=True)
class WithHomography:
    """Columns that ``estimate_homographies`` adds, the same for all pairs of a device.

    Attributes:
        homography: from raw pixels of the second camera to those of the first, 3 x 3 row by row (9,).
        residual_px: root mean square distance of the inliers, in raw pixels of the first; None if the homography was provided.
        points: number of inliers; 0 if the homography was provided.
        share: share of inliers among all points; None if the homography was provided.
    """

    key: str
    homography: list[float]
    residual_px: float | None
    points: int
    share: float | None


@dataclass(frozen=True)
class PairToRead:
    """Columns of a pair that ``photograph`` reads."""

    key: str
    file_1: str
    file_2: str
    chart_1: list[float] | None
    chart_2: list[float] | None
    homography: list[float]


@dataclass(frozen=True)
class Photographed:
    """A pair on one grid.

    Attributes:
        image_1: .npy of uint16 (height, width, 3), linear raw RGB on the grid of the first camera, 65535 at full scale.
        image_2: picture of the second camera, on the same grid.
        valid: .npy of bool (height, width): seen by both, not saturated, not of the chart.
        valid_share: share of valid pixels.
        patches_1: colours of the chart's 24 patches in the first camera (72,); ``patches_2`` in the second.
        saturated: whether a patch saturates in either camera (24,).
        chart_spread: largest relative standard deviation within a grey patch; above about 0.1 the position is wrong.
        gt_1: light from the greys in the first camera, G at 1 (3,); ``gt_2`` in the second.
        orientation_1: EXIF orientation of the first file; the pictures are in the sensor's orientation.
        as_shot_neutral_1: white according to the first camera (3,); None if the file does not contain it.
        as_shot_neutral_2: white according to the second camera.
    """

    key: str
    image_1: Blob
    image_2: Blob
    valid: Blob
    valid_share: float
    patches_1: list[float]
    patches_2: list[float]
    saturated: list[bool]
    chart_spread: float
    gt_1: list[float]
    gt_2: list[float]
    orientation_1: int
    as_shot_neutral_1: list[float] | None
    as_shot_neutral_2: list[float] | None


@dataclass(frozen=True)
class PairToMeasure:
    """Columns of a pair that ``measure_pictures`` reads; patches and ``saturated`` are None if there is no chart."""

    key: str
    name: str
    image_1: Blob
    image_2: Blob
    valid: Blob
    patches_1: list[float] | None
    patches_2: list[float] | None
    saturated: list[bool] | None
    gt_1: list[float]
    gt_2: list[float]


@dataclass(frozen=True)
class MeasuredPictures(PairToMeasure):
    """``rows.MeasuredPair`` for a pair whose pictures and patches are passed on."""

    transform_1to2: list[float]
    transform_2to1: list[float]
    transform_chart_1to2: list[float] | None
    transform_chart_2to1: list[float] | None
    condition_1: float | None
    condition_2: float | None


# ------------------------------------------------------------------------------------------------------------ homography


def estimate_homographies(
    rows: Rows,
    *,
    root: str,
    given: Mapping[str, Sequence[float]],
    pairs: int,
) -> Iterator[pa.Table]:
    """Whole step: one homography per device, estimated from points seen by both cameras, or as provided; columns of
    ``WithHomography``.

    Features of several pairs together give a first homography, tiles of them the final one; see ``curation.stages.alignment``.

    Args:
        rows: rows of ``ListedPair``.
        root: see ``list_pairs``.
        given: device -> 3 x 3 row by row; these are not estimated.
        pairs: number of pairs of a device to use, spread evenly over its rows. Unreadable ones are skipped here.

    Raises:
        ValueError: no homography is found for a device; the message says why.
    """
    devices, device = coded(rows, "device")
    found: list[WithHomography] = []
    for number, name in enumerate(devices):
        if name in given:
            found.append(WithHomography(name, _given(name, given[name]).tolist(), None, 0, None))
            continue
        mine = np.flatnonzero(device == number)
        chosen = mine[np.unique(np.linspace(0, len(mine) - 1, min(pairs, len(mine))).astype(np.int64))]
        files = [rows.slice(row, row + 1, ["file_1", "file_2"]).to_pylist()[0] for row in chosen.tolist()]
        one = _estimate(name, [(each["file_1"], each["file_2"]) for each in files], root)
        found.append(WithHomography(name, one.matrix.ravel().tolist(), one.residual_px, one.points, one.share))
    of_device = pa.Table.from_pylist(list(map(vars, found)), schema_of(WithHomography))
    for first, table in in_tables(rows):
        mine = pa.array(device[first : first + table.num_rows])
        for name in of_device.column_names[1:]:
            table = with_column(table, name, of_device[name].take(mine))
        yield table


def _given(device: str, values: Sequence[float]) -> np.ndarray:
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (9,) or not np.isfinite(found).all() or np.linalg.matrix_rank(found.reshape(3, 3)) < 3:
        raise ValueError(f"homography of device {device!r}: expected nine numbers of a matrix with an inverse")
    return found


def _estimate(device: str, files: Sequence[tuple[str, str]], root: str) -> Homography:
    lines: list[str] = []

    def pictures() -> Iterator[tuple[Linear, Linear]]:
        lines.clear()
        for file_1, file_2 in files:  # a pair at a time is held
            try:
                yield read_linear(read_within(root, file_1))[0], read_linear(read_within(root, file_2))[0]
            except Reject as reject:
                lines.append(f"{file_1}: {reject.reason}")

    try:
        return homography_of(pictures)
    except Reject as reject:
        unread = f"; not read: {', '.join(lines)}" if lines else ""
        found = f"no homography from {len(files)} pairs ({reject.reason}: {reject.detail})"
        raise ValueError(f"device {device!r}: {found}{unread}; give it instead") from None


def homography_of(pictures: Callable[[], Iterable[tuple[Linear, Linear]]]) -> Homography:
    """Estimate a homography from points seen by both cameras in some pairs of one device, which are iterated twice.

    Raises:
        Reject: as for ``curation.stages.alignment``.
    """
    features = [match_points(*pair) for pair in pictures()]
    first = fit_homography(*_pooled(features), threshold_px=_RESIDUAL_PX)
    tiles = [tile_points(*pair, homography=first.matrix) for pair in pictures()]
    return fit_homography(*_pooled(tiles), threshold_px=_RESIDUAL_PX)


def _pooled(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    empty = np.empty((0, 2))
    return np.concatenate([empty, *(one for one, _ in found)]), np.concatenate([empty, *(two for _, two in found)])


# ------------------------------------------------------------------------------------------------------------- pictures


def photograph(
    row: PairToRead,
    *,
    root: str,
    factor: int,
    demosaic: Demosaic,
    saturated: float,
    chart: Chart,
    corners_1: Sequence[float] | None = None,
    corners_2: Sequence[float] | None = None,
    least_agreement: float = LEAST_AGREEMENT,
) -> Photographed:
    """Each step: read both files, measure the chart, align, reduce, mask. Holds one pair in memory.

    Args:
        root: see ``list_pairs``.
        factor: raw pixels of the first camera along the side of a result's pixel (6 in the paper).
        demosaic: see ``curation.stages.raw``.
        saturated: share of full scale from which a value counts as saturated.
        chart: position of the chart: ``listed`` in the row, ``fixed`` by ``corners_1`` (a rig), or ``found`` by a detector.
        corners_1: for ``fixed``: as ``ListedPair.chart_1``.
        corners_2: the same in the second camera; None: where the homography puts the first's.
        least_agreement: of two pictures that show one scene; see ``curation.stages.alignment.agreement``.

    Raises:
        Reject: as for ``read_bayer``, ``measure_patches``, ``light``, ``find_chart`` and ``align``; ``chart_misplaced``;
            ``not_one_scene``.
    """
    picture_1, bayer_1 = read_linear(read_within(root, row.file_1), method=demosaic, saturated=saturated)
    picture_2, bayer_2 = read_linear(read_within(root, row.file_2), method=demosaic, saturated=saturated)
    homography = np.reshape(row.homography, (3, 3))
    if chart == "found":
        places = [find_chart(picture_1), find_chart(picture_2)]
    else:
        stated = (row.chart_1, row.chart_2) if chart == "listed" else (corners_1, corners_2)
        if stated[0] is None:
            raise Reject("no_chart_listed", f"chart = {chart!r}, and no corners are given")
        first = np.reshape(stated[0], (4, 2)).astype(np.float64)
        second = mapped(first, np.linalg.inv(homography)) if stated[1] is None else np.reshape(stated[1], (4, 2))
        places = [first, second]
    patches = [measure_patches(picture, corners) for picture, corners in zip((picture_1, picture_2), places, strict=True)]
    if (spread := _grey_spread(patches)) > MAX_CHART_SPREAD:
        raise Reject("chart_misplaced", f"a grey patch varies by {spread:.2f} of its mean, limit {MAX_CHART_SPREAD:g}")
    # Both charts are masked: a near chart appears at different positions in the two aligned pictures.
    excluded = [outline(places[0]), mapped(outline(places[1]), homography)]
    lights = [light(one).tolist() for one in patches]
    aligned = align(picture_1, picture_2, homography=homography, factor=factor, excluded=excluded)
    check_one_scene(aligned, least=least_agreement)
    return photographed(row.key, (aligned.image_1, aligned.image_2), aligned.valid, patches, lights, (bayer_1, bayer_2))


def _grey_spread(patches: Sequence[Patches]) -> float:
    return max(float(one.spread[18:23].max()) for one in patches)


def photographed(
    key: str,
    images: Sequence[np.ndarray],
    valid: np.ndarray,
    patches: Sequence[Patches],
    lights: Sequence[list[float]],
    files: Sequence[Bayer | None] = (None, None),
) -> Photographed:
    """The row of a pair on one grid: linear pictures (h, w, 3), mask (h, w), charts and lights; ``files``: the raw files."""
    neutral = [None if file is None or file.as_shot_neutral is None else file.as_shot_neutral.tolist() for file in files]
    return Photographed(
        key=key,
        image_1=npy_blob(as_uint16(images[0])),
        image_2=npy_blob(as_uint16(images[1])),
        valid=npy_blob(valid),
        valid_share=float(valid.mean()),
        patches_1=patches[0].colours.ravel().tolist(),
        patches_2=patches[1].colours.ravel().tolist(),
        saturated=(patches[0].saturated | patches[1].saturated).tolist(),
        chart_spread=_grey_spread(patches),
        gt_1=lights[0],
        gt_2=lights[1],
        orientation_1=1 if files[0] is None else files[0].orientation,
        as_shot_neutral_1=neutral[0],
        as_shot_neutral_2=neutral[1],
    )


def array_of(blob: Blob) -> np.ndarray:
    """The array of an .npy file."""
    return decode_npy(blob.read())


def measure_pictures(row: PairToMeasure, *, preset: TransformPreset, max_condition: float, darkest: float) -> MeasuredPictures:
    """Each step: the transforms between the pictures' valid pixels, and between the charts' patches that are not saturated.

    Args:
        preset: see ``transforms``.
        max_condition: maximum condition number of either picture's colours, and of either chart's.
        darkest: pixels with a sum of R, G and B at or below this share of full scale in either picture are left out.

    Raises:
        Reject: ``singular``; ``too_few_pixels``.
    """
    one, two = valid_colours(row.image_1, row.image_2, row.valid, darkest=darkest)
    check_pixels(len(one))
    there, condition_1 = checked_fit(one, two, preset=preset, what="first picture", max_condition=max_condition)
    back, condition_2 = checked_fit(two, one, preset=preset, what="second picture", max_condition=max_condition)
    chart_there = chart_back = None
    if row.patches_1 is not None and row.patches_2 is not None:
        clear = ~np.asarray(row.saturated, dtype=bool)
        patches = [np.reshape(values, (24, 3))[clear] for values in (row.patches_1, row.patches_2)]
        chart_there, _ = checked_fit(*patches, preset=preset, what="first chart", max_condition=max_condition)
        chart_back, _ = checked_fit(*patches[::-1], preset=preset, what="second chart", max_condition=max_condition)
    kept: dict[str, Any] = {name: getattr(row, name) for name in PairToMeasure.__dataclass_fields__}
    return MeasuredPictures(
        **kept,
        transform_1to2=there.ravel().tolist(),
        transform_2to1=back.ravel().tolist(),
        transform_chart_1to2=None if chart_there is None else chart_there.ravel().tolist(),
        transform_chart_2to1=None if chart_back is None else chart_back.ravel().tolist(),
        condition_1=condition_1,
        condition_2=condition_2,
    )


def check_pixels(count: int) -> None:
    """Raise ``Reject("too_few_pixels", ...)`` for fewer valid pixels than a transform is fitted to.

    >>> check_pixels(99)
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: too_few_pixels: 99 valid pixels, expected at least 100
    """
    if count < _FEWEST_PIXELS:
        raise Reject("too_few_pixels", f"{count} valid pixels, expected at least {_FEWEST_PIXELS}")


def valid_colours(image_1: Blob, image_2: Blob, valid: Blob, *, darkest: float) -> tuple[np.ndarray, np.ndarray]:
    """Colours of the valid pixels in both pictures, float64 (n, 3) each, 1 at full scale."""
    keep = array_of(valid).ravel()
    one, two = (np.compress(keep, array_of(image).reshape(-1, 3), axis=0) / 65535 for image in (image_1, image_2))
    bright = np.minimum(one.sum(axis=1), two.sum(axis=1)) > darkest
    return one[bright], two[bright]
