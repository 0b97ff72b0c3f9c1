"""Real pairs: raw files of two fixed cameras, brought onto one grid, with the chart measured and masked.

Source: Abdelhamed, Punnappurath and Brown, CVPR 2021, sections 3.1 and 4.3. The layout of S20 is a folder with ``<pair>_CAM_0``
and ``<pair>_CAM_1`` raw files; further folders in it are further devices, each with a homography of its own. How a scene was
averaged down by 6 the paper does not say: here by area.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import fsspec
import numpy as np
import pyarrow as pa

from ...curation.rows import Blob, Reject, Rejected, with_column
from ...curation.stages.alignment import Homography, align, fit_homography, mapped, match_points, tile_points
from ...curation.stages.colour_chart import Patches, find_chart, light, measure_patches, outline
from ...curation.stages.raw import SATURATED, Bayer, Demosaic, Linear, as_uint16, read_linear
from ...curation.streams import check_columns
from .transforms import Preset, checked_fit

if TYPE_CHECKING:
    from ...curation.store import Rows

_PAIR = re.compile(r"(?P<pair>.+)_CAM_(?P<camera>[01])\.(?P<ending>[A-Za-z0-9]+)\Z")
MAX_BYTES = 1 << 28

Chart = Literal["listed", "fixed", "found"]
_RESIDUAL_PX = 3.0


@dataclass(frozen=True)
class ListedPair:
    """Two raw files of one scene.

    Attributes:
        device: folder of the files within the source, "" where there is none: cameras that are fixed to each other.
        file_1: path of the first camera's file within the source; ``file_2`` of the second's.
        chart_1: centres of the corner patches (dark skin, bluish green, black, white) in raw pixels of the first camera, x
            and y in turn (8,); None where they are not listed.
        chart_2: the same in the second camera; None: where the homography puts them.
    """

    key: str
    name: str
    device: str
    file_1: str
    file_2: str
    chart_1: list[float] | None
    chart_2: list[float] | None


@dataclass(frozen=True)
class WithHomography:
    """Columns that ``estimate_homographies`` adds, the same for all pairs of a device.

    Attributes:
        homography: raw pixels of the second camera to those of the first, 3 x 3 row by row (9,).
        residual_px: root mean square distance of the points that agree, in raw pixels of the first; None where it was given.
        points: number of points that agree; 0 where it was given.
        share: of all points; None where it was given.
    """

    key: str
    homography: list[float]
    residual_px: float | None
    points: int
    share: float | None


@dataclass(frozen=True)
class PairToRead:
    """What ``photograph`` needs of a pair."""

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
        image_2: the same of the second camera, on the same grid.
        valid: .npy of bool (height, width): seen by both, not saturated, not of the chart.
        valid_share: of all pixels.
        patches_1: colours of the chart's 24 patches in the first camera (72,); ``patches_2`` in the second.
        chart_spread: largest relative standard deviation within a grey patch; above some 0.1 the position is wrong.
        gt_1: light on the greys in the first camera, G at 1 (3,); ``gt_2`` in the second.
        orientation_1: EXIF's orientation of the first file; the pictures are as the sensor lies.
        as_shot_neutral_1: what the first camera took for white (3,), None where it does not say.
        as_shot_neutral_2: the same of the second.
    """

    key: str
    image_1: Blob
    image_2: Blob
    valid: Blob
    valid_share: float
    patches_1: list[float]
    patches_2: list[float]
    chart_spread: float
    gt_1: list[float]
    gt_2: list[float]
    orientation_1: int
    as_shot_neutral_1: list[float] | None
    as_shot_neutral_2: list[float] | None


@dataclass(frozen=True)
class PairToMeasure:
    """What ``measure_pictures`` needs of a pair; patches are None where there is no chart."""

    key: str
    name: str
    image_1: Blob
    image_2: Blob
    valid: Blob
    patches_1: list[float] | None
    patches_2: list[float] | None
    gt_1: list[float]
    gt_2: list[float]


@dataclass(frozen=True)
class MeasuredPictures(PairToMeasure):
    """``rows.MeasuredPair`` of a pair whose pictures and patches go on beside it."""

    transform_1to2: list[float]
    transform_2to1: list[float]
    transform_chart_1to2: list[float] | None
    transform_chart_2to1: list[float] | None
    condition_1: float | None
    condition_2: float | None


