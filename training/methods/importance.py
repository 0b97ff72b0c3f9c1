"""What EWC and MAS share: a weight for each parameter and task, and the pull back to where the parameter was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..core.batches import batches
from ..core.lesson import Lesson, Loss, State
from ..data.examples import Draw

Importance = Callable[[Tensor], Tensor]


def teach(lesson: Lesson, *, strength: float, loss: Loss, weigh: Importance) -> None:
    """Take the importance for the last task, then train on this one under the pull of all tasks before.

    Importance is taken from the samples of the task before, at the start of this one, when the head has its new outputs
    already, in training mode (so that dropout is on and the statistics of batch norm move), as the released code does.

    Args:
        strength: lambda of the penalty.
        loss: whose gradient, summed over all batches of the task before, is weighed.
        weigh: summed gradient -> importance >= 0.
    """
    if lesson.previous is not None:
        summed = summed_gradients(lesson, loss)
        for name, parameter in trained(lesson).items():
            lesson.state[f"{lesson.task - 1:04}/importance/{name}"] = weigh(summed[name])
            lesson.state[f"{lesson.task - 1:04}/value/{name}"] = parameter.detach().clone()
    fit(lesson, strength)


def fit(lesson: Lesson, strength: float) -> None:
    """Train on the task under the pull of what is in the state."""
    lesson.fit(lambda step: step.classification() + strength * penalty(trained(lesson), lesson.state))


def trained(lesson: Lesson) -> dict[str, Tensor]:
    """Parameters that ask for a gradient, by name."""
    return {name: value for name, value in lesson.model.named_parameters() if value.requires_grad}


def summed_gradients(lesson: Lesson, loss: Loss) -> State:
    """Gradients of ``loss`` summed over the batches of the task before: neither squared nor averaged; zero where unused."""
    if lesson.previous is None:
        raise RuntimeError("there is no task before the first")
    lesson.model.train()
    lesson.model.zero_grad()
    stage = f"{lesson.task}/importance"
    order = lesson.shuffled(np.arange(len(lesson.previous.labels)), stage)
    for batch in batches(lesson.previous, order, Draw(lesson.means.seed, stage), lesson.means):
        loss(lesson.step(batch)).backward()
    found = {
        name: torch.zeros_like(value) if value.grad is None else value.grad.detach().clone()
        for name, value in trained(lesson).items()
    }
    lesson.model.zero_grad()
    return found


def widened(values: Tensor, shape: torch.Size) -> Tensor:
    """``values`` with zeros behind them, where a parameter has got rows of new classes since."""
    if values.shape == shape:
        return values
    return torch.cat([values, values.new_zeros(shape[0] - len(values), *shape[1:])])


def penalty(parameters: dict[str, Tensor], state: State) -> Tensor:
    """The sum over tasks and parameters of F (theta - theta*)^2, without one half.

    A parameter that has grown since is compared on the rows that it had.
    """
    terms: list[Tensor] = []
    for name, importance in state.items():
        if "/importance/" in name:
            parameter = parameters[name.split("/", 2)[2]]
            if importance.ndim:
                parameter = parameter[: len(importance)]
            terms.append((importance * (parameter - state[name.replace("/importance/", "/value/")]) ** 2).sum())
    return torch.stack(terms).sum() if terms else torch.zeros(())
