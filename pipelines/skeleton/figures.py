"""Sections of the skeleton report on what was trained: orders, the default order, architectures, grids."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...datasets.skeleton.facts import Published
from ...eval.metrics.order_sensitivity import mean_and_deviation
from ...eval.report.blocks import Block, Cell, Fold, Section, Table, Text, Value
from ...eval.report.figures import common_scale, heat_map, line_chart
from ...eval.report.order_sensitivity import accuracy_forgetting_chart
from ...eval.results import Line
from .config import SkeletonConfig
from .results import (
    NONE,
    By,
    Figure,
    OrderDifference,
    Series,
    best_of_grid,
    default_matrices,
    figure,
    last,
    of_experiment,
    over_orders,
    published,
    repeats_of,
    series,
    tasks_of,
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


def order_section(config: SkeletonConfig, found: Sequence[Line], names: Sequence[str], unlike: str) -> Section | None:
    """Accuracy against forgetting over task and class orders, and the differences over orders beside Table 2.

    Args:
        config: settings of the run.
        found: what was trained.
        names: of the classes.
        unlike: why the data are not the paper's; "" where they are.
    """
    blocks: list[Block] = []
    for experiment, title in {"task_order": "task orders", "class_order": "class orders"}.items():
        mine = of_experiment(found, experiment)
        if mine:
            blocks += _orders(mine, title)
    if not blocks:
        return None
    differences: list[Block] = []
    for by in ("task", "class"):
        differences += _differences(config, found, by, names, fair=not unlike)
    if unlike and config.evaluation.paper is not None:
        differences.append(Text([f"Table 2 of the paper is not shown because the data differ: {unlike}."], tone="note"))
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
    blocks.append(_measure_table(mine, f"Means over {title}; ± one standard deviation over repeats"))
    return blocks


def _points(one: Line) -> tuple[list[float], list[float]]:
    """AA and AF of each order, means over its repeats."""
    found: list[list[float]] = []
    for metric in ("aa", "af_from_best"):
        by_order: dict[int, list[float]] = {}
        rows = last(one, metric)
        for order, value in zip(rows["order"].to_pylist(), rows["value"].to_pylist(), strict=True):
            by_order.setdefault(order, []).append(value)
        found.append([float(np.mean(by_order[order])) for order in sorted(by_order)])
    return found[0], found[1]


def _measure_table(mine: Sequence[Line], caption: str) -> Table:
    rows = [[one.label, repeats_of(one), *(_cell(figure(one, name)) for name in _MEASURES)] for one in mine]
    return Table(["method", "repeats", *_MEASURES.values()], rows, f"{caption}; percent", decimals=1)


def _cell(figure: Figure) -> Cell:
    mean, deviation = figure
    return Cell(100 * mean, note="" if math.isnan(deviation) else f"± {100 * deviation:.1f}")


def _differences(config: SkeletonConfig, found: Sequence[Line], by: By, names: Sequence[str], *, fair: bool) -> list[Block]:
    told = over_orders(found, by)
    if not told:
        return []
    ours = {one.label: difference for one, difference in told}
    paper = {one.label: published(config, one, by) if fair else None for one, _ in told}
    rows = [[label, one.orders, _cell(one.aopd), _cell(one.mopd), *_paper(paper[label])] for label, one in ours.items()]
    columns = ["method", "orders", "AOPD", "MOPD", "AOPD, Table 2", "MOPD, Table 2"]
    every = {"task": "tasks", "class": "classes"}[by]
    caption = f"Highest minus lowest final accuracy of a {by} over the orders, in percent: mean and maximum over all {every}"
    whole = next(iter(ours.values())).names
    labels = [" + ".join(names[int(each)] if names else each for each in group.split("+")) for group in whole]
    blocks: list[Block] = [Table(columns, rows, caption, decimals=1)]
    if any(paper.values()) and {one.orders for one in ours.values()} != {_ORDERS[by]}:
        note = f"Table 2 is over {_ORDERS[by]} orders. The fewer the orders, the smaller the differences over them."
        blocks.append(Text([note], tone="note"))
    heat = heat_map(
        [[one.opd[at][0] for one in ours.values()] for at in range(len(labels))],
        labels,
        list(ours),
        row_axis=by,
        column_axis="method",
        what="differences over orders",
        caption=f"OPD by {by} in percent, mean over repeats.",
    )
    blocks.append(heat if by == "task" else Fold("OPD by class", [heat]))
    blocks.append(Fold(f"OPD by {by}, with deviations", [_opd_table(ours, labels, by)]))
    return blocks


def _paper(theirs: Published | None) -> list[Value]:
    if theirs is None:
        return [None, None]
    return [
        Cell(theirs.aopd_percent, note=f"± {theirs.aopd_std_percent:.2f}"),
        Cell(theirs.mopd_percent, note=f"± {theirs.mopd_std_percent:.2f}" if theirs.mopd_std_percent else ""),
    ]


def _opd_table(ours: dict[str, OrderDifference], labels: Sequence[str], by: By) -> Table:
    rows = [[label, *(_cell(one.opd[at]) for one in ours.values())] for at, label in enumerate(labels)]
    return Table([by, *ours], rows, "Percent", decimals=1)


def default_section(found: Sequence[Line]) -> Section | None:
    """Accuracy matrices of the default order; of the task orders' first where the default was not trained by itself."""
    mine = of_experiment(found, "default") or of_experiment(found, "task_order")
    matrices = [default_matrices(one) for one in mine]
    pairs = [(one, found_of) for one, found_of in zip(mine, matrices, strict=True) if len(found_of)]
    means = [mean_and_deviation(found_of)[0] for _, found_of in pairs]
    scale = common_scale(means) if means else None
    blocks: list[Block] = []
    for (one, found_of), mean in zip(pairs, means, strict=True):
        numbers = [str(at + 1) for at in range(len(mean))]
        heat = heat_map(
            mean,
            numbers,
            numbers,
            row_axis="trained up to task",
            column_axis="tested on task",
            scale=scale,
            caption=f"{one.label}: accuracy in percent, {_repeats(len(found_of))}; the frame marks the task learned last.",
        )
        blocks.append(Fold(one.label, [heat], opened=one is mine[0]))
    if not blocks:
        return None
    if of_experiment(found, "default"):
        blocks.insert(0, _measure_table(mine, "The default order; ± one standard deviation over repeats"))
    return Section("The default order, task by task", blocks)


