"""Unlabelled images of some buckets, published next to the dataset: the stages that make their shards, and publication."""

from __future__ import annotations

import dataclasses
import posixpath

from ...curation.flow import Flow, step
from ...curation.publish import DatasetCard
from ...curation.run import Run
from ...curation.shard_assignment import Placed
from ...curation.store import Store
from ...curation.verify import UNLABELLED
from ...datasets.clear.unlabelled import COLUMNS, LABELS, place_unlabelled, unlabelled_sample
from ..publish import publish_shards, write_files
from .config import ClearConfig

CHOSEN, SHARDS = "unlabelled", "unlabelled_shards"
"""Names of the stages."""

PRETRAIN = "pretrain"
"""Protocol of trainings on unlabelled images."""


def with_unlabelled(flow: Flow, config: ClearConfig) -> Flow:
    """The plan with a branch for the buckets that the settings name, if any; its last stage stays the last."""
    if not config.unlabelled.buckets:
        return flow
    place = step(place_unlabelled, buckets=config.unlabelled.buckets, max_samples=config.shards.max_samples)
    branch = flow.whole(CHOSEN, place, gives=Placed, max_rejects=None).shards(SHARDS, step(unlabelled_sample))
    return branch.after(flow.last)


def publish_unlabelled(run: Run, config: ClearConfig, dataset: str) -> None:
    """Write the shards of the branch, index, card and manifest next to the dataset; without a branch, remove earlier files.

    Args:
        run: a run in which the branch, if there is one, is finished.
        config: settings of the run.
        dataset: folder of the dataset.
    """
    folder = posixpath.join(posixpath.dirname(dataset), UNLABELLED)
    if not config.unlabelled.buckets:
        write_files(Store(folder), {})
        return
    at = next(number for number, each in enumerate(run.artifacts) if each.stage == SHARDS)
    branch = dataclasses.replace(run, artifacts=run.artifacts[: at + 1])
    buckets = config.unlabelled.buckets
    text = "all buckets" if buckets == "all" else f"bucket{'s' * (len(buckets) > 1)} {', '.join(map(str, buckets))}"
    card = DatasetCard(
        title="Images of a CLEAR-style benchmark without labels",
        summary=f"All images of {text} of a CLEAR-style benchmark, for pre-training. Not checked by annotators.",
        pipeline="clear",
        digest=branch.result.digest,
        licence="other",
        members={"jpg, png, ...": {"holds": "the image as it was found"}, "json": {"holds": "its bucket and times"}},
        columns=COLUMNS,
        tags=["self-supervised-learning"],
    )
    publish_shards(branch, card, folder, leave_out=LABELS)
