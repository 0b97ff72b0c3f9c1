"""The last steps before the shards: the meaning of the columns, and what a sample holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from ...curation.rows import Shape
from ...curation.shards import row_values
from .layouts import Layout

TENSOR = "x.npy"
"""Extension of the member that holds the tensor."""

CONFIDENCE = "confidence.npy"
"""Extension of the member that holds the confidences, for sources with missing joints."""

COLUMNS = {
    "class_name": "the action",
    "label": "place of the class in the published order, from 0",
    "role": "train, val or test",
    "task": "of the class in label order, from 0",
    "position": "place of the sequence in the source's order: sort by it to have the order of the files",
    "file": "path within the source, or place in its array",
    "source_frames": "frames that the source has",
    "bodies": "bodies in the tensor",
    "missing": "joints that were missing in the source, of all frames and bodies, and were filled in",
    "setup": "as the name says; none where it does not",
    "camera": "as the name says (N-UCLA: view)",
    "performer": "as the name says (N-UCLA: subject)",
    "replication": "as the name says (N-UCLA: e)",
    "x_sub": "side in the cross-subject protocol: train, test, or none",
    "x_view": "side in the cross-view protocol",
    "x_set": "side in the cross-setup protocol",
    "side": "side in the source: train, val, test, or none",
    "sha256": "of the sample's members: extension, NUL, size, NUL, bytes, in the order of the extensions",
}
"""Meaning of the columns, for the dataset's card."""


@dataclass(frozen=True)
class Sampled:
    """A row as it is written to a shard."""

    key: str
    x: Annotated[np.ndarray, Shape((-1, -1, -1, -1), "float32")]
    class_name: str
    label: int
    role: str
    task: int
    source_frames: int
    bodies: int


def sample(row: Sampled, *, layout: Layout) -> dict[str, Any]:
    """Members of a sample: the tensor, and JSON with its labels and its layout."""
    return {TENSOR: row.x, "json": {**row_values(row, but=["x"]), "layout": layout.as_values()}}


@dataclass(frozen=True)
class CompletedSampled(Sampled):
    """``Sampled`` for a sequence that may have had missing joints."""

    missing: int
    confidence: Annotated[np.ndarray, Shape((-1, -1, -1), "float32")]


def completed_sample(row: CompletedSampled, *, layout: Layout) -> dict[str, Any]:
    """Members of a sample: the tensor, the confidences, (T, V, M), and JSON with its labels and its layout."""
    labels = {**row_values(row, but=["x", "confidence"]), "layout": layout.as_values()}
    return {TENSOR: row.x, CONFIDENCE: row.confidence, "json": labels}
