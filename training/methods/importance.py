"""What EWC, MAS and TWP share: a weight for each parameter and task, and the pull back to where the parameter was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..core.lesson import ForwardPass, Lesson
    from ..graph_streams.parallel_streams import Streams, StreamStep

    AnyLesson = Lesson | Streams
    AnyStep = ForwardPass | StreamStep
    """What ``teach`` is given: a lesson of one model, or of many streams side by side, which have the same members."""


def teach(lesson: AnyLesson, *, strength: float, loss: Callable[[Any], Tensor], weigh: Callable[[Tensor], Tensor]) -> None:
    """Take the importance for the last task, then train on this one under the pull of all tasks before.

    Importance is taken from the samples of the task before, at the start of this one, in training mode (so that dropout is on
    and the statistics of batch norm move), as the released codes do; a head that grows has its new outputs already.

    Args:
        strength: lambda of the penalty.
        loss: whose gradient, summed over all batches of the task before, is weighed.
        weigh: summed gradient -> importance >= 0.
    """
    previous: Any = lesson.previous
    if previous is not None:
        found: Mapping[str, Tensor] = lesson.gradients(loss, previous)
        keep(lesson, {name: weigh(gradient) for name, gradient in found.items()}, lesson.task - 1)
    fit_under_penalty(lesson, strength)


def keep(lesson: AnyLesson, weights: Mapping[str, Tensor], place: int) -> None:
    """Keep a weight for each parameter, and the parameters as they are, at a place of their own."""
    for name, parameter in lesson.parameters().items():
        lesson.state[f"{place:04}/importance/{name}"] = weights[name]
        lesson.state[f"{place:04}/value/{name}"] = parameter.detach().clone()


def fit_under_penalty(lesson: AnyLesson, strength: float) -> None:
    """Minimise the classification loss and ``strength`` times ``penalty``."""
    lesson.fit(lambda step: step.classification() + strength * penalty(lesson.parameters(), lesson.state))


def widened(values: Tensor, shape: torch.Size) -> Tensor:
    """``values`` with zeros behind them, where a parameter has got rows of new classes since."""
    if values.shape == shape:
        return values
    return torch.cat([values, values.new_zeros(shape[0] - len(values), *shape[1:])])


def penalty(parameters: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
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
