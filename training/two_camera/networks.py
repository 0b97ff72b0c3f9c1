"""What tells the light from the transform between two cameras: the paper's networks, and linear regression.

Source: Abdelhamed, Punnappurath and Brown, "Leveraging the Availability of Two Cameras for Illuminant Estimation", CVPR 2021.
``two_camera.toml`` holds the paper's settings and ours. Both estimators are what
``eval.protocols.cross_validation`` asks for.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ...curation.package_data import package_toml
from ...curation.rng import rng
from ..models.illuminant_net import IlluminantNets, hidden_layers_of
from .batched import Fitted, Hyper, NetworkRun, Progress, estimates, fit_runs
from .newton import Newton, fit_newton

Features = NDArray[np.float32]
Lights = NDArray[np.float64]
Names = NDArray[np.str_]


class Fold(Protocol):
    """What is read of a fold; see ``eval.protocols.cross_validation.Fold``."""

    @property
    def name(self) -> str: ...
    @property
    def X_train(self) -> Features: ...
    @property
    def gt_train(self) -> Lights: ...
    @property
    def pair_train(self) -> Names: ...
    @property
    def light_train(self) -> Names: ...
    @property
    def X_validate(self) -> Features: ...
    @property
    def gt_validate(self) -> Lights: ...
    @property
    def X_test(self) -> Features: ...
    @property
    def gt_test(self) -> Lights | None: ...


def settings(preset: str) -> dict[str, Any]:
    """One table of ``training/two_camera/two_camera.toml``, as arguments of ``hyper_of``.

    Raises:
        ValueError: there is no such preset.

    >>> settings("as_written")["batch_size"]
    256
    """
    presets = package_toml(__package__, "two_camera.toml")
    if preset not in presets:
        raise ValueError(f"no preset {preset!r}: there are {', '.join(presets)}")
    return presets[preset]


def hyper_of(values: Mapping[str, Any]) -> Hyper | Newton:
    """Settings of Adam, or of ``newton`` where there is a weight decay.

    Raises:
        TypeError: a setting is missing, or there is no such.
        ValueError: a value that makes no sense.

    >>> hyper_of({**settings("as_written"), "epochs": 100}).epochs
    100
    """
    return Newton(**values) if "decay" in values else Hyper(**values)


def network(*, parameters: int, hyper: Mapping[str, Any], seeds: Sequence[int], measured_times: int = 1) -> NetworkEstimator:
    """The paper's networks of one size, by their settings; see ``NetworkEstimator`` and ``hyper_of``.

    Raises:
        TypeError: a hyper-parameter is missing, or there is no such.
        ValueError: a value that makes no sense.

    >>> from benchwright.eval.protocols.cross_validation import PairExamples, rotating_folds
    >>> pairs, draw = np.array([f"pair{n}" for n in range(12)]), np.random.default_rng(0)
    >>> X, lights = draw.random((12, 9)).astype(np.float32), draw.uniform(0.5, 1.0, (12, 3))
    >>> rows = PairExamples(pairs, pairs, pairs, X, lights / lights[:, 1:2], np.arange(12) % 3, np.ones(12, bool))
    >>> few = {**settings("as_written"), "epochs": 10, "batch_size": 4, "check_epochs": 5, "patience_epochs": 10}
    >>> found = network(parameters=200, hyper=few, seeds=[0, 1]).estimate_folds(rotating_folds(rows))
    >>> sorted(found), [lights.shape for lights in found[0]]  # by seed: the lights of each fold's test rows
    ([0, 1], [(4, 3), (4, 3), (4, 3)])
    """
    return NetworkEstimator(parameters, hyper_of(hyper), seeds, measured_times=measured_times)


class NetworkEstimator:
    """The networks of one size on all folds, a run a seed; all folds and seeds are trained side by side.

    Args:
        parameters: 200, 470 or 1460; 90 N + 20 in general.
        hyper: the training. With ``keep = "validation"`` and folds without validation rows, a share of the training pairs is
            held out, redrawn for each seed; rows that show a held-out pair, or its light, are not learned from.
        seeds: at least one, none twice.
        measured_times: how often a measured row is among the rows to learn from; above 1 where re-illuminated rows are many.
        progress: told how training goes.
    """

    def __init__(
        self,
        parameters: int,
        hyper: Hyper | Newton,
        seeds: Sequence[int],
        *,
        measured_times: int = 1,
        progress: Progress | None = None,
    ) -> None:
        if measured_times < 1:
            raise ValueError(f"measured_times {measured_times}: at least 1")
        if not seeds or len(set(seeds)) != len(seeds):
            raise ValueError(f"seeds {list(seeds)}: at least one, and none twice")
        self.parameters, self.hyper, self.seeds, self.progress = parameters, hyper, tuple(seeds), progress
        self.measured_times = measured_times
        self.hidden_layers = hidden_layers_of(parameters)
        self._trained: tuple[Fitted, list[str]] | None = None

    @property
    def looks_at_test(self) -> bool:
        """Whether it needs the truth of the test rows to choose its weights."""
        return self.hyper.keep == "test_fold"

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[int, list[Lights]]:
        """Train on each fold's training rows; seed -> (n, 3) lights of each fold's test rows, green 1."""
        X, ratios, starts = _stacked(folds)
        runs = [self._run(fold, start, seed) for seed in self.seeds for fold, start in zip(folds, starts, strict=True)]
        layers, hyper = self.hidden_layers, self.hyper
        if isinstance(hyper, Newton):
            fitted = fit_newton(X, ratios, runs, hidden_layers=layers, hyper=hyper, progress=self.progress)
        else:
            fitted = fit_runs(X, ratios, runs, hidden_layers=layers, hyper=hyper, progress=self.progress)
        self._trained = fitted, [f"{run.key}, seed {run.seed}" for run in runs]
        found = estimates(fitted.nets, [fold.X_test for _ in self.seeds for fold in folds])
        return {
            seed: [with_green(ratios) for ratios in found[at * len(folds) : (at + 1) * len(folds)]]
            for at, seed in enumerate(self.seeds)
        }

    def averaged(self, X: Sequence[Features]) -> list[Lights]:
        """After ``estimate_folds``: ratios (n, 2) of rows X[k] (n, 9) by the networks of fold k, the mean of their logarithms.

        Raises:
            ValueError: nothing has been trained, or on another number of folds.
        """
        if self._trained is None or len(self._trained[1]) != len(self.seeds) * len(X):
            raise ValueError(f"rows for {len(X)} folds: train on as many first")
        found = estimates(self._trained[0].nets, [rows for _ in self.seeds for rows in X])
        folds = [found[fold :: len(X)] for fold in range(len(X))]
        return [np.exp(np.mean([np.log(one.astype(np.float64)) for one in of], axis=0)) for of in folds]

    def artifacts(self) -> dict[str, bytes]:
        """``networks.npz``: the weights of all runs (``load_networks``). Empty before ``estimate_folds``."""
        return {} if self._trained is None else {"networks.npz": networks_npz(self._trained[0].nets, self._trained[1])}

    def _run(self, fold: Fold, start: int, seed: int) -> NetworkRun:
        train = np.arange(len(fold.X_train), dtype=np.int64)
        watch = train[:0]
        if self.hyper.keep == "test_fold":
            if fold.gt_test is None:
                raise ValueError(f'keep = "test_fold" needs the truth of the test rows of {fold.name}: reveal it, and say so')
            watch = len(train) + len(fold.X_validate) + np.arange(len(fold.X_test), dtype=np.int64)
        elif self.hyper.keep == "validation" and len(fold.X_validate):
            watch = len(train) + np.arange(len(fold.X_validate), dtype=np.int64)
        elif isinstance(self.hyper, Hyper) and self.hyper.keep == "validation":
            train, watch = _hold_out(fold, self.hyper.validation_share, seed)
        measured = train[fold.pair_train[train] == fold.light_train[train]]
        train = np.concatenate([train, np.tile(measured, self.measured_times - 1)])
        return NetworkRun(start + train, start + watch, seed, fold.name)


def _hold_out(fold: Fold, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to learn from, and the measured rows of the pairs that are held out."""
    pairs = np.unique(fold.pair_train)
    count = round(share * len(pairs))
    if not 0 < count < len(pairs):
        raise ValueError(
            f"{fold.name}: a share {share} of {len(pairs)} pairs is {count}: validation needs a pair, training too"
        )
    out = rng(seed, "two_camera validation", fold.name).permutation(pairs)[:count]
    pair_out, light_out = np.isin(fold.pair_train, out), np.isin(fold.light_train, out)
    measured = fold.pair_train == fold.light_train
    return np.flatnonzero(~pair_out & ~light_out), np.flatnonzero(pair_out & measured)


