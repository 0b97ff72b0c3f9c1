"""Baselines of a CLEAR run: training, what is stale, scores."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...datasets.clear.splits import SEEDS
from ..errors import WrongUse, did_you_mean
from ..results import EVAL, Failures, code_of, current_results, dataset_digest, stale_results
from .config import ClearConfig

if TYPE_CHECKING:
    from ...eval.protocols.domain_incremental import Results


def evaluate(
    config: ClearConfig,
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, Results]]:
    """Train baselines on the published shards and evaluate them; what is done already is read, not done again.

    Args:
        config: settings of the run.
        out: the run.
        methods: names of ``training.baselines.clear.paper_methods``; those of the settings by default.
        protocols: ``iid`` and ``streaming``; both by default.
        progress: told one line a domain.

    Returns:
        Protocol -> method -> results.
    """
    from ...datasets.reader.features import read_features
    from ...datasets.reader.index import DatasetIndex
    from ...eval.protocols.domain_incremental import IID, STREAMING, run_protocol
    from ...eval.protocols.domains import iid_domains, streaming_domains
    from ...training.baselines.clear import learner_maker, paper_methods

    known = paper_methods()
    chosen = list(methods) or config.baselines.methods
    if unknown := [name for name in chosen if name not in known]:
        raise WrongUse(f"no method {unknown[0]!r}: there are {', '.join(known)}{did_you_mean(unknown[0], known)}")
    specs = {"iid": IID, "streaming": STREAMING}
    asked = list(protocols) or list(specs)
    if unknown := [name for name in asked if name not in specs]:
        raise WrongUse(f"no protocol {unknown[0]!r}: there are {', '.join(specs)}{did_you_mean(unknown[0], specs)}")
    features, table = read_features(DatasetIndex.open(posixpath.join(out, "dataset")))
    labels, buckets = table["label"].to_numpy(), table["bucket"].to_numpy()
    settings, classes = hyper_parameters(config), _classes(config)
    results: dict[str, dict[str, Results]] = {}
    failures = Failures(progress)
    for protocol in asked:

        def domains(seed: int, protocol: str = protocol) -> Any:
            if protocol == "iid":
                split = np.asarray(table[f"iid_seed{seed}"].to_pylist())
                empty = np.setdiff1d(buckets, buckets[split == "test"]).tolist()
                if empty:
                    count = np.count_nonzero(buckets == empty[0])
                    rounded = "rounded down" + (" class by class" if config.splits.rule == "as_written" else "")
                    raise ValueError(
                        f"the test set of bucket {empty[0]} is empty: splits.test_share = {config.splits.test_share} of its "
                        f"{count} images, {rounded}, is none: raise it, and run again"
                    )
                return iid_domains(features, labels, buckets, split)
            return streaming_domains(features, labels, buckets)

        results[protocol] = {}
        for name in chosen:
            with failures.of(f"{protocol}/{name}", "baselines.learning_rate"):
                results[protocol][name] = run_protocol(
                    specs[protocol],
                    learner_maker(settings, known[name], classes=classes, device=config.encoder_run.device),
                    domains,
                    seeds=SEEDS,
                    identity=_identity(config, out, protocol, name),
                    out=Path(out) / EVAL / protocol / name,
                    progress=lambda line, name=name, protocol=protocol: progress(f"{protocol} {name}: {line}"),
                )
    failures.check(out)
    return results


def _classes(config: ClearConfig) -> int:
    return len(config.classes) + bool(config.retrieval.background)


def _identity(config: ClearConfig, out: str, protocol: str, name: str) -> dict[str, Any]:
    """What the results of a baseline are of: its settings, the dataset, and the code that trains and evaluates."""
    from ...datasets.reader.features import read_features
    from ...eval.protocols.domain_incremental import run_protocol
    from ...eval.protocols.domains import iid_domains, streaming_domains
    from ...training.baselines.clear import MODELS, identity, learner_maker, paper_methods
    from ...training.core.learner import BufferLearner

    known, settings = paper_methods(), hyper_parameters(config)
    if name not in known:
        raise WrongUse(f"no method {name!r}: there are {', '.join(known)}{did_you_mean(name, known)}")
    domains = {"iid": iid_domains, "streaming": streaming_domains}
    if protocol not in domains:
        raise WrongUse(f"no protocol {protocol!r}: there are {', '.join(domains)}")
    if settings["model"] not in MODELS:
        raise ValueError(f"no model is called {settings['model']!r}: there are {', '.join(MODELS)}")
    code = [known[name].rule, MODELS[settings["model"]], BufferLearner, run_protocol, domains[protocol], read_features]
    return {
        **identity(settings, known[name], classes=_classes(config)),
        "code": code_of(code, alone=[learner_maker]),
        "dataset_digest": dataset_digest(out),
    }


def hyper_parameters(config: ClearConfig) -> dict[str, Any]:
    """The paper's hyper-parameters of the preset, with the changes of the settings."""
    from ...training.baselines.clear import paper_settings

    presets = paper_settings()
    if config.baselines.preset not in presets:
        raise ValueError(f"baselines.preset = {config.baselines.preset!r}: there are {', '.join(presets)}")
    settings = dict(presets[config.baselines.preset])
    for name in ("epochs", "batch_size", "learning_rate", "decay_after_epochs"):
        if getattr(config.baselines, name) is not None:
            settings[name] = getattr(config.baselines, name)
    return settings


def scores(config: ClearConfig, out: str) -> dict[str, dict[str, Any]]:
    """``results.json`` of every baseline of dataset, settings and code as they are: protocol -> method -> its content."""
    found: dict[str, dict[str, Any]] = {}
    for path, value in current_results(out, _RESULTS, functools.partial(_identity, config, out), "mean", "std"):
        found.setdefault(path.parts[-3], {})[path.parts[-2]] = value
    return found


def stale(config: ClearConfig, out: str) -> dict[str, str]:
    """Results of another dataset, other settings or other code: folder -> why."""
    return stale_results(out, _RESULTS, functools.partial(_identity, config, out))


_RESULTS = "*/*"
"""Folders of results within ``eval/``: protocol, method."""
