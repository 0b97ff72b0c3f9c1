"""Settings of the CLEAR pipeline. What the paper fixes has no default here: it stands in ``published.toml``."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from ...curation.encoders.spec import ENCODERS, Colours, Conse, OpenClip
from ...curation.qa.options import Option, check_options, text_rule
from ...curation.qa.rounds import POOL, ErrorRates
from ...curation.stages.buckets import BucketLimits, checked_limits
from ...curation.stages.decode import MAX_PIXELS, PILLOW_MAX_PIXELS
from ...curation.stages.overlap import Rule
from ...datasets.clear.facts import RELEASED, published_limits
from ...eval.metrics.registry import METRICS
from ...training.baselines.clear import groups, paper_methods, presets
from ...training.methods.registry import METHODS
from ...training.moco.settings import moco_presets, moco_settings
from ...training.models.registry import MODELS
from ..blurring import Blurring
from ..config import Location, Rejects, ShardSizes
from ..errors import did_you_mean
from ..feature_sets import FeatureSet, FeatureSets
from ..names import ByKind, OneOf, known_keys
from ..near_duplicates import NearDuplicates
from ..own import OwnEncoder, OwnSource, shown
from ..sources import SOURCES
from .source_config import DrawnSource, FolderSource, LabelledSource, ReleaseSource, TarSource, YfccSource

_STRICT = ConfigDict(extra="forbid")
_OF_SOURCE: Any = Field(default=None, validate_default=True)
"""A section that some sources need and others have no use for."""

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
class Images:
    """Which images are taken, from any source.

    Attributes:
        max_rejects: the budget of every stage that meets bad input: rows, or a share below 1.
        min_bytes: smaller files are rejected.
        max_bytes: larger files are rejected.
        max_pixels: width times height above this is rejected before it is decoded.
        min_edge_px: length of the shorter edge, below which an image is rejected.
        max_aspect: longer edge by shorter edge, above which an image is rejected.
        drop_duplicates: whether to reject all but the first of images whose bytes are equal.
        take_first: how many usable images are taken, in the order of the source; all by default.
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
    """Buckets of equal count.

    Attributes:
        count: of buckets.
    """

    kind: Literal["equal_count"]
    count: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_STRICT)
class CalendarBuckets:
    """A bucket a year or a month.

    Attributes:
        period: what a bucket spans.
    """

    kind: Literal["calendar"]
    period: Literal["year", "month"]


@dataclass(frozen=True, config=_STRICT)
class TimeLimits:
    """First and last time of a bucket, both in it.

    Attributes:
        start: the first, such as 2007-04-09 03:27:17.
        end: the last.
    """

    start: Time
    end: Time


@dataclass(frozen=True, config=_STRICT)
class LimitedBuckets:
    """Buckets between given times.

    Attributes:
        limits: of each bucket, in order of time.
    """

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
    """Time buckets.

    Attributes:
        by: the column of times.
        rule: how the times are divided.
        first_labelled: buckets below this number are retrieved but not labelled.
    """

    by: str
    rule: Annotated[EqualCountBuckets | CalendarBuckets | LimitedBuckets | PublishedBuckets, Field(discriminator="kind")]
    first_labelled: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, config=_STRICT)
class EncoderRun:
    """Where an encoder's weights lie and where it runs; what it is stands in ``encoder``.

    Attributes:
        checkpoint: file of weights, where the encoder takes one.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        stored: how vectors are stored: whole, or in half the space.
    """

    checkpoint: Location = ""
    device: str = "cpu"
    stored: Literal["float32", "float16"] = "float32"


@dataclass(frozen=True, config=_STRICT)
class Class:
    """A class: its name, its prompts, and the option that annotators read.

    Attributes:
        name: in labels and lists.
        prompts: texts that retrieve its images.
        option: what annotators choose; by default the name.
        hint: what the form adds in brackets.
    """

    name: Annotated[Shown, Field(min_length=1)]
    prompts: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    option: Shown = ""
    hint: Shown = ""

    def as_option(self) -> Option:
        """What annotators choose for it."""
        return Option(self.option or self.name, self.name if self.option else "", self.hint)


