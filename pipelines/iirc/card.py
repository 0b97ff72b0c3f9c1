"""Publication of an IIRC run: the dataset and its card."""

from __future__ import annotations

import collections

import pyarrow as pa

from ...curation.publish import DatasetCard
from ...curation.run import Run
from ...datasets.iirc.assign import ROLES
from ...datasets.iirc.samples import columns_of
from ...datasets.iirc.view import RefinedView
from ..publish import publish_shards
from .config import DrawnSource, IircConfig


def publish(run: Run, config: IircConfig, folder: str) -> None:
    """Write the dataset: shards, index, card, manifest."""
    configurations = config.tasks.configurations
    index = run.rows().table()
    card = DatasetCard(
        title="An IIRC-style benchmark",
        summary="\n\n".join(_summary(config, index)),
        pipeline="iirc",
        digest=run.result.digest,
        licence="other",
        citation=_CITATION,
        members={
            "jpg, png, ...": {"holds": "the picture, its bytes as they were found; CIFAR's pixels as PNG, lossless"},
            "json": {"holds": "role, subclass, superclass, and whether the sample is given under each"},
        },
        columns=columns_of(configurations),
        tags=["continual-learning", "image-classification", "multi-label"],
        tasks=["image-classification"],
        labels={
            f"{level}_index{number}": RefinedView(index, number).classes
            for number in configurations
            for level in ("sub", "super")
        },
        configurations={"default": {role: {"role": role} for role in ROLES}},
    )
    publish_shards(run, card, folder)


_CITATION = """M. Abdelsalam, M. Faramarzi, S. Sodhani, S. Chandar. IIRC: Incremental Implicitly-Refined Classification.
CVPR 2021."""


def _summary(config: IircConfig, index: pa.Table) -> list[str]:
    first = config.tasks.configurations[0]
    view = RefinedView(index, first)
    kinds = collections.Counter(view.kinds)
    roles = collections.Counter(index["role"].to_pylist())
    lines = [
        f"Pictures of {kinds['subclass_with']} subclasses of {kinds['superclass']} superclasses and of "
        f"{kinds['subclass_without']} lone subclasses, in {len(view.tasks)} tasks (configuration {first}); "
        f"{len(config.tasks.configurations)} configurations are in the columns.",
        "| role | samples |\n| --- | --- |\n" + "\n".join(f"| {role} | {roles[role]:,} |" for role in ROLES),
    ]
    if isinstance(config.source, DrawnSource):
        lines.append("The pictures are SYNTHETIC, generated from a seed.")
    return lines
