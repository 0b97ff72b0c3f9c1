"""Settings of the vCLIMB pipeline. Values that the paper fixes have no default: they are in ``published.toml`` and variants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from ...datasets.kinetics.lists import ID, ListFile
from ...datasets.roles import Role
from ...datasets.vclimb.splits import OnLostRole, RoleRule
from ...eval.metrics.registry import OF_STREAMS
from ...training.baselines.vclimb import CONSISTENT, GROUPS
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf, known_keys
from ..near_duplicates import NearDuplicates
from ..settings_type import settings_type
from ..sources import SOURCES
from ..user_code import OwnSource


@settings_type
class SplitFileSource:
    """A released split file, which gives classes, tasks and roles.

    Attributes:
        path: the file.
        sha256: hexadecimal SHA-256 that the file must have; None: any file in this format.
        max_rejects: maximum number of invalid items, or a share below 1.
    """

    kind: Literal["split_file"]
    path: Location
    sha256: str | None = None
    max_rejects: Rejects = 0


@settings_type
class Ucf101Source:
    """UCF101's official lists.

    Attributes:
        root: folder of the lists.
        split: number of the official split that gives the listed roles, 1 to 3.
        max_rejects: maximum number of invalid lines, or a share below 1.
    """

    kind: Literal["ucf101"]
    root: Location
    split: Annotated[int, Field(ge=1, le=3)] = 1
    max_rejects: Rejects = 0


@settings_type
class ActivityNetSource:
    """ActivityNet's official annotations.

    Attributes:
        path: the JSON file.
        max_rejects: maximum number of invalid entries, or a share below 1; videos without annotations do not count.
    """

    kind: Literal["activitynet"]
    path: Location
    max_rejects: Rejects = 0


@settings_type
class TspSource:
    """ActivityNet as the CSV files of TSP.

    Attributes:
        root: folder of the files.
        files: role -> name of its file.
        max_rejects: maximum number of invalid lines, or a share below 1; segments without an action do not count.
    """

    kind: Literal["activitynet_csv"]
    root: Location
    files: dict[Role, str]
    max_rejects: Rejects = 0


@settings_type
class KineticsSource:
    """Lists of one release of Kinetics.

    Attributes:
        root: folder of the files.
        files: the lists, each with its split.
        max_rejects: maximum number of lines that are invalid or have no label, or a share below 1.
        id_pattern: regular expression that a video id must match in full; by default YouTube's.
    """

    kind: Literal["kinetics"]
    root: Location
    files: Annotated[list[ListFile], Field(min_length=1)]
    max_rejects: Rejects
    id_pattern: str = ID


@settings_type
class VideoFolder:
    """The videos themselves, without a list. ``videos.max_rejects`` limits how many of them may be rejected.

    Attributes:
        layout: ``class_folders``: ``[train/]<class>/<video>``; ``flat``: ``<class>.<extension>``.
    """

    kind: Literal["folder"]
    layout: Literal["class_folders", "flat"]


@settings_type
class CsvSource:
    """A CSV file of clips.

    Attributes:
        path: the file, with columns video, label and, optionally, t_start, t_end (seconds), role, group.
        max_rejects: maximum number of invalid lines, or a share below 1.
    """

    kind: Literal["csv"]
    path: Location
    max_rejects: Rejects = 0


@settings_type
class DrawnVideos:
    """Videos generated from the seed: no file is needed. See ``datasets/vclimb/synthetic.py``.

    Attributes:
        classes: number of classes.
        groups: groups per class.
        clips_per_group: clips per group.
        broken: whether to add two unusable videos.
    """

    kind: Literal["drawn"]
    classes: Annotated[int, Field(ge=2, le=12)]
    groups: Annotated[int, Field(ge=1)]
    clips_per_group: Annotated[int, Field(ge=1)]
    broken: bool = False


VclimbSource = (
    SplitFileSource
    | Ucf101Source
    | ActivityNetSource
    | TspSource
    | KineticsSource
    | VideoFolder
    | CsvSource
    | DrawnVideos
    | OwnSource
)


@settings_type
class Videos:
    """A copy of the videos.

    Attributes:
        root: folder of the videos; None for generated ones.
        names: how lists name the files; see ``datasets/videos/inventory.py``.
        bare: content of a file whose name is only a YouTube id: the ``whole`` video, or the ``clip``.
        form: ``files``, or ``frames``: one folder of pictures per video, as in the released code.
        fps: frame rate of folders of frames: vCLIMB's are at 25 (UCF101) and 30 (ActivityNet).
        max_rejects: maximum number of files and folders that cannot be listed, or a share below 1; hidden ones and those that
            are not videos do not count.
        max_missing: maximum number of clips without a video, or a share below 1.
        max_broken: maximum number of unusable clips, or a share below 1.
        stream: video stream of a file: ``best``, the one that the ffmpeg command would choose, or its number in the file.
        cpu_limit_s: processor time per file, seconds; files that take longer are rejected.
        wall_limit_s: wall-clock time per file, seconds; a file that takes longer stops the run, and is not rejected.
    """

    max_missing: Rejects
    max_broken: Rejects
    max_rejects: Rejects = 0
    root: Location | None = None
    names: Literal["path", "stem", "youtube"] = "path"
    bare: Literal["whole", "clip"] = "whole"
    form: Literal["files", "frames"] = "files"
    fps: Annotated[float, Field(gt=0, le=1000)] | None = None
    stream: Literal["best"] | Annotated[int, Field(ge=0)] = "best"
    cpu_limit_s: Annotated[float, Field(gt=0)] = 600.0
    wall_limit_s: Annotated[float, Field(gt=0)] = 1800.0

    def __post_init__(self) -> None:
        if (self.fps is None) != (self.form == "files"):
            raise ValueError(f"form = {self.form!r} with fps = {self.fps}: folders of frames need a rate, files have their own")


@settings_type
class Untrim:
    """Whole videos in place of their segments; see ``datasets/vclimb/splits.py``.

    Attributes:
        min_coverage: share of a video that its longest segment must exceed.
        several_labels: how videos with several labels are treated: rejected, as in the release, or given the label that lasts
            longest.
        max_rejects: maximum number of rejected videos, or a share below 1; in the published lists 0.15 % are.
    """

    min_coverage: Annotated[float, Field(ge=0)] = 0.0
    several_labels: Literal["reject", "longest"] = "reject"
    max_rejects: Rejects = 0.01


@settings_type
class ClassSplit:
    """Classes, tasks and roles; for a split file, only ``untrim`` is used.

    Attributes:
        tasks: number of tasks.
        roles: ``listed``, ``by_class`` or ``by_group``, or a list of roles: every video is then cut into as many segments.
            Roles are drawn among the usable clips.
        order: order of the classes: ``drawn`` (random), ``sorted``, or a list of their names.
        classes: the classes to use; None: all.
        train_share: share of the groups or clips of a class for training, when roles are drawn.
        val_share: share of them for validation, when roles are drawn.
        untrim: how whole videos replace their segments; None: every segment is a clip.
        on_lost_role: if a class has no usable clip left for a role of ``evaluation.roles``: stop (``error``), or continue
            (``keep``).
    """

    tasks: Annotated[int, Field(ge=1)]
    roles: RoleRule | Annotated[list[Role], Field(min_length=2)]
    order: Literal["drawn", "sorted"] | list[str] = "drawn"
    classes: list[str] | None = None
    train_share: Annotated[float, Field(gt=0, lt=1)] = 0.7
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    untrim: Untrim | None = None
    on_lost_role: OnLostRole = "error"


@settings_type
class Frames:
    """Which frames are stored, and how; see ``curation/video``.

    Attributes:
        kind: ``uniform``, ``segments`` or ``all``.
        n: number of frames; None for ``all``.
        fps: rate at which frames are counted, frames per second; None: the file's own frames.
        min_frames: clips with fewer frames are rejected.
        short_side_px: length of the shorter side after scaling, pixels; None: unscaled.
        jpeg_quality: JPEG quality, 1 to 100.
        decoder: ``pyav`` or ``ffmpeg``, both on the CPU; their frames are identical.
    """

    kind: Literal["uniform", "segments", "all"]
    min_frames: Annotated[int, Field(ge=1)]
    short_side_px: Annotated[int, Field(ge=8)] | None
    jpeg_quality: Annotated[int, Field(ge=1, le=100)]
    n: Annotated[int, Field(ge=1)] | None = None
    fps: Annotated[float, Field(gt=0, le=1000)] | None = None
    decoder: Literal["pyav", "ffmpeg"] = "pyav"


@settings_type
class VclimbEvaluation:
    """Training and evaluation of baselines.

    Attributes:
        dataset: dataset whose settings in the paper are used.
        preset: which to follow where paper and code differ: the paper's text (``as_written``), or its code (``as_released``).
        methods: names of ``training.baselines.vclimb``, of any other method, or references, each optionally with ``+tc`` for
            temporal consistency; or ``table2``, ``table3``, ``table4``, ``supplement_table1``: the rows that the paper's table
            has for ``dataset`` and ``split.tasks``, each with its own frames.
        frames: frames used of a stored clip, one run for each: 4, 8, 16, or ``all``; rows of the paper's tables have their own.
        seeds: seeds, one run for each.
        roles: role for training, role for choosing the epoch (``none``: the last epoch is used), and role that is reported.
        variant: variant of temporal consistency, if not that of ``preset``.
        settings: changes to the paper's settings of all methods, by table: ``schedule``, ``memory``, ``model``, ``view``, and,
            of those with ``+tc``, ``consistency``: ``weight``, and ``frames`` and ``variant`` of the second view.
        method_settings: the same changes for individual methods; methods that are not in the paper have theirs in ``method``.
        model: replaces the paper's model, by name or reference; ``settings.model`` applies only to the paper's.
        model_settings: keyword arguments of ``model``.
        metrics: your own metrics, in addition to the paper's: references of functions, see ``pipelines.metrics.measure_by``.
        weights: file of the model's weights; None: random ones.
        device: ``cpu`` or ``cuda``.
        workers: threads that load batches in advance.
    """

    dataset: Literal["ucf101", "kinetics400", "activitynet_trim", "activitynet_untrim"]
    preset: Literal["as_released", "as_written"]
    methods: Annotated[list[Annotated[str, OneOf(METHODS, GROUPS, CONSISTENT)]], Field(min_length=1)]
    frames: Annotated[list[int | Literal["all"]], Field(min_length=1)]
    seeds: Annotated[list[int], Field(min_length=1)]
    roles: tuple[Role, Role | Literal["none"], Role]
    variant: Literal["as_released", "as_written"] | None = None
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    method_settings: Annotated[dict[str, dict[str, dict[str, Any]]], AfterValidator(known_keys(METHODS, suffix=CONSISTENT))] = (
        Field(default_factory=dict[str, dict[str, dict[str, Any]]])
    )
    model: Annotated[str, OneOf(MODELS)] | None = None
    model_settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    metrics: list[Annotated[str, OneOf(OF_STREAMS)]] = Field(default_factory=list[str])
    weights: Location | None = None
    device: str = "cpu"
    workers: Annotated[int, Field(ge=0)] = 0


@settings_type
class VclimbConfig:
    """All settings.

    Attributes:
        seed: seed of drawn roles and class orders, of the order within shards, and of the frames of ``segments``.
        source: the list of clips; ``kind`` selects one of these tables.
        videos: the video files.
        split: classes, tasks and roles.
        frames: which frames are stored.
        shards: sizes of shards.
        evaluation: what ``train`` trains.
        near_duplicates: clips with near-equal frames; the report lists those across roles. None: off.
        rows_per_part: rows computed, and lost in a crash, together; does not affect results.
    """

    seed: int
    source: Annotated[VclimbSource, ByKind(SOURCES["vclimb"])]
    videos: Videos
    split: ClassSplit
    frames: Frames
    shards: ShardSizes
    evaluation: VclimbEvaluation
    near_duplicates: NearDuplicates | None = None
    rows_per_part: Annotated[int, Field(ge=1)] = 32

    @field_validator("near_duplicates")
    @classmethod
    def _by_hash(cls, near: NearDuplicates | None) -> NearDuplicates | None:
        if near is not None and near.by != "hash":
            raise ValueError("by = 'embedding': clips have no vectors here: by = 'hash'")
        return near
