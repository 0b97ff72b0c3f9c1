"""What is published of a CLEAR run: the dataset and its card."""

from __future__ import annotations

from typing import Any

from ...curation.publish import DatasetCard, escaped
from ...curation.run import Run
from ...curation.stages.choose import class_order
from ...datasets.clear.samples import COLUMNS
from ...datasets.clear.splits import SEEDS
from ..feature_sets import write_features
from ..own import shown
from ..publish import publish_shards
from .config import ClearConfig, YfccSource


def publish(run: Run, config: ClearConfig, folder: str) -> None:
    """Write the dataset: shards, index, card, manifest."""
    width = next(iter(run.rows("placed").arrays("embedding"))).shape[1]
    members = {
        "jpg, png, ...": {"holds": "the image as it was found"},
        "embedding.npy": {"dtype": config.encoder_run.stored, "shape": [width], "encoder": shown(config.encoder.kind)},
        "json": {"holds": "the labels of the sample"},
    }
    columns = {f"iid_seed{seed}": f"train or test in iid split {seed}" for seed in SEEDS}
    if isinstance(config.source, YfccSource):
        columns |= {name: f"{name} of YFCC100M's metadata, URL-decoded" for name in config.source.extra}
    files, features = write_features(run, config.features, folder)
    names = ", ".join(escaped(each.name) for each in config.classes)
    card = DatasetCard(
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
        features=features,
        tags=["continual-learning", "image-classification"],
        tasks=["image-classification"],
        labels={"label": class_order([each.name for each in config.classes], config.retrieval.background)},
        configurations=_configurations(run),
    )
    publish_shards(run, card, folder, features=files)


def _configurations(run: Run) -> dict[str, dict[str, dict[str, Any]]]:
    """The iid splits, and the stream: a split a bucket."""
    buckets = sorted(run.rows().table(["bucket"])["bucket"].unique().to_pylist())
    iid = {f"iid_seed{seed}": {part: {f"iid_seed{seed}": part} for part in ("train", "test")} for seed in SEEDS}
    return {**iid, "streaming": {f"bucket_{bucket}": {"bucket": bucket} for bucket in buckets}}


_CITATION = """Z. Lin, J. Shi, D. Pathak, D. Ramanan. The CLEAR Benchmark: Continual LEArning on Real-World Imagery.
NeurIPS Datasets and Benchmarks, 2021."""
