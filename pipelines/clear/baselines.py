"""Baselines of a CLEAR run: its protocols, its methods and their settings."""

from __future__ import annotations

import dataclasses
import inspect
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.flow import Step
from ...curation.registry import load_name
from ...curation.verify import DATASET
from ...datasets.clear.labelled import check_background
from ...datasets.clear.release_features import check_types
from ...datasets.clear.splits import SEEDS
from ...datasets.reader.features import feature_sets
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.domain_incremental import measure_domains, measure_offline
from ...training.baselines.clear import expanded, method_groups, paper_methods, paper_settings
from ...training.data.pictures import picture_view
from ...training.methods.registry import METHODS
from ...training.models.backbone import HUB, check_hub_weights, hub_weights
from ...training.models.registry import MODELS
from ..config import check_file_not_empty
from ..errors import WrongUse, unknown
from ..experiments import LOGGER, Training
from ..feature_sets import EMBEDDING, PIXELS
from ..metrics import with_metrics
from ..names import quoted, reference_of, settings_for
from ..stream_trainings import Runs, check_net, trainings_of, weights_sha256
from .config import ClearConfig, ClearSource
from .paper_features import preset_of
from .preset_overrides import SCHEDULE
from .pretraining import pretrainings
from .source_config import LabelledSource, ReleaseSource
from .unlabelled import PRETRAIN

PROTOCOLS = ("iid", "streaming")
OFFLINE, JOINT = "offline", "joint"
"""The protocol that trains on all buckets at once, without time order, and the only method trained so."""


