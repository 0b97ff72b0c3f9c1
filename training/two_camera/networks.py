"""Networks that estimate the illuminant from the transform between two cameras: the paper's, and small distilled ones.

Source: Abdelhamed, Punnappurath and Brown, "Leveraging the Availability of Two Cameras for Illuminant Estimation", CVPR 2021.
``two_camera.toml`` holds the paper's settings and ours.

The average of ten networks has a lower error than each of them, but ten times the parameters. There are many re-illuminated
rows, and they need no labels: the average labels them for a single network. Source of the idea: Hinton, Vinyals and Dean,
"Distilling the Knowledge in a Neural Network", 2015.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...curation.checkpoint import Checkpoint
from ...curation.npy import npz_bytes
from ...curation.rng import rng
from ...datasets.two_camera.folds import Fold, Lights
from ..models.illuminant_net import IlluminantNets
from .batched import NetworkRun, Tell, TrainedNetworks, estimated_ratios, fit_runs
from .linear import ratios_of, with_green
from .newton import fit_newton
from .settings import Hyper, Newton, hyper_of
from .shapes import NetworkShape, chosen_shape

TransformFeatures = NDArray[np.float32]


def network(
    *,
    hyper: Mapping[str, Any],
    seeds: Sequence[int],
    measured_times: int = 1,
    **shape: Any,
) -> NetworkEstimator:
    """Networks of one shape, by their settings; see ``NetworkEstimator``, ``hyper_of`` and, for ``shape``, ``chosen_shape``.

    Raises:
        TypeError: a hyper-parameter is missing or unknown.
        ValueError: a value is invalid.

    >>> from benchwright.eval.protocols.cross_validation import PairExamples, rotating_folds
    >>> pairs, draw = np.array([f"pair{n}" for n in range(12)]), np.random.default_rng(0)
    >>> X, lights = draw.random((12, 9)).astype(np.float32), draw.uniform(0.5, 1.0, (12, 3))
    >>> rows = PairExamples(pairs, pairs, pairs, X, lights / lights[:, 1:2], np.arange(12) % 3, np.ones(12, bool))
    >>> from benchwright.training.two_camera.settings import settings
    >>> few = {**settings("as_written"), "epochs": 10, "batch_size": 4, "check_epochs": 5, "patience_epochs": 10}
    >>> found = network(parameters=200, hyper=few, seeds=[0, 1]).estimate_folds(rotating_folds(rows))
    >>> sorted(found), [lights.shape for lights in found[0]]  # by seed: the lights of each fold's test rows
    ([0, 1], [(4, 3), (4, 3), (4, 3)])
    """
    return NetworkEstimator(chosen_shape(**shape), hyper_of(hyper), seeds, measured_times=measured_times)


def distilled(
    *,
    teacher: Mapping[str, Any],
    hyper: Mapping[str, Any],
    seeds: Sequence[int],
    rows: int,
    measured_times: int,
    **shape: Any,
) -> NetworkEstimator:
    """Networks distilled from the average of others, by their settings.

    See ``NetworkEstimator``, ``chosen_shape`` and, for ``teacher``, ``network``.

    Raises:
        TypeError: a hyper-parameter is missing or unknown.
        ValueError: a value is invalid.

    >>> from benchwright.training.two_camera.settings import settings
    >>> teacher = {"parameters": 1460, "hyper": settings("decayed"), "seeds": [0, 1, 2], "measured_times": 1}
    >>> student = distilled(
    ...     teacher=teacher, parameters=200, hyper=settings("pupil"), seeds=[0], rows=5000, measured_times=1
    ... )
    >>> type(student).__name__  # for eval.protocols.cross_validation.estimate_folds
    'NetworkEstimator'
    >>> distilled(teacher=teacher, parameters=200, hyper=settings("as_written"), seeds=[0], rows=5000, measured_times=1)
    Traceback (most recent call last):
        ...
    ValueError: a distilled network needs a preset with a decay
    """
    chosen = hyper_of(hyper)
    if not isinstance(chosen, Newton):
        raise ValueError("a distilled network needs a preset with a decay")
    given = chosen_shape(**shape)
    return NetworkEstimator(given, chosen, seeds, measured_times=measured_times, teacher=network(**teacher), rows=rows)


class NetworkEstimator:
    """Networks of one shape on all folds, one run per seed; all folds and seeds are trained in parallel.

    Args:
        shape: shape of each network.
        hyper: settings of the training. With ``keep = "validation"`` and folds without validation rows, a share of the training
            pairs is held out, redrawn for each seed; rows that show a held-out pair, or its light, are not trained on.
        seeds: at least one, all different.
        measured_times: how often each measured row is used in training; above 1 if there are many re-illuminated rows.
        teacher: trained first, on the same folds; the average of its networks of a fold replaces the measured lights as the
            target. Its students do not see test rows or lights that it does not see. None: no teacher.
        rows: with a teacher: number of re-illuminated rows to train on, drawn for each seed; all if there are fewer.

    Attributes:
        progress: called with lines about the progress of the training; None: no reports.
        folder: folder for checkpoints; None: no checkpoints, and an interrupted training starts over.
    """

    def __init__(
        self,
        shape: NetworkShape,
        hyper: Hyper | Newton,
        seeds: Sequence[int],
        *,
        measured_times: int = 1,
        teacher: NetworkEstimator | None = None,
        rows: int = 0,
    ) -> None:
        if measured_times < 1 or rows < 0:
            raise ValueError(f"measured_times {measured_times}, rows {rows}: at least 1 and 0")
        if not seeds or len(set(seeds)) != len(seeds):
            raise ValueError(f"seeds {list(seeds)}: at least one, and none twice")
        self.hyper, self.seeds, self.measured_times = hyper, tuple(seeds), measured_times
        self.shape = shape
        self.teacher, self.rows = teacher, rows
        self.progress: Tell | None = None
        self.folder: Path | None = None
        self._trained: tuple[TrainedNetworks, list[str]] | None = None

    @property
    def looks_at_test(self) -> bool:
        """Whether it, or its teacher, chooses its weights by the ground truth of the test rows."""
        return (self.teacher or self).hyper.keep == "test_fold"

    def estimate_folds(self, folds: Sequence[Fold]) -> dict[int, list[Lights]]:
        """Train on each fold's training rows; seed -> (n, 3) lights of each fold's test rows, green 1."""
        learned = [ratios_of(fold.gt_train) for fold in folds]
        if self.teacher is not None:
            self.teacher.progress = self.progress
            self.teacher.folder = None if self.folder is None else self.folder / "teacher"
            self.teacher.estimate_folds(folds)
            learned = self.teacher.averaged([fold.X_train for fold in folds])
        X, ratios, starts = _stacked(folds, learned)
        runs = [self._run(fold, start, seed) for seed in self.seeds for fold, start in zip(folds, starts, strict=True)]
        checkpoint = None if self.folder is None else Checkpoint(self.folder)
        given: dict[str, Any] = {"shape": self.shape, "progress": self.progress, "checkpoint": checkpoint}
        if isinstance(self.hyper, Newton):
            trained = fit_newton(X, ratios, runs, hyper=self.hyper, **given)
        else:
            trained = fit_runs(X, ratios, runs, hyper=self.hyper, **given)
        self._trained = trained, [f"{run.key}, seed {run.seed}" for run in runs]
        found = [
            with_green(each) for each in estimated_ratios(trained.nets, [fold.X_test for _ in self.seeds for fold in folds])
        ]
        return {seed: found[at * len(folds) : (at + 1) * len(folds)] for at, seed in enumerate(self.seeds)}

    def averaged(self, X: Sequence[TransformFeatures]) -> list[Lights]:
        """After ``estimate_folds``: ratios (n, 2) of rows X[k] (n, 9) by the networks of fold k, averaged as logarithms.

        Raises:
            ValueError: nothing has been trained, or a different number of folds.
        """
        if self._trained is None or len(self._trained[1]) != len(self.seeds) * len(X):
            raise ValueError(f"rows for {len(X)} folds: train on the same number first")
        found = estimated_ratios(self._trained[0].nets, [rows for _ in self.seeds for rows in X])
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
                rule = "needs the ground truth of the test rows"
                raise ValueError(f'keep = "test_fold" {rule} of {fold.name}: reveal it, and report this')
            watch = len(train) + len(fold.X_validate) + np.arange(len(fold.X_test), dtype=np.int64)
        elif self.hyper.keep == "validation" and len(fold.X_validate):
            watch = len(train) + np.arange(len(fold.X_validate), dtype=np.int64)
        elif isinstance(self.hyper, Hyper) and self.hyper.keep == "validation":
            train, watch = _hold_out(fold, self.hyper.validation_share, seed)
        elif self.teacher is not None:
            others = rng(seed, "two_camera pupils", fold.name).permutation(np.flatnonzero(~fold.measured_train))
            train = np.concatenate([np.flatnonzero(fold.measured_train), others[: self.rows]])
        measured = train[fold.measured_train[train]]
        train = np.concatenate([train, np.tile(measured, self.measured_times - 1)])
        return NetworkRun(start + train, start + watch, seed, fold.name)


def _hold_out(fold: Fold, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on, and the measured rows of the held-out pairs."""
    pairs = np.unique(fold.pair_train)
    count = round(share * len(pairs))
    if not 0 < count < len(pairs):
        raise ValueError(
            f"{fold.name}: a share {share} of {len(pairs)} pairs is {count}: validation needs a pair, training too"
        )
    out = rng(seed, "two_camera validation", fold.name).permutation(pairs)[:count]
    pair_out, light_out = np.isin(fold.pair_train, out), np.isin(fold.light_train, out)
    return np.flatnonzero(~pair_out & ~light_out), np.flatnonzero(pair_out & fold.measured_train)