# -------------------------------------------------------------------------------------------------------------- listing


def list_pairs(*, root: str, charts: str | None = None) -> Iterator[ListedPair | Rejected]:
    """Source step: the pairs in a folder tree, by path.

    Args:
        root: local path or fsspec URL.
        charts: name of a CSV file in ``root`` with the columns ``name`` (a file, without its ending) and ``x0, y0`` to
            ``x3, y3``; or None.

    Yields:
        Pairs in the order of their keys, and the rejects ``no_partner`` (one camera alone), ``two_files`` (a camera twice)
        and ``no_chart_listed``. Files with other names are no pairs and are passed over.

    Raises:
        FileNotFoundError: no such folder, or no such CSV.
        ValueError: a folder without any pair, or a CSV of another form.
    """
    fs, folder = fsspec.core.url_to_fs(root)
    if not fs.isdir(folder):
        raise FileNotFoundError(f"folder of raw pairs {root} is not there")
    inside = folder.rstrip("/") + "/"
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(name[len(inside) :] for name in fs.find(folder)):
        matched = _PAIR.match(path)
        if matched and not posixpath.basename(path).startswith("."):
            found.setdefault(matched["pair"], {}).setdefault(matched["camera"], []).append(path)
    if not found:
        raise ValueError(f"{root}: no file is named like RAW_0000_CAM_0.dng")
    listed = read_charts(root, charts) if charts is not None else None
    for name, files in found.items():
        key = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        if len(files) < 2:
            yield Rejected(key, "no_partner", next(iter(files.values()))[0])
        elif any(len(same) > 1 for same in files.values()):
            yield Rejected(key, "two_files", ", ".join(max(files.values(), key=len)))
        elif listed is not None and f"{name}_CAM_0" not in listed:
            yield Rejected(key, "no_chart_listed", f"{name}_CAM_0 is not in {charts}")
        else:
            corners = [(listed or {}).get(f"{name}_CAM_{camera}") for camera in (0, 1)]
            yield ListedPair(key, name, posixpath.dirname(name), files["0"][0], files["1"][0], *corners)


def read_charts(root: str, name: str) -> dict[str, list[float]]:
    """Corner patches by file name without ending, eight numbers each, from a CSV file in ``root``; see ``list_pairs``."""
    text = read_within(root, name).decode("utf-8-sig", "replace")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        check_columns(reader.fieldnames or (), name)
        return _charts(reader, name)
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num}: {error}") from None


def _charts(reader: csv.DictReader[str], name: str) -> dict[str, list[float]]:
    columns = [f"{axis}{corner}" for corner in range(4) for axis in "xy"]
    if missing := [column for column in ("name", *columns) if column not in (reader.fieldnames or ())]:
        raise ValueError(f"{name}: column {missing[0]!r} is missing; it has {', '.join(reader.fieldnames or ())}")
    charts: dict[str, list[float]] = {}
    for line in reader:
        try:
            corners = [float(line[column]) for column in columns]
        except (TypeError, ValueError):
            raise ValueError(f"{name}, line {reader.line_num}: eight numbers are wanted") from None
        if not np.isfinite(corners).all() or line["name"] in charts:
            raise ValueError(f"{name}, line {reader.line_num}: {line['name']!r} comes twice, or a number is not finite")
        charts[line["name"]] = corners
    return charts


def read_within(root: str, name: str) -> bytes:
    """A file within ``root``. Raises ``Reject`` ``too_large``, ``ValueError`` for a path that leaves ``root``."""
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r}: a path within {root} is wanted")
    fs, folder = fsspec.core.url_to_fs(root)
    path = posixpath.join(folder, name)
    size = fs.size(path)
    if size is not None and size > MAX_BYTES:
        raise Reject("too_large", f"{size} bytes, limit {MAX_BYTES}")
    return fs.cat_file(path)


# ------------------------------------------------------------------------------------------------------------ homography


