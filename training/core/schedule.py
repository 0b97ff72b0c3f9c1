"""How the model of a task is optimised, and which epoch is kept."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable
from typing import Literal, TypeVar, cast

import torch
from torch import Tensor

Kind = TypeVar("Kind", bound=torch.optim.Optimizer)

_WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
"""Methods besides ``step`` that torch hides from its compiler, and loads it for that, when the first optimiser is made: a
second and more of every process that trains. Where ``compile`` is set the model alone is compiled."""


def _plain(kind: type[Kind]) -> type[Kind]:
    """The kind with the same methods as they are written."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return cast(type[Kind], type(kind.__name__, (kind,), methods))


SGD = _plain(torch.optim.SGD)
Adagrad = _plain(torch.optim.Adagrad)
Adam = _plain(torch.optim.Adam)


@dataclasses.dataclass(frozen=True)
class Plateau:
    """Multiply the rate by ``factor`` when more than ``patience`` looks at the validation samples gained no ``threshold``.

    The threshold is absolute. torch's ``ReduceLROnPlateau``.
    """

    factor: float
    patience: int
    threshold: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1 or self.patience < 0 or self.threshold < 0:
            raise ValueError(f"{self}: the factor must be between 0 and 1, the others not negative")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Settings of a task's training; a paper or a config says each. The optimiser is fresh for every task.

    Attributes:
        optimiser: "sgd", "adagrad" or "adam".
        learning_rate: constant without a ``plateau``: the released vCLIMB code lists milestones, and no scheduler takes them.
        momentum: of SGD; others have none.
        weight_decay: L2 penalty on all parameters.
        epochs: passes over the rows.
        batch_size: rows a step.
        drop_last: leave out the last incomplete batch of an epoch, unless it is the only one (our choice).
        clip_norm: largest norm of the whole gradient; None: no limit.
        mixed_precision: float16 where the device is CUDA; elsewhere float32.
        select: "validation" keeps the weights of the epoch with the best validation accuracy, the first of equals;
            "lowest_loss" those of the epoch whose mean training loss is lowest (CLEAR's released code, where the paper is
            silent); "none" those of the last.
        eval_every: epochs between two looks at the validation accuracy; the last epoch is looked at too (our choice).
        first_best: what the first look must beat: nothing, or the accuracy before training ("before_training": the
            released EWC and MAS; where no look does, the weights of the last epoch stay).
        ties: which of equally good epochs is kept: "first", or "last" (IIRC's released code).
        plateau: lowers the rate as the validation score stands; None: it stays.
        first_task_times: how many times ``epochs`` the first task has (IIRC: 2).
        decay_after_epochs: from this epoch on the rate is multiplied by ``decay_factor``; None: it is not.
        decay_factor: see above.
        decay_every_epochs: it is so after every so many epochs; None: it is not.
        compile: the backbone is compiled by ``torch.compile``, which adds up in another order: results differ in their last
            bits, and a C++ compiler is needed.
    """

    optimiser: Literal["sgd", "adagrad", "adam"]
    learning_rate: float
    momentum: float
    weight_decay: float
    epochs: int
    batch_size: int
    drop_last: bool
    clip_norm: float | None
    mixed_precision: bool
    select: Literal["validation", "lowest_loss", "none"]
    eval_every: int
    first_best: Literal["nothing", "before_training"]
    ties: Literal["first", "last"] = "first"
    plateau: Plateau | None = None
    first_task_times: int = 1
    decay_after_epochs: int | None = None
    decay_factor: float = 0.1
    decay_every_epochs: int | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Schedule)
        for name in ("optimiser", "select", "first_best", "ties"):
            if (word := getattr(self, name)) not in (words := typing.get_args(hints[name])):
                raise ValueError(f"{name} {word!r}: one of {', '.join(map(repr, words))}")
        if min(self.epochs, self.batch_size, self.eval_every, self.first_task_times) < 1:
            raise ValueError(
                f"epochs {self.epochs}, batch_size {self.batch_size}, eval_every {self.eval_every}, "
                f"first_task_times {self.first_task_times}: at least 1 each"
            )
        if self.decay_every_epochs is not None and self.decay_every_epochs < 1:
            raise ValueError(f"decay_every_epochs {self.decay_every_epochs}: at least 1, or None")
        if not 0 < self.learning_rate < 3e38:  # of float32, as weights are
            raise ValueError(f"learning_rate {self.learning_rate} must be positive, and below 3e38")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm {self.clip_norm} must be positive, or None")

    def make(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """A fresh optimiser."""
        if self.optimiser == "sgd":
            return SGD(parameters, lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay)
        if self.optimiser == "adam":  # one pass over the weights; torch's other forms take five times as long on a CPU
            return Adam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)
        return Adagrad(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)

    def passes(self, task: int) -> int:
        """Epochs of ``task`` (0-based)."""
        return self.epochs * (1 if task else self.first_task_times)

    def decay(self, optimiser: torch.optim.Optimizer, epoch: int) -> None:
        """Lower the rate where ``epoch`` (0-based) begins a stretch: ``decay_after_epochs``, ``decay_every_epochs``."""
        again = self.decay_every_epochs is not None and epoch > 0 and epoch % self.decay_every_epochs == 0
        if epoch == self.decay_after_epochs or again:
            for group in optimiser.param_groups:
                group["lr"] *= self.decay_factor

    def lowered(self, optimiser: torch.optim.Optimizer) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
        """What lowers the rate, told the validation score after each look; None if nothing does."""
        if self.plateau is None:
            return None
        p = self.plateau
        return torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimiser, mode="max", factor=p.factor, patience=p.patience, threshold=p.threshold, threshold_mode="abs"
        )

    def looked_at(self, epoch: int, epochs: int) -> bool:
        """Whether the validation score is taken after ``epoch`` (0-based) of ``epochs``."""
        wanted = self.select == "validation" or self.plateau is not None
        return wanted and ((epoch + 1) % self.eval_every == 0 or epoch == epochs - 1)
