"""Settings of the IIRC pipeline. Values that the paper fixes have no default: they are in ``published.toml`` and variants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from ...curation.encoders.spec import Colours, EfficientNetLite
from ...datasets.iirc.assign import Shares
from ...datasets.iirc.tasks import DrawnTasks
from ...datasets.iirc.view import Information
from ...eval.metrics.registry import OF_LABEL_SET_STREAMS
from ...training.baselines.iirc import paper_methods
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ..config import Location, Rejects, ShardSizes
from ..encoders import ENCODERS
from ..names import ByKind, OneOf, known_keys
from ..near_duplicates import NearDuplicates
from ..settings_type import settings_type
from ..sources import SOURCES
from ..user_code import OwnEncoder, OwnSource

PICTURES = "pictures"
"""The built-in model: ``training.models.picture_net``."""


@settings_type
class CifarSource:
    """CIFAR-100, Python version.

    Attributes:
        root: ``cifar-100-python.tar.gz``, or the folder unpacked from it.
    """

    kind: Literal["cifar100"]
    root: Location


@settings_type
class ImageSource:
    """Pictures in class folders, or in tars; see ``datasets/class_images/folders.py``.

    Attributes:
        root: folder of the files.
        splits: top-level folder -> ``train`` or ``test``; empty: ``shares.test`` defines the test set.
        classes: list of the classes of files whose paths do not contain the class.
        max_rejects: maximum number of files that are not pictures, or not in an expected folder, or a share below 1.
    """

    kind: Literal["folders", "tars"]
    root: Location
    splits: dict[str, Literal["train", "test"]]
    max_rejects: Rejects
    classes: Location | None = None


@settings_type
class DrawnSource:
    """Pictures generated from the seed, with their hierarchy: no file is needed. See ``datasets/iirc/synthetic.py``.

    Attributes:
        shapes: superclasses, 1 to 5.
        colours: subclasses of each, 1 to 6.
        lone: further classes without a superclass, textures, 0 to 3.
        train_per_class: training pictures of each subclass.
        test_per_class: test pictures of each subclass.
        broken: number of additional, truncated files of the first class, which are rejected; if above 0, there is also one
            picture of a class that is not in the hierarchy.
    """

    kind: Literal["drawn"]
    shapes: Annotated[int, Field(ge=0, le=1000)]
    colours: Annotated[int, Field(ge=0, le=1000)]
    lone: Annotated[int, Field(ge=0, le=1000)]
    train_per_class: Annotated[int, Field(ge=1)]
    test_per_class: Annotated[int, Field(ge=1)]
    broken: Annotated[int, Field(ge=0)] = 0


@settings_type
class HierarchyFile:
    """A file of two levels; see ``datasets/iirc/hierarchy.py``.

    Attributes:
        path: ``.json``, ``.toml`` or ``.csv`` file of superclasses and their subclasses.
        only_found: whether to leave out classes that the source does not have; otherwise they are an error.
        min_subclasses: with ``only_found``: superclasses left with fewer subclasses are removed, and these become lone classes.
    """

    kind: Literal["file"]
    path: Location
    only_found: bool = False
    min_subclasses: Annotated[int, Field(ge=1)] = 1


@settings_type
class ProposedHierarchy:
    """A hierarchy proposed for the source's classes from a file of parents; see ``datasets/iirc/hierarchy.py``.

    Attributes:
        path: ``.csv`` file with columns child and parent, or a text file with a parent and a child per line, as in WordNet.
        min_subclasses: ancestors with fewer subclasses do not become superclasses.
        max_subclasses: ancestors with more subclasses do not become superclasses.
    """

    kind: Literal["parents"]
    path: Location
    min_subclasses: Annotated[int, Field(ge=1)]
    max_subclasses: Annotated[int, Field(ge=1)]


@settings_type
class FolderHierarchy:
    """The hierarchy of the folders of pictures: ``superclass/subclass/``, and ``subclass/`` for lone classes.

    Attributes:
        min_subclasses: superclasses with fewer subclasses are removed, and these become lone classes.
    """

    kind: Literal["folders"]
    min_subclasses: Annotated[int, Field(ge=1)] = 1


@settings_type
class DrawnHierarchy:
    """The hierarchy of the generated pictures."""

    kind: Literal["drawn"]


@settings_type
class TasksFile:
    """Official task configurations.

    Attributes:
        path: JSON file of the configurations.
        configurations: numbers of the configurations to use, from 0.
    """

    kind: Literal["file"]
    path: Location
    configurations: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


@settings_type
class TasksDrawn:
    """Task configurations drawn from the seed.

    Attributes:
        first: number of labels in the first task; superclasses, if there are any.
        later: number of labels in each later task; the last task takes the rest.
        configurations: numbers of the configurations to draw, from 0; each is drawn independently.
    """

    kind: Literal["drawn"]
    first: Annotated[int, Field(ge=1)]
    later: Annotated[int, Field(ge=1)]
    configurations: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]

    def drawn_tasks(self, seed: int) -> DrawnTasks:
        """What the step that assigns labels draws, with the seed of the run."""
        return DrawnTasks(self.first, self.later, seed)


@settings_type
class Evaluation:
    """Training and evaluation of baselines.

    Attributes:
        dataset: dataset whose settings in the paper are used.
        methods: names of ``training.baselines.iirc``, or of any other method.
        model: model of all methods, with its own settings in ``settings.model``.
        metrics: your own metrics, in addition to the paper's: see ``pipelines.metrics.measure_by``.
        configurations: task configurations, one run for each; by default those of ``tasks``. Joint training, which has a single
            task, runs only for configurations with different sets of labels.
        seeds: seeds, one run for each.
        joint_seeds: seeds of joint training, if they differ.
        er_sizes: numbers of samples per class that ``er`` keeps, one row of the results for each, as in the paper's Appendix E;
            empty: only the number of the settings.
        information: labels used in training. ``incomplete``: those of the task; ``complete``: all labels known so far.
        roles: roles evaluated after each task; the first is reported.
        confusion_after: tasks after which the report shows the confusion matrix.
        settings: changes to the paper's settings of all methods, by table: ``schedule``, ``memory``, ``model``, ``view``,
            ``data``, ``method``.
        method_settings: the same changes for individual methods, by their names in tables.
        device: ``cpu`` or ``cuda``.
        workers: threads that load batches in advance.
    """

    dataset: Literal["cifar100", "imagenet"]
    methods: Annotated[list[Annotated[str, OneOf(METHODS, tuple(paper_methods()))]], Field(min_length=1)]
    seeds: Annotated[list[int], Field(min_length=1)]
    information: Information
    roles: Annotated[list[Literal["test", "posttask_valid"]], Field(min_length=1)]
    confusion_after: list[Annotated[int, Field(ge=0)]]
    configurations: list[int] | None = None
    joint_seeds: list[int] | None = None
    er_sizes: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list[int])
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    method_settings: Annotated[dict[str, dict[str, dict[str, Any]]], AfterValidator(known_keys(METHODS, paper_methods()))] = (
        Field(default_factory=dict[str, dict[str, dict[str, Any]]])
    )
    model: Annotated[str, OneOf(MODELS)] = PICTURES
    metrics: list[Annotated[str, OneOf(OF_LABEL_SET_STREAMS)]] = Field(default_factory=list[str])
    device: str = "cpu"
    workers: Annotated[int, Field(ge=0)] = 0


@settings_type
class IircConfig:
    """All settings.

    Attributes:
        seed: seed of generated pictures, drawn task configurations and drawn shares.
        setup: ``iirc``, or ``class_incremental``: every class is lone, as in the authors' package ``iirc``.
        source: source of the pictures; ``kind`` selects one of these tables.
        hierarchy: superclasses and subclasses: from a file, proposed, from folders, or those of the generated pictures.
        tasks: labels of each task.
        shares: which samples are for validation, and which are labelled by superclass or subclass.
        shards: sizes of shards.
        evaluation: what ``train`` trains.
        max_broken: maximum number of pictures that cannot be decoded, or a share below 1.
        max_outside: maximum number of pictures whose class is not in the hierarchy, or a share below 1.
        vectors: frozen encoder that turns each picture into a vector for the baselines, which then need the backbone ``mlp``;
            None: baselines train on the pictures. Published shards are the same.
        near_duplicates: detected among all pictures; the report lists those across roles. None: off.
    """

    seed: int
    setup: Literal["iirc", "class_incremental"]
    source: Annotated[CifarSource | ImageSource | DrawnSource | OwnSource, ByKind(SOURCES["iirc"])]
    hierarchy: Annotated[HierarchyFile | ProposedHierarchy | FolderHierarchy | DrawnHierarchy, Field(discriminator="kind")]
    tasks: Annotated[TasksFile | TasksDrawn, Field(discriminator="kind")]
    shares: Shares
    shards: ShardSizes
    evaluation: Evaluation
    max_broken: Rejects = 0
    max_outside: Rejects | None = 0
    vectors: Annotated[EfficientNetLite | Colours | OwnEncoder, ByKind(ENCODERS)] | None = None
    near_duplicates: NearDuplicates | None = None

    @field_validator("near_duplicates")
    @classmethod
    def _of_what_is_there(cls, near: NearDuplicates | None, info: ValidationInfo) -> NearDuplicates | None:
        if near is not None and near.by == "embedding" and info.data.get("vectors") is None:
            raise ValueError("by = 'embedding' needs vectors: give [vectors], or by = 'hash'")
        return near
