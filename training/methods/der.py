"""Dark experience replay (Buzzega et al., NeurIPS 2020): DER, and DER++."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..core.batches import outputs
from ..core.lesson import ForwardPass, Lesson
from .er import replay
from .method import Method

DerSampler = Literal["reservoir", "balanced_reservoir", "random"]


def der(*, alpha: float, beta: float, memory: DerSampler = "reservoir") -> Method:
    """Loss: classification of new samples + alpha MSE to stored logits (equation 6) + beta classification of stored samples.

    Each batch has equally many stored and new samples. The stored logits are those of the model at the end of the sample's own
    domain or task (the paper stores them during training, in one pass over the stream); classes added later have none.

    Args:
        alpha: weight of the MSE, a mean over samples and over the outputs that existed when the logits were stored.
        beta: weight of the classification of stored samples: 0 is DER, above 0 DER++.
        memory: how the memory is sampled: uniformly from the stream ("reservoir") or from each class ("balanced_reservoir"), or
            with vCLIMB's quotas ("random").

    >>> der(alpha=0.5, beta=0.5).exemplars
    'reservoir'
    """
    teach = functools.partial(_teach, alpha=alpha, beta=beta)
    return Method("der", replay, "finetune", teach=teach, exemplars=memory)


def _teach(lesson: Lesson, *, alpha: float, beta: float) -> None:
    fresh = lesson.fresh
    if lesson.teacher is None or fresh == len(lesson.rows):
        lesson.fit(lambda step: step.classification())
        return
    then = _logits(lesson).to(lesson.means.device)

    def loss(step: ForwardPass) -> Tensor:
        old = (step.batch.rows >= fresh).to(step.logits.device)
        value = torch.zeros((), device=step.logits.device)
        if not bool(old.all()):
            value = lesson.means.criterion(step.logits[~old], step.batch.targets[~old])
        if bool(old.any()):
            wanted = then[step.batch.rows.to(then.device)[old] - fresh]
            there = ~wanted.isnan()
            gap = (step.logits[old][:, : wanted.shape[1]] - wanted.nan_to_num())[there]
            value = value + alpha * gap.square().mean()
            value = value + beta * lesson.means.criterion(step.logits[old], step.batch.targets[old])
        return value

    lesson.fit(loss, rows=(np.arange(fresh), np.arange(fresh, len(lesson.rows))))


def _logits(lesson: Lesson) -> Tensor:
    """(kept, old classes): logits of each stored row from when it entered the memory; NaN for classes added later."""
    rows = lesson.rows[lesson.fresh :]
    if lesson.teacher is None:
        raise RuntimeError("there is no model before the first position")
    found = torch.full((len(rows), lesson.old_classes), torch.nan)
    known = {int(row): at for at, row in enumerate(lesson.state["rows"].tolist())} if "rows" in lesson.state else {}
    new = np.array([at for at, row in enumerate(rows.tolist()) if row not in known], dtype=np.int64)
    if len(new):
        found[new] = outputs(lesson.teacher, lesson.train.take(lesson.fresh + new), lesson.means)
    if known:
        stored = lesson.state["logits"].cpu()
        old = [(at, known[row]) for at, row in enumerate(rows.tolist()) if row in known]
        for at, place in old:
            found[at, : stored.shape[1]] = stored[place]
    lesson.state["rows"], lesson.state["logits"] = torch.from_numpy(rows), found
    return found
