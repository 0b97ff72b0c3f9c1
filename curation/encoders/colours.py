"""A toy encoder with exact vectors: shares of the eleven basic colour terms in an image, or mentions of them in a text.

The terms are those of Berlin and Kay, "Basic color terms" (1969). Everything up to the last division is integer arithmetic,
and that division is correctly rounded everywhere, so the vectors are the same on every machine.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..stages.decode import decode_rgb

TERMS = ("black", "grey", "white", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
"""The components of a vector, in order."""

# Digest of colours.csv: as a constant in the code, it makes the file part of the key.
_SAMPLES_SHA256 = "6f7207c568bb2d03090d863f33538be178f912f7d4bcf4db6c02c099c5495dfa"
_SYNONYMS = {"gray": "grey", "violet": "purple", "crimson": "red", "scarlet": "red", "golden": "yellow", "cyan": "blue"}


class ColourEncoder:
    """``Encoder`` of ``Colours``: width 11."""

    name = "colours"
    width = len(TERMS)

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """Number of pixels of each term, int64 of shape (11,)."""
        pixels = decode_rgb(image) if isinstance(image, bytes) else image
        cells = pixels.reshape(-1, 3).astype(np.uint16) >> 4
        counts = np.bincount((cells[:, 0] << 8) | (cells[:, 1] << 4) | cells[:, 2], minlength=4096)
        totals = np.zeros(self.width, dtype=np.int64)
        np.add.at(totals, _term_of_cell(), counts)
        return totals

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Scale the counts to unit vectors."""
        return np.stack([_unit(counts.tolist()) for counts in prepared]) if prepared else self._none()

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Counts of the terms in each text, as unit vectors. Raises ``ValueError`` for a text without any term."""
        return np.stack([_unit(self._mentions(text)) for text in texts]) if texts else self._none()

    def _mentions(self, text: str) -> list[int]:
        words = [_SYNONYMS.get(word, word) for word in re.findall("[a-z]+", text.lower())]
        counts = [words.count(term) for term in TERMS]
        if not any(counts):
            raise ValueError(f"text {text!r} names no colour: the encoder 'colours' knows {', '.join(TERMS)}")
        return counts

    def _none(self) -> np.ndarray:
        return np.zeros((0, self.width), dtype=np.float32)


def _unit(counts: Sequence[int]) -> np.ndarray:
    norm = math.sqrt(sum(count * count for count in counts))
    return np.array([count / norm for count in counts], dtype=np.float64).astype(np.float32)


@functools.cache
def _term_of_cell() -> np.ndarray:
    """Index in ``TERMS`` of each of the 16 x 16 x 16 cells of the RGB cube, shape (4096,).

    A cell has the term of the nearest sample in ``colours.csv`` (the first one on ties), by squared distance with the weights
    2, 4, 3 for red, green, blue (Riemersma's "redmean" without its red term).
    """
    path = Path(__file__).parent / "colours.csv"
    text = path.read_text(encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != _SAMPLES_SHA256:
        raise ValueError(f"{path}: SHA-256 {digest}, expected {_SAMPLES_SHA256}: another table would give other vectors")
    rows = list(csv.DictReader(text.splitlines()))
    samples = np.array([[int(row[channel]) for channel in ("red", "green", "blue")] for row in rows], dtype=np.int64)
    cells = np.stack(np.meshgrid(*[np.arange(16) * 16 + 8] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 3)
    nearest = ((cells - samples) ** 2 * np.array([2, 4, 3])).sum(axis=2).argmin(axis=1)
    return np.array([TERMS.index(row["term"]) for row in rows], dtype=np.int64)[nearest]
