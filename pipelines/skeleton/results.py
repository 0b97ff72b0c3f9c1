"""Figures of trained skeleton streams: what ``benchwright eval`` prints, and what the report shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ...datasets.skeleton.published import Published, table_2
from ...eval.metrics.order_sensitivity import mean_and_deviation
from ...eval.protocols.order_sensitivity import Stream, class_differences, measures, orders_in, streams, task_differences
from .baselines import results

if TYPE_CHECKING:
    from .config import SkeletonConfig
    from .evaluation import Experiment

Figure = tuple[float, float]
"""Mean, and deviation over repeats: NaN for one repeat."""
NONE: Figure = (math.nan, math.nan)
By = Literal["task", "class"]


@dataclass(frozen=True)
class Trained:
    """The streams of one method and setting in one experiment.

    Attributes:
        experiment, method: as trained.
        label: see ``baselines.Training``.
        streams: every order and repeat that is finished.
    """

    experiment: Experiment
    method: str
    label: str
    streams: tuple[Stream, ...]

    @property
    def name(self) -> str:
        """Method, and what tells it from others of its method."""
        return f"{self.method}, {self.label}" if self.label else self.method

    @property
    def repeats(self) -> int:
        """How many have finished."""
        return len({one.repeat for one in self.streams})

    def mean(self, measure: str) -> Figure:
        """Of a measure of ``Stream.measures``: mean over the orders of a repeat, and over repeats."""
        by_repeat: dict[int, list[float]] = {}
        for one in self.streams:
            by_repeat.setdefault(one.repeat, []).append(one.measures()[measure])
        mean, deviation = mean_and_deviation([np.mean(values) for values in by_repeat.values()])
        return float(mean), float(deviation)


@dataclass(frozen=True)
class Difference:
    """OPD of one method over orders, in [0, 1].

    Attributes:
        names: the classes of each task; one class each for OPD by class.
        opd: of each, mean and deviation over repeats.
        aopd, mopd: their mean, their maximum.
        orders: how many there are.
    """

    names: tuple[tuple[int, ...], ...]
    opd: tuple[Figure, ...]
    aopd: Figure
    mopd: Figure
    orders: int


def trained(config: SkeletonConfig, out: str) -> list[Trained]:
    """All that is finished of the settings' experiments, in their order."""
    groups: dict[tuple[Experiment, str, str], list[pa.Table]] = {}
    for one, rows in results(config, out):
        groups.setdefault((one.experiment, one.method, one.label), []).append(rows)
    return [Trained(*key, tuple(streams(pa.concat_tables(tables)))) for key, tables in groups.items()]


def measure_table(config: SkeletonConfig, out: str) -> pa.Table:
    """One row a stream: what it is, and AA, AF in two definitions, bounds, validation AA; with ``experiment`` in front."""
    tables = [(one.experiment, measures(one.streams)) for one in trained(config, out)]
    return pa.concat_tables([t.add_column(0, "experiment", pa.array([name] * t.num_rows, pa.string())) for name, t in tables])


def of_experiment(found: Sequence[Trained], experiment: Experiment) -> list[Trained]:
    """Those of one experiment."""
    return [one for one in found if one.experiment == experiment]


def difference(found: Sequence[Trained], method: str, by: By) -> Difference | None:
    """OPD of a method: by task over its task orders, by class over task orders and class orders together."""
    kinds = ("task_order",) if by == "task" else ("task_order", "class_order")
    mine = [stream for one in found if one.experiment in kinds and one.method == method for stream in one.streams]
    told = task_differences(mine) if by == "task" else class_differences(mine)
    if told is None:
        return None
    names, over = told
    opd = [_figure(values) for values in over.opd.T]
    return Difference(tuple(names), tuple(opd), _figure(over.aopd), _figure(over.mopd), sum(orders_in(mine).values()))


def _figure(repeats: Any) -> Figure:
    mean, deviation = mean_and_deviation(repeats)
    return float(mean), float(deviation)


def published(config: SkeletonConfig, by: By) -> dict[str, Published]:
    """Table 2 for these settings; empty where they are not the paper's."""
    return {} if config.evaluation.paper is None else table_2(by, config.evaluation.paper)


def scores(config: SkeletonConfig, out: str) -> dict[str, dict[str, Any]]:
    """What ``benchwright eval`` prints: experiment -> method -> ``mean`` and ``std`` by heading, the paper's beside ours."""
    found = trained(config, out)
    told: dict[str, dict[str, Any]] = {}
    for one in found:
        values = {
            "AA": one.mean("aa"),
            "AF from best": one.mean("af_from_best"),
            "final - diagonal": one.mean("af_final_minus_diagonal"),
        }
        if one.experiment == "grid":
            values = {"AA, validation": one.mean("val_aa"), **values}
        told.setdefault(one.experiment.replace("_", " "), {})[one.name] = _line(values)
    for by in ("task", "class"):
        lines = _difference_lines(config, found, by)
        if lines:
            told[f"difference over orders, by {by}"] = lines
    return told


def _difference_lines(config: SkeletonConfig, found: Sequence[Trained], by: By) -> dict[str, Any]:
    lines: dict[str, Any] = {}
    paper = published(config, by)
    for method in dict.fromkeys(one.method for one in found):
        mine = difference(found, method, by)
        if mine is None:
            continue
        lines[f"{method}, {mine.orders} orders"] = _line({"AOPD": mine.aopd, "MOPD": mine.mopd})
        if (theirs := paper.get(method)) is not None:
            lines[f"{method}, Table 2"] = _line(
                {
                    "AOPD": (theirs.aopd_percent / 100, theirs.aopd_std_percent / 100),
                    "MOPD": (theirs.mopd_percent / 100, theirs.mopd_std_percent / 100),
                }
            )
    return lines


def _line(values: Mapping[str, Figure]) -> dict[str, Any]:
    mean = {name: None if math.isnan(value) else value for name, (value, _) in values.items()}
    return {"mean": mean, "std": {name: None if math.isnan(std) else std for name, (_, std) in values.items()}}


def best_of_grid(found: Sequence[Trained]) -> dict[str, Trained]:
    """Method -> the setting of its grid with the highest average accuracy on the validating sequences, the first of equals."""
    best: dict[str, Trained] = {}
    for one in of_experiment(found, "grid"):
        if one.method not in best or one.mean("val_aa")[0] > best[one.method].mean("val_aa")[0]:
            best[one.method] = one
    return best
