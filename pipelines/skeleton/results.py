"""Results of trained skeleton streams from the table of results, for the report and for tables that ``eval`` prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.artifact import load_artifact, load_run
from ...curation.keys import sha256
from ...curation.nested import flat
from ...curation.store import Store
from ...datasets.skeleton.facts import facts, table_2
from ...eval.labels import LabelledSettings, line_label, told_of_all, unnamed
from ...eval.metrics.order_sensitivity import OrderDifference, mean_and_deviation
from ...eval.protocols.order_sensitivity import Key, differences
from ...eval.report.blocks import Cell
from ...eval.report.trainings import PublishedRow, changed_settings
from ...eval.results import Line, lines
from ..config import find_config, load
from ..training_results import results
from .config import SkeletonConfig, training_settings

By = Literal["task", "class"]

_KINDS: Mapping[By, tuple[str, ...]] = {"task": ("task_order",), "class": ("task_order", "class_order")}
"""Experiments whose orders count: for classes, orders of the tasks and of the classes together, as in the paper."""


@dataclass(frozen=True)
class Series:
    """Lines that are shown as one.

    Attributes:
        method: method of all lines.
        label: the method, and settings that distinguish it from the other series.
        lines: lines of one or more experiments, or of several values of a setting.
        settings: settings that all lines share, with the model.
    """

    method: str
    label: str
    lines: tuple[Line, ...]
    settings: Mapping[str, Any]

    @property
    def labelled(self) -> LabelledSettings:
        """The series as ``unnamed`` takes it."""
        return self.label, self.method, self.settings


@dataclass(frozen=True)
class OverOrders:
    """OPD of one series over orders.

    Attributes:
        names: the classes of each task, joined by +; a single class each for OPD by class.
        difference: OPD, AOPD and MOPD of each repeat.
        orders: number of orders.
    """

    names: list[str]
    difference: OrderDifference
    orders: int


def of_experiment(found: Sequence[Line], experiment: str) -> list[Line]:
    """Lines of one experiment."""
    return [line for line in found if line.protocol == experiment]


def repeats_of(line: Line) -> int:
    """Number of finished repeats."""
    return len({seed for _, seed in line.runs})


def last(line: Line, metric: str, split: str = "test") -> pa.Table:
    """Rows of a metric after the last task."""
    rows = line.select(metric, split=split)
    return rows.filter(pc.equal(rows["position"], pc.max(rows["position"])))


def last_of(found: Sequence[Line], metric: str) -> pa.Table:
    """``last`` of several lines of one experiment."""
    return pa.concat_tables([last(line, metric) for line in found]).unify_dictionaries()


def by_repeat(line: Line, metric: str, split: str = "test") -> NDArray[np.float64]:
    """(S,) values of a metric after the last task: for each repeat the mean over its orders."""
    rows = last(line, metric, split)
    values = pa.table({"seed": rows["seed"], "value": pc.fill_null(rows["value"], math.nan)})
    return values.group_by("seed", use_threads=False).aggregate([("value", "mean")])["value_mean"].to_numpy()


def tasks_of(line: Line) -> list[str]:
    """The tasks of the default order as they are learned, each as its classes joined by +."""
    rows = last(line, "accuracy")
    return list(dict.fromkeys(rows.filter(pc.equal(rows["order"], 0))["tested"].to_pylist()))


def default_matrices(line: Line) -> NDArray[np.float64]:
    """(repeats, N, N) accuracy by task in the default order, rows after each task; NaN above the diagonal."""
    return line.matrix("accuracy", tasks_of(line))[[order == 0 for order, _ in line.runs]]


def series(found: Sequence[Line], without: Callable[[str], bool]) -> list[Series]:
    """Group lines that differ only in their experiment and in the settings for which ``without`` is true."""
    groups: dict[str, list[Line]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for line in found:
        own = {name: value for name, value in line.settings.items() if not without(name)} | {"model": line.model}
        key = repr((line.method, sorted(own.items(), key=lambda item: item[0])))
        groups.setdefault(key, []).append(line)
        settings[key] = own
    made: list[Series] = []
    always = told_of_all((those[0].method, settings[key]) for key, those in groups.items())
    for key, those in groups.items():
        rivals = [settings[other] for other, lines_of in groups.items() if lines_of[0].method == those[0].method]
        label = line_label(those[0].method, settings[key], rivals, always=always)
        made.append(Series(those[0].method, label, tuple(those), settings[key]))
    return made


def depends_on_orders(line: Line) -> bool:
    """Whether a line depends on orders: joint training has all samples in the end, and the paper leaves it out there."""
    return line.method != "joint" or line.settings.get("method.start", "scratch") != "scratch"


def network_of(line: Line) -> str:
    """Architecture, depth and width of the network, such as ``gcn 2 x 64``."""
    sizes = [str(line.settings[name]) for name in ("model.depth", "model.width") if name in line.settings]
    return " ".join([line.model, " x ".join(sizes)]).strip()


def by_network(found: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines of each network, in order of occurrence."""
    names = dict.fromkeys(network_of(line) for line in found)
    return {name: [line for line in found if network_of(line) == name] for name in names}


