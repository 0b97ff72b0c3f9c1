"""Settings of the skeleton pipeline. What the paper fixes has no default here: it stands in ``published.toml``.

Paper: order sensitivity and architecture sensitivity of continual graph learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...datasets.skeleton.bodies import BodyRule
from ...datasets.skeleton.splits import SplitRule
from ...datasets.skeleton.tensors import TensorForm
from ...eval.metrics.registry import METRICS
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf
from ..sources import SOURCES
from ..user_code import OwnSource
from .source_config import (
    ArraySource,
    BvhLayout,
    DeclaredLayout,
    DrawnSource,
    FolderSource,
    NpzSource,
    NtuNamesSource,
    NtuSource,
    NwuclaSource,
    PackagedLayout,
    Protocol,
    PysklSource,
    TableSource,
)

_STRICT = ConfigDict(extra="forbid")
Side = Literal["train", "test"]

MethodName = Annotated[str, OneOf(METHODS)]
"""Name of ``methods.registry``, or ``path/to/file.py:attribute``, or ``module:attribute``."""

Experiment = Literal["default", "task_order", "class_order", "architecture", "grid"]
EXPERIMENTS: tuple[Experiment, ...] = get_args(Experiment)
Positive = Annotated[int, Field(ge=1)]

READINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "as_released": {
        "mas": {"omega": "square", "average": "mean", "data": "new"},
        "twp": {"gradients": "summed", "norm": "constant"},
        "lwf": {"by_task": True, "heads": "task"},
        "gem": {"forward": "task"},
    },
    "as_written": {
        "mas": {"omega": "square", "average": "mean", "data": "learned"},
        "twp": {"gradients": "fresh", "norm": "minimised"},
        "lwf": {"by_task": True, "heads": "seen"},
        "gem": {"forward": "memory"},
    },
}
"""How CGLB's code reads its methods, and how their papers do. Its slip in MAS's average is a setting, ``average="released"``,
and in neither reading: from the third task on it weighs every parameter by about one half, so that nothing more is learned."""


@dataclass(frozen=True, config=_STRICT)
class SplitRules:
    """What a sequence is for; see ``datasets/skeleton/splits.py``.

    Attributes:
        rule: ``shares``; a published protocol; ``performer`` or ``camera``: those of ``test_groups`` test; ``source``: as the
            source says; ``list``.
        val: share of a class that validates, where nothing else says so; 0: none.
        test: share of a class that tests, for ``shares``.
        classes_per_task: in the order of the labels.
        val_groups, test_groups: performers or cameras.
        roles: for ``list``: table with the columns ``sequence`` and ``role``, or JSON with lists of names by role.
    """

    rule: SplitRule
    val: Annotated[float, Field(ge=0, lt=1)]
    test: Annotated[float, Field(ge=0, lt=1)]
    classes_per_task: Annotated[int, Field(ge=1)]
    val_groups: list[str | int] = Field(default_factory=list[str | int])
    test_groups: list[str | int] = Field(default_factory=list[str | int])
    roles: Location | None = None

    @property
    def validates(self) -> bool:
        """Whether any sequence may validate."""
        return bool(self.val or self.val_groups) or self.rule in ("source", "list")


@dataclass(frozen=True, config=_STRICT)
class OrderCounts:
    """Orders of learning; see ``datasets/skeleton/orders.py``.

    Attributes:
        tasks: how many tasks there are.
        classes: drawn orders of the classes.
        task_orders: orders of the tasks, the default one and drawn ones; None: all of up to seven tasks.
    """

    tasks: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=0)]
    task_orders: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, config=_STRICT)
class GraphNetwork:
    """What learns.

    Attributes:
        architecture: ``gcn`` over joints whose features are their coordinates over time, ``st_gcn``, or a reference to a
            function that makes a network: ``make(init, *, sample, adjacency, width, depth)`` for samples (V, F), or with
            ``partitions`` in place of ``adjacency`` for samples (C, T, V). See ``training/graph_streams/nets.py``; of several
            bodies a sample is one of them, see ``training/core/build.py``, ``network_of``.
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
        batch_size: of methods that learn one order at a time.
        graph_batch_size: of methods that learn orders side by side: so many sequences a step, and no more in any other pass.
            None: all, as in the paper, whose 100 epochs are then 100 steps a task. With it, what EWC, MAS, TWP and GEM take of
            a past task is summed over batches, each by its own moments of batch norm.
    """

    epochs: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    batch_size: Positive = 256
    graph_batch_size: Positive | None = None


@dataclass(frozen=True, config=_STRICT)
class Architectures:
    """Architecture sensitivity on the default order.

    Attributes:
        widths: units of a graph layer that are tried, each at the network's depth.
        depths: numbers of graph layers that are tried, each at the network's width.
        methods: that are tried; None: all of the evaluation.
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
        network: what learns.
        schedule: how a task is learned.
        task_orders: ``all`` orders of the tasks, or so many drawn from the seed, the default order first.
        class_orders: so many orders of the classes, drawn from the seed.
        architectures: widths and depths of the experiment ``architecture``.
        settings: method -> its settings.
        grid: method -> setting -> values: each combination is tried by the experiment ``grid``.
        paper: whose figures of Table 2 stand beside those trainings of this run that are as the paper's; None: none do.
        memory: sequences that are kept by methods with exemplars that learn one order at a time.
        metrics: of your own: see ``pipelines.metrics.measure_by``; of a training of several orders the mean over them.
        device: ``cpu`` or ``cuda``.
        workers: of earlier versions, and not used any more: see ``benchwright train --scheduler processes --workers``.
        orders_per_part: orders that are trained together, sharing their common beginnings; a kill costs as many.
    """

    preset: Literal["as_released", "as_written"]
    methods: Annotated[list[MethodName], Field(min_length=1)]
    experiments: Annotated[list[Experiment], Field(min_length=1)]
    repeats: Positive
    network: GraphNetwork
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


@dataclass(frozen=True, config=_STRICT)
class SkeletonConfig:
    """All settings.

    Attributes:
        seed: draws the class orders, and sequences that are drawn.
        source: where the sequences come from; its ``kind`` says which of these tables it is.
        layout: joints of a body and what connects them: one by name, or one of your own.
        tensor: shape of the array that a sequence becomes.
        split: which sequences train, validate and test, and the classes of each task.
        orders: orders of classes and tasks that the data set lists.
        shards: sizes of shards.
        evaluation: what ``train`` learns, and in which orders.
        bodies: of the ``.skeleton`` files that make a sequence: a preset, or a rule; see ``datasets/skeleton/bodies.py``.
        only: protocol -> side that takes part, such as ``{x_sub = "train"}``.
        classes: names of the actions that take part, in the order of their labels; a number: so many of the set, in its own
            order; ``all``, or None: all, by name.
        max_broken: files that cannot be used: a number, or a share below 1.
    """

    seed: int
    source: Annotated[
        NwuclaSource
        | NtuSource
        | NtuNamesSource
        | ArraySource
        | FolderSource
        | TableSource
        | NpzSource
        | PysklSource
        | DrawnSource
        | OwnSource,
        ByKind(SOURCES["skeleton"]),
    ]
    layout: Annotated[PackagedLayout | DeclaredLayout | BvhLayout, Field(discriminator="kind")]
    tensor: TensorForm
    split: SplitRules
    orders: OrderCounts
    shards: ShardSizes
    evaluation: Evaluation
    bodies: Literal["st_gcn", "two_s_agcn", "ctr_gcn", "longest", "most_moving"] | BodyRule = "st_gcn"
    only: dict[Protocol, Side] = Field(default_factory=dict[Protocol, Side])
    classes: Annotated[int, Field(ge=1)] | Literal["all"] | list[str] | None = None
    max_broken: Rejects = 0


def training_settings(e: Evaluation, method: str, tried: Mapping[str, Any], width: int, depth: int) -> dict[str, Any]:
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
        "schedule": {"epochs": e.schedule.epochs, "learning_rate": e.schedule.learning_rate}
        | ({} if e.schedule.graph_batch_size is None else {"batch_size": e.schedule.graph_batch_size}),
    }