def estimate_homographies(
    rows: Rows,
    *,
    root: str,
    given: Mapping[str, Sequence[float]],
    pairs: int,
) -> pa.Table:
    """Whole step: one homography a device, from points that both cameras see, or as given; columns of ``WithHomography``.

    Features of some pairs together give a first homography, tiles of them the last; see ``curation.stages.alignment``.

    Args:
        rows: of ``ListedPair``.
        root: see ``list_pairs``.
        given: device -> 3 x 3 row by row; these are not estimated.
        pairs: of a device that are looked at, spread over its names. Those that cannot be read are passed over here.

    Raises:
        ValueError: a device for which none is found; says why.
    """
    table = rows.table()
    devices = np.asarray(table["device"].to_pylist(), dtype=np.str_)
    files = list(zip(table["file_1"].to_pylist(), table["file_2"].to_pylist(), strict=True))
    matrix = np.empty((table.num_rows, 9))
    residual, share = np.full(table.num_rows, np.nan), np.full(table.num_rows, np.nan)
    points = np.zeros(table.num_rows, dtype=np.int64)
    for device in dict.fromkeys(devices.tolist()):
        mine = np.flatnonzero(devices == device)
        if device in given:
            matrix[mine] = _given(device, given[device])
            continue
        chosen = mine[np.unique(np.linspace(0, len(mine) - 1, min(pairs, len(mine))).astype(np.int64))]
        found = _estimate(device, [files[row] for row in chosen.tolist()], root)
        matrix[mine] = found.matrix.ravel()
        residual[mine], points[mine], share[mine] = found.residual_px, found.points, found.share
    table = with_column(table, "homography", pa.array(matrix.tolist(), pa.list_(pa.float64())))
    table = with_column(table, "residual_px", pa.array(residual, from_pandas=True))
    table = with_column(table, "points", pa.array(points))
    return with_column(table, "share", pa.array(share, from_pandas=True))


def _given(device: str, values: Sequence[float]) -> np.ndarray:
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (9,) or not np.isfinite(found).all() or np.linalg.matrix_rank(found.reshape(3, 3)) < 3:
        raise ValueError(f"homography of device {device!r}: nine numbers of a matrix with an inverse are wanted")
    return found


def _estimate(device: str, files: Sequence[tuple[str, str]], root: str) -> Homography:
    told: list[str] = []

    def pictures() -> Iterator[tuple[Linear, Linear]]:
        for file_1, file_2 in files:  # a pair at a time is held
            try:
                yield read_linear(read_within(root, file_1))[0], read_linear(read_within(root, file_2))[0]
            except Reject as reject:
                told.append(f"{file_1}: {reject.reason}")

    try:
        features = [match_points(*pair) for pair in pictures()]
        first = fit_homography(*_pooled(features), threshold_px=_RESIDUAL_PX)
        told.clear()
        tiles = [tile_points(*pair, homography=first.matrix) for pair in pictures()]
        return fit_homography(*_pooled(tiles), threshold_px=_RESIDUAL_PX)
    except Reject as reject:
        unread = f"; not read: {', '.join(told)}" if told else ""
        found = f"no homography from {len(files)} pairs ({reject.reason}: {reject.detail})"
        raise ValueError(f"device {device!r}: {found}{unread}; give it instead") from None


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
    max_spread: float = 0.5,
) -> Photographed:
    """Each step: read both files, measure the chart, align, average down, mask. Holds this one pair.

    Args:
        root: see ``list_pairs``.
        factor: raw pixels of the first camera along the side of a result's pixel (6 in the paper).
        demosaic: see ``curation.stages.raw``.
        saturated: share of full scale from which a value counts as saturated.
        chart: where the chart is: ``listed`` in the row, ``fixed`` by ``corners_1`` (a rig), or ``found`` by a detector.
        corners_1: for ``fixed``: as ``ListedPair.chart_1``.
        corners_2: the same in the second camera; None: where the homography puts the first's.
        max_spread: limit of ``chart_spread``.

    Raises:
        Reject: as ``read_bayer``, ``measure_patches``, ``light``, ``find_chart`` and ``align`` say; ``chart_misplaced``.
    """
    picture_1, bayer_1 = read_linear(read_within(root, row.file_1), method=demosaic, saturated=saturated)
    picture_2, bayer_2 = read_linear(read_within(root, row.file_2), method=demosaic, saturated=saturated)
    homography = np.reshape(row.homography, (3, 3))
    if chart == "found":
        places = [find_chart(picture_1), find_chart(picture_2)]
    else:
        told = (row.chart_1, row.chart_2) if chart == "listed" else (corners_1, corners_2)
        if told[0] is None:
            raise Reject("no_chart_listed", f"chart = {chart!r}, and no corners are given")
        first = np.reshape(told[0], (4, 2)).astype(np.float64)
        second = mapped(first, np.linalg.inv(homography)) if told[1] is None else np.reshape(told[1], (4, 2))
        places = [first, second]
    patches = [measure_patches(picture, corners) for picture, corners in zip((picture_1, picture_2), places, strict=True)]
    if (spread := _grey_spread(patches)) > max_spread:
        raise Reject("chart_misplaced", f"a grey patch varies by {spread:.2f} of its mean, limit {max_spread:g}")
    # Both charts are masked: where it lies close, the second's is elsewhere in the first's picture.
    excluded = [outline(places[0]), mapped(outline(places[1]), homography)]
    lights = [light(one).tolist() for one in patches]
    aligned = align(picture_1, picture_2, homography=homography, factor=factor, excluded=excluded)
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
    """The row of a pair on one grid: linear pictures (h, w, 3), mask (h, w), charts and lights; ``files``: the raw ones."""
    neutral = [None if file is None or file.as_shot_neutral is None else file.as_shot_neutral.tolist() for file in files]
    return Photographed(
        key=key,
        image_1=npy(as_uint16(images[0])),
        image_2=npy(as_uint16(images[1])),
        valid=npy(valid),
        valid_share=float(valid.mean()),
        patches_1=patches[0].colours.ravel().tolist(),
        patches_2=patches[1].colours.ravel().tolist(),
        chart_spread=_grey_spread(patches),
        gt_1=lights[0],
        gt_2=lights[1],
        orientation_1=1 if files[0] is None else files[0].orientation,
        as_shot_neutral_1=neutral[0],
        as_shot_neutral_2=neutral[1],
    )


