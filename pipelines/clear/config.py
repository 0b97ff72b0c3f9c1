"""Settings of the CLEAR pipeline. Values that the paper fixes have no default here: they are in ``published.toml``."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from ...curation.encoders.spec import TextImageSpec
from ...curation.qa.options import check_options
from ...curation.stages.decode import MAX_PIXELS, PILLOW_MAX_PIXELS
from ...curation.stages.near_duplicates import KeepRule
from ...curation.stages.retrieval_rule import Rule
from ...datasets.clear.facts import RELEASED
from ..blurring import Blurring
from ..config import Location, Rejects, ShardSizes
from ..encoders import ENCODERS
from ..feature_sets import FeatureSet, FeatureSets
from ..names import ByKind, short
from ..near_duplicates import NearDuplicates
from ..settings_type import settings_type
from ..sources import SOURCES
from ..user_code import OwnEncoder, OwnSource
from .bucket_config import Buckets, count_of_buckets
from .label_config import Class, Qa
from .source_config import DrawnSource, FolderSource, LabelledSource, ReleaseSource, TarSource, YfccSource
from .training_config import Baselines, PretrainingSettings

_OF_SOURCE: Any = Field(default=None, validate_default=True)
"""A section that some sources need and others reject."""


@settings_type
class Images:
    """Which images are accepted, from any source.

    Attributes:
        max_rejects: reject budget of every stage that reads input: rows, or a share below 1.
        min_bytes: smaller files are rejected.
        max_bytes: larger files are rejected.
        max_pixels: width times height above this is rejected before it is decoded.
        min_edge_px: length of the shorter edge, below which an image is rejected.
        max_aspect: longer edge by shorter edge, above which an image is rejected.
        drop_duplicates: whether to reject all but the first of byte-identical images.
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


@settings_type
class EncoderRun:
    """Weights and device of the encoder, which ``encoder`` defines.

    Attributes:
        checkpoint: file of weights, if the encoder takes one.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        stored: precision of the stored vectors.
    """

    checkpoint: Location = ""
    device: str = "cpu"
    stored: Literal["float32", "float16"] = "float32"


@settings_type
class FinalChoice:
    """Final choice: how many images per class and bucket, and how they are chosen.

    Attributes:
        per_class: images per class and bucket.
        method: random by seed, or the best of the retrieval.
        on_shortage: if there are fewer: ``keep`` those, with a warning (``quiet``: without), or stop with an ``error``.
    """

    per_class: Annotated[int, Field(ge=1)]
    method: Literal["random", "top_score"]
    on_shortage: Literal["keep", "quiet", "error"] = "error"


@settings_type
class Splits:
    """The five iid splits.

    Attributes:
        rule: ``as_released`` as the released lists, ``as_written`` stratified by class.
        test_share: share of the images in the test set.
    """

    rule: Literal["as_released", "as_written"]
    test_share: Annotated[float, Field(gt=0, lt=1)]


@settings_type
class Unlabelled:
    """Complete buckets published as a separate unlabelled dataset, for pre-training.

    Attributes:
        buckets: bucket numbers, or "all".
    """

    buckets: list[Annotated[int, Field(ge=0)]] | Literal["all"] = Field(default_factory=list[int])


@dataclasses.dataclass(frozen=True)
class LabelRecipe:
    """How images of a source without labels get labels: the sections that such a source needs."""

    encoder: TextImageSpec | OwnEncoder
    retrieval: Rule
    classes: list[Class]
    qa: Qa
    choice: FinalChoice


ClearSource = FolderSource | TarSource | YfccSource | DrawnSource | ReleaseSource | LabelledSource | OwnSource
_UNLABELLED = "buckets", "encoder", "retrieval", "classes", "qa", "choice", "splits"
_NEEDED = {"release": (), "labelled": ("buckets", "splits")}
"""Sections that sources with labels need, and sections that they may have; other sources need all."""

_POSSIBLE = {"release": ("encoder",), "labelled": ("buckets", "splits", "encoder", "choice")}


