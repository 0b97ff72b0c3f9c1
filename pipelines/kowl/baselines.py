"""Predictors of a KOWL run: their amounts of feedback, and their settings."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...curation.bounded_reading import read_file
from ...curation.code_loading import UnknownName
from ...curation.flow import Step, step
from ...curation.keys import how, named, work_folder
from ...curation.registry import BUILT_IN, load_entry, load_name
from ...curation.verify import DATASET
from ...datasets.kinetics.lists import read_class_names
from ...datasets.reader.index import DatasetIndex
from ...eval.metrics.registry import METRICS
from ...eval.protocols.open_world.doubts import doubts as doubts_of
from ...eval.protocols.open_world.measures import measure_nuisances, measure_open_world, measure_start
from ...eval.protocols.open_world.predictions import COLUMNS, OpenWorldPredictions
from ...training.predictors.paper import paper_settings, start_settings
from ...training.predictors.registry import PREDICTORS, new_predictor
from ..errors import WrongUse
from ..experiments import Training
from ..metrics import with_metrics
from ..names import settings_for, short
from ..training_results import FOLDER, dataset_digest, results
from .config import MAIN, DrawnFeatures, KowlConfig, StoredFeatures, setting_of, stage_apart
from .people import by_people, check_people
from .protocols import BY_PEOPLE, SCORES, START, protocol_of, read_protocol
from .stream import finished_stage, learn_open_world, measure_nuisance, measure_strata


def trainings(config: KowlConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """Every training of some predictors at some amounts of feedback.

    Args:
        config: settings of the run.
        out: the run.
        methods: names in ``training.predictors.registry``, or references; by default those of the settings.
        protocols: feedback amounts, as numbers in text; by default those of the settings.

    Raises:
        WrongUse: a run without features, or an unknown predictor, hyper-parameter or amount.
    """
    if config.features is None:
        raise WrongUse(f"{out} has no features: set [features] and run again")
    e, dataset = config.evaluation, posixpath.join(out, DATASET)
    names = list(methods) or e.predictors
    _check_settings(config, [short(PREDICTORS.find(name).name) for name in map(_known, names)])
    given = [read_protocol(name) for name in protocols]
    protocols_of = {name: given or _of_settings(config, name) for name in names}
    asked = list(dict.fromkeys(itertools.chain(*protocols_of.values())))
    if any(protocol.endswith(BY_PEOPLE) for protocol in asked):
        check_people(config, out)
    measures = {START: {START: Step(measure_start, {})}}
    measures |= {protocol: _measures(config, out) for protocol in asked if protocol != START}
    found: list[Training] = []
    for of, features in itertools.product(names, config.sets):
        name, reference, _ = _predictor(config, of, features)
        if features not in settings_for(PREDICTORS.find(of).name, e.sets_of_predictors, [*config.sets]):
            continue
        outputs = _outputs(config, features)
        if (outputs is None) == ("outputs" in inspect.signature(load_name(PREDICTORS, reference)).parameters):
            continue
        vectors = _vectors(config, out, features)
        model = features if config.feature_sets else ""
        for protocol in protocols_of[of]:
            if not _fits(config, protocol, name, reference):
                continue
            _, _, settings = _predictor(config, of, features, start=protocol == START)
            facts = {"predictor": settings, "experience_limit": e.experience_limit, "prior_knowledge": e.prior_knowledge}
            from_states = e.keep_states and protocol != START  # how transforms are evaluated; start has only one increment
            learn = step(
                learn_open_world,
                training={},
                digest="",
                dataset=how(dataset),
                features=how(posixpath.join(out, FOLDER)),
                predictor=named(reference),
                device=how(e.device),
                folder=work_folder(),
                vectors={kind: place for kind, place in vectors.items() if not (kind and from_states)},
                run=how(out),
                outputs=outputs or [],
                first=config.labels.releases[0],
                keep_states=from_states,
            )
            change = f"evaluation.settings.{name}"
            one = Training(protocol, name, model, facts, config.seed, learn, COLUMNS, measures[protocol], change=change)
            if from_states:
                one = dataclasses.replace(one, measures={**one.measures, **_of_nuisances(one, vectors, dataset_digest(out))})
            found.append(by_people(config, one))
    if not found and SCORES in asked:
        raise WrongUse(f"{SCORES}: none of {', '.join(map(short, names))} has take_scores: add --method ann")
    if not found:
        rule = "predictor 'original' takes a feature set with outputs, a file of class names, and no other predictor does"
        also = "; evaluation.sets_of_predictors also limits its sets" if e.sets_of_predictors else ""
        raise WrongUse(f"nothing to train: {rule}: set features.outputs or feature_sets.NAME.outputs{also}")
    return found


def _of_nuisances(one: Training, vectors: Mapping[str, str], digest: str) -> dict[str, Step]:
    """A measure for each visual transform, computed from the states kept by the training."""
    given = {name: value for name, value in one.learn.settings.items() if name != "keep_states" and name != "folder"}
    given |= {"digest": digest}
    return {
        stage_apart(MAIN, kind).replace("vectors", "nuisance", 1): Step(
            measure_nuisance,
            {**given, "kind": kind, "vectors": {of: place for of, place in vectors.items() if of in ("", kind)}},
        )
        for kind in vectors
        if kind
    }


def _of_settings(config: KowlConfig, name: str) -> list[str]:
    """The protocols that the settings name for a predictor."""
    e = config.evaluation
    people = [] if e.people is None else e.people.feedback
    scores = [SCORES] if e.scores else []
    feedback = settings_for(name, e.feedback_of_predictors, e.feedback)
    return [*map(protocol_of, feedback), *scores, *(protocol_of(amount, people=True) for amount in people)]


def _fits(config: KowlConfig, protocol: str, name: str, reference: str) -> bool:
    """Whether to train a predictor under a protocol: some require a method of it, or are limited to named predictors."""
    people = config.evaluation.people
    if protocol.endswith(BY_PEOPLE):
        return people is None or not people.predictors or name in map(short, people.predictors)
    found = load_name(PREDICTORS, reference)
    return protocol != SCORES or not inspect.isclass(found) or hasattr(found, "take_scores")


def _outputs(config: KowlConfig, features: str) -> list[str] | None:
    """Names of the outputs of a feature set, if its vectors are outputs of a classifier."""
    given, place = config.sets[features], setting_of(features)
    if isinstance(given, DrawnFeatures) or given.outputs is None:
        return None
    if not isinstance(given, StoredFeatures) and not given.backbone.classes and given.backbone.kind != "torchscript":
        raise WrongUse(f"{place}.outputs = {given.outputs!r}: the backbone gives features: set {place}.backbone.classes")
    names = read_class_names(read_file(given.outputs))
    if len(names) != given.width:
        raise WrongUse(f"{given.outputs} names {len(names)} outputs, and the vectors have {given.width} numbers (width)")
    return names


def _vectors(config: KowlConfig, out: str, features: str) -> dict[str, str]:
    """The stages of a feature set next to the shards, with their digests, for ``learn_open_world``."""
    kinds = [*([] if features == MAIN else [""]), *config.sets[features].nuisances]
    stages = {short(kind): stage_apart(features, kind) for kind in kinds}
    return {kind: f"{stage}:{finished_stage(out, stage).digest}" for kind, stage in stages.items()}


def doubts(config: KowlConfig, out: str) -> list[str]:
    """Trainings whose settings do not suit their data, with the figure that shows it; ``config`` is not used."""
    return doubts_of(results(out))


def _measures(config: KowlConfig, out: str) -> dict[str, Step]:
    dataset = posixpath.join(out, DATASET)
    measures = {"whole": Step(measure_open_world, {})}
    if {"stratum_area", "transform"}.intersection(DatasetIndex.open(dataset).table.column_names):
        measures["strata"] = Step(measure_strata, {"dataset": how(dataset), "digest": dataset_digest(out)})
    if any(each.nuisances for each in config.sets.values()):
        measures["nuisances"] = Step(measure_nuisances, {})
    return _with_metrics(config, measures)


def _with_metrics(config: KowlConfig, measures: Mapping[str, Step]) -> dict[str, Step]:
    return with_metrics(measures, config.evaluation.metrics, OpenWorldPredictions, known=METRICS.only())


def _known(name: str) -> str:
    """Check a predictor's name, or reference, and return it."""
    try:
        PREDICTORS.find(name)
    except UnknownName as error:
        raise WrongUse(str(error)) from None
    return name


