"""Levenberg-Marquardt training of the two-camera networks with weight decay; converges in seconds.

The networks have 200 to 1,460 parameters and the folds few rows, so that a step can solve for all parameters at once where Adam
takes tens of thousands of small steps. The loss reaches a minimum, and weight decay, not early stopping, determines how closely
the rows are fitted.

The loss is the sum of absolute errors of R/G and B/G, smoothed near 0; its curvature is that of iteratively reweighted
least squares: J^T diag(1 / |r|) J.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...curation.checkpoint import Checkpoint
from ...curation.encoders.one_thread import one_thread
from ..core.determinism import generator
from ..models.illuminant_net import ACTIVATIONS, IlluminantNets, draw_nets, layers_of
from .batched import NetworkRun, Tell, TrainedNetworks, check_arrays
from .settings import Newton
from .shapes import RATIOS, NetworkShape

_TRIALS = 10  # dampings that a step tries
_WINDOW = 10  # steps over which the loss must go down


def fit_newton(
    X: NDArray[np.floating[Any]],
    ratios: NDArray[np.floating[Any]],
    runs: Sequence[NetworkRun],
    *,
    shape: NetworkShape,
    hyper: Newton,
    progress: Tell | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainedNetworks:
    """Train one network per run, separately: a run's result depends on its own rows and seed alone, to the last bit.

    Features are standardised by the run's own rows; this is folded into the returned weights, so that the networks take plain
    transforms. Rows that occur twice in a run count twice.

    Args:
        X: (n, 9) row-major transforms, which the runs share.
        ratios: (n, 2) R/G and B/G of their lights, above 0.
        runs: rows and seeds; the first initial weights are those of ``batched.fit_runs``, except for the output's bias, which
            starts at the mean log ratio.
        shape: shape of all networks.
        progress: called with a line per run.
        checkpoint: checkpoint of this call, written after each run. Runs in it are not trained again.

    Returns:
        ``steps`` (R,) taken until a run had converged; ``losses`` (1 + longest, R): at the start and after each
        step, NaN after the end.

    Raises:
        ValueError: no run, a run without rows, or as for ``batched.check_arrays``.
        ArithmeticError: a loss or its curvature is not finite.
    """
    if not runs or not all(len(run.train) for run in runs):
        raise ValueError(f"{len(runs)} runs: one is needed, and each needs rows to learn from")
    check_arrays(X, ratios)
    done = {} if checkpoint is None else checkpoint.arrays()
    with one_thread():
        for at in range(len(done) // 2, len(runs)):
            weights, losses = _trained(X, ratios, runs[at], shape, hyper)
            done |= {f"weights_{at}": weights.numpy(), f"losses_{at}": np.array(losses)}
            if checkpoint is not None:
                checkpoint.commit_arrays(done)
            if progress is not None:
                progress(f"{runs[at].key}, seed {runs[at].seed}: {len(losses) - 1} steps, loss {losses[-1]:.5g}")
    nets = IlluminantNets(shape, len(runs))
    histories = [done[f"losses_{at}"] for at in range(len(runs))]
    losses = np.full((max(map(len, histories)), len(runs)), np.nan)
    for at, history in enumerate(histories):
        weights = torch.from_numpy(done[f"weights_{at}"])
        nets.flat.data[at, : len(weights)] = weights
        losses[: len(history), at] = history
    return TrainedNetworks(nets, np.array([len(history) - 1 for history in histories]), losses)


def _trained(
    X: NDArray[np.floating[Any]], ratios: NDArray[np.floating[Any]], run: NetworkRun, shape: NetworkShape, hyper: Newton
) -> tuple[Tensor, list[float]]:
    """One run: its weights (P,) float32, and the loss at the start and after each step."""
    rows, counts = np.unique(run.train, return_counts=True)
    mean, scale = X[rows].mean(axis=0, dtype=np.float64), X[rows].std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1
    problem = _Problem(
        torch.from_numpy((X[rows] - mean) / scale),
        torch.from_numpy(ratios[rows].astype(np.float64)),
        torch.from_numpy(counts.astype(np.float64))[:, None],
        shape,
        hyper,
    )
    found, losses = _best_minimum(problem, run)
    return _unstandardised(found, shape, torch.from_numpy(mean), torch.from_numpy(scale)).float(), losses


@dataclasses.dataclass(frozen=True)
class _Problem:
    """Rows (n, 9), their ratios (n, 2) and the count of each (n, 1), float64."""

    X: Tensor
    truth: Tensor
    weight: Tensor
    shape: NetworkShape
    hyper: Newton

    def loss(self, flat: Tensor) -> Tensor:
        """The objective."""
        error = _outputs(flat, self.X, self.shape)[-1].exp() - self.truth
        rounded = (error.square() + self.hyper.tip**2).sqrt()
        return (rounded * self.weight).sum() + self.hyper.decay / 2 * flat.square().sum()

    def gradient(self, flat: Tensor) -> Tensor:
        point = flat.clone().requires_grad_()
        (found,) = torch.autograd.grad(self.loss(point), point)
        return found

    def root(self, flat: Tensor, step: int) -> Tensor:
        """A (m, P), where A^T A is the curvature of the errors on about ``curvature_rows`` rows, which change with ``step``."""
        wanted = self.hyper.curvature_rows or len(self.X)
        stride = max(1, len(self.X) // wanted)
        mine = slice(step % stride, None, stride)
        ratio, by_parameter = log_ratio_jacobian(flat, self.X[mine], self.shape)
        ratio = ratio.exp()
        error = ratio - self.truth[mine]
        share = self.weight.sum() / self.weight[mine].sum()
        each = ratio * (share * self.weight[mine] / (error.square() + self.hyper.tip**2).sqrt()).sqrt()
        return (by_parameter * each[..., None]).flatten(0, 1)


def _best_minimum(problem: _Problem, run: NetworkRun) -> tuple[Tensor, list[float]]:
    """The weights to which the most promising start leads, and the loss at that start and after each step."""
    hyper, shape = problem.hyper, problem.shape
    descents: list[_Descent] = []
    for start in range(hyper.starts):
        key = f"{run.key}, start {start}" if start else run.key
        flat = draw_nets(shape, [generator(run.seed, "two_camera weights", key)]).flat.detach().double()[0]
        flat = flat[: shape.parameters]
        flat[-RATIOS:] = ((problem.truth.log() * problem.weight).sum(dim=0) / problem.weight.sum()).flatten()
        descents.append(_Descent(problem, flat))
    if hyper.starts > 1:
        for descent in descents:
            descent.go_on(min(hyper.scouting, hyper.iterations))
    best = min(descents, key=lambda descent: descent.history[-1] if math.isfinite(descent.history[-1]) else math.inf)
    if not math.isfinite(best.history[-1]):
        raise ArithmeticError(f"the loss of {run.key}, seed {run.seed}, is not finite from the start: decay is too high")
    best.go_on(hyper.iterations)
    if best.fault:
        raise ArithmeticError(best.fault)
    return best.flat, best.history


class _Descent:
    """One way down: ``flat`` (P,), in ``history`` the loss at the start and after each step, and in ``fault`` why it ended, if
    not at a minimum.
    """

    def __init__(self, problem: _Problem, flat: Tensor) -> None:
        self.problem, self.flat = problem, flat
        self.history = [float(problem.loss(flat))]
        self.fault = ""
        self._damping, self._over = 1.0, not math.isfinite(self.history[0])

    def go_on(self, steps: int) -> None:
        """Continue until ``steps`` steps have been taken since the start, or the loss no longer decreases."""
        while not self._over and len(self.history) <= steps:
            self._over = not self._step() or self._flattened()

    def _flattened(self) -> bool:
        losses, tolerance = self.history, self.problem.hyper.tolerance
        return len(losses) > _WINDOW and losses[-1 - _WINDOW] - losses[-1] < tolerance * losses[-1]

    def _step(self) -> bool:
        problem, flat = self.problem, self.flat
        root, gradient = problem.root(flat, len(self.history) - 1), problem.gradient(flat)
        small = root @ root.T if len(root) < len(flat) else root.T @ root
        if not (small.isfinite().all() and gradient.isfinite().all()):
            self.fault = f"the curvature or gradient of the loss is not finite after step {len(self.history) - 1}"
            return False
        # From a smaller damping, the trials could not raise it enough.
        damping = max(self._damping, 1e-6 * float(small.diagonal().max()))
        for _ in range(_TRIALS):
            with contextlib.suppress(torch.linalg.LinAlgError):  # rounding left no positive definite matrix: damp it more
                there = flat - ridge_solve(root, small, problem.hyper.decay + damping, gradient)
                new = float(problem.loss(there))
                if new < self.history[-1]:
                    self.flat, self._damping = there, damping / 3
                    self.history.append(new)
                    return True
            damping *= 5
        return False


def ridge_solve(root: Tensor, small: Tensor, ridge: float, gradient: Tensor) -> Tensor:
    """(A^T A + ridge I)^-1 g by the smaller of the two Gram matrices.

    Args:
        root: A (m, P).
        small: A A^T where m < P, else A^T A.
        ridge: above 0.
        gradient: g (P,).

    Returns:
        (P,); by Woodbury's identity (g - A^T (A A^T + ridge I)^-1 A g) / ridge where m < P.
    """
    factor = torch.linalg.cholesky(small + ridge * torch.eye(len(small), dtype=small.dtype))
    if len(root) < root.shape[1]:
        return (gradient - root.T @ torch.cholesky_solve((root @ gradient)[:, None], factor)[:, 0]) / ridge
    return torch.cholesky_solve(gradient[:, None], factor)[:, 0]


def _outputs(flat: Tensor, X: Tensor, shape: NetworkShape) -> list[Tensor]:
    """The inputs, the output of each hidden layer, and the log ratios (n, 2)."""
    *hidden, (weight, bias) = layers_of(flat, shape)
    found, activation = [X], ACTIVATIONS[shape.activation].of
    for hidden_weight, hidden_bias in hidden:
        found.append(activation(torch.addmm(hidden_bias, found[-1], hidden_weight)))
    return [*found, torch.addmm(bias, found[-1], weight)]


def log_ratio_jacobian(flat: Tensor, X: Tensor, shape: NetworkShape) -> tuple[Tensor, Tensor]:
    """Log ratios (n, 2) of one network, and their derivatives (n, 2, P) with respect to its parameters ``flat`` (P,)."""
    layers, slope = layers_of(flat, shape), ACTIVATIONS[shape.activation].slope
    *inputs, log_ratios = _outputs(flat, X, shape)
    after = torch.eye(RATIOS, dtype=flat.dtype).expand(len(X), RATIOS, RATIOS)  # with respect to the layer's output
    pieces: list[Tensor] = []
    for at in range(len(layers) - 1, -1, -1):
        by_weight = inputs[at][:, None, :, None] * after[:, :, None, :]
        pieces += [after, by_weight.flatten(2)]
        if at:
            after = (after @ layers[at][0].T) * slope(inputs[at])[:, None]
    return log_ratios, torch.cat(pieces[::-1], dim=2)


def _unstandardised(flat: Tensor, shape: NetworkShape, mean: Tensor, scale: Tensor) -> Tensor:
    """Fold the standardisation (X - mean) / scale into the first layer, so that the network takes X."""
    flat = flat.clone()
    weight, bias = layers_of(flat, shape)[0]
    weight /= scale[:, None]
    bias -= mean @ weight
    return flat
