"""Settings of the KOWL pipeline. Values that the paper fixes have no default here: they are in ``published.toml``."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ...curation.stages.transforms import TRANSFORMS
from ...datasets.ava_kinetics.strata import Count
from ...datasets.features.backbones import Backbone
from ...datasets.features.files import FeatureFile
from ...datasets.kinetics.lists import ID, ListFile
from ...datasets.kowl.increments import IncrementPreset, Later, SampleOrder
from ...datasets.kowl.own_lists import ListColumns, SplitShares, TableFile
from ...datasets.kowl.splits import Turn
from ...datasets.kowl.unify import Normalisation
from ...datasets.roles import Role
from ...datasets.videos.inventory import Names
from ...eval.metrics.registry import METRICS
from ...training.predictors.registry import PREDICTORS
from ..config import Digest, Location, Rejects, ShardSizes
from ..names import ByKind, OneOf, short
from ..settings_type import settings_type
from ..sources import SOURCES
from ..user_code import OwnSource


@settings_type
class ListSource:
    """Lists in a folder.

    Attributes:
        root: the folder. Files in it that ``files`` does not name are ignored.
        files: the lists, each with its release and split.
        max_rejects: maximum number of invalid rows, or a share below 1.
        id_pattern: regular expression that a video id must match in full; by default YouTube's.
    """

    kind: Literal["lists"]
    root: Location
    files: Annotated[list[ListFile], Field(min_length=1)]
    max_rejects: Rejects
    id_pattern: str = ID


@settings_type
class TableSource:
    """Your own releases: any number of CSV, Parquet and JSON files in a folder; see ``datasets/kowl/own_lists.py``.

    Attributes:
        root: the folder. Files in it that ``files`` does not name are ignored.
        files: the lists: path, release and, optionally, a split and column names that apply to this file only.
        columns: names of the columns: ``id`` and ``label``; optionally ``split``, ``release``, ``start``, ``end``, ``feature``,
            ``group``.
        without_split: how rows without a split are assigned: shares of ``validate`` and ``test``, drawn by id or by group, and
            classes or groups reserved for testing.
        max_rejects: maximum number of invalid rows, or a share below 1.
    """

    kind: Literal["tables"]
    root: Location
    files: Annotated[list[TableFile], Field(min_length=1)]
    columns: ListColumns = field(default_factory=ListColumns)
    without_split: SplitShares = field(default_factory=SplitShares)
    max_rejects: Rejects = 0


@settings_type
class DrawnLists:
    """Lists generated from the seed, and a list of missing videos: no file is needed. See ``datasets/kowl/synthetic.toml``.

    Attributes:
        drawing: ``published``: 840,213 samples, with the counts of the paper's tables; ``tiny``: a similar set of about a
            thousand rows.
    """

    kind: Literal["drawn"]
    drawing: Literal["published", "tiny"]


@settings_type
class Inventory:
    """A list of the clips present in a copy of the videos, or missing from it; see ``datasets/kinetics/inventory.py``.

    Attributes:
        path: text file with one video per line, such as the output of ``find videos -type f``.
        means: whether the listed videos are present in this copy or missing from it.
        max_rejects: maximum number of lines that name no video, or a share below 1; blank lines and a header do not count.
        id_pattern: regular expression that an id must match in full; by default YouTube's. ".+" if each line is an id of any
            form.
    """

    path: Location
    means: Literal["present", "missing"]
    max_rejects: Rejects = 0
    id_pattern: str = ID


@settings_type
class LabelSpace:
    """One label space over all releases; see ``datasets/kowl/unify.py``.

    Attributes:
        releases: names of the releases, oldest first.
        renames: old spelling -> new spelling, applied where only the oldest release gives the label.
        normalise: further differences in spelling to ignore (none in KOWL); ``brackets``: words in brackets.
        order: order of the samples. ``listed``: by the first release, split and line in which they appear; ``identity``: by
            video and times.
    """

    releases: Annotated[list[str], Field(min_length=1)]
    renames: dict[str, str]
    normalise: list[Normalisation] = Field(default_factory=list)
    order: Literal["listed", "identity"] = "listed"


@settings_type
class Increments:
    """How the later releases are divided into increments; the first release of ``labels`` is known from the start.

    Attributes:
        preset: ``as_released``: the rarest new classes first, as in the released code; ``rarest_first``: the same, with ties
            broken by name; ``as_written``: the most frequent first.
        later: the later releases, each with its number of increments.
        order: order of the rows within an increment: ``as_released``, or one of ours: ``shuffled``, ``interleaved``.
    """

    preset: IncrementPreset
    later: list[Later]
    order: SampleOrder = "as_released"


@settings_type
class StoredFeatures:
    """Features of a frozen backbone, stored in files; see ``datasets/features/files.py``.

    Attributes:
        root: folder of the files.
        files: the files to read.
        width: length of a feature vector.
        uid_pattern: regular expression that finds ``<id>_<start>_<end>`` in a stored name; None: it is the whole name.
        max_rejects: maximum number of invalid vectors, or a share below 1.
        nuisances: visual transform -> feature files of the same clips under it. Every predictor is evaluated on them after each
            increment, and never trained on them.
        outputs: file of class names, if the vectors are the outputs of a classifier for these classes. Predictor ``original``
            needs such a set; no other predictor accepts one.
    """

    kind: Literal["stored"]
    root: Location
    files: Annotated[list[FeatureFile], Field(min_length=1)]
    width: Annotated[int, Field(ge=1)]
    uid_pattern: str | None = None
    max_rejects: Rejects = 0
    nuisances: dict[str, list[FeatureFile]] = field(default_factory=dict[str, list[FeatureFile]])
    outputs: Location | None = None


@settings_type
class DrawnFeatures:
    """Features generated from the seed: no file is needed. See ``datasets/kowl/synthetic.py``.

    Attributes:
        width: length of a feature vector.
        distance: mean distance between the centres of two classes, in standard deviations of the samples of a class.
        hidden: share of the later classes whose samples look like those of known classes, 0 to 1.
        nuisances: transform -> standard deviation of the noise that simulates it; the samples of a class have 1.
    """

    kind: Literal["drawn"]
    width: Annotated[int, Field(ge=1, le=65_536)]
    distance: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    hidden: Annotated[float, Field(ge=0, le=1)]
    nuisances: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = field(default_factory=dict[str, float])


@settings_type
class Transforms:
    """Visual transforms of some clips of the stream, applied before their features are extracted. Predictors also train on
    transformed clips if ``roles`` includes train. The paper's nuisances are not part of the stream: see ``nuisances``.

    Attributes:
        kinds: the transforms; each transformed clip gets one of them, chosen at random by its key.
        share: share of the clips to transform, 0 to 1, in ``roles`` from increment ``from_increment`` on.
        roles: roles whose clips are transformed.
        from_increment: first increment with transformed clips, counted from 0.
    """

    kinds: Annotated[tuple[Annotated[str, OneOf(TRANSFORMS)], ...], Field(min_length=1)]
    share: Annotated[float, Field(ge=0, le=1)]
    roles: Annotated[tuple[Role, ...], Field(min_length=1)] = ("test",)
    from_increment: Annotated[int, Field(ge=0)] = 0


@settings_type
class ExtractedFeatures:
    """Features extracted by a frozen backbone from shards of frames; see ``datasets/features/frames.py`` and ``backbones.py``.

    Attributes:
        root: folder of the shards.
        backbone: model that turns frames into a vector.
        width: length of a feature vector: 448 for the built-in backbone.
        frames: frames per clip, evenly spaced over its length.
        resize_px: length of the shorter side after scaling, pixels.
        side_px: side of the centre crop, pixels.
        checkpoint: file of the backbone's weights; leave it out for the built-in one.
        uid_pattern: regular expression that finds ``<id>_<start>_<end>`` in a sample's key; None: it is the whole key.
        transforms: visual transforms of some clips of the stream; None: no clip is transformed.
        nuisances: visual transforms, each applied to a further copy of the whole set. Every predictor is evaluated on these
            copies after each increment, and never trained on them.
        max_rejects: maximum number of clips with missing or broken frames, or a share below 1.
        device: device of the backbone: ``cpu``, ``cuda`` or ``cuda:1``.
        outputs: see ``StoredFeatures``; requires ``classes`` in ``backbone``.
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
    outputs: Location | None = None


