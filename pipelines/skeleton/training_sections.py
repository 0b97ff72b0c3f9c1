"""Sections of the skeleton report about trainings: orders, the default order, architectures, grids."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...datasets.skeleton.facts import table_3
from ...eval.metrics.order_sensitivity import TABLE_2_DDOF, mean_and_deviation
from ...eval.report.blocks import Block, Cell, Details, Heat, Section, Table, Text
from ...eval.report.dots import dot_chart
from ...eval.report.figures import line_chart
from ...eval.report.order_sensitivity import accuracy_forgetting_chart
from ...eval.report.trainings import (
    MOST_CURVES,
    SPREAD,
    Column,
    comparable,
    lines_table,
    percent_heats,
    position_heats,
    settings_details,
    settings_text,
    spread_cell,
    switch,
)
from ...eval.results import Line
from .config import SkeletonConfig
from .paper import published, table_2_of, why_not_its_training, why_not_the_papers
from .series import (
    By,
    Differing,
    Series,
    best_of_grid,
    by_network,
    by_repeat,
    default_matrices,
    depends_on_orders,
    furthest,
    last,
    last_of,
    learned_orders,
    network_of,
    of_experiment,
    repeats_of,
    series,
    tasks_of,
)

_FIGURES = {"gcn": {"task": 3, "both": 5, "width": 7, "depth": 8}, "st_gcn": {"task": 4, "both": 6}}
"""The paper's figures, by network and content. Those of orders have a part for each dataset, and those of architectures are
of UCLA-CIL alone. The paper does not print their numbers."""


def as_in(config: SkeletonConfig, model: str, what: str) -> str:
    """The paper's figure with the same content, such as "as in Figure 3 (a) of the paper"; "" if it has none."""
    figure, paper = _FIGURES.get(model, {}).get(what), config.evaluation.paper
    if figure is None or (paper == "ntu" and what in ("width", "depth")):
        return ""
    part = "" if paper is None or what in ("width", "depth") else {"ucla": " (a)", "ntu": " (b)"}[paper]
    return f"as in Figure {figure}{part} of the paper"


_MEASURES = {
    "aa": "AA",
    "af_from_best": "AF (best - now)",
    "af_final_minus_diagonal": "now - just after",
}
_DEFINED = (
    "AA: mean final accuracy over all tasks, where a task's accuracy is the mean over its classes. AF: mean over old tasks of "
    "the best accuracy before the last task minus the final accuracy; higher is worse. The third column is what CGLB's code "
    "prints: final accuracy minus the accuracy just after the task, which has the opposite sign."
)


def order_section(
    config: SkeletonConfig, found: Sequence[Line], over: Mapping[By, Differing], names: Sequence[str], data: str
) -> Section | None:
    """Accuracy against forgetting over task and class orders, and the differences over orders next to Table 2.

    Joint training is left out: see ``depends_on_orders``.

    Args:
        config: settings of the run.
        found: lines of the trainings.
        over: their differences over orders.
        names: names of the classes.
        data: why the data differ from the paper's; "" if they do not.
    """
    found = [line for line in found if depends_on_orders(line)]
    kinds = {title: of_experiment(found, experiment) for experiment, title in _TITLES.items()}
    kinds = {title: mine for title, mine in kinds.items() if mine}
    if not kinds:
        return None
    networks = by_network([line for mine in kinds.values() for line in mine])
    by_order = {name: series(mine, lambda setting: setting == "orders") for name, mine in networks.items()}
    blocks = [block for mine in by_order.values() for block in _scatters(config, mine)]
    for title, mine in kinds.items():
        blocks += [_measure_table(mine, f"Means over {title}; {SPREAD} over repeats"), *settings_details(mine)]
    blocks += [block for by, differing in over.items() for block in _differences(config, differing, by, names, data)]
    blocks += _task_and_class(config, over, data)
    classes = {
        label if len(networks) == 1 else f"{network}: {label}": one
        for network, mine in by_order.items()
        for label, one in _by_class(mine, names, network).items()
    }
    blocks += switch("class by class", classes)
    return Section("Order sensitivity", [Text([_DEFINED]), *blocks])


_TITLES = {"task_order": "task orders", "class_order": "class orders"}


def _lines_of(mine: Sequence[Series], experiment: str) -> dict[str, list[Line]]:
    """Label -> lines of an experiment, for the series that have some."""
    found = {one.label: of_experiment(one.lines, experiment) for one in mine}
    return {label: those for label, those in found.items() if those}


