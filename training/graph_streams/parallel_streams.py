"""Parallel streams as a method sees them: the counterpart of ``core.lesson.Lesson`` for many models."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.determinism import generator
from ..core.exemplars import RowNumbers
from .recipe import ClassesOfTask, GraphData, Recipe, kept_rows, task_rows


class GraphNet(Protocol):
    """A network over a stream axis: ``models.gcn.network.Gcn``, ``models.st_gcn.StGcn``, or a module in ``nets.ModuleNet``."""

    def draw(self, init: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return (P,) parameters, drawn from ``init`` alone, and (S,) running statistics of a new stream."""
        ...

    def inputs(self, x: Tensor) -> Any:
        """Convert samples to inputs of the network."""
        ...

    def logits(self, flat: Tensor, statistics: Tensor, inputs: Any, *, training: bool, twice: bool = False) -> Tensor:
        """(R, n, classes); ``twice``: allow gradients of gradients."""
        ...

    def topology(self, flat: Tensor, inputs: Any) -> Tensor:
        """(R,) the norm of an attention over the edges."""
        ...


@dataclasses.dataclass(frozen=True)
class StreamBatch:
    """Samples that the streams share.

    Attributes:
        inputs: inputs of the network; None for a set that is larger than a batch, see ``Streams.parts``.
        labels: (n,) int64.
        weights: (n,) or (R, n) float32, which sum to 1: proportional to 1 / samples of the class, as in CGLB.
        heads: (R, classes) bool: which classes compete in the classification loss.
        places: (n,) int64 positions of the batch's samples in ``Streams.train``; None: all of ``train``, or other samples.
        rows: (n,) int64 row numbers of the batch's samples in the data, if ``inputs`` is None.
    """

    inputs: Any
    labels: Tensor
    weights: Tensor
    heads: Tensor
    places: Tensor | None = None
    rows: RowNumbers | None = None


def in_parts(rows: RowNumbers, most: int) -> list[RowNumbers]:
    """Split rows into parts of nearly equal size, none larger than ``most``.

    >>> [part.tolist() for part in in_parts(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    return np.array_split(rows, max(1, -(-len(rows) // most)))


class StreamStep:
    """A forward pass of all streams over a batch, like ``core.lesson.ForwardPass`` for one model; losses are summed over
    streams."""

    def __init__(self, lesson: Streams, batch: StreamBatch, *, twice: bool = False) -> None:
        self.lesson, self.batch, self._twice = lesson, batch, twice

    @functools.cached_property
    def logits(self) -> Tensor:
        """(R, n, classes), in training mode: the statistics of batch norm are updated."""
        lesson = self.lesson
        return lesson.net.logits(lesson.flat, lesson.statistics, self.batch.inputs, training=True, twice=self._twice)

    def before(self) -> Tensor:
        """The logits of the networks from before the task, in evaluation mode, without gradient."""
        before, places = self.lesson.logits_before, self.batch.places
        return before if places is None else before[:, places]

    def classification(self) -> Tensor:
        """Cross-entropy over ``batch.heads``, weighted by ``batch.weights``."""
        return self._cross_entropy(self.batch.heads)

    def own_classification(self) -> Tensor:
        """Like ``classification``, over the classes of the task alone."""
        return self._cross_entropy(self.lesson.own_heads)

    def gradient_size(self) -> Tensor:
        """L1 norm of the gradient of ``classification``; it has a gradient itself if ``fit`` is called with ``twice``."""
        (found,) = torch.autograd.grad(self.classification(), self.lesson.flat, create_graph=True)
        return found.abs().sum()

    def topology(self) -> Tensor:
        """(R,) the norm of the networks' attention over the edges of the batch."""
        return self.lesson.net.topology(self.lesson.flat, self.batch.inputs)

    def _cross_entropy(self, heads: Tensor) -> Tensor:
        logarithms = self.logits.masked_fill(~heads[:, None], -torch.inf).log_softmax(2)
        wanted = self.batch.labels.expand(len(logarithms), -1)[..., None]
        return -(logarithms.gather(2, wanted)[..., 0] * self.batch.weights).sum(1).sum()


