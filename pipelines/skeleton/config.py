"""Settings of the skeleton pipeline. Values that the paper fixes have no default here: they are in ``published.toml``.

Paper: order sensitivity and architecture sensitivity of continual graph learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from ...datasets.skeleton.bodies import BodyPreset, BodyRule
from ...datasets.skeleton.splits import SplitRule
from ...datasets.skeleton.tensors import TensorForm
from ...eval.metrics.registry import OF_ORDERS
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS, Depth, Width
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf
from ..settings_type import settings_type
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
    NtuProtocol,
    NtuSource,
    NwuclaSource,
    PackagedLayout,
    PysklSource,
    TableSource,
)

Side = Literal["train", "test"]

MethodName = Annotated[str, OneOf(METHODS)]
"""A name in ``methods.registry``, or ``path/to/file.py:attribute``, or ``module:attribute``."""

Experiment = Literal["default", "task_order", "class_order", "architecture", "grid"]
EXPERIMENTS: tuple[Experiment, ...] = get_args(Experiment)
WITH_ORDERS: tuple[Experiment, ...] = ("task_order", "class_order")
"""Those with several orders."""
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
"""Variants of the methods as CGLB's code implements them, and as their papers describe them. The code's mistake in MAS's
average is in neither: it is a setting, ``average="released"``, which from the third task on weights every parameter by about
one half, so that nothing more is learned."""


@settings_type
class SplitRules:
    """The role of each sequence: training, validation or testing; see ``datasets/skeleton/splits.py``.

    Attributes:
        rule: what determines the roles. ``shares``: the last sequences of each class are for testing, those before them for
            validation; ``x_sub``, ``x_view``, ``x_set``: the published protocol; ``performer`` or ``camera``: those in
            ``test_groups`` are for testing; ``source``: the source; ``list``: the file ``roles``.
        val: share of a class for validation, if ``rule`` and ``val_groups`` select none; 0: none.
        test: share of a class for testing, with ``shares``.
        classes_per_task: number of classes in each task, in the order of the labels.
        val_groups, test_groups: performers or cameras.
        roles: for ``list``: table with columns ``sequence`` and ``role``, or JSON with a list of names for each role.
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
        """Whether some sequences are for validation."""
        return bool(self.val or self.val_groups) or self.rule in ("source", "list")


@settings_type
class OrderCounts:
    """Orders of tasks and classes; see ``datasets/skeleton/orders.py``.

    Attributes:
        tasks: number of tasks.
        classes: number of random class orders.
        task_orders: number of task orders: the default one and random ones; None: all (for up to seven tasks).
    """

    tasks: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=0)]
    task_orders: Annotated[int, Field(ge=1)] | None = None


@settings_type
class GraphNetwork:
    """The network.

    Attributes:
        architecture: ``gcn``, over joints whose features are their coordinates over time; ``st_gcn``; or a reference to a
            function that makes a network: ``make(init, *, sample, adjacency, width, depth)`` for samples (V, F), or with
            ``partitions`` in place of ``adjacency`` for samples (C, T, V). See ``training/graph_streams/nets.py``. With
            several bodies, a sample is one body; see ``network_of`` in ``training/core/build.py``.
        width: units of each graph layer.
        depth: number of graph layers.
        settings: further settings of the network.
    """

    architecture: Annotated[str, OneOf(MODELS)]
    width: Width
    depth: Depth
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])


@settings_type
class TaskSchedule:
    """How a task is trained.

    Attributes:
        epochs: epochs per task.
        learning_rate: learning rate of Adam.
        batch_size: batch size of methods that train one order at a time.
        graph_batch_size: batch size, in sequences, of methods that train several orders together, for training and all other
            passes. None: full batches, as in the paper, whose 100 epochs are then 100 steps per task. Otherwise EWC, MAS, TWP
            and GEM sum their statistics of a past task over batches, each with its own batch-norm statistics.
    """

    epochs: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    batch_size: Positive = 256
    graph_batch_size: Positive | None = None


