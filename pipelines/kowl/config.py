"""Settings of the KOWL pipeline. What the paper fixes has no default here: it stands in ``published.toml``."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...curation.stages.transforms import TRANSFORMS
from ...datasets.features.backbones import Backbone
from ...datasets.features.files import FeatureFile
from ...datasets.kinetics.lists import ID, ListFile
from ...datasets.kowl.increments import Later, Preset
from ...datasets.kowl.own_lists import Shares, TableColumns, TableFile
from ...datasets.kowl.splits import Turn
from ...eval.metrics.registry import METRICS
from ...training.predictors.registry import PREDICTORS
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf
from ..own import OwnSource
from ..sources import SOURCES

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class ListSource:
    """Lists in a folder: the releases, splits and files. ``max_rejects``: rows of them that may be bad, or a share below 1.

    Of what is in the folder, only the files named count.
    """

    kind: Literal["lists"]
    root: Location
    files: Annotated[list[ListFile], Field(min_length=1)]
    max_rejects: Rejects
    id_pattern: str = ID


@dataclass(frozen=True, config=_STRICT)
class TableSource:
    """Releases of one's own: any number of CSV, Parquet and JSON files in a folder; see ``datasets/kowl/own_lists.py``.

    Attributes:
        root: the folder. Of what is in it, only the files named count.
        files: the lists: path, release, and where they have them a split and columns of their own.
        columns: names of the columns: ``id`` and ``label``, and of those there are ``split``, ``release``, ``start``, ``end``,
            ``feature``.
        without_split: shares of ``validate`` and ``test`` drawn by id where a row says no split.
        max_rejects: rows of the files that may be bad, or a share below 1.
    """

    kind: Literal["tables"]
    root: Location
    files: Annotated[list[TableFile], Field(min_length=1)]
    columns: TableColumns = field(default_factory=TableColumns)
    without_split: Shares = field(default_factory=Shares)
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class DrawnLists:
    """Lists drawn from the seed, and a list of missing videos: no file is needed. See ``datasets/kowl/synthetic.toml``."""

    kind: Literal["drawn"]
    drawing: Literal["published", "tiny"]


@dataclass(frozen=True, config=_STRICT)
class Inventory:
    """A file of the clips that a copy holds (``present``) or lacks (``missing``); see ``datasets/kinetics/inventory.py``.

    ``max_rejects``: lines of it that name no video, or a share below 1; blank ones and a header do not count.
    """

    path: Location
    means: Literal["present", "missing"]
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class Labels:
    """One label space: releases, oldest first; spellings renamed where the oldest release gives the label."""

    releases: Annotated[list[str], Field(min_length=1)]
    renames: dict[str, str]
    normalise: list[Literal["case", "spaces", "punctuation", "brackets"]] = Field(default_factory=list)
    order: Literal["listed", "identity"] = "listed"


@dataclass(frozen=True, config=_STRICT)
class Increments:
    """How later releases come; the first release of ``labels`` is known at the start."""

    preset: Preset
    later: list[Later]
    order: Literal["as_released", "shuffled", "interleaved"] = "as_released"


@dataclass(frozen=True, config=_STRICT)
class StoredFeatures:
    """Features of a frozen backbone, as files; see ``datasets/features/files.py``. ``width``: numbers of one vector.

    ``max_rejects``: vectors that may be bad, or a share below 1. ``nuisances``: visual transform -> files of the same clips
    seen through it, by which every predictor is scored after each increment, and which teach nothing. ``outputs``: a file
    of class names where the vectors are what a classifier says of these: predictor ``original`` takes such a set alone.
    """

    kind: Literal["stored"]
    root: Location
    files: Annotated[list[FeatureFile], Field(min_length=1)]
    width: Annotated[int, Field(ge=1)]
    uid_pattern: str | None = None
    max_rejects: Rejects = 0
    nuisances: dict[str, list[FeatureFile]] = field(default_factory=dict[str, list[FeatureFile]])
    outputs: Location | None = None


@dataclass(frozen=True, config=_STRICT)
class DrawnFeatures:
    """Features drawn from the seed: no file is needed. See ``datasets/kowl/synthetic.py``.

    ``nuisances``: transform -> standard deviation of the noise that stands for it, that of a sample being 1.
    """

    kind: Literal["drawn"]
    width: Annotated[int, Field(ge=1, le=65_536)]
    distance: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    hidden: Annotated[float, Field(ge=0, le=1)]
    nuisances: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = field(default_factory=dict[str, float])


@dataclass(frozen=True, config=_STRICT)
class Transforms:
    """Clips of the stream whose frames go through a visual transform before their feature is taken: learned from, too, where
    ``roles`` has train. The paper's nuisances are apart from the stream: see ``nuisances``.

    Attributes:
        kinds: each clip is given one of them, drawn by its key.
        share: of the clips of ``roles`` from increment ``from_increment`` on.
    """

    kinds: Annotated[tuple[Annotated[str, OneOf(TRANSFORMS)], ...], Field(min_length=1)]
    share: Annotated[float, Field(ge=0, le=1)]
    roles: Annotated[tuple[Literal["train", "val", "test"], ...], Field(min_length=1)] = ("test",)
    from_increment: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True, config=_STRICT)
class ExtractedFeatures:
    """Features taken from shards of frames by a frozen backbone; see ``datasets/features/frames.py`` and ``backbones.py``.

    Attributes:
        root: folder of the shards.
        backbone: what turns frames into a vector.
        width: numbers of a vector: 448 of the built-in backbone.
        frames: of each clip, evenly over its length.
        resize_px: shorter side after scaling; ``side_px``: side of the square cut from the centre.
        checkpoint: file of the backbone's weights; none for the built-in one.
        uid_pattern: finds ``<id>_<start>_<end>`` in a sample's key; None: that is the key.
        transforms: None: every clip of the stream is seen as it is.
        nuisances: the whole set goes through each of these transforms, too: every predictor is scored by it after each
            increment, and learns nothing from it.
        max_rejects: clips without frames or with a broken one, or a share below 1.
        device: where the backbone runs.
    """

    kind: Literal["extracted"]
    root: Location
    backbone: Backbone
    width: Annotated[int, Field(ge=1)]
    frames: Annotated[int, Field(ge=1)]
    resize_px: Annotated[int, Field(ge=8)]
    side_px: Annotated[int, Field(ge=8)]
    checkpoint: Location | None = None
    uid_pattern: str | None = None
    transforms: Transforms | None = None
    nuisances: tuple[Annotated[str, OneOf(TRANSFORMS)], ...] = ()
    max_rejects: Rejects = 0
    device: str = "cpu"


Features = StoredFeatures | DrawnFeatures | ExtractedFeatures


@dataclass(frozen=True, config=_STRICT)
class AvaLists:
    """Lists of AVA-Kinetics, whose annotations sort the clips into strata: a file, or a folder of CSV files.

    ``max_rejects``: lines of them that may be bad, or a share below 1.
    """

    path: Location
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class KowlEvaluation:
    """The open-world loop.

    Attributes:
        feedback: shares of the training labels that are given, a run each.
        predictors: names of ``training.predictors.registry``, or predictors of one's own.
        prior_knowledge: what the predictors know before increment 0, such as the backbone and the data that it was trained on.
            It belongs to the settings of every training; an empty table claims that there is none.
        settings: predictor -> changes to the paper's hyper-parameters (``training/predictors/kowl.toml``), or all of one's own.
        experience_limit: rows that a predictor may learn from; None: all.
        metrics: of one's own, which take ``eval.protocols.open_world_predictions.Predictions``.
        device: where the predictors run.
    """

    feedback: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1)]
    predictors: Annotated[list[Annotated[str, OneOf(PREDICTORS)]], Field(min_length=1)]
    prior_knowledge: dict[str, Any]
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    experience_limit: Annotated[int, Field(ge=1)] | None = None
    metrics: list[Annotated[str, OneOf(METRICS)]] = Field(default_factory=list[str])
    device: str = "cpu"


@dataclass(frozen=True, config=_STRICT)
class KowlConfig:
    """All settings. ``seed`` draws what is held out and the orders that are ours; the folds have seeds of their own.

    ``videos`` says which clips there are, and ``features`` brings vectors; samples without one are rejected before they are
    assigned. Without ``features`` the result is a table of increments, and nothing can be evaluated. ``feature_sets`` are
    further vectors of the same samples, by name: every predictor is trained on each set. ``ava`` adds the strata by which
    results are told apart.
    """

    seed: int
    source: Annotated[ListSource | TableSource | DrawnLists | OwnSource, ByKind(SOURCES["kowl"])]
    labels: Labels
    turns: Annotated[list[Turn], Field(min_length=1)]
    increments: Increments
    shards: ShardSizes
    evaluation: KowlEvaluation
    videos: Inventory | None = None
    features: Annotated[Features, Field(discriminator="kind")] | None = None
    feature_sets: dict[str, Annotated[StoredFeatures | DrawnFeatures, Field(discriminator="kind")]] = field(
        default_factory=dict[str, StoredFeatures | DrawnFeatures]
    )
    ava: AvaLists | None = None
