"""Settings of the CLEAR pipeline. What the paper fixes has no default here: it stands in ``published.toml``."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from ...curation.encoders.spec import ENCODERS, Colours, Conse, OpenClip
from ...curation.qa.options import Option, check_options, text_rule
from ...curation.qa.rounds import POOL, ErrorRates
from ...curation.stages.buckets import BucketLimits, checked_limits
from ...curation.stages.decode import MAX_PIXELS, PILLOW_MAX_PIXELS
from ...curation.stages.fetch import FetchLimits, FetchPace
from ...curation.stages.overlap import Rule
from ...datasets.yfcc100m.fields import EXTRA
from ...eval.metrics.registry import METRICS
from ...training.baselines.clear import groups, paper_methods, presets
from ...training.methods.registry import METHODS
from ...training.moco.settings import moco_presets, moco_settings
from ...training.models.registry import MODELS
from ..config import Location, Rejects, ShardSizes
from ..errors import did_you_mean
from ..feature_sets import FeatureSet, FeatureSets
from ..names import ByKind, OneOf, known_keys
from ..own import OwnEncoder, OwnSource
from ..sources import SOURCES

_STRICT = ConfigDict(extra="forbid")
Chance = Annotated[float, Field(ge=0, le=1)]


def _shown(text: str) -> str:
    if text and (rule := text_rule(text)):
        raise ValueError(rule)
    return text


def _time(text: str) -> str:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is not None:
        raise ValueError("it should be a time such as 2007-04-09 03:27:17, without a time zone")
    return text


Shown = Annotated[str, AfterValidator(_shown)]
"""Text that annotators read, or nothing."""

Time = Annotated[str, AfterValidator(_time)]


@dataclass(frozen=True, config=_STRICT)
class FolderSource:
    """A folder of images; dates from EXIF, or from a CSV file with columns ``file``, ``date_taken`` and labels."""

    kind: Literal["folder"]
    root: Location
    dates_csv: Location | None = None
    name: str = "folder"


@dataclass(frozen=True, config=_STRICT)
class TarSource:
    """A folder of tars of images, plain or WebDataset."""

    kind: Literal["tars"]
    root: Location
    form: Literal["plain", "webdataset"] = "plain"
    name: str = "tars"


@dataclass(frozen=True, config=_STRICT)
class DrawnSource:
    """Pictures drawn from the seed, each in the colour that its class names: for trying things without any file."""

    kind: Literal["drawn"]
    count: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_STRICT)
class DownloadLimits:
    """Where downloads may lead, see ``FetchLimits``; how many bytes a file may have is for ``Images`` to say, of any source."""

    max_redirects: Annotated[int, Field(ge=0)] = FetchLimits.max_redirects
    allow_private_hosts: bool = FetchLimits.allow_private_hosts
    gone_urls: tuple[str, ...] = FetchLimits.gone_urls


@dataclass(frozen=True, config=_STRICT)
class YfccSource:
    """YFCC100M: metadata in one of its forms; images downloaded, or read from a folder where ``images_root`` is given.

    ``extra`` names further columns of the metadata, such as ``title`` and ``user_tags``, for the index of the shards.
    """

    kind: Literal["yfcc100m"]
    metadata: Location
    images_root: Location | None = None
    images_path: str = "{key}.{extension}"
    licences: list[str] | None = None
    extra: list[Literal[EXTRA]] = Field(default_factory=list)  # pyright: ignore[reportInvalidTypeForm]  # names of columns
    limits: DownloadLimits = Field(default_factory=DownloadLimits)
    pace: FetchPace = Field(default_factory=FetchPace)


@dataclass(frozen=True, config=_STRICT)
class Images:
    """Which images are taken, from any source.

    ``max_rejects`` is the budget of every stage that meets bad input: rows, or a share below 1.
    """

    max_rejects: Rejects
    min_bytes: Annotated[int, Field(ge=0)] = 1
    max_bytes: Annotated[int, Field(ge=1)] = 100_000_000
    max_pixels: Annotated[int, Field(ge=1, le=PILLOW_MAX_PIXELS)] = MAX_PIXELS
    min_edge_px: Annotated[int, Field(ge=1)] = 1
    max_aspect: Annotated[float, Field(gt=0)] | None = None
    drop_duplicates: bool = False
    take_first: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, config=_STRICT)
class EqualCountBuckets:
    """Buckets of equal count."""

    kind: Literal["equal_count"]
    count: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_STRICT)
class CalendarBuckets:
    """A bucket a year or a month."""

    kind: Literal["calendar"]
    period: Literal["year", "month"]


@dataclass(frozen=True, config=_STRICT)
class TimeLimits:
    """First and last time of a bucket, both in it."""

    start: Time
    end: Time


@dataclass(frozen=True, config=_STRICT)
class LimitedBuckets:
    """Buckets between given times."""

    kind: Literal["limits"]
    limits: Annotated[list[TimeLimits], Field(min_length=1)]

    def __post_init__(self) -> None:
        checked_limits([BucketLimits(each.start, each.end) for each in self.limits])


@dataclass(frozen=True, config=_STRICT)
class PublishedBuckets:
    """The eleven buckets of CLEAR-10, by their published limits."""

    kind: Literal["clear10"]


@dataclass(frozen=True, config=_STRICT)
class Buckets:
    """Time buckets. ``by`` is the column of times; buckets below ``first_labelled`` are retrieved but not labelled."""

    by: str
    rule: Annotated[EqualCountBuckets | CalendarBuckets | LimitedBuckets | PublishedBuckets, Field(discriminator="kind")]
    first_labelled: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, config=_STRICT)
class EncoderRun:
    """Where an encoder's weights lie and where it runs; what it is stands in ``encoder``. Vectors may be ``stored`` in half."""

    checkpoint: Location = ""
    device: str = "cpu"
    stored: Literal["float32", "float16"] = "float32"