@settings_type
class VideoFeatures:
    """Features extracted by a frozen backbone from video files, without storing frames; see ``datasets/features/videos.py``.

    Attributes:
        root: folder of the videos.
        backbone: model that turns a view into a vector; kind ``network`` is X3D or TimeSformer.
        width: length of a feature vector; with ``join = "beside"``, the total over all views.
        frames: frames per view.
        stride: step between the frames of a view, in frames of the video.
        clips: views at different times of a clip.
        crops: square crops per view: 1 (the centre), or 3 along the longer side.
        starts: where the views start. ``as_released``: on every stride-th frame, the first view at the start; ``even``: evenly
            spaced from start to end.
        join: how the vectors of the views are combined: ``beside`` concatenates them, ``mean`` averages them.
        resize_px: length of the shorter side after scaling, pixels.
        side_px: side of the crops, pixels.
        names: how files are matched to samples: by ``youtube`` id, or the sample's id is the file's ``path`` in the folder or
            its ``stem``.
        bare: content of a file whose name is only an id: the ``whole`` video, or the ``clip``.
        checkpoint: file of the backbone's weights; leave it out for the built-in one and for random weights.
        transforms: visual transforms of some clips of the stream; None: no clip is transformed.
        nuisances: visual transforms, each applied to a further copy of the whole set: see ``ExtractedFeatures``.
        max_rejects: maximum number of clips whose video cannot be read, or a share below 1.
        max_missing: maximum number of clips without a video, or a share below 1.
        device: device of the backbone: ``cpu``, ``cuda`` or ``cuda:1``.
        outputs: see ``StoredFeatures``; requires ``classes`` in ``backbone`` and, with several views, ``join = "mean"``.
    """

    kind: Literal["videos"]
    root: Location
    backbone: Backbone
    width: Annotated[int, Field(ge=1)]
    frames: Annotated[int, Field(ge=1)]
    stride: Annotated[int, Field(ge=1)]
    clips: Annotated[int, Field(ge=1)]
    resize_px: Annotated[int, Field(ge=8)]
    side_px: Annotated[int, Field(ge=8)]
    crops: Literal[1, 3] = 1
    starts: Literal["as_released", "even"] = "as_released"
    join: Literal["beside", "mean"] = "beside"
    names: Names = "youtube"
    bare: Literal["whole", "clip"] = "whole"
    checkpoint: Location | None = None
    transforms: Transforms | None = None
    nuisances: tuple[Annotated[str, OneOf(TRANSFORMS)], ...] = ()
    max_rejects: Rejects = 0
    max_missing: Rejects = 0
    device: str = "cpu"
    outputs: Location | None = None


