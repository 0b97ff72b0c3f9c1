"""Baselines of an IIRC run: its task configurations, its methods and their settings."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Any

from ...curation.flow import Step
from ...curation.verify import DATASET
from ...datasets.class_images.folders import missing_folders, picture_folders
from ...datasets.iirc.assign import check_test_share, configurations_of
from ...datasets.iirc.hierarchy import Hierarchy, hierarchy_of_places, read_hierarchy, read_parents
from ...datasets.iirc.view import RefinedView
from ...datasets.reader.index import DatasetIndex
from ...eval.metrics.registry import OF_LABEL_SET_STREAMS
from ...eval.protocols.refined_classification import measure_sets
from ...training.baselines.iirc import paper_methods, paper_settings
from ...training.data.pictures import picture_view
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ..config import with_changes
from ..errors import WrongUse
from ..experiments import Training
from ..metrics import with_metrics
from ..names import reference_of, settings_for
from ..stream_trainings import Runs, check_net, setting_places, trainings_of
from .config import PICTURES, FolderHierarchy, HierarchyFile, IircConfig, ImageSource, ProposedHierarchy, TasksDrawn
from .stream import SAMPLES
from .vectors import vectors_digest


def trainings(config: IircConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """Every training of some methods in some task configurations, one per seed.

    Args:
        config: settings of the run.
        out: the run.
        methods: names in ``training.baselines.iirc``, or of any other method; by default those of the settings.
        protocols: ``configuration-0``, ...: task configurations; by default those of the settings.

    Raises:
        WrongUse: an unknown method or configuration, settings that do not fit, or vectors that have not been made.
    """
    e = config.evaluation
    numbers = [_number(str(each), config) for each in [*protocols] or e.configurations or config.tasks.configurations]
    names = [*map(METHODS.present, [*methods] or e.methods)]
    runs = Runs(posixpath.join(out, DATASET), device=e.device, workers=e.workers)
    table = DatasetIndex.open(runs.dataset).table
    views = {number: RefinedView(table, number) for number in numbers}
    kinds = {number: {"kinds": list(view.kinds)} for number, view in views.items()}
    of_other_labels = list({frozenset(views[number].classes): number for number in reversed(numbers)}.values())[::-1]
    measures = {
        number: with_metrics({"sets": Step(measure_sets, kinds[number])}, e.metrics, known=OF_LABEL_SET_STREAMS)
        for number in numbers
    }

    def baselines() -> Iterator[dict[str, Any]]:
        for name in names:
            method, settings = settings_of(config, name)
            if config.vectors is not None:
                settings["data"]["vectors"] = vectors_digest(out)
            # All samples at once are one task: configurations with the same labels train the same.
            joint = settings["data"]["samples"] == "all"
            own = {"seeds": e.joint_seeds} if joint and e.joint_seeds else {}
            memories = [settings["memory"]]
            if name == "er" and e.er_sizes:
                memories = [{**settings["memory"], "size": size} for size in e.er_sizes]
            for memory in memories:
                for number in of_other_labels if joint else numbers:
                    given = {"order": number, "measures": measures[number], "places": setting_places(name)}
                    yield {"method": (name, method), "settings": {**settings, "memory": memory}, **given, **own}

    return _trainings(config, baselines(), e.seeds, runs)


def _trainings(config: IircConfig, baselines: Iterable[dict[str, Any]], seeds: Iterable[int], runs: Runs) -> list[Training]:
    e = config.evaluation
    return trainings_of(
        baselines,
        seeds,
        protocol=f"{e.information} information",
        model=(e.model, MODELS.find(e.model).reference),
        prepare="benchwright.pipelines.iirc.stream:tasks",
        runs=runs,
        samples="images" if config.vectors is None else "vectors",
        labels="sets",
        classes="new",
        change="evaluation.settings.schedule.learning_rate, or method_settings",
    )


def check_settings(config: IircConfig) -> None:
    """Raise ``WrongUse`` if the files of the hierarchy and the tasks do not fit each other or the source's folders, or the
    settings' baselines do not fit, as far as this can be checked before pictures are read."""
    _check_hierarchy(config)
    chosen = {name: settings_of(config, name) for name in map(METHODS.present, config.evaluation.methods)}
    measures = with_metrics({}, config.evaluation.metrics, known=OF_LABEL_SET_STREAMS)
    baselines = (
        {"method": (name, method), "settings": settings, "measures": measures, "places": setting_places(name)}
        for name, (method, settings) in chosen.items()
    )
    _trainings(config, baselines, [0], Runs("", device=config.evaluation.device))