def _scatters(config: SkeletonConfig, mine: Sequence[Series]) -> list[Block]:
    """AA against AF for one network: over the task orders, and over both kinds of orders if there are class orders."""
    first = mine[0].lines[0]
    tasks = len(tasks_of(first)) or int(last(first, "aa")["position"][0].as_py())
    if tasks < 2:
        return []
    repeats = sorted({repeats_of(line) for one in mine for line in one.lines})
    text = (
        "one repeat"
        if repeats == [1]
        else f"means over {' to '.join(map(str, dict.fromkeys((repeats[0], repeats[-1]))))} repeats"
    )
    kinds = {
        title: {label: _points(those) for label, those in _lines_of(mine, experiment).items()}
        for experiment, title in _TITLES.items()
    }
    kinds = {title: points for title, points in kinds.items() if points}
    blocks: list[Block] = []
    for shown in [dict(list(kinds.items())[:1]), kinds][: len(kinds)]:
        figure = as_in(config, first.model, "both" if len(shown) > 1 else "task" if "task orders" in shown else "")
        caption = (
            f"AA and AF of each of the {' and '.join(shown)} by {network_of(first)}, {text}"
            f"{f', {figure}' if figure else ''}. No learner can be in the shaded area."
        )
        blocks.append(accuracy_forgetting_chart(shown, tasks=tasks, caption=caption))
    return blocks


def _task_and_class(config: SkeletonConfig, differing: Mapping[By, Differing], data: str) -> list[Block]:
    """AOPD by task and by class of every method in one plot, with the values of Table 2."""
    mine = {one.label: one for both in differing.values() for one, _ in both}
    if not mine:
        return []
    names: dict[By, str] = {"task": "AOPD by task", "class": "AOPD by class"}
    values = {
        names[by]: {one.label: float(over.difference.aopd.mean()) for one, over in both} for by, both in differing.items()
    }
    papers = {
        names[by]: {
            one.label: table_2_of(config, by)[one.method]["AOPD"][0]
            for one, over in both
            if not data and not why_not_the_papers(config, one, over, by)
        }
        for by, both in differing.items()
    }
    chart = dot_chart(
        list(mine),
        {name: [each.get(label, math.nan) for label in mine] for name, each in values.items()},
        label_axis="method",
        value_axis="difference over orders",
        published={name: [each.get(label, math.nan) for label in mine] for name, each in papers.items() if each},
        caption="Mean difference over orders: by task over task orders, and by class over task and class orders. Where the two "
        "are far apart, the classes of a task differ.",
    )
    return [chart]


def _by_class(mine: Sequence[Series], names: Sequence[str], network: str) -> dict[str, Block]:
    """Final accuracy of each class under the default order and the order that differs most, as in Figure 1, by method."""
    found: dict[str, Block] = {}
    first = {label: learned_orders(*those)[0] for label, those in _lines_of(mine, "task_order").items()}
    for experiment, title in _TITLES.items():
        for label, those in _lines_of(mine, experiment).items():
            orders = learned_orders(*those)
            one = first.get(label, orders[0])
            other = furthest(one, orders)
            if other is None or not one.classes:
                continue
            lines = ["; ".join(_named(task, names) for task in each.tasks) for each in (one, other)]
            shown = {"default order" if label in first else f"order {one.number}": one, f"order {other.number}": other}
            classes = sorted(one.classes, key=int)
            found[f"{label}, {title}"] = dot_chart(
                [_named(each, names) for each in classes],
                {name: [each.classes.get(at, math.nan) for at in classes] for name, each in shown.items()},
                label_axis="class",
                value_axis="accuracy at the end",
                caption=f"{label}, {network}: accuracy of each class after all tasks in two of the {title}, as "
                f"in Figure 1 of the paper. The orders: {lines[0]}; and {lines[1]}.",
            )
    return found


def _named(task: str, names: Sequence[str]) -> str:
    return " + ".join(names[int(each)] if names else each for each in task.split("+"))


def _points(those: Sequence[Line]) -> tuple[list[float], list[float]]:
    """AA and AF of each order, averaged over repeats."""
    found: list[list[float]] = []
    for metric in ("aa", "af_from_best"):
        means = last_of(those, metric).group_by("order").aggregate([("value", "mean")]).sort_by("order")
        found.append(means["value_mean"].to_pylist())
    return found[0], found[1]


def _measure_table(mine: Sequence[Line], caption: str) -> Table:
    columns: dict[str, Column[Line]] = {"repeats": repeats_of}
    columns |= {heading: functools.partial(by_repeat, metric=metric) for metric, heading in _MEASURES.items()}
    return lines_table(mine, columns, f"{caption}; percent")


_OVER_REPEATS = f"{SPREAD} over the n repeats, divided by n as in Table 2, not by n - 1 as elsewhere"


