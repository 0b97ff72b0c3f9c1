"""A classifier that was trained elsewhere, by its stored outputs: "Original" in KOWL's Table 3. It learns nothing here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .predictor import UNKNOWN, Features, Labels, Probabilities, Seen, Uids


class Original:
    """The softmax of stored outputs, class by class.

    Args:
        names: of the class indices.
        outputs: names of the outputs, in their order. One that is not a class of the data counts as "unknown"; two of one name
            are added.

    >>> original = Original(names=["diving", "running"], outputs=["running", "diving", "flying"])
    >>> columns, shares = original.predict(np.array(["clip"]), np.array([[5.0, 0.0, 0.0]], np.float32))
    >>> columns, shares.round(2)
    (array([-1,  0,  1]), array([[0.01, 0.01, 0.99]], dtype=float32))
    """

    def __init__(self, *, names: Sequence[str], outputs: Sequence[str]) -> None:
        index = {name: n for n, name in enumerate(names)}
        self._classes: Labels = np.array([index.get(name, UNKNOWN) for name in outputs], dtype=np.int64)

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Nothing."""

    def predict(self, uid: Uids, X: Features) -> tuple[Labels, Probabilities]:
        """Columns: "unknown", the classes that it knows."""
        if X.shape[1] != len(self._classes):
            raise ValueError(f"vectors of {X.shape[1]} numbers, and {len(self._classes)} names of outputs: expected one each")
        shares = np.exp(X - X.max(axis=1, keepdims=True), dtype=np.float64)
        shares /= shares.sum(axis=1, keepdims=True)
        columns = np.union1d([UNKNOWN], self._classes)
        found = np.zeros((len(X), len(columns)))
        np.add.at(found.T, np.searchsorted(columns, self._classes), shares.T)
        return columns.astype(np.int64), found.astype(np.float32)

    def request(self, uid: Uids, X: Features) -> list[str]:
        """In their order."""
        return uid.tolist()

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing changes."""
        return {"classes": self._classes}

    def restore(self, state: Mapping[str, NDArray[Any]], experience: Sequence[Seen]) -> None:
        """Nothing."""
