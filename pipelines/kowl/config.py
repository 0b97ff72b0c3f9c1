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
from ...datasets.kowl.own_lists import ListColumns, SplitShares, TableFile
from ...datasets.kowl.splits import Turn
from ...datasets.videos.inventory import Names
from ...eval.metrics.registry import METRICS
from ...training.predictors.registry import PREDICTORS
from ..config import Location, Rejects, ShardSizes
from ..names import ByKind, OneOf
from ..sources import SOURCES
from ..user_code import OwnSource

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class ListSource:
    """Lists in a folder.

    Attributes:
        root: the folder. Of what is in it, only the files named count.
        files: the lists, each with its release and split.
        max_rejects: rows of them that may be bad, or a share below 1.
        id_pattern: regular expression of a whole video id; that of YouTube by default.
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
            ``feature``, ``group``.
        without_split: shares of ``validate`` and ``test`` drawn where a row says no split, by id or by group; and what of these
            rows is left out to test.
        max_rejects: rows of the files that may be bad, or a share below 1.
    """

    kind: Literal["tables"]
    root: Location
    files: Annotated[list[TableFile], Field(min_length=1)]
    columns: ListColumns = field(default_factory=ListColumns)
    without_split: SplitShares = field(default_factory=SplitShares)
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class DrawnLists:
    """Lists drawn from the seed, and a list of missing videos: no file is needed. See ``datasets/kowl/synthetic.toml``.

    Attributes:
        drawing: ``published``: 840,213 samples, with the counts of the paper's tables; ``tiny``: the like in a thousand rows.
    """

    kind: Literal["drawn"]
    drawing: Literal["published", "tiny"]


@dataclass(frozen=True, config=_STRICT)
class Inventory:
    """A list of the clips that a copy of the videos holds or lacks; see ``datasets/kinetics/inventory.py``.

    Attributes:
        path: text file with a video a line, such as ``find videos -type f`` prints.
        means: what the listed videos are in this copy.
        max_rejects: lines of it that name no video, or a share below 1; blank ones and a header do not count.
        id_pattern: regular expression of a whole id, that of YouTube by default; ".+" where each line is an id of any form.
    """

    path: Location
    means: Literal["present", "missing"]
    max_rejects: Rejects = 0
    id_pattern: str = ID


@dataclass(frozen=True, config=_STRICT)
class Labels:
    """One label space over all releases; see ``datasets/kowl/unify.py``.

    Attributes:
        releases: their names, oldest first.
        renames: old spelling -> new one, where the oldest release alone gives the label.
        normalise: further differences between spellings that do not count (none in KOWL); ``brackets``: words in brackets.
        order: of the samples: ``listed``: by the first release, split and line that has them; ``identity``: by video and times.
    """

    releases: Annotated[list[str], Field(min_length=1)]
    renames: dict[str, str]
    normalise: list[Literal["case", "spaces", "punctuation", "brackets"]] = Field(default_factory=list)
    order: Literal["listed", "identity"] = "listed"


@dataclass(frozen=True, config=_STRICT)
class Increments:
    """How later releases come; the first release of ``labels`` is known at the start.

    Attributes:
        preset: ``as_released``: the rarest new classes first, as the code has it; ``rarest_first``: the same with equal counts
            in the order of names; ``as_written``: the most frequent first.
        later: the later releases, each with its number of increments.
        order: of the rows within an increment: ``as_released``, or ``shuffled`` or ``interleaved``, which are ours.
    """

    preset: Preset
    later: list[Later]
    order: Literal["as_released", "shuffled", "interleaved"] = "as_released"


@dataclass(frozen=True, config=_STRICT)
class StoredFeatures:
    """Features of a frozen backbone, as files; see ``datasets/features/files.py``.

    Attributes:
        root: folder of the files.
        files: those that are read.
        width: numbers of one vector.
        uid_pattern: regular expression that finds ``<id>_<start>_<end>`` in a stored name; None: that is the name.
        max_rejects: vectors that may be bad, or a share below 1.
        nuisances: visual transform -> files of the same clips seen through it, by which every predictor is scored after each
            increment, and which teach nothing.
        outputs: a file of class names where the vectors are what a classifier says of these: predictor ``original`` takes such
            a set alone.
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

    Attributes:
        width: numbers of one vector.
        distance: mean distance of two classes' centres, in standard deviations of a sample.
        hidden: share of the later classes whose samples look like known ones.
        nuisances: transform -> standard deviation of the noise that stands for it, that of a sample being 1.
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
        roles: whose clips are transformed.
        from_increment: first increment with transformed clips, from 0.
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
        resize_px: shorter side after scaling, pixels.
        side_px: side of the square cut from the centre, pixels.
        checkpoint: file of the backbone's weights; none for the built-in one.
        uid_pattern: finds ``<id>_<start>_<end>`` in a sample's key; None: that is the key.
        transforms: None: every clip of the stream is seen as it is.
        nuisances: the whole set goes through each of these transforms, too: every predictor is scored by it after each
            increment, and learns nothing from it.
        max_rejects: clips without frames or with a broken one, or a share below 1.
        device: where the backbone runs.
        outputs: see ``StoredFeatures``; with ``classes`` of the backbone.
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


@dataclass(frozen=True, config=_STRICT)
class VideoFeatures:
    """Features taken from video files by a frozen backbone, in one go; see ``datasets/features/videos.py``.

    Attributes:
        root: folder of the videos.
        backbone: what turns a view into a vector; that of kind ``network`` is X3D or TimeSformer.
        width: numbers of a vector: with ``join = "beside"`` those of all views together.
        frames: of a view.
        stride: frames of the video from one to the next.
        clips: views in time.
        crops: squares of each view: 1, the centre; or 3 along the longer side.
        starts: ``as_released``: of every stride-th frame, the first view at the start; or ``even``, from the start to the end.
        join: of the views' vectors: ``beside``: one behind the other; or their ``mean``.
        resize_px: shorter side after scaling, pixels.
        side_px: side of the squares, pixels.
        names: how samples name their videos: ``youtube``; or the id is the ``path`` in the folder, or the ``stem`` of a file.
        bare: what a file named by an id alone holds: the ``whole`` video, or the ``clip``.
        checkpoint: file of the backbone's weights; none for the built-in one, and for RANDOM ones.
        transforms: None: every clip of the stream is seen as it is.
        nuisances: the whole set goes through each of these transforms, too: see ``ExtractedFeatures``.
        max_rejects: clips whose video cannot be read, or a share below 1.
        max_missing: clips without a video, or a share below 1.
        device: where the backbone runs.
        outputs: see ``StoredFeatures``; with ``classes`` of the backbone, and ``join = "mean"`` where there are several views.
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