@dataclass(frozen=True, config=_STRICT)
class Rates(ErrorRates):
    """Chances of a wrong answer of simulated annotators; the first three exclude one another.

    Attributes:
        none: of "None of the above" in place of the class.
        extra: of a second class beside the right one.
        wrong: of another class.
        sensitive: of a Yes to the question about sensitive content.
    """

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

    Attributes:
        votes: ``imported`` from people, ``simulated`` from the column ``truth``, or ``none``.
        workers: who are asked about each image.
        majority: votes that an image needs for its class.
        sensitive: votes of Yes that drop an image: a number, ``as_released`` (one) or ``as_written`` (all).
        rule: ``majority_exact``, or ``draft``, the rule of the authors' draft script.
        max_sensitive_score: images that the packaged model scores above this (0 to 1) are not shown to annotators.
        truth: column of the right classes, for simulated annotators.
        errors: chances of their wrong answers.
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
    """Final choice: how many images a class and bucket, and how they are chosen.

    Attributes:
        per_class: images of each class and bucket.
        method: drawn from the seed, or the best of the retrieval.
        on_shortage: where there are fewer: ``keep`` what there is, with a warning, or stop with an ``error``.
    """

    per_class: Annotated[int, Field(ge=1)]
    method: Literal["random", "top_score"]
    on_shortage: Literal["keep", "quiet", "error"] = "error"


@dataclass(frozen=True, config=_STRICT)
class Splits:
    """The five iid splits.

    Attributes:
        rule: ``as_released`` as the released lists, ``as_written`` stratified by class.
        test_share: share of the images that test.
    """

    rule: Literal["as_released", "as_written"]
    test_share: Annotated[float, Field(gt=0, lt=1)]