def _check_hierarchy(config: IircConfig) -> None:
    h, t, s = config.hierarchy, config.tasks, config.source
    tasks = t.drawn_tasks(config.seed) if isinstance(t, TasksDrawn) else t.path
    try:
        named = s if isinstance(s, ImageSource) and s.kind == "folders" and s.classes is None else None  # folders are classes
        if isinstance(h, ProposedHierarchy):
            read_parents(h.path)
        elif isinstance(h, HierarchyFile):
            tree = read_hierarchy(h.path)
            tree = tree.flat() if config.setup == "class_incremental" else tree
            if not h.only_found:
                if named:
                    _check_class_folders(named.root, tree, h.path)
                configurations_of(tasks, t.configurations, tree)
            elif named and (places := list(picture_folders(named.root, named.splits))):
                there = {name for _, name, _ in places}
                if not there.intersection(tree.subclasses):
                    message = (
                        f"none of the {len(tree.subclasses)} classes of the hierarchy {h.path!r} has a folder in {named.root}"
                    )
                    raise WrongUse(f"{message}, such as {tree.subclasses[0]!r}: there are {', '.join(sorted(there)[:3])}")
                left = tree.restricted(there, min_subclasses=h.min_subclasses)
                configurations_of(tasks, t.configurations, left, only_found=True)
        elif named and isinstance(h, FolderHierarchy) and (places := list(picture_folders(named.root, named.splits))):
            tree = hierarchy_of_places(places)
            tree = tree.restricted(tree.subclasses, min_subclasses=h.min_subclasses)
            configurations_of(tasks, t.configurations, tree, only_found=True)
        if isinstance(s, ImageSource):
            check_test_share(config.shares, list(dict.fromkeys(s.splits.values())))
    except FileNotFoundError:
        return  # the run reports this for every source
    except ValueError as error:
        raise WrongUse(str(error)) from None


def _check_class_folders(root: str, tree: Hierarchy, path: str) -> None:
    """Raise ``WrongUse`` if a class has no folder."""
    if lacking := missing_folders(root, tree.subclasses):
        message = f"{len(lacking)} of {len(tree.subclasses)} classes of the hierarchy {path!r} have no folder in {root}"
        raise WrongUse(f"{message}, the first is {lacking[0]!r}: to exclude them, set hierarchy.only_found=true")


def _number(text: str, config: IircConfig) -> int:
    digits = text.removeprefix("configuration-").removeprefix("configuration ")
    if not digits.isdecimal() or int(digits) not in config.tasks.configurations:
        known = ", ".join(f"configuration-{number}" for number in config.tasks.configurations)
        raise WrongUse(f"no protocol {text!r}: there are {known}")
    return int(digits)


def settings_of(config: IircConfig, name: str) -> tuple[str, dict[str, Any]]:
    """Reference of a method, and the paper's settings for it with the changes of the configuration.

    Raises:
        WrongUse: an unknown method, table or name, or values that do not fit.
    """
    e = config.evaluation
    own, settings = paper_settings(name, dataset=e.dataset)
    reference = reference_of(METHODS, own, [*paper_methods(), *METHODS.builtin])
    if e.model != PICTURES:
        settings["model"] = {}
    free = ("method",) if e.model == PICTURES else ("method", "model")  # names are checked by the functions called
    try:
        for changes in (e.settings, settings_for(name, e.method_settings, {}, METHODS.present)):
            settings |= {table: {**settings[table], **changes.get(table, {})} for table in free}
            settings = with_changes(settings, {table: values for table, values in changes.items() if table not in free})
        picture_view(settings["view"])
        if (samples := settings["data"]["samples"]) not in SAMPLES:
            raise ValueError(f"data.samples {samples!r}: one of {', '.join(SAMPLES)}")
        check_net(e.model, settings["model"], "images" if config.vectors is None else "vectors")
    except ValueError as error:
        raise WrongUse(f"{name}: {error}") from None
    labels = e.information if settings["data"]["samples"] == "task" else "complete"
    settings["data"] |= {"labels": labels, "roles": list(e.roles)}
    if config.vectors is not None:
        del settings["view"]
    return reference, settings
