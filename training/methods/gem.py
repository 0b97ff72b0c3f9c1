"""Gradient episodic memory (Lopez-Paz and Ranzato, NeurIPS 2017): no step against the gradient on any past task's memory.

Unlike in A-GEM (``agem``), each past task is a separate constraint, so the step is the solution of a small quadratic program.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ...curation.registry import checked
from .finetune import present
from .method import Method

if TYPE_CHECKING:
    from ..graph_streams.parallel_streams import Streams, StreamStep

MOST_TASKS = 10
EPSILON = 1e-3
"""Added to the diagonal of the program's matrix, as in GEM's released code and CGLB."""


@checked
def gem(*, strength: float = 5.0, fraction: float = 0.2, forward: Literal["task", "memory"] = "memory") -> Method:
    """Gradient steps projected to agree with the gradients on the memories of past tasks.

    Args:
        strength: the quadratic program's margin.
        fraction: share of a task's samples in its memory.
        forward: "task" (CGLB): all samples of a past task pass through the network and so update the statistics of batch norm,
            but only the memory counts in the loss; "memory": only the memory's samples pass through it.

    >>> method = gem(strength=0.5, fraction=0.1, forward="memory")
    >>> method.share, method.learners
    (0.1, ('streams',))
    """
    teach = functools.partial(_teach, strength=strength, whole=forward == "task")
    return Method("gem", present, "finetune", teach=teach, exemplars="share", share=fraction, learners=("streams",))


def _teach(lesson: Streams, *, strength: float, whole: bool) -> None:
    past = lesson.memories(whole=whole)
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

    Raises:
        ValueError: more than ``MOST_TASKS`` past tasks.
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
    if count > MOST_TASKS:
        raise ValueError(f"{count} past tasks: the quadratic program of GEM is solved for at most {MOST_TASKS}")
    # With u = v - margin >= 0: A u + c >= 0, and u or A u + c is 0 in each component. Free components solve A u = -c.
    offset = linear + margin * matrix.sum(2)
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
