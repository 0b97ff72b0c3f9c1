"""Pictures of a two-camera run for its report: pairs, pairs under other lights, corrected pictures, and the lights."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...curation.stages.raw import upright
from ...datasets.reader.index import DatasetIndex
from ...datasets.reader.samples import Samples
from ...datasets.two_camera.augment import changes_in
from ...datasets.two_camera.rows import TransformPairs
from ...datasets.two_camera.samples import IMAGES, VALID
from ...eval.metrics.angular import angular_error_deg
from ...eval.protocols.cross_validation import AVERAGE, Estimates
from ...eval.report.blocks import Block, CellValue, Figure, ImageGrid, Section, Sheet, Table, Text, Thumb
from ...eval.report.maps import scatter_chart
from .config import Radiometric, RawPairs, TwoCameraConfig
from .looks import png, white_level

_PAIRS = 3
_LIGHTS = 200  # as in the paper's Figure 5 (A)
_SQUARES = 8
_THUMB_PX = 176
_WIDE_PX = 640
_SHEET_PX = 150
_CORRECTED_PX = 114  # seven fit side by side on a page
COMPARED = 5
"""Most methods whose corrections are shown side by side, as in the paper's Figure 9."""


class Pictures:
    """Pictures of measured pairs, read on demand; ``there`` is False if the dataset has none."""

    def __init__(self, index: DatasetIndex, config: TwoCameraConfig) -> None:
        self.there = config.pictured
        self.masked = not isinstance(config.source, Radiometric)
        self._index, self._turned = index, isinstance(config.source, RawPairs)

    @functools.cached_property
    def _samples(self) -> Samples:
        extensions = [*IMAGES, VALID] if self.masked else IMAGES
        return Samples(self._index, extensions=extensions, columns=["orientation_1"] if self._turned else [])

    def read(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both pictures, upright, float64 (h, w, 3) with 1 at full scale, and the mask (h, w)."""
        sample = self._samples[row]
        orientation = sample.get("orientation_1", 1)
        views = [upright(sample[name], orientation).astype(np.float64) / 65535 for name in IMAGES]
        valid = upright(sample[VALID], orientation) if self.masked else np.ones(views[0].shape[:2], dtype=bool)
        return views[0], views[1], valid


def pairs_section(pictures: Pictures, pairs: TransformPairs) -> Section:
    if not pictures.there:
        return Section("Pairs", [Text(["This dataset has no pictures."])])
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(_PAIRS, len(pairs))).astype(int)).tolist()
    blocks: list[Block] = [
        Text(
            [
                "A chequerboard alternates squares of both cameras, with the second one converted to the first's colours by T: "
                "where the pair is aligned, lines continue from square to square. Black pixels of a mask are invalid: "
                "saturated, visible to one camera only, or part of the chart. Pictures are raw colours, divided by the "
                "illuminant, with the gamma of sRGB."
            ]
        )
    ]
    for row in chosen:
        one, two, valid = pictures.read(row)
        over = two @ np.linalg.inv(pairs.transform_1to2[row])
        light = pairs.gt_1[row]
        top = white_level(one / light)
        text = f"{pairs.name[row]}: chequerboard of both cameras"
        blocks.append(Figure(png(_chequered(one, over) / light, top, _WIDE_PX), text, f"{text}."))
        thumbs = [
            Thumb(png(one / light, top), "first camera"),
            Thumb(png(two / pairs.gt_2[row], white_level(two / pairs.gt_2[row])), "second camera"),
            *(
                _swatch(getattr(pairs, f"gt_{n}")[row], f"illuminant in the {which} camera")
                for n, which in ((1, "first"), (2, "second"))
            ),
        ]
        if pictures.masked:
            thumbs.append(
                Thumb(png(np.repeat(valid[..., None], 3, axis=2).astype(float), 1.0), f"mask, {valid.mean():.0%} valid")
            )
        blocks.append(ImageGrid(str(pairs.name[row]), thumbs, side_px=_THUMB_PX))
    return Section("Pairs", blocks)


def _chequered(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Alternating squares of both pictures, ``_SQUARES`` along the longer side."""
    side = max(1, -(-max(one.shape[:2]) // _SQUARES))
    rows, columns = np.arange(one.shape[0]) // side, np.arange(one.shape[1]) // side
    return np.where(((rows[:, None] + columns) % 2 == 0)[..., None], one, two)


def _swatch(light: np.ndarray, caption: str) -> Thumb:
    """The colour of a light, with its strongest channel at full scale."""
    return Thumb(png(np.tile(light, (3, 4, 1)), float(light.max())), caption)


def _corrected(picture: np.ndarray, light: np.ndarray, caption: str) -> Thumb:
    """The picture divided by a light, with its own white level at full scale."""
    divided = picture / (light / light[1])
    return Thumb(png(divided, white_level(divided)), caption)


# --------------------------------------------------------------------------------------------------------------- lights


def lights_figure(pairs: TransformPairs) -> Figure:
    """Lights of at most ``_LIGHTS`` pairs in the colours of both cameras, as in the paper's Figure 5."""
    drawn = np.random.default_rng(0).permutation(len(pairs))[:_LIGHTS]
    lights = np.concatenate([pairs.gt_1[drawn], pairs.gt_2[drawn]])
    return scatter_chart(
        lights[:, [0, 2]] / lights[:, 1:2],
        np.repeat([0, 1], len(drawn)),
        ["first camera", "second camera"],
        axes=("R/G of the illuminant", "B/G of the illuminant"),
        group_axis="camera",
        ticks=True,
        caption=f"The illuminants of {len(drawn):,} of {len(pairs):,} measured pairs in both cameras: they differ as the "
        "cameras' sensitivities differ.",
    )


# -------------------------------------------------------------------------------------------------------- other lights


def relit_section(pictures: Pictures, pairs: TransformPairs, relit: pa.Table) -> list[Section]:
    """Two pairs, each under the light of the other, as in the paper's Figure 3; empty if the run has no such two.

    Args:
        pictures: pictures of the measured pairs.
        pairs: the measured pairs, in the same order.
        relit: the re-illuminated rows.
    """
    matrices, of = changes_in(relit)
    at = {key: row for row, key in enumerate(pairs.key.tolist())}
    both = [(at[one], at[other]) for one, other in of if one < other and (other, one) in of]
    if not both or not pictures.there:
        return []
    one, other = both[int(angular_error_deg(*(pairs.gt_1[list(rows)] for rows in zip(*both, strict=True))).argmax())]
    names = [str(pairs.name[row]) for row in (one, other)]
    seen = [pictures.read(row) for row in (one, other)]
    rows: list[tuple[str, list[Thumb]]] = []
    for camera, (which, change) in enumerate(zip(("first camera", "second camera"), matrices, strict=True)):
        views = [both_views[camera] for both_views in seen]
        changed = [
            np.maximum(views[n] @ change[of[str(pairs.key[own]), str(pairs.key[light])]], 0)
            for n, (own, light) in enumerate(((one, other), (other, one)))
        ]
        text = (*names, f"{names[0]} as {names[1]}", f"{names[1]} as {names[0]}")
        rows.append((which, [Thumb(png(v, white_level(v)), t) for v, t in zip((*views, *changed), text, strict=True)]))
    text = (
        "Two pairs, each under the illuminant of the other, by the 3 x 3 matrix between the colours of their charts. Raw "
        "colours with the gamma of sRGB. Networks are trained on the transforms of such pictures; baselines that are trained "
        "use the pictures themselves, as many as evaluation.relit_pictures."
    )
    columns = [("picture", names[0]), ("picture", names[1]), ("re-lit", names[0]), ("re-lit", names[1])]
    return [Section("Re-illumination", [Text([text]), Sheet(columns, rows, side_px=_SHEET_PX)])]


# ------------------------------------------------------------------------------------------------------------ corrected

Errors = dict[str, tuple[float, np.ndarray]]
"""Pair -> error in degrees, and estimated light."""


def all_errors(found: Estimates) -> list[float]:
    """Errors in degrees of every pair and run, as in the means of the tables; without the average of the runs."""
    return [float(error) for run, parts in found.errors.items() if run != AVERAGE for part in parts for error in part]


def errors_of(found: Estimates) -> Errors:
    """Errors and estimates of the first run, which is also the exported one."""
    run = next(run for run in found.runs if run != AVERAGE)
    parts = zip(found.names, found.errors[run], found.runs[run], strict=True)
    return {name: (float(error), light) for part in parts for name, error, light in zip(part[0], part[1], part[2], strict=True)}


def corrected_section(errors: Mapping[str, Errors], first: bool, pictures: Pictures, pairs: TransformPairs) -> Section:
    """The same pictures corrected by several methods, as in the paper's Figure 9.

    Args:
        errors: method -> its errors; pictures are chosen by the errors of the first method.
        first: whether the light in the first camera is estimated, rather than that in the second.
        pictures: pictures of the measured pairs.
        pairs: the measured pairs, in the same order.
    """
    leading = next(iter(errors))
    ranked = sorted(errors[leading], key=lambda key: errors[leading][key][0])
    at = {key: row for row, key in enumerate(pairs.key.tolist())}
    rows: list[tuple[str, list[Thumb | None]]] = []
    degrees: list[Sequence[CellValue]] = []
    for what, key in (("smallest", ranked[0]), ("median", ranked[len(ranked) // 2]), ("largest", ranked[-1])):
        row = at[key]
        picture = pictures.read(row)[0 if first else 1]
        thumbs: list[Thumb | None] = [Thumb(png(picture, white_level(picture)), "raw")]
        for mine in errors.values():
            thumbs.append(_corrected(picture, mine[key][1], f"{mine[key][0]:.2f} degrees error") if key in mine else None)
        thumbs.append(_corrected(picture, (pairs.gt_1 if first else pairs.gt_2)[row], "ground truth"))
        rows.append((f"{pairs.name[row]}: {what} error", thumbs))
        degrees.append([str(pairs.name[row]), *(mine[key][0] if key in mine else None for mine in errors.values())])
    text = (
        "The pictures with the smallest, the median and the largest error of "
        f"{leading}, divided by the illuminant that each method estimates, and by the true one. With several seeds, the "
        "network is that of the first, which `benchwright export` also exports."
    )
    names = [name.replace("_", " ") for name in errors]  # so that headings are no wider than pictures
    sheet = Sheet([("raw", ""), *((name, "") for name in names), ("ground truth", "")], rows, side_px=_CORRECTED_PX)
    table = Table(["picture", *names], degrees, "Errors of these pictures, in degrees", decimals=2)
    return Section("Corrected pictures", [Text([text]), sheet, table])
