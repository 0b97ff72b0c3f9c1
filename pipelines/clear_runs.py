"""What is done with a CLEAR run beside its plan: votes, publishing, baselines."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import posixpath
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..curation.artifact import load_artifact
from ..curation.publish import Card
from ..curation.qa.agreement import votes_kappa
from ..curation.qa.label_studio import export_tasks, read_label_studio
from ..curation.qa.mturk import Gold, export_batches, read_gold_key
from ..curation.qa.mturk_results import Votes, read_mturk_results
from ..curation.qa.options import Option
from ..curation.qa.votes import missing_votes, write_votes
from ..curation.rows import Blob
from ..curation.run import Run
from ..curation.stages.choose import class_order
from ..curation.store import Rows, Store, StoreError
from ..datasets.clear.samples import COLUMNS
from ..datasets.clear.splits import SEEDS
from .clear_config import ClearConfig
from .publish import publish_shards
from .trained import EVAL, current_results, dataset_digest
from .wrong_use import WrongUse, did_you_mean

if TYPE_CHECKING:
    from ..eval.protocols.domain_incremental import Results

VOTES_FILE = "qa/votes.parquet"
"""Where the votes lie within the folder of a run."""


# -------------------------------------------------------------------------------------------------------------- votes


def options_of(config: ClearConfig) -> list[Option]:
    """The choices that annotators see, in the order of the classes."""
    return [
        Option(each.option or each.name, each.name if each.option else "", each.hint)
        for each in config.classes
        if each.name != config.retrieval.background
    ]


def asked_rows(out: str) -> tuple[Store, Rows]:
    """The rows that annotators are asked about: those of the stage before the votes."""
    store = Store(out)
    for stage in ("screened", "asked", "retrieved"):
        artifact = load_artifact(store, stage)
        if artifact is not None:
            return store, artifact.rows_view(store)
    raise StoreError(f"{out}: nothing is retrieved yet; run the pipeline first")


def export_questions(
    config: ClearConfig,
    out: str,
    folder: str,
    *,
    tool: Literal["mturk", "label-studio"] = "mturk",
    batch_size: int | None = None,
    thumbnails: bool = True,
    gold: str | None = None,
    gold_per_batch: int = 5,
) -> list[Path]:
    """Write the forms and batches for annotators of a run.

    Args:
        config: settings of the run.
        out: the run.
        folder: where the files go.
        tool: who asks: MTurk, or Label Studio.
        batch_size: most images a batch; a batch a bucket by default.
        thumbnails: put images into the batches, rather than the addresses of the column ``url``.
        gold: CSV file of questions whose answer is known (MTurk only): ``class_name`` and ``file``, a path beside the CSV, or
            ``url`` where addresses are sent. Their keys stay in ``private/`` and are not for upload.
        gold_per_batch: how many of them each batch gets.

    Returns:
        The files to upload.
    """
    _, rows = asked_rows(out)
    columns = ["key", "bucket", "concept", *(["url"] if not thumbnails else [])]
    if not thumbnails and "url" not in rows.column_names:
        raise ValueError(f"{out}: its images have no addresses: leave out --urls to send thumbnails")
    images = _blobs(rows) if thumbnails else None
    if tool == "label-studio":
        background = config.retrieval.background
        return list(export_tasks(rows.table(columns), folder, options=options_of(config), background=background, images=images))
    written = export_batches(
        rows.table(columns),
        folder,
        options=options_of(config),
        background=config.retrieval.background,
        seed=config.seed,
        batch_size=batch_size,
        images=images,
        gold=None if gold is None else _gold(gold, gold_per_batch, thumbnails=thumbnails),
    )
    return [*written.forms, *written.batches]


def _gold(path: str, per_batch: int, *, thumbnails: bool) -> Gold:
    with open(path, encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    needed = {"class_name", "file" if thumbnails else "url"}
    if not lines or needed - lines[0].keys():
        raise ValueError(f"{path}: gold questions need a header and columns {', '.join(sorted(needed))}")
    keys = [f"gold{number:05d}" for number in range(len(lines))]
    columns = {"key": keys, "concept": [line["class_name"] for line in lines]}
    if not thumbnails:
        return Gold(pa.table({**columns, "url": [line["url"] for line in lines]}), per_batch)
    folder = Path(path).resolve().parent
    files = [(folder / line["file"]).resolve() for line in lines]
    for file in files:
        if not file.is_relative_to(folder):
            raise ValueError(f"{path}: gold question {str(file)!r} lies outside the folder of the CSV")
    return Gold(pa.table(columns), per_batch, {key: file.read_bytes() for key, file in zip(keys, files, strict=True)})


def gold_key(out: str) -> dict[str, str]:
    """Key -> right class of the gold questions of a run's export; empty where there were none."""
    path = Path(out) / "qa" / "export" / "private" / "gold_key.json"
    return read_gold_key(str(path)) if path.is_file() else {}