@dataclass(frozen=True, config=_STRICT)
class Class:
    """A class: its name, its prompts, and the option that annotators read."""

    name: Annotated[Shown, Field(min_length=1)]
    prompts: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    option: Shown = ""
    hint: Shown = ""

    def as_option(self) -> Option:
        """What annotators choose for it."""
        return Option(self.option or self.name, self.name if self.option else "", self.hint)


@dataclass(frozen=True, config=_STRICT)
class Rates(ErrorRates):
    """Chances of a wrong answer of simulated annotators; the first three exclude one another."""

    none: Chance = 0.05
    extra: Chance = 0.04
    wrong: Chance = 0.03
    sensitive: Chance = 0.0

    def __post_init__(self) -> None:
        if self.none + self.extra + self.wrong > 1:
            raise ValueError(f"none + extra + wrong = {self.none + self.extra + self.wrong:g}: it should be at most 1")


@dataclass(frozen=True, config=_STRICT)
class Qa:
    """Annotators.

    ``votes``: ``imported`` by a person, ``simulated`` from the label ``truth`` of the source, or ``none``. Images that the
    packaged model scores above ``max_sensitive_score`` (0 to 1) are not shown to them.
    """

    votes: Literal["imported", "simulated", "none"]
    workers: Annotated[int, Field(ge=1)] = 3
    majority: Annotated[int, Field(ge=1)] = 2
    sensitive: Literal["as_released", "as_written"] | Annotated[int, Field(strict=True, ge=1)] = "as_released"
    rule: Literal["majority_exact", "draft"] = "majority_exact"
    max_sensitive_score: Chance | None = None
    truth: str = "true_class"
    errors: Rates = Field(default_factory=Rates)

    def __post_init__(self) -> None:
        if self.votes == "simulated" and self.workers > POOL:
            raise ValueError(f"workers = {self.workers}: there are {POOL} simulated annotators")
        if self.votes != "none" and not self.workers < 2 * self.majority <= 2 * self.workers:
            raise ValueError(f"majority = {self.majority}: it should be more than half of {self.workers} workers, and no more")
        if isinstance(self.sensitive, int) and self.sensitive > self.workers:
            raise ValueError(f"sensitive = {self.sensitive}: it should be at most the number of workers, {self.workers}")


@dataclass(frozen=True, config=_STRICT)
class FinalChoice:
    """Final choice: how many images a class and bucket, and how they are chosen."""

    per_class: Annotated[int, Field(ge=1)]
    method: Literal["random", "top_score"]
    on_shortage: Literal["keep", "error"] = "error"


@dataclass(frozen=True, config=_STRICT)
class Splits:
    """The five iid splits: ``as_released`` as the released lists, ``as_written`` stratified by class."""

    rule: Literal["as_released", "as_written"]
    test_share: Annotated[float, Field(gt=0, lt=1)]


def _preset(name: str) -> str:
    if name not in presets():
        raise ValueError(f"there are {', '.join(presets())}{did_you_mean(name, presets())}")
    return name


def _pretraining_preset(name: str) -> str:
    if name not in moco_presets():
        raise ValueError(f"there are {', '.join(moco_presets())}{did_you_mean(name, moco_presets())}")
    return name


