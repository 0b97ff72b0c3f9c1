"""Helpers shared by predictors: special labels, and rows gathered from increments that are never joined in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import uniform
from ..core.exemplars import Labels

Uids = NDArray[np.str_]
Features = NDArray[np.float32]
Probabilities = NDArray[np.float32]
Seen = tuple[Uids, Features, Labels]
"""uids (n,), features (n, d), class indices (n,) with ``UNLABELLED`` where no label was given; one entry per increment."""

Request = Literal["random", "uncertain_first"]
"""The order in which labels are requested."""

UNLABELLED = -1
UNKNOWN = -1
"""Label of the column for samples of no known class; -2 - j is the recognised cluster ``unknown_j``."""


def gather(experience: Sequence[Seen], rows: Labels) -> Features:
    """Features (len(rows), d) of ``rows``, which are numbered through all increments, in the given order."""
    ends = np.cumsum([len(y) for _, _, y in experience])
    features = np.empty((len(rows), experience[0][1].shape[1]), dtype=np.float32)
    which = np.searchsorted(ends, rows, side="right")
    for part in np.unique(which):
        at = np.flatnonzero(which == part)
        X = experience[part][1]
        features[at] = X[rows[at] - (ends[part] - len(X))]
    return features


def labelled_rows(experience: Sequence[Seen], *, learned: bool) -> tuple[Labels, Labels]:
    """The rows that have a label, numbered through all increments, and their class indices.

    Args:
        learned: whether the predictor has learned before. A limit on the experience may then leave no row.

    Raises:
        ValueError: no row has a label, and nothing was learned before.
    """
    labels = np.concatenate([y for _, _, y in experience])
    rows = np.flatnonzero(labels != UNLABELLED)
    if not len(rows) and not learned:
        raise ValueError("no labels were given: there is no class to fit")
    return rows, labels[rows]


def in_order_of(
    request: Request, uid: Uids, X: Features, *, seed: int, predict: Callable[[Uids, Features], tuple[Labels, Probabilities]]
) -> list[str]:
    """``uid`` in the requested order; ``predict`` is called if the order depends on it."""
    return random_order(uid, seed=seed) if request == "random" else uncertain_first(uid, predict(uid, X)[1])


def random_order(uid: Uids, *, seed: int) -> list[str]:
    """``uid`` in an order that depends on the seed and on each uid alone."""
    return uid[np.argsort(uniform(seed, "feedback", uid.tolist()), kind="stable")].tolist()


def uncertain_first(uid: Uids, probabilities: Probabilities) -> list[str]:
    """``uid`` by ascending largest probability, ties in their order (Prijatelj et al., ``uncertain_first``)."""
    return uid[np.argsort(probabilities.max(axis=1), kind="stable")].tolist()


def set_unknown(probabilities: Probabilities, rejected: NDArray[np.bool_], column: NDArray[np.intp] | int = 0) -> None:
    """Make ``column`` the most probable one of the rejected rows, in place.

    It receives the row's largest probability, and all columns share the rest, so that the order of the known classes is kept
    and a row still sums to 1 (the rule of the released recogniser).
    """
    rows = np.flatnonzero(rejected)
    best = probabilities[rows].max(axis=1)
    others = probabilities[rows] * (1 - best)[:, None]
    probabilities[rows] = others
    probabilities[rows, column if isinstance(column, int) else column[rows]] += best
