"""Results of classifiers trained on the starting release alone: KOWL's Table 3 and Figure 16."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..results import Line
from .blocks import Block, Details, Section, Text
from .figures import bar_chart
from .open_world import capital, stratum_figures
from .trainings import SPREAD, PublishedRow, lines_table, settings_details, whole_columns

SPLITS = {"train": "training", "validate": "validation", "test": "test"}
"""Splits of the starting release, and the headings of their columns."""

_ABOUT = (
    "Classifiers of the starting release only, with its own labels and all of its classes: the paper's Table 3 and Figure 16. "
    "Original: the stored outputs of the backbone's own classifier.",
)


def starting_sections(
    found: Sequence[Line], published: Sequence[PublishedRow] = (), notes: Sequence[Block] = ()
) -> list[Section]:
    """A table of MCC by split, and bars; empty without lines.

    Args:
        found: lines of trainings on the starting release.
        published: rows of the paper, shown below ours; their values by heading.
        notes: shown below the table.
    """
    if not found:
        return []
    columns = whole_columns({name: f"start.mcc@{split}" for split, name in SPLITS.items()})
    caption = f"MCC on the starting release, {SPREAD}"
    ours = lines_table(found, columns, caption, times=1, decimals=4, published=published)
    blocks: list[Block] = [Text(_ABOUT), ours, *notes]
    for split, name in SPLITS.items():
        there = {line.label: mean for line in found if (mean := _mean(line, split)) is not None}
        if there:
            values = [max(0.0, mean) for mean in there.values()]
            caption = f"MCC of each classifier, {name} samples of the starting release."
            chart = bar_chart(list(there), values, label_axis="classifier", value_axis="MCC", caption=caption)
            blocks.append(chart if split == "test" else Details(f"On {name} samples", [chart]))
    return [Section("The starting release only", [*blocks, *_by_transform(found), *settings_details(found)])]


def _by_transform(found: Sequence[Line]) -> list[Block]:
    """MCC and accuracy under each visual transform, a curve per classifier: Figure 13."""
    seen = {name for line in found for name in line.rows["stratum"].unique().to_pylist() if name}
    if not seen:
        return []
    places = ["", *sorted(seen)]
    labels = ["none", *(place.partition("=")[2] for place in places[1:])]
    blocks: list[Block] = []
    for split, name in SPLITS.items():
        figures: list[Block] = []
        for metric, said in (("start.mcc", "MCC"), ("start.top1_accuracy", "top-1 accuracy")):
            curves = {line.label: [_mean(line, split, metric, place) for place in places] for line in found}
            known = {label: curve for label, curve in curves.items() if any(value is not None for value in curve[1:])}
            caption = f"{capital(said)} by visual transform, {name} samples of the starting release."
            figures += stratum_figures(labels, known, axis="visual transform", said=said, caption=caption)
        blocks += figures if split == "test" else [Details(f"On {name} samples", figures)] if figures else []
    return blocks


def _mean(line: Line, split: str, metric: str = "start.mcc", stratum: str = "") -> float | None:
    values = line.values(metric, split=split, stratum=stratum)
    return None if np.isnan(values).all() else float(np.nanmean(values))
