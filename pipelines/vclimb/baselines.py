"""Baselines of a vCLIMB run: its protocols, its methods and their settings."""

from __future__ import annotations

import inspect
import itertools
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...curation.artifact import Artifact, load_artifact
from ...curation.code_loading import UnknownName
from ...curation.flow import Step
from ...curation.registry import load_entry
from ...curation.store import Store
from ...curation.verify import DATASET
from ...eval.protocols.class_incremental import measure_classes
from ...training.baselines.vclimb import CONSISTENT, GROUPS, MODEL, paper_methods, paper_settings, present_name, table_rows
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ...training.models.tsn import check_tsn
from ..config import with_changes
from ..errors import WrongUse
from ..experiments import Training
from ..metrics import with_metrics
from ..names import reference_of, settings_for
from ..stream_trainings import Runs, setting_places, trainings_of, weights_sha256
from .config import VclimbConfig, VclimbEvaluation
from .stream import clip_view, narrowings, tasks


def trainings(config: VclimbConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """Every training of some methods under some protocols, one per seed.

    Args:
        config: settings of the run.
        out: the run.
        methods: names in ``training.baselines.vclimb``, names of any method of the registry, or references, each optionally
            with ``+tc`` for temporal consistency, or tables of the paper, such as ``table3``; by default those of the settings.
        protocols: ``frames-4``, ``frames-all``, ...: frames of a stored clip; by default those of the settings. Of a table of
            the paper, only its rows with these frames are trained.

    Raises:
        WrongUse: an unknown method or protocol, settings that do not fit, or a dataset that lacks a task or a role.
    """
    e = config.evaluation
    recorded = {"roles": list(e.roles), "split_file": split_file(load_artifact(Store(out), "listed")), "weights": _weights(e)}
    rows = baseline_rows(config, list(methods), [_frames(name) for name in protocols])
    found = _trainings(config, posixpath.join(out, DATASET), rows, e.seeds, recorded)
    _check_tasks(config, out, found[0].facts())
    return found


def _trainings(
    config: VclimbConfig,
    dataset: str,
    rows: Iterable[tuple[str, Any]],
    seeds: Iterable[int],
    recorded: Mapping[str, Any],
) -> list[Training]:
    e = config.evaluation

    def baselines() -> Iterator[dict[str, Any]]:
        for name, frames in rows:
            settings = {**baseline_settings(config, name, frames), **recorded}
            _check_views(name, settings)
            given = {"settings": settings, "places": setting_places(name)}
            yield {"protocol": f"frames {frames}", "method": (name, _reference(name)), **given}

    return trainings_of(
        baselines(),
        dict.fromkeys(seeds),
        model=_model(e),
        measures=with_metrics({"classes": Step(measure_classes, {})}, e.metrics),
        prepare="benchwright.pipelines.vclimb.stream:tasks",
        runs=Runs(dataset, e.weights, e.device, e.workers),
        samples="clips",
        labels="one",
        classes="new",
        change="evaluation.settings.schedule.learning_rate, or method_settings",
    )


def check_settings(config: VclimbConfig) -> None:
    """Raise ``WrongUse`` if the settings' baselines do not fit, as far as this can be checked before there is a dataset."""
    _trainings(config, "", baseline_rows(config), config.evaluation.seeds[:1], {})


def baseline_rows(config: VclimbConfig, methods: Sequence[str] = (), frames: Sequence[Any] = ()) -> list[tuple[str, Any]]:
    """What is trained: method and frames of a stored clip, each pair once. Arguments that are not empty replace the settings.

    Raises:
        WrongUse: a table of the paper has no row for the dataset, the number of tasks and these frames.
    """
    e = config.evaluation
    names, tables = list(methods or e.methods), dict[str, list[tuple[str, Any]]]()
    for name in (name for name in names if name in GROUPS):
        found = table_rows(name, dataset=e.dataset, tasks=config.split.tasks)
        if not (rows := [row for row in found if not frames or row[1] in frames]):
            shown = f" with {' or '.join(map(str, frames))} frames" if found else ""
            message = f"the paper's {name} has no row{shown} for {e.dataset} in {config.split.tasks} tasks"
            raise WrongUse(f"{message}: name methods instead, such as icarl{CONSISTENT}")
        tables[name] = rows
    plain = [present_name(name) for name in names if name not in tables]
    product = [(name, each) for each in frames or e.frames for name in plain]
    return list(dict.fromkeys([*product, *itertools.chain(*tables.values())]))


def split_file(listed: Artifact | None) -> str | None:
    """SHA-256 of the split file, or other single-file list, that the first stage of a run read; None if it read none."""
    value = None if listed is None else listed.recipe["settings"].get("path")
    return value["content"] if isinstance(value, Mapping) and "content" in value else None


def _frames(text: str) -> Any:
    frames = text.removeprefix("frames-").removeprefix("frames ")
    if frames != "all" and not (frames.isdecimal() and int(frames)):
        raise WrongUse(f"no protocol {text!r}: expected frames of a stored clip, such as frames-4 or frames-all")
    return "all" if frames == "all" else int(frames)


def _reference(name: str) -> str:
    """Reference of the function that makes the method."""
    return reference_of(METHODS, name.removesuffix(CONSISTENT), METHODS.builtin, f"and each with {CONSISTENT}")


def _model(e: VclimbEvaluation) -> tuple[str, str]:
    """Name and reference of the model, which must take weights if the settings give some."""
    name = e.model or MODEL
    try:
        entry = MODELS.find(name)
        takes = inspect.signature(load_entry(entry)).parameters
    except UnknownName as error:
        raise WrongUse(f"evaluation.model: {error}") from None
    if e.weights is not None and "weights" not in takes:
        raise WrongUse(f"evaluation.weights: model {name!r} takes no weights")
    return name, entry.reference


def _weights(e: VclimbEvaluation) -> str | None:
    """SHA-256 of the file of weights."""
    try:
        return weights_sha256(e.weights)
    except OSError as error:
        raise WrongUse(f"evaluation.weights = {e.weights!r}: {error.strerror}") from None


def baseline_settings(config: VclimbConfig, name: str, frames: Any) -> dict[str, Any]:
    """The paper's settings of one baseline with the changes of the configuration.

    A method that is not in the paper is trained like those with a memory.

    Raises:
        WrongUse: an unknown method, table or name.
    """
    e = config.evaluation
    name = present_name(name)
    plain = name.removesuffix(CONSISTENT)
    _reference(name)
    like = name if plain in paper_methods() else f"finetune{name[len(plain) :]}"
    settings = paper_settings(like, dataset=e.dataset, preset=e.preset, frames=frames, variant=e.variant)
    own = settings_for(name, e.method_settings, {}, present_name)
    if like != name:
        settings["method"], own = dict(own.get("method", {})), {key: own[key] for key in own if key != "method"}
    if e.roles[1] == "none":
        settings["schedule"] = {**settings["schedule"], "select": "none"}
    changes = e.settings
    if settings["consistency"] is None and "consistency" in changes:
        if not any(each.endswith(CONSISTENT) for each, _ in baseline_rows(config)):
            message = f"no name of evaluation.methods ends in {CONSISTENT}, such as {name}{CONSISTENT}"
            raise WrongUse(f"evaluation.settings.consistency: {message}")
        changes = {table: values for table, values in changes.items() if table != "consistency"}
    if e.model not in (None, MODEL):
        settings["model"] = dict(e.model_settings)
        changes = {table: values for table, values in changes.items() if table != "model"}
    try:
        settings = with_changes(settings, changes, own)
        if e.model in (None, MODEL):
            check_tsn(settings["model"]["backbone"], None if e.weights is None else Path(e.weights))
    except ValueError as error:
        raise WrongUse(f"{name}: {error}") from None
    return settings


def _check_views(name: str, settings: Mapping[str, Any]) -> None:
    try:
        clip_view(settings)
        narrowings(settings)
    except (TypeError, ValueError) as error:
        raise WrongUse(f"{name}: {error}") from None


def _check_tasks(config: VclimbConfig, out: str, training: Mapping[str, Any]) -> None:
    """Raise ``WrongUse`` if the dataset lacks tasks or roles that trainings need."""
    try:
        positions = tasks(posixpath.join(out, DATASET), "", training).stream.positions
    except ValueError as error:
        raise WrongUse(f"{out}: {error}") from None
    if len(positions) != config.split.tasks:
        raise WrongUse(f"{out} has clips of {len(positions)} tasks, and split.tasks is {config.split.tasks}: see its coverage")
