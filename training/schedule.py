"""How the model of a task is optimised, and which epoch is kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Settings of a task's training. No defaults: a paper or a config says each. The optimiser is fresh for every task.

    Attributes:
        optimiser: "sgd", "adagrad" or "adam".
        learning_rate: constant: the released vCLIMB code lists milestones, and no scheduler takes them.
        momentum: of SGD; others have none.
        weight_decay: L2 penalty on all parameters.
        epochs: passes over the rows.
        batch_size: rows a step.
        drop_last: leave out the last incomplete batch of an epoch, unless it is the only one (our choice).
        clip_norm: largest norm of the whole gradient; None: no limit.
        mixed_precision: float16 where the device is CUDA; elsewhere float32.
        select: "validation" keeps the weights of the epoch with the best validation accuracy, the first of equals;
            "none" those of the last.
        eval_every: epochs between two looks at the validation accuracy; the last epoch is looked at too (our choice).
        first_best: what the first look must beat: nothing, or the accuracy before training ("before_training": the
            released EWC and MAS; where no look does, the weights of the last epoch stay).
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
    select: Literal["validation", "none"]
    eval_every: int
    first_best: Literal["nothing", "before_training"]

    def __post_init__(self) -> None:
        if self.optimiser not in ("sgd", "adagrad", "adam"):
            raise ValueError(f"optimiser {self.optimiser!r}: 'sgd', 'adagrad' or 'adam'")
        if self.select not in ("validation", "none") or self.first_best not in ("nothing", "before_training"):
            raise ValueError(f"select {self.select!r}, first_best {self.first_best!r}: no such words")
        if self.epochs < 1 or self.batch_size < 1 or self.eval_every < 1:
            raise ValueError(
                f"epochs {self.epochs}, batch_size {self.batch_size}, eval_every {self.eval_every}: at least 1 each"
            )
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate {self.learning_rate} must be positive and finite")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm {self.clip_norm} must be positive, or None")

    def make(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """A fresh optimiser."""
        if self.optimiser == "sgd":
            return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay)
        kind = torch.optim.Adagrad if self.optimiser == "adagrad" else torch.optim.Adam
        return kind(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)

    def looked_at(self, epoch: int) -> bool:
        """Whether the validation accuracy is taken after ``epoch`` (0-based)."""
        return self.select == "validation" and ((epoch + 1) % self.eval_every == 0 or epoch == self.epochs - 1)
