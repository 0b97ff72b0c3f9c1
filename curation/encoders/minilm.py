"""Sentence embeddings of the packaged all-MiniLM-L6-v2, without sentence-transformers, whose import takes seconds.

The network is BERT (Devlin et al., NAACL 2019) with 6 layers of width 384; a sentence embedding is the normalised mean of the
last hidden states of its tokens (Reimers and Gurevych, "Sentence-BERT", EMNLP 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F

from .encoder import full_blocks, unit_rows
from .one_thread import one_thread

WIDTH = 384
_LAYERS = 6
_HEADS = 12
_MAX_TOKENS = 256  # as in sentence_bert_config.json, from training; the rest of a longer text is dropped
_BLOCK = 32


class MiniLM:
    """Sentence encoder.

    Args:
        folder: folder with ``model.safetensors`` and ``tokenizer.json``.
    """

    def __init__(self, folder: Path) -> None:
        self._weights = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, float32 of shape (n, 384).

        Texts with the same number of tokens are encoded together, in blocks of constant size: no text is padded, and no vector
        depends on other texts.
        """
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        by_length: dict[int, list[int]] = {}
        for index, tokens in enumerate(ids):
            by_length.setdefault(len(tokens), []).append(index)
        vectors = np.zeros((len(ids), WIDTH), dtype=np.float32)
        with one_thread(), torch.inference_mode():
            for indices in by_length.values():
                for filled, own in full_blocks(indices, _BLOCK):
                    vectors[filled[:own]] = self._forward(torch.tensor([ids[index] for index in filled]))[:own].numpy()
        return unit_rows(vectors)

    def _forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Mean of the last hidden states, float32 of shape (n, 384), of token ids of shape (n, length)."""
        weights = self._weights
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self._norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(_LAYERS):
            at = f"encoder.layer.{layer}."
            query, key, value = (
                self._linear(x, f"{at}attention.self.{part}").unflatten(-1, (_HEADS, -1)).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            heads = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
            x = self._norm(x + self._linear(heads, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
            wide = F.gelu(self._linear(x, f"{at}intermediate.dense"))
            x = self._norm(x + self._linear(wide, f"{at}output.dense"), f"{at}output.LayerNorm")
        return x.mean(dim=1)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], 1e-12)