Features = StoredFeatures | DrawnFeatures | ExtractedFeatures | VideoFeatures


@dataclass(frozen=True, config=_STRICT)
class AvaLists:
    """Lists of AVA-Kinetics, whose annotations sort the clips into strata.

    Attributes:
        path: a CSV file, or a folder of them.
        max_rejects: lines of them that may be bad, or a share below 1.
    """

    path: Location
    max_rejects: Rejects = 0


@dataclass(frozen=True, config=_STRICT)
class People:
    """Labels from people, asked for by ``benchwright qa export`` and given back by ``qa import``: trainings called ``feedback
    AMOUNT by people``. The others are SIMULATED: their labels are those of the lists. A training waits in each increment.

    Attributes:
        feedback: shares of an increment's training samples about which people are asked, a run each.
        address: where annotators see a sample: http or https, with columns of the samples in braces, such as
            ``https://www.youtube.com/watch?v={youtube_id}&t={time_start}s``. None: they are shown six frames, which features of
            kind ``videos`` and ``extracted`` have.
        shows: what is at the address: a page that they open beside the form, a video file, or an image.
        predictors: whose requests go to people; none named: of all.
        workers: annotators a sample.
        majority: of these, how many must choose a class; a sample without majority stays without label.
        instructions: plain text above the question.
    """

    feedback: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)]
    address: str | None = None
    shows: Literal["page", "video", "image"] = "page"
    predictors: list[Annotated[str, OneOf(PREDICTORS)]] = Field(default_factory=list[str])
    workers: Annotated[int, Field(ge=1)] = 3
    majority: Annotated[int, Field(ge=1)] = 2
    instructions: str = "Which activity does the clip show?"


@dataclass(frozen=True, config=_STRICT)
class KowlEvaluation:
    """The open-world loop.

    Attributes:
        feedback: shares of the training labels that are given, a run each. They are those of the lists: SIMULATED feedback.
        scores: whether there is a run, too, whose feedback is no label, but measures of what was predicted for the training
            samples; for predictors with ``take_scores``, ``ann`` among the built-in ones.
        people: None: nobody is asked.
        keep_states: whether every predictor's state after each increment is kept, as ``experiments/states/<training>/*.npz``:
            nuisances are then scored from these, those too that are added to the settings later, and nothing is learned again.
        predictors: names of ``training.predictors.registry``, or predictors of one's own.
        prior_knowledge: what the predictors know before increment 0, such as the backbone and the data that it was trained on.
            It belongs to the settings of every training; an empty table claims that there is none.
        settings: predictor -> changes to the paper's hyper-parameters (``training/predictors/kowl.toml``), or all of one's own.
            What is changed of ``ann`` and ``evm`` is changed of ``ann_evm``, too.
        settings_of_sets: feature set ("features": that of ``[features]``) -> predictor -> changes to ``settings`` on that set
            alone, such as ``{x3d = {ann = {hidden = 2048}}}``.
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
    settings_of_sets: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict[str, dict[str, dict[str, Any]]])
    scores: bool = False
    people: People | None = None
    keep_states: bool = False


@dataclass(frozen=True, config=_STRICT)
class KowlConfig:
    """All settings.

    Attributes:
        seed: draws what is held out and the orders that are ours; the folds have seeds of their own.
        source: where the lists come from; its ``kind`` says which of these tables it is.
        labels: one label space over all releases.
        turns: releases and splits in the order in which they take their samples; a sample belongs to the first that lists it.
        increments: how the classes of later releases come.
        shards: sizes of shards.
        evaluation: what ``train`` trains.
        videos: list of the clips that there are, or are not; samples without a video are rejected. None: all are there.
        features: a vector for each sample; samples without one are rejected. None: the result is the table of increments, and
            nothing can be trained.
        ava: annotations that divide the results into strata; None: results are of all samples alone.
        feature_sets: further vectors of the same samples, by name: every predictor is trained on each set.
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
    feature_sets: dict[str, Annotated[Features, Field(discriminator="kind")]] = field(default_factory=dict[str, Features])
    ava: AvaLists | None = None
