"""Settings of the vCLIMB pipeline. What the paper fixes has no default: it stands in ``published.toml`` and its variants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator
from pydantic.dataclasses import dataclass

from ...datasets.kinetics.lists import ID, ListFile
from ...datasets.vclimb.splits import OnLostRole, RoleRule
from ...eval.metrics.registry import METRICS
from ...training.baselines.vclimb import CONSISTENT
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf, known_keys
from ..near_duplicates import NearDuplicates
from ..sources import SOURCES
from ..user_code import OwnSource

_STRICT = ConfigDict(extra="forbid")
Role = Literal["train", "val", "test"]


@dataclass(frozen=True, config=_STRICT)
class SplitFileSource:
    """A released split file: it says classes, tasks and roles.

    Attributes:
        path: the file.
        sha256: hexadecimal SHA-256 that the file must have; None: any file of that form.
        max_rejects: items of it that may be bad, or a share below 1.
    """

    kind: Literal["split_file"]
    path: Location
    sha256: str | None = None
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class Ucf101Source:
    """UCF101's official lists.

    Attributes:
        root: folder of the lists.
        split: which of the three official splits gives the listed roles.
        max_rejects: lines of them that may be bad, or a share below 1.
    """

    kind: Literal["ucf101"]
    root: Location
    split: Annotated[int, Field(ge=1, le=3)] = 1
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class ActivityNetSource:
    """ActivityNet's official annotations.

    Attributes:
        path: the JSON file.
        max_rejects: entries that may be bad, or a share below 1; videos without annotation do not count.
    """

    kind: Literal["activitynet"]
    path: Location
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class TspSource:
    """ActivityNet as the CSV files of TSP.

    Attributes:
        root: folder of the files.
        files: role -> name of its file.
        max_rejects: lines that may be bad, or a share below 1; regions without action do not count.
    """

    kind: Literal["activitynet_csv"]
    root: Location
    files: dict[Role, str]
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class KineticsSource:
    """Lists of one release of Kinetics.

    Attributes:
        root: folder of the files.
        files: the lists, each with its split.
        max_rejects: lines of them that may be bad or without a label, or a share below 1.
        id_pattern: regular expression of a whole video id; that of YouTube by default.
    """

    kind: Literal["kinetics"]
    root: Location
    files: Annotated[list[ListFile], Field(min_length=1)]
    max_rejects: Rejects
    id_pattern: str = ID


@dataclass(frozen=True, config=_STRICT)
class VideoFolder:
    """The videos themselves, without a list. How many of them may be rejected is said by ``videos.max_rejects``.

    Attributes:
        layout: ``class_folders``: ``[train/]<class>/<video>``; ``flat``: ``<class>.<extension>``.
    """

    kind: Literal["folder"]
    layout: Literal["class_folders", "flat"]


@dataclass(frozen=True, config=_STRICT)
class CsvSource:
    """A CSV file of clips.

    Attributes:
        path: the file, with columns video, label and, where there are any, t_start, t_end (seconds), role, group.
        max_rejects: lines of it that may be bad, or a share below 1.
    """

    kind: Literal["csv"]
    path: Location
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class DrawnVideos:
    """Videos drawn from the seed: no file is needed. See ``datasets/vclimb/synthetic.py``.

    Attributes:
        classes: number of classes.
        groups: groups per class.
        clips_per_group: clips per group.
        broken: whether to add two unusable ones.
    """

    kind: Literal["drawn"]
    classes: Annotated[int, Field(ge=2, le=12)]
    groups: Annotated[int, Field(ge=1)]
    clips_per_group: Annotated[int, Field(ge=1)]
    broken: bool = False


Source = (
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


@dataclass(frozen=True, config=_STRICT)
class Videos:
    """A copy of the videos.

    Attributes:
        root: their folder; None where they are drawn.
        names: how lists name them; see ``datasets/videos/inventory.py``.
        bare: what a file named by a YouTube id alone holds.
        form: ``files``, or ``frames``: a folder of pictures a video, as the released code reads them.
        fps: of folders of frames, which do not say it: vCLIMB's are at 25 (UCF101) and 30 (ActivityNet).
        max_rejects: files and folders that cannot be listed, or a share below 1; those that are hidden or no videos do not
            count.
        max_missing: clips without a video that may be rejected: rows, or a share below 1.
        max_broken: unusable clips, likewise.
        stream: which stream of a file is the video: ``best``, as the ffmpeg command chooses, or its number in the file.
        cpu_limit_s: seconds of processor time for one file; what takes more is rejected.
        wall_limit_s: seconds of wall clock for one file; after them the run stops, and nothing is rejected.
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


