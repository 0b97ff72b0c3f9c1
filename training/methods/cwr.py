"""CWR* (Maltoni and Lomonaco, Neural Networks 2019): the head's weights of each position are averaged, the rest is frozen."""

from __future__ import annotations

import functools
from typing import Literal, get_args

import numpy as np
import torch

from ..core.lesson import Lesson
from .finetune import present
from .method import Method

Form = Literal["as_written", "as_released"]


def cwr(*, form: Form = "as_written") -> Method:
    """Trains the whole model on the first domain or task, then only its head.

    Before a training the head's weights of the present classes are the consolidated ones, those of other classes 0. After it
    the weights w of each present class, less the mean of all their entries, join the consolidated ones c:
    (c sqrt(past / now) + w) / (sqrt(past / now) + 1), where past and now are the class's samples. Biases are trained
    throughout. The frozen part is in evaluation mode, so that batch norm's statistics stay.

    Args:
        form: "as_released" is Avalanche's of 2021, which CLEAR ran: the samples that bring a class are not counted as past, so
            that the second position's weights take the place of the first's. Avalanche 0.6.0 counts them ("as_written").

    Raises:
        ValueError: ``form`` is no such word.

    >>> cwr().exemplars is None  # no sample is kept
    True
    """
    if form not in get_args(Form):
        raise ValueError(f"cwr: form {form!r}: one of {', '.join(get_args(Form))}")
    teach = functools.partial(_teach, released=form == "as_released")
    return Method("cwr", present, "finetune", {"form": form}, teach, labels=("one",), together=True)


def _teach(lesson: Lesson, *, released: bool) -> None:
    model, state = lesson.model, lesson.state
    classes, width = model.weight.shape
    kept = torch.zeros(classes, width, device=model.weight.device)
    past, known = torch.zeros(classes, device=model.weight.device), torch.zeros(classes, device=model.weight.device)
    for name, values in (("weights", kept), ("past", past), ("known", known)):
        if name in state:
            values[: len(state[name])] = state[name]
    now = torch.from_numpy(np.bincount(lesson.train.labels, minlength=classes)).to(past)
    here = now > 0
    with torch.no_grad():
        model.weight.copy_(torch.where(here[:, None], kept, 0.0))
    if lesson.task == 0:
        lesson.fit(lambda step: step.classification())
    else:
        head = [value for value in (model.weight, model.bias, model.eta) if value is not None and value.requires_grad]
        lesson.fit(lambda step: step.classification(), parameters=head, evaluation_mode=True)
    with torch.no_grad():
        centred = model.weight[here] - model.weight[here].mean()
        share = (past[here] / now[here]).sqrt()[:, None]
        kept[here] = (kept[here] * share + centred) / (share + 1)
        past[here] += now[here] * known[here] if released else now[here]
        known[here] = 1
        model.weight.copy_(kept)
    state["weights"], state["past"], state["known"] = kept, past, known
