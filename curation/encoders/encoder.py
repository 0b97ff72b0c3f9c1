"""The protocol that stages know, and the one way to get an encoder."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from .spec import Colours, Conse, EfficientNetLite, EncoderSpec


class EncoderUnavailable(ValueError):
    """The weights or packages that an encoder needs are not there. The message says what was wanted and what to do."""


class Encoder(Protocol):
    """Images and texts to unit vectors of one space, whose inner product is the cosine.

    Every vector depends on its own image or text alone, not on the others of the call, and not on the number of threads;
    methods may be called from several threads at once.
    """

    @property
    def name(self) -> str:
        """For records and reports: kind, model, weights."""
        ...

    @property
    def width(self) -> int:
        """Length d of the vectors."""
        ...

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """What ``encode_prepared`` takes of one image: small, so that a batch of them fits in memory.

        Args:
            image: an image file, or upright RGB pixels, uint8 of shape (height, width, 3).

        Raises:
            Reject: the file cannot be decoded.
        """
        ...

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Vectors of prepared images: float32 of shape (n, d), every row of L2 norm 1."""
        ...

    def encode_images(self, images: Sequence[bytes | np.ndarray]) -> np.ndarray:
        """``prepare`` and ``encode_prepared`` in one."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts: float32 of shape (n, d), every row of L2 norm 1. Raises ValueError where images alone have some."""
        ...


_loading = threading.Lock()


def load_encoder(spec: EncoderSpec, *, checkpoint: str = "", device: str = "cpu") -> Encoder:
    """The encoder of ``spec``, loaded once a process.

    Args:
        checkpoint: local file with the weights of an ``OpenClip`` encoder, in place of a download; plans mark it with
            ``where``, so that its content is part of the key.
        device: a torch device, for ``OpenClip``; the others run on the CPU.

    Raises:
        EncoderUnavailable: weights or packages are missing; one line says which and what to do.
        ValueError: the spec names no such model, or the checkpoint is another's.
    """
    with _loading:  # or two threads that start together would each load it
        return _load(spec, checkpoint, device)


@functools.cache
def _load(spec: EncoderSpec, checkpoint: str, device: str) -> Encoder:
    if isinstance(spec, Colours):
        from .colours import load_colours

        return load_colours()
    if isinstance(spec, Conse):
        from .conse import load_conse

        return load_conse(spec)
    if isinstance(spec, EfficientNetLite):
        from .efficientnet import load_efficientnet

        return load_efficientnet(spec)
    from .clip import load_clip

    return load_clip(spec, checkpoint=checkpoint, device=device)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """``vectors``, shape (n, d), divided by their L2 norms, which are taken in float64; float32. Zero rows stay zero."""
    wide = vectors.astype(np.float64)
    norms = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return (wide / np.where(norms == 0, 1, norms)).astype(np.float32)
