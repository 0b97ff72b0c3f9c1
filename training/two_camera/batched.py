"""Train many tiny networks in parallel, as one computation along a run axis.

The networks of ``models.illuminant_net`` are so small that torch's calls, not the arithmetic, determine the cost of a training
step. Training all folds and seeds at once reduces the paper's hours to minutes. A run's result depends on its own rows and seed
alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...curation.checkpoint import Checkpoint
from ...curation.encoders.one_thread import one_thread
from ...curation.rng import rng
from ..core.determinism import generator
from ..core.exemplars import RowNumbers
from ..core.schedule import Adam
from ..models.illuminant_net import IlluminantNets, draw_nets
from .settings import Hyper
from .shapes import NetworkShape

Tell = Callable[[str], None]
FloatArray = NDArray[np.floating[Any]]

_BLOCK_STEPS = 64  # steps whose rows are drawn at once
_COMMIT_STEPS = 5000  # minimum number of steps between two checkpoints: some seconds


@dataclasses.dataclass(frozen=True)
class NetworkRun:
    """One of the trainings that run in parallel.

    Attributes:
        train: rows of the shared arrays to train on, (n,) int64.
        watch: rows whose loss decides which weights are kept; none with keep = "last".
        seed: seed for the weights and the order of the rows.
        key: text that distinguishes this run from others with its seed ("fold 0").
    """

    train: RowNumbers
    watch: RowNumbers
    seed: int
    key: str


@dataclasses.dataclass(frozen=True)
class TrainedNetworks:
    """Result of ``fit_runs``.

    Attributes:
        nets: the networks with the weights that were kept.
        steps: (R,) int64, steps after which each run's weights were kept.
        losses: (checks, R) float64, the loss that decides which weights are kept; NaN after the end of a run.
    """

    nets: IlluminantNets
    steps: NDArray[np.int64]
    losses: NDArray[np.float64]


def fit_runs(
    X: FloatArray,
    ratios: FloatArray,
    runs: Sequence[NetworkRun],
    *,
    shape: NetworkShape,
    hyper: Hyper,
    progress: Tell | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainedNetworks:
    """Train one network per run, all at once, by Adam on the mean absolute error of [R/G, 1, B/G].

    Args:
        X: (n, 9) row-major transforms, which the runs share.
        ratios: (n, 2) R/G and B/G of their lights, above 0.
        runs: rows and seeds. Equal runs give equal networks, regardless of other runs and the number of threads, to the last
            bit if the runs have equally many rows. If not, sums include padding and round differently, the shortest epoch
            determines how often losses are checked, and the longest training the cosine schedule.
        shape: shape of all networks.
        progress: called with one line a few times in a training.
        checkpoint: checkpoint of this call, written at the first check of losses after every 5,000 steps, and at the end.

    Raises:
        ValueError: arrays do not match or are not finite, ratios are <= 0, or a run has no rows to train on or to watch.
        ArithmeticError: a loss is no longer finite.
    """
    check_arrays(X, ratios)
    _check(runs, len(X), hyper)
    features, truth = (torch.from_numpy(np.array(values, dtype=np.float32)) for values in (X, ratios))
    with one_thread():
        return _fit(features, truth, _State(runs, shape, hyper, checkpoint), runs, hyper, progress)


def _fit(
    X: Tensor, truth: Tensor, s: _State, runs: Sequence[NetworkRun], hyper: Hyper, progress: Tell | None
) -> TrainedNetworks:
    decision, ends = s.decision, int(s.decision.ends.max())
    every = max(1, round(float(decision.per_epoch.min()) * hyper.check_epochs))
    seen, since = torch.zeros(len(decision.running), dtype=torch.float64), 0
    for step in range(s.step + 1, ends + 1):
        if not len(decision.running):
            break
        if hyper.schedule == "cosine":
            for group in s.optimiser.param_groups:
                group["lr"] = hyper.learning_rate * (1 + math.cos(math.pi * step / ends)) / 2
        losses = _errors(s.nets, X, truth, *s.batches.next())
        s.optimiser.zero_grad()
        losses.sum().backward()
        s.optimiser.step()
        seen, since = seen + losses.detach(), since + 1
        if step % every and step not in decision.ends:
            continue
        running = decision.running
        watched = (
            seen / since if hyper.keep == "last" else _watched(s.nets, X, truth, [runs[r].watch for r in running.tolist()])
        )
        take, stay = decision.after(step, watched.double().numpy())
        s.kept.flat.data[torch.from_numpy(running[take])] = s.nets.flat.data[torch.from_numpy(np.flatnonzero(take))]
        if progress is not None and step // every % 20 == 0:
            progress(f"step {step} of {ends}: {len(running)} of {len(runs)} runs, loss {watched.mean():.5f}")
        if not stay.all():  # ended runs are dropped, and cost nothing any more
            s.only(np.flatnonzero(stay))
        s.commit(step)
        seen, since = torch.zeros(int(stay.sum()), dtype=torch.float64), 0
    return TrainedNetworks(s.kept, decision.steps, np.array(decision.losses))


def _errors(nets: IlluminantNets, X: Tensor, truth: Tensor, rows: Tensor, share: Tensor) -> Tensor:
    """Mean absolute error of [R/G, 1, B/G] of each run on its rows, (R,); green's error is 0."""
    return ((nets(X[rows]) - truth[rows]).abs().sum(dim=2) * share).sum(dim=1) / 3


