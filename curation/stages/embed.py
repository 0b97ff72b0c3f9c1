"""Embed images. The vector of an image depends only on the image and the encoder, not on the batch, part or thread."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..encoders.encoder import Encoder, MakeEncoder
from ..encoders.loading import load_encoder
from ..encoders.spec import EncoderSpec
from ..rows import Blob, Reject, Rejected, Shape


@dataclass(frozen=True)
class Pictured:
    """A row with an image file."""

    key: str
    image: Blob


@dataclass(frozen=True)
class Embedded:
    """The same row with its vector.

    Attributes:
        embedding: vector of L2 norm 1; its width depends on the encoder.
    """

    key: str
    image: Blob
    embedding: Annotated[np.ndarray, Shape((-1,), "float32")]


@dataclass(frozen=True)
class EmbeddedHalf:
    """``Embedded`` at half the size: rounded to float16, norm 1 within 0.001."""

    key: str
    image: Blob
    embedding: Annotated[np.ndarray, Shape((-1,), "float16")]


def embed_images(
    rows: Sequence[Pictured],
    *,
    encoder: EncoderSpec | MakeEncoder,
    checkpoint: str = "",
    device: str = "cpu",
    batch_size: int = 32,
    threads: int = 1,
) -> list[Embedded | Rejected]:
    """Compute the vectors of image files. A step of kind ``each_batch``.

    Args:
        encoder: the encoder; mark your own with ``named``.
        checkpoint: local weights of an ``OpenClip`` encoder; mark it with ``where``.
        device: torch device of an ``OpenClip`` encoder; mark it with ``how``. GPU and CPU results differ in the last bits.
        batch_size: images decoded at a time by a thread, which bounds the memory; mark it with ``how``.
        threads: number of threads of this call, one core each; 1 if parts already run in parallel; mark it with ``how``.

    Returns:
        One item per row, in order. Rejects: ``undecodable`` for unreadable images, with the decoder's reason in the detail.

    Raises:
        EncoderUnavailable: weights or packages are missing.
    """
    model = load_encoder(encoder, checkpoint=checkpoint, device=device)
    batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    if threads == 1:
        done = [_embed(model, batch) for batch in batches]
    else:
        with ThreadPoolExecutor(threads) as pool:
            done = list(pool.map(lambda batch: _embed(model, batch), batches))
    return [row for batch in done for row in batch]


def embed_images_half(
    rows: Sequence[Pictured],
    *,
    encoder: EncoderSpec | MakeEncoder,
    checkpoint: str = "",
    device: str = "cpu",
    batch_size: int = 32,
    threads: int = 1,
) -> list[EmbeddedHalf | Rejected]:
    """``embed_images`` rounded to float16: half the disk, cosines within 0.0005."""
    full = embed_images(rows, encoder=encoder, checkpoint=checkpoint, device=device, batch_size=batch_size, threads=threads)
    return [
        row if isinstance(row, Rejected) else EmbeddedHalf(row.key, row.image, row.embedding.astype(np.float16)) for row in full
    ]


def _embed(model: Encoder, rows: Sequence[Pictured]) -> list[Embedded | Rejected]:
    results: dict[int, Embedded | Rejected] = {}
    prepared: dict[int, np.ndarray] = {}
    for index, row in enumerate(rows):
        try:
            prepared[index] = model.prepare(row.image.read())
        except Reject as reject:
            results[index] = Rejected(row.key, "undecodable", f"{reject.reason}: {reject.detail}")
    vectors = model.encode_prepared(list(prepared.values()))
    for index, vector in zip(prepared, vectors, strict=True):
        results[index] = Embedded(rows[index].key, rows[index].image, vector)
    return [results[index] for index in range(len(rows))]
