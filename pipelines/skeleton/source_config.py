"""Settings of where skeleton sequences come from, and of the joints that they have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...datasets.skeleton.arrays import ArrayFile
from ...datasets.skeleton.tables import TableColumns
from ..config import Location

_STRICT = ConfigDict(extra="forbid")
Protocol = Literal["x_sub", "x_view", "x_set"]
OtherJoints = Literal["reject", "leave_out"]


@dataclass(frozen=True, config=_STRICT)
class NwuclaSource:
    """N-UCLA's folder of JSON files; see ``datasets/skeleton/nwucla.py``.

    Attributes:
        root: the folder.
        lists: CTR-GCN's JSON file of lists, whose order then decides what tests; None: the order of the names.
    """

    kind: Literal["nwucla"]
    root: Location
    lists: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class NtuSource:
    """NTU RGB+D's folder of ``.skeleton`` files, 60 or 120; see ``datasets/skeleton/ntu.py``.

    Attributes:
        root: the folder.
        missing: the authors' list of names without skeletons, which do not take part.
    """

    kind: Literal["ntu"]
    root: Location
    missing: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class NtuNamesSource:
    """Names of NTU's sequences alone: the result is a table of the split, without tensors.

    Attributes:
        path: text file of the names, one a line.
        missing: the authors' list of names without skeletons, which do not take part.
    """

    kind: Literal["ntu_names"]
    path: Location
    missing: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class ArraySource:
    """Arrays in circulation; see ``datasets/skeleton/arrays.py``.

    Attributes:
        root: folder of the files.
        files: which of them to read.
        names: of the classes by number: those of a published set, or a list; None: ``class000`` and so on.
        protocol: which one the sides of the files belong to; with ``split.rule = "source"`` none is needed.
        labels, pattern: as of ``folders``; sequences without a name are called ``file-train-000000``.
    """

    kind: Literal["arrays"]
    root: Location
    files: Annotated[list[ArrayFile], Field(min_length=1)]
    names: Literal["nwucla", "ntu"] | list[str] | None = None
    protocol: Protocol | None = None
    labels: Location | None = None
    pattern: str | None = None


@dataclass(frozen=True, config=_STRICT)
class FolderSource:
    """Class folders of one's own ``.npy``, ``.json``, ``.bvh`` or ``.skeleton`` files; see ``datasets/skeleton/files.py``.

    Attributes:
        root: folder of the class folders.
        labels: table with a column ``sequence`` (the file, with or without its folder and ending), and some of ``class``,
            ``camera``, ``performer``, ``side``.
        pattern: regular expression whose named groups find the same in the names of files: ``(?P<performer>s\\d+)``.
        other_joints: of BVH files, whether joints that the layout does not have reject the file, or are left out.
    """

    kind: Literal["folders"]
    root: Location
    labels: Location | None = None
    pattern: str | None = None
    other_joints: OtherJoints = "reject"


@dataclass(frozen=True, config=_STRICT)
class TableSource:
    """One's own joints in CSV or Parquet; see ``datasets/skeleton/tables.py``.

    Attributes:
        path: a table of many sequences, or a folder of tables.
        columns: names of its columns.
        wide: of tables with a row a frame: how the columns of the joints are called, such as ``{joint}_{axis}``, or with
            ``{number}`` for the number of the joint. None: tables with a row a joint.
        delimiter: of CSV files.
        labels, pattern, other_joints: as of ``folders``.
    """

    kind: Literal["table"]
    path: Location
    columns: TableColumns = Field(default_factory=TableColumns)
    wide: str | None = None
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    labels: Location | None = None
    pattern: str | None = None
    other_joints: OtherJoints = "reject"


@dataclass(frozen=True, config=_STRICT)
class NpzSource:
    """Sequences of different lengths in one ``.npz`` file; see ``datasets/skeleton/archives.py``.

    Attributes:
        path: the file.
        sequences: array of objects that holds them; None: each array is one, called ``class/name`` or found in ``labels``.
        classes: with ``sequences``, the array of their classes.
        names: of the classes by number: those of a published set, or a list; None: ``class000`` and so on.
        labels, pattern: as of ``folders``.
    """

    kind: Literal["npz"]
    path: Location
    sequences: str | None = None
    classes: str | None = None
    names: Literal["nwucla", "ntu"] | list[str] | None = None
    labels: Location | None = None
    pattern: str | None = None


@dataclass(frozen=True, config=_STRICT)
class PysklSource:
    """A pickle of annotations as pyskl, MMPose and MMAction2 write it; see ``datasets/skeleton/archives.py``.

    Attributes:
        path: the pickle.
        names: of the classes by number: those of a published set, or a list; None: ``class000`` and so on.
        sides: ``train``, ``val`` and ``test``, each the name of a list in the pickle's ``split``, such as ``xsub_train``.
        labels, pattern: as of ``folders``.
    """

    kind: Literal["pyskl"]
    path: Location
    names: Literal["nwucla", "ntu"] | list[str] | None = None
    sides: dict[Literal["train", "val", "test"], str] = Field(default_factory=dict[Literal["train", "val", "test"], str])
    labels: Location | None = None
    pattern: str | None = None


@dataclass(frozen=True, config=_STRICT)
class DrawnSource:
    """Sequences drawn from the seed: no file is needed. See ``datasets/skeleton/synthetic.py``.

    Attributes:
        per_class: sequences of each of the ten classes.
        noise_m: standard deviation of the sensor's noise, metres.
        broken: further sequences of the first class that hold NaN, and are rejected.
    """

    kind: Literal["drawn"]
    per_class: Annotated[int, Field(ge=1, le=10_000)]
    noise_m: Annotated[float, Field(ge=0, le=1)]
    broken: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, config=_STRICT)
class PackagedLayout:
    """A layout of ``datasets/skeleton/layouts.toml``.

    Attributes:
        name: ``kinect_v1`` has 20 joints (N-UCLA), ``kinect_v2`` 25 (NTU RGB+D), ``openpose`` 18 (Kinetics-Skeleton); of the
            others the number is in the name.
    """

    kind: Literal["packaged"]
    name: Literal["kinect_v1", "kinect_v2", "openpose", "openpose_25", "coco_17", "mediapipe_33", "smpl_24"]


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
class BvhLayout:
    """The layout of a BVH file: its joints without their ends, and the root as the centre.

    Attributes:
        file: the BVH file.
    """

    kind: Literal["bvh"]
    file: Location