def _stacked(folds: Sequence[Fold]) -> tuple[Features, Lights, list[int]]:
    """Features and ratios of all folds, one after another: training, validation, test rows; and where each fold starts."""
    blocks: list[Features] = []
    ratios: list[Lights] = []
    starts: list[int] = []
    for fold in folds:
        starts.append(sum(map(len, blocks)))
        blocks += [fold.X_train, fold.X_validate]
        ratios += [ratios_of(fold.gt_train), ratios_of(fold.gt_validate)]
        if fold.gt_test is not None:
            blocks.append(fold.X_test)
            ratios.append(ratios_of(fold.gt_test))
    return np.concatenate(blocks), np.concatenate(ratios), starts


def ratios_of(lights: Lights) -> Lights:
    """(n, 3) RGB, green above 0 -> (n, 2) R/G and B/G."""
    return lights[:, [0, 2]] / lights[:, 1:2]


def with_green(ratios: NDArray[np.floating[Any]]) -> Lights:
    """(n, 2) R/G and B/G -> (n, 3) RGB, green 1."""
    values = ratios.astype(np.float64)
    return np.stack([values[:, 0], np.ones(len(values)), values[:, 1]], axis=1)


# ------------------------------------------------------------------------------------------------------ linear regression


class LinearEstimator:
    """Least squares from the nine numbers and a constant to [R/G, B/G]: the "linear regression" of the paper's Table 3.

    >>> from benchwright.eval.protocols.cross_validation import PairExamples, rotating_folds
    >>> pairs, draw = np.array([f"pair{n}" for n in range(24)]), np.random.default_rng(0)
    >>> X = draw.random((24, 9)).astype(np.float32)
    >>> lights = np.stack([X[:, 0] + 0.5, np.ones(24), X[:, 8] + 0.5], axis=1)  # linear in two of the nine numbers
    >>> rows = PairExamples(pairs, pairs, pairs, X, lights, np.arange(24) % 2, np.ones(24, bool))
    >>> folds = rotating_folds(rows, reveal_test=True)
    >>> [first, _] = LinearEstimator().estimate_folds(folds)[0]
    >>> bool(np.allclose(first, folds[0].gt_test, atol=1e-4))
    True
    """

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[int, list[Lights]]:
        """0 -> (n, 3) lights of each fold's test rows, green 1; ratios are kept above 0.001."""
        found: list[Lights] = []
        for fold in folds:
            weights, *_ = np.linalg.lstsq(_with_one(fold.X_train), ratios_of(fold.gt_train), rcond=None)
            found.append(with_green(np.maximum(_with_one(fold.X_test) @ weights, 1e-3)))
        return {0: found}


