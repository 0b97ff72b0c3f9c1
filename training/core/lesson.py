"""A lesson: one task as a method sees it, with the model, the old model, the rows, and a loop that minimises a loss."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..data.examples import Draw, Examples, RowNumbers
from ..models.classifier import Classifier
from .batches import Batch, Means, batches, outputs
from .criteria import multi_hot, predicted_sets, sample_pw_jaccard
from .determinism import generator
from .schedule import Schedule

TensorState = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class ForwardPass:
    """One forward pass over ``batch``.

    Attributes:
        logits: (b, classes).
        embedded: input of the head: (b, width), or (b, segments, width).
    """

    lesson: Lesson
    batch: Batch
    logits: Tensor
    embedded: Tensor

    def before(self) -> Tensor:
        """The logits of the model from before the task, without gradient."""
        if self.lesson.teacher is None:
            raise RuntimeError("there is no task before the first")
        with torch.no_grad():
            return self.lesson.teacher(self.batch.x)

    def own_classification(self) -> Tensor:
        """The classification loss over the outputs of the task's own classes, on the first views."""
        lesson = self.lesson
        # A further domain adds no classes.
        start = lesson.old_classes if lesson.old_classes < lesson.model.classes else 0
        return lesson.over_classes(self.logits, self.batch.targets, start, lesson.model.classes)

    def classification(self) -> Tensor:
        """The classification loss L(F(x), y); with second views (1 - w) L(F(x), y) + w L(F(x_d), y).

        The second form is temporal consistency as in the vCLIMB paper. Both passes update the statistics of batch norm.
        """
        means = self.lesson.means
        plain = means.criterion(self.logits, self.batch.targets)
        if self.batch.second is None or means.second_weight == 0:
            return plain
        again = means.criterion(self.lesson.model(self.batch.second), self.batch.targets)
        return (1 - means.second_weight) * plain + means.second_weight * again


Loss = Callable[[ForwardPass], Tensor]
Watch = Callable[[Mapping[str, float], int], None]
Adjust = Callable[[Sequence[nn.Parameter]], None]


def ignore_values(values: Mapping[str, float], step: int) -> None:
    """Ignore the values of an epoch."""


