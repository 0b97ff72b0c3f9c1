"""Sections of the skeleton report on what was trained: orders, the default order, architectures, grids."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...datasets.skeleton.published import Published
from ...eval.metrics.order_sensitivity import mean_and_deviation
from ...eval.report.blocks import Block, Cell, Fold, Section, Table, Text, Value
from ...eval.report.figures import common_scale, heat_map, line_chart
from ...eval.report.order_sensitivity import accuracy_forgetting_chart
from .config import SkeletonConfig
from .evaluation import Experiment
from .results import By, Difference, Figure, Trained, best_of_grid, difference, of_experiment, published

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


def order_section(config: SkeletonConfig, found: Sequence[Trained], names: Sequence[str]) -> Section | None:
    """Accuracy against forgetting over task and class orders, and the differences over orders beside Table 2."""
    blocks: list[Block] = []
    titles: dict[Experiment, str] = {"task_order": "task orders", "class_order": "class orders"}
    for experiment, title in titles.items():
        mine = of_experiment(found, experiment)
        if mine:
            blocks += _orders(mine, title)
    if not blocks:
        return None
    differences: list[Block] = []
    for by in ("task", "class"):
        differences += _differences(config, found, by, names)
    return Section("Order sensitivity", [Text([_DEFINED]), *blocks, *differences])


def _orders(mine: Sequence[Trained], title: str) -> list[Block]:
    tasks = len(mine[0].streams[0].tasks)
    blocks: list[Block] = []
    if tasks > 1:
        points = {one.name: _points(one) for one in mine}
        repeats = sorted({one.repeats for one in mine})
        told = (
            "one repeat"
            if repeats == [1]
            else f"means over {' to '.join(map(str, dict.fromkeys((repeats[0], repeats[-1]))))} repeats"
        )
        caption = f"AA and AF of each of the {title}, {told}. No learner can be in the shaded area."
        blocks.append(accuracy_forgetting_chart(points, tasks=tasks, caption=caption))
    blocks.append(_measure_table(mine, f"Means over {title}; ± one standard deviation over repeats"))
    return blocks


def _points(one: Trained) -> tuple[list[float], list[float]]:
    """AA and AF of each order, means over its repeats."""
    by_order: dict[int, list[tuple[float, float]]] = {}
    for stream in one.streams:
        told = stream.measures()
        by_order.setdefault(stream.order_index, []).append((told["aa"], told["af_from_best"]))
    means = [np.mean(values, axis=0) for values in by_order.values()]
    return [float(mean[0]) for mean in means], [float(mean[1]) for mean in means]


def _measure_table(mine: Sequence[Trained], caption: str) -> Table:
    rows = [[one.name, one.repeats, *(_cell(one.mean(name)) for name in _MEASURES)] for one in mine]
    return Table(["method", "repeats", *_MEASURES.values()], rows, f"{caption}; percent", decimals=1)


def _cell(figure: Figure) -> Cell:
    mean, deviation = figure
    return Cell(100 * mean, note="" if math.isnan(deviation) else f"± {100 * deviation:.1f}")


def _differences(config: SkeletonConfig, found: Sequence[Trained], by: By, names: Sequence[str]) -> list[Block]:
    ours = {m: one for m in dict.fromkeys(one.method for one in found) if (one := difference(found, m, by)) is not None}
    if not ours:
        return []
    paper = published(config, by)
    rows: list[Sequence[Value]] = []
    for method, one in ours.items():
        rows.append([method, one.orders, _cell(one.aopd), _cell(one.mopd), *_paper(paper.get(method))])
    columns = ["method", "orders", "AOPD", "MOPD", "AOPD, Table 2", "MOPD, Table 2"]
    every = {"task": "tasks", "class": "classes"}[by]
    caption = f"Highest minus lowest final accuracy of a {by} over the orders, in percent: mean and maximum over all {every}"
    whole = next(iter(ours.values())).names
    labels = [" + ".join(names[each] if names else str(each) for each in group) for group in whole]
    blocks: list[Block] = [Table(columns, rows, caption, decimals=1)]
    if paper and {one.orders for one in ours.values()} != {_ORDERS[by]}:
        told = f"Table 2 is over {_ORDERS[by]} orders. The fewer the orders, the smaller the differences over them."
        blocks.append(Text([told], tone="note"))
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


def _opd_table(ours: dict[str, Difference], labels: Sequence[str], by: By) -> Table:
    rows = [[label, *(_cell(one.opd[at]) for one in ours.values())] for at, label in enumerate(labels)]
    return Table([by, *ours], rows, "Percent", decimals=1)


def default_section(found: Sequence[Trained]) -> Section | None:
    """Accuracy matrices of the default order; of the task orders' first where the default was not trained by itself."""
    mine = of_experiment(found, "default") or of_experiment(found, "task_order")
    blocks: list[Block] = []
    found_of = [[stream.matrix for stream in one.streams if stream.order_index == 0] for one in mine]
    means = [mean_and_deviation(matrices)[0] for matrices in found_of]
    scale = common_scale(means) if means else None
    for one, matrices, mean in zip(mine, found_of, means, strict=True):
        numbers = [str(at + 1) for at in range(len(mean))]
        heat = heat_map(
            mean,
            numbers,
            numbers,
            row_axis="trained up to task",
            column_axis="tested on task",
            scale=scale,
            caption=f"{one.method}: accuracy in percent, {_repeats(len(matrices))}; the frame marks the task learned last.",
        )
        blocks.append(Fold(one.method, [heat], opened=one is mine[0]))
    if not blocks:
        return None
    if of_experiment(found, "default"):
        blocks.insert(0, _measure_table(mine, "The default order; ± one standard deviation over repeats"))
    return Section("The default order, task by task", blocks)


