"""Publication of a skeleton run: shards, index, card, and the orders of learning next to them."""

from __future__ import annotations

import collections

import pyarrow as pa

from ...curation.publish import HUB_SPLITS, DatasetCard, escaped, names_of, parquet_bytes
from ...curation.rows import is_array
from ...curation.run import Run
from ...datasets.roles import ROLES
from ...datasets.skeleton.samples import COLUMNS, CONFIDENCE, TENSOR
from ...datasets.skeleton.view import ORDERS
from ..publish import publish_shards
from .config import SkeletonConfig
from .source_config import DrawnSource

SEQUENCES = "sequences.parquet"
"""File in the folder of the run with every sequence of the split without its tensor, in the order of the source."""


def publish(run: Run, config: SkeletonConfig, folder: str) -> None:
    """Write ``sequences.parquet``, ``orders.parquet`` and, if there are shards, the dataset with index, card and manifest."""
    if run.result.stage == "shards":
        publish_shards(run, _card(run, config), folder)
    rows = run.rows("placed")
    names = [field.name for field in rows.schema if not is_array(field)]
    for name, table in ((SEQUENCES, rows.table(names).sort_by("position")), (ORDERS, run.rows("orders").table())):
        run.store.write(name, parquet_bytes(table))


def _card(run: Run, config: SkeletonConfig) -> DatasetCard:
    index, form = run.rows().table(), config.tensor
    licence, citation = _SOURCES.get(config.source.kind, ("other", ""))
    return DatasetCard(
        title="Skeleton sequences in tasks",
        summary="\n\n".join(_summary(config, index)),
        pipeline="skeleton",
        digest=run.result.digest,
        licence=licence,
        citation=citation,
        members={
            TENSOR: {
                "holds": f"(C, T, V, M): {form.modality} of {form.bodies} bodies, {form.frames} frames",
                "dtype": "float32",
            },
            **({CONFIDENCE: _CONFIDENCE} if form.completes else {}),
            "json": {"holds": "class, label, role, task, and the joints' graph: names, edges, centre"},
        },
        columns={name: meaning for name, meaning in COLUMNS.items() if name in index.column_names},
        tags=["continual-learning", "skeleton", "graph"],
        tasks=["other"],
        labels={"label": names_of(index, "label", "class_name")},
        configurations={"default": {hub: {"role": role} for role, hub in HUB_SPLITS.items()}},
    )


_CONFIDENCE = {
    "holds": "(T, V, M): confidence of each joint of the tensor; of a source without any 1, and 0 of what was missing",
    "dtype": "float32",
}

_SOURCES = {
    "nwucla": (
        "other",
        "J. Wang, X. Nie, Y. Xia, Y. Wu, S.-C. Zhu. Cross-view Action Modeling, Learning and Recognition. CVPR 2014.",
    ),
    "ntu": (
        "other",
        "A. Shahroudy, J. Liu, T.-T. Ng, G. Wang. NTU RGB+D: A Large Scale Dataset for 3D Human Activity Analysis. CVPR 2016.",
    ),
}
"""Licence and citation by kind of source. Both datasets are for research only."""


def _summary(config: SkeletonConfig, index: pa.Table) -> list[str]:
    counts = collections.Counter(zip(index["task"].to_pylist(), index["role"].to_pylist(), strict=True))
    names: dict[int, dict[int, str]] = {}
    for task, label, name in zip(*(index[each].to_pylist() for each in ("task", "label", "class_name")), strict=True):
        names.setdefault(task, {})[label] = name
    lines = ["| task | classes | train | val | test |", "| --- | --- | --- | --- | --- |"]
    for task in sorted(names):
        numbers = " | ".join(f"{counts[task, role]:,}" for role in ROLES)
        lines.append(f"| {task} | {', '.join(escaped(name) for _, name in sorted(names[task].items()))} | {numbers} |")
    form = config.tensor
    steps = [
        "not centred" if form.centre_joint is None else f"joint {form.centre_joint} of the first frame at the origin",
        "each axis of a sequence scaled to [-1, 1]" if form.scale == "min_max" else "not scaled",
        {"resample": "resampled", "pad": "padded with zeros", "interpolate": "interpolated"}[form.fit]
        + f" to {form.frames} frames",
    ]
    if "missing" in index.column_names:
        filled = [count for count in index["missing"].to_pylist() if count]
        how = {"reject": "none may be missing", "hold": "held", "interpolate": "interpolated"}[form.missing]
        steps.insert(0, f"missing joints: {how}, {sum(filled):,} in {len(filled):,} sequences")
    actions = sum(map(len, names.values()))
    texts = [
        f"{index.num_rows:,} sequences of {actions} actions in {len(names)} tasks. Tensors: {'; '.join(steps)}.",
        "\n".join(lines),
    ]
    if isinstance(config.source, DrawnSource):
        texts.append("The sequences are SYNTHETIC, generated from a seed.")
    return texts
