"""The training loop on stored features: one tensor in memory, one generator, no loader."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from ...curation.rng import rng


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Hyper-parameters of SGD with one step in the learning rate. No defaults: a paper or a config says each.

    Attributes:
        epochs: passes over the training rows.
        batch_size: rows a step; the last batch of an epoch may be smaller and is used.
        learning_rate: of epochs 0 .. decay_after_epochs - 1.
        momentum: of SGD, without dampening, not Nesterov.
        weight_decay: L2 penalty on all parameters.
        decay_after_epochs: from this epoch on the rate is ``learning_rate * decay_factor``.
        decay_factor: see above.
        keep: "lowest_loss" keeps the weights after the epoch whose mean training loss is lowest, the first of equals
            (CLEAR ``as_released``: the code does it, the paper is silent); "last" keeps the last (``as_written``).
    """

    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    decay_after_epochs: int
    decay_factor: float
    keep: Literal["lowest_loss", "last"]

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(f"epochs {self.epochs}, batch_size {self.batch_size}: both must be at least 1")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate {self.learning_rate} must be positive and finite")
        if self.keep not in ("lowest_loss", "last"):
            raise ValueError(f"keep {self.keep!r}: 'lowest_loss' or 'last'")

    def rate(self, epoch: int) -> float:
        """Learning rate of ``epoch`` (0-based)."""
        return self.learning_rate * (self.decay_factor if epoch >= self.decay_after_epochs else 1.0)


def generator(seed: int, stage: str, key: str = "") -> torch.Generator:
    """A CPU generator that depends on (seed, stage, key) alone; the global one is never touched."""
    return torch.Generator().manual_seed(int(rng(seed, stage, key).integers(2**63)))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's CPU kernels on one thread.

    Sums split over threads depend on how many there are, so one thread is what makes results equal between machines
    with different numbers of cores. The steps are small (a batch of 256), so more threads gain little, and lose much
    where cores are shared: seeds side by side in processes use the cores better.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit(model: nn.Module, X: Tensor, y: Tensor, hyper: Hyper, order: torch.Generator) -> list[float]:
    """Train ``model`` in place by cross-entropy, with a fresh optimiser.

    Args:
        model: (b, d) float32 -> (b, classes) logits, on the device of ``X``.
        X: (n, d) float32.
        y: (n,) int64 in [0, classes), on the same device.
        order: CPU generator of the epochs' permutations, so that every device sees one order.

    Returns:
        Mean training loss of each epoch, over its rows, as seen while training (weights move within the epoch).

    Raises:
        ValueError: no rows, or shapes that do not pair.
        ArithmeticError: the loss is no longer finite.
    """
    if X.ndim != 2 or y.shape != X.shape[:1] or len(y) == 0:
        raise ValueError(f"cannot train on features {tuple(X.shape)} with labels {tuple(y.shape)}")
    optimiser = torch.optim.SGD(
        model.parameters(),
        lr=hyper.learning_rate,
        momentum=hyper.momentum,
        weight_decay=hyper.weight_decay,
        fused=True,
    )
    losses: list[float] = []
    best: dict[str, Tensor] = {}
    lowest = math.inf
    batch = torch.empty((min(hyper.batch_size, len(y)), X.shape[1]), dtype=X.dtype, device=X.device)
    model.train()
    for epoch in range(hyper.epochs):
        for group in optimiser.param_groups:
            group["lr"] = hyper.rate(epoch)
        total = torch.zeros((), dtype=torch.float64, device=X.device)
        for rows in torch.randperm(len(y), generator=order).to(X.device).split(hyper.batch_size):
            # One buffer for all batches: a fresh 2 MB block a step costs more than the copy itself.
            torch.index_select(X, 0, rows, out=batch[: len(rows)])
            loss = nn.functional.cross_entropy(model(batch[: len(rows)]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach() * len(rows)
        losses.append(float(total) / len(y))
        if not math.isfinite(losses[-1]):
            raise ArithmeticError(
                f"training loss is {losses[-1]} in epoch {epoch} at learning rate {hyper.rate(epoch)}: "
                "the features hold non-finite values, or the rate is too high for their scale"
            )
        if hyper.keep == "lowest_loss" and losses[-1] < lowest:
            lowest = losses[-1]
            best = {name: value.clone() for name, value in model.state_dict().items()}
    if best:
        model.load_state_dict(best)
    return losses


@torch.no_grad()
def predict(model: nn.Module, X: Tensor, batch_size: int = 4096) -> Tensor:
    """Class indices (n,) int64 of ``X`` (n, d): the largest logit, the first of equals."""
    model.eval()
    return torch.cat([model(X[at : at + batch_size]).argmax(1) for at in range(0, len(X), batch_size)])
