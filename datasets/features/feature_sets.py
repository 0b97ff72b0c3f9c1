"""Feature sets: vectors of all images of a dataset, in addition to those used to retrieve the images.

::

    pictures = source("pictures", step(pictures_of, rows=rows_of("placed")), gives=Pictured)
    pictures.each_batch("features_moco", step(extract_images, encoder=named("...networks:network", model="resnet50"), ...))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ...curation.encoders.encoder import MakeEncoder
from ...curation.encoders.spec import EncoderSpec
from ...curation.rows import Rejected, Shape
from ...curation.stages.embed import Pictured, embed_images

if TYPE_CHECKING:
    import pyarrow as pa

    from ...curation.stage_rows import Rows


@dataclass(frozen=True)
class Featured:
    """The vector of an image; its length depends on the encoder."""

    key: str
    feature: Annotated[np.ndarray, Shape((-1,), "float32")]


@dataclass(frozen=True)
class FeaturedHalf:
    """``Featured`` rounded to float16."""

    key: str
    feature: Annotated[np.ndarray, Shape((-1,), "float16")]


def pictures_of(*, rows: Rows) -> Iterator[pa.Table]:
    """Source step: only keys and images of the rows of another stage, so that features are recomputed only when images change.

    Args:
        rows: rows of the other stage; mark them with ``rows_of``.
    """
    yield from rows.batches(["key", "image"])


def extract_images(
    rows: Sequence[Pictured],
    *,
    encoder: EncoderSpec | MakeEncoder,
    checkpoint: str = "",
    device: str = "cpu",
    batch_size: int = 32,
    threads: int = 1,
) -> list[Featured]:
    """Vectors of image files; step of kind ``each_batch``. A vector depends only on its image and the encoder.

    Args:
        encoder, checkpoint, device, batch_size, threads: see ``embed_images``.

    Raises:
        ValueError: an image cannot be decoded; a dataset needs the features of all images.
        EncoderUnavailable: weights or packages are missing.
    """
    found: list[Featured] = []
    for row in embed_images(
        rows, encoder=encoder, checkpoint=checkpoint, device=device, batch_size=batch_size, threads=threads
    ):
        if isinstance(row, Rejected):
            raise ValueError(f"image {row.key!r} has no features, and every image of a dataset needs them: {row.detail}")
        found.append(Featured(row.key, row.embedding))
    return found


def extract_images_half(
    rows: Sequence[Pictured],
    *,
    encoder: EncoderSpec | MakeEncoder,
    checkpoint: str = "",
    device: str = "cpu",
    batch_size: int = 32,
    threads: int = 1,
) -> list[FeaturedHalf]:
    """``extract_images`` rounded to float16: half the disk.

    Raises:
        ValueError: as for ``extract_images``; or a number is too large for float16.
    """
    full = extract_images(rows, encoder=encoder, checkpoint=checkpoint, device=device, batch_size=batch_size, threads=threads)
    with np.errstate(over="ignore"):
        halves = [FeaturedHalf(row.key, row.feature.astype(np.float16)) for row in full]
    for row in halves:
        if not np.isfinite(row.feature).all():
            raise ValueError(f"image {row.key!r}: a feature is beyond 65504, the largest float16: change stored to float32")
    return halves
