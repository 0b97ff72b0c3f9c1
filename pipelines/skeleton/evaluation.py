"""Settings of the experiments on skeleton graphs: ``[evaluation]`` of ``published.toml`` and its variants.

Paper: order sensitivity and architecture sensitivity of continual graph learning, PROTOCOLS.md 5.3 to 5.5.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid")

Method = Literal["bare", "joint", "ewc", "mas", "twp", "lwf", "gem", "replay"]
Experiment = Literal["default", "task_order", "class_order", "architecture", "grid"]
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_STRICT)
class Network:
    """What learns.

    Attributes:
        architecture: ``gcn`` over joints whose features are their coordinates over time, or ``st_gcn``.
        width: units of each graph layer.
        depth: graph layers.
    """

    architecture: Literal["gcn", "st_gcn"]
    width: Positive
    depth: Positive


@dataclass(frozen=True, config=_STRICT)
class Schedule:
    """Full batches; ``epochs`` a task, Adam's ``learning_rate``."""

    epochs: Positive
    learning_rate: Annotated[float, Field(gt=0)]


@dataclass(frozen=True, config=_STRICT)
class Architectures:
    """Architecture sensitivity on the default order: each width at the network's depth, each depth at its width.

    ``methods``: None: all of the evaluation.
    """

    widths: list[Positive]
    depths: list[Positive]
    methods: Annotated[list[Method], Field(min_length=1)] | None = None


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
        paper: whose figures of Table 2 stand beside this run's; None: data or settings are not the paper's.
        device: ``cpu`` or ``cuda``.
        workers: processes that train side by side.
        orders_per_part: orders that are trained together, sharing their common beginnings; a kill costs as many.
    """

    preset: Literal["as_released", "as_written"]
    methods: Annotated[list[Method], Field(min_length=1)]
    experiments: Annotated[list[Experiment], Field(min_length=1)]
    repeats: Positive
    network: Network
    schedule: Schedule
    task_orders: Literal["all"] | Positive
    class_orders: Positive
    architectures: Architectures
    settings: dict[Method, dict[str, Any]] = Field(default_factory=dict[Method, dict[str, Any]])
    grid: dict[Method, dict[str, list[Any]]] = Field(default_factory=dict[Method, dict[str, list[Any]]])
    paper: Literal["ucla", "ntu"] | None = None
    device: str = "cpu"
    workers: Positive = 1
    orders_per_part: Positive = 12
