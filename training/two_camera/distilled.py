"""One small network that learns what the average of many says, on transforms under lights that were not measured.

The average of ten networks errs less than each, but has ten times the parameters. Re-illuminated rows are many and need no
label of their own here: the average labels them. Source of the idea: Hinton, Vinyals and Dean, "Distilling the Knowledge in a
Neural Network", 2015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...curation.rng import rng
from ..models.illuminant_net import hidden_layers_of
from .batched import NetworkRun, Progress, estimates
from .networks import Features, Fold, Lights, NetworkEstimator, hyper_of, network, networks_npz, with_green
from .newton import Newton, fit_newton


def distilled(
    *,
    teacher: Mapping[str, Any],
    parameters: int,
    hyper: Mapping[str, Any],
    seeds: Sequence[int],
    rows: int,
    measured_times: int,
) -> DistilledEstimator:
    """Networks that learn what the average of others says, by their settings.

    See ``DistilledEstimator`` and, for ``teacher``, ``networks.network``.

    Raises:
        TypeError: a hyper-parameter is missing, or there is no such.
        ValueError: a value that makes no sense.

    >>> from benchwright.training.two_camera.networks import settings
    >>> teacher = {"parameters": 1460, "hyper": settings("decayed"), "seeds": [0, 1, 2], "measured_times": 1}
    >>> student = distilled(
    ...     teacher=teacher, parameters=200, hyper=settings("pupil"), seeds=[0], rows=5000, measured_times=1
    ... )
    >>> type(student).__name__  # for eval.protocols.cross_validation.estimate_folds
    'DistilledEstimator'
    >>> distilled(teacher=teacher, parameters=200, hyper=settings("as_written"), seeds=[0], rows=5000, measured_times=1)
    Traceback (most recent call last):
        ...
    ValueError: a network that is taught by others needs a preset with a decay
    """
    chosen = hyper_of(hyper)
    if not isinstance(chosen, Newton):
        raise ValueError("a network that is taught by others needs a preset with a decay")
    return DistilledEstimator(network(**teacher), parameters, chosen, seeds, rows=rows, measured_times=measured_times)


class DistilledEstimator:
    """A network a seed and fold, each taught by the average of the teacher's networks of that fold.

    Args:
        teacher: is trained first, on the same folds; a test row or light that it does not see, its pupils do not see.
        parameters: of a pupil, as ``NetworkEstimator.parameters``.
        hyper: the pupils' training.
        seeds: of the pupils.
        rows: re-illuminated rows that a pupil learns from, drawn for each; all where there are fewer.
        measured_times: how often each measured row counts beside them.
    """

    def __init__(
        self,
        teacher: NetworkEstimator,
        parameters: int,
        hyper: Newton,
        seeds: Sequence[int],
        *,
        rows: int,
        measured_times: int,
    ) -> None:
        if rows < 0 or measured_times < 1 or not seeds or len(set(seeds)) != len(seeds):
            raise ValueError(
                f"rows {rows}, measured_times {measured_times}, seeds {list(seeds)}: at least 0, 1, and one, none twice"
            )
        self.teacher, self.hyper, self.seeds = teacher, hyper, tuple(seeds)
        self.rows, self.measured_times = rows, measured_times
        self.parameters, self.hidden_layers = parameters, hidden_layers_of(parameters)
        self._weights: dict[str, bytes] = {}

    @property
    def progress(self) -> Progress | None:
        """The teacher's: told how training goes."""
        return self.teacher.progress

    @progress.setter
    def progress(self, tell: Progress | None) -> None:
        self.teacher.progress = tell

    @property
    def looks_at_test(self) -> bool:
        """Whether the teacher does."""
        return self.teacher.looks_at_test

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[int, list[Lights]]:
        """Train teacher and pupils; seed of a pupil -> (n, 3) lights of each fold's test rows, green 1."""
        self.teacher.estimate_folds(folds)
        X = np.concatenate([fold.X_train for fold in folds])
        ratios = np.concatenate(self.teacher.averaged([fold.X_train for fold in folds]))
        starts = np.cumsum([0, *(len(fold.X_train) for fold in folds)])
        runs = [self._run(fold, int(starts[k]), seed) for seed in self.seeds for k, fold in enumerate(folds)]
        fitted = fit_newton(X, ratios, runs, hidden_layers=self.hidden_layers, hyper=self.hyper, progress=self.progress)
        self._weights = {"networks.npz": networks_npz(fitted.nets, [f"{run.key}, seed {run.seed}" for run in runs])}
        tests: list[Features] = [fold.X_test for _ in self.seeds for fold in folds]
        found = [with_green(ratios) for ratios in estimates(fitted.nets, tests)]
        return {seed: found[at * len(folds) : (at + 1) * len(folds)] for at, seed in enumerate(self.seeds)}

    def artifacts(self) -> dict[str, bytes]:
        """``networks.npz`` of the pupils; empty before ``estimate_folds``."""
        return dict(self._weights)

    def _run(self, fold: Fold, start: int, seed: int) -> NetworkRun:
        measured = fold.pair_train == fold.light_train
        others = rng(seed, "two_camera pupils", fold.name).permutation(np.flatnonzero(~measured))[: self.rows]
        mine = np.concatenate([np.tile(np.flatnonzero(measured), self.measured_times), others])
        return NetworkRun(start + mine, mine[:0], seed, fold.name)
