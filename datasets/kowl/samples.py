"""The last steps before the shards: the meaning of the columns, and what a sample holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from ...curation.rows import Shape
from ...curation.shards import row_values

FEATURE = "feature.npy"
"""Member that holds the vector of a sample."""

COLUMNS = {
    "increment": "from 0, which is all of the first release",
    "role": "train, val or test",
    "position": "place in the stream of its increment and role, from 0",
    "novel": "whether no training sample of an earlier increment has its label",
    "block": "what decides the place: known_small, known, never_trained, novel, novel_small or persisted",
    "label_recent_first": "the label used: that of the most recent release that gives one",
    "label_release": "release that the label comes from",
    "taken_release": "release that the sample is taken from",
    "taken_split": "split of that release",
    "youtube_id": "video",
    "time_start": "seconds from the video's start",
    "time_end": "seconds from the video's start",
    "source_key": "listed row that stands for the sample",
}
"""Meaning of the columns, for the dataset's card."""


@dataclass(frozen=True)
class Sampled:
    """A row as it is written to a shard."""

    key: str
    feature: Annotated[np.ndarray, Shape((-1,), "float32")]
    increment: int
    role: str
    position: int
    novel: bool
    label_recent_first: str


def sample(row: Sampled) -> dict[str, Any]:
    """Members of a sample: its vector, and its place in the stream and label as JSON."""
    return {FEATURE: np.asarray(row.feature), "json": row_values(row, but=["feature"])}
