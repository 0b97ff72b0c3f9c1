"""Baselines of a CLEAR run: its protocols, its methods and their settings."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.flow import Step
from ...curation.verify import DATASET
from ...datasets.clear.splits import SEEDS
from ...datasets.reader.features import feature_sets
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.domain_incremental import measure_domains
from ...training.baselines.clear import expanded, groups, paper_methods, paper_settings
from ...training.data.pictures import picture_view
from ...training.methods.registry import METHODS
from ...training.models.registry import MODELS
from ..errors import WrongUse, unknown
from ..experiments import LOGGER, Training
from ..feature_sets import EMBEDDING, PIXELS
from ..metrics import with_metrics
from ..names import reference_of, short
from ..streams import Runs, trainings_of
from .config import ClearConfig
from .pretraining import pretrainings
from .source_config import ReleaseSource
from .unlabelled import PRETRAIN

PROTOCOLS = ("iid", "streaming")


def trainings(config: ClearConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """Every training of some methods under some protocols, one a seed.

    Args:
        config: settings of the run.
        out: the run.
        methods: names of ``training.baselines.clear``'s ``paper_methods`` and ``groups``, or of any method of the registry, or
            references; those of the settings by default.
        protocols: ``iid`` and ``streaming``; both by default. ``pretrain`` alone: see ``pretrainings``.

    Raises:
        WrongUse: a method or protocol that there is not, settings that do not fit, or a dataset that lacks what a protocol
            needs.
    """
    protocols = list(protocols)
    asked = [*(protocols or PROTOCOLS)]
    if strange := [name for name in asked if name not in (*PROTOCOLS, PRETRAIN)]:
        raise unknown("protocol", strange[0], (*PROTOCOLS, PRETRAIN))
    if PRETRAIN in asked:
        if len(asked) > 1:
            raise WrongUse(f"protocol {PRETRAIN!r} has methods of its own: train it by itself")
        return pretrainings(config, out, list(methods))
    dataset = posixpath.join(out, DATASET)
    table = DatasetIndex.open(dataset).table
    if "streaming" in asked and len(pc.unique(table["bucket"])) < 2:
        told = f"{out} has one bucket: the streaming protocol tests the future, and there is none"
        if protocols:
            raise WrongUse(told)
        LOGGER.warning("%s: it is left out", told)
        asked.remove("streaming")
    _check_samples(config, out)
    seeds = [seed for seed in SEEDS if not table[f"iid_seed{seed}"].null_count]
    if "iid" in asked and not seeds:
        told = f"{out} has no iid splits, since its release has none"
        if protocols:
            raise WrongUse(told)
        LOGGER.warning("%s: that protocol is left out", told)
        asked.remove("iid")
    if "iid" in asked:
        _check_splits(config, table, seeds)
    names = expanded(METHODS.former.get(name, name) for name in list(methods) or config.baselines.methods)
    features = _features(config, out)
    return [
        training
        for protocol in asked
        for training in trainings_of(
            (_baseline(config, protocol, name, features) for name in names),
            seeds if protocol == "iid" else SEEDS,
            prepare="benchwright.pipelines.clear.stream:domains",
            runs=Runs(dataset, device=config.encoder_run.device, workers=config.baselines.workers),
            samples="images" if config.baselines.features == PIXELS else "vectors",
            labels="one",
            classes="same",
            change="baselines.learning_rate",
        )
    ]


def _features(config: ClearConfig, out: str) -> dict[str, Any]:
    """What is learned from, for the settings of a training: a feature set with its digest, which the dataset's leaves out."""
    name = config.baselines.features
    if name in (EMBEDDING, PIXELS):
        return {"features": name}
    if (told := feature_sets(posixpath.join(out, DATASET)).get(name)) is None:
        raise WrongUse(f"baselines.features = {name!r}: {out} has no features of this name yet: run it again first")
    return {"features": name, "features_digest": told["digest"]}


def _baseline(config: ClearConfig, protocol: str, name: str, features: dict[str, Any]) -> dict[str, Any]:
    model, settings = settings_of(config, name)
    settings |= features
    method, settings["method"] = _method(config, name)
    return {
        "protocol": protocol,
        "method": (name, method),
        "model": (model, MODELS.find(model).reference),
        "settings": settings,
        "measures": with_metrics({"clear": Step(measure_domains, {"protocol": protocol})}, config.baselines.metrics),
    }


def _method(config: ClearConfig, name: str) -> tuple[str, dict[str, Any]]:
    """Reference and settings of a method."""
    own, settings = paper_methods().get(name, (name, {}))
    reference = reference_of(METHODS, own, [*groups(), *paper_methods(), *METHODS.builtin])
    changes = {short(METHODS.former.get(each, each)): values for each, values in config.baselines.method_settings.items()}
    return reference, {**settings, **changes.get(short(name), {})}


def settings_of(config: ClearConfig, name: str) -> tuple[str, dict[str, Any]]:
    """Model, and hyper-parameters of the preset with the changes of the settings."""
    b = config.baselines
    try:
        model, settings = paper_settings(b.preset)
        if b.model is not None:
            MODELS.find(b.model)
    except ValueError as error:
        raise WrongUse(f"baselines: {error}") from None
    changes = {key: getattr(b, key) for key in ("epochs", "batch_size", "learning_rate", "decay_after_epochs")}
    settings["schedule"] |= {key: value for key, value in changes.items() if value is not None}
    settings["model"] |= b.model_settings
    settings["features"] = b.features
    if b.features == PIXELS:
        try:
            settings["view"] = dataclasses.asdict(picture_view({**settings["view"], **b.view}))
        except ValueError as error:
            raise WrongUse(f"baselines.view: {error}") from None
    else:
        del settings["view"]
    return b.model or model, settings


def _check_samples(config: ClearConfig, out: str) -> None:
    """That the dataset has what the baselines learn from."""
    if config.baselines.features == PIXELS:
        if isinstance(config.source, ReleaseSource) and not config.source.images:
            raise WrongUse(f"{out} has no images, and baselines.features is 'pixels': set source.images = true, and run again")
    elif config.baselines.features == EMBEDDING and not config.vectors:
        own = "those of the release in source.features, or " if isinstance(config.source, ReleaseSource) else ""
        raise WrongUse(
            f"{out} has no vectors, which baselines learn: name {own}an encoder in encoder.kind, and run again; or train on "
            "images, by baselines.features = 'pixels'"
        )


def _check_splits(config: ClearConfig, table: pa.Table, seeds: Sequence[int]) -> None:
    buckets = table["bucket"].to_numpy()
    for seed, part in ((seed, part) for seed in seeds for part in ("test", "train")):
        split = np.asarray(table[f"iid_seed{seed}"].to_pylist())
        if empty := np.setdiff1d(buckets, buckets[split == part]).tolist():
            told = f"the {part} set of bucket {empty[0]} is empty"
            if config.splits is None:
                raise WrongUse(
                    f"{told} in the release's split of seed {seed}: leave the bucket out by source.buckets, and run again"
                )
            count = np.count_nonzero(buckets == empty[0])
            rounded = "rounded down" + (" class by class" if config.splits.rule == "as_written" else "")
            raise WrongUse(
                f"{told}: splits.test_share = {config.splits.test_share} of its "
                f"{count} images, {rounded}, is none: raise it, and run again"
            )