@dataclass(frozen=True, config=_STRICT)
class Untrim:
    """Whole videos in place of their segments; see ``datasets/vclimb/splits.py``.

    Attributes:
        min_coverage: share of a video that its longest segment must exceed.
        several_labels: what becomes of a video with several labels: rejected, as released, or given the one that lasts longest.
        max_rejects: videos that may be rejected, or a share below 1; of the published lists these are 0.15 %.
    """

    min_coverage: Annotated[float, Field(ge=0)] = 0.0
    several_labels: Literal["reject", "longest"] = "reject"
    max_rejects: Rejects = 0.01


@dataclass(frozen=True, config=_STRICT)
class ClassSplit:
    """Classes, tasks and roles; of a split file only ``untrim`` is looked at.

    Attributes:
        tasks: number of tasks.
        roles: ``listed``, ``by_class`` or ``by_group``, or a list of roles: every video is then cut into as many segments.
            Drawn roles are drawn over the clips that can be used.
        order: order of classes: ``drawn`` (random), ``sorted``, or their names.
        classes: the only ones used; None: all.
        train_share: share of the groups or clips of a class that train, where roles are drawn.
        val_share: likewise, share of the validation set.
        untrim: None: every segment is a clip.
        on_lost_role: what to do where a class has no usable clip left of a role of ``evaluation.roles``: stop (``error``), or
            go on (``keep``).
    """

    tasks: Annotated[int, Field(ge=1)]
    roles: RoleRule | Annotated[list[Role], Field(min_length=2)]
    order: Literal["drawn", "sorted"] | list[str] = "drawn"
    classes: list[str] | None = None
    train_share: Annotated[float, Field(gt=0, lt=1)] = 0.7
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    untrim: Untrim | None = None
    on_lost_role: OnLostRole = "error"


@dataclass(frozen=True, config=_STRICT)
class Frames:
    """Which frames are stored, and how; see ``curation/video``.

    Attributes:
        kind: ``uniform``, ``segments`` or ``all``.
        n: number of frames; None for ``all``.
        fps: clock on which they are counted; None: the file's own frames.
        min_frames: clips with fewer are rejected.
        short_side_px: scaled to this shorter side; None: unscaled.
        jpeg_quality: 1 to 100.
        decoder: ``pyav`` or ``ffmpeg``, whose frames are the same; on a processor.
    """

    kind: Literal["uniform", "segments", "all"]
    min_frames: Annotated[int, Field(ge=1)]
    short_side_px: Annotated[int, Field(ge=8)] | None
    jpeg_quality: Annotated[int, Field(ge=1, le=100)]
    n: Annotated[int, Field(ge=1)] | None = None
    fps: Annotated[float, Field(gt=0, le=1000)] | None = None
    decoder: Literal["pyav", "ffmpeg"] = "pyav"


@dataclass(frozen=True, config=_STRICT)
class VclimbEvaluation:
    """Training and evaluation of baselines.

    Attributes:
        dataset: dataset whose settings in the paper are used.
        preset: where paper and code differ.
        methods: names of ``training.baselines.vclimb``, of any other method, or references, each with ``+tc`` for temporal
            consistency on top.
        frames: frames of a stored clip, a run each: 4, 8, 16, or ``all``.
        seeds: a run each.
        roles: which train, choose the epoch (``none``: the last is taken) and are reported.
        variant: variant of temporal consistency, if not the paper's.
        settings: changes to the paper's settings of all methods, by table: ``schedule``, ``memory``, ``model``, ``view``, and,
            of those with ``+tc``, ``consistency``: ``weight``, and ``frames`` and ``variant`` of the second view.
        method_settings: likewise for single methods; those of a method that the paper does not have, in ``method``.
        model: another one than the paper's, by name or reference; ``settings.model`` is of the paper's alone.
        model_settings: its keyword arguments.
        metrics: your own, in addition to the paper's: references of functions, see ``pipelines.metrics.measure_by``.
        weights: file of the model's weights; None: random ones.
        device: ``cpu`` or ``cuda``.
        workers: threads that load batches ahead.
    """

    dataset: Literal["ucf101", "kinetics400", "activitynet_trim", "activitynet_untrim"]
    preset: Literal["as_released", "as_written"]
    methods: Annotated[list[Annotated[str, OneOf(METHODS, suffix=CONSISTENT)]], Field(min_length=1)]
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
    metrics: list[Annotated[str, OneOf(METRICS)]] = Field(default_factory=list[str])
    weights: Location | None = None
    device: str = "cpu"
    workers: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, config=_STRICT)
class VclimbConfig:
    """All settings.

    Attributes:
        seed: draws what a split by rule draws, the order within shards, and frames of ``segments``.
        source: the list of clips.
        videos: the files.
        split: classes, tasks and roles.
        frames: which frames are stored.
        shards: sizes of shards.
        evaluation: what ``train`` trains.
        near_duplicates: clips of near-equal frames, of which the report tells across roles; None: they are not looked for.
        rows_per_part: rows computed, and lost in a crash, together; does not affect results.
    """

    seed: int
    source: Annotated[Source, ByKind(SOURCES["vclimb"])]
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
