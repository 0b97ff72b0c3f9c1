"""Settings of the skeleton pipeline. What the paper fixes has no default here: it stands in ``published.toml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...datasets.skeleton.arrays import ArrayFile
from ...datasets.skeleton.bodies import BodyRule
from ...datasets.skeleton.splits import SplitRule
from ...datasets.skeleton.tensors import TensorForm
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind
from ..own import OwnSource
from ..sources import SOURCES
from .evaluation import Evaluation

_STRICT = ConfigDict(extra="forbid")
Side = Literal["train", "test"]
Protocol = Literal["x_sub", "x_view", "x_set"]


@dataclass(frozen=True, config=_STRICT)
class NwuclaSource:
    """N-UCLA's folder of JSON files; ``lists``: CTR-GCN's, whose order then decides what tests.

    See ``datasets/skeleton/nwucla.py``.
    """

    kind: Literal["nwucla"]
    root: Location
    lists: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class NtuSource:
    """NTU RGB+D's folder of ``.skeleton`` files, 60 or 120; see ``datasets/skeleton/ntu.py``.

    Attributes:
        missing: the authors' list of names without skeletons, which do not take part.
    """

    kind: Literal["ntu"]
    root: Location
    missing: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class NtuNamesSource:
    """Names of NTU's sequences alone, one a line: the result is a table of the split, without tensors."""

    kind: Literal["ntu_names"]
    path: Location
    missing: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class ArraySource:
    """Arrays in circulation; see ``datasets/skeleton/arrays.py``.

    Attributes:
        root: their folder.
        files: which of them to read.
        names: of the classes by number: those of a published set, or a list; None: ``class000`` and so on.
        protocol: which one the sides of the files belong to.
    """

    kind: Literal["arrays"]
    root: Location
    files: Annotated[list[ArrayFile], Field(min_length=1)]
    names: Literal["nwucla", "ntu"] | list[str] | None = None
    protocol: Protocol | None = None


@dataclass(frozen=True, config=_STRICT)
class FolderSource:
    """Class folders of one's own ``.npy``, ``.json`` or ``.skeleton`` files; see ``datasets/skeleton/files.py``."""

    kind: Literal["folders"]
    root: Location


@dataclass(frozen=True, config=_STRICT)
class DrawnSource:
    """Sequences drawn from the seed: no file is needed. See ``datasets/skeleton/synthetic.py``."""

    kind: Literal["drawn"]
    per_class: Annotated[int, Field(ge=1, le=10_000)]
    noise_m: Annotated[float, Field(ge=0, le=1)]
    broken: Annotated[int, Field(ge=0)] = 0


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
class SkeletonConfig:
    """All settings.

    Attributes:
        seed: draws the class orders, and sequences that are drawn.
        bodies: of the ``.skeleton`` files that make a sequence: a preset, or a rule; see ``datasets/skeleton/bodies.py``.
        only: protocol -> side that takes part, such as ``{x_sub = "train"}``.
        classes: names of the actions that take part, in the order of their labels; a number: so many of the set, in its own
            order; None: all, by name.
        max_broken: files that cannot be used: a number, or a share below 1.
    """

    seed: int
    source: Annotated[
        NwuclaSource | NtuSource | NtuNamesSource | ArraySource | FolderSource | DrawnSource | OwnSource,
        ByKind(SOURCES["skeleton"]),
    ]
    layout: Annotated[PackagedLayout | DeclaredLayout, Field(discriminator="kind")]
    tensor: TensorForm
    split: SplitRules
    orders: OrderCounts
    shards: ShardSizes
    evaluation: Evaluation
    bodies: Literal["st_gcn", "two_s_agcn", "ctr_gcn", "longest", "most_moving"] | BodyRule = "st_gcn"
    only: dict[Protocol, Side] = Field(default_factory=dict[Protocol, Side])
    classes: Annotated[int, Field(ge=1)] | list[str] | None = None
    max_broken: Rejects = 0