def _blobs(rows: Rows) -> dict[str, Blob]:
    return dict(zip(rows.table(["key"])["key"].to_pylist(), rows.blobs("image"), strict=True))


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import of votes gave: how many counted, how many were turned away by reason, images short of votes, and
    Fleiss' kappa by form."""

    votes: int
    rejects: Mapping[str, int]
    missing: pa.Table
    kappas: Mapping[str, float]


def import_votes(config: ClearConfig, out: str, results: Sequence[str], *, salt: str) -> Imported:
    """Read MTurk result files, or Label Studio exports (``.json``), and put their votes where the run looks for them.

    Args:
        config: settings of the run.
        out: the run.
        results: files of the label form and of the sensitive form, any number of batches.
        salt: secret text that goes into the hashes of the workers' ids.
    """
    _, rows = asked_rows(out)
    table = rows.table(["key", "concept"])
    asked = dict(zip(table["key"].to_pylist(), table["concept"].to_pylist(), strict=True))
    queries = {**asked, **gold_key(out)}
    votes = _read_results(results, options_of(config), salt, queries)
    order = pc.sort_indices(votes.votes, [("form", "ascending"), ("key", "ascending"), ("worker", "ascending")])
    write_votes(votes.votes.take(order), posixpath.join(out, VOTES_FILE))
    reasons = {item["values"]: item["counts"] for item in pc.value_counts(votes.rejects["reason"]).to_pylist()}
    short = missing_votes(list(asked), votes.votes, workers=config.qa.workers)
    kappas = {form: votes_kappa(votes.votes, form=form) for form in sorted(pc.unique(votes.votes["form"]).to_pylist())}
    return Imported(votes.votes.num_rows, dict(sorted(reasons.items())), short, kappas)


def own_salt(out: str) -> str:
    """Secret text for worker hashes, made once a run and kept beside it, readable by its owner alone."""
    path = Path(out) / "qa" / "salt"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secrets.token_hex(16))
        path.chmod(0o600)
    return path.read_text()


def _read_results(results: Sequence[str], options: Sequence[Option], salt: str, queries: Mapping[str, str]) -> Votes:
    endings = {Path(name).suffix.lower() for name in results}
    if endings == {".json"}:
        return read_label_studio(results, options=options, salt=salt, keys=queries)
    if endings != {".csv"}:
        raise ValueError(f"results {', '.join(results)}: all of them .csv (MTurk), or all of them .json (Label Studio)")
    return read_mturk_results(results, options=options, salt=salt, queries=queries)


