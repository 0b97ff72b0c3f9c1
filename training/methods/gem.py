"""Gradient episodic memory (Lopez-Paz and Ranzato, NeurIPS 2017): no step against the gradient on any past task's memory.

Unlike in A-GEM (``agem``), each past task is a separate constraint, so the step is the solution of a small quadratic program.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...curation.registry import checked
from ..core.lesson import Lesson
from ..data.examples import Draw
from .agem import reference
from .finetune import present
from .method import Method

if TYPE_CHECKING:
    from ..graph_streams.parallel_streams import Streams, StreamStep

MOST_TASKS = 10
"""Number of past tasks up to which the quadratic program is solved by trying all sets of tasks at once."""
EPSILON = 1e-3
"""Added to the diagonal of the program's matrix, as in GEM's released code and CGLB."""


@checked
def gem(
    *,
    strength: float = 5.0,
    fraction: float = 0.2,
    forward: Literal["task", "memory"] = "memory",
    classes: Literal["then", "now"] = "then",
) -> Method:
    """Gradient steps projected to agree with the gradients on the memories of past tasks.

    The memory grows with the tasks, whatever the size of memories in the settings, and all of it passes through the network at
    each step.

    Args:
        strength: the quadratic program's margin.
        fraction: share of a task's samples in its memory.
        forward: "task" (CGLB): all samples of a past task pass through the network and so update the statistics of batch norm,
            but only the memory counts in the loss, which parallel streams alone can do; "memory": only the memory's samples
            pass through it.
        classes: those that compete in the loss on a task's memory: "then" (CGLB), the classes known after that task, or "now"
            (Avalanche), all classes known now. With "then" nothing lowers the outputs of newer classes on older samples, which
            a prediction among all classes needs.

    >>> method = gem(strength=0.5, fraction=0.1, forward="memory")
    >>> method.share, method.learners
    (0.1, ('one', 'streams'))
    """
    teach = functools.partial(_teach, strength=strength, whole=forward == "task", now=classes == "now")
    learners = ("one", "streams") if forward == "memory" else ("streams",)
    return Method("gem", present, "finetune", teach=teach, exemplars="share", share=fraction, learners=learners)


def _teach(lesson: Lesson | Streams, *, strength: float, whole: bool, now: bool) -> None:
    if isinstance(lesson, Lesson):
        _teach_one(lesson, strength, now)
    else:
        _teach_streams(lesson, strength, whole, now)


def _teach_one(lesson: Lesson, strength: float, now: bool) -> None:
    past, groups, known = lesson.stored(), lesson.model.groups, [lesson.model.classes] * lesson.task
    if not now and len(groups) > lesson.task:  # further domains add no classes
        known = np.cumsum(groups).tolist()
    steps = 0

    def adjust(parameters: Sequence[nn.Parameter]) -> None:
        nonlocal steps
        found: list[Tensor] = []
        for position, memory in past.items():
            view, rows = Draw(lesson.means.seed, f"{lesson.task}/memory/{steps}/{position}"), np.arange(len(memory.labels))
            size = lesson.means.schedule.batch_size
            found.append(_flat(reference(lesson, memory, rows, view, parameters, known[position], size)))
        steps += 1
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        moved = project_to_cone(_flat(gradients)[None], torch.stack(found)[None], margin=strength)[0]
        for gradient, part in zip(gradients, moved.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    lesson.fit(lambda step: step.classification(), adjust=adjust if past else None)


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.flatten() for each in gradients])


def _teach_streams(lesson: Streams, strength: float, whole: bool, now: bool) -> None:
    past = lesson.memories(whole=whole, now=now)
    references: list[Tensor] = []

    def loss(step: StreamStep) -> Tensor:
        references[:] = [lesson.gradients(lambda kept: kept.classification(), memory)["flat"] for memory in past]
        return step.classification()

    def adjust(gradient: Tensor) -> Tensor:
        return project_to_cone(gradient, torch.stack(references, dim=1), margin=strength) if past else gradient

    lesson.fit(loss, adjust=adjust)


def project_to_cone(gradient: Tensor, references: Tensor, *, margin: float) -> Tensor:
    """Return g + M^T v if some m_t g < 0, else g; v minimises v (M M^T + epsilon) v / 2 + v M g over v >= ``margin``.

    The program is solved exactly: among all sets of tasks whose v is at the margin, the one that satisfies the
    Karush-Kuhn-Tucker conditions is used. With a margin of 0, the step then has no component against any m_t, up to epsilon; a
    margin above 0 adds at least ``margin`` times every past gradient.

    Args:
        gradient: (R, P), one gradient per stream.
        references: (R, T, P), gradients on the memories of T past tasks.
        margin: CGLB's ``memory_strength``, at least 0.
    """
    if not references.shape[1]:
        return gradient
    g, memories = gradient.double(), references.double()
    along = torch.einsum("rtp,rp->rt", memories, g)
    gram = torch.einsum("rtp,rsp->rts", memories, memories)
    solution = solve_above(gram + EPSILON * torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device), along, margin)
    moved = (g + torch.einsum("rt,rtp->rp", solution, memories)).to(gradient.dtype)
    return torch.where((along < 0).any(1, keepdim=True), moved, gradient)


def solve_above(matrix: Tensor, linear: Tensor, margin: float) -> Tensor:
    """(R, T): the v >= ``margin`` that minimises v A v / 2 + b v.

    Args:
        matrix: A, (R, T, T), symmetric and positive definite.
        linear: b, (R, T).
    """
    count = matrix.shape[1]
    # With u = v - margin >= 0: A u + c >= 0, and u or A u + c is 0 in each component. Free components solve A u = -c.
    offset = linear + margin * matrix.sum(2)
    if count > MOST_TASKS:
        return _least_squares(matrix, offset) + margin
    free = torch.tensor(list(itertools.product([False, True], repeat=count)), device=matrix.device)
    inner = free[:, :, None] & free[:, None, :]
    systems = torch.where(inner, matrix[:, None], torch.eye(count, dtype=matrix.dtype, device=matrix.device))
    u = torch.linalg.solve(systems, torch.where(free, -offset[:, None], 0.0)[..., None])[..., 0]
    slack = torch.einsum("rts,rks->rkt", matrix, u) + offset[:, None]
    # How far each set is from satisfying the conditions, with slacks and solutions on the same scale.
    diagonal = matrix.diagonal(dim1=1, dim2=2)[:, None]
    short = torch.where(free, u * diagonal.sqrt(), slack / diagonal.sqrt()).amin(2)
    best = short.argmax(1)
    return u[torch.arange(len(u), device=u.device), best].clamp_min(0) + margin


def _least_squares(matrix: Tensor, offset: Tensor) -> Tensor:
    """(R, T): the u >= 0 that minimises u A u / 2 + c u = |L^T u + L^-1 c|^2 / 2 + a constant, for A = L L^T."""
    from scipy.optimize import nnls  # imported only when needed

    finite = matrix.isfinite().all(2).all(1) & offset.isfinite().all(1)  # the training loop tells of the others
    matrix = torch.where(finite[:, None, None], matrix, torch.eye(matrix.shape[1]).to(matrix))
    offset = torch.where(finite[:, None], offset, 0.0)
    roots = torch.linalg.cholesky(matrix)
    wanted = -torch.linalg.solve_triangular(roots, offset[..., None], upper=False)[..., 0]
    pairs = zip(roots.cpu().numpy(), wanted.cpu().numpy(), strict=True)
    return torch.from_numpy(np.stack([nnls(root.T, right)[0] for root, right in pairs])).to(matrix)
