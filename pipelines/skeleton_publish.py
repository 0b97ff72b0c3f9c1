"""What a skeleton run publishes: shards, index, card, and the orders of learning beside them."""

from __future__ import annotations

import collections

import pyarrow as pa
import pyarrow.parquet as pq

from ..curation.publish import Card
from ..curation.run import Run
from ..datasets.skeleton.samples import COLUMNS, TENSOR
from ..datasets.skeleton.splits import ROLES
from ..datasets.skeleton.view import ORDERS
from .publish import publish_shards
from .skeleton_config import SkeletonConfig


def publish(run: Run, config: SkeletonConfig, folder: str) -> None:
    """Write the dataset: shards, index, card, manifest; and ``orders.parquet`` beside its folder."""
    index = run.rows().table()
    form = config.tensor
    card = Card(
        title="Skeleton sequences in tasks",
        summary=_summary(index),
        pipeline="skeleton",
        digest=run.result.digest,
        licence="other",
        members={
            TENSOR: {
                "holds": f"(C, T, V, M): axes, {form.frames} frames, joints, {form.bodies} bodies; {form.modality}",
                "dtype": "float32",
            },
            "json": {"holds": "class, label, role, task, and the graph of the joints: names, edges, centre"},
        },
        columns={name: told for name, told in COLUMNS.items() if name in index.column_names},
        tags=["continual-learning", "skeleton", "graph"],
    )
    publish_shards(run, card, folder)
    sink = pa.BufferOutputStream()
    pq.write_table(run.rows("orders").table().replace_schema_metadata(None), sink, compression="zstd", version="2.6")
    run.store.write(ORDERS, sink.getvalue().to_pybytes())


def _summary(index: pa.Table) -> str:
    counts = collections.Counter(zip(index["task"].to_pylist(), index["role"].to_pylist(), strict=True))
    names: dict[int, dict[str, None]] = {}
    for task, name in zip(index["task"].to_pylist(), index["class_name"].to_pylist(), strict=True):
        names.setdefault(task, {})[name] = None
    lines = ["| task | classes | train | val | test |", "| --- | --- | --- | --- | --- |"]
    for task in sorted(names):
        numbers = " | ".join(f"{counts[task, role]:,}" for role in ROLES)
        lines.append(f"| {task} | {', '.join(names[task])} | {numbers} |")
    return f"{index.num_rows:,} sequences of {sum(map(len, names.values()))} actions.\n\n" + "\n".join(lines)
