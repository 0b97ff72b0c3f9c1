"""The HTML report of a two-camera run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ...curation.artifact import Artifact
from ...curation.stage_rows import Rows
from ...datasets.reader.index import DatasetIndex
from ...datasets.two_camera.facts import facts
from ...datasets.two_camera.rows import TransformPairs, as_pairs
from ...eval.metrics.angular import angular_error_deg
from ...eval.report.blocks import Band, Block, Cell, CellValue, ImageGrid, Section, Table
from ..names import short
from ..report import ReportedRun, write_page
from .baselines import directions
from .config import LitPictures, Metadata, Radiometric, RadiometricFile, TwoCameraConfig
from .dependence import light_section
from .paper import data_differs
from .training_sections import results_sections
from .views import Pictures, lights_figure, pairs_section, relit_section


def write_report(config: TwoCameraConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder, also for an unfinished run. Returns its path."""
    run = ReportedRun.of(out)
    sections: list[Section] = []
    first: list[Block] = []
    if (aligned := run.rows("aligned")) is not None:
        sections.append(_alignment(aligned))
    if run.store.exists("dataset/index.parquet") and "shards" in run.made:
        index = DatasetIndex.open(posixpath.join(out, "dataset"), where={"original": True})
        pairs = as_pairs(index.table)
        pictures = Pictures(index, config)
        sections += [both := pairs_section(pictures, pairs), _transforms(config, run.made, pairs, index)]
        sections.append(light_section(pairs, directions(config)))
        if config.augmentation is not None:
            rows = DatasetIndex.open(posixpath.join(out, "dataset")).table
            sections += relit_section(pictures, pairs, rows.filter(pc.invert(rows["original"])))
        grids = [block for block in both.blocks if isinstance(block, ImageGrid)]
        first += [Band([(grid.title, grid.thumbs[:2]) for grid in grids], "Pairs: both cameras")] if grids else []
        sections += results_sections(config, run, pictures, pairs)
    cards = run.cards(
        ("listed", "pairs listed", "raw or matched files"),
        ("measured", "pairs measured", "illuminants and transforms"),
        ("augmented", "rows, re-illuminated ones included", "each pair under the illuminants of others"),
        ("shards", "rows in the shards", "as published"),
    )
    return write_page(
        run,
        "Two-camera illuminant estimation",
        f"{short(config.source.kind)}, transforms {config.transform.preset}, seed {config.seed}",
        cards=cards,
        notes=_notes(config),
        sections=sections,
        drawn=f"spectra of the package colour-science, seed {config.seed}",
        first=first,
    )


_LEFT_OUT = "Training rows with the illuminant of a test pair are left out, unless a result says otherwise"

_TARGETS = {
    "any": "Each picture is re-illuminated with the illuminants of any {} others, as in the release; the paper does not say "
    f"whose. {_LEFT_OUT}, so that fewer are left.",
    "training_folds": "Each picture is re-illuminated, for each test fold, with the illuminants of {} others of the training "
    f"folds; the paper does not say whose. {_LEFT_OUT}.",
    "same_fold": "Each picture is re-illuminated with the illuminants of at most {} others of its own fold: a rule of ours.",
}


def _notes(config: TwoCameraConfig) -> list[str]:
    lines: list[str] = []
    if isinstance(config.source, Radiometric):
        cameras = " and ".join(config.source.cameras)
        lines.append(
            f"Pictures of this run are computed from spectra, for {cameras}. The paper names neither its cameras nor its seed, "
            "and its 87 illuminants are not available: its figures are for other pairs."
        )
    if isinstance(config.source, LitPictures):
        lines.append(
            f"Pictures of {config.source.second} are simulated: each is a picture of {config.source.main} times the transform "
            "of a chart under its illuminant, computed from spectra. Such transforms are more regular than measured ones, "
            "which favours networks."
        )
    if isinstance(config.source, Metadata | RadiometricFile):
        lines.append("Illuminants and transforms are the released ones. Baselines that need pictures cannot run.")
    if isinstance(config.source, RadiometricFile) and config.evaluation.direction != "1to2":
        lines.append(
            "The file has no transforms from the second camera to the first: those of this run are inverses, not fits."
        )
    if config.augmentation is not None:
        lines.append(_TARGETS[config.augmentation.targets].format(config.augmentation.count))
    if isinstance(config.source, Metadata) and config.source.augmented:
        lines.append(
            f"Each pair has {config.source.augmented} re-illuminated rows, read from the same place. They do not say whose "
            f"illuminant a row has: it is taken as that of the pair with the nearest ones. {_LEFT_OUT}, so that fewer are left."
        )
    return lines


def _alignment(rows: Rows) -> Section:
    columns = ["device", "homography", "residual_px", "points", "share"]
    seen: dict[str, dict[str, Any]] = {}
    for row in rows.table(columns).to_pylist():
        seen.setdefault(row["device"], row)
    lines: list[Sequence[CellValue]] = []
    for device, row in seen.items():
        matrix = "; ".join(" ".join(f"{value:.6g}" for value in row["homography"][at : at + 3]) for at in (0, 3, 6))
        how = "estimated" if row["points"] else "given"
        lines.append([device or "(one device)", how, row["residual_px"], row["points"], row["share"], Cell(matrix, code=True)])
    caption = "Homography from raw pixels of the second camera to those of the first, for each device"
    headings = ["device", "how", "residual, raw pixels", "inliers", "share of all points", "matrix, row by row"]
    return Section("Alignment", [Table(headings, lines, caption)])


def _transforms(config: TwoCameraConfig, made: Mapping[str, Artifact], pairs: TransformPairs, index: DatasetIndex) -> Section:
    published = facts().sets["s20"] if config.compare_with == "s20" and not data_differs(config, made) else {}
    lines: list[Sequence[CellValue]] = []
    for name, told in (("", "image_error_deg"), ("chart_", "chart_error_deg")):
        for way in ("1to2", "2to1"):
            matrix = getattr(pairs, f"transform_{name}{way}")
            if np.isnan(matrix).any():
                continue
            one, two = (pairs.gt_1, pairs.gt_2) if way == "1to2" else (pairs.gt_2, pairs.gt_1)
            seen = np.einsum("ni,nij->nj", one, matrix)
            errors = angular_error_deg(seen / seen[:, 1:2], two / two[:, 1:2])
            what = f"{'chart' if name else 'picture'}, {way.replace('to', ' to ')}"
            beside = [published.get(told) if way == "1to2" else None] if published else []
            lines.append([what, float(errors.mean()), float(np.median(errors)), float(errors.max()), *beside])
    headings = ["T of the", "mean", "median", "max", *(["released T, mean"] if published else [])]
    caption = "Angle between the illuminant in one camera, transformed by T, and the illuminant in the other, in degrees"
    blocks: list[Block] = [Table(headings, lines, caption, decimals=2)]
    conditions = [index.table[f"condition_{number}"].drop_null().to_numpy() for number in (1, 2)]
    if all(len(values) for values in conditions):
        rows: list[Sequence[CellValue]] = [
            [f"camera {number}", *(float(np.quantile(values, at)) for at in (0.5, 0.9, 1.0))]
            for number, values in enumerate(conditions, 1)
        ]
        blocks.append(Table(["colours of", "median", "90 %", "max"], rows, "Condition number of the colours", decimals=1))
    return Section("Transforms", [*blocks, lights_figure(pairs)])
