"""CLEAR's two protocols over time buckets, iid and streaming (Lin et al., NeurIPS 2021, evaluation protocols).

A protocol runs a fresh learner a seed, keeps a folder a seed, and writes ``matrix.csv`` (mean over seeds) and
``results.json`` when all seeds are there. Nothing timed or dated is written: the same run gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...curation.files import write_whole
from ..metrics.clear import IID_METRICS, STREAMING_METRICS
from .domains import Domain
from .learner import Learner
from .run import Progress, SeedRun, Tested, matrix_csv, run_domains, to_json

Metrics = Mapping[str, Callable[[ArrayLike], float]]


@dataclasses.dataclass(frozen=True)
class ProtocolSpec:
    """What sets one protocol apart from another.

    Attributes:
        name: written into results.
        tests: whether R[i, j] is tested (0-based).
        metrics: short name -> function of R.
    """

    name: str
    tests: Tested
    metrics: Metrics


def _everywhere(i: int, j: int) -> bool:
    return True


def _future(i: int, j: int) -> bool:
    return j > i


IID = ProtocolSpec("iid", _everywhere, IID_METRICS)
"""Train on bucket i's train split, test on the test split of every bucket. Use ``domains.iid_domains``."""

STREAMING = ProtocolSpec("streaming", _future, STREAMING_METRICS)
"""Train on all of bucket i, test on all of bucket j > i: today's model meets tomorrow. ``domains.streaming_domains``."""


@dataclasses.dataclass(frozen=True)
class Results:
    """A protocol's outcome over S seeds and N domains.

    Attributes:
        protocol: "iid" or "streaming".
        runs: one record a seed, in the order asked for.
        per_seed: metric -> (S,) float64 in [0, 1]; NaN where undefined.
    """

    protocol: str
    runs: tuple[SeedRun, ...]
    per_seed: Mapping[str, NDArray[np.float64]]

    @property
    def names(self) -> tuple[str, ...]:
        """Domain names."""
        return self.runs[0].names

    @property
    def matrices(self) -> NDArray[np.float64]:
        """(S, N, N) accuracy matrices, NaN where not tested."""
        return np.stack([run.matrix for run in self.runs])

    @property
    def mean(self) -> dict[str, float]:
        """Metric -> mean over seeds."""
        return {name: float(values.mean()) for name, values in self.per_seed.items()}

    @property
    def std(self) -> dict[str, float]:
        """Metric -> standard deviation over seeds, ddof 1 (our choice: the paper names none); NaN for one seed."""
        return {name: float(values.std(ddof=1)) if len(values) > 1 else float("nan") for name, values in self.per_seed.items()}


def run_protocol(
    protocol: ProtocolSpec,
    make_learner: Callable[[int], Learner],
    domains_of: Callable[[int], Sequence[Domain]],
    *,
    seeds: Sequence[int],
    identity: Mapping[str, Any],
    out: Path,
    progress: Progress | None = None,
) -> Results:
    """Run all seeds one after another, or go on where ``out`` stops, and write the results.

    Seeds are independent: to run them side by side, call ``run_seed`` in processes of their own, then this function,
    which then only reads.

    Args:
        make_learner: seed -> a fresh learner.
        domains_of: seed -> its domains (iid splits differ by seed; streaming domains do not).
        identity: see ``run.run_domains``.
        out: folder; a seed's part lies in ``out/seed<k>``.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"seeds {list(seeds)}: at least one, and none twice")
    runs = [
        run_seed(protocol, make_learner, domains_of, seed=seed, identity=identity, out=out, progress=progress) for seed in seeds
    ]
    per_seed = {name: np.array([f(run.matrix) for run in runs]) for name, f in protocol.metrics.items()}
    results = Results(protocol.name, tuple(runs), per_seed)
    write_whole(out / "matrix.csv", matrix_csv(results.names, results.matrices.mean(axis=0)))
    write_whole(out / "results.json", to_json(results_json(results, identity)))
    return results


def run_seed(
    protocol: ProtocolSpec,
    make_learner: Callable[[int], Learner],
    domains_of: Callable[[int], Sequence[Domain]],
    *,
    seed: int,
    identity: Mapping[str, Any],
    out: Path,
    progress: Progress | None = None,
) -> SeedRun:
    """One seed's part of ``run_protocol``: its own folder, nothing shared."""
    return run_domains(
        make_learner(seed),
        domains_of(seed),
        seed=seed,
        tests=protocol.tests,
        identity={**identity, "protocol": protocol.name},
        out=out / f"seed{seed}",
        progress=progress,
    )


def results_json(results: Results, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The results as JSON values: accuracies as fractions, ``null`` where undefined.

    Keys: ``protocol``, ``identity``, ``per_seed`` (a row a seed: the metrics), ``mean``, ``std``, ``std_ddof``,
    ``domains`` (a row a domain: name, rows learned and tested by seed), ``correct`` (a matrix of counts a seed).
    """
    rows: list[dict[str, Any]] = [
        {"seed": run.seed, **{name: _number(values[s]) for name, values in results.per_seed.items()}}
        for s, run in enumerate(results.runs)
    ]
    domains = [
        {
            "name": name,
            "learned": [run.learned[j] for run in results.runs],
            "tested": [run.tested[j] for run in results.runs],
        }
        for j, name in enumerate(results.names)
    ]
    return {
        "correct": [run.correct.tolist() for run in results.runs],
        "domains": domains,
        "format": 1,
        "identity": dict(identity),
        "mean": {name: _number(value) for name, value in results.mean.items()},
        "per_seed": rows,
        "protocol": results.protocol,
        "std": {name: _number(value) for name, value in results.std.items()},
        "std_ddof": 1,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
