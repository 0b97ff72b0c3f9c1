"""CWR* (Maltoni and Lomonaco, Neural Networks 2019): the head's weights of each position are averaged, the rest is frozen."""

from __future__ import annotations

import numpy as np
import torch

from ..core.lesson import Lesson
from .finetune import present
from .method import Method


def cwr() -> Method:
    """Trains the whole model on the first domain or task, and its head alone from then on.

    Before a training the head's weights of the present classes are the consolidated ones, those of other classes 0. After it
    the weights w of each present class, less the mean of all their entries, join the consolidated ones c:
    (c sqrt(past / now) + w) / (sqrt(past / now) + 1), where past and now are the class's samples. Biases are trained
    throughout. The frozen part is in evaluation mode; Avalanche leaves it in training mode, where the statistics of batch
    norm move on.

    >>> cwr().exemplars is None  # no sample is kept
    True
    """
    return Method("cwr", present, "finetune", {}, _teach, labels=("one",), together=True)


def _teach(lesson: Lesson) -> None:
    model, state = lesson.model, lesson.state
    classes, width = model.weight.shape
    kept = torch.zeros(classes, width, device=model.weight.device)
    past = torch.zeros(classes, device=model.weight.device)
    if "weights" in state:
        kept[: len(state["weights"])], past[: len(state["past"])] = state["weights"], state["past"]
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
        past[here] += now[here]
        model.weight.copy_(kept)
    state["weights"], state["past"] = kept, past
