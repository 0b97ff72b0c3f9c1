"""The protocol of encoders, through which stages use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

T = TypeVar("T")


class EncoderUnavailable(ValueError):
    """Weights or packages that an encoder needs are missing. The message says which, and what to do."""


class Encoder(Protocol):
    """Maps images and texts to unit vectors in a shared space, whose inner product is the cosine.

    A vector depends only on its own image or text, not on the others in the call or on the number of threads. The methods may
    be called from several threads at once.

    >>> from benchwright.curation.encoders.colours import ColourEncoder
    >>> encoder: Encoder = ColourEncoder()
    >>> images = encoder.encode_prepared([encoder.prepare(np.full((4, 4, 3), [200, 30, 30], np.uint8))])
    >>> texts = encoder.encode_texts(["something red", "something blue"])
    >>> images.shape, (images @ texts.T).argmax(axis=1)  # the cosine with "something red" is the greater
    ((1, 11), array([0]))
    """

    @property
    def name(self) -> str:
        """Name for records and reports: kind, model, weights."""
        ...

    @property
    def width(self) -> int:
        """Dimension d of the vectors."""
        ...

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """Prepare one image for ``encode_prepared``. The result is small, so that a batch of them fits in memory.

        Args:
            image: an image file, or upright RGB pixels, uint8 of shape (height, width, 3).

        Raises:
            Reject: the file cannot be decoded.
        """
        ...

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Vectors of prepared images: float32 of shape (n, d), every row of L2 norm 1."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts: float32 of shape (n, d), every row of L2 norm 1. Raises ValueError if only images are supported."""
        ...


MakeEncoder = Callable[..., Any]
"""Class or function, with its settings bound, that returns a user's own encoder: see ``own``."""


def full_blocks(items: Sequence[T], size: int) -> Iterator[tuple[list[T], int]]:
    """Blocks of exactly ``size`` items, and how many of each are its own: the last is filled up with copies of its first.

    A network that always gets batches of one size gives an item the same vector in any call.

    >>> list(full_blocks("abcde", 3))
    [(['a', 'b', 'c'], 3), (['d', 'e', 'd'], 2)]
    """
    for start in range(0, len(items), size):
        own = list(items[start : start + size])
        yield own + own[:1] * (size - len(own)), len(own)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """``vectors``, shape (n, d), divided by their L2 norms, as float32. Computed in float64; zero rows stay zero.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    wide = vectors.astype(np.float64)
    norms = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return (wide / np.where(norms == 0, 1, norms)).astype(np.float32)
