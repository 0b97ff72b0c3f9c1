"""Robustness of predictors to visual transforms, which change a video but not its activity (KOWL, section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from ..protocols.open_world.measures import TEST_SET
from .blocks import Block, CellValue, Details, Figure, Section, Table, Text
from .open_world import MEASURES, by_stratum, capital, measured_rows, split_said, stratum_figures

_ABOUT = (
    "The whole set under each visual transform, evaluated separately from the stream with the predictors as they were after "
    "each increment; they were never trained on it. Transform none: the same samples untransformed. The ranges of the "
    "transforms are ours; the paper's are unpublished.",
)


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
        scores, said = mine.filter(pl.col("measure") == measure), MEASURES[measure]
        curves = {
            _name((name, amount), when): by_stratum(
                scores.filter(pl.col("predictor") == name, pl.col("feedback") == amount), places
            )
            for name, amount in runs
        }
        caption = f"{capital(said)} by visual transform, {split_said(split)}, {when}."
        found += stratum_figures(places, curves, axis="visual transform", said=said, caption=caption)
    return found


def _name(run: tuple[str, float], when: str) -> str:
    return run[0] if when.startswith("increment 0") else f"{run[0]}, feedback {run[1]:g}"


def _table(start: pl.DataFrame, sums: pl.DataFrame) -> Table:
    rows: list[Sequence[CellValue]] = []
    for when, frame, task in (("increment 0, after", start, "none"), ("later", sums, "classification")):
        mine = frame.filter(pl.col("task") == task, pl.col("measure").is_in(["top1_accuracy", "mcc", "nmi_arithmetic"]))
        key = ["predictor", "feedback", "stratum", "split", "phase", "n"]
        wide = measured_rows(mine, key, ("mcc", "top1_accuracy", "nmi_arithmetic"))
        for name, amount, place, split, phase, n, *values in sorted(
            wide, key=lambda row: (row[0], -row[1], row[3], *_order(row[2]), row[4] == "post")
        ):
            text = when if when != "later" else f"later, {'before' if phase == 'pre' else 'after'}"
            rows.append([name, f"{amount:g}", split, text, place, n, *values])
    columns = ["predictor", "feedback", "split", "increments", "transform", "samples", "MCC", "top-1", "NMI"]
    return Table(columns, rows, "Every sample under every transform; later increments: sums, classification task")