FeatureSource = StoredFeatures | DrawnFeatures | ExtractedFeatures | VideoFeatures


@settings_type
class AvaLists:
    """Lists of AVA-Kinetics, whose annotations divide the clips into strata.

    Attributes:
        path: a CSV file, or a folder of them.
        max_rejects: maximum number of invalid lines, or a share below 1.
        actions: what the number of actions in a key frame counts: ``different`` actions, or ``all`` actions of all persons; the
            paper's text allows both.
    """

    path: Location
    max_rejects: Rejects = 0
    actions: Count = "different"


@settings_type
class People:
    """Labels from people: ``benchwright qa export`` writes the questions, ``qa import`` reads the answers. These trainings are
    called ``feedback AMOUNT by people``, and pause in each increment until the answers are imported. The feedback of all other
    trainings is SIMULATED: the labels of the lists.

    Attributes:
        feedback: shares of an increment's training samples that people label, above 0, up to 1; one run for each.
        address: URL at which annotators see a sample: http or https, with columns of the samples in braces, such as
            ``https://www.youtube.com/watch?v={youtube_id}&t={time_start}s``. None: they see six frames, available for features
            of kind ``videos`` and ``extracted``.
        shows: what the address serves: a page that annotators open next to the form, a video file, or an image.
        predictors: predictors whose questions go to people; empty: all.
        workers: annotators per sample.
        majority: votes that a class needs; a sample without a majority gets no label.
        instructions: plain text above the question.
    """

    feedback: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)]
    address: str | None = None
    shows: Literal["page", "video", "image"] = "page"
    predictors: list[Annotated[str, OneOf(PREDICTORS)]] = Field(default_factory=list[str])
    workers: Annotated[int, Field(ge=1)] = 3
    majority: Annotated[int, Field(ge=1)] = 2
    instructions: str = "Which activity does the clip show?"


