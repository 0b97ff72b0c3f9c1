"""Streams side by side, as a method sees them: what a ``Lesson`` is to one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...curation.rng import rng
from .recipe import GraphData, Recipe, RowNumbers, Task, present


class GraphNet(Protocol):
    """A network over a stream axis: ``models.gcn.Gcn``, ``models.st_gcn.StGcn``, or ``nets.ModuleNet`` of any module."""

    def draw(self, init: torch.Generator) -> tuple[Tensor, Tensor]:
        """(P,) parameters, from ``init`` alone, and (S,) running statistics of a stream that begins."""
        ...

    def inputs(self, x: Tensor) -> Any:
        """Samples as the network takes them."""
        ...

    def logits(self, flat: Tensor, statistics: Tensor, inputs: Any, *, training: bool) -> Tensor:
        """(R, n, classes)."""
        ...

    def topology(self, flat: Tensor, inputs: Any) -> Tensor:
        """(R,) the norm of an attention over the edges."""
        ...


@dataclasses.dataclass(frozen=True)
class StreamBatch:
    """Samples that the streams share.

    Attributes:
        inputs: as the network takes them.
        labels: (n,) int64.
        weights: (n,) or (R, n) float32, 1 in all: one over the samples of the class, as CGLB weighs.
    """

    inputs: Any
    labels: Tensor
    weights: Tensor


class Streams:
    """R streams that learn their next task from the same rows.

    A loss is a number a stream; they are summed, so that each stream's gradient is its own, and Adam treats each
    parameter by itself.

    Attributes:
        net: what the streams compute.
        recipe: the settings.
        flat: (R, P) parameters.
        statistics: (R, S) running statistics of batch norm.
        state: what the method keeps, name -> (R, ...).
        orders: of each stream, the task that is being learned last.
        repeats: of each stream.
        batch: what the streams learn from.
    """

    def __init__(
        self,
        net: GraphNet,
        data: GraphData,
        recipe: Recipe,
        state: Mapping[str, Tensor],
        *,
        orders: Sequence[tuple[Task, ...]],
        repeats: Sequence[int],
        rows: RowNumbers,
        seed: int,
        device: torch.device,
    ) -> None:
        self.net, self.data, self.recipe, self.seed, self.device = net, data, recipe, seed, device
        self.orders, self.repeats = list(orders), list(repeats)
        held = {name: value.to(device, copy=True) for name, value in state.items()}
        self.flat = held.pop("weights").requires_grad_()
        self.statistics = held.pop("statistics")
        self._optimiser = torch.optim.Adam([self.flat], lr=recipe.learning_rate, fused=True)
        moments = {name: held.pop(f"adam/{name}") for name in ("exp_avg", "exp_avg_sq", "step") if f"adam/{name}" in held}
        if moments and recipe.carry_optimiser:
            self._optimiser.state[self.flat] = {**moments, "step": moments["step"][0].clone()}
        self.state = held
        self.batch = self.batch_of(rows)

    @property
    def task(self) -> int:
        """0-based."""
        return len(self.orders[0]) - 1

    def batch_of(self, rows: RowNumbers, chosen: Sequence[RowNumbers] | None = None) -> StreamBatch:
        """Rows of the data; with ``chosen`` (positions in ``rows``, one array a stream) the others weigh nothing."""
        labels = self.data.labels[rows]
        weights = 1 / np.bincount(labels)[labels]
        if chosen is not None:
            weights = np.stack([np.where(np.isin(np.arange(len(rows)), mine), weights, 0) for mine in chosen])
        weights = weights / weights.sum(-1, keepdims=True)
        x = torch.from_numpy(self.data.x[rows]).to(self.device)
        kept = torch.from_numpy(labels).to(self.device), torch.from_numpy(weights.astype(np.float32)).to(self.device)
        return StreamBatch(self.net.inputs(x), *kept)

    def heads(self, start: int, stop: int) -> Tensor:
        """(R, classes) bool: the classes of each stream's tasks start .. stop - 1."""
        mask = torch.zeros(len(self.orders), self.data.classes, dtype=torch.bool)
        for stream, order in enumerate(self.orders):
            mask[stream, [label for task in order[start:stop] for label in task]] = True
        return mask.to(self.device)

    def columns(self, position: int) -> Tensor:
        """(R, k) int64: the classes of each stream's task at ``position``."""
        return torch.tensor([order[position] for order in self.orders], device=self.device)

    def outputs(self, batch: StreamBatch, *, training: bool = True) -> Tensor:
        """(R, n, classes) logits."""
        return self.net.logits(self.flat, self.statistics, batch.inputs, training=training)

    def classification(self, batch: StreamBatch, heads: Tensor, logits: Tensor | None = None) -> Tensor:
        """(R,) cross-entropy over the classes in ``heads``, weighted by ``batch.weights``."""
        found = self.outputs(batch) if logits is None else logits
        logarithms = found.masked_fill(~heads[:, None], -torch.inf).log_softmax(2)
        wanted = batch.labels.expand(len(found), -1)[..., None]
        return -(logarithms.gather(2, wanted)[..., 0] * batch.weights).sum(1)

    def gradient(self, loss: Tensor) -> Tensor:
        """(R, P) by the parameters."""
        (found,) = torch.autograd.grad(loss.sum(), self.flat, materialize_grads=True)
        return found

    def fit(self, loss: Callable[[], Tensor], adjust: Callable[[Tensor], Tensor] | None = None) -> None:
        """Minimise ``loss``, one full-batch step an epoch.

        Args:
            loss: (R,), or their sum.
            adjust: what the step is taken along, from the gradient.

        Raises:
            ArithmeticError: weights are no longer finite.
        """
        for _ in range(self.recipe.epochs):
            found = self.gradient(loss())
            self.flat.grad = found if adjust is None else adjust(found)
            self._optimiser.step()
        self.flat.grad = None
        broken = (~self.flat.detach().isfinite().all(1)).nonzero()
        if len(broken):
            raise ArithmeticError(
                f"weights are not finite after {self.recipe.method.name} on {self.orders[int(broken[0])]}: the learning rate "
                f"{self.recipe.learning_rate} or a strength in {dict(self.recipe.method.settings)} is too high"
            )

    def saved(self) -> list[dict[str, Tensor]]:
        """What each stream goes on from, on the CPU."""
        kept = {"weights": self.flat.detach(), "statistics": self.statistics, **self.state}
        if self.recipe.carry_optimiser:
            moments = self._optimiser.state[self.flat]
            kept |= {f"adam/{name}": moments[name] for name in ("exp_avg", "exp_avg_sq")}
            kept["adam/step"] = moments["step"].expand(len(self.orders))
        return [{name: value[r].cpu().clone() for name, value in kept.items()} for r in range(len(self.orders))]

    def task_rows(self, task: Task) -> RowNumbers:
        """The training rows of a task's classes, in their order."""
        return task_rows(self.data, task)

    def memory(self, stream: int, position: int, share: float) -> RowNumbers:
        """Positions in ``task_rows`` of what a stream keeps of a past task."""
        return memory(self.data, self.orders[stream][position], share, seed=self.seed, repeat=self.repeats[stream])


def task_rows(data: GraphData, task: Task) -> RowNumbers:
    """The training rows of a task's classes, in their order. Raises ValueError where a class has none."""
    return present(data, (task,), seed=0, repeat=0)


def memory(data: GraphData, task: Task, share: float, *, seed: int, repeat: int) -> RowNumbers:
    """Positions in ``task_rows``, ascending: int(share n), at least 1, drawn once a task and repeat, whatever the order."""
    check_share(share)
    count = len(task_rows(data, task))
    key = f"{repeat}/{','.join(map(str, sorted(task)))}"
    chosen: NDArray[np.int64] = rng(seed, "graph_streams memory", key).permutation(count)[: max(1, int(share * count))]
    return np.sort(chosen)


def check_share(share: float) -> None:
    """Raise ValueError for no share of a task."""
    if not 0 < share <= 1:
        raise ValueError(f"fraction {share} of a task kept in memory: above 0, and 1 at most")