def _with_one(X: Features) -> Lights:
    return np.concatenate([X.astype(np.float64), np.ones((len(X), 1))], axis=1)


# ---------------------------------------------------------------------------------------------------------------- weights


def networks_npz(nets: IlluminantNets, names: Sequence[str]) -> bytes:
    """The networks as an .npz without pickles: ``names`` (R,), ``weight_0`` (R, 9, 9), ``bias_0`` (R, 9), ..., float32."""
    arrays: dict[str, NDArray[Any]] = {"names": np.asarray(names, dtype=np.str_)}
    for layer, (weight, bias) in enumerate(nets.layers()):
        arrays[f"weight_{layer}"] = weight.detach().numpy()
        arrays[f"bias_{layer}"] = bias.detach().numpy()[:, 0]
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def load_networks(data: bytes) -> tuple[IlluminantNets, list[str]]:
    """What ``networks_npz`` wrote, and the names of the runs.

    Raises:
        ValueError: it is no such file.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            names = arrays["names"].tolist()
            nets = IlluminantNets((len(arrays.files) - 1) // 2 - 1, len(names))
            with torch.no_grad():
                for layer, (weight, bias) in enumerate(nets.layers()):
                    weight.copy_(torch.from_numpy(arrays[f"weight_{layer}"]))
                    bias.copy_(torch.from_numpy(arrays[f"bias_{layer}"])[:, None])
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"these bytes are not networks.npz: {error}") from error
    return nets, [str(name) for name in names]