@dataclass(frozen=True)
class LearnedOrder:
    """The final accuracies of a method that learned an order.

    Attributes:
        number: number of the order in its experiment.
        tasks: tasks in the order learned, each as its classes joined by +.
        classes: final accuracy of each class, averaged over repeats.
    """

    number: int
    tasks: tuple[str, ...]
    classes: Mapping[str, float]


def learned_orders(line: Line, *more: Line) -> list[LearnedOrder]:
    """Each order of a line, or of several lines with different numbers of orders, once and in ascending order."""
    tasks: dict[int, dict[str, None]] = {}
    for row in last_of([line, *more], "accuracy").select(["order", "tested"]).to_pylist():
        tasks.setdefault(row["order"], {})[row["tested"]] = None
    means: dict[int, dict[str, float]] = {}
    rows = last_of([line, *more], "class_accuracy")
    for row in rows.group_by(["order", "tested"], use_threads=False).aggregate([("value", "mean")]).to_pylist():
        mean = row["value_mean"]
        means.setdefault(row["order"], {})[row["tested"]] = math.nan if mean is None else mean
    return [LearnedOrder(order, tuple(tasks[order]), means.get(order, {})) for order in sorted(tasks)]


def furthest(one: LearnedOrder, others: Sequence[LearnedOrder]) -> LearnedOrder | None:
    """The order whose class accuracies differ most from those of ``one``; the first of equals."""

    def far(other: LearnedOrder) -> float:
        pairs = [(value, other.classes.get(name, math.nan)) for name, value in one.classes.items()]
        return sum(abs(a - b) for a, b in pairs if not math.isnan(a - b))

    return max((other for other in others if other.tasks != one.tasks), key=far, default=None)


def over_orders(found: Sequence[Line], by: By) -> list[tuple[Series, OverOrders]]:
    """OPD of each method and setting: by task over its task orders, by class over task orders and class orders together."""
    texts: list[tuple[Series, OverOrders]] = []
    mine = [line for line in found if line.protocol in _KINDS[by] and depends_on_orders(line)]
    for one in series(mine, lambda name: name == "orders"):
        if (difference := _difference(one, by)) is not None:
            texts.append((one, difference))
    return texts


def _difference(one: Series, by: By) -> OverOrders | None:
    final: dict[Key, dict[str, float]] = {}
    for line in one.lines:
        rows = last(line, "accuracy" if by == "task" else "class_accuracy")
        columns = (rows[name].to_pylist() for name in ("seed", "order", "tested", "value"))
        for seed, order, tested, value in zip(*columns, strict=True):
            final.setdefault((seed, line.protocol, order), {})[tested] = value
    found = differences(final)
    return None if found is None else OverOrders(*found, len({key[1:] for key in final}))


def best_of_grid(found: Sequence[Line]) -> dict[tuple[str, str], Line]:
    """Method and network -> the line of its grid with the highest average accuracy on validation sequences, the first of
    equals."""
    best: dict[tuple[str, str], Line] = {}
    for line in of_experiment(found, "grid"):
        one = line.method, network_of(line)
        if one not in best or by_repeat(line, "aa", "val").mean() > by_repeat(best[one], "aa", "val").mean():
            best[one] = line
    return best


# ------------------------------------------------------------------------------------------------------------ the paper

_OF_THE_DATA = ("source.kind", "classes", "only", "bodies", "layout", "tensor", "split", "orders.tasks")


def data_differs(config: SkeletonConfig, out: str, values: Mapping[str, Any]) -> str:
    """Why the data of a run differ from those of the paper that ``evaluation.paper`` names; "" if they do not.

    Args:
        config: settings that the run recorded.
        out: the run.
        values: the recorded settings as JSON-like values.
    """
    if config.evaluation.paper is None:
        return "evaluation.paper is not set"
    _, wanted, _ = _packaged(config)
    ours, theirs = flat(values), flat(wanted)
    for part in _OF_THE_DATA:
        for name in dict.fromkeys([*ours, *theirs]):
            if (name == part or name.startswith(f"{part}.")) and ours.get(name) != theirs.get(name):
                return f"{name} = {ours.get(name)!r} instead of {theirs.get(name)!r}"
    wanted_rows = facts().nwucla.sequences if config.evaluation.paper == "ucla" else facts().ntu_cil.sequences
    store = Store(out)
    shards = load_artifact(store, "shards")
    rows = 0 if shards is None else shards.rows
    if rows != wanted_rows:
        return f"it has {rows:,} sequences instead of {wanted_rows:,}"
    return _order_differs(store, ours.get("source.lists")) if config.evaluation.paper == "ucla" else ""


