"""CWR* (Maltoni and Lomonaco, Neural Networks 2019): the head's weights are averaged over positions, the rest is frozen."""

from __future__ import annotations

import functools

import numpy as np
import torch

from ...curation.registry import checked
from ..core.lesson import Lesson
from .finetune import present
from .method import Method, PaperForm


@checked
def cwr(*, form: PaperForm = "as_written") -> Method:
    """Trains the whole model on the first domain or task, then only its head.

    Before each training, the head's weights are set to the consolidated weights for the present classes, and to 0 for all
    others. Afterwards, the weights w of each present class, minus the mean over the entries of all present classes, are merged
    into the consolidated weights c: (c sqrt(past / now) + w) / (sqrt(past / now) + 1), where past and now count the class's
    samples. Biases are always trained. The frozen part runs in evaluation mode, so batch norm's statistics do not change.

    Args:
        form: "as_released" follows Avalanche's code of 2021, which CLEAR ran: samples of the position that introduces a class
            are not counted as past, so the weights of the second position replace those of the first. Avalanche 0.6.0 counts
            them ("as_written").

    >>> cwr().exemplars is None  # no sample is kept
    True
    """
    teach = functools.partial(_teach, released=form == "as_released")
    return Method("cwr", present, "finetune", teach=teach, labels=("one",), together=True)


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