@settings_type
class ClearConfig:
    """All settings. Sources with labels, ``release`` and ``labelled``, do not use the tables that make labels, and reject them.

    Attributes:
        seed: seed of the final choice and the simulated votes.
        source: source of the images.
        images: which of them are accepted.
        baselines: what ``train`` trains.
        buckets: how they are divided by time.
        encoder: encoder of images and prompts.
        retrieval: how images are retrieved for classes.
        classes: the classes, in the order of their labels.
        qa: whether and how annotators confirm them.
        choice: how many are kept.
        splits: training and test sets.
        features: further vectors of each image, by name; see ``FeatureSet``.
        blurring: blurs faces or other objects before images are shown, retrieved or published; None: off.
        near_duplicates: detected before retrieval and choice; None: off.
        encoder_run: where the encoder runs.
        unlabelled: the unlabelled dataset.
        pretraining: training on the unlabelled dataset.
        shards: sizes of shards.
        rows_per_part: rows computed, and lost in a crash, together; does not affect results.
    """

    seed: int
    source: Annotated[ClearSource, ByKind(SOURCES["clear"])]
    images: Images
    baselines: Baselines
    buckets: Buckets | None = _OF_SOURCE
    encoder: Annotated[TextImageSpec | OwnEncoder, ByKind(ENCODERS)] | None = _OF_SOURCE
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
    def _fitting_release(cls, source: ClearSource) -> ClearSource:
        if isinstance(source, ReleaseSource):
            if not source.images and not source.features:
                raise ValueError("images = false and no features: there would be nothing to train on: set one of the two")
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
            raise ValueError("source.images = false leaves no images to compute features from: set it to true")
        released = source.features if isinstance(source, ReleaseSource) else []
        if twice := [name for name in sets if RELEASED.get(name, name) in released]:
            same = RELEASED.get(twice[0], twice[0])
            raise ValueError(f"{twice[0]}: source.features has {same!r}, its name in a release: leave one of the two out")
        return sets

    @field_validator("blurring")
    @classmethod
    def _not_of_a_release(cls, blurring: Blurring | None, info: ValidationInfo) -> Blurring | None:
        if blurring is not None and isinstance(info.data.get("source"), ReleaseSource):
            raise ValueError("source.kind = 'release' uses the files of the release unchanged: remove blurring")
        return blurring

    @field_validator("near_duplicates")
    @classmethod
    def _before_splits(cls, near: NearDuplicates | None, info: ValidationInfo) -> NearDuplicates | None:
        if near is not None and isinstance(info.data.get("source"), ReleaseSource):
            raise ValueError("source.kind = 'release' uses the lists of the release unchanged: remove near_duplicates")
        if near is not None and near.keep == "drop_across_splits":
            others = ", ".join(rule for rule in get_args(KeepRule) if rule != near.keep)
            raise ValueError(f"keep = 'drop_across_splits': splits are drawn later: one of {others}")
        if near is not None and near.by == "embedding" and info.data.get("encoder") is None:
            raise ValueError("by = 'embedding' needs the vectors of an encoder: give [encoder], or by = 'hash'")
        return near

    @field_validator("unlabelled")
    @classmethod
    def _of_other_images(cls, unlabelled: Unlabelled, info: ValidationInfo) -> Unlabelled:
        if unlabelled.buckets and isinstance(info.data.get("source"), ReleaseSource):
            raise ValueError("source.kind = 'release' has no unlabelled images: remove buckets")
        count = count_of_buckets(info.data.get("buckets"))
        named = [] if unlabelled.buckets == "all" else unlabelled.buckets
        if count is not None and (strange := [number for number in named if number >= count]):
            raise ValueError(f"buckets: there is no bucket {strange[0]}: buckets.rule gives {count}, numbered from 0")
        return unlabelled

    @property
    def recipe(self) -> LabelRecipe | None:
        """The recipe by which images get labels; None if they come with labels."""
        if isinstance(self.source, ReleaseSource | LabelledSource):
            return None
        return LabelRecipe(*(getattr(self, field.name) for field in dataclasses.fields(LabelRecipe)))

    @property
    def vectors(self) -> str:
        """Kind of the encoder whose vectors are in the shards; "" if none do."""
        return short(self.encoder.kind) if self.encoder else ""

    @property
    def feature_names(self) -> list[str]:
        """Feature sets next to the shards: those of a release, and those computed by the run."""
        return [*(self.source.features if isinstance(self.source, ReleaseSource) else []), *self.features]

    @property
    def test_share(self) -> float:
        """Share of test images in the iid splits."""
        return self.splits.test_share if self.splits else cast("ReleaseSource", self.source).test_share


def _check_section(name: str, section: Any, source: Any) -> None:
    """Reject a section that is missing, or that the source does not use."""
    if section is None:
        if name in _NEEDED.get(source.kind, _UNLABELLED):
            raise PydanticCustomError("missing", "this setting is missing")
        return
    message = ""
    if name not in _POSSIBLE.get(source.kind, _UNLABELLED):
        has = "labels, buckets and splits" if source.kind == "release" else "labels"
        message = f"source.kind = '{source.kind}' comes with its own {has}: remove this table"
    elif name == "encoder" and isinstance(source, ReleaseSource) and not source.images:
        message = "source.images = false leaves no image to encode: leave this table out, or set source.images to true"
    elif name == "choice" and isinstance(source, LabelledSource) and section.method != "random":
        message = "source.kind = 'labelled' has no scores: only choice.method = 'random' works"
    if message:
        raise PydanticCustomError("refused", "{message}", {"message": message})
