"""Baselines of a two-camera run in folds: networks on transforms, regression, estimators on pictures, and user-defined ones."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from ...curation.code_loading import load
from ...curation.flow import Step, step
from ...curation.keys import how, named, sha256, work_folder
from ...curation.registry import BUILT_IN
from ...curation.verify import DATASET
from ...eval.metrics.registry import METRICS
from ...eval.protocols.cross_validation import ESTIMATES, Direction, FoldScheme, estimates_of, measure_folds
from ...training.illuminants import choice
from ...training.illuminants.registry import ESTIMATORS, candidates, functions
from ...training.two_camera.settings import hyper_of, settings
from ..errors import WrongUse, unknown
from ..experiments import Training
from ..metrics import with_metrics
from ..names import settings_for, short
from ..training_results import predictions
from . import learning
from .config import NetworkTraining, Radiometric, TwoCameraConfig

LINEAR = "linear_regression"


class ChosenEstimator(NamedTuple):
    """An estimator chosen by the settings.

    Attributes:
        model: name in the results.
        reference: reference of the function or class that makes it.
        functions: references of its parts, if it works on pictures.
        settings: settings of the training, see ``settings_of``.
        seed: first seed.
        change: the setting to change if it diverges.
    """

    model: str
    reference: str
    functions: dict[str, str]
    settings: dict[str, Any]
    seed: int
    change: str


def trainings(config: TwoCameraConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """One training per method, for all its seeds and folds, which are trained side by side.

    Args:
        config: settings of the run.
        out: the run.
        methods: names of networks in the settings, and of baselines; by default those of the settings.
        protocols: only the kind of folds in the settings: ``rotating`` or ``fixed``.

    Raises:
        WrongUse: an unknown method or protocol, settings that do not fit, or a baseline that needs pictures in a run without
            pictures.
    """
    parts = config.folds.kind
    if wrong := [name for name in protocols if name != parts]:
        raise WrongUse(f"no protocol {wrong[0]!r}: this run has the folds {parts!r}")
    names = list(methods) or [*config.evaluation.networks, *config.evaluation.baselines]
    chosen = [(name, settings_of(config, name, way)) for way in directions(config) for name in names]
    return [training_of(config, out, *each, protocol=config.folds.kind) for each in chosen]


def check_settings(config: TwoCameraConfig) -> None:
    """Raise ``WrongUse`` if the settings' networks or estimators do not fit, before there is a dataset."""
    for name in [*config.evaluation.networks, *config.evaluation.baselines]:
        _made(config, name)
    _with_metrics(config, {})


def _with_metrics(config: TwoCameraConfig, measures: Mapping[str, Step]) -> dict[str, Step]:
    return with_metrics(measures, config.evaluation.metrics, estimates_of, known=METRICS.only())


def directions(config: TwoCameraConfig) -> list[Direction]:
    """``1to2`` (the light in the first camera is estimated, from T to the second), ``2to1`` (the reverse), or both."""
    return ["1to2", "2to1"] if config.evaluation.direction == "both" else [config.evaluation.direction]


def training_of(config: TwoCameraConfig, out: str, name: str, chosen: ChosenEstimator, protocol: FoldScheme) -> Training:
    """The training of an estimator. It is measured on folds, but not if it learns from all pairs."""
    here = learning.__name__
    pictures = "patches_of" if isinstance(config.source, Radiometric) else "pictures_of"
    learn = step(
        learning.learn_folds,
        training={},
        digest="",
        dataset=how(posixpath.join(out, DATASET)),
        estimator=named(chosen.reference, **{part: named(each) for part, each in chosen.functions.items()}),
        rows=named(f"{here}:{rows_learned(chosen.settings)}"),
        pictures=named(f"{here}:{pictures}") if "longest_px" in chosen.settings else None,
        changes=named(f"{here}:changes_of") if "relit_pictures" in chosen.settings else None,
        folder=work_folder(),
    )
    unfair = {flag: chosen.settings[flag] for flag in ("looks_at_test", "lights_of_test")}
    measures = _with_metrics(config, {"angles": Step(measure_folds, unfair)})
    return Training(
        protocol=protocol,
        method=short(name),
        model=chosen.model,
        settings=chosen.settings,
        seed=chosen.seed,
        learn=learn,
        gives=ESTIMATES,
        measures=measures if protocol == config.folds.kind else {},
        change=chosen.change,
    )


def rows_learned(settings: Mapping[str, Any]) -> str:
    """Name of the function in ``learning`` that returns the rows of a training, by its settings."""
    if not settings.get("augmented", True):
        return "measured_rows"
    return "with_reilluminated_rows" if settings["reilluminated"] else "dataset_rows"