@dataclass(frozen=True, config=_STRICT)
class Baselines:
    """Which baselines ``train`` runs by default.

    Attributes:
        preset: hyper-parameters and model of the paper.
        methods: by name, or groups of them such as ``table1``; ``method_settings`` has changes of single ones.
        model: another one than the preset's, by name or reference; ``model_settings`` are its own.
        features: what is learned from: "embedding", the vectors by which the images were retrieved; the name of a feature set;
            or "pixels". By default what the preset learns from.
        view: how pictures are looked at, where they are learned from: changes of the preset's ``PictureView``.
        weights: of the model: a file, or ``hub://NAME``, which torchvision or timm publishes (of the model ``backbone``).
        workers: threads that load batches ahead; changes the speed only.
        metrics: of your own, beside the paper's: references of functions, see ``pipelines.metrics.measure_by``.
        epochs: this, and what follows, in place of the preset's, see ``training.core.schedule``.
    """

    preset: Annotated[str, AfterValidator(_preset)]
    methods: list[Annotated[str, OneOf(METHODS, (*groups(), *paper_methods()))]]
    method_settings: Annotated[dict[str, dict[str, Any]], AfterValidator(known_keys(METHODS, paper_methods()))] = Field(
        default_factory=dict[str, dict[str, Any]]
    )
    model: Annotated[str, OneOf(MODELS)] | None = None
    model_settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    features: str | None = None
    view: dict[str, Any] = Field(default_factory=dict[str, Any])
    weights: Location | None = None
    workers: Annotated[int, Field(ge=0)] = 0
    metrics: list[Annotated[str, OneOf(METRICS)]] = Field(default_factory=list[str])
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    decay_after_epochs: Annotated[int, Field(ge=1)] | None = None
    decay_every_epochs: Annotated[int, Field(ge=1)] | None = None
    mixed_precision: bool | None = None
    compile: bool | None = None

    def __post_init__(self) -> None:
        if self.decay_after_epochs is not None and self.decay_every_epochs is not None:
            raise ValueError("decay_after_epochs or decay_every_epochs: one of them")


@dataclass(frozen=True, config=_STRICT)
class Unlabelled:
    """Which buckets are published whole and without labels beside the dataset, for pre-training: numbers, or "all"."""

    buckets: list[Annotated[int, Field(ge=0)]] | Literal["all"] = Field(default_factory=list[int])


@dataclass(frozen=True, config=_STRICT)
class Pretraining:
    """How ``train --protocol pretrain`` learns from images without labels.

    Attributes:
        preset: settings by name: "moco_v2".
        settings: changes of them, by the names of ``training.moco.settings.MocoSettings``; ``view`` is a table of its own.
        seed: of all draws.
        workers: threads that load pictures ahead; changes the speed only, as does what follows.
        checkpoint_minutes: time between two checkpoints.
    """

    preset: Annotated[str, AfterValidator(_pretraining_preset)] = "moco_v2"
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    seed: int = 0
    workers: Annotated[int, Field(ge=0)] = 0
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 10

    def __post_init__(self) -> None:
        try:
            moco_settings(self.preset, self.settings)
        except ValueError as error:
            raise ValueError(f"settings: {error}") from None


@dataclass(frozen=True, config=_STRICT)
class ClearConfig:
    """All settings. ``seed`` draws the final choice and the simulated votes; ``features`` are by name, see ``feature_sets``."""

    seed: int
    source: Annotated[FolderSource | TarSource | YfccSource | DrawnSource | OwnSource, ByKind(SOURCES["clear"])]
    images: Images
    buckets: Buckets
    encoder: Annotated[OpenClip | Conse | Colours | OwnEncoder, ByKind(ENCODERS)]
    retrieval: Rule
    classes: Annotated[list[Class], Field(min_length=1)]
    qa: Qa
    choice: FinalChoice
    splits: Splits
    baselines: Baselines
    features: FeatureSets = Field(default_factory=dict[str, FeatureSet])
    encoder_run: EncoderRun = Field(default_factory=EncoderRun)
    unlabelled: Unlabelled = Field(default_factory=Unlabelled)
    pretraining: Pretraining = Field(default_factory=Pretraining)
    shards: ShardSizes = Field(default_factory=lambda: ShardSizes(1000))
    rows_per_part: Annotated[int, Field(ge=1)] = 256

    @field_validator("classes")
    @classmethod
    def _names_of_their_own(cls, classes: list[Class], others: ValidationInfo) -> list[Class]:
        if "retrieval" in others.data:
            check_options([each.as_option() for each in classes], background=others.data["retrieval"].background)
        return classes