@settings_type
class KowlEvaluation:
    """The open-world loop.

    Attributes:
        feedback: shares of the training labels that predictors receive, 0 to 1; one run for each. The labels are those of the
            lists: SIMULATED feedback.
        scores: whether to add a run whose feedback is not labels, but scores of the predictions for the training samples; for
            predictors with ``take_scores``: of the built-in ones, ``ann``.
        people: labels from people; None: no questions are asked.
        keep_states: whether to keep every predictor's state after each increment, as ``experiments/states/<training>/*.npz``.
            Nuisances, including ones added later, are then evaluated from these states without training again.
        predictors: names of ``training.predictors.registry``, or your own predictors.
        prior_knowledge: what the predictors know before increment 0, such as the backbone and its training data. It is recorded
            in the settings of every training; an empty table states that there is none.
        settings: predictor -> changes to the paper's hyper-parameters (``training/predictors/kowl.toml``), or all settings of
            your own predictor. Changes to ``ann`` and ``evm`` also apply to ``ann_evm``.
        settings_of_sets: feature set ("features" is the one of ``[features]``) -> predictor -> changes to ``settings`` for that
            set only, such as ``{x3d = {ann = {hidden = 2048}}}``.
        settings_of_start: predictor -> changes to ``settings`` for protocol ``start`` only. Table 3 compares how well known
            classes are told apart, so that ``ann`` has no threshold there (``[start]`` in ``training/predictors/kowl.toml``).
        sets_of_predictors: predictor -> the feature sets that it is trained on ("features" is the one of ``[features]``), such
            as ``{gmm_finch = ["features"]}``; a predictor that is not named is trained on every set.
        feedback_of_predictors: predictor -> its own ``feedback``, such as ``{ann = [0, 1]}``; overridden by ``--protocol``.
        published: "TSF" or "X3D" -> feature set -> digest of that set, stating that its vectors come from the paper's weights
            of this backbone (TimeSformer, X3D-M). Table 3 is then shown beside a run with these digests; reports print
            those that are not stated.
        experience_limit: maximum number of rows that a predictor trains on; None: no limit.
        metrics: your own metrics, functions of ``eval.protocols.open_world.predictions.OpenWorldPredictions``.
        device: device of the predictors: ``cpu``, ``cuda`` or ``cuda:1``.
    """

    feedback: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1)]
    predictors: Annotated[list[Annotated[str, OneOf(PREDICTORS)]], Field(min_length=1)]
    prior_knowledge: dict[str, Any]
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    experience_limit: Annotated[int, Field(ge=1)] | None = None
    metrics: list[Annotated[str, OneOf(METRICS.only())]] = Field(default_factory=list[str])
    device: str = "cpu"
    settings_of_sets: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict[str, dict[str, dict[str, Any]]])
    settings_of_start: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    sets_of_predictors: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(default_factory=dict[str, list[str]])
    feedback_of_predictors: dict[str, Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1)]] = Field(
        default_factory=dict[str, list[float]]
    )
    published: dict[Literal["TSF", "X3D"], dict[str, Digest]] = Field(
        default_factory=dict[Literal["TSF", "X3D"], dict[str, str]]
    )
    scores: bool = False
    people: People | None = None
    keep_states: bool = False


@settings_type
class KowlConfig:
    """All settings.

    Attributes:
        seed: seed of the held-out samples and of the orders ``shuffled`` and ``interleaved``; the folds have their own seeds.
        source: source of the lists; ``kind`` selects one of these tables.
        labels: one label space over all releases.
        turns: releases and splits in the order in which they claim samples; a sample belongs to the first that lists it.
        increments: how the later releases are divided into increments.
        shards: sizes of shards.
        evaluation: what ``train`` trains.
        videos: list of the clips that are present, or missing; samples without a video are rejected. None: all are present.
        features: a vector for each sample; samples without one are rejected. None: the run ends with the table of increments,
            and nothing can be trained.
        ava: annotations that divide the results into strata; None: results cover all samples only.
        feature_sets: further vectors of the same samples, by name; predictors are trained on each set, or on those of
            ``evaluation.sets_of_predictors``.
    """

    seed: int
    source: Annotated[ListSource | TableSource | DrawnLists | OwnSource, ByKind(SOURCES["kowl"])]
    labels: LabelSpace
    turns: Annotated[list[Turn], Field(min_length=1)]
    increments: Increments
    shards: ShardSizes
    evaluation: KowlEvaluation
    videos: Inventory | None = None
    features: Annotated[FeatureSource, Field(discriminator="kind")] | None = None
    feature_sets: dict[str, Annotated[FeatureSource, Field(discriminator="kind")]] = field(
        default_factory=dict[str, FeatureSource]
    )
    ava: AvaLists | None = None

    @field_validator("feature_sets")
    @classmethod
    def _other_than_main(cls, sets: dict[str, FeatureSource]) -> dict[str, FeatureSource]:
        if MAIN in sets:
            raise ValueError(f"{MAIN!r} is the name of the set of [features]: give this one another")
        return sets

    @property
    def sets(self) -> dict[str, FeatureSource]:
        """All feature sets by name; ``MAIN`` is that of ``[features]``."""
        return ({} if self.features is None else {MAIN: self.features}) | self.feature_sets


MAIN = "features"
"""Name of the set of ``[features]`` next to ``feature_sets``."""


def setting_of(name: str) -> str:
    """Name of the table in the settings with a feature set."""
    return name if name == MAIN else f"feature_sets.{name}"


def stage_apart(name: str, kind: str) -> str:
    """Name of the stage with the vectors of a feature set under a visual transform ("": none)."""
    parts = ("" if name == MAIN else name, short(kind))
    return "_".join(filter(None, ["vectors", *(re.sub(r"[^a-z0-9]+", "_", part.lower()) for part in parts)]))
