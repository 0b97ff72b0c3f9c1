"""Settings of the sources of skeleton sequences, and of their joints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...datasets.skeleton.arrays import ArrayFile
from ...datasets.skeleton.tables import TableColumns
from ..config import Location
from ..settings_type import settings_type

NtuProtocol = Literal["x_sub", "x_view", "x_set"]
OtherJoints = Literal["reject", "leave_out"]


@settings_type
class NwuclaSource:
    """N-UCLA's folder of JSON files; see ``datasets/skeleton/nwucla.py``.

    Attributes:
        root: the folder.
        lists: CTR-GCN's JSON file of lists, whose order determines which sequences are for testing; None: the order of the
            names.
    """

    kind: Literal["nwucla"]
    root: Location
    lists: Location | None = None


@settings_type
class NtuSource:
    """The folder of ``.skeleton`` files of NTU RGB+D 60 or 120; see ``datasets/skeleton/ntu.py``.

    Attributes:
        root: the folder.
        missing: the authors' list of sequences without skeletons, which are excluded.
    """

    kind: Literal["ntu"]
    root: Location
    missing: Location | None = None


@settings_type
class NtuNamesSource:
    """Only the names of NTU's sequences: the result is a table of the split, without tensors.

    Attributes:
        path: text file of the names, one per line.
        missing: the authors' list of sequences without skeletons, which are excluded.
    """

    kind: Literal["ntu_names"]
    path: Location
    missing: Location | None = None


@settings_type
class ArraySource:
    """Files of arrays in the forms that other projects publish; see ``datasets/skeleton/arrays.py``.

    Attributes:
        root: folder of the files.
        files: the files to read.
        names: names of the classes, in the order of their numbers: those of a published dataset, or a list; None:
            ``class000`` and so on.
        protocol: protocol that the sides of the files belong to; not needed with ``split.rule = "source"``.
        labels, pattern: as for ``folders``; sequences without a name are called ``file-train-000000``.
    """

    kind: Literal["arrays"]
    root: Location
    files: Annotated[list[ArrayFile], Field(min_length=1)]
    names: Literal["nwucla", "ntu"] | list[str] | None = None
    protocol: NtuProtocol | None = None
    labels: Location | None = None
    pattern: str | None = None


@settings_type
class FolderSource:
    """Class folders of your own ``.npy``, ``.json``, ``.bvh`` or ``.skeleton`` files; see ``datasets/skeleton/files.py``.

    Attributes:
        root: folder of the class folders.
        labels: table with a column ``sequence`` (the file, with or without its folder and extension), and any of ``class``,
            ``camera``, ``performer``, ``side``.
        pattern: regular expression whose named groups extract these properties from file names: ``(?P<performer>s\\d+)``.
        other_joints: for BVH files: whether joints that are not in the layout cause the file to be rejected, or are left out.
    """

    kind: Literal["folders"]
    root: Location
    labels: Location | None = None
    pattern: str | None = None
    other_joints: OtherJoints = "reject"


@settings_type
class TableSource:
    """Your own joints in CSV or Parquet; see ``datasets/skeleton/tables.py``.

    Attributes:
        path: a table of many sequences, or a folder of tables.
        columns: names of the columns.
        wide: for tables with one row per frame: pattern of the names of the joints' columns, such as ``{joint}_{axis}``, or
            with ``{number}`` for the number of the joint. None: tables have one row per joint.
        delimiter: delimiter of CSV files.
        labels, pattern, other_joints: as for ``folders``.
    """

    kind: Literal["table"]
    path: Location
    columns: TableColumns = Field(default_factory=TableColumns)
    wide: str | None = None
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    labels: Location | None = None
    pattern: str | None = None
    other_joints: OtherJoints = "reject"


@settings_type
class NpzSource:
    """Sequences of different lengths in one ``.npz`` file; see ``datasets/skeleton/archives.py``.

    Attributes:
        path: the file.
        sequences: name of the object array of sequences; None: each array is one sequence, named ``class/name`` or listed in
            ``labels``.
        classes: with ``sequences``: name of the array of their classes.
        names: names of the classes, in the order of their numbers: those of a published dataset, or a list; None:
            ``class000`` and so on.
        labels, pattern: as for ``folders``.
    """

    kind: Literal["npz"]
    path: Location
    sequences: str | None = None
    classes: str | None = None
    names: Literal["nwucla", "ntu"] | list[str] | None = None
    labels: Location | None = None
    pattern: str | None = None


@settings_type
class PysklSource:
    """A pickle of annotations in the format of pyskl, MMPose and MMAction2; see ``datasets/skeleton/archives.py``.

    Attributes:
        path: the pickle.
        names: names of the classes, in the order of their numbers: those of a published dataset, or a list; None:
            ``class000`` and so on.
        sides: ``train``, ``val`` and ``test`` -> name of a list in the pickle's ``split``, such as ``xsub_train``.
        labels, pattern: as for ``folders``.
    """

    kind: Literal["pyskl"]
    path: Location
    names: Literal["nwucla", "ntu"] | list[str] | None = None
    sides: dict[Literal["train", "val", "test"], str] = Field(default_factory=dict[Literal["train", "val", "test"], str])
    labels: Location | None = None
    pattern: str | None = None


@settings_type
class DrawnSource:
    """Sequences generated from the seed: no file is needed. See ``datasets/skeleton/synthetic.py``.

    Attributes:
        per_class: sequences for each of the ten classes.
        noise_m: standard deviation of the sensor's noise, metres.
        broken: number of additional sequences of the first class that contain NaN, and are rejected.
    """

    kind: Literal["drawn"]
    per_class: Annotated[int, Field(ge=1, le=10_000)]
    noise_m: Annotated[float, Field(ge=0, le=1)]
    broken: Annotated[int, Field(ge=0)] = 0


@settings_type
class PackagedLayout:
    """A layout of ``datasets/skeleton/layouts.toml``.

    Attributes:
        name: ``kinect_v1`` has 20 joints (N-UCLA), ``kinect_v2`` 25 (NTU RGB+D), ``openpose`` 18 (Kinetics-Skeleton); the names
            of the others contain the number.
    """

    kind: Literal["packaged"]
    name: Literal["kinect_v1", "kinect_v2", "openpose", "openpose_25", "coco_17", "mediapipe_33", "smpl_24"]


@settings_type
class DeclaredLayout:
    """Your own layout.

    Attributes:
        name: name of the layout in the card.
        joints: names of the joints, in the order of the data.
        edges: pairs of joints, numbered from 0; every joint must be connected.
        centre: number of the joint from which ST-GCN's partitions measure distance; all bones point to it.
    """

    kind: Literal["declared"]
    name: str
    joints: list[str]
    edges: list[tuple[int, int]]
    centre: int


@settings_type
class BvhLayout:
    """The layout of a BVH file: its joints without the end sites, with the root as the centre.

    Attributes:
        file: the BVH file.
    """

    kind: Literal["bvh"]
    file: Location
