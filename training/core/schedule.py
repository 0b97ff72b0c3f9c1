"""How the model of a task is optimised, and which epoch is kept."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Literal, TypeVar, cast

import torch
from torch import Tensor

from ...curation.registry import check_values

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)

_WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
"""Methods besides ``step`` that torch hides from its compiler. To do so, it loads the compiler when the first optimiser is
made, which costs each training process a second or more. With ``compile``, only the model is compiled."""


def _plain(kind: type[AnyOptimizer]) -> type[AnyOptimizer]:
    """A subclass of an optimiser with these methods unwrapped."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return cast(type[AnyOptimizer], type(kind.__name__, (kind,), methods))


SGD = _plain(torch.optim.SGD)
Adagrad = _plain(torch.optim.Adagrad)
Adam = _plain(torch.optim.Adam)
LBFGS = _plain(torch.optim.LBFGS)


@dataclasses.dataclass(frozen=True)
class Plateau:
    """Multiply the learning rate by ``factor`` after more than ``patience`` validations without a gain of ``threshold``.

    Torch's ``ReduceLROnPlateau`` with an absolute threshold.
    """

    factor: float
    patience: int
    threshold: float

    def __post_init__(self) -> None:
        check_values(Plateau, vars(self))
        if not 0 < self.factor < 1 or self.patience < 0 or self.threshold < 0:
            raise ValueError(f"{self}: the factor must be between 0 and 1, the others not negative")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Settings of a task's training, each from a paper or a config. Every task has a new optimiser.

    Attributes:
        optimiser: "sgd", "adagrad" or "adam".
        learning_rate: constant without ``plateau`` or decay: the released vCLIMB code lists milestones that no scheduler uses.
        momentum: momentum of SGD; the others have none.
        weight_decay: L2 penalty on all parameters.
        epochs: passes over the rows.
        batch_size: rows per step.
        drop_last: leave out the last incomplete batch of an epoch, unless it is the only one (our choice).
        clip_norm: maximum norm of the whole gradient; None: no limit.
        mixed_precision: float16 on CUDA; float32 on other devices.
        select: "validation" keeps the weights of the epoch with the best validation score, see ``ties``; "lowest_loss" those of
            the epoch with the lowest mean training loss (CLEAR's released code; the paper does not say); "none" those of the
            last epoch.
        eval_every: epochs between two validations; the last epoch is validated too (our choice).
        first_best: what the first validation must exceed: "nothing", or the score before training ("before_training": the
            released EWC and MAS; if no validation exceeds it, the weights of the last epoch stay).
        ties: which of equally good epochs is kept: "first", or "last" (IIRC's released code).
        plateau: lowers the learning rate when the validation score stagnates; None: it does not.
        first_task_times: factor on ``epochs`` for the first task (IIRC: 2).
        decay_after_epochs: epoch at which the learning rate is multiplied by ``decay_factor``; None: never.
        decay_factor: see above.
        decay_every_epochs: number of epochs after each of which the learning rate is multiplied by ``decay_factor``; None: it
            is not.
        compile: compile the backbone with ``torch.compile``, which sums in another order: results differ in their last bits,
            and a C++ compiler is needed.
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
        check_values(Schedule, vars(self))
        if min(self.epochs, self.batch_size, self.eval_every, self.first_task_times) < 1:
            raise ValueError(
                f"epochs {self.epochs}, batch_size {self.batch_size}, eval_every {self.eval_every}, "
                f"first_task_times {self.first_task_times}: at least 1 each"
            )
        if self.decay_every_epochs is not None and self.decay_every_epochs < 1:
            raise ValueError(f"decay_every_epochs {self.decay_every_epochs}: at least 1, or None")
        if not 0 < self.learning_rate < 3e38:  # the range of float32, the dtype of weights
            raise ValueError(f"learning_rate {self.learning_rate} must be positive, and below 3e38")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm {self.clip_norm} must be positive, or None")

    def make(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """Return a new optimiser."""
        if self.optimiser == "sgd":
            return SGD(parameters, lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay)
        if self.optimiser == "adam":  # one pass over the weights; torch's other forms take five times as long on a CPU
            return Adam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)
        return Adagrad(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)

    def passes(self, task: int) -> int:
        """Number of epochs for ``task`` (0-based)."""
        return self.epochs * (1 if task else self.first_task_times)

    def decay(self, optimiser: torch.optim.Optimizer, epoch: int) -> None:
        """Lower the learning rate if it decays at ``epoch`` (0-based): see ``decay_after_epochs``, ``decay_every_epochs``."""
        again = self.decay_every_epochs is not None and epoch > 0 and epoch % self.decay_every_epochs == 0
        if epoch == self.decay_after_epochs or again:
            for group in optimiser.param_groups:
                group["lr"] *= self.decay_factor

    def lowered(self, optimiser: torch.optim.Optimizer) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
        """Return the scheduler that lowers the learning rate, given the score at each validation; None without ``plateau``."""
        if self.plateau is None:
            return None
        p = self.plateau
        return torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimiser, mode="max", factor=p.factor, patience=p.patience, threshold=p.threshold, threshold_mode="abs"
        )

    def looked_at(self, epoch: int, epochs: int) -> bool:
        """Whether the validation score is computed after ``epoch`` (0-based) of ``epochs``."""
        wanted = self.select == "validation" or self.plateau is not None
        return wanted and ((epoch + 1) % self.eval_every == 0 or epoch == epochs - 1)
