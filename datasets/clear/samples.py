"""The last steps before the shards: order the rows and assign shards, and build the samples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa

from ...curation.rows import Blob, Shape
from ...curation.shard_assignment import assign_shards
from ...curation.shards import row_values

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows

COLUMNS = {
    "sha256": "of the sample's members: extension, NUL, size, NUL, bytes, in the order of the extensions",
    "bucket": "time bucket, from 0 in order of time",
    "label": "index of the class",
    "class_name": "name of the class",
    "query": "prompt that retrieved the image",
    "score": "cosine of image and prompt",
    "listed_at": "place in the release's list of its bucket, from 0",
    "rank": "place among the images retrieved for the class in the bucket, from 1",
    "width": "pixels, as displayed",
    "height": "pixels, as displayed",
    "date_taken": "capture time by the camera's clock, local",
    "date_uploaded": "upload time, UTC",
    "votes_exact": "annotators who chose the image's class alone",
    "votes_extra": "annotators who chose it and others",
    "votes_wrong": "annotators who chose other classes",
    "votes_none": "annotators who chose none of the above",
    "votes_sensitive": "annotators who found the image sensitive",
}
"""Meaning of the label columns, for the dataset's card."""


def place(rows: Rows, *, max_samples: int, within: str = "key") -> Iterator[pa.Table]:
    """Sort by (bucket, label, key), the order of the lists from which splits are drawn, and assign shards.

    The released lists are ordered by bucket and class as well; their order within a class is not stated, so we order by key.

    Args:
        rows: rows with columns ``bucket`` and ``label``.
        max_samples: maximum number of samples per shard; a shard holds one bucket.
        within: column that orders the rows of a class; for a release, the place in its lists.
    """
    order = ["label", within] if within == "key" else ["label", within, "key"]
    return assign_shards(rows, by=["bucket"], max_samples=max_samples, order=order)


@dataclass(frozen=True)
class Sampled:
    """A row as it is written to a shard."""

    key: str
    extension: str
    image: Blob
    embedding: Annotated[np.ndarray, Shape((-1,), "float32")]
    bucket: int
    label: int
    class_name: str
    query: str
    score: float
    date_taken: dt.datetime | None
    date_uploaded: dt.datetime | None


def sample(row: Sampled) -> dict[str, Any]:
    """Members of a sample: the unchanged image, its vector, and its labels as JSON."""
    return {row.extension: row.image.read(), "embedding.npy": np.asarray(row.embedding), "json": _labels(row)}


@dataclass(frozen=True)
class SampledLabels:
    """A row that has a label but no prompt or score, as it is written to a shard."""

    key: str
    bucket: int
    label: int
    class_name: str
    date_taken: dt.datetime | None
    date_uploaded: dt.datetime | None


@dataclass(frozen=True)
class SampledImage(SampledLabels):
    """``SampledLabels`` with the image's file."""

    extension: str
    image: Blob


@dataclass(frozen=True)
class SampledBoth(SampledImage):
    """``SampledImage`` with a vector."""

    embedding: Annotated[np.ndarray, Shape((-1,), "float32")]


def sample_labels(row: SampledLabels) -> dict[str, Any]:
    """The only member of a sample without an image: its labels as JSON. Its vectors are in files next to the shards."""
    return {"json": _labels(row)}


def sample_image(row: SampledImage) -> dict[str, Any]:
    """Members of a sample without a vector: the unchanged image, and its labels as JSON."""
    return {row.extension: row.image.read(), "json": _labels(row)}


def sample_both(row: SampledBoth) -> dict[str, Any]:
    """Members of a sample: the unchanged image, its vector, and its labels as JSON."""
    return {row.extension: row.image.read(), "embedding.npy": np.asarray(row.embedding), "json": _labels(row)}


def _labels(row: Any) -> dict[str, Any]:
    labels = row_values(row, but=["extension", "image", "embedding"])
    for name in ("date_taken", "date_uploaded"):
        time = getattr(row, name)
        labels[name] = time.isoformat(sep=" ") if time is not None else None
    return labels
