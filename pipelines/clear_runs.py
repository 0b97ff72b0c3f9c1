"""What is done with a CLEAR run beside its plan and its votes (``clear_votes``): publishing, baselines."""

from __future__ import annotations

import functools
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..curation.artifact import load_artifact
from ..curation.lock import locked
from ..curation.publish import Card, escaped
from ..curation.run import Run
from ..curation.stages.choose import class_order
from ..curation.store import Rows, Store, StoreError
from ..datasets.clear.samples import COLUMNS
from ..datasets.clear.splits import SEEDS
from .clear_config import ClearConfig, YfccSource
from .publish import publish_shards
from .trained import EVAL, Failures, code_of, current_results, dataset_digest, stale_results
from .wrong_use import WrongUse, did_you_mean

if TYPE_CHECKING:
    from ..eval.protocols.domain_incremental import Results

# ----------------------------------------------------------------------------------------------------------- publishing


def publish(run: Run, config: ClearConfig, folder: str) -> None:
    """Write the dataset: shards, index, card, manifest."""
    width = next(iter(run.rows("placed").arrays("embedding"))).shape[1]
    members = {
        "jpg, png, ...": {"holds": "the image as it was found"},
        "embedding.npy": {"dtype": config.encoder_run.stored, "shape": [width], "encoder": config.encoder.kind},
        "json": {"holds": "the labels of the sample"},
    }
    columns = {f"iid_seed{seed}": f"train or test in iid split {seed}" for seed in SEEDS}
    if isinstance(config.source, YfccSource):
        columns |= {name: f"{name} of YFCC100M's metadata, URL-decoded" for name in config.source.extra}
    names = ", ".join(escaped(each.name) for each in config.classes)
    card = Card(
        title="A CLEAR-style benchmark",
        summary=(
            f"Photos in time buckets, retrieved for the concepts {names} and confirmed by annotators"
            f"{' (SIMULATED ones)' if config.qa.votes == 'simulated' else ''}, after the recipe of the CLEAR benchmark."
        ),
        pipeline="clear",
        digest=run.result.digest,
        licence="other",
        citation=_CITATION,
        members=members,
        columns={**COLUMNS, **columns},
        tags=["continual-learning", "image-classification"],
    )
    publish_shards(run, card, folder)


_CITATION = """Z. Lin, J. Shi, D. Pathak, D. Ramanan. The CLEAR Benchmark: Continual LEArning on Real-World Imagery.
NeurIPS Datasets and Benchmarks, 2021."""


def write_release_layout(config: ClearConfig, out: str, folder: str) -> int:
    """Write a finished run in the folders in which CLEAR is released (``datasets.clear.release``), with its features.

    Args:
        config: settings of the run.
        out: the run.
        folder: new or empty local folder outside the run, or one that such a release left unfinished: it is emptied.

    Returns:
        Number of images.

    Raises:
        WrongUse: for any other folder.
        Busy: where another release is at work in it.
    """
    store = Store(out)
    root, run = Path(folder).resolve(), store.local and store.local.resolve()
    if run and (root.is_relative_to(run) or run.is_relative_to(root)):
        raise WrongUse(f"{folder}: a release is no part of the run {out}, nor the run of it: name a folder elsewhere")
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / _UNFINISHED, f"another release is at work in {folder}: wait for it, or name another folder") as mark:
        others = [path for path in root.iterdir() if path.name != _UNFINISHED]
        if others and not os.fstat(mark.fileno()).st_size:  # nobody began here before
            (root / _UNFINISHED).unlink(missing_ok=True)
            raise WrongUse(f"{folder}: it holds files, such as {min(others).name}: name a new or an empty folder")
        mark.write(f"benchwright release has not ended here: {out}\n")
        mark.flush()
        for path in others:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        images = _write_release(config, store, root)
        mark.truncate(0)  # whoever opened it in the meantime, and locks it next, finds nothing unfinished
        (root / _UNFINISHED).unlink()
    return images


_UNFINISHED = ".benchwright-unfinished"
"""Marks a folder whose release has not ended, and locks it: the next release may empty it."""


def _write_release(config: ClearConfig, store: Store, folder: Path) -> int:
    from ..datasets.clear.release import write_all_metadata, write_features, write_release

    rows = _finished(store, "split")
    names = class_order([each.name for each in config.classes], config.retrieval.background)
    plain = [name for name in rows.column_names if name not in ("image", "embedding", "shard")]

    def items() -> Iterator[tuple[dict[str, Any], bytes]]:
        for table in rows.batches([*plain, "image"]):
            blobs = table["image"].to_pylist()
            for row, ref in zip(table.select(plain).to_pylist(), blobs, strict=True):
                yield row, store.blob(ref).read()

    written = write_release(folder, items(), class_names=names, test_share=config.splits.test_share)
    table = rows.table(["bucket", "label"])
    buckets, labels = table["bucket"].to_numpy(), table["label"].to_numpy()
    vectors = np.concatenate(list(rows.arrays("embedding")))
    for bucket in np.unique(buckets).tolist():
        mine = buckets == bucket
        write_features(folder, config.encoder.kind, bucket, vectors[mine], labels[mine].tolist())
    every = _finished(store, "bucketed")
    columns = [name for name in every.column_names if name not in ("image", "embedding")]
    write_all_metadata(folder, (row for part in every.batches(columns) for row in part.to_pylist()))
    return written.images


def _finished(store: Store, stage: str) -> Rows:
    artifact = load_artifact(store, stage)
    if artifact is None:
        raise StoreError(f"{store.url}: stage {stage!r} is not finished; run the pipeline to its end first")
    return artifact.rows_view(store)


# ------------------------------------------------------------------------------------------------------------ baselines


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
        methods: names of ``training.clear_baselines.paper_methods``; those of the settings by default.
        protocols: ``iid`` and ``streaming``; both by default.
        progress: told one line a domain.

    Returns:
        Protocol -> method -> results.
    """
    from ..datasets.reader.features import read_features
    from ..datasets.reader.index import DatasetIndex
    from ..eval.protocols.domain_incremental import IID, STREAMING, run_protocol
    from ..eval.protocols.domains import iid_domains, streaming_domains
    from ..training.clear_baselines import learner_maker, paper_methods

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
    from ..datasets.reader.features import read_features
    from ..eval.protocols.domain_incremental import run_protocol
    from ..eval.protocols.domains import iid_domains, streaming_domains
    from ..training.clear_baselines import MODELS, identity, learner_maker, paper_methods
    from ..training.learner import BufferLearner

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
    from ..training.clear_baselines import paper_settings

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


def report(config: ClearConfig, out: str) -> str:
    """Write ``report.html`` and return its path."""
    from .clear_report import write_report

    return write_report(config, out)
