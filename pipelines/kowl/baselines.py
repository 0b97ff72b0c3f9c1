"""Predictors of a KOWL run: how much feedback they get, and their settings."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

from ...curation.flow import Step, step
from ...curation.keys import how, named, work_folder
from ...curation.named import load
from ...curation.verify import DATASET
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.open_world_measures import PROTOCOL, measure_open_world
from ...eval.protocols.open_world_predictions import COLUMNS, Predictions
from ...training.predictors import registry
from ..errors import WrongUse, did_you_mean
from ..experiments import FOLDER, Training, dataset_digest
from ..streams import short, with_metrics
from .config import KowlConfig
from .stream import learn_open_world, measure_strata


def trainings(config: KowlConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """Every training of some predictors at some amounts of feedback.

    Args:
        config: settings of the run.
        out: the run.
        methods: names of ``training.predictors.registry``, or references; those of the settings by default.
        protocols: feedback amounts, as numbers in text; those of the settings by default.

    Raises:
        WrongUse: for a run without features; a predictor, a hyper-parameter or an amount that is not known.
    """
    if config.features is None:
        raise WrongUse(f"{out} has no features: give the settings [features] and run again")
    e, dataset = config.evaluation, posixpath.join(out, DATASET)
    chosen = list(methods) or e.predictors
    _check_names([*chosen, *e.settings])
    amounts = [_amount(name) for name in protocols] or e.feedback
    measures = _measures(config, out)
    found: list[Training] = []
    for name in chosen:
        reference, settings = predictor_of(config, name)
        learn = step(
            learn_open_world,
            training={},
            digest="",
            dataset=how(dataset),
            features=how(posixpath.join(out, FOLDER)),
            predictor=named(reference),
            device=how(e.device),
            folder=work_folder(),
        )
        facts = {"predictor": settings, "experience_limit": e.experience_limit, "prior_knowledge": e.prior_knowledge}
        change = f"evaluation.settings.{name}"
        found += [
            Training(_protocol(amount), short(name), "", facts, config.seed, learn, COLUMNS, measures, change=change)
            for amount in amounts
        ]
    return found


def _measures(config: KowlConfig, out: str) -> dict[str, Step]:
    dataset = posixpath.join(out, DATASET)
    measures = {"whole": Step(measure_open_world, {})}
    if {"stratum_area", "transform"}.intersection(DatasetIndex.open(dataset).table.column_names):
        measures["strata"] = Step(measure_strata, {"dataset": how(dataset), "digest": dataset_digest(out)})
    try:
        return with_metrics(measures, config.evaluation.metrics, Predictions)
    except LookupError as error:
        raise WrongUse(f"evaluation.metrics: {error}") from None


def _check_names(names: Sequence[str]) -> None:
    known = registry.PREDICTORS
    if unknown := [name for name in names if name not in known and ":" not in name]:
        raise WrongUse(f"no predictor {unknown[0]!r}: there are {', '.join(known)}{did_you_mean(unknown[0], known)}")


def predictor_of(config: KowlConfig, name: str) -> tuple[str, dict[str, Any]]:
    """Reference and hyper-parameters of a predictor, checked before anything runs."""
    paper, changes = registry.paper_settings().get(name, {}), config.evaluation.settings.get(name, {})
    if name in registry.PREDICTORS and (strange := sorted(changes.keys() - paper.keys())):
        raise WrongUse(f"evaluation.settings.{name} has no {strange[0]!r}: there are {', '.join(paper)}")
    reference, settings = registry.reference(name), {**paper, **changes}
    try:
        load(reference)(seed=config.seed, device="cpu", **settings)
    except (LookupError, ValueError, TypeError) as error:
        raise WrongUse(f"evaluation.settings.{name}: {error}") from None
    return reference, settings


def _amount(text: str) -> float:
    try:
        amount = float(text.removeprefix("feedback-").removeprefix(PROTOCOL))
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 1:
        raise WrongUse(f"no protocol {text!r}: a share of labels from 0 to 1 is wanted, such as 0.5")
    return amount


def _protocol(amount: float) -> str:
    """``feedback 1``, ``feedback 0.5``: no digit of the amount is lost."""
    return f"{PROTOCOL}{int(amount) if amount in (0, 1) else repr(amount)}"
