"""The extreme value machine: how near a sample lies to a class, measured against the class's nearest strangers.

Source: Rudd, Jain, Scheirer and Boult, "The Extreme Value Machine", IEEE TPAMI 40(3), 2018. KOWL's settings (PROTOCOLS.md 2.8):
tail 100, cover threshold 0.7, distance multiplier 1 (the EVM's paper has 1/2), cosine distance.

For each labelled row i a Weibull distribution is fitted to the ``tail_size`` smallest distances to rows of other classes. The
inclusion Psi_i(x) is the probability that a stranger is farther than x; a class's score is the largest Psi of its
extreme vectors, which a greedy set cover chooses. Two ways to fit:

- "as_written": Psi(x) = exp(-(D / scale)^shape), the distribution of the distances D themselves (the EVM's paper, Eq. 2);
- "as_released": the library that KOWL used (VAST, after libMR) turns the tail round, D -> max(tail) - D + 1, and fits that.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..loop import one_thread
from .predictor import (
    UNKNOWN,
    UNLABELLED,
    Features,
    Labels,
    Probabilities,
    Seen,
    Uids,
    by_class,
    gather,
    labels_of,
    random_order,
    uncertain_first,
)

Floats = NDArray[np.float64]
_LEAST = 1e-12  # a distance of 0 has no logarithm


@dataclasses.dataclass(frozen=True)
class EvmSetting:
    """Hyper-parameters; ``kowl.toml`` holds the paper's.

    Attributes:
        tail_size: distances to the nearest strangers that a Weibull distribution is fitted to.
        cover_threshold: a row is covered by an extreme vector with at least this Psi.
        distance_multiplier: of the tail's distances before the fit.
        fit: "as_released" or "as_written", see the module.
        request: "random" or "uncertain_first".
    """

    tail_size: int
    cover_threshold: float
    distance_multiplier: float
    fit: Literal["as_released", "as_written"]
    request: Literal["random", "uncertain_first"]

    def __post_init__(self) -> None:
        if self.tail_size < 2 or not 0 < self.cover_threshold <= 1 or not self.distance_multiplier > 0:
            raise ValueError(f"{self}: tail_size >= 2, cover_threshold in (0, 1] and a positive distance_multiplier are needed")
        if self.fit not in ("as_released", "as_written") or self.request not in ("random", "uncertain_first"):
            raise ValueError(f"fit {self.fit!r}, request {self.request!r}: no such words")


class Evm:
    """The predictor: fitted on all labelled rows whenever they changed (the paper's incremental update is not written).

    Args:
        setting: hyper-parameters.
        seed: of the random order of requests, the only draw.
        device: "cpu", "cuda"; distances are computed there.
    """

    def __init__(self, *, setting: EvmSetting, seed: int, device: str = "cpu") -> None:
        self._setting = setting
        self._seed = seed
        self._device = device
        self._vectors: Features = np.empty((0, 0), dtype=np.float32)
        self._weibulls: Floats = np.empty((0, 3))
        self._class_of: Labels = np.empty(0, dtype=np.int64)
        self._known: str = ""

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Weibull fits of all labelled rows, and extreme vectors.

        Raises:
            ValueError: fewer than two classes, or fewer than two strangers of a class.
        """
        labels = labels_of(experience)
        rows = np.flatnonzero(labels != UNLABELLED)
        y = labels[rows]
        X = gather(experience, rows)
        digest = hashlib.sha256(y.tobytes() + X.tobytes()).hexdigest()
        if digest == self._known:
            return
        if len(np.unique(y)) < 2:
            raise ValueError(f"labels of {len(np.unique(y))} classes: a class is measured against the rows of others")
        with one_thread():
            points = self._points(X)
            chosen: list[Labels] = []
            weibulls: list[Floats] = []
            for _, own in by_class(y):
                fitted = fit_weibulls(self._tails(points, y, own), self._setting.fit)
                near = 1 - (points[own] @ points[own].T).double().cpu().numpy()
                extreme = set_cover(inclusion(near, fitted[:, None, :], self._setting.fit) >= self._setting.cover_threshold)
                chosen.append(own[extreme])
                weibulls.append(fitted[extreme])
        at = np.concatenate(chosen)
        self._vectors = points[torch.from_numpy(at)].cpu().numpy()
        self._weibulls = np.concatenate(weibulls)
        self._class_of = y[at]
        self._known = digest

    def predict(self, uid: Uids, X: Features) -> tuple[Labels, Probabilities]:
        """Columns: "unknown", the known classes.

        Scores are 1 - max Psi for "unknown" and Psi for the classes, divided by their sum (our choice): a sample is unknown
        where no class reaches 1/2.
        """
        classes, starts = np.unique(self._class_of, return_index=True)
        scores = np.empty((len(X), 1 + len(classes)))
        with one_thread():
            vectors = torch.from_numpy(self._vectors).to(self._device)
            for start in range(0, len(X), 2048):
                block = self._points(np.array(X[start : start + 2048]))
                psi = inclusion(1 - (block @ vectors.T).double().cpu().numpy(), self._weibulls, self._setting.fit)
                scores[start : start + len(block), 1:] = np.maximum.reduceat(psi, starts, axis=1)
        scores[:, 0] = 1 - scores[:, 1:].max(axis=1)
        scores /= scores.sum(axis=1, keepdims=True)
        return np.concatenate([[UNKNOWN], classes]).astype(np.int64), scores.astype(np.float32)

    def request(self, uid: Uids, X: Features) -> list[str]:
        """Random, or ascending largest probability."""
        if self._setting.request == "random":
            return random_order(uid, seed=self._seed)
        return uncertain_first(uid, self.predict(uid, X)[1])

    def state(self) -> dict[str, NDArray[Any]]:
        """Extreme vectors with their distributions and classes."""
        return {
            "vectors": self._vectors,
            "weibulls": self._weibulls,
            "class_of": self._class_of,
            "known": np.array(self._known),
        }

    def restore(self, state: Mapping[str, NDArray[Any]], experience: Sequence[Seen]) -> None:
        """Take up what ``state`` gave."""
        self._vectors, self._weibulls, self._class_of = state["vectors"], state["weibulls"], state["class_of"]
        self._known = str(state["known"])

    def _points(self, X: Features) -> torch.Tensor:
        """Rows of length 1: cosine distance is 1 - product."""
        return torch.nn.functional.normalize(torch.from_numpy(X).to(self._device))

    def _tails(self, points: torch.Tensor, y: Labels, own: Labels) -> Floats:
        """(len(own), tail) distances to the nearest rows of other classes, ascending, times the multiplier."""
        strangers = points[torch.from_numpy(np.delete(np.arange(len(y)), own))]
        tail = min(self._setting.tail_size, len(strangers))
        if tail < 2:
            raise ValueError(f"{len(strangers)} rows of other classes: a distribution needs two distances at least")
        found: list[NDArray[np.float32]] = []
        for start in range(0, len(own), 512):
            block = points[torch.from_numpy(own[start : start + 512])]
            found.append((1 - (block @ strangers.T)).topk(tail, dim=1, largest=False).values.cpu().numpy())
        return np.concatenate(found).astype(np.float64) * self._setting.distance_multiplier


def fit_weibulls(tails: Floats, fit: Literal["as_released", "as_written"]) -> Floats:
    """Maximum-likelihood Weibull distributions, one a row, by Newton's method on all rows at once.

    Args:
        tails: (n, t) distances >= 0, ascending.

    Returns:
        (n, 3): shape, scale, and the turning point (the tail's largest distance; 0 as written). The location is 0, as with
        ``scipy.stats.weibull_min.fit(row, floc=0)``, which takes 2 ms a row. A tail of equal distances has no finite shape:
        it gets 1e4 (our choice), a step.
    """
    turn = tails[:, -1:] if fit == "as_released" else np.zeros((len(tails), 1))
    values = turn - tails + 1 if fit == "as_released" else np.maximum(tails, _LEAST)
    logs = np.log(values)
    largest = logs.max(axis=1, keepdims=True)
    logs = logs - largest  # (x / max)^k cannot overflow
    mean = logs.mean(axis=1)
    spread = logs.std(axis=1)
    shape = np.clip(1.2 / np.maximum(spread, 1e-300), 1e-3, 1e4)  # the moment estimate on a log scale
    for _ in range(50):
        power = np.exp(shape[:, None] * logs)
        total = power.sum(axis=1)
        first = (power * logs).sum(axis=1) / total
        second = (power * logs * logs).sum(axis=1) / total
        step = (first - mean - 1 / shape) / (second - first**2 + 1 / shape**2)
        new = np.clip(np.where(step >= shape, shape / 2, shape - step), 1e-3, 1e4)
        done = np.abs(new - shape) <= 1e-10 * shape
        shape = new
        if done.all():
            break
    scale = np.exp(largest[:, 0]) * np.exp(shape[:, None] * logs).mean(axis=1) ** (1 / shape)
    return np.stack([shape, scale, turn[:, 0]], axis=1)


def inclusion(distances: Floats, weibulls: Floats, fit: Literal["as_released", "as_written"]) -> Floats:
    """Psi, in [0, 1]: probability that a stranger lies farther.

    Args:
        distances: (n, k), from n samples to k rows; slightly negative ones count as 0.
        weibulls: (k, 3) from ``fit_weibulls``, or an array that spreads against (n, k, 3).
    """
    shape, scale, turn = weibulls[..., 0], weibulls[..., 1], weibulls[..., 2]
    with np.errstate(over="ignore"):  # an infinite power is a probability of 0 or 1
        if fit == "as_written":
            return np.exp(-((np.maximum(distances, 0) / scale) ** shape))
        return -np.expm1(-((np.maximum(turn - distances + 1, 0) / scale) ** shape))


def set_cover(covers: NDArray[np.bool_]) -> Labels:
    """Rows that cover all rows, greedily: the row that covers most of what is left, the first of equals.

    Args:
        covers: (n, n), covers[i, j]: row i covers row j. A row covers itself, whatever is said.

    Returns:
        Chosen rows in the order of their choice.
    """
    left = covers | np.eye(len(covers), dtype=bool)
    counts = left.sum(axis=1)
    chosen: list[int] = []
    open_rows = np.ones(len(covers), dtype=bool)
    while open_rows.any():
        best = int(counts.argmax())
        chosen.append(best)
        newly = left[best] & open_rows
        counts -= left[:, newly].sum(axis=1)
        open_rows &= ~newly
    return np.array(chosen, dtype=np.int64)
