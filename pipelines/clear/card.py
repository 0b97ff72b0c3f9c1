"""Publication of a CLEAR run: the dataset and its card."""

from __future__ import annotations

from typing import Any

from ...curation.publish import DatasetCard, escaped
from ...curation.run import Run
from ...curation.stage_rows import Rows
from ...curation.stages.choose import class_order
from ...datasets.clear.samples import COLUMNS
from ...datasets.clear.splits import SEEDS
from ..feature_sets import made_by, write_features
from ..publish import publish_shards
from .config import ClearConfig
from .source_config import ReleaseSource, YfccSource


def publish(run: Run, config: ClearConfig, folder: str) -> None:
    """Write the dataset: shards, index, card, manifest."""
    rows = run.rows("placed")
    columns = {f"iid_seed{seed}": f"train or test in iid split {seed}" for seed in SEEDS}
    if isinstance(config.source, YfccSource):
        columns |= {name: f"{name} of YFCC100M's metadata, URL-decoded" for name in config.source.extra}
    origins = made_by(config.features)
    if isinstance(config.source, ReleaseSource):
        origins |= {name: {"released": name} for name in config.source.features}
        columns["bucket"] = "time bucket, in order of time, numbered as in the release"
    files, features = write_features(run, origins, folder)
    card = DatasetCard(
        title="A CLEAR-style benchmark",
        summary=_summary(config, rows),
        pipeline="clear",
        digest=run.result.digest,
        licence="other",
        citation=_CITATION,
        members=_members(config, rows),
        columns={**COLUMNS, **columns},
        features=features,
        tags=["continual-learning", "image-classification"],
        tasks=["image-classification"],
        labels={"label": class_names(config, rows)},
        configurations=_configurations(run),
    )
    publish_shards(run, card, folder, leave_out=["part"], features=files)


def _members(config: ClearConfig, rows: Rows) -> dict[str, dict[str, Any]]:
    members: dict[str, dict[str, Any]] = {}
    if "image" in rows.column_names:
        members["jpg, png, ..."] = {"holds": "the image as it was found"}
    if "embedding" in rows.column_names:
        width = next(iter(rows.arrays("embedding"))).shape[1]
        members["embedding.npy"] = {"dtype": config.encoder_run.stored, "shape": [width], "encoder": config.vectors}
    return {**members, "json": {"holds": "the labels of the sample"}}


_CONFIRMED = {
    "imported": " and confirmed by annotators",
    "simulated": " and confirmed by annotators (SIMULATED ones)",
    "none": "; not checked by annotators",
}


def _summary(config: ClearConfig, rows: Rows) -> str:
    """Origin of labels, buckets and splits."""
    if config.recipe is not None:
        names = ", ".join(escaped(each.name) for each in config.recipe.classes)
        confirmed = _CONFIRMED[config.recipe.qa.votes]
        return f"Photos in time buckets, retrieved for the concepts {names}{confirmed}, following the CLEAR recipe."
    names = ", ".join(escaped(name) for name in names_by_label(rows).values())
    if isinstance(config.source, ReleaseSource):
        what = "Photos" if config.source.images else "Vectors of photos"
        return (
            f"{what} of the classes {names} in time buckets: labels, buckets and splits are those of the release that was read."
        )
    return f"Photos of the classes {names}, as their source labels them, in time buckets, with CLEAR's protocols."


def class_names(config: ClearConfig, rows: Rows) -> tuple[str, ...]:
    """Names of the classes in the order of their labels; a class that was not taken from a release has only its number."""
    if config.recipe is not None:
        return class_order([each.name for each in config.recipe.classes], config.recipe.retrieval.background)
    names = names_by_label(rows)
    return tuple(names.get(label, f"class {label}") for label in range(max(names) + 1))


def names_by_label(rows: Rows) -> dict[int, str]:
    """Names of the classes in the data, by label, in ascending order."""
    found = rows.table(["label", "class_name"]).group_by(["label", "class_name"]).aggregate([]).sort_by("label")
    return dict(zip(found["label"].to_pylist(), found["class_name"].to_pylist(), strict=True))


def _configurations(run: Run) -> dict[str, dict[str, dict[str, Any]]]:
    """The iid splits that exist, and the stream with one split per bucket."""
    table = run.rows().table(["bucket", *(f"iid_seed{seed}" for seed in SEEDS)])
    iid: dict[str, dict[str, dict[str, Any]]] = {}
    for name in table.column_names[1:]:
        parts = set(table[name].unique().to_pylist())
        if None not in parts:  # a release may lack a split
            iid[name] = {part: {name: part} for part in ("train", "test") if part in parts}
    buckets = sorted(table["bucket"].unique().to_pylist())
    return {**iid, "streaming": {f"bucket_{bucket}": {"bucket": bucket} for bucket in buckets}}


_CITATION = """Z. Lin, J. Shi, D. Pathak, D. Ramanan. The CLEAR Benchmark: Continual LEArning on Real-World Imagery.
NeurIPS Datasets and Benchmarks, 2021."""