def _predictor(config: KowlConfig, name: str, features: str, *, start: bool = False) -> tuple[str, str, dict[str, Any]]:
    """Name, reference and hyper-parameters of a predictor on a feature set, checked before training.

    The parts of ``ann_evm`` use the hyper-parameters of ``ann`` and ``evm``, with the changes made for ``ann_evm``.
    """
    entry = PREDICTORS.find(_known(name))
    paper, known = paper_settings(), short(entry.name)
    changes = _changes(config, entry.name, features, start)
    if entry.origin == BUILT_IN and (strange := sorted(changes.keys() - paper[entry.name].keys())):
        raise WrongUse(f"evaluation.settings.{name} has no {strange[0]!r}: there are {', '.join(paper[entry.name])}")
    settings = {**paper.get(entry.name, {}), **changes}
    if entry.origin == BUILT_IN and entry.name == "ann_evm":
        settings = {part: {**paper[part], **_changes(config, part, features, start), **own} for part, own in settings.items()}
    try:
        new_predictor(load_entry(entry), settings, seed=config.seed)
    except (ValueError, TypeError) as error:  # UnknownName among them
        raise WrongUse(f"evaluation.settings.{known}: {error}") from None
    return known, entry.reference, settings


def _changes(config: KowlConfig, name: str, features: str, start: bool) -> dict[str, Any]:
    """The changes to a predictor in the settings: for every set, for this one, and for protocol ``start``."""
    e, found = config.evaluation, dict[str, Any]()
    for tables in (e.settings, e.settings_of_sets.get(features, {}), *(start_settings(), e.settings_of_start) * start):
        found |= settings_for(name, tables, {})
    return found


