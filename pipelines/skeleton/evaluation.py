"""Settings of the experiments on skeleton graphs: ``[evaluation]`` of ``published.toml`` and its variants.

Paper: order sensitivity and architecture sensitivity of continual graph learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...eval.metrics.registry import METRICS
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ..names import OneOf

_STRICT = ConfigDict(extra="forbid")

MethodName = Annotated[str, OneOf(METHODS)]
"""Name of ``methods.registry``, or ``path/to/file.py:attribute``, or ``module:attribute``."""

Experiment = Literal["default", "task_order", "class_order", "architecture", "grid"]
EXPERIMENTS: tuple[Experiment, ...] = get_args(Experiment)
Positive = Annotated[int, Field(ge=1)]

READINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "as_released": {
        "mas": {"omega": "square", "average": "mean", "data": "new"},
        "twp": {"gradients": "summed"},
        "lwf": {"by_task": True, "heads": "task"},
        "gem": {"forward": "task"},
    },
    "as_written": {
        "mas": {"omega": "square", "average": "mean", "data": "learned"},
        "twp": {"gradients": "fresh"},
        "lwf": {"by_task": True, "heads": "seen"},
        "gem": {"forward": "memory"},
    },
}
"""How CGLB's code reads its methods, and how their papers do. Its slip in MAS's average is a setting, ``average="released"``,
and in neither reading: from the third task on it weighs every parameter by about one half, so that nothing more is learned."""


@dataclass(frozen=True, config=_STRICT)
class Network:
    """What learns.

    Attributes:
        architecture: ``gcn`` over joints whose features are their coordinates over time, ``st_gcn``, or a reference to a
            function that makes a network: ``make(init, *, sample, adjacency, width, depth)`` for samples (V, F), or with
            ``partitions`` in place of ``adjacency`` for samples (C, T, V). See ``training/graph_streams/nets.py``.
        width: units of each graph layer.
        depth: graph layers.
        settings: further settings of the network.
    """

    architecture: Annotated[str, OneOf(MODELS)]
    width: Positive
    depth: Positive
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])


@dataclass(frozen=True, config=_STRICT)
class TaskSchedule:
    """How a task is learned.

    Attributes:
        epochs: of each task.
        learning_rate: of Adam.
        batch_size: of methods that learn one order at a time; the others have full batches.
    """

    epochs: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    batch_size: Positive = 256


@dataclass(frozen=True, config=_STRICT)
class Architectures:
    """Architecture sensitivity on the default order: each width at the network's depth, each depth at its width.

    ``methods``: None: all of the evaluation.
    """

    widths: list[Positive]
    depths: list[Positive]
    methods: Annotated[list[MethodName], Field(min_length=1)] | None = None


@dataclass(frozen=True, config=_STRICT)
class Evaluation:
    """Training of streams in many orders, and what is measured of them.

    Attributes:
        preset: of the methods and the read-out, where CGLB's code does other than the papers say.
        methods: which learn; ``settings`` has their settings.
        experiments: what ``benchwright train`` runs where none is named: ``default`` (the default order), ``task_order``,
            ``class_order``, ``architecture``, and ``grid`` (all of ``grid`` on the default order, for a choice by validation).
        repeats: how often each is trained, from other seeds.
        task_orders: ``all`` orders of the tasks, or so many drawn from the seed, the default order first.
        class_orders: so many orders of the classes, drawn from the seed.
        settings: method -> its settings.
        grid: method -> setting -> values: each combination is tried by the experiment ``grid``.
        paper: whose figures of Table 2 stand beside those trainings of this run that are as the paper's; None: none do.
        memory: sequences that are kept by methods with exemplars that learn one order at a time.
        metrics: of your own: see ``pipelines.streams.measure_by``; of a training of several orders the mean over them.
        device: ``cpu`` or ``cuda``.
        workers: of earlier versions, and not used any more: see ``benchwright train --scheduler processes --workers``.
        orders_per_part: orders that are trained together, sharing their common beginnings; a kill costs as many.
    """

    preset: Literal["as_released", "as_written"]
    methods: Annotated[list[MethodName], Field(min_length=1)]
    experiments: Annotated[list[Experiment], Field(min_length=1)]
    repeats: Positive
    network: Network
    schedule: TaskSchedule
    task_orders: Literal["all"] | Positive
    class_orders: Positive
    architectures: Architectures
    settings: dict[MethodName, dict[str, Any]] = Field(default_factory=dict[MethodName, dict[str, Any]])
    grid: dict[MethodName, dict[str, list[Any]]] = Field(default_factory=dict[MethodName, dict[str, list[Any]]])
    paper: Literal["ucla", "ntu"] | None = None
    memory: Positive = 200
    metrics: list[Annotated[str, OneOf(METRICS)]] = Field(default_factory=list[str])
    device: str = "cpu"
    workers: Positive = 1
    orders_per_part: Positive = 12


def settings_of(e: Evaluation, method: str, tried: Mapping[str, Any], width: int, depth: int) -> dict[str, Any]:
    """Settings of a method's training: ``method``, ``model`` and ``schedule``.

    Args:
        e: settings of the run.
        method: its name.
        tried: settings of the method that take the place of the run's.
        width, depth: of the network.
    """
    model: dict[str, Any] = {"width": width, "depth": depth}
    if e.network.architecture == "gcn":
        model["readout"] = "weighted_sum_max" if e.preset == "as_released" else "sum_max"
    return {
        "method": {**READINGS[e.preset].get(method, {}), **e.settings.get(method, {}), **tried},
        "model": {**model, **e.network.settings},
        "schedule": {"epochs": e.schedule.epochs, "learning_rate": e.schedule.learning_rate},
    }