def _among(there: Sequence[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in there:
            raise ValueError(f"there are {', '.join(there)}{did_you_mean(name, there)}")
        return name

    return check


@dataclass(frozen=True, config=_STRICT)
class Baselines:
    """Which baselines ``train`` runs by default.

    Attributes:
        preset: hyper-parameters and model of the paper.
        methods: by name, or groups of them such as ``table1``.
        method_settings: changes of single ones, by their names.
        model: another one than the preset's, by name or reference.
        model_settings: its keyword arguments.
        features: what is learned from: "embedding", the vectors by which the images were retrieved; the name of a feature set;
            or "pixels". By default what the preset learns from, and of a release without ``encoder``, in place of
            "embedding", the first of ``source.features``.
        view: how pictures are looked at, where they are learned from: changes of the preset's ``PictureView``.
        weights: of the model: a file, or ``hub://NAME``, which torchvision or timm publishes (of the model ``backbone``).
        workers: threads that load batches ahead; changes the speed only.
        metrics: of your own, beside the paper's: references of functions, see ``pipelines.metrics.measure_by``.
        epochs: this, and what follows, in place of the preset's, see ``training.core.schedule``.
        batch_size: samples a step.
        learning_rate: of the first epoch.
        decay_after_epochs: the epoch after which the rate falls to a tenth, once.
        decay_every_epochs: or the number of epochs after each of which it does.
        mixed_precision: float16 where that is safe; on GPUs.
        compile: ``torch.compile``; results differ in their last bits.
    """

    preset: Annotated[str, AfterValidator(_among(presets()))]
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
    """What is published whole and without labels beside the dataset, for pre-training.

    Attributes:
        buckets: numbers of buckets, or "all".
    """

    buckets: list[Annotated[int, Field(ge=0)]] | Literal["all"] = Field(default_factory=list[int])


@dataclass(frozen=True, config=_STRICT)
class PretrainingSettings:
    """How ``train --protocol pretrain`` learns from images without labels.

    Attributes:
        preset: settings by name: "moco_v2".
        settings: changes of them, by the names of ``training.moco.settings.MocoSettings``; ``view`` is a table of its own.
        seed: of all draws.
        workers: threads that load pictures ahead; changes the speed only, as does what follows.
        checkpoint_minutes: time between two checkpoints.
    """

    preset: Annotated[str, AfterValidator(_among(moco_presets()))] = "moco_v2"
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    seed: int = 0
    workers: Annotated[int, Field(ge=0)] = 0
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 10

    def __post_init__(self) -> None:
        try:
            moco_settings(self.preset, self.settings)
        except ValueError as error:
            raise ValueError(f"settings: {error}") from None


@dataclasses.dataclass(frozen=True)
class LabelRecipe:
    """How the images of a source without labels are given them: the sections that such a source needs."""

    encoder: OpenClip | Conse | Colours | OwnEncoder
    retrieval: Rule
    classes: list[Class]
    qa: Qa
    choice: FinalChoice


Source = FolderSource | TarSource | YfccSource | DrawnSource | ReleaseSource | LabelledSource | OwnSource
_UNLABELLED = "buckets", "encoder", "retrieval", "classes", "qa", "choice", "splits"
_NEEDED = {"release": (), "labelled": ("buckets", "splits")}
"""Sections that sources with labels need, and those that they may have; others need all."""

_POSSIBLE = {"release": ("encoder",), "labelled": ("buckets", "splits", "encoder", "choice")}


@dataclass(frozen=True, config=_STRICT)
class ClearConfig:
    """All settings. Sources with labels, ``release`` and ``labelled``, have no use for the sections of the recipe, and are
    refused with them.

    Attributes:
        seed: draws the final choice and the simulated votes.
        source: where the images come from.
        images: which of them are taken.
        baselines: what ``train`` learns.
        buckets: how they are divided by time.
        encoder: what makes vectors of images and prompts.
        retrieval: how images are given to classes.
        classes: the classes, in the order of their labels.
        qa: whether and how people confirm them.
        choice: how many are kept.
        splits: what trains and what tests.
        features: further vectors of each image, by name; see ``feature_sets``.
        blurring: of faces or the like, before anything is looked at, retrieved or published; None: nothing is blurred.
        near_duplicates: looked for before anything is retrieved or chosen; None: they are not.
        encoder_run: where the encoder runs.
        unlabelled: what is published without labels.
        pretraining: what is learned from that.
        shards: their sizes.
        rows_per_part: rows that are made at once and lost together in a crash; changes no result.
    """

    seed: int
    source: Annotated[Source, ByKind(SOURCES["clear"])]
    images: Images
    baselines: Baselines
    buckets: Buckets | None = _OF_SOURCE
    encoder: Annotated[OpenClip | Conse | Colours | OwnEncoder, ByKind(ENCODERS)] | None = _OF_SOURCE
    retrieval: Rule | None = _OF_SOURCE
    classes: Annotated[list[Class], Field(min_length=1)] | None = _OF_SOURCE
    qa: Qa | None = _OF_SOURCE
    choice: FinalChoice | None = _OF_SOURCE
    splits: Splits | None = _OF_SOURCE
    features: FeatureSets = Field(default_factory=dict[str, FeatureSet])
    encoder_run: EncoderRun = Field(default_factory=EncoderRun)
    blurring: Blurring | None = None
    near_duplicates: NearDuplicates | None = None
    unlabelled: Unlabelled = Field(default_factory=Unlabelled)
    pretraining: PretrainingSettings = Field(default_factory=PretrainingSettings)
    shards: ShardSizes = Field(default_factory=lambda: ShardSizes(1000))
    rows_per_part: Annotated[int, Field(ge=1)] = 256

    @field_validator("classes")
    @classmethod
    def _names_of_their_own(cls, classes: list[Class] | None, others: ValidationInfo) -> list[Class] | None:
        if classes and (rule := others.data.get("retrieval")):
            check_options([each.as_option() for each in classes], background=rule.background)
        return classes

    @field_validator(*_UNLABELLED)
    @classmethod
    def _as_the_source_asks(cls, section: Any, info: ValidationInfo) -> Any:
        if (source := info.data.get("source")) is not None:
            _check_section(str(info.field_name), section, source)
        return section

    @field_validator("source")
    @classmethod
    def _something_of_each_row(cls, source: Source) -> Source:
        if isinstance(source, ReleaseSource) and not source.images and not source.features:
            raise ValueError("images = false and no features: nothing would be left to learn from: set one of the two")
        return source

    @field_validator("source")
    @classmethod
    def _digests_of_what_there_is(cls, source: Source) -> Source:
        if isinstance(source, ReleaseSource):
            known = ["dataset", *source.features]
            if strange := [name for name in source.published if name not in known]:
                raise ValueError(f"published.{strange[0]}: there are {', '.join(known)}")
        return source

    @field_validator("images")
    @classmethod
    def _all_of_a_release(cls, images: Images, info: ValidationInfo) -> Images:
        if isinstance(info.data.get("source"), ReleaseSource) and (images.take_first or images.drop_duplicates):
            raise ValueError("take_first and drop_duplicates would change the lists of the release: leave them out")
        return images

    @field_validator("features")
    @classmethod
    def _of_images(cls, sets: FeatureSets, info: ValidationInfo) -> FeatureSets:
        source = info.data.get("source")
        if sets and isinstance(source, ReleaseSource) and not source.images:
            raise ValueError("source.images = false leaves no image to make features of: set it to true")
        released = source.features if isinstance(source, ReleaseSource) else []
        if twice := [name for name in sets if RELEASED.get(name, name) in released]:
            same = RELEASED.get(twice[0], twice[0])
            raise ValueError(f"{twice[0]}: source.features has {same!r}, its name in a release: leave one of the two out")
        return sets

    @field_validator("blurring")
    @classmethod
    def _not_of_a_release(cls, blurring: Blurring | None, info: ValidationInfo) -> Blurring | None:
        if blurring is not None and isinstance(info.data.get("source"), ReleaseSource):
            raise ValueError("source.kind = 'release' is taken as its files are: leave blurring out")
        return blurring

    @field_validator("near_duplicates")
    @classmethod
    def _before_splits(cls, near: NearDuplicates | None, info: ValidationInfo) -> NearDuplicates | None:
        if near is not None and isinstance(info.data.get("source"), ReleaseSource):
            raise ValueError("source.kind = 'release' is taken as its lists have it: leave near_duplicates out")
        if near is not None and near.keep == "drop_across_splits":
            raise ValueError("keep = 'drop_across_splits': splits are drawn later: keep_all, keep_first or keep_best")
        if near is not None and near.by == "embedding" and info.data.get("encoder") is None:
            raise ValueError("by = 'embedding' needs the vectors of an encoder: give [encoder], or by = 'hash'")
        return near

    @field_validator("unlabelled")
    @classmethod
    def _of_other_images(cls, unlabelled: Unlabelled, info: ValidationInfo) -> Unlabelled:
        if unlabelled.buckets and isinstance(info.data.get("source"), ReleaseSource):
            raise ValueError("source.kind = 'release' has no image without a label: leave out buckets")
        count = _buckets_of(info.data.get("buckets"))
        named = [] if unlabelled.buckets == "all" else unlabelled.buckets
        if count is not None and (strange := [number for number in named if number >= count]):
            raise ValueError(f"buckets: there is no bucket {strange[0]}: buckets.rule gives {count}, numbered from 0")
        return unlabelled

    @property
    def recipe(self) -> LabelRecipe | None:
        """What gives the images their labels; None where they come with them."""
        if isinstance(self.source, ReleaseSource | LabelledSource):
            return None
        return LabelRecipe(*(getattr(self, field.name) for field in dataclasses.fields(LabelRecipe)))

    @property
    def vectors(self) -> str:
        """Kind of the encoder whose vectors lie in the shards; "" where none do."""
        return shown(self.encoder.kind) if self.encoder else ""

    @property
    def feature_names(self) -> list[str]:
        """Feature sets beside the shards: those of a release that is read, and those that are made."""
        return [*(self.source.features if isinstance(self.source, ReleaseSource) else []), *self.features]

    @property
    def test_share(self) -> float:
        """Share of the test images of the iid splits."""
        return self.splits.test_share if self.splits else cast("ReleaseSource", self.source).test_share


def _buckets_of(buckets: Buckets | None) -> int | None:
    """How many buckets a rule gives; None where that is up to the data."""
    if buckets is None or isinstance(buckets.rule, CalendarBuckets):
        return None
    if isinstance(buckets.rule, EqualCountBuckets):
        return buckets.rule.count
    return len(published_limits() if isinstance(buckets.rule, PublishedBuckets) else buckets.rule.limits)


def _check_section(name: str, section: Any, source: Any) -> None:
    """Refuse a section that is missing, or that the source has no use for."""
    if section is None:
        if name in _NEEDED.get(source.kind, _UNLABELLED):
            raise PydanticCustomError("missing", "this setting is missing")
        return
    told = ""
    if name not in _POSSIBLE.get(source.kind, _UNLABELLED):
        has = "labels, buckets and splits" if source.kind == "release" else "labels"
        told = f"source.kind = '{source.kind}' brings its {has}: leave this table out"
    elif name == "encoder" and isinstance(source, ReleaseSource) and not source.images:
        told = "source.images = false leaves no image to encode: leave this table out, or set source.images to true"
    elif name == "choice" and isinstance(source, LabelledSource) and section.method != "random":
        told = "source.kind = 'labelled' has no scores: choice.method = 'random' is what there is"
    if told:
        raise PydanticCustomError("refused", "{told}", {"told": told})