def _differences(config: SkeletonConfig, differing: Differing, by: By, names: Sequence[str], data: str) -> list[Block]:
    if not differing:
        return []
    over = {one.label: difference for one, difference in differing}
    mine = [one for one, _ in differing]
    fair, verdict = comparable(
        mine,
        data,
        lambda one: why_not_the_papers(config, one, over[one.label], by),
        "sequences, orders, repeats, draws, split, network and settings of Table 2",
    )
    columns: dict[str, Column[Series]] = {
        "orders": lambda one: over[one.label].orders,
        "AOPD": lambda one: over[one.label].difference.aopd,
        "MOPD": lambda one: over[one.label].difference.mopd,
    }
    every = {"task": "tasks", "class": "classes"}[by]
    caption = f"Highest minus lowest final accuracy of a {by} over the orders, in percent: mean and maximum over all {every}"
    if any(len(each.difference.aopd) > 1 for each in over.values()):
        caption += f"; {_OVER_REPEATS}"
    blocks: list[Block] = [lines_table(mine, columns, caption, ddof=TABLE_2_DDOF, published=published(config, fair, by))]
    blocks += settings_text([one.labelled for one in mine])
    if config.evaluation.paper:
        blocks.append(verdict)
    whole = next(iter(over.values())).names
    labels = [_named(group, names) for group in whole]
    opd = {label: each.difference.opd for label, each in over.items()}
    means = np.array([values.mean(0) for values in opd.values()]).T
    heat = Heat(f"OPD by {by}, mean over repeats", labels, list(opd), means.tolist())
    heats = percent_heats([heat], by, "method", unit="percent")
    blocks.append(heats if by == "task" else Details("OPD by class", [heats]))
    rows = [
        [label, *(spread_cell(values[:, at], ddof=TABLE_2_DDOF) for values in opd.values())] for at, label in enumerate(labels)
    ]
    blocks.append(Details(f"OPD by {by}, with deviations", [Table([by, *opd], rows, "Percent", decimals=1)]))
    return blocks


def default_section(found: Sequence[Line]) -> Section | None:
    """Accuracy matrices of the default order, or of the task orders' first if the default was not trained separately."""
    mine = of_experiment(found, "default") or of_experiment(found, "task_order")
    matrices = {one.label: default_matrices(one) for one in mine}
    numbered = {
        label: ([str(at) for at in range(values.shape[1])], values)  # numbered as in the split, and in the paper
        for label, values in matrices.items()
        if len(values)
    }
    if not numbered:
        return None
    blocks: list[Block] = [*settings_details(mine)]
    if of_experiment(found, "default"):
        blocks.insert(0, _measure_table(mine, f"The default order; {SPREAD} over repeats"))
    blocks += position_heats(numbered, of="task")
    return Section("The default order, task by task", blocks)


def architecture_section(config: SkeletonConfig, found: Sequence[Line]) -> Section | None:
    """AA and AF by width and by depth."""
    mine = of_experiment(found, "architecture")
    if not mine:
        return None
    net, swept = config.evaluation.network, config.evaluation.architectures
    architectures = series(mine, lambda name: name in ("model.width", "model.depth"))
    blocks: list[Block] = []
    for model, what in itertools.product(dict.fromkeys(line.model for line in mine), ("width", "depth")):
        places, fixed = (swept.widths, f"depth {net.depth}") if what == "width" else (swept.depths, f"width {net.width}")
        shapes = [(place, net.depth) if what == "width" else (net.width, place) for place in places]
        figure = as_in(config, model, what)
        of = f"{model}, {fixed}{f'; {figure}' if figure else ''}"
        those = [one for one in architectures if one.lines[0].model == model]
        for measure, axis in (("aa", "average accuracy, AA"), ("af_from_best", "average forgetting, AF")):
            for at in range(0, len(those), MOST_CURVES):
                blocks += _curves(those[at : at + MOST_CURVES], shapes, places, measure, what, axis, of)
    table = _measure_table(mine, f"Default order; {SPREAD} over repeats")
    return Section("Architecture sensitivity", [*blocks, Details("The numbers", [table]), *settings_details(mine)])


def _curves(
    mine: Sequence[Series],
    shapes: Sequence[tuple[int, int]],
    places: Sequence[int],
    measure: str,
    what: str,
    axis: str,
    of: str,
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
            label_axis=f"{what} of the graph layers",
            value_axis=axis,
            spread=spread,
            caption=f"{axis} by {what}: {of}. Band: one standard deviation over repeats.",
        )
    ]


def grid_section(config: SkeletonConfig, found: Sequence[Line], data: str) -> Section | None:
    """Results of each setting of the grids on the default order, and which one validation selects, here and in Table 3.

    Args:
        config, found, data: see ``order_section``.
    """
    mine = of_experiment(found, "grid")
    if not mine:
        return None
    best, papers = best_of_grid(found), table_3(config.evaluation.paper) if config.evaluation.paper and not data else {}
    columns: dict[str, Column[Line]] = {
        "AA, validation": lambda one: by_repeat(one, "aa", "val"),
        "AA": lambda one: by_repeat(one, "aa"),
        "AF (best - now)": lambda one: by_repeat(one, "af_from_best"),
        "": lambda one: Cell("chosen", tone="good") if best[one.method, network_of(one)] is one else "",
        "Table 3": lambda one: "best" if _is_best(config, one, papers) else None,
    }
    text = "The setting with the highest validation AA is chosen; ties go to the first."
    return Section("Grids", [Text([text]), lines_table(mine, columns, "Default order, percent"), *settings_details(mine)])


def _is_best(config: SkeletonConfig, one: Line, papers: Mapping[str, Mapping[str, float]]) -> bool:
    wanted = papers.get(one.method)
    if not wanted or why_not_its_training(config, one, of_grid=True):
        return False
    return all(one.settings.get(f"method.{name}") == value for name, value in wanted.items())
