"""Sections of the skeleton report on what was trained: orders, the default order, architectures, grids."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ...eval.metrics.order_sensitivity import mean_and_deviation
from ...eval.report.blocks import Block, Cell, Details, Section, Table, Text
from ...eval.report.figures import heat_map, line_chart
from ...eval.report.order_sensitivity import accuracy_forgetting_chart
from ...eval.report.trained import (
    Column,
    comparable,
    lines_table,
    position_matrices,
    settings_details,
    spread_cell,
    switch,
)
from ...eval.results import Line
from .config import SkeletonConfig
from .results import (
    By,
    Series,
    best_of_grid,
    by_repeat,
    default_matrices,
    last,
    of_experiment,
    over_orders,
    published,
    repeats_of,
    series,
    tasks_of,
    why_not_the_papers,
)

_MOST_IN_A_CHART = 8

_MEASURES = {
    "aa": "AA",
    "af_from_best": "AF (best - now)",
    "af_final_minus_diagonal": "now - just after",
}
_DEFINED = (
    "AA: mean accuracy over all tasks at the end, a task's accuracy being the mean of its classes'. AF: mean over old tasks of "
    "the best accuracy before the last task minus that at the end; higher is worse. The third column is what CGLB's code "
    "prints: accuracy at the end minus that just after the task, of the opposite sign."
)


_ORDERS: dict[By, int] = {"task": 120, "class": 220}
"""Orders behind Table 2: all of five tasks; these and 100 of the classes."""


def order_section(config: SkeletonConfig, found: Sequence[Line], names: Sequence[str], data: str) -> Section | None:
    """Accuracy against forgetting over task and class orders, and the differences over orders beside Table 2.

    Args:
        config: settings of the run.
        found: what was trained.
        names: of the classes.
        data: why the data are not the paper's; "" where they are.
    """
    blocks: list[Block] = []
    for experiment, title in {"task_order": "task orders", "class_order": "class orders"}.items():
        if mine := of_experiment(found, experiment):
            blocks += _orders(mine, title)
    if not blocks:
        return None
    differences = [block for by in _ORDERS for block in _differences(config, found, by, names, data)]
    return Section("Order sensitivity", [Text([_DEFINED]), *blocks, *differences])


def _orders(mine: Sequence[Line], title: str) -> list[Block]:
    tasks = len(tasks_of(mine[0])) or int(last(mine[0], "aa")["position"][0].as_py())
    blocks: list[Block] = []
    if tasks > 1:
        repeats = sorted({repeats_of(one) for one in mine})
        told = (
            "one repeat"
            if repeats == [1]
            else f"means over {' to '.join(map(str, dict.fromkeys((repeats[0], repeats[-1]))))} repeats"
        )
        caption = f"AA and AF of each of the {title}, {told}. No learner can be in the shaded area."
        for at in range(0, len(mine), _MOST_IN_A_CHART):
            points = {one.label: _points(one) for one in mine[at : at + _MOST_IN_A_CHART]}
            blocks.append(accuracy_forgetting_chart(points, tasks=tasks, caption=caption))
    blocks += [_measure_table(mine, f"Means over {title}; ± one standard deviation over repeats"), *settings_details(mine)]
    return blocks


def _points(one: Line) -> tuple[list[float], list[float]]:
    """AA and AF of each order, means over its repeats."""
    found: list[list[float]] = []
    for metric in ("aa", "af_from_best"):
        means = last(one, metric).group_by("order").aggregate([("value", "mean")]).sort_by("order")
        found.append(means["value_mean"].to_pylist())
    return found[0], found[1]


def _measure_table(mine: Sequence[Line], caption: str) -> Table:
    columns: dict[str, Column[Line]] = {"repeats": repeats_of}
    columns |= {heading: functools.partial(by_repeat, metric=metric) for metric, heading in _MEASURES.items()}
    return lines_table(mine, columns, f"{caption}; percent")


def _differences(config: SkeletonConfig, found: Sequence[Line], by: By, names: Sequence[str], data: str) -> list[Block]:
    told = over_orders(found, by)
    if not told:
        return []
    over = {one.label: difference for one, difference in told}
    mine = [one for one, _ in told]
    fair, verdict = comparable(
        mine, data, lambda one: why_not_the_papers(config, one, by), "sequences, split, network and settings of Table 2"
    )
    columns: dict[str, Column[Series]] = {
        "orders": lambda one: over[one.label].orders,
        "AOPD": lambda one: over[one.label].difference.aopd,
        "MOPD": lambda one: over[one.label].difference.mopd,
    }
    every = {"task": "tasks", "class": "classes"}[by]
    caption = f"Highest minus lowest final accuracy of a {by} over the orders, in percent: mean and maximum over all {every}"
    blocks: list[Block] = [lines_table(mine, columns, caption, published=published(config, fair, by)), verdict]
    if any(over[one.label].orders != _ORDERS[by] for one in fair):
        note = f"Table 2 is over {_ORDERS[by]} orders. The fewer the orders, the smaller the differences over them."
        blocks.append(Text([note], tone="note"))
    whole = next(iter(over.values())).names
    labels = [" + ".join(names[int(each)] if names else each for each in group.split("+")) for group in whole]
    opd = {label: each.difference.opd for label, each in over.items()}
    heat = heat_map(
        np.array([values.mean(0) for values in opd.values()]).T,
        labels,
        list(opd),
        row_axis=by,
        column_axis="method",
        what="differences over orders",
        caption=f"OPD by {by} in percent, mean over repeats.",
    )
    blocks.append(heat if by == "task" else Details("OPD by class", [heat]))
    rows = [[label, *(spread_cell(values[:, at]) for values in opd.values())] for at, label in enumerate(labels)]
    blocks.append(Details(f"OPD by {by}, with deviations", [Table([by, *opd], rows, "Percent", decimals=1)]))
    return blocks


def default_section(found: Sequence[Line]) -> Section | None:
    """Accuracy matrices of the default order; of the task orders' first where the default was not trained by itself."""
    mine = of_experiment(found, "default") or of_experiment(found, "task_order")
    matrices = {one.label: default_matrices(one) for one in mine}
    numbered = {
        label: (label, [str(at + 1) for at in range(values.shape[1])], values)
        for label, values in matrices.items()
        if len(values)
    }
    figures = position_matrices(numbered, of="task")
    if not figures:
        return None
    blocks: list[Block] = [*settings_details(mine)]
    if of_experiment(found, "default"):
        blocks.insert(0, _measure_table(mine, "The default order; ± one standard deviation over repeats"))
    blocks += switch("method", figures)
    return Section("The default order, task by task", blocks)


