"""Settings of the skeleton pipeline. What the paper fixes has no default here: it stands in ``skeleton.toml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..datasets.skeleton.splits import SplitRule
from ..datasets.skeleton.tensors import TensorForm
from .config import Location
from .skeleton_experiments import Evaluation

_STRICT = ConfigDict(extra="forbid")
Side = Literal["train", "test"]


@dataclass(frozen=True, config=_STRICT)
class NwuclaSource:
    """N-UCLA's folder of JSON files; see ``datasets/skeleton/nwucla.py``."""

    kind: Literal["nwucla"]
    root: Location


@dataclass(frozen=True, config=_STRICT)
class PackagedLayout:
    """A layout of ``datasets/skeleton/layouts.toml``."""

    kind: Literal["packaged"]
    name: Literal["kinect_v1", "kinect_v2", "openpose"]


@dataclass(frozen=True, config=_STRICT)
class DeclaredLayout:
    """A layout of one's own.

    Attributes:
        name: what it is called in the card.
        joints: names, in the order of the data.
        edges: pairs of joints, numbered from 0; they connect all.
        centre: joint from which ST-GCN's partitions count distance; bones lead to it.
    """

    kind: Literal["declared"]
    name: str
    joints: list[str]
    edges: list[tuple[int, int]]
    centre: int


@dataclass(frozen=True, config=_STRICT)
class SplitRules:
    """What a sequence is for; see ``datasets/skeleton/splits.py``.

    Attributes:
        rule: ``shares``, or a published protocol.
        val: share of a class that validates. test: that tests, for ``shares``.
        classes_per_task: in the order of the labels.
    """

    rule: SplitRule
    val: Annotated[float, Field(ge=0, lt=1)]
    test: Annotated[float, Field(ge=0, lt=1)]
    classes_per_task: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_STRICT)
class OrderCounts:
    """Orders of learning: all of ``tasks`` tasks, and ``classes`` drawn orders of the classes."""

    tasks: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=_STRICT)
class ShardSizes:
    """A shard holds sequences of one task and role, ``max_samples`` at most."""

    max_samples: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_STRICT)
class SkeletonConfig:
    """All settings.

    Attributes:
        seed: draws the class orders, and sequences that are drawn.
        only: protocol -> side that takes part, such as ``{x_sub = "train"}``.
        classes: names of the actions that take part, in the order of their labels; None: all, by name.
        max_broken: files that cannot be used: a number, or a share below 1.
    """

    seed: int
    source: NwuclaSource
    layout: Annotated[PackagedLayout | DeclaredLayout, Field(discriminator="kind")]
    tensor: TensorForm
    split: SplitRules
    orders: OrderCounts
    shards: ShardSizes
    evaluation: Evaluation
    only: dict[Literal["x_sub", "x_view", "x_set"], Side] = Field(
        default_factory=dict[Literal["x_sub", "x_view", "x_set"], Side]
    )
    classes: list[str] | None = None
    max_broken: float = 0