@torch.no_grad()
def _watched(nets: IlluminantNets, X: Tensor, truth: Tensor, rows: Sequence[RowNumbers]) -> Tensor:
    return _errors(nets, X, truth, *_padded(rows))


class _State:
    """State of a training, new or restored from its checkpoint.

    Attributes:
        nets: networks of the runs that have not ended, trained by ``optimiser``.
        kept: the networks of all runs, with the weights to keep.
        step: step of the last checkpoint; 0 if there is none.
    """

    def __init__(self, runs: Sequence[NetworkRun], shape: NetworkShape, hyper: Hyper, checkpoint: Checkpoint | None) -> None:
        self._hyper, self._checkpoint = hyper, checkpoint
        self.kept = IlluminantNets(shape, len(runs))
        self.nets = draw_nets(shape, [generator(run.seed, "two_camera weights", run.key) for run in runs])
        self.optimiser = self._adam()
        self.decision, self.batches, self.step = _Decision(hyper, runs), _Batches(runs, hyper.batch_size), 0
        if checkpoint is not None and (saved := checkpoint.arrays()):
            self._restore(saved)

    def _adam(self) -> torch.optim.Adam:
        return Adam(self.nets.parameters(), lr=self._hyper.learning_rate, eps=1e-7, fused=True)

    def _replace(self, flat: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Continue with networks of these weights (R, ...), and with these moments of Adam."""
        if len(flat):
            self.nets = IlluminantNets(self.kept.shape, len(flat))
            self.nets.flat.data.copy_(flat)
            self.optimiser = self._adam()
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": {0: dict(moments)}})

    def _moments(self) -> dict[str, Tensor]:
        return self.optimiser.state_dict()["state"][0]

    def only(self, stay: RowNumbers) -> None:
        """Continue with the networks ``stay`` alone."""
        rows, moments = torch.from_numpy(stay), self._moments()
        self._replace(self.nets.flat.data[rows], {**moments, **{name: moments[name][rows] for name in _MOMENTS}})
        self.batches.keep(stay)

    def commit(self, step: int) -> None:
        """Write the checkpoint if it is due."""
        if self._checkpoint is not None and (step - self.step >= _COMMIT_STEPS or not len(self.decision.running)):
            self.step = step
            arrays = {"step": np.array(step), "nets": self.nets.flat.data.numpy(), "kept": self.kept.flat.data.numpy()}
            arrays |= {f"adam_{name}": value.numpy() for name, value in self._moments().items()}
            arrays |= {f"decision_{name}": np.asarray(getattr(self.decision, name)) for name in _DECIDED}
            self._checkpoint.commit_arrays(arrays)

    def _restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        self.step = int(saved["step"])
        self.kept.flat.data.copy_(torch.from_numpy(saved["kept"]))
        for name in _DECIDED:
            setattr(self.decision, name, saved[f"decision_{name}"])
        self.decision.losses = list(saved["decision_losses"])
        for _ in range(self.step if len(self.decision.running) else 0):  # drawing is cheap compared with training
            self.batches.next()
        self.batches.keep(self.decision.running)
        moments = {name.removeprefix("adam_"): torch.from_numpy(saved[name]) for name in saved if name.startswith("adam_")}
        self._replace(torch.from_numpy(saved["nets"]), moments)


_MOMENTS = ("exp_avg", "exp_avg_sq")
_DECIDED = ("running", "lowest", "mark", "marked", "steps", "losses")


class _Decision:
    """Decides at each check, by the loss, which weights of each run are kept, and when a run ends."""

    def __init__(self, hyper: Hyper, runs: Sequence[NetworkRun]) -> None:
        self.per_epoch = np.array([len(run.train) / min(hyper.batch_size, len(run.train)) for run in runs])
        self.ends = np.ceil(self.per_epoch * hyper.epochs).astype(np.int64)
        self.patience = self.per_epoch * (math.inf if hyper.patience_epochs is None else hyper.patience_epochs)
        self.last = hyper.keep == "last"
        self.running = np.arange(len(runs))
        self.lowest = np.full(len(runs), np.inf)
        self.mark = np.full(len(runs), np.inf)  # the loss that has to be undercut by a thousandth
        self.marked = np.zeros(len(runs), dtype=np.int64)
        self.steps = np.zeros(len(runs), dtype=np.int64)
        self.losses: list[NDArray[np.float64]] = []

    def after(self, step: int, losses: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Of the running runs: whose weights to keep now, and who continues, by their losses after ``step``."""
        at = self.running
        if not np.isfinite(losses).all():
            run = int(at[np.argmin(np.isfinite(losses))])
            raise ArithmeticError(f"loss of run {run} is not finite after step {step}: the learning rate is too high")
        every = np.full(len(self.ends), np.nan)
        every[at] = losses
        self.losses.append(every)
        lower = losses < self.mark[at] * 0.999
        self.mark[at[lower]], self.marked[at[lower]] = losses[lower], step
        over = (step >= self.ends[at]) | (step - self.marked[at] >= self.patience[at])
        take = over if self.last else losses < self.lowest[at]
        self.lowest[at[take]], self.steps[at[take]] = losses[take], step
        self.running = at[~over]
        return take, ~over


class _Batches:
    """Rows (R, widest batch) of each step, padded with a run's first row, and the weight of each row in its run's mean."""

    def __init__(self, runs: Sequence[NetworkRun], batch_size: int) -> None:
        self.sizes = [min(batch_size, len(run.train)) for run in runs]
        self.whole = all(size == len(run.train) for run, size in zip(runs, self.sizes, strict=True))
        self.streams = [_Stream(run) for run in runs]
        self.block, self.share = _padded([run.train[:size] for run, size in zip(runs, self.sizes, strict=True)])
        self.block, self.at = self.block[None], 0

    def next(self) -> tuple[Tensor, Tensor]:
        """Rows and weights of the next step; always the same if all rows fit into one batch."""
        if self.whole:
            return self.block[0], self.share
        if self.at % _BLOCK_STEPS == 0:
            self.block = torch.empty(_BLOCK_STEPS, *self.share.shape, dtype=torch.int64)
            for r, (stream, size) in enumerate(zip(self.streams, self.sizes, strict=True)):
                self.block[:, r] = int(stream.rows[0])
                self.block[:, r, :size] = torch.from_numpy(stream.take(_BLOCK_STEPS * size).reshape(_BLOCK_STEPS, size))
        self.at += 1
        return self.block[(self.at - 1) % _BLOCK_STEPS], self.share

    def keep(self, stay: RowNumbers) -> None:
        """Continue with the runs ``stay`` alone."""
        rows = torch.from_numpy(stay)
        self.block, self.share = self.block[:, rows], self.share[rows]
        self.sizes, self.streams = [self.sizes[r] for r in stay], [self.streams[r] for r in stay]


class _Stream:
    """A run's rows, reshuffled after each complete pass."""

    def __init__(self, run: NetworkRun) -> None:
        self.rows, self.draw = run.train, rng(run.seed, "two_camera order", run.key)
        self.left = self.rows[:0]

    def take(self, count: int) -> RowNumbers:
        """The next ``count`` rows."""
        parts = [self.left]
        while sum(map(len, parts)) < count:
            parts.append(self.draw.permutation(self.rows))
        every = np.concatenate(parts)
        self.left = every[count:]
        return every[:count]


def _padded(rows: Sequence[RowNumbers]) -> tuple[Tensor, Tensor]:
    """Rows (R, widest), and the weight of each in its run's mean: 0 for padding."""
    sizes = [len(one) for one in rows]
    padded = np.stack([np.concatenate([one, np.full(max(sizes) - len(one), one[0])]) for one in rows])
    counts = torch.tensor(sizes)[:, None]
    return torch.from_numpy(padded), (torch.arange(max(sizes))[None] < counts).float() / counts


def check_arrays(X: FloatArray, ratios: FloatArray) -> None:
    """Raise ValueError unless features (n, 9) and ratios (n, 2) match and are finite, and ratios are above 0."""
    if X.ndim != 2 or X.shape[1] != 9 or ratios.shape != (len(X), 2):
        raise ValueError(f"features {X.shape} and ratios {ratios.shape}: (n, 9) and (n, 2) are needed")
    if not (np.isfinite(X).all() and np.isfinite(ratios).all() and (ratios > 0).all()):
        raise ValueError("features and ratios must be finite, and ratios above 0")


def _check(runs: Sequence[NetworkRun], count: int, hyper: Hyper) -> None:
    if not runs:
        raise ValueError("no run to train")
    for run in runs:
        needed = [("train", run.train), *([("watch", run.watch)] if hyper.keep != "last" else [])]
        for name, rows in needed:
            if not len(rows) or rows.min() < 0 or rows.max() >= count:
                raise ValueError(f"run {run.key!r}, seed {run.seed}: {name} has {len(rows)} rows of {count}, one is needed")


@torch.no_grad()
def estimated_ratios(nets: IlluminantNets, X: Sequence[FloatArray]) -> list[NDArray[np.float32]]:
    """Ratios (n, 2) of each run's own features (n, 9); n may differ between runs, and be 0."""
    if len(X) != nets.runs:
        raise ValueError(f"features for {len(X)} runs, and there are {nets.runs} networks")
    padded = torch.zeros(len(X), max(map(len, X)), X[0].shape[1])
    for run, features in enumerate(X):
        padded[run, : len(features)] = torch.from_numpy(np.array(features, dtype=np.float32))
    with one_thread():
        found = nets(padded).numpy()
    return [found[run, : len(features)].copy() for run, features in enumerate(X)]
