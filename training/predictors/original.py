"""A classifier that was trained elsewhere, by its stored outputs: "Original" in KOWL's Table 3. It is not trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .predictor import UNKNOWN, Features, Labels, Probabilities, Seen, Uids


class Original:
    """Softmax of stored outputs, per class.

    Args:
        names: class names by class index.
        outputs: names of the outputs, in their order. An output that is not a class of the data counts as "unknown"; outputs of
            the same name are added.

    >>> original = Original(names=["diving", "running"], outputs=["running", "diving", "flying"])
    >>> columns, shares = original.predict(np.array(["clip"]), np.array([[5.0, 0.0, 0.0]], np.float32))
    >>> columns, shares.round(2)
    (array([-1,  0,  1]), array([[0.01, 0.01, 0.99]], dtype=float32))
    """

    def __init__(self, *, names: Sequence[str], outputs: Sequence[str]) -> None:
        index = {name: n for n, name in enumerate(names)}
        self._classes: Labels = np.array([index.get(name, UNKNOWN) for name in outputs], dtype=np.int64)

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Do nothing."""

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
        """Return uids in their order."""
        return uid.tolist()

    def state(self) -> dict[str, NDArray[Any]]:
        """Class indices of the outputs, which never change."""
        return {"classes": self._classes}

    def restore(self, state: Mapping[str, NDArray[Any]], experience: Sequence[Seen]) -> None:
        """Do nothing."""