@dataclasses.dataclass(kw_only=True)
class Lesson:
    """What a method may use in one task.

    Attributes:
        model: model to train, which already has outputs for the new classes.
        teacher: frozen copy of the model from before the task, in evaluation mode; None in the first task.
        train: samples that the method's rule chose: first those of the task, then past ones as the memory stores them.
        fresh: number of rows of ``train`` that belong to the task; they come first.
        rows: (n,) int64 row numbers in the stream of ``train``'s rows.
        starts: (task + 1,) int64, the first row number of each domain or task so far.
        capacity: capacity of the memory in the settings; None without a memory.
        second: the second view of each row of ``train``, or None.
        stored: returns the samples in the memory by past domain or task, as the memory stores them; empty without exemplars.
        previous: all training samples of the previous task; None in the first task.
        validate: validation sets, of all tasks so far or (IIRC) of this one; may be empty.
        state: tensors that the method keeps from task to task; saved with the model.
        task: 0-based.
        old_classes: number of classes known before the task; new classes have indices from here on. A further domain has none.
        curve: one record per epoch, JSON values.
        watch: called with the values of each epoch by name, and its number, 0-based; does not affect the training.
    """

    model: Classifier
    teacher: Classifier | None
    train: Examples
    fresh: int
    rows: RowNumbers
    starts: RowNumbers
    capacity: int | None
    second: Examples | None
    previous: Examples | None
    validate: Sequence[Examples]
    state: TensorState
    task: int
    old_classes: int
    means: Means
    curve: list[dict[str, float | int | str | None]] = dataclasses.field(default_factory=list)
    watch: Watch = ignore_values
    stored: Callable[[], Mapping[int, Examples]] = dict
    _fits: int = 0

    def __post_init__(self) -> None:
        self.model.dropout.generator = generator(self.means.seed, "dropout", str(self.task))

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

    def _order(self, groups: Sequence[RowNumbers], stage: str) -> tuple[RowNumbers, int]:
        """Rows of an epoch, and its batch size."""
        size = self.means.schedule.batch_size
        first = self.shuffled(groups[0], stage)
        columns = [first]
        for number, rows in enumerate(groups[1:], 1):
            times = math.ceil(len(first) / len(rows))
            repeated = [self._permuted(rows, f"{stage}/{number}/{time}") for time in range(times)]
            columns.append(np.concatenate(repeated)[: len(first)])
        if len(columns) == 1:
            return first, size
        cuts = [column[at : at + size] for at in range(0, len(first), size) for column in columns]
        return np.concatenate(cuts), size * len(groups)

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
        along: TensorState | None = None,
    ) -> None:
        """Minimise ``loss`` over ``rows`` of ``train``, with a fresh optimiser.

        Args:
            rows: all rows by default. With several groups, each batch has ``batch_size`` rows of each: an epoch passes once
                over the first group, and repeats the others, in a new order each time, until the first is finished.
            parameters: parameters to train; by default all that require a gradient.
            schedule: the learner's by default.
            evaluation_mode: no dropout, and batch norm's statistics are not updated.
            adjust: called after each backward pass, with the trained parameters, whose gradients it may change.
            stepped: called after each step of the optimiser.
            along: tensors that change during training; if an epoch is selected, they are reset to their values at its end.

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
        best: tuple[TensorState, TensorState] | None = None
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
            place = f"task_{self.task:02}" + (f"_fit_{self._fits}" if self._fits > 1 else "")
            self.watch({f"loss/{place}": mean, **({} if seen is None else {f"{named}/{place}": seen})}, epoch)
            if plan.select == "lowest_loss" and mean < lowest:
                lowest, best = mean, self._copies(along)
            if seen is None:
                continue
            if lowered is not None:
                lowered.step(seen)
            better = highest is None or seen > highest or (plan.ties == "last" and seen == highest)
            if plan.select == "validation" and better:
                highest, best = seen, self._copies(along)
        if best is not None:
            self.model.load_state_dict(best[0])
            for name, value in best[1].items():
                (along or {})[name].copy_(value)

    def parameters(self) -> TensorState:
        """Parameters that require a gradient, by name."""
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}

    def gradients(self, loss: Loss, samples: Examples) -> TensorState:
        """Gradients of ``loss`` by name, summed (not averaged) over the batches of ``samples``; zero for unused parameters.

        Computed in training mode: dropout is on, and the statistics of batch norm are updated.
        """
        self.model.train()
        self.model.zero_grad()
        stage = f"{self.task}/importance"
        for batch in batches(
            samples, self.shuffled(np.arange(len(samples.labels)), stage), Draw(self.means.seed, stage), self.means
        ):
            loss(self.step(batch)).backward()
        found = {
            name: torch.zeros_like(value) if value.grad is None else value.grad.detach().clone()
            for name, value in self.parameters().items()
        }
        self.model.zero_grad()
        return found

    def earlier(self, logits: Tensor, *, by_task: bool) -> Sequence[Tensor]:
        """Outputs of the classes known before the task: (b, k) for each past task if ``by_task``, else for all together."""
        tasks = self.model.groups[:-1] if by_task else ()
        # A further domain has all earlier classes.
        return logits[:, : self.old_classes].split(tasks if sum(tasks) == self.old_classes else (self.old_classes,), 1)

    def over_classes(self, logits: Tensor, targets: Tensor, start: int, stop: int) -> Tensor:
        """The classification loss over classes start .. stop - 1, the others left out."""
        wanted = multi_hot(targets, logits.shape[1])
        return self.means.criterion(logits[:, start:stop], wanted[:, start:stop])

    def _copies(self, along: TensorState | None) -> tuple[TensorState, TensorState]:
        weights, others = (
            {name: value.clone() for name, value in each.items()} for each in (self.model.state_dict(), along or {})
        )
        return weights, others

    def step(self, batch: Batch) -> ForwardPass:
        """Run a forward pass of the current model."""
        embedded = self.model.embed(batch.x)
        return ForwardPass(self, batch, self.model.head(embedded), embedded)

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
        view, ranks = Draw(self.means.seed, stage), self.means.ranks
        for batch in batches(self.train, order, view, self.means, second=self.second, size=size, shared=True):
            with self.together(batch):
                with torch.autocast(self.means.device.type, dtype=torch.float16, enabled=self._half(plan)):
                    value = _checked_loss(loss, self.step, batch, plan)
                if ranks is not None and batch.whole is not None:
                    value = value * ranks.share(batch.whole)
                optimiser.zero_grad()
                scaler.scale(value).backward()
            if ranks is not None:
                ranks.add_gradients(trained)
            if plan.clip_norm is not None or adjust is not None:
                scaler.unscale_(optimiser)
            if adjust is not None:
                adjust(trained)
            if plan.clip_norm is not None:
                nn.utils.clip_grad_norm_(trained, plan.clip_norm)
            scale = 0.0 if stepped is None else scaler.get_scale()  # reading it waits for the GPU
            scaler.step(optimiser)
            scaler.update()
            if stepped is not None and scaler.get_scale() >= scale:  # else gradients were not finite, and no step was taken
                stepped()
            total += value.detach() * (batch.whole or len(batch.rows))
        if ranks is not None:
            ranks.add(total)
        mean = float(total) / len(order)
        if not math.isfinite(mean):
            raise ArithmeticError(
                f"training loss is {mean} in epoch {stage.rpartition('/')[2]} of task {self.task}, at learning rate "
                f"{plan.learning_rate}: "
                "the rate or a penalty's weight is too high, or the inputs are not finite"
            )
        return mean

    def together(self, batch: Batch) -> contextlib.AbstractContextManager[None]:
        """Context for a forward pass and its gradients on a batch that processes share."""
        if self.means.ranks is None or batch.whole is None:
            return contextlib.nullcontext()
        return self.means.ranks.together(len(batch.rows), batch.whole)

    def _half(self, plan: Schedule) -> bool:
        return plan.mixed_precision and self.means.device.type == "cuda"

    def validation_score(self) -> float | None:
        """Accuracy of the head over all validation sets together, or pw-JS for sets of labels; None without validation sets."""
        total = sum(len(part.labels) for part in self.validate)
        return sum(self._score(part) for part in self.validate) / total if total else None

    def _score(self, part: Examples) -> float:
        """Score of a validation set, summed over samples."""
        logits = outputs(self.model, part, self.means)
        if self.means.sets:
            return float(sample_pw_jaccard(predicted_sets(logits), torch.from_numpy(part.labels)).sum())
        return int((logits.argmax(1).numpy() == part.labels).sum())


def _checked_loss(loss: Loss, step: Callable[[Batch], ForwardPass], batch: Batch, plan: Schedule) -> Tensor:
    try:
        return loss(step(batch))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            f"a batch has {len(batch.rows)} row, too few for the deviation of batch norm: the number of rows is a multiple of "
            f"batch_size = {plan.batch_size}, plus one: change it, or use larger pictures"
        ) from None


def frozen(model: Classifier) -> Classifier:
    """Return a copy in evaluation mode that needs no gradients."""
    model.dropout.generator = None  # a generator cannot be copied, and an evaluated model draws nothing
    found = copy.deepcopy(model)
    found.compiled = None  # it refers to the backbone of ``model``
    return found.eval().requires_grad_(False)
