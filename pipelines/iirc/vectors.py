"""Vectors that replace pictures, if the settings name an encoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...curation.artifact import load_artifact
from ...curation.store import Store
from ..errors import WrongUse

EMBEDDED = "embedded"
"""Name of the stage that makes them."""


def vectors_digest(out: str) -> str:
    """Digest of the vectors of a run."""
    if (artifact := load_artifact(Store(out), EMBEDDED)) is None:
        raise WrongUse(f"{out} has no vectors: run the pipeline with these settings first")
    return artifact.digest


def read_vectors(out: str, digest: str, keys: Sequence[str]) -> NDArray[np.float32]:
    """(n, d) vectors of ``keys``, from the stage that made them.

    Raises:
        ValueError: the run has no vectors with that digest, or lacks a key.
    """
    store = Store(out)
    artifact = load_artifact(store, EMBEDDED)
    if artifact is None or artifact.digest != digest:
        raise ValueError(f"{out} has no vectors of digest {digest[:10]}: train again")
    rows = artifact.rows_view(store)
    places = {key: row for row, key in enumerate(rows.table(["key"])["key"].to_pylist())}
    if missing := next((key for key in keys if key not in places), None):
        raise ValueError(f"{out} has no vector of {missing!r}: its shards are of another run")
    return rows.gather("embedding", [places[key] for key in keys]).astype(np.float32)
