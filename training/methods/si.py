"""Synaptic intelligence (Zenke et al., ICML 2017): weights that lowered the loss are kept close to their final values."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...curation.registry import checked
from ..core.lesson import ForwardPass, Lesson
from . import importance
from .finetune import present
from .method import Method, PaperForm

MOST = 1e-3
"""Upper limit of the importance in the form ``as_released``."""


@checked
def si(*, strength: float, damping: float = 1e-3, form: PaperForm = "as_written") -> Method:
    """Loss: classification + c times the sum over parameters of Omega (theta - theta*)^2 (equation 4).

    At the end of each domain or task, Omega grows by -w / (Delta^2 + xi), where w is the sum over training steps of gradient
    times change, and Delta the total change (equation 5). The gradient is that of the minimised loss. If the schedule selects
    an epoch, w and Delta are those at its end.

    Args:
        strength: c. CLEAR has 1e-4.
        damping: xi. The paper has 1e-3 (permuted MNIST), Avalanche 1e-7.
        form: "as_released" (Avalanche, which CLEAR ran): half the penalty, Omega at most ``MOST``, and no batch norm
            parameters.

    Raises:
        ValueError: ``damping`` is not positive.

    >>> si(strength=1e-4, damping=1e-7, form="as_released").name  # as CLEAR ran it
    'si'
    """
    if not damping > 0:
        raise ValueError(f"si: damping {damping}: above 0")
    teach = functools.partial(_teach, strength=strength, damping=damping, released=form == "as_released")
    return Method("si", present, "finetune", teach=teach, together=True)


def _teach(lesson: Lesson, *, strength: float, damping: float, released: bool) -> None:
    held = lesson.parameters()
    if released:
        held = {name: value for name, value in held.items() if name not in _of_batch_norm(lesson.model)}
    before = {name: value.detach().clone() for name, value in held.items()}
    path = {name: torch.zeros_like(value) for name, value in before.items()}
    now: dict[str, tuple[Tensor, Tensor]] = {}

    def loss(step: ForwardPass) -> Tensor:
        return step.classification() + (strength / 2 if released else strength) * importance.penalty(held, lesson.state)

    def remember(parameters: Sequence[nn.Parameter]) -> None:
        now.update({n: (p.detach().clone(), p.grad.clone()) for n, p in held.items() if p.grad is not None})

    def add() -> None:
        for name, (value, gradient) in now.items():
            path[name] += gradient * (held[name].detach() - value)

    lesson.fit(loss, adjust=remember, stepped=add, along=path)
    for name, value in held.items():
        way = value.detach() - before[name]
        added = -path[name] / (way**2 + damping)
        known = lesson.state.get(f"path/sum/{name}")
        total = added if known is None else added + importance.widened(known, added.shape)
        lesson.state[f"path/sum/{name}"] = total
        lesson.state[f"path/importance/{name}"] = total.clamp(max=MOST) if released else total
        lesson.state[f"path/value/{name}"] = value.detach().clone()


def _of_batch_norm(model: nn.Module) -> set[str]:
    norms = [name for name, part in model.named_modules() if isinstance(part, nn.modules.batchnorm._NormBase)]  # pyright: ignore[reportPrivateUsage]
    return {f"{norm}.{name}" for norm in norms for name in ("weight", "bias")}