def trainings(config: ClearConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """Every training of some methods under some protocols, one per seed.

    Args:
        config: settings of the run.
        out: the run.
        methods: names in ``training.baselines.clear``'s ``paper_methods`` and ``method_groups``, names of any method of the
            registry, or references; by default those of the settings.
        protocols: ``iid`` and ``streaming``, both by default; ``offline`` for the method ``joint``; ``pretrain`` alone: see
            ``pretrainings``.

    Raises:
        WrongUse: an unknown method or protocol, settings that do not fit, or a dataset that lacks what a protocol needs.
    """
    protocols = list(protocols)
    asked = [*(protocols or PROTOCOLS)]
    if strange := [name for name in asked if name not in (*PROTOCOLS, OFFLINE, PRETRAIN)]:
        raise unknown("protocol", strange[0], (*PROTOCOLS, OFFLINE, PRETRAIN))
    if PRETRAIN in asked:
        if len(asked) > 1:
            raise WrongUse(f"protocol {PRETRAIN!r} has its own methods: train it separately")
        return pretrainings(config, out, list(methods))
    names = expanded(map(METHODS.present, list(methods) or config.baselines.methods))
    pairs = _pairs(asked, names, named=bool(protocols), chosen=bool(methods))
    _check_fit(config, pairs)  # before weights are fetched
    asked = list(dict.fromkeys(protocol for protocol, _ in pairs))
    dataset = posixpath.join(out, DATASET)
    table = DatasetIndex.open(dataset).table
    if "streaming" in asked and len(pc.unique(table["bucket"])) < 2:
        message = f"{out} has only one bucket: the streaming protocol tests on later buckets, but there are none"
        if protocols:
            raise WrongUse(message)
        LOGGER.warning("%s: skipping it", message)
        pairs = [pair for pair in pairs if pair[0] != "streaming"]
    _check_samples(config, out)
    split = [name for name in asked if name in ("iid", OFFLINE)]
    seeds = [seed for seed in SEEDS if not table[f"iid_seed{seed}"].null_count]
    if split and not seeds:
        message = f"{out} has no iid splits, since its release has none"
        if protocols:
            raise WrongUse(message)
        LOGGER.warning("%s: skipping this protocol", message)
        pairs = [pair for pair in pairs if pair[0] not in split]
    elif split:
        _check_splits(config, table, seeds)
    return _of_pairs(config, pairs, seeds, dataset, _weights(config), _features(config, out), SEEDS)


def check_settings(config: ClearConfig) -> None:
    """Raise ``WrongUse`` if the settings name something that the source does not have, or their baselines do not fit, as far
    as this can be checked before there is a dataset."""
    _check_source(config.source)
    _check_weights(config)
    names = expanded(map(METHODS.present, config.baselines.methods))
    _check_fit(config, _pairs(PROTOCOLS, names, named=False, chosen=False))


def _check_fit(config: ClearConfig, pairs: Iterable[tuple[str, str]]) -> None:
    """Raise ``WrongUse`` if methods, model and samples do not fit; no data are read."""
    _of_pairs(config, pairs, SEEDS[:1], "", None, {"features": _learned(config)}, SEEDS[:1])


def _check_source(s: ClearSource) -> None:
    try:
        if isinstance(s, ReleaseSource) and s.features:
            check_types(s.root, s.features)
        elif isinstance(s, LabelledSource) and s.background:
            columns = {"file": s.path_column, "date_taken": s.date_column} if s.csv else {}
            given: dict[str, Any] = {"root": s.root, "dates_csv": s.csv, "columns": columns, "label_column": s.label_column}
            check_background(s.background, **given)
    except ValueError as error:
        raise WrongUse(str(error)) from None


def _of_pairs(
    config: ClearConfig,
    pairs: Iterable[tuple[str, str]],
    seeds: Sequence[int],
    dataset: str,
    weights: str | None,
    features: dict[str, Any],
    of_streaming: Sequence[int],
) -> list[Training]:
    """Trainings for pairs of protocol and method; ``seeds`` are the seeds with an iid split."""
    return [
        training
        for protocol, name in pairs
        for training in trainings_of(
            [_baseline(config, protocol, name, weights, features)],
            of_streaming if protocol == "streaming" else seeds,
            prepare="benchwright.pipelines.clear.stream:domains",
            runs=Runs(dataset, weights, device=config.encoder_run.device, workers=config.baselines.workers),
            samples="images" if _learned(config) == PIXELS else "vectors",
            labels="one",
            classes="same",
            change="baselines.learning_rate",
        )
    ]


def _features(config: ClearConfig, out: str) -> dict[str, Any]:
    """The features to train on, for the settings of a training: a set's digest is included, since the dataset's omits it."""
    name = _learned(config)
    if name in (EMBEDDING, PIXELS):
        return {"features": name}
    if (described := feature_sets(posixpath.join(out, DATASET)).get(name)) is None:
        raise WrongUse(f"baselines.features = {name!r}: {out} has no features of this name yet: run it again first")
    return {"features": name, "features_digest": described["digest"]}


def _pairs(protocols: Sequence[str], names: Sequence[str], *, named: bool, chosen: bool) -> list[tuple[str, str]]:
    """Protocol and method of every baseline.

    Args:
        protocols, names: names of protocols and of methods.
        named: whether the protocols were named, rather than the default.
        chosen: whether the methods were named, rather than the default.
    """
    if OFFLINE in protocols and (others := [name for name in names if name != JOINT]) and chosen:
        raise WrongUse(f"protocol {OFFLINE} trains on all buckets at once: it takes only method {JOINT!r}, not {others[0]!r}")
    pairs = [(each, name) for each in protocols if each != OFFLINE for name in names if named or name != JOINT]
    offline = OFFLINE in protocols or (not named and JOINT in names)
    return pairs + ([(OFFLINE, JOINT)] if offline else [])


def _check_weights(config: ClearConfig) -> None:
    """Check the weights, as far as possible before they are fetched, or made by a pre-training."""
    weights, (name, settings) = config.baselines.weights, settings_of(config)
    if weights is None:
        return
    if "weights" not in inspect.signature(load_name(MODELS, name)).parameters:
        raise WrongUse(f"baselines.weights: model {name!r} takes no weights: name another, such as backbone")
    check_file_not_empty("baselines.weights", weights)
    if weights.startswith(HUB) and "name" in settings["model"]:
        try:
            check_hub_weights(settings["model"]["name"], weights.removeprefix(HUB))
        except ValueError as error:
            raise WrongUse(f"baselines.weights = {weights!r}: {error}") from None


def _weights(config: ClearConfig) -> str | None:
    """The file of the model's weights, which is fetched if necessary."""
    weights, settings = config.baselines.weights, settings_of(config)[1]
    if weights is None:
        return None
    _check_weights(config)
    try:
        if weights.startswith(HUB):
            return str(hub_weights(settings["model"].get("name", ""), weights.removeprefix(HUB)))
        weights_sha256(weights)
    except (OSError, ValueError) as error:
        raise WrongUse(f"baselines.weights = {weights!r}: {getattr(error, 'strerror', None) or error}") from None
    return weights


def _baseline(config: ClearConfig, protocol: str, name: str, weights: str | None, features: dict[str, Any]) -> dict[str, Any]:
    model, settings = settings_of(config)
    settings |= features
    settings |= {} if weights is None else {"weights": weights_sha256(weights)}
    method, settings["method"] = _method(config, name)
    measure = Step(measure_offline, {}) if protocol == OFFLINE else Step(measure_domains, {"protocol": protocol})
    return {
        "protocol": protocol,
        "method": (name, method),
        "model": (model, MODELS.find(model).reference),
        "settings": settings,
        "measures": with_metrics({"clear": measure}, config.baselines.metrics),
        "places": {"method": f"baselines.method_settings.{quoted(name)}", "model": "baselines.model_settings"},
    }


def _method(config: ClearConfig, name: str) -> tuple[str, dict[str, Any]]:
    """Reference and settings of a method."""
    own, settings = paper_methods(config.baselines.preset).get(name, (name, {}))
    reference = reference_of(METHODS, own, [*method_groups(), *paper_methods(), *METHODS.builtin])
    return reference, {**settings, **settings_for(name, config.baselines.method_settings, {}, METHODS.present)}


def _learned(config: ClearConfig) -> str:
    """The features to train on: by default the preset's, or the first set of a release without other vectors."""
    b, s = config.baselines, config.source
    learned = paper_settings(b.preset, b.features)[1]["features"]
    if b.features is None and learned == EMBEDDING and not config.vectors and isinstance(s, ReleaseSource) and s.features:
        return s.features[0]
    return learned


def settings_of(config: ClearConfig) -> tuple[str, dict[str, Any]]:
    """The model, and the preset's hyper-parameters with the changes of the settings."""
    b = config.baselines
    try:
        learned = _learned(config)
        model, settings = paper_settings(preset_of(config, learned), learned)
    except ValueError as error:
        raise WrongUse(f"baselines: {error}") from None
    changes = {key: value for key in SCHEDULE if (value := getattr(b, key)) is not None}
    for decay, other in ("decay_after_epochs", "decay_every_epochs"), ("decay_every_epochs", "decay_after_epochs"):
        if decay in changes:  # replaces the preset's decay, of either form
            settings["schedule"].pop(other, None)
    settings["schedule"] |= changes
    if b.model not in (None, model):  # the preset's settings belong to another model
        settings["model"] = {}
    settings["model"] |= b.model_settings
    if "view" in settings:
        try:
            settings["view"] = dataclasses.asdict(picture_view({**settings["view"], **b.view}))
        except ValueError as error:
            raise WrongUse(f"baselines.view: {error}") from None
    try:
        check_net(b.model or model, settings["model"], "images" if settings["features"] == PIXELS else "vectors")
    except ValueError as error:
        raise WrongUse(f"baselines.model_settings, baselines.features = {settings['features']!r}: {error}") from None
    return b.model or model, settings


def _check_samples(config: ClearConfig, out: str) -> None:
    """Raise ``WrongUse`` if the dataset lacks the data that the baselines train on."""
    if _learned(config) == PIXELS:
        if isinstance(config.source, ReleaseSource) and not config.source.images:
            raise WrongUse(f"{out} has no images, and baselines.features is 'pixels': set source.images = true, and run again")
    elif _learned(config) == EMBEDDING and not config.vectors:
        own = "those of the release in source.features, or " if isinstance(config.source, ReleaseSource) else ""
        raise WrongUse(
            f"{out} has no vectors to train on: name {own}an encoder in encoder.kind, and run again; or train on "
            "images, by baselines.features = 'pixels'"
        )


def _check_splits(config: ClearConfig, table: pa.Table, seeds: Sequence[int]) -> None:
    buckets = table["bucket"].to_numpy()
    for seed, part in ((seed, part) for seed in seeds for part in ("test", "train")):
        split = np.asarray(table[f"iid_seed{seed}"].to_pylist())
        if empty := np.setdiff1d(buckets, buckets[split == part]).tolist():
            message = f"the {part} set of bucket {empty[0]} is empty"
            if config.splits is None:
                raise WrongUse(
                    f"{message} in the release's split of seed {seed}: exclude the bucket with source.buckets, and run again"
                )
            count = np.count_nonzero(buckets == empty[0])
            rounded = "rounded down" + (" class by class" if config.splits.rule == "as_written" else "")
            raise WrongUse(
                f"{message}: splits.test_share = {config.splits.test_share} of its "
                f"{count} images, {rounded}, is none: raise it, and run again"
            )