def _repeats(count: int) -> str:
    return "one repeat" if count == 1 else f"mean of {count} repeats"


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
    return Section("Architecture sensitivity", [*blocks, Fold("The numbers", [table])])


def _curves(
    mine: Sequence[Series],
    shapes: Sequence[tuple[int, int]],
    places: Sequence[int],
    measure: str,
    what: str,
    axis: str,
    fixed: str,
) -> list[Block]:
    told: dict[str, list[Figure]] = {}
    for one in mine:
        at = {(line.settings["model.width"], line.settings["model.depth"]): figure(line, measure) for line in one.lines}
        told[one.label] = [at.get(shape, NONE) for shape in shapes]
    told = {label: values for label, values in told.items() if not all(math.isnan(mean) for mean, _ in values)}
    if not told or not places:
        return []
    return [
        line_chart(
            [str(place) for place in places],
            {m: [mean for mean, _ in values] for m, values in told.items()},
            label_axis=f"{what} of the graph layers ({fixed})",
            value_axis=axis,
            spread={m: np.nan_to_num([deviation for _, deviation in values]) for m, values in told.items()},
            caption=f"{axis} by {what}; band: one standard deviation over repeats.",
        )
    ]


def grid_section(found: Sequence[Line]) -> Section | None:
    """What each setting of the grids gives on the default order, and which validation chooses."""
    mine = of_experiment(found, "grid")
    if not mine:
        return None
    best = best_of_grid(found)
    rows: list[Sequence[Value]] = []
    for one in mine:
        chosen = Cell("chosen", tone="good") if best[one.method] is one else ""
        rows.append([one.label, *(_cell(figure(one, *each)) for each in (("aa", "val"), ("aa",), ("af_from_best",))), chosen])
    columns = ["method", "AA, validation", "AA", "AF (best - now)", ""]
    told = "The setting with the highest AA on the sequences that validate is chosen, the first of equals."
    return Section("Grids", [Text([told]), Table(columns, rows, "Default order, percent", decimals=1)])
