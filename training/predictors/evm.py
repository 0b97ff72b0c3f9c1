"""Extreme value machine: how near a sample is to a class, compared with the class's nearest negatives.

Source: Rudd, Jain, Scheirer and Boult, "The Extreme Value Machine", IEEE TPAMI 40(3), 2018. KOWL's settings (released
configurations): tail 100, cover threshold 0.7, distance multiplier 1 (the EVM's paper has 1/2), cosine distance.

For each labelled row i a Weibull distribution is fitted to the ``tail_size`` smallest distances to its negatives, the rows of
other classes. The inclusion Psi_i(x) is the probability that a negative is farther than x; a class's score is the largest Psi
of its extreme vectors, which a greedy set cover chooses. Two ways to fit:

- "as_written": Psi(x) = exp(-(D / scale)^shape), the distribution of the distances D themselves (the EVM's paper, Eq. 2);
- "as_released": the library that KOWL used (VAST, after libMR) reverses the tail, D -> max(tail) - D + 1, and fits the result.

Tails are kept from fit to fit: new rows are compared with all others once, and only distributions whose tail has changed are
fitted again. The result equals that of fitting all rows at once, except for the last bits of the distances.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...curation.encoders.one_thread import one_thread
from ...curation.registry import check_values
from ..core.exemplars import rows_by_class
from .predictor import (
    UNKNOWN,
    Features,
    Labels,
    Probabilities,
    Request,
    Seen,
    Uids,
    gather,
    in_order_of,
    labelled_rows,
)

FitVariant = Literal["as_released", "as_written"]
Floats = NDArray[np.float64]
_LEAST = 1e-12  # a distance of 0 has no logarithm
_BLOCK = 2048


@dataclasses.dataclass(frozen=True)
class EvmSetting:
    """Hyper-parameters; ``kowl.toml`` holds the paper's.

    Attributes:
        tail_size: number of distances to the nearest negatives that a Weibull distribution is fitted to.
        tail_share: maximum size of the tail as a share of the rows outside of the largest class (ours; the paper's data have
            enough): a tail of most negatives does not describe the nearest ones, and then nothing is unknown.
        cover_threshold: a row is covered by an extreme vector with at least this Psi.
        distance_multiplier: factor on the tail's distances before the fit.
        fit: "as_released" or "as_written", see the module.
        request: "random" or "uncertain_first".
    """

    tail_size: int
    tail_share: float
    cover_threshold: float
    distance_multiplier: float
    fit: FitVariant
    request: Request

    def __post_init__(self) -> None:
        check_values(EvmSetting, vars(self))
        if self.tail_size < 2 or not 0 < self.cover_threshold <= 1 or not self.distance_multiplier > 0:
            raise ValueError(f"{self}: tail_size >= 2, cover_threshold in (0, 1] and a positive distance_multiplier are needed")
        if not 0 < self.tail_share <= 1:
            raise ValueError(f"tail_share {self.tail_share}: in (0, 1]")


class Evm:
    """EVM (Rudd et al., TPAMI 2018): Weibull distributions of distances to other classes, at extreme vectors.

    Rows of earlier fits are not compared with each other again.

    Args:
        setting: hyper-parameters.
        seed: seed for the random order of requests, the only draw.
        device: "cpu", "cuda"; distances are computed there.

    >>> from benchwright.training.predictors.paper import paper_settings
    >>> from benchwright.training.predictors.registry import new_predictor
    >>> evm = new_predictor(Evm, {**paper_settings()["evm"], "tail_size": 5}, seed=0)
    >>> draw = np.random.default_rng(0)
    >>> X, y = (10 * np.repeat(np.eye(2), 20, axis=0) + draw.normal(size=(40, 2))).astype(np.float32), np.repeat([0, 1], 20)
    >>> uid = np.array([f"clip{n}" for n in range(40)])
    >>> evm.fit([(uid, X, y)], (uid, X, y))
    >>> labels, shares = evm.predict(uid[:1], np.array([[-90.0, -90.0]], np.float32))  # far from both
    >>> int(labels[shares.argmax()])
    -1
    """

    def __init__(self, *, setting: EvmSetting, seed: int, device: str = "cpu") -> None:
        self._setting = setting
        self._seed = seed
        self._device = device
        self._vectors: Features = np.empty((0, 0), dtype=np.float32)
        self._weibulls: Floats = np.empty((0, 3))
        self._class_of: Labels = np.empty(0, dtype=np.int64)
        self._forget()

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Fit Weibull distributions of all labelled rows, and choose extreme vectors.

        Raises:
            ValueError: fewer than two classes, or a class with fewer than two negatives.
        """
        rows, y = labelled_rows(experience, learned=len(self._class_of) > 0)
        if not len(rows):
            return
        uid = np.concatenate([uids for uids, _, _ in experience])[rows]
        if len(np.unique(y)) < 2:
            raise ValueError(f"labels of {len(np.unique(y))} classes: a class is measured against the rows of others")
        old = len(self._uid)
        if not (np.array_equal(uid[:old], self._uid) and np.array_equal(y[:old], self._y)):
            self._forget()  # a limit on the experience has removed rows
            old = 0
        if old == len(rows):
            return
        before = self._tail_length() if old else 0
        self._uid, self._y = uid, y
        with one_thread():
            changed = self._update_tails(experience, rows, old)
            if before != self._tail_length():
                changed = np.arange(len(rows))
            self._fitted[changed] = self._fit_weibulls(changed)
            self._choose(experience, rows)

    def predict(self, uid: Uids, X: Features) -> tuple[Labels, Probabilities]:
        """Columns: "unknown", the known classes.

        Scores are 1 - max Psi for "unknown" and Psi for the classes, divided by their sum (our choice): a sample is unknown
        if no class reaches 1/2.
        """
        fit = self._setting.fit
        classes, starts = np.unique(self._class_of, return_index=True)
        scores = np.empty((len(X), 1 + len(classes)))
        nearest = np.minimum if fit == "as_written" else np.maximum
        with one_thread():
            vectors = torch.from_numpy(self._vectors).to(self._device)
            for start in range(0, len(X), _BLOCK):
                block = self._points(np.array(X[start : start + _BLOCK]))
                powers = log_powers(1 - (block @ vectors.T).double().cpu(), torch.from_numpy(self._weibulls), fit).numpy()
                # Psi is monotonic in the power: it is computed only for the best of a class's vectors.
                scores[start : start + len(block), 1:] = inclusion(nearest.reduceat(powers, starts, axis=1), fit)
        scores[:, 0] = 1 - scores[:, 1:].max(axis=1)
        scores /= scores.sum(axis=1, keepdims=True)
        return np.concatenate([[UNKNOWN], classes]).astype(np.int64), scores.astype(np.float32)

    def request(self, uid: Uids, X: Features) -> list[str]:
        """Return uids in random order, or by ascending largest probability."""
        return in_order_of(self._setting.request, uid, X, seed=self._seed, predict=self.predict)

    def state(self) -> dict[str, NDArray[Any]]:
        """Extreme vectors with their distributions and classes; the tail of every fitted row (4 bytes per distance)."""
        return {
            "vectors": self._vectors,
            "weibulls": self._weibulls,
            "class_of": self._class_of,
            "uid": self._uid,
            "y": self._y,
            "tails": self._tails,
            "fitted": self._fitted,
        }

    def restore(self, state: Mapping[str, NDArray[Any]], experience: Sequence[Seen]) -> None:
        """Resume from a result of ``state``."""
        self._vectors, self._weibulls, self._class_of = state["vectors"], state["weibulls"], state["class_of"]
        self._uid, self._y, self._tails, self._fitted = (state[name] for name in ("uid", "y", "tails", "fitted"))

    def _forget(self) -> None:
        """Reset what is stored per fitted row: uid, label, smallest distances to negatives (ascending, infinite where there are
        fewer) and Weibull distribution."""
        self._uid: Uids = np.empty(0, dtype=np.str_)
        self._y: Labels = np.empty(0, dtype=np.int64)
        self._tails: NDArray[np.float32] = np.empty((0, self._setting.tail_size), dtype=np.float32)
        self._fitted: Floats = np.empty((0, 3))

    def _tail_length(self) -> int:
        """Number of distances in a row's tail that are fitted."""
        strangers = len(self._y) - int(np.unique(self._y, return_counts=True)[1].max())
        return min(self._setting.tail_size, max(2, int(self._setting.tail_share * strangers)))

    def _points(self, X: Features) -> torch.Tensor:
        """Rows scaled to length 1: the cosine distance is 1 - product."""
        return torch.nn.functional.normalize(torch.from_numpy(X).to(self._device))

    def _update_tails(self, experience: Sequence[Seen], rows: Labels, old: int) -> Labels:
        """Compare the rows from ``old`` on with all rows; returns the rows whose tail has changed.

        The new rows' features are held in memory, those of all rows are read block by block.
        """
        n, size = len(rows), self._setting.tail_size
        tails = torch.full((n, size), torch.inf, device=self._device)
        tails[:old] = torch.from_numpy(self._tails)
        new = self._points(gather(experience, rows[old:]))
        y = torch.from_numpy(self._y).to(self._device)
        for start in range(0, n, _BLOCK):
            end = min(start + _BLOCK, n)
            block = self._points(gather(experience, rows[start:end]))
            for at in range(old, n, _BLOCK):
                to = min(at + _BLOCK, n)
                distances = 1 - new[at - old : to - old] @ block.T
                distances[y[at:to, None] == y[start:end]] = torch.inf
                tails[at:to] = _smallest(tails[at:to], distances)
                if start < old:  # old rows; a block with both kinds ends with new ones
                    known = min(end, old) - start
                    tails[start : start + known] = _smallest(tails[start : start + known], distances[:, :known].T)
        if bool((tails[:, 1] == torch.inf).any()):
            row = int((tails[:, 1] == torch.inf).nonzero()[0])
            strangers = int((y != y[row]).sum())
            raise ValueError(f"{strangers} rows of other classes: a distribution needs two distances at least")
        found = tails.cpu().numpy()
        changed = np.ones(n, dtype=bool)
        changed[:old] = (found[:old] != self._tails).any(axis=1)
        self._tails, self._fitted = found, np.concatenate([self._fitted, np.empty((n - old, 3))])
        return np.flatnonzero(changed)

    def _fit_weibulls(self, rows: Labels) -> Floats:
        fitted = np.empty((len(rows), 3))
        lengths = np.minimum(np.isfinite(self._tails[rows]).sum(axis=1), self._tail_length())
        for length in np.unique(lengths).tolist():
            mine = np.flatnonzero(lengths == length)
            for some in np.array_split(mine, -(-len(mine) // _BLOCK)):
                tails = self._tails[rows[some], :length].astype(np.float64) * self._setting.distance_multiplier
                fitted[some] = fit_weibulls(tails, self._setting.fit)
        return fitted

    def _choose(self, experience: Sequence[Seen], rows: Labels) -> None:
        """Choose the extreme vectors of every class."""
        radii = cover_radii(self._fitted, self._setting.cover_threshold, self._setting.fit)
        chosen: list[Labels] = []
        vectors: list[Features] = []
        for own in rows_by_class(np.arange(len(self._y)), self._y).values():
            points = self._points(gather(experience, rows[own]))
            distances = (1 - points @ points.T).clamp_(min=0).cpu().numpy()
            extreme = set_cover(distances <= radii[own, None])
            chosen.append(own[extreme])
            vectors.append(points[torch.from_numpy(extreme)].cpu().numpy())
        at = np.concatenate(chosen)
        self._vectors, self._weibulls, self._class_of = np.concatenate(vectors), self._fitted[at], self._y[at]


def _smallest(tails: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
    """The smallest values of each row of both, ascending, in the width of ``tails``."""
    size = tails.shape[1]
    if distances.shape[1] > size:
        distances = distances.topk(size, dim=1, largest=False).values
    return torch.cat([tails, distances], dim=1).topk(size, dim=1, largest=False, sorted=True).values


def fit_weibulls(tails: Floats, fit: FitVariant) -> Floats:
    """Maximum-likelihood Weibull distributions, one per row, by Newton's method on all rows at once.

    Args:
        tails: (n, t) distances >= 0, ascending.

    Returns:
        (n, 3): shape, scale, and the point of reversal (the tail's largest distance; 0 as written). The location is 0, as with
        ``scipy.stats.weibull_min.fit(row, floc=0)``, which takes 2 ms per row. A tail of equal distances has no finite shape:
        it gets 1e4 (our choice), a step. A row's distribution does not depend on the other rows.
    """
    turn = tails[:, -1:] if fit == "as_released" else np.zeros((len(tails), 1))
    values = turn - tails + 1 if fit == "as_released" else np.maximum(tails, _LEAST)
    logs = np.log(values)
    largest = logs.max(axis=1, keepdims=True)
    logs = logs - largest  # (x / max)^k cannot overflow
    mean = logs.mean(axis=1)
    spread = logs.std(axis=1)
    shape = np.clip(1.2 / np.maximum(spread, 1e-300), 1e-3, 1e4)  # the moment estimate on a log scale
    left = np.arange(len(tails))
    for _ in range(50):
        own, k = logs[left], shape[left]
        power = np.exp(k[:, None] * own)
        total = power.sum(axis=1)
        first = (power * own).sum(axis=1) / total
        second = (power * own * own).sum(axis=1) / total
        step = (first - mean[left] - 1 / k) / (second - first**2 + 1 / k**2)
        new = np.clip(np.where(step >= k, k / 2, k - step), 1e-3, 1e4)
        shape[left] = new
        left = left[np.abs(new - k) > 1e-10 * k]
        if not len(left):
            break
    scale = np.exp(largest[:, 0]) * np.exp(shape[:, None] * logs).mean(axis=1) ** (1 / shape)
    return np.stack([shape, scale, turn[:, 0]], axis=1)


def log_powers(distances: torch.Tensor, weibulls: torch.Tensor, fit: FitVariant) -> torch.Tensor:
    """log((x / scale)^shape), where x is the distance (slightly below 0 counts as 0) or, as released, the reversed
    distance."""
    shape, scale, turn = weibulls.unbind(-1)
    values = distances if fit == "as_written" else turn + 1 - distances
    return (values.clamp(min=0).log_() - scale.log()).mul_(shape)


def inclusion(powers: Floats, fit: FitVariant) -> Floats:
    """Psi, in [0, 1]: probability that a negative is farther away, from ``log_powers``."""
    with np.errstate(over="ignore"):  # an infinite power is a probability of 0 or 1
        return np.exp(-np.exp(powers)) if fit == "as_written" else -np.expm1(-np.exp(powers))


def cover_radii(weibulls: Floats, threshold: float, fit: FitVariant) -> Floats:
    """(n,) distances up to which Psi is at least ``threshold``, in (0, 1]; below 0 if it is nowhere."""
    shape, scale, turn = weibulls.T
    with np.errstate(divide="ignore", over="ignore"):
        if fit == "as_written":
            return scale * (-np.log(threshold)) ** (1 / shape)
        return turn + 1 - scale * (-np.log1p(-threshold)) ** (1 / shape)


def set_cover(covers: NDArray[np.bool_]) -> Labels:
    """Rows that cover all rows, chosen greedily: always the row that covers most of the rest; ties go to the first.

    Args:
        covers: (n, n), covers[i, j]: row i covers row j. A row always covers itself.

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
