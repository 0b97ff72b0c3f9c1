"""GMM-FINCH: one Gaussian mixture per class, with components found by FINCH; rejected samples form clusters of unknowns.

Source: Prijatelj et al., "Human Activity Recognition in an Open World", JAIR 81 (2024), section 5.1. Where the paper
leaves a detail open this follows the released code (``as_released``): uniform weights, one threshold for all classes, and
unlabelled rows of every split, including validation and test, change the clusters of unknowns when they are predicted. As the
text has it, unlabelled training rows are classified again after a fit, and those that are then rejected join the unknowns;
validation and test rows are only classified when they are predicted (they are not kept). Our choices are marked below.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...curation.encoders.one_thread import one_thread
from ...curation.registry import check_values
from ..core.exemplars import rows_by_class
from .finch import Distance, finch
from .gaussians import FIELDS, Mixture, Shrinkage, component_log_densities, fit_mixture, joined, mixture_log_densities
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
    set_unknown,
)

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclasses.dataclass(frozen=True)
class GmmFinchSetting:
    """Hyper-parameters; ``kowl.toml`` holds the paper's.

    Attributes:
        min_error_tol: share in [0, 1] of the validation rows below the threshold that stay below it.
        epsilon: added to the covariances' diagonal, 1e-12 with float64 and 1e-4 with float32.
        shrinkage: shrinkage of the covariances, "none" or "oas", see ``gaussians.fit_mixture``. "oas" is needed if clusters
            have fewer rows than features: with "none" a new row of a known class lies outside its subspace, and is rejected.
        dtype: dtype of all densities.
        distance: distance for FINCH.
        request: "uncertain_first" or "random".
        recognise: cluster rejected rows; without it there is one "unknown" and nothing is learned from unlabelled rows.
    """

    min_error_tol: float
    epsilon: float
    shrinkage: Shrinkage
    dtype: Literal["float32", "float64"]
    distance: Distance
    request: Request
    recognise: bool

    def __post_init__(self) -> None:
        check_values(GmmFinchSetting, vars(self))
        if not 0 <= self.min_error_tol <= 1 or not self.epsilon > 0:
            raise ValueError(f"min_error_tol {self.min_error_tol}, epsilon {self.epsilon}: in [0, 1], and positive")


class GmmFinch:
    """GMM-FINCH: Gaussian mixtures of each class's FINCH clusters; a sample is unknown if all are unlikely.

    A class is fitted again only when its labelled rows have changed, which gives the same mixtures.

    Args:
        setting: hyper-parameters.
        seed: seed for the random order of requests, the only draw.
        device: "cpu", "cuda"; sums differ between devices in their last bits.

    >>> from benchwright.training.predictors.paper import paper_settings
    >>> from benchwright.training.predictors.registry import new_predictor
    >>> predictor = new_predictor(GmmFinch, paper_settings()["gmm_finch"], seed=0)
    >>> draw = np.random.default_rng(0)
    >>> X, y = (10 * np.repeat(np.eye(2), 20, axis=0) + draw.normal(size=(40, 2))).astype(np.float32), np.repeat([0, 1], 20)
    >>> uid = np.array([f"clip{n}" for n in range(40)])
    >>> predictor.fit([(uid, X, y)], (uid, X, y))
    >>> labels, shares = predictor.predict(np.array(["new"]), np.array([[-90.0, -90.0]], np.float32))  # far from both
    >>> int(labels[shares.argmax()])
    -1
    """

    def __init__(self, *, setting: GmmFinchSetting, seed: int, device: str = "cpu") -> None:
        self._setting = setting
        self._seed = seed
        self._device = device
        self._mixtures: dict[int, Mixture] = {}
        self._fitted_on: dict[int, str] = {}
        self.threshold = -np.inf  # log-density below which a sample is of no known class
        self._clusters: Mixture | None = None
        self._cluster_numbers: Labels = np.empty(0, dtype=np.int64)
        self._next_cluster = 0
        self._pool: dict[str, NDArray[np.float32]] = {}

    def fit(self, experience: Sequence[Seen], validation: Seen) -> None:
        """Fit the mixtures of all classes with labels, the threshold, and the clusters of rows that are still rejected."""
        every, y = labelled_rows(experience, learned=bool(self._mixtures))
        lowest: list[tuple[NDArray[np.float64], Labels]] = []
        with one_thread():
            before = self.threshold, dict(self._fitted_on)
            for label, own in rows_by_class(np.arange(len(y)), y).items():
                rows = every[own]
                X = gather(experience, rows)
                digest = hashlib.sha256(X.data).hexdigest()
                if self._fitted_on.get(label) != digest:
                    clusters = finch(X, distance=self._setting.distance, device=self._device)[-1]
                    self._mixtures[label] = self._fit(X, clusters)
                    self._fitted_on[label] = digest
                lowest.append((mixture_log_densities(X, [self._mixtures[label]])[:, 0], rows))
            self._mixtures = dict(sorted(self._mixtures.items()))
            if lowest:  # a limit on the experience may leave no labelled row: the threshold stays
                self.threshold = self._find_threshold(experience, lowest, validation)
            self._pool = self._unknown(experience, again=before != (self.threshold, self._fitted_on))
            self._cluster_pool()

    def predict(self, uid: Uids, X: Features) -> tuple[Labels, Probabilities]:
        """Columns: "unknown", the known classes, the clusters of unknowns.

        Accepted rows have the softmax of the classes' log-densities. Rejected rows have it scaled down in favour of their most
        probable cluster ("unknown" itself if there is none), which gets the largest probability: see
        ``predictor.set_unknown``. With ``recognise``, rejected rows are added to past ones and all are clustered again;
        cluster numbers are never reused, since a new clustering may not continue an old one.
        """
        with one_thread():
            densities = mixture_log_densities(X, list(self._mixtures.values()))
            rejected = densities.max(axis=1) < self.threshold
            if self._setting.recognise:
                self._learn_unlabelled(uid, X, rejected)
            known = _softmax(densities)
            probabilities = np.zeros((len(X), 1 + known.shape[1] + len(self._cluster_numbers)), dtype=np.float32)
            probabilities[:, 1 : 1 + known.shape[1]] = known
            column: NDArray[np.intp] = np.zeros(len(X), dtype=np.intp)
            if self._clusters is not None and rejected.any():
                nearest = component_log_densities(X[rejected], self._clusters).argmax(1)
                column[rejected] = 1 + known.shape[1] + nearest.cpu().numpy()
            set_unknown(probabilities, rejected, column)
        columns = np.concatenate([[UNKNOWN], list(self._mixtures), -2 - self._cluster_numbers]).astype(np.int64)
        return columns, probabilities

    def request(self, uid: Uids, X: Features) -> list[str]:
        """Return uids by ascending largest probability, or in random order."""
        return in_order_of(self._setting.request, uid, X, seed=self._seed, predict=self.predict)

    def state(self) -> dict[str, NDArray[Any]]:
        """Mixtures, threshold, pool and clusters. It grows with components x d x d: 4.7 MB per component of 768 float64."""
        everything = joined(list(self._mixtures.values()))
        state: dict[str, NDArray[Any]] = {
            "classes": np.array(list(self._mixtures), dtype=np.int64),
            "components": np.array([len(mixture) for mixture in self._mixtures.values()], dtype=np.int64),
            "fitted_on": np.array([self._fitted_on[label] for label in self._mixtures]),
            "threshold": np.array(self.threshold),
            "next_cluster": np.array(self._next_cluster),
            "cluster_numbers": self._cluster_numbers,
            "pool_uid": np.array(list(self._pool), dtype=np.str_),
            "pool_X": np.array(list(self._pool.values()), dtype=np.float32),
            **_arrays("known", everything),
        }
        return state if self._clusters is None else {**state, **_arrays("unknown", self._clusters)}

    def restore(self, state: Mapping[str, NDArray[Any]], experience: Sequence[Seen]) -> None:
        """Resume from a result of ``state``."""
        classes, sizes = state["classes"].tolist(), state["components"].tolist()
        parts = zip(*(torch.from_numpy(state[f"known_{name}"]).to(self._device).split(sizes) for name in FIELDS), strict=True)
        self._mixtures = {label: Mixture(*part) for label, part in zip(classes, parts, strict=True)}
        self._fitted_on = dict(zip(classes, state["fitted_on"].tolist(), strict=True))
        self.threshold = float(state["threshold"])
        self._next_cluster = int(state["next_cluster"])
        self._cluster_numbers = state["cluster_numbers"]
        self._pool = dict(zip(state["pool_uid"].tolist(), state["pool_X"], strict=True))
        self._clusters = None
        if "unknown_mean" in state:
            self._clusters = Mixture(*(torch.from_numpy(state[f"unknown_{name}"]).to(self._device) for name in FIELDS))

    def _fit(self, X: Features, clusters: Labels) -> Mixture:
        setting = self._setting
        return fit_mixture(
            X,
            clusters,
            epsilon=setting.epsilon,
            shrinkage=setting.shrinkage,
            dtype=_DTYPES[setting.dtype],
            device=self._device,
        )

    def _find_threshold(
        self, experience: Sequence[Seen], own: Sequence[tuple[NDArray[np.float64], Labels]], validation: Seen
    ) -> float:
        """The lowest best log-density of a training row, lowered for increment 0's validation rows of known classes.

        A row's best density is at least that under its own class, so rows are visited by ascending own density, and the search
        stops when the next own density exceeds the lowest best one: the same minimum without n x classes densities.
        """
        mixtures = list(self._mixtures.values())
        densities, rows = (np.concatenate(column) for column in zip(*own, strict=True))
        order = np.argsort(densities, kind="stable")
        threshold, step = np.inf, 64
        at = 0
        while at < len(order) and densities[order[at]] < threshold:
            some = order[at : at + step]
            best = mixture_log_densities(gather(experience, rows[some]), mixtures).max(axis=1)
            threshold = min(threshold, float(best.min()))
            at, step = at + step, 2 * step
        _, X, y = validation
        low = [np.empty(0, dtype=np.int64)]
        for label, own_rows in rows_by_class(np.arange(len(y)), y).items():
            if label in self._mixtures:
                density = mixture_log_densities(X[own_rows], [self._mixtures[label]])[:, 0]
                low.append(own_rows[density < threshold])
        suspects = np.sort(np.concatenate(low))
        best = mixture_log_densities(X[suspects], mixtures).max(axis=1)
        below = best[best < threshold]
        if len(below):
            threshold = float(np.quantile(below, self._setting.min_error_tol))
        return threshold

    def _unknown(self, experience: Sequence[Seen], *, again: bool) -> dict[str, NDArray[np.float32]]:
        """Rows of the pool, and unlabelled rows of the experience, that have no label and are rejected.

        ``again``: whether the mixtures or the threshold have changed, so that unlabelled rows are classified again.
        """
        labelled = {uid for uids, _, y in experience for uid in uids[y >= 0].tolist()}
        left = {uid: x for uid, x in self._pool.items() if uid not in labelled}
        found: dict[str, NDArray[np.float32]] = {}
        if left:
            found |= self._rejected(list(left), np.stack(list(left.values())))
        if again and self._setting.recognise:
            for uid, X, y in experience:
                rows = [row for row in np.flatnonzero(y < 0).tolist() if str(uid[row]) not in left]
                found |= self._rejected([str(uid[row]) for row in rows], X[rows])
        return found

    def _rejected(self, uid: Sequence[str], X: Features) -> dict[str, NDArray[np.float32]]:
        rejected = mixture_log_densities(X, list(self._mixtures.values())).max(axis=1) < self.threshold
        return {uid[row]: np.array(X[row]) for row in np.flatnonzero(rejected).tolist()}

    def _learn_unlabelled(self, uid: Uids, X: Features, rejected: NDArray[np.bool_]) -> None:
        new = [row for row in np.flatnonzero(rejected).tolist() if str(uid[row]) not in self._pool]
        self._pool.update((str(uid[row]), np.array(X[row])) for row in new)
        if new:
            self._cluster_pool()

    def _cluster_pool(self) -> None:
        """Cluster the pool; fewer than two rows make no cluster."""
        self._clusters, self._cluster_numbers = None, np.empty(0, dtype=np.int64)
        if len(self._pool) < 2:
            return
        X = np.stack(list(self._pool.values()))
        self._clusters = self._fit(X, finch(X, distance=self._setting.distance, device=self._device)[-1])
        self._cluster_numbers = self._next_cluster + np.arange(len(self._clusters), dtype=np.int64)
        self._next_cluster += len(self._clusters)


def _arrays(prefix: str, mixture: Mixture) -> dict[str, NDArray[Any]]:
    return {f"{prefix}_{name}": getattr(mixture, name).cpu().numpy() for name in FIELDS}


def _softmax(densities: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(densities - densities.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
