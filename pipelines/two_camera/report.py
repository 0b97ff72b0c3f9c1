"""The HTML report of a two-camera run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...curation.artifact import Artifact
from ...curation.keys import canonical
from ...curation.registry import BUILT_IN
from ...curation.shards import read_sample
from ...curation.stages.raw import upright
from ...curation.store import Rows
from ...datasets.reader.decode import decode_npy
from ...datasets.reader.index import DatasetIndex, ShardFiles
from ...datasets.two_camera.facts import STATISTICS, TABLE, facts
from ...datasets.two_camera.rows import TransformPairs, as_pairs
from ...datasets.two_camera.samples import IMAGES, VALID
from ...eval.metrics.angular import angular_error_deg
from ...eval.protocols.cross_validation import AVERAGE, Estimates, estimates_of
from ...eval.report.blocks import Band, Block, Cell, Figure, ImageGrid, Section, Table, Text, Thumb, Value
from ...eval.report.figures import line_chart
from ...eval.report.trained import (
    CURVES,
    Column,
    PublishedRow,
    comparable,
    lines_table,
    own_metrics,
    record_differences,
    settings_details,
    whole_columns,
)
from ...eval.results import Line
from ...training.illuminants.registry import ESTIMATORS
from ...training.two_camera.settings import settings
from ..experiments import predictions, skipped_trainings
from ..own import shown
from ..report import ReportedRun, write_page
from .baselines import LINEAR, directions
from .config import Metadata, Radiometric, RawPairs, TwoCameraConfig
from .cost import cost_blocks, shape_in
from .dependence import light_section
from .looks import png, white_level

SHOWN = tuple(f"fold_mean_{name}_deg" for name in ("mean", "median", "best_25", "worst_25", "q1", "q3"))
"""Metrics in the order of the published tables."""

_PAIRS = 3
_SQUARES = 8
_THUMB_PX = 220
_WIDE_PX = 640


def write_report(config: TwoCameraConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder; an unfinished run has one, too. Returns its path."""
    run = ReportedRun.of(out)
    sections: list[Section] = []
    first: list[Block] = []
    if (aligned := run.rows("aligned")) is not None:
        sections.append(_alignment(aligned))
    if run.store.exists("dataset/index.parquet") and "shards" in run.made:
        index = DatasetIndex.open(posixpath.join(out, "dataset"), where={"original": True})
        pairs = as_pairs(index.table)
        pictures = _Pictures(index, config)
        sections += [both := _pairs(pictures, pairs), _transforms(config, run.made, pairs, index)]
        sections.append(light_section(pairs, directions(config)))
        grids = [block for block in both.blocks if isinstance(block, ImageGrid)]
        first += [Band([(grid.title, grid.thumbs[:2]) for grid in grids], "Pairs: both cameras")] if grids else []
        sections += _results(config, run, pictures, pairs)
    cards = run.cards(
        ("listed", "pairs listed", "raw or matched files"),
        ("measured", "pairs measured", "lights and transforms"),
        ("augmented", "rows with re-illuminated ones", "each pair under the lights of others"),
        ("shards", "rows in the shards", "as published"),
    )
    return write_page(
        run,
        "Two-camera illuminant estimation",
        f"{shown(config.source.kind)}, transforms {config.transform.preset}, seed {config.seed}",
        cards=cards,
        notes=_notes(config),
        sections=sections,
        drawn=f"spectra that colour-science ships, seed {config.seed}",
        first=first,
    )


def _notes(config: TwoCameraConfig) -> list[str]:
    told: list[str] = []
    if isinstance(config.source, Radiometric):
        cameras = " and ".join(config.source.cameras)
        told.append(
            f"Pictures of this run are made from spectra, for {cameras}. The paper names neither its cameras nor its seed, and "
            "its 87 lights are not available: its figures are of other pairs."
        )
    if isinstance(config.source, Metadata):
        told.append("Lights and transforms are the released ones. Without the pictures, baselines that need them cannot run.")
    if config.augmentation is not None and config.augmentation.targets == "any":
        told.append(
            "Re-illumination takes any other picture, as in the paper. Training rows re-lit with the illuminant of a test pair "
            "are left out all the same, unless a result says otherwise."
        )
    return told


def _alignment(rows: Rows) -> Section:
    columns = ["device", "homography", "residual_px", "points", "share"]
    seen: dict[str, dict[str, Any]] = {}
    for row in rows.table(columns).to_pylist():
        seen.setdefault(row["device"], row)
    lines: list[Sequence[Value]] = []
    for device, row in seen.items():
        matrix = "; ".join(" ".join(f"{value:.6g}" for value in row["homography"][at : at + 3]) for at in (0, 3, 6))
        how = "estimated" if row["points"] else "given"
        lines.append([device or "(one device)", how, row["residual_px"], row["points"], row["share"], Cell(matrix, code=True)])
    caption = "Homography from raw pixels of the second camera to those of the first, one a device"
    headings = ["device", "how", "residual, raw pixels", "points that agree", "share of all", "matrix, row by row"]
    return Section("Alignment", [Table(headings, lines, caption)])