def _repeats(count: int) -> str:
    return "one repeat" if count == 1 else f"mean of {count} repeats"


def architecture_section(config: SkeletonConfig, found: Sequence[Trained]) -> Section | None:
    """AA and AF by width and by depth."""
    mine = of_experiment(found, "architecture")
    if not mine:
        return None
    net, swept = config.evaluation.network, config.evaluation.architectures
    blocks: list[Block] = []
    for what, places, fixed in (
        ("width", swept.widths, f"depth {net.depth}"),
        ("depth", swept.depths, f"width {net.width}"),
    ):
        shapes = [(place, net.depth) if what == "width" else (net.width, place) for place in places]
        for measure, axis in (("aa", "average accuracy, AA"), ("af_from_best", "average forgetting, AF")):
            blocks += _curves(mine, shapes, places, measure, what, axis, fixed)
    table = _measure_table(mine, "Default order; ± one standard deviation over repeats")
    return Section("Architecture sensitivity", [*blocks, Fold("The numbers", [table])])


def _curves(
    mine: Sequence[Trained],
    shapes: Sequence[tuple[int, int]],
    places: Sequence[int],
    measure: str,
    what: str,
    axis: str,
    fixed: str,
) -> list[Block]:
    at = {(one.method, (one.streams[0].width, one.streams[0].depth)): one.mean(measure) for one in mine}
    methods = list(dict.fromkeys(one.method for one in mine))
    told = {m: [at.get((m, shape), (math.nan, math.nan)) for shape in shapes] for m in methods}
    told = {m: values for m, values in told.items() if not all(math.isnan(mean) for mean, _ in values)}
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


def grid_section(config: SkeletonConfig, found: Sequence[Trained]) -> Section | None:
    """What each setting of the grids gives on the default order, and which validation chooses."""
    mine = of_experiment(found, "grid")
    if not mine:
        return None
    best = best_of_grid(found)
    rows: list[Sequence[Value]] = []
    for one in mine:
        chosen = Cell("chosen", tone="good") if best[one.method] is one else ""
        rows.append(
            [one.method, one.label, _cell(one.mean("val_aa")), _cell(one.mean("aa")), _cell(one.mean("af_from_best")), chosen]
        )
    columns = ["method", "setting", "AA, validation", "AA", "AF (best - now)", ""]
    told = "The setting with the highest AA on the sequences that validate is chosen, the first of equals."
    return Section("Grids", [Text([told]), Table(columns, rows, "Default order, percent", decimals=1)])
