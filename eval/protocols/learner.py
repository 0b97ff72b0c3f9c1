"""What a protocol asks of a method. Anything with these four methods can be evaluated; nothing is inherited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Features = NDArray[np.float32]
Labels = NDArray[np.int64]


class Learner(Protocol):
    """A model that meets domains one after another, and never sees their test rows."""

    def learn(self, X: Features, y: Labels) -> None:
        """Train on the next domain: ``X`` (n, d) float32, ``y`` (n,) int64. The arrays stay alive and unchanged."""
        ...

    def predict(self, X: Features) -> Labels:
        """Class indices (n,) of ``X`` (n, d), by the model as it is now."""
        ...

    def save(self, path: Path) -> None:
        """Write the state after the last ``learn``: weights and row numbers, no features."""
        ...

    def load(self, path: Path, seen: Sequence[tuple[Features, Labels]]) -> None:
        """Take up a saved state; ``seen`` are the training sets given to ``learn`` until then, in order."""
        ...
