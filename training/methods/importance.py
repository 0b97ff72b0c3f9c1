"""Penalty of EWC, MAS, SI and TWP: an importance per parameter and task, and the distance to the parameter's old value."""

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
    """Lessons and forward passes accepted here: of one model, or of many parallel streams, which have the same members."""


def teach(lesson: AnyLesson, *, strength: float, loss: Callable[[Any], Tensor], weigh: Callable[[Tensor], Tensor]) -> None:
    """Compute the importance for the previous task, then train on the current one with the penalty of all past tasks.

    Importance is computed on the samples of the previous task at the start of the current one, in training mode (dropout is on
    and the statistics of batch norm are updated), as in the released codes; a growing head already has its new outputs.

    Args:
        strength: lambda of the penalty.
        loss: loss whose gradient, summed over all batches of the previous task, is passed to ``weigh``.
        weigh: summed gradient -> importance >= 0.
    """
    previous: Any = lesson.previous
    if previous is not None:
        found: Mapping[str, Tensor] = lesson.gradients(loss, previous)
        keep(lesson, {name: weigh(gradient) for name, gradient in found.items()}, f"{lesson.task - 1:04}")
    fit_under_penalty(lesson, strength)


def keep(lesson: AnyLesson, weights: Mapping[str, Tensor], place: str) -> None:
    """Store the weights and the current values of all parameters in the lesson's state, under the name ``place``."""
    for name, parameter in lesson.parameters().items():
        lesson.state[f"{place}/importance/{name}"] = weights[name]
        lesson.state[f"{place}/value/{name}"] = parameter.detach().clone()


def fit_under_penalty(lesson: AnyLesson, strength: float) -> None:
    """Minimise the classification loss plus ``strength`` times ``penalty``."""
    lesson.fit(lambda step: step.classification() + strength * penalty(lesson.parameters(), lesson.state))


def widened(values: Tensor, shape: torch.Size) -> Tensor:
    """Return ``values``, padded with zeros to ``shape`` if the parameter has gained rows for new classes."""
    if values.shape == shape:
        return values
    return torch.cat([values, values.new_zeros(shape[0] - len(values), *shape[1:])])


def penalty(parameters: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
    """The sum over tasks and parameters of F (theta - theta*)^2, without the factor 1/2.

    A parameter that has grown is compared only on its old rows.
    """
    terms: list[Tensor] = []
    for name, importance in state.items():
        if "/importance/" in name:
            parameter = parameters[name.split("/", 2)[2]]
            if importance.ndim:
                parameter = parameter[: len(importance)]
            terms.append((importance * (parameter - state[name.replace("/importance/", "/value/")]) ** 2).sum())
    return torch.stack(terms).sum() if terms else torch.zeros(())
