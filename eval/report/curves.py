"""Curves and matrices over positions, for any trainings, from the table of results alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..results import Line
from .blocks import Block, Heat
from .trainings import method_curves, percent_heats, position_curves

_MOST_TESTED = 60
"""Most test sets for which a matrix is drawn."""


def curve_blocks(lines: Sequence[Line], shown: Mapping[str, str] = MappingProxyType({})) -> list[Block]:
    """A figure for each metric that was measured after each position on everything together, or on that position's test set;
    and, where several sets were tested separately, matrices with one colour scale.

    Args:
        lines: lines of one protocol.
        shown: heading -> metric, see ``metric_blocks``. If given, a metric that whole trainings have as well is left out unless
            it is among these.
    """
    whole = {name for line in lines for name in line.rows.filter(pc.is_null(line.rows["position"]))["metric"].to_pylist()}
    headings = {metric: heading for heading, metric in shown.items()}
    hidden = whole.difference({metric.partition("@")[0] for metric in headings} or whole)
    blocks: list[Block] = []
    for metric, split in _measured(lines):
        if metric in hidden:
            continue
        of_split = headings.get(f"{metric}@{split}")
        heading = of_split or headings.get(metric, metric)
        what = f"{heading}, {split}" if split and not of_split else heading
        tested = {line.label: _unique(line, metric, split, "tested") for line in lines}
        together = [line for line in lines if "" in tested[line.label]]

        def places(line: Line, metric: str = metric, split: str = split) -> list[str]:
            return [str(each) for each in _unique(line, metric, split, "position")]

        if together:
            caption = f"{what} after each position"
            blocks += position_curves(
                together, metric, places, value_axis=heading, caption=caption, split=lambda line, split=split: split
            )
        wide = [line for line in lines if 1 < len({*tested[line.label]} - {""}) <= _MOST_TESTED]
        heats: list[Heat] = []
        square: dict[tuple[str, ...], dict[str, NDArray[np.float64]]] = {}
        for line in wide:
            names, rows = [name for name in tested[line.label] if name], places(line)
            runs = line.matrix(metric, names, split=split)
            if not np.isnan(mean := runs.mean(0)).all():
                heats.append(Heat(line.label, rows, names, mean.tolist()))
                if rows == names:
                    square.setdefault(tuple(names), {})[line.label] = runs
        for names, runs in square.items():
            blocks += method_curves(runs, names, of="position")
        if heats:
            blocks.append(percent_heats(heats, "number learned so far", "tested on", unit=f"{what} in percent"))
    return blocks


def _measured(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Metrics and splits with values at positions, all of them in [0, 1]."""
    found: dict[tuple[str, str], None] = {}
    for line in lines:
        rows = line.rows.filter(pc.and_(pc.is_valid(line.rows["position"]), pc.equal(line.rows["stratum"], "")))
        ends = rows.group_by(["metric", "split"]).aggregate([("value", "min"), ("value", "max")]).to_pylist()
        for each in ends:
            if each["value_min"] is not None and each["value_min"] >= 0 and each["value_max"] <= 1:
                found[each["metric"], each["split"]] = None
    return [*found]


def _unique(line: Line, metric: str, split: str, column: str) -> list[Any]:
    """Distinct values of a column at positions: sorted for ``position``, otherwise in order of first occurrence."""
    rows = line.select(metric, split=split)
    found = pc.unique(rows.filter(pc.is_valid(rows["position"]))[column]).to_pylist()
    return sorted(found) if column == "position" else found
