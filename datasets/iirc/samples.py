"""The last steps before the shards: the meaning of the columns, and what a sample holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...curation.rows import Blob
from ...curation.shards import row_values
from .assign import configuration_columns

COLUMNS = {
    "role": "train, intask_valid (labelled as train is), posttask_valid or test (asked for all labels known by then)",
    "subclass": "name of the finest class",
    "superclass": "name of the class above it; none of a lone subclass",
    "in_super": "whether the sample is given under its superclass",
    "in_sub": "whether the sample is given under its subclass",
    "part": "task that first gives the sample, in the first configuration; unused where none does",
    "split": "train or test, as the source says; empty where it does not",
    "class_name": "class as the source names it",
    "file": "path within the source; samples of a class lie in its order",
    "extension": "of the picture's format",
    "declared_extension": "of the file's name",
    "width": "pixels, as displayed",
    "height": "pixels, as displayed",
    "mode": "pixel type, by Pillow's names",
    "sha256": "of the sample's members: extension, NUL, size, NUL, bytes, in the order of the extensions",
}
"""Meaning of the columns, for the dataset's card."""

_MEANINGS = (
    "place of the superclass in the order of learning of configuration {c}; none where it is left out",
    "task that brings the superclass in configuration {c}",
    "place of the subclass in the order of learning of configuration {c}",
    "task that brings the subclass in configuration {c}",
)


def columns_of(configurations: Iterable[int]) -> dict[str, str]:
    """``COLUMNS`` and the columns of each configuration."""
    meanings = {
        name: meaning.format(c=c)
        for c in configurations
        for name, meaning in zip(configuration_columns(c), _MEANINGS, strict=True)
    }
    return COLUMNS | meanings


@dataclass(frozen=True)
class Sampled:
    """A row as it is written to a shard."""

    key: str
    extension: str
    image: Blob
    role: str
    subclass: str
    superclass: str | None
    in_super: bool
    in_sub: bool


def sample(row: Sampled) -> dict[str, Any]:
    """Members of a sample: the unchanged picture, and its labels as JSON."""
    return {row.extension: row.image.read(), "json": row_values(row, but=["extension", "image"])}
