"""Steps of the small plans of the attack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from benchwright.curation.rows import Shape
from benchwright.datasets.features.backbones import Backbone, load_backbone


@dataclass(frozen=True)
class Clip:
    """A clip, by its number."""

    key: str


@dataclass(frozen=True)
class Vector:
    """Its feature."""

    key: str
    feature: Annotated[np.ndarray, Shape((-1,), "float32")]


def clips() -> Iterator[Clip]:
    """Source step: two clips."""
    yield from (Clip(str(number)) for number in range(2))


def vector(row: Clip, *, backbone: Backbone, checkpoint: str) -> Vector:
    """Each step: what a backbone makes of grey frames."""
    embed = load_backbone(backbone, checkpoint=checkpoint)
    return Vector(row.key, embed([np.full((3, 32, 32), 100 + int(row.key), np.uint8)] * 2))
