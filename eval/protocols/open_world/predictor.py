"""Interface of a predictor in the open-world protocol. A class with these five methods can be evaluated without inheritance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...metrics.confusion import Labels

Uids = NDArray[np.str_]
Features = NDArray[np.float32]
Probabilities = NDArray[np.float32]
Seen = tuple[Uids, Features, Labels]
"""Samples in the order in which they came: uids (n,), features (n, d), class indices (n,); -1 where no label was given."""
PredictorState = Mapping[str, NDArray[Any]]


class Predictor(Protocol):
    """A classifier that may say "unknown", and that meets new classes increment after increment.

    A minimal one::

        class Majority:
            def fit(self, experience, validation):
                y = np.concatenate([y for _, _, y in experience])
                self.classes, counts = np.unique(y[y >= 0], return_counts=True)
                self.share = (counts / counts.sum()).astype(np.float32)
            def predict(self, uid, X):
                return self.classes, np.tile(self.share, (len(X), 1))
            def request(self, uid, X):
                return list(uid)
            def state(self):
                return {"classes": self.classes, "share": self.share}
            def restore(self, state, experience):
                self.classes, self.share = state["classes"], state["share"]

    A predictor that can use feedback as scores also has ``take_scores(uid, X, scores)``: it gets training rows of an increment
    without their labels, and measures of its predictions for them, such as ``detection.mcc``:
    ``open_world.measures.ordered_measures`` of each task, with the classes known to it. The evaluator calls it before ``fit``;
    anything it learns from this belongs to its ``state``.
    """

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Learn. ``experience`` is everything seen in training splits so far, one entry per increment, the newest last;
        ``validation`` is increment 0's validation split, labelled (it may be empty)."""
        ...

    def predict(self, uid: Uids, X: Features) -> tuple[Labels, Probabilities]:
        """Labels of c columns and probabilities (n, c) whose rows sum to 1. A column is a class index, -1 for "unknown", or
        -2 - j for a cluster ``unknown_j`` that the predictor found. It may learn from ``X``, whose labels it does not see."""
        ...

    def request(self, uid: Uids, X: Features) -> Sequence[str]:
        """All of ``uid``, in the order in which labels are wanted; the first ones get labels."""
        ...

    def state(self) -> PredictorState:
        """The arrays of plain dtypes that ``restore`` needs; equal states give equal arrays."""
        ...

    def restore(self, state: PredictorState, experience: Sequence[Seen]) -> None:
        """Resume from a state; ``experience`` is the one passed to the last ``fit``."""
        ...