def architecture_section(config: SkeletonConfig, found: Sequence[Line]) -> Section | None:
    """AA and AF by width and by depth."""
    mine = of_experiment(found, "architecture")
    if not mine:
        return None
    net, swept = config.evaluation.network, config.evaluation.architectures
    told = series(mine, lambda name: name in ("model.width", "model.depth"))
    blocks: list[Block] = []
    for what, places, fixed in (
        ("width", swept.widths, f"depth {net.depth}"),
        ("depth", swept.depths, f"width {net.width}"),
    ):
        shapes = [(place, net.depth) if what == "width" else (net.width, place) for place in places]
        for measure, axis in (("aa", "average accuracy, AA"), ("af_from_best", "average forgetting, AF")):
            blocks += _curves(told, shapes, places, measure, what, axis, fixed)
    table = _measure_table(mine, "Default order; ± one standard deviation over repeats")
    return Section("Architecture sensitivity", [*blocks, Details("The numbers", [table]), *settings_details(mine)])


def _curves(
    mine: Sequence[Series],
    shapes: Sequence[tuple[int, int]],
    places: Sequence[int],
    measure: str,
    what: str,
    axis: str,
    fixed: str,
) -> list[Block]:
    means: dict[str, list[float]] = {}
    spread: dict[str, list[float]] = {}
    for one in mine:
        at = {(line.settings["model.width"], line.settings["model.depth"]): by_repeat(line, measure) for line in one.lines}
        pairs = [mean_and_deviation(at[shape]) if shape in at else (math.nan, math.nan) for shape in shapes]
        if not all(math.isnan(mean) for mean, _ in pairs):
            means[one.label] = [float(mean) for mean, _ in pairs]
            spread[one.label] = np.nan_to_num([float(deviation) for _, deviation in pairs]).tolist()
    if not means or not places:
        return []
    return [
        line_chart(
            [str(place) for place in places],
            means,
            label_axis=f"{what} of the graph layers ({fixed})",
            value_axis=axis,
            spread=spread,
            caption=f"{axis} by {what}; band: one standard deviation over repeats.",
        )
    ]


def grid_section(found: Sequence[Line]) -> Section | None:
    """What each setting of the grids gives on the default order, and which validation chooses."""
    mine = of_experiment(found, "grid")
    if not mine:
        return None
    best = best_of_grid(found)
    columns: dict[str, Column[Line]] = {
        "AA, validation": lambda one: by_repeat(one, "aa", "val"),
        "AA": lambda one: by_repeat(one, "aa"),
        "AF (best - now)": lambda one: by_repeat(one, "af_from_best"),
        "": lambda one: Cell("chosen", tone="good") if best[one.method] is one else "",
    }
    told = "The setting with the highest AA on the sequences that validate is chosen, the first of equals."
    return Section("Grids", [Text([told]), lines_table(mine, columns, "Default order, percent"), *settings_details(mine)])