def check_settings(config: KowlConfig) -> None:
    """Raise ``WrongUse`` if the settings' predictors do not fit, as far as this can be checked before there is a dataset."""
    _with_metrics(config, {})
    predictors = config.evaluation.predictors
    for features in (MAIN, *config.feature_sets):
        for start in (False, True):
            _check_settings(config, [_predictor(config, name, features, start=start)[0] for name in predictors])
    for features in config.sets:
        _outputs(config, features)


def _check_settings(config: KowlConfig, chosen: Sequence[str]) -> None:
    """Raise ``WrongUse`` for settings of unknown predictors or feature sets."""
    e, sets = config.evaluation, [MAIN, *config.feature_sets]
    known = {*PREDICTORS.builtin, *chosen, *map(short, e.predictors)}
    named = {f"sets_of_predictors.{name}": own for name, own in e.sets_of_predictors.items()}
    for place, name in [
        *((f"settings_of_sets.{name}", name) for name in e.settings_of_sets),
        *((place, name) for place, own in named.items() for name in own),
        *((f"published.{backbone}.{name}", name) for backbone, own in e.published.items() for name in own),
    ]:
        if name not in sets:
            raise WrongUse(f"evaluation.{place}: no feature set {name!r}: there are {', '.join(sets)}")
    tables: dict[str, Mapping[str, Any]] = {f"settings_of_sets.{name}": table for name, table in e.settings_of_sets.items()}
    for place in ("settings", "settings_of_start", "sets_of_predictors", "feedback_of_predictors"):
        tables[place] = getattr(e, place)
    for place, table in tables.items():
        if strange := [name for name in table if short(name) not in known]:
            message = f"no predictor {strange[0]!r}: there are {', '.join(sorted(known))}"
            raise WrongUse(f"evaluation.{place}.{strange[0]}: {message}")