def npy(array: np.ndarray) -> Blob:
    """The bytes of an .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return Blob(stream.getvalue())


def array_of(blob: Blob) -> np.ndarray:
    """The array of an .npy file."""
    return np.load(io.BytesIO(blob.read()), allow_pickle=False)


def measure_pictures(row: PairToMeasure, *, preset: Preset, max_condition: float, darkest: float) -> MeasuredPictures:
    """Each step: the transforms between the pictures' valid pixels, and between the charts' patches.

    Args:
        preset: see ``transforms``.
        max_condition: limit of the condition of either picture's colours, and of either chart's.
        darkest: pixels with a sum of R, G and B at or below this share of full scale in either picture are left out.

    Raises:
        Reject: ``singular``; ``too_few_pixels``.
    """
    one, two = valid_colours(row.image_1, row.image_2, row.valid, darkest=darkest)
    if len(one) < 100:
        raise Reject("too_few_pixels", f"{len(one)} valid pixels, 100 wanted")
    there, condition_1 = checked_fit(one, two, preset=preset, what="first picture", max_condition=max_condition)
    back, condition_2 = checked_fit(two, one, preset=preset, what="second picture", max_condition=max_condition)
    chart_there = chart_back = None
    if row.patches_1 is not None and row.patches_2 is not None:
        charts = [np.reshape(values, (24, 3)) for values in (row.patches_1, row.patches_2)]
        clear = clear_patches(*charts, preset=preset)
        patches = [chart[clear] for chart in charts]
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


def clear_patches(chart_1: np.ndarray, chart_2: np.ndarray, *, preset: Preset) -> np.ndarray:
    """Which patches of charts (..., 24, 3) a fit takes, bool (..., 24): by ``weighted``, those that saturate in neither camera.

    The brightest patches count most there, and a white that is cut off would bend the fit. The published presets take all.
    """
    if preset != "weighted":
        return np.ones(chart_1.shape[:-1], dtype=bool)
    return np.logical_and.reduce(np.maximum(chart_1, chart_2) < SATURATED, axis=-1)


def valid_colours(image_1: Blob, image_2: Blob, valid: Blob, *, darkest: float) -> tuple[np.ndarray, np.ndarray]:
    """Colours of the valid pixels in both pictures, float64 (n, 3) each, 1 at full scale."""
    keep = array_of(valid).ravel()
    one, two = (np.compress(keep, array_of(image).reshape(-1, 3), axis=0) / 65535 for image in (image_1, image_2))
    bright = np.minimum(one.sum(axis=1), two.sum(axis=1)) > darkest
    return one[bright], two[bright]
