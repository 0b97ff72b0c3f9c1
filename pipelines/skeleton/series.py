"""Values of trained skeleton streams over orders and repeats, from the table of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...eval.labels import LabelledSettings, always_shown, line_labels
from ...eval.metrics.order_sensitivity import OrderDifference
from ...eval.protocols.order_sensitivity import ScoreKey, differences
from ...eval.results import Line
from .config import WITH_ORDERS

By = Literal["task", "class"]
_KINDS: Mapping[By, tuple[str, ...]] = {"task": ("task_order",), "class": WITH_ORDERS}
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


Differing = list[tuple[Series, OverOrders]]
"""Series with their differences over orders."""


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
    line_settings = [(those[0].method, settings[key]) for key, those in groups.items()]
    labels = line_labels(line_settings, always=always_shown(line_settings))
    return [
        Series(method, label, tuple(those), own)
        for (method, own), label, those in zip(line_settings, labels, groups.values(), strict=True)
    ]


def depends_on_orders(line: Line) -> bool:
    """Whether a line counts among what depends on orders: all but joint training, which has all samples in the end.

    The paper says that orders have little effect on it and leaves it out of these experiments (section 5.1).
    """
    return line.method != "joint"


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


def over_orders(found: Sequence[Line], by: By) -> Differing:
    """OPD of each method and setting: by task over its task orders, by class over task orders and class orders together."""
    texts: Differing = []
    mine = [line for line in found if line.protocol in _KINDS[by] and depends_on_orders(line)]
    for one in series(mine, lambda name: name == "orders"):
        if (difference := _difference(one, by)) is not None:
            texts.append((one, difference))
    return texts


def _difference(one: Series, by: By) -> OverOrders | None:
    final: dict[ScoreKey, dict[str, float]] = {}
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