def settings_of(config: TwoCameraConfig, name: str, direction: Direction = "1to2") -> ChosenEstimator:
    """An estimator and all settings of its training in one direction, checked before any data is read.

    ``estimator`` holds the estimator's own settings. ``looks_at_test`` and ``lights_of_test`` mark results that are not fair.
    ``longest_px`` is set for estimators on pictures, None if these are not reduced. ``relit_pictures`` is set if it learns from
    re-lit pictures, ``augmented`` if it leaves out the re-illuminated rows of the dataset, and ``relit_rows`` if it learns from
    no more of them for each pair.

    Raises:
        WrongUse: an unknown method, or settings that do not fit.
    """
    model, own, reference, parts, made = _made(config, name)
    evaluation, network = config.evaluation, config.evaluation.networks.get(name)
    rows = evaluation if network is None else network
    pictured, learns = bool(getattr(made, "needs_pictures", False)), "fit" in parts or not parts
    found: dict[str, Any] = {
        "direction": direction,
        "reilluminated": rows.reilluminated and not pictured,
        "lights_of_test": rows.lights_of_test and learns,
        "looks_at_test": bool(getattr(made, "looks_at_test", False)),
        "estimator": own,
    }
    if network is not None and not network.augmented:
        found["augmented"] = False
    elif config.augmentation is not None and config.augmentation.targets == "training_folds" and learns:
        found["relit_rows"] = config.augmentation.count
    if pictured:
        _check_pictures(config, short(name))
        found["longest_px"] = None if isinstance(config.source, Radiometric) else evaluation.longest_px
        if "fit" in parts and evaluation.relit_pictures and config.augmentation is not None:
            found["relit_pictures"] = evaluation.relit_pictures
    seed = 0 if network is None else min(own["seeds"])
    change = f"evaluation.{f'method_settings.{short(name)}' if network is None else f'networks.{name}.settings'}"
    return ChosenEstimator(short(model), reference, parts, found, seed, change)


def _made(config: TwoCameraConfig, name: str) -> tuple[str, dict[str, Any], str, dict[str, str], Any]:
    """Model, own settings, reference and functions of an estimator, and the estimator itself."""
    _check_names(config, name)
    evaluation, network = config.evaluation, config.evaluation.networks.get(name)
    changes = settings_for(name, evaluation.method_settings, {})
    try:
        if network is not None:
            model, own = _network(evaluation.networks, name, network)
        elif name in candidates():
            model, choices = candidates()[name]
            own = {**choices, **changes}
        else:
            model, own = name, dict(changes)
        reference = ESTIMATORS.find(model).reference
        parts = functions(reference)
        if parts:
            reference = f"{choice.__name__}:PictureEstimator"
        made = load(reference)(**{part: load(each) for part, each in parts.items()}, **own)
    except (ValueError, TypeError, LookupError) as error:
        raise WrongUse(f"{'estimator' if network is None else 'network'} {short(name)!r}: {error}") from None
    return model, own, reference, parts, made


def _check_names(config: TwoCameraConfig, name: str) -> None:
    networks, baselines = config.evaluation.networks, [LINEAR, *candidates()]
    offered = [entry.name for entry in ESTIMATORS.entries() if entry.origin != BUILT_IN]
    known = [*networks, *baselines, *offered]
    if strange := [each for each in [name, *config.evaluation.baselines] if each not in known and ":" not in each]:
        raise unknown("method", strange[0], known, listed="`benchwright list estimators` and evaluation.networks")
    if shadowed := [each for each in networks if each in baselines or not re.fullmatch(r"[\w-]+", each)]:
        raise WrongUse(f"network {shadowed[0]!r}: expected a name of letters, digits, - and _ that no baseline has")


def _check_pictures(config: TwoCameraConfig, name: str) -> None:
    if not config.pictured:
        raise WrongUse(f"baseline {name!r} needs pictures, and this run has none: leave it out of the methods")


def _network(networks: Mapping[str, NetworkTraining], name: str, network: NetworkTraining) -> tuple[str, dict[str, Any]]:
    """Estimator and settings of the networks with one shape."""
    hyper = dataclasses.asdict(hyper_of({**settings(network.preset), **network.settings}))
    if (network.parameters is None) == (network.hidden is None):
        raise ValueError(f"evaluation.networks.{name}: set either parameters or hidden")
    own: dict[str, Any] = {"hyper": hyper, "seeds": network.seeds, "measured_times": network.measured_times}
    own |= {"hidden": network.hidden} if network.parameters is None else {"parameters": network.parameters}
    own |= {"activation": network.activation} if network.activation != "relu" else {}
    if network.taught_by is None:
        return "network", own
    teacher = networks.get(network.taught_by)
    if teacher is None or teacher.taught_by is not None or "decay" not in hyper:
        raise ValueError(f"taught by {network.taught_by!r}: a network that has no teacher, and a preset with a decay")
    same = ("reilluminated", "augmented", "lights_of_test")
    if unlike := [field for field in same if getattr(network, field) != getattr(teacher, field)]:
        raise ValueError(f"expected {unlike[0]} = {getattr(teacher, unlike[0])}, as {network.taught_by!r} has it")
    own |= {"rows": network.taught_rows, "teacher": _network(networks, network.taught_by, teacher)[1]}
    return "distilled", own


def write_artifacts(out: str, folder: str) -> list[Path]:
    """Write the artifacts of estimators (weights, chosen settings) into ``folder``, one folder per training.

    Args:
        out: the run.
        folder: new or existing folder; files with the same names are overwritten.

    Returns:
        The files.

    Raises:
        ValueError: the name that an estimator gave to a file contains a folder.

    >>> import benchwright as bw
    >>> done = bw.run(bw.job("two_camera", config="tiny"), "cameras")
    >>> scores = bw.train("cameras", methods=["gray_world"])
    >>> [path.name for path in write_artifacts("cameras", "weights")]
    ['test-part.npz']
    """
    from ...curation.local_files import write_whole

    found: list[Path] = []
    for facts, rows in predictions(out):
        table = rows.table(["name", "run", "file"])
        table = table.filter(pc.is_null(table["run"]))
        place = Path(folder) / f"{re.sub('[:/]', '-', facts['method'])}-{sha256(str(sorted(facts.items())))[:8]}"
        for name, data in zip(table["name"].to_pylist(), table["file"].to_pylist(), strict=True):
            if name in ("", ".", "..") or Path(name).name != name:
                raise ValueError(f"{facts['method']} calls a file {name!r}: expected a plain file name without folders")
            found.append(place / name)
            write_whole(found[-1], data)
    return found
