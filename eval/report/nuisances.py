"""Robustness of predictors to visual transforms, which change a video but not its activity (KOWL, section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ..protocols.open_world.measures import TEST_SET
from .blocks import Block, CellValue, Details, Figure, Section, Table, Text
from .figures import line_chart
from .open_world import MEASURES, split_said

_ABOUT = (
    "The whole set under each visual transform, evaluated separately from the stream with the predictors as they were after "
    "each increment; they were never trained on it. Transform none: the same samples untransformed. The ranges of the "
    "transforms are ours; the paper's are unpublished.",
)
_CURVES = 8


def nuisance_sections(tidy: pa.Table) -> list[Section]:
    """The paper's Figure 13, for increment 0 and for all others, and the numbers. Empty if no transform was evaluated.

    Args:
        tidy: rows of ``open_world.measures.tidy`` whose stratification is ``nuisance``.
    """
    frame = pl.DataFrame(pl.from_arrow(tidy))
    if not frame.height:
        return []
    start = frame.filter(~pl.col("cumulative"), pl.col("increment") == 0, pl.col("phase") == "post")
    sums = frame.filter("cumulative", ~pl.col("from_start"), pl.col("increment") == pl.col("increment").max())
    blocks: list[Block] = [Text(_ABOUT)]
    for split, opened in ((TEST_SET, True), ("train", False)):
        figures = [
            *_figures(start, split, "none", "increment 0, after it was learned"),
            *_figures(sums.filter(pl.col("phase") == "pre"), split, "classification", "later increments, before feedback"),
            *_figures(sums.filter(pl.col("phase") == "post"), split, "classification", "later increments, after feedback"),
        ]
        blocks += figures if opened else [Details("Training samples", figures)] if figures else []
    return [Section("Robustness to nuisances", [*blocks, Details("Numbers", [_table(start, sums)])])]


def _order(name: str) -> tuple[bool, str]:
    return name != "none", name


def _figures(frame: pl.DataFrame, split: str, task: str, when: str) -> list[Figure]:
    """Accuracy and MCC by transform, a curve per predictor and amount of feedback."""
    mine = frame.filter(pl.col("split") == split, pl.col("task") == task)
    places = sorted(mine["stratum"].unique().to_list(), key=_order)
    runs = mine.select("predictor", "feedback").unique().sort("predictor", "feedback", descending=[False, True]).rows()
    if when.startswith("increment 0"):  # where the amount of feedback makes no difference
        runs = [run for n, run in enumerate(runs) if run[0] not in [other[0] for other in runs[:n]]]
    found: list[Figure] = []
    for measure in ("top1_accuracy", "mcc"):
        for at in range(0, len(runs), _CURVES):
            curves = {
                _name(run, when): _values(mine.filter(pl.col("measure") == measure), run, places)
                for run in runs[at : at + _CURVES]
            }
            curves = {name: curve for name, curve in curves.items() if not np.isnan(curve).all()}
            if not curves:
                continue
            caption = f"{MEASURES[measure].capitalize()} by visual transform, {split_said(split)}, {when}."
            low = min(float(np.nanmin(curve)) for curve in curves.values())
            limits, said = (min(-0.03, low - 0.03), 1.03), MEASURES[measure]
            found.append(
                line_chart(places, curves, label_axis="visual transform", value_axis=said, caption=caption, limits=limits)
            )
    return found


def _name(run: tuple[str, float], when: str) -> str:
    return run[0] if when.startswith("increment 0") else f"{run[0]}, feedback {run[1]:g}"


def _values(frame: pl.DataFrame, run: tuple[str, float], places: Sequence[str]) -> np.ndarray:
    mine = frame.filter(pl.col("predictor") == run[0], pl.col("feedback") == run[1])
    found = dict(mine.select("stratum", "value").rows())
    return np.array([np.nan if found.get(place) is None else found[place] for place in places])


def _table(start: pl.DataFrame, sums: pl.DataFrame) -> Table:
    rows: list[Sequence[CellValue]] = []
    for when, frame, task in (("increment 0, after", start, "none"), ("later", sums, "classification")):
        mine = frame.filter(pl.col("task") == task, pl.col("measure").is_in(["top1_accuracy", "mcc", "nmi_arithmetic"]))
        key = ["predictor", "feedback", "stratum", "split", "phase", "n"]
        wide = mine.pivot("measure", index=key, values="value", aggregate_function="mean")
        for row in sorted(
            wide.to_dicts(), key=lambda row: (row["predictor"], -row["feedback"], row["split"], *_order(row["stratum"]))
        ):
            text = when if when != "later" else f"later, {'before' if row['phase'] == 'pre' else 'after'}"
            values = [row.get(name) for name in ("mcc", "top1_accuracy", "nmi_arithmetic")]
            rows.append([row["predictor"], f"{row['feedback']:g}", row["split"], text, row["stratum"], row["n"], *values])
    columns = ["predictor", "feedback", "split", "increments", "transform", "samples", "MCC", "top-1", "NMI"]
    return Table(columns, rows, "Every sample under every transform; later increments: sums, classification task")
