"""One task as a method sees it: the model, the model as it was, the rows, and a loop that minimises a loss."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..data.examples import Draw, Examples, RowNumbers
from ..models.classifier import Classifier
from .batches import Batch, Means, batches, outputs
from .determinism import generator
from .label_sets import precision_weighted_jaccard, predicted_sets
from .schedule import Schedule

State = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Step:
    """One forward pass over ``batch``.

    Attributes:
        logits: (b, classes).
        embedded: what the head was given: (b, width), or (b, segments, width).
    """

    lesson: Lesson
    batch: Batch
    logits: Tensor
    embedded: Tensor

    def classification(self) -> Tensor:
        """The classification loss L(F(x), y); with second views (1 - w) L(F(x), y) + w L(F(x_d), y).

        The second is temporal consistency as the vCLIMB paper has it. Both passes move the statistics of batch norm.
        """
        means = self.lesson.means
        plain = means.criterion(self.logits, self.batch.targets)
        if self.batch.second is None or means.second_weight == 0:
            return plain
        again = means.criterion(self.lesson.model(self.batch.second), self.batch.targets)
        return (1 - means.second_weight) * plain + means.second_weight * again


Loss = Callable[[Step], Tensor]
Adjust = Callable[[Sequence[nn.Parameter]], None]


class Lesson:
    """What a method may use in one task.

    Attributes:
        model: to be trained, with outputs for the new classes already.
        teacher: the model as it was before, in evaluation mode and frozen; None in the first task.
        train: the rows that the method's rule chose, rows of the task first, then those of the past, as they are kept.
        fresh: how many of ``train``'s first rows are the task's.
        rows: (n,) int64 row numbers in the stream of ``train``'s rows.
        starts: (task + 1,) int64, the first row number of each domain or task so far.
        capacity: of the memory, as the settings have it; None where there is no memory.
        second: the second view of each row of ``train``, or None.
        previous: the rows of the task before, as they were; None in the first task.
        validate: validation sets, of all tasks so far or (IIRC) of this one; empty where there is none.
        state: tensors that the method keeps from task to task; saved with the model.
        task: 0-based.
        old_classes: classes known before it; the new ones have the indices from here on. A further domain brings none.
        curve: a record an epoch, JSON values.
    """

    def __init__(
        self,
        *,
        model: Classifier,
        teacher: Classifier | None,
        train: Examples,
        fresh: int,
        rows: RowNumbers,
        starts: RowNumbers,
        capacity: int | None,
        second: Examples | None,
        previous: Examples | None,
        validate: Sequence[Examples],
        state: State,
        task: int,
        old_classes: int,
        means: Means,
    ) -> None:
        self.model, self.teacher = model, teacher
        self.train, self.fresh, self.second, self.previous = train, fresh, second, previous
        self.rows, self.starts, self.capacity = rows, starts, capacity
        self.validate, self.state, self.task, self.means = validate, state, task, means
        self.old_classes = old_classes
        self.curve: list[dict[str, float | int | str | None]] = []
        self._fits = 0
        model.dropout.generator = generator(means.seed, "dropout", str(task))

    @property
    def positions(self) -> RowNumbers:
        """(n,) int64: the domain or task of each row of ``train``."""
        return np.searchsorted(self.starts, self.rows, side="right") - 1

    def shuffled(self, rows: RowNumbers, stage: str) -> RowNumbers:
        """``rows`` in an order that depends on (seed, stage) alone, without the last incomplete batch under ``drop_last``."""
        order = self._permuted(rows, stage)
        whole = len(order) // self.means.schedule.batch_size * self.means.schedule.batch_size
        return order[:whole] if self.means.schedule.drop_last and whole else order

    def _permuted(self, rows: RowNumbers, stage: str) -> RowNumbers:
        return rows[torch.randperm(len(rows), generator=generator(self.means.seed, "order", stage)).numpy()]

    def fit(
        self,
        loss: Loss,
        *,
        rows: RowNumbers | Sequence[RowNumbers] | None = None,
        parameters: Sequence[nn.Parameter] | None = None,
        schedule: Schedule | None = None,
        evaluation_mode: bool = False,
        adjust: Adjust | None = None,
        stepped: Callable[[], None] | None = None,
    ) -> None:
        """Minimise ``loss`` over ``rows`` of ``train``, with a fresh optimiser.

        Args:
            rows: all of them by default. Of several groups each batch has ``batch_size`` rows of each: an epoch passes once
                over the first, and over the others as often as that takes, in a new order each time.
            parameters: to be trained; by default all of the model that ask for a gradient.
            schedule: the learner's by default.
            evaluation_mode: no dropout, and batch norm's statistics stay.
            adjust: called after each backward pass, with the trained parameters, whose gradients it may change.
            stepped: called after each step of the optimiser.

        Raises:
            ArithmeticError: the loss is no longer finite.
        """
        plan = schedule or self.means.schedule
        groups = [np.arange(len(self.train.labels))] if rows is None else [rows] if isinstance(rows, np.ndarray) else list(rows)
        trained = [p for p in self.model.parameters() if p.requires_grad] if parameters is None else list(parameters)
        optimiser = plan.make(trained)
        lowered = plan.lowered(optimiser)
        # float16 has too narrow a range for gradients: they are scaled up before, and down after.
        scaler = torch.amp.GradScaler(self.means.device.type, enabled=self._half(plan))
        self._fits += 1
        best: State = {}
        lowest = math.inf
        highest = self.validation_score() if plan.select == "validation" and plan.first_best == "before_training" else None
        epochs = plan.passes(self.task)
        named = "validation_pw_js" if self.means.sets else "validation_accuracy"
        for epoch in range(epochs):
            stage = f"{self.task}/{self._fits}/{epoch}"
            self.model.train(not evaluation_mode)
            plan.decay(optimiser, epoch)
            mean = self._epoch(loss, groups, trained, optimiser, scaler, plan, stage, adjust, stepped)
            seen = self.validation_score() if plan.looked_at(epoch, epochs) else None
            self.curve.append({"fit": self._fits, "epoch": epoch, "loss": mean, named: seen})
            if plan.select == "lowest_loss" and mean < lowest:
                lowest, best = mean, self._weights()
            if seen is None:
                continue
            if lowered is not None:
                lowered.step(seen)
            better = highest is None or seen > highest or (plan.ties == "last" and seen == highest)
            if plan.select == "validation" and better:
                highest, best = seen, self._weights()
        if best:
            self.model.load_state_dict(best)

    def _weights(self) -> State:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def step(self, batch: Batch) -> Step:
        """A forward pass of the model as it is."""
        embedded = self.model.embed(batch.x)
        return Step(self, batch, self.model.head(embedded), embedded)

    def _epoch(
        self,
        loss: Loss,
        groups: Sequence[RowNumbers],
        trained: Sequence[nn.Parameter],
        optimiser: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        plan: Schedule,
        stage: str,
        adjust: Adjust | None,
        stepped: Callable[[], None] | None,
    ) -> float:
        order, size = self._order(groups, stage)
        total = torch.zeros((), dtype=torch.float64, device=self.means.device)
        for batch in batches(self.train, order, Draw(self.means.seed, stage), self.means, second=self.second, size=size):
            with torch.autocast(self.means.device.type, dtype=torch.float16, enabled=self._half(plan)):
                value = loss(self.step(batch))
            optimiser.zero_grad()
            scaler.scale(value).backward()
            if plan.clip_norm is not None or adjust is not None:
                scaler.unscale_(optimiser)
            if adjust is not None:
                adjust(trained)
            if plan.clip_norm is not None:
                nn.utils.clip_grad_norm_(trained, plan.clip_norm)
            scaler.step(optimiser)
            scaler.update()
            if stepped is not None:
                stepped()
            total += value.detach() * len(batch.rows)
        mean = float(total) / len(order)
        if not math.isfinite(mean):
            raise ArithmeticError(
                f"training loss is {mean} in task {self.task}, stage {stage}, at learning rate {plan.learning_rate}: "
                "the rate or a penalty's weight is too high, or the inputs are not finite"
            )
        return mean

    def _order(self, groups: Sequence[RowNumbers], stage: str) -> tuple[RowNumbers, int]:
        """Rows of an epoch, and the size of its batches."""
        size = self.means.schedule.batch_size
        if len(groups) == 1:
            return self.shuffled(groups[0], stage), size
        first = self.shuffled(groups[0], stage)
        columns = [first]
        for number, rows in enumerate(groups[1:], 1):
            times = math.ceil(len(first) / len(rows))
            columns.append(np.concatenate([self._permuted(rows, f"{stage}/{number}/{time}") for time in range(times)]))
        cuts = [column[at : at + size] for at in range(0, len(first), size) for column in (c[: len(first)] for c in columns)]
        return np.concatenate(cuts), size * len(groups)

    def _half(self, plan: Schedule) -> bool:
        return plan.mixed_precision and self.means.device.type == "cuda"

    def validation_score(self) -> float | None:
        """Accuracy of the head over all validation sets together, or pw-JS where labels are sets; None where there is none."""
        total = sum(len(part.labels) for part in self.validate)
        return sum(self._score(part) for part in self.validate) / total if total else None

    def _score(self, part: Examples) -> float:
        """Summed over samples."""
        logits = outputs(self.model, part, self.means)
        if self.means.sets:
            return float(precision_weighted_jaccard(predicted_sets(logits), torch.from_numpy(part.labels)).sum())
        return int((logits.argmax(1).numpy() == part.labels).sum())


def frozen(model: Classifier) -> Classifier:
    """A copy in evaluation mode that no gradient reaches."""
    model.dropout.generator = None  # a generator cannot be copied, and an evaluated model draws nothing
    return copy.deepcopy(model).eval().requires_grad_(False)