# ------------------------------------------------------------------------------------------------------------- pictures


class _Pictures:
    """Pictures of measured pairs, read when asked for; none where the dataset has none."""

    def __init__(self, index: DatasetIndex, config: TwoCameraConfig) -> None:
        source = config.source
        self.there = not isinstance(source, Metadata) and not (isinstance(source, Radiometric) and not source.patch_px)
        self.masked = not isinstance(source, Radiometric)
        self.turned = isinstance(source, RawPairs)
        self._index = index

    def read(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both pictures, float64 (h, w, 3), upright, 1 at full scale, and the mask (h, w)."""
        table = self._index.table
        place = tuple(table[name][row].as_py() for name in ("shard", "offset", "size"))
        [data] = ShardFiles(self._index.url).read([place])  # and not by ``ShardDataset``, which imports torch
        members = read_sample(data, table["key"][row].as_py(), place=place[0], base=place[1])
        orientation = table["orientation_1"][row].as_py() if self.turned else 1
        views = [upright(decode_npy(members[name]), orientation).astype(np.float64) / 65535 for name in IMAGES]
        valid = upright(decode_npy(members[VALID]), orientation) if self.masked else np.ones(views[0].shape[:2], dtype=bool)
        return views[0], views[1], valid


def _pairs(pictures: _Pictures, pairs: TransformPairs) -> Section:
    if not pictures.there:
        return Section("Pairs", [Text(["This dataset holds no pictures."])])
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(_PAIRS, len(pairs))).astype(int)).tolist()
    blocks: list[Block] = [
        Text(
            [
                "A chequered picture shows squares of both cameras in turn, the second brought to the first's colours by T: "
                "where the pair is aligned, lines run on from square to square. Black in a mask is not valid: saturated, seen "
                "by one camera alone, or of the chart. Pictures are raw colours, divided by the light, with the gamma of sRGB."
            ]
        )
    ]
    for row in chosen:
        one, two, valid = pictures.read(row)
        over = two @ np.linalg.inv(pairs.transform_1to2[row])
        light = pairs.gt_1[row]
        top = white_level(one / light)
        told = f"{pairs.name[row]}: both cameras in turn, in squares"
        blocks.append(Figure(png(_chequered(one, over) / light, top, _WIDE_PX), told, f"{told}."))
        thumbs = [
            Thumb(png(one / light, top), "first camera"),
            Thumb(png(two / pairs.gt_2[row], white_level(two / pairs.gt_2[row])), "second camera, its own colours"),
        ]
        if pictures.masked:
            thumbs.append(
                Thumb(png(np.repeat(valid[..., None], 3, axis=2).astype(float), 1.0), f"mask, {valid.mean():.0%} valid")
            )
        blocks.append(ImageGrid(str(pairs.name[row]), thumbs, side_px=_THUMB_PX))
    return Section("Pairs", blocks)


def _chequered(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Squares of both in turn, ``_SQUARES`` along the longer side."""
    side = max(1, -(-max(one.shape[:2]) // _SQUARES))
    rows, columns = np.arange(one.shape[0]) // side, np.arange(one.shape[1]) // side
    return np.where(((rows[:, None] + columns) % 2 == 0)[..., None], one, two)


# ----------------------------------------------------------------------------------------------------------- transforms


def _transforms(config: TwoCameraConfig, made: Mapping[str, Artifact], pairs: TransformPairs, index: DatasetIndex) -> Section:
    published = facts().sets["s20"] if not data_differs(config, made) else {}
    lines: list[Sequence[Value]] = []
    for name, told in (("", "image_error_deg"), ("chart_", "chart_error_deg")):
        for way in ("1to2", "2to1"):
            matrix = getattr(pairs, f"transform_{name}{way}")
            if np.isnan(matrix).any():
                continue
            one, two = (pairs.gt_1, pairs.gt_2) if way == "1to2" else (pairs.gt_2, pairs.gt_1)
            seen = np.einsum("ni,nij->nj", one, matrix)
            errors = angular_error_deg(seen / seen[:, 1:2], two / two[:, 1:2])
            what = f"{'chart' if name else 'picture'}, {way.replace('to', ' to ')}"
            beside = published.get(told) if way == "1to2" else None
            lines.append([what, float(errors.mean()), float(np.median(errors)), float(errors.max()), beside])
    caption = "Angle between the light in one camera, under T, and the light in the other, in degrees"
    blocks: list[Block] = [Table(["T of the", "mean", "median", "largest", "released T, mean"], lines, caption, decimals=2)]
    conditions = [index.table[f"condition_{number}"].drop_null().to_numpy() for number in (1, 2)]
    if all(len(values) for values in conditions):
        rows: list[Sequence[Value]] = [
            [f"camera {number}", *(float(np.quantile(values, at)) for at in (0.5, 0.9, 1.0))]
            for number, values in enumerate(conditions, 1)
        ]
        blocks.append(Table(["colours of", "median", "90 %", "largest"], rows, "Condition number of the colours", decimals=1))
    return Section("Transforms", blocks)


# -------------------------------------------------------------------------------------------------------------- results


def _paper_name(line: Line) -> str:
    """Row of the published tables that a method of ours stands beside."""
    if line.model == "network":
        return f"ours-{line.settings.get('estimator.parameters')}"
    return {"bright_dark_pca": "pca"}.get(line.method, line.method.replace("_", " "))


_LEARNED = ("chromagenic", "corrected_moments")
_ON_LEARNED = (
    "Corrected moments and the chromagenic lights are no statistics baselines, and no rows of the paper's tables: they are "
    "fitted to the training pictures and their lights, as the networks are, and see pictures where the networks see the nine "
    "numbers of T. The chromagenic lights can only name lights that training pictures have shown."
)
_UNFAIR = {
    "looks_at_test": "the checkpoint was selected on the test fold, as the released code does",
    "lights_of_test": "training rows are re-lit with the illuminants of test pairs, as in the released augmentation",
}


def _kind(line: Line) -> str:
    if line.model in ("network", "distilled"):
        return f"network on T, {shape_in(line.settings)}"
    if line.model == LINEAR:
        return "regression on T"
    if line.model in _LEARNED:
        return "learned from pictures"
    if ":" in line.model:
        return "of your own"
    origin = {entry.name: entry.origin for entry in ESTIMATORS.entries()}.get(line.model, "a package that is not installed")
    return "statistics of pictures" if origin == BUILT_IN else f"of {origin}"


def _warnings(line: Line) -> list[str]:
    return [told for flag, told in _UNFAIR.items() if line.settings[flag]]


def data_differs(config: TwoCameraConfig, made: Mapping[str, Artifact]) -> str:
    """Why published figures are of other data than this run's; "" where the run's record says that they are of the same."""
    if config.compare_with is None:
        return "the settings name no published set"
    known = facts().sets[config.compare_with].get("folded_sha256")
    if known is None:
        return "its transforms were not released, so this run's cannot be shown to be the same"
    found = made["folded"].digest if "folded" in made else ""
    return "" if found == known else "the lights, transforms or folds of this run are not those that were released"


def why_not_the_papers(config: TwoCameraConfig, line: Line) -> str:
    """Why a training is none of the paper's, by its record; "" where it is."""
    own, wanted = line.settings, {"direction": "1to2", "reilluminated": False}
    if changed := record_differences(own, wanted):
        return changed[0]
    if line.model == "network":
        if config.augmentation is None or config.augmentation.count != facts().targets:
            return f"no {facts().targets} re-illuminated pictures stand beside each"
        if "estimator.hidden" in own or "estimator.activation" in own:
            return f"a network of another shape, {shape_in(own)}"
        paper = {**settings("as_released"), "patience_epochs": own.get("estimator.hyper.patience_epochs")}
        return next(iter(record_differences(own, {f"estimator.hyper.{name}": value for name, value in paper.items()})), "")
    if line.model == "distilled" or ":" in line.model or _paper_name(line) not in facts().tables[config.compare_with or "s20"]:
        return "no method of the paper's table"
    return ""


def _results(config: TwoCameraConfig, run: ReportedRun, pictures: _Pictures, pairs: TransformPairs) -> list[Section]:
    skipped = [[name, why] for name, why in skipped_trainings(run.out).items()]
    left_out: list[Block] = (
        [Table(["method", "why"], skipped, "Skipped: they cannot be fitted to this data")] if skipped else []
    )
    if not run.lines:
        return [Section("Results", left_out)] if left_out else []
    found = sorted(run.lines, key=lambda line: np.nanmean(line.values(SHOWN[0])))
    blocks = [
        *_beside_the_paper(config, run, found),
        *left_out,
        *own_metrics(found),
        *cost_blocks(found),
        *settings_details(found),
    ]
    if {line.model for line in found} & set(_LEARNED):
        blocks.append(Text([_ON_LEARNED]))
    if warnings := sorted({told for line in found for told in _warnings(line)}):
        blocks.append(Text([f"Not comparable with the other lines: {told}." for told in warnings], tone="note"))
    tested = {(one["method"], canonical(one["settings"])): rows for one, rows in predictions(run.out) if rows.num_rows}
    errors = {line.label: _errors(estimates_of(tested[line.method, line.rows["settings"][0].as_py()])) for line in found}
    sections = [Section("Results", blocks), Section("Errors", [_distribution(dict(list(errors.items())[:CURVES]))])]
    if pictures.there:
        fair = next((line for line in found if not _warnings(line)), found[0])
        sections.append(_corrected(fair.label, fair.settings["direction"], errors[fair.label], pictures, pairs))
    return sections


def _beside_the_paper(config: TwoCameraConfig, run: ReportedRun, found: Sequence[Line]) -> list[Block]:
    """What was found; below it the published table, and ours beside it, where what is recorded of a training is the paper's."""
    columns: dict[str, Column[Line]] = {
        "comparable": lambda line: Cell("no", tone="bad") if _warnings(line) else "yes",
        "kind": _kind,
        **whole_columns(dict(zip(STATISTICS, SHOWN, strict=True))),
    }
    same = "lights, transforms, folds and settings of the paper"
    fair, verdict = comparable(found, data_differs(config, run.made), lambda line: why_not_the_papers(config, line), same)
    rows: list[PublishedRow] = []
    beside: list[Sequence[Value]] = []
    if config.compare_with is not None and fair:
        name, table = TABLE[config.compare_with], facts().tables[config.compare_with]
        ranked = sorted(table.items(), key=lambda item: item[1][0])
        rows = [PublishedRow(row, f"{name} of the paper", dict(zip(STATISTICS, each, strict=True))) for row, each in ranked]
        pairs = [(line.label, float(np.nanmean(line.values(SHOWN[0]))), table[_paper_name(line)][0]) for line in fair]
        beside = [[label, ours, paper, ours - paper] for label, ours, paper in pairs]
    caption = "This run: angular errors in degrees, means over folds, ± one standard deviation over seeds"
    columns_beside = ["method", "ours, mean", "paper, mean", "difference"]
    return [
        lines_table(found, columns, caption, times=1, decimals=2, published=rows),
        verdict,
        *([Table(columns_beside, beside, "Side by side", decimals=2)] if beside else []),
    ]


Errors = dict[str, tuple[float, np.ndarray]]


def _errors(found: Estimates) -> Errors:
    """Pair -> error in degrees and estimated light, of the average of the runs, or of the only run."""
    run = AVERAGE if AVERAGE in found.runs else next(iter(found.runs))
    parts = zip(found.names, found.errors[run], found.runs[run], strict=True)
    return {name: (float(error), light) for part in parts for name, error, light in zip(part[0], part[1], part[2], strict=True)}


def _distribution(errors: Mapping[str, Errors]) -> Figure:
    shares = np.arange(5, 100, 5)
    curves = {name: np.quantile([error for error, _ in mine.values()], shares / 100) for name, mine in errors.items()}
    return line_chart(
        [f"{share} %" for share in shares],
        curves,
        label_axis="share of pairs with a smaller error",
        value_axis="angular error, degrees",
        caption="Errors of every method by rank; of networks with several seeds, those of the averaged estimate.",
        every=2,
    )


def _corrected(method: str, direction: str, errors: Errors, pictures: _Pictures, pairs: TransformPairs) -> Section:
    ranked = sorted(errors, key=lambda key: errors[key][0])
    at = {key: row for row, key in enumerate(pairs.key.tolist())}
    first = direction == "1to2"
    blocks: list[Block] = [
        Text(
            [
                f"The same picture as the camera gave it, divided by the light that {method} estimates, and divided by the "
                "true light; of the pairs with the least, the median and the largest error."
            ]
        )
    ]
    for what, key in (("least", ranked[0]), ("median", ranked[len(ranked) // 2]), ("largest", ranked[-1])):
        row = at[key]
        picture = pictures.read(row)[0 if first else 1]
        truth = (pairs.gt_1 if first else pairs.gt_2)[row]
        error, estimate = errors[key]
        thumbs = [
            Thumb(png(shown, white_level(shown)), caption)
            for shown, caption in (
                (picture, "raw"),
                (picture / estimate, f"by the estimate, {error:.2f} degrees off"),
                (picture / (truth / truth[1]), "by the truth"),
            )
        ]
        blocks.append(ImageGrid(f"{pairs.name[row]}: {what} error", thumbs, side_px=_THUMB_PX))
    return Section("Corrected pictures", blocks)
