"""Quasi-real pairs: pictures of one camera with charts, and simulated pictures of a second camera.

Source: Abdelhamed, Punnappurath and Brown, CVPR 2021, section 4.2. The layout is that of NUS: a folder per camera with 16-bit
linear PNGs, ``<camera>_gt.mat`` with ``darkness_level``, ``saturation_level``, ``groundtruth_illuminants`` and
``all_image_names``, and in the main camera's folder ``matched_with_<second>.txt``, two names per line. T is fitted to the 24
patches of both charts; the second picture is the first times T, on raw values. The positions of the charts are read from a CSV
file, see ``pair_files.read_charts``, or are detected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import cv2
import fsspec
import numpy as np

from ...curation.matlab import read_mat
from ...curation.rows import Reject, Rejected
from ...curation.stages.alignment import AlignedPictures, align
from ...curation.stages.colour_chart import find_chart, light, measure_patches, outline
from ...curation.stages.raw import MAX_PIXELS, Linear
from .pair_files import MAX_BYTES, read_charts, read_listed, read_within
from .pictures import Photographed, photographed
from .transforms import MAX_CONDITION, checked_fit

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class MatchToRead:
    """Two pictures of one scene by two cameras next to each other.

    Attributes:
        file_1: PNG of the main camera within the source; ``file_2`` of the second.
        black_1: black level of the main camera's files; ``black_2`` of the second's.
        white_1: saturation level of the main camera's files; ``white_2`` of the second's.
        chart_1: centres of the corner patches in the first file (8,); None if they are to be detected.
        chart_2: the same in the second file.
        listed_gt_1: light from the main camera's ``.mat`` (3,); ``listed_gt_2`` from the second's.
    """

    key: str
    file_1: str
    file_2: str
    black_1: float
    white_1: float
    black_2: float
    white_2: float
    chart_1: list[float] | None
    chart_2: list[float] | None
    listed_gt_1: list[float]
    listed_gt_2: list[float]


@dataclass(frozen=True)
class MatchedPair(MatchToRead):
    """``MatchToRead`` with a name, which ``simulate`` does not need and which is passed on with its results."""

    name: str


@dataclass(frozen=True)
class _Camera:
    black: float
    white: float
    lights: dict[str, list[float]]


def list_matches(*, root: str, main: str, second: str, charts: str | None) -> Iterator[MatchedPair | Rejected]:
    """Source step: the matched pairs of two cameras, in the order of the list.

    Args:
        root: folder with a folder for each camera: local path or fsspec URL.
        main: name of the main camera (NikonD5200 in the paper).
        second: name of the second (Canon1DsMkIII).
        charts: CSV file in ``root`` with the corner patches of every file; None to detect the charts.

    Yields:
        Pairs, and the rejects ``no_file``, ``no_light``, ``no_chart_listed``, ``bad_line`` and ``duplicate_key``.

    Raises:
        FileNotFoundError: the list of matches or a ``.mat`` does not exist.
        ValueError: a ``.mat`` has another form.
    """
    fs, folder = fsspec.core.url_to_fs(root)
    cameras = [_camera(root, name) for name in (main, second)]
    matches = f"{main}/matched_with_{second}.txt"
    text = read_listed(root, matches, "source.main and source.second").decode("utf-8-sig", "replace")
    listed = read_charts(root, charts) if charts is not None else {}
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        names = [re.sub(r"\.png\Z", "", word.strip(), flags=re.IGNORECASE) for word in line.split(",")]
        try:
            pair = _match(fs, folder, names, (main, second), cameras, listed if charts is not None else None)
            if pair.key in seen:
                raise Reject("duplicate_key", f"{pair.key!r} came before")
            seen.add(pair.key)
            yield pair
        except Reject as reject:
            yield Rejected(f"line-{number}", reject.reason, reject.detail)


def _match(
    fs: Any, folder: str, names: list[str], of: tuple[str, str], cameras: list[_Camera], listed: dict[str, list[float]] | None
) -> MatchedPair:
    if len(names) < 2 or any(not re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names[:2]):
        raise Reject("bad_line", f"{','.join(names)[:80]!r}: expected two names of files")
    files: list[str] = []
    for name, camera, known in zip(names[:2], of, cameras, strict=True):
        found = next((f"{camera}/{name}{e}" for e in (".PNG", ".png") if fs.isfile(f"{folder}/{camera}/{name}{e}")), None)
        if found is None:
            raise Reject("no_file", f"{camera}/{name}.PNG")
        if name not in known.lights:
            raise Reject("no_light", f"{name} is not in {camera}_gt.mat")
        if listed is not None and name not in listed:
            raise Reject("no_chart_listed", name)
        files.append(found)
    first, second = cameras
    return MatchedPair(
        key=names[0],
        name=names[0],
        file_1=files[0],
        file_2=files[1],
        black_1=first.black,
        white_1=first.white,
        black_2=second.black,
        white_2=second.white,
        chart_1=None if listed is None else listed[names[0]],
        chart_2=None if listed is None else listed[names[1]],
        listed_gt_1=first.lights[names[0]],
        listed_gt_2=second.lights[names[1]],
    )


def _camera(root: str, name: str) -> _Camera:
    place = f"{name}/{name}_gt.mat"
    wanted = ("darkness_level", "saturation_level", "groundtruth_illuminants", "all_image_names")
    data = read_listed(root, place, "source.main and source.second")
    try:
        found = read_mat(data, wanted)
        names = [str(item.ravel()[0]) for item in found["all_image_names"]]
        lights = found["groundtruth_illuminants"][0].astype(np.float64).reshape(-1, 3)
        black, white = (float(found[level][0].ravel()[0]) for level in wanted[:2])
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{place}: expected {', '.join(wanted)}: {error}") from None
    if len(names) != len(lights) or not white > black or not (np.isfinite(lights).all() and (lights > 0).all()):
        raise ValueError(f"{place}: expected {len(names)} names, {len(lights)} lights above 0 and a saturation above darkness")
    return _Camera(black, white, dict(zip(names, lights.tolist(), strict=True)))


def read_png(data: bytes, *, black: float, white: float, saturated: float) -> Linear:
    """A linear 16-bit RGB PNG at full size, with the black level at 0 and saturation at 1.

    Raises:
        Reject: ``empty_file``, ``not_png``, ``too_large``, ``not_16_bit_rgb``, ``corrupt``.
    """
    if not data:
        raise Reject("empty_file", "0 bytes")
    if not data.startswith(_PNG) or len(data) < 26:
        raise Reject("not_png", f"begins with {data[:16]!r}")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if width * height > MAX_PIXELS or len(data) > MAX_BYTES:
        raise Reject("too_large", f"{width}x{height} pixels, limit {MAX_PIXELS}")
    if (data[24], data[25]) != (16, 2):
        raise Reject("not_16_bit_rgb", f"bit depth {data[24]}, colour type {data[25]}, expected 16 and 2")
    try:
        levels = cast(
            "np.ndarray | None", cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR_RGB)
        )
    except cv2.error as error:
        raise Reject("corrupt", str(error).strip().splitlines()[-1]) from None
    if levels is None or b"IEND" not in data[-64:]:
        raise Reject("corrupt", "the file is truncated, or its data cannot be decoded")
    rgb = (levels.astype(np.float32) - np.float32(black)) / np.float32(white - black)
    over: np.ndarray = levels >= black + saturated * (white - black)
    return Linear(rgb, np.logical_or.reduce(over, axis=2), 1)


def simulate(row: MatchToRead, *, root: str, factor: int, saturated: float, lights: str) -> Photographed:
    """Each step: the main picture, and the simulated picture of the second camera.

    Args:
        root: see ``list_matches``.
        factor: number of picture pixels along the side of a result's pixel.
        saturated: share of full scale from which a value counts as saturated.
        lights: source of the ground truth: ``listed`` in the ``.mat`` files, or the ``chart``.

    Raises:
        Reject: as for ``read_png``, ``find_chart``, ``measure_patches``, ``light`` and ``align``; ``singular``.
    """
    picture = read_png(read_within(root, row.file_1), black=row.black_1, white=row.white_1, saturated=saturated)
    beside = read_png(read_within(root, row.file_2), black=row.black_2, white=row.white_2, saturated=saturated)
    places = [
        find_chart(one) if stated is None else np.reshape(stated, (4, 2))
        for one, stated in ((picture, row.chart_1), (beside, row.chart_2))
    ]
    patches = [measure_patches(one, corners) for one, corners in zip((picture, beside), places, strict=True)]
    usable = ~(patches[0].saturated | patches[1].saturated)
    matrix, _ = checked_fit(
        patches[0].colours[usable],
        patches[1].colours[usable],
        preset="as_written",
        what="first chart",
        max_condition=MAX_CONDITION,
    )
    found = [light(one).tolist() for one in patches] if lights == "chart" else [row.listed_gt_1, row.listed_gt_2]
    aligned: AlignedPictures = align(picture, picture, homography=np.eye(3), factor=factor, excluded=[outline(places[0])])
    seen = aligned.image_1.astype(np.float64) @ matrix
    # The matrix may map colours out of the range of the sensor; such pixels are not valid.
    valid = aligned.valid & (seen >= 0).all(axis=2) & (seen <= 1).all(axis=2)
    return photographed(row.key, (aligned.image_1, seen), valid, patches, found)