def _order_differs(store: Store, lists: str | None) -> str:
    """Why the recorded sequences of an N-UCLA run are not in the order of CTR-GCN's lists; "" if they are.

    Table 2 was reproduced only in that order, which determines the test set.
    """
    split = load_artifact(store, "split")
    keys = [] if split is None else split.rows_view(store).table(["key", "position"]).sort_by("position")["key"].to_pylist()
    if sha256("\n".join(keys)) == facts().nwucla.lists_sha256:
        return ""
    if lists is None:
        return "source.lists is not set, so sequences are ordered by name, which changes the test set"
    return f"source.lists = {lists!r}: the sequences are not in the order of CTR-GCN's lists, which changes the test set"


def _packaged(config: SkeletonConfig) -> tuple[SkeletonConfig, dict[str, Any], dict[str, Any]]:
    variant = None if config.evaluation.paper == "ucla" else "ntu"
    return load(SkeletonConfig, find_config("skeleton", variant), benchmark="skeleton")


_ORDERS: Mapping[By, int] = {"task": 120, "class": 220}
"""Numbers of orders in Table 2: all of five tasks; and these with 100 of the classes."""


def why_not_the_papers(config: SkeletonConfig, one: Series, over: OverOrders, by: By) -> str:
    """Why differences over the orders of a series do not match Table 2, by the records of its trainings; "" if they do."""
    if one.method not in _table_2(config, by):
        return "the method is not in Table 2"
    if over.orders != _ORDERS[by]:
        return f"these are {over.orders} orders, and Table 2 covers {_ORDERS[by]}"
    return next((why for line in one.lines if (why := why_not_its_training(config, line))), "")


def why_not_its_training(config: SkeletonConfig, line: Line, *, of_grid: bool = False) -> str:
    """Why a training differs from the paper's, by its record; "" if it does not.

    Args:
        config: settings of the run, which name the paper.
        line: line of the training.
        of_grid: whether to ignore settings of the method, which a grid varies.
    """
    e = _packaged(config)[0].evaluation
    if line.model != e.network.architecture:
        return f"the model is {line.model}"
    wanted = flat(training_settings(e, line.method, {}, e.network.width, e.network.depth))
    tried = [name for name in {**wanted, **line.settings} if of_grid and name.startswith("method")]
    changed = changed_settings(line, [wanted], apart=("orders", "seed", "task_orders", *tried))
    return f"settings of the paper were changed: {', '.join(changed)}" if changed else ""


def published(config: SkeletonConfig, told: Sequence[Series], by: By) -> list[PublishedRow]:
    """The rows of Table 2 for these series."""
    rows: list[PublishedRow] = []
    for one in told:
        figures = {
            name: Cell(100 * mean, note=f"± {100 * std:.2f}" if std else "")
            for name, (mean, std) in _table_2(config, by)[one.method].items()
        }
        rows.append(PublishedRow(one.method, "Table 2", figures))
    return rows


def _table_2(config: SkeletonConfig, by: By) -> dict[str, dict[str, tuple[float, float]]]:
    """Method -> AOPD and MOPD as shares, with their deviations."""
    found = table_2(by, config.evaluation.paper or "ucla")
    return {
        method: {"AOPD": (one.aopd_percent / 100, one.aopd_std_percent / 100)}
        | {"MOPD": (one.mopd_percent / 100, one.mopd_std_percent / 100)}
        for method, one in found.items()
    }


# ----------------------------------------------------------------------------------------------------- what eval prints


def order_scores(config: SkeletonConfig, out: str) -> dict[str, dict[str, Any]]:
    """Differences over orders, which combine several trainings: ``mean`` and ``std`` by heading, with the paper's values."""
    found = lines(results(out))
    data = data_differs(config, out, load_run(Store(out)).config) if found else ""
    told: dict[str, dict[str, Any]] = {}
    for by in ("task", "class"):
        pairs = over_orders(found, by)
        for (one, over), apart in zip(pairs, unnamed([one.labelled for one, _ in pairs]), strict=True):
            table = told.setdefault(f"difference over orders, by {by}", {})
            means = {"AOPD": over.difference.aopd, "MOPD": over.difference.mopd}
            figures = {name: mean_and_deviation(values) for name, values in means.items()}
            table[f"{one.label}, {over.orders} orders"] = _line(figures) | ({"apart": apart} if apart else {})
            if not data and not why_not_the_papers(config, one, over, by):
                table[f"{one.label}, Table 2"] = _line(_table_2(config, by)[one.method])
    return told


def _line(values: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    parts = {"mean": {name: float(mean) for name, (mean, _) in values.items()}}
    parts["std"] = {name: float(std) for name, (_, std) in values.items()}
    return {part: {name: None if math.isnan(each) else each for name, each in those.items()} for part, those in parts.items()}