def _stacked(folds: Sequence[Fold], learned: Sequence[Lights]) -> tuple[TransformFeatures, Lights, list[int]]:
    """Features and ratios of all folds, concatenated: training rows (with ratios ``learned``), validation and test rows; and
    the start of each fold."""
    blocks: list[TransformFeatures] = []
    ratios: list[Lights] = []
    starts: list[int] = []
    for fold, of_fold in zip(folds, learned, strict=True):
        starts.append(sum(map(len, blocks)))
        blocks += [fold.X_train, fold.X_validate]
        ratios += [of_fold, ratios_of(fold.gt_validate)]
        if fold.gt_test is not None:
            blocks.append(fold.X_test)
            ratios.append(ratios_of(fold.gt_test))
    return np.concatenate(blocks), np.concatenate(ratios), starts


# ---------------------------------------------------------------------------------------------------------------- weights


def networks_npz(nets: IlluminantNets, names: Sequence[str]) -> bytes:
    """The networks as an .npz without pickles: ``names`` (R,), ``weight_0`` (R, 9, 9), ``bias_0`` (R, 9), ..., float32; and
    ``activation``, if it is not relu."""
    arrays: dict[str, NDArray[Any]] = {"names": np.asarray(names, dtype=np.str_)}
    if nets.shape.activation != "relu":
        arrays["activation"] = np.asarray(nets.shape.activation)
    for layer, (weight, bias) in enumerate(nets.layers()):
        arrays[f"weight_{layer}"] = weight.detach().numpy()
        arrays[f"bias_{layer}"] = bias.detach().numpy()[:, 0]
    return npz_bytes(arrays)


def load_networks(data: bytes) -> tuple[IlluminantNets, list[str]]:
    """Load the networks that ``networks_npz`` wrote, and the names of the runs.

    Raises:
        ValueError: the bytes are not such a file.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            names = arrays["names"].tolist()
            hidden = tuple(arrays[name].shape[-1] for name in arrays.files if name.startswith("bias_"))[:-1]
            activation: Any = str(arrays["activation"]) if "activation" in arrays.files else "relu"
            nets = IlluminantNets(NetworkShape(hidden, activation), len(names))
            with torch.no_grad():
                for layer, (weight, bias) in enumerate(nets.layers()):
                    weight.copy_(torch.from_numpy(arrays[f"weight_{layer}"]))
                    bias.copy_(torch.from_numpy(arrays[f"bias_{layer}"])[:, None])
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"these bytes are not networks.npz: {error}") from error
    return nets, [str(name) for name in names]