class Streams:
    """R streams that learn their next task from the same rows.

    Losses are summed over the streams, so that each stream gets its own gradient, and Adam treats each parameter separately.

    Attributes:
        net: network of the streams.
        recipe: the settings.
        flat: (R, P) parameters.
        statistics: (R, S) running statistics of batch norm.
        state: tensors that the method stores, name -> (R, ...).
        orders: order of each stream, ending with the current task.
        draws: name of each stream's draw of weights, memories and batches.
        train: samples that the streams learn from.
        own_heads: (R, classes) bool: the classes of the task.
    """

    def __init__(
        self,
        net: GraphNet,
        data: GraphData,
        recipe: Recipe,
        state: Mapping[str, Tensor],
        *,
        orders: Sequence[tuple[ClassesOfTask, ...]],
        draws: Sequence[str],
        rows: RowNumbers,
        seed: int,
        device: torch.device,
    ) -> None:
        self.net, self.data, self.recipe, self.seed, self.device = net, data, recipe, seed, device
        self.orders, self.draws = list(orders), list(draws)
        held = {name: value.to(device, copy=True) for name, value in state.items()}
        self.flat = held.pop("weights").requires_grad_()
        self.statistics = held.pop("statistics")
        self._before = self.flat.detach().clone(), self.statistics.clone()
        self._optimiser = recipe.schedule.make([self.flat])
        moments = {name: held.pop(f"adam/{name}") for name in ("exp_avg", "exp_avg_sq", "step") if f"adam/{name}" in held}
        if moments:  # Adam's moments are carried over to the next task, as in CGLB
            self._optimiser.state[self.flat] = {**moments, "step": moments["step"][0].clone()}
        self.state = held
        self._rows, self.train = rows, self._batch(rows, self.task + 1)
        self.own_heads = self._heads(self.task, self.task + 1)
        self._columns = [torch.tensor([order[at] for order in self.orders], device=device) for at in range(self.task)]

    @property
    def task(self) -> int:
        """Number of the current task, 0-based."""
        return len(self.orders[0]) - 1

    @functools.cached_property
    def previous(self) -> StreamBatch | None:
        """Samples of the previous task, the same for all streams; None in the first task."""
        return self._batch(task_rows(self.data, self.orders[0][-2]), self.task) if self.task else None

    @functools.cached_property
    def logits_before(self) -> Tensor:
        """(R, n, classes) for ``train``: see ``StreamStep.before``."""
        return self._outputs(*self._before, self._rows, self.train.inputs)

    def memories(self, *, whole: bool, now: bool = False) -> list[StreamBatch]:
        """The memory of each past task; ``whole``: all samples of the task, with weight 0 outside the memory.

        The classes known after that task compete; with ``now`` those of the current task too.
        """
        found: list[StreamBatch] = []
        for position, task in enumerate(self.orders[0][:-1]):
            rows = task_rows(self.data, task)
            kept = [
                kept_rows(self.data, order[position], self.recipe.method.share, seed=self.seed, draw=draw)
                for order, draw in zip(self.orders, self.draws, strict=True)
            ]
            known = self.task + 1 if now else position + 1
            found.append(self._batch(rows, known, kept) if whole else self._batch(kept[0], known))
        return found

    def _batch(self, rows: RowNumbers, known: int, kept: Sequence[RowNumbers] | None = None) -> StreamBatch:
        """Rows as a batch; the first ``known`` tasks compete. With ``kept``, rows of each stream, others have weight 0."""
        labels = self.data.labels[rows]
        weights = 1 / np.bincount(labels)[labels]
        if kept is not None:
            weights = np.stack([np.where(np.isin(rows, mine), weights, 0) for mine in kept])
        weights = weights / weights.sum(-1, keepdims=True)
        y, w = (torch.from_numpy(a).to(self.device) for a in (labels, weights.astype(np.float32)))
        if len(rows) > self.recipe.schedule.batch_size:
            return StreamBatch(None, y, w, self._heads(0, known), rows=rows)
        return StreamBatch(self._inputs(rows), y, w, self._heads(0, known))

    def _inputs(self, rows: RowNumbers) -> Any:
        return self.net.inputs(torch.from_numpy(self.data.x[rows]).to(self.device))

    def parts(self, samples: StreamBatch) -> Iterator[tuple[StreamBatch, float]]:
        """Yield parts of a set, at most ``schedule.batch_size`` neighbouring samples, each with its share of the set.

        A mean loss over the set is the sum over the parts of the part's loss times its share.
        """
        if samples.inputs is not None or samples.rows is None:
            yield samples, 1.0
            return
        for places in in_parts(np.arange(len(samples.rows)), self.recipe.schedule.batch_size):
            at, share = torch.from_numpy(places).to(self.device), len(places) / len(samples.rows)
            of_part = samples.labels[at], samples.weights[..., at] / share, samples.heads
            yield StreamBatch(self._inputs(samples.rows[places]), *of_part), share

    def _batches(self, epoch: int) -> Iterator[StreamBatch]:
        """Yield all of ``train`` at once, or parts of nearly equal size in an order drawn for the epoch."""
        count = len(self.train.labels)
        parts = -(-count // self.recipe.schedule.batch_size)
        if parts == 1:
            yield self.train
            return
        labels = ",".join(map(str, self.train.labels.unique().tolist()))
        drawn = torch.randperm(
            count, generator=generator(self.seed, "graph_streams batches", f"{self.draws[0]}/{self.task}/{labels}/{epoch}")
        )
        for places in drawn.tensor_split(parts):
            inputs, places = self._inputs(self._rows[places.numpy()]), places.to(self.device)
            weights = self.train.weights[places]
            yield StreamBatch(inputs, self.train.labels[places], weights / weights.sum(), self.train.heads, places)

    def _heads(self, start: int, stop: int) -> Tensor:
        """(R, classes) bool: the classes of each stream's tasks start .. stop - 1."""
        mask = torch.zeros(len(self.orders), self.data.classes, dtype=torch.bool)
        for stream, order in enumerate(self.orders):
            mask[stream, [label for task in order[start:stop] for label in task]] = True
        return mask.to(self.device)

    def earlier(self, logits: Tensor, *, by_task: bool) -> list[Tensor]:
        """Outputs of the classes known before the task: (R, n, k) for each past task if ``by_task``, else for all together."""
        columns = self._columns if by_task else [torch.cat(self._columns, 1)]
        return [logits.gather(2, each[:, None].expand(-1, logits.shape[1], -1)) for each in columns]

    def parameters(self) -> dict[str, Tensor]:
        """All parameters under one name."""
        return {"flat": self.flat}

    def gradients(
        self, loss: Callable[[StreamStep], Tensor], samples: StreamBatch, *, twice: bool = False
    ) -> dict[str, Tensor]:
        """Gradient (R, P) of ``loss``, a mean over samples, under the parameters' name; ``twice``: see ``fit``.

        For a set larger than a batch, it is summed over ``parts``, and batch norm computes its moments in each part.
        """
        found = [self._gradient(loss(StreamStep(self, part, twice=twice)).sum() * share) for part, share in self.parts(samples)]
        return {"flat": functools.reduce(torch.add, found)}

    def topology_gradient(self, samples: StreamBatch) -> Tensor:
        """(R, P) the gradient of the attention's norm over all edges of a set."""
        norms, gradients = list[Tensor](), list[Tensor]()
        for part, _ in self.parts(samples):
            norm = StreamStep(self, part).topology()
            norms.append(norm.detach())
            gradients.append(self._gradient(norm.sum()))
        if len(norms) == 1:
            return gradients[0]
        whole = torch.stack(norms).norm(dim=0)  # d |a| = sum of |a_i| d |a_i|, over |a|
        return torch.stack([norm[:, None] * each for norm, each in zip(norms, gradients, strict=True)]).sum(0) / whole[:, None]

    def _gradient(self, total: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(total, self.flat, materialize_grads=True)
        return found

    def fit(
        self,
        loss: Callable[[StreamStep], Tensor],
        *,
        adjust: Callable[[Tensor], Tensor] | None = None,
        twice: bool = False,
    ) -> None:
        """Minimise ``loss``, a step a batch.

        Args:
            loss: (R,), or their sum.
            adjust: what the step is taken along, from the gradient (R, P).
            twice: the loss has a gradient in it.

        Raises:
            ArithmeticError: weights are no longer finite.
        """
        for epoch in range(self.recipe.schedule.passes(self.task)):
            for batch in self._batches(epoch):
                found = self.gradients(loss, batch, twice=twice)["flat"]
                self.flat.grad = found if adjust is None else adjust(found)
                self._optimiser.step()
        self.flat.grad = None
        broken = (~self.flat.detach().isfinite().all(1)).nonzero()
        if len(broken):
            raise ArithmeticError(
                f"weights are not finite after {self.recipe.method.name} on {self.orders[int(broken[0])]}: the learning rate "
                f"{self.recipe.schedule.learning_rate} or a strength in {dict(self.recipe.method.settings)} is too high"
            )

    def predict(self, rows: RowNumbers, inputs: Any = None) -> NDArray[np.int64]:
        """(R, n) the class whose logit is largest among those seen so far.

        Args:
            rows: (n,) row numbers in the data.
            inputs: the same samples as inputs of the network, if available and no more than a batch.
        """
        if not len(rows):
            return np.zeros((len(self.orders), 0), np.int64)
        logits = self._outputs(self.flat.detach(), self.statistics, rows, inputs)
        return logits.masked_fill(~self.train.heads[:, None], -torch.inf).argmax(2).cpu().numpy()

    @torch.no_grad()
    def _outputs(self, weights: Tensor, statistics: Tensor, rows: RowNumbers, inputs: Any) -> Tensor:
        """(R, n, classes) in evaluation mode, batch by batch if ``inputs`` is None."""
        if inputs is not None:
            return self.net.logits(weights, statistics, inputs, training=False)
        parts = in_parts(rows, self.recipe.schedule.batch_size)
        return torch.cat([self.net.logits(weights, statistics, self._inputs(part), training=False) for part in parts], dim=1)

    def saved(self) -> list[dict[str, Tensor]]:
        """State that each stream continues from, on the CPU."""
        moments = self._optimiser.state[self.flat]
        kept = {"weights": self.flat.detach(), "statistics": self.statistics, **self.state}
        kept |= {f"adam/{name}": moments[name] for name in ("exp_avg", "exp_avg_sq")}
        kept["adam/step"] = moments["step"].expand(len(self.orders))
        return [{name: value[r].cpu().clone() for name, value in kept.items()} for r in range(len(self.orders))]