def answer(run: Run, config: ClearConfig, out: str) -> bool:
    """Let SIMULATED annotators answer where the settings say so; the files go the way of real ones, export and import."""
    if config.qa.votes != "simulated":
        return False
    from ..curation.qa.simulated import ErrorRates, simulate_results

    with contextlib.ExitStack() as stack:
        # Beside the run for people to look at; where that is no folder, only the votes stay.
        local = Store(out).local
        folder = local / "qa" if local else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        files = export_questions(config, out, str(folder / "export"))
        rates = config.qa.errors
        results = simulate_results(
            [str(path) for path in files if path.suffix == ".csv"],
            _truth(config, out),
            str(folder / "results"),
            options=options_of(config),
            seed=config.seed,
            workers=config.qa.workers,
            errors=ErrorRates(rates.none, rates.extra, rates.wrong, rates.sensitive),
        )
        import_votes(config, out, results, salt=f"simulated-{config.seed}")
    return True


def _truth(config: ClearConfig, out: str) -> pa.Table:
    """``key`` and ``true_class`` from the labels that came with the images. Only simulated annotators may look at it."""
    _, rows = asked_rows(out)
    if "labels" not in rows.column_names:
        raise ValueError('qa.votes = "simulated" needs a source whose images come with labels')
    table = rows.table(["key", "labels"])
    truth = [json.loads(text).get(config.qa.truth) for text in table["labels"].to_pylist()]
    if all(value is None for value in truth):
        raise ValueError(f'qa.votes = "simulated": no image has the label {config.qa.truth!r}')
    return pa.table({"key": table["key"], "true_class": pa.array(truth, pa.string())})


# ----------------------------------------------------------------------------------------------------------- publishing


def publish(run: Run, config: ClearConfig, folder: str) -> None:
    """Write the dataset: shards, index, card, manifest."""
    width = next(iter(run.rows("placed").arrays("embedding"))).shape[1]
    members = {
        "jpg, png, ...": {"holds": "the image as it was found"},
        "embedding.npy": {"dtype": "float32", "shape": [width], "encoder": config.encoder.kind},
        "json": {"holds": "the labels of the sample"},
    }
    columns = {f"iid_seed{seed}": f"train or test in iid split {seed}" for seed in SEEDS}
    names = ", ".join(each.name for each in config.classes)
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
        folder: new or empty local folder.

    Returns:
        Number of images.
    """
    from ..datasets.clear.release import write_all_metadata, write_features, write_release

    store = Store(out)
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
    from ..training.clear_baselines import identity, learner_maker, paper_methods

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
    settings = hyper_parameters(config)
    classes = len(config.classes) + bool(config.retrieval.background)
    digest = dataset_digest(out)
    results: dict[str, dict[str, Results]] = {}
    for protocol in asked:

        def domains(seed: int, protocol: str = protocol) -> Any:
            if protocol == "iid":
                return iid_domains(features, labels, buckets, np.asarray(table[f"iid_seed{seed}"].to_pylist()))
            return streaming_domains(features, labels, buckets)

        results[protocol] = {
            name: run_protocol(
                specs[protocol],
                learner_maker(settings, known[name], classes=classes, device=config.encoder_run.device),
                domains,
                seeds=SEEDS,
                identity={**identity(settings, known[name], classes=classes), "dataset_digest": digest},
                out=Path(out) / EVAL / protocol / name,
                progress=lambda line, name=name, protocol=protocol: progress(f"{protocol} {name}: {line}"),
            )
            for name in chosen
        }
    return results


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


def forget_results(out: str) -> None:
    """Remove the results of all baselines of a run."""
    shutil.rmtree(Path(out) / EVAL, ignore_errors=True)


def scores(out: str) -> dict[str, dict[str, Any]]:
    """``results.json`` of every baseline of the published dataset: protocol -> method -> its content."""
    found: dict[str, dict[str, Any]] = {}
    for path, value in current_results(out, "*/*", "mean", "std"):
        found.setdefault(path.parts[-3], {})[path.parts[-2]] = value
    return found


def report(config: ClearConfig, out: str) -> str:
    """Write ``report.html`` and return its path."""
    from .clear_report import write_report

    return write_report(config, out)