@settings_type
class Architectures:
    """Architecture sensitivity on the default order.

    Attributes:
        widths: units of a graph layer to try, each at the network's depth.
        depths: numbers of graph layers to try, each at the network's width.
        methods: methods to train; None: all of ``evaluation.methods``.
    """

    widths: list[Width]
    depths: list[Depth]
    methods: Annotated[list[MethodName], Field(min_length=1)] | None = None


@settings_type
class Evaluation:
    """Training and evaluation in many orders of tasks and classes.

    Attributes:
        preset: variant of the methods and the read-out, where CGLB's code differs from the papers.
        methods: methods to train, with their settings in ``settings``. ``joint`` is not trained in several orders, as in the
            paper, since it has all samples in the end; ``train --method joint`` does so anyway, but reports do not count it
            among what depends on orders.
        experiments: experiments that ``benchwright train`` runs by default: ``default`` (the default order), ``task_order``,
            ``class_order``, ``architecture``, and ``grid`` (all of ``grid`` on the default order, to choose by validation).
        repeats: number of trainings of each, with different seeds.
        draws: how often initial weights, memories and batches are drawn in the experiments with several orders.
            ``per_order``: for each order of each repeat, so that orders are independent runs, as in the paper. ``per_repeat``:
            once for each repeat, so that its orders share them, and with them the training of common first tasks: 330 trainings
            of a task instead of 600 for all orders of five. Differences over orders are then smaller, since only the order
            differs.
        network: the network.
        schedule: how a task is trained.
        task_orders: ``all`` task orders, or the number to use: the default order, then random ones.
        class_orders: number of random class orders.
        architectures: widths and depths of the experiment ``architecture``.
        settings: method -> its settings.
        grid: method -> setting -> values; the experiment ``grid`` tries every combination.
        paper: dataset whose column of Table 2 is shown next to the trainings of this run that match the paper's; None: none.
        memory: number of sequences that methods with exemplars keep, if they train one order at a time.
        metrics: your own metrics: see ``pipelines.metrics.measure_by``; for trainings in several orders, the mean over them.
        device: ``cpu`` or ``cuda``.
        orders_per_part: orders trained together, sharing their common first tasks, and lost together in a crash.
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
    draws: Literal["per_order", "per_repeat"] = "per_order"
    settings: dict[MethodName, dict[str, Any]] = Field(default_factory=dict[MethodName, dict[str, Any]])
    grid: dict[MethodName, dict[str, list[Any]]] = Field(default_factory=dict[MethodName, dict[str, list[Any]]])
    paper: Literal["ucla", "ntu"] | None = None
    memory: Positive = 200
    metrics: list[Annotated[str, OneOf(OF_ORDERS)]] = Field(default_factory=list[str])
    device: str = "cpu"
    orders_per_part: Positive = 12


@settings_type
class SkeletonConfig:
    """All settings.

    Attributes:
        seed: seed of the class orders, and of generated sequences.
        source: source of the sequences; ``kind`` selects one of these tables.
        layout: joints of a body and their connections: a packaged layout, or your own.
        tensor: how a sequence becomes an array.
        split: roles of the sequences, and the classes of each task.
        orders: orders of tasks and classes that the dataset lists.
        shards: sizes of shards.
        evaluation: what ``train`` trains, and in which orders.
        bodies: which bodies of a ``.skeleton`` file form the sequence: a preset, or a rule; see
            ``datasets/skeleton/bodies.py``.
        only: protocol -> the side to use, such as ``{x_sub = "train"}``.
        classes: actions to use: names, in the order of their labels; or the number to take, in the dataset's own order;
            ``all`` or None: all, sorted by name.
        max_broken: maximum number of unusable files, or a share below 1.
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
    bodies: BodyPreset | BodyRule = "st_gcn"
    only: dict[NtuProtocol, Side] = Field(default_factory=dict[NtuProtocol, Side])
    classes: Annotated[int, Field(ge=1)] | Literal["all"] | list[str] | None = None
    max_broken: Rejects = 0


def training_settings(e: Evaluation, method: str, tried: Mapping[str, Any], width: int, depth: int) -> dict[str, Any]:
    """Settings of a method's training: ``method``, ``model`` and ``schedule``.

    Args:
        e: settings of the run.
        method: name of the method.
        tried: settings of the method that replace the run's.
        width, depth: width and depth of the network.
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
