"""GDumb (Prabhu et al., ECCV 2020): a new model, trained on a balanced memory and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ..core.exemplars import RowNumbers
from .method import Method

Sampler = Literal["greedy", "balanced_reservoir"]


def gdumb(*, memory: Sampler = "greedy") -> Method:
    """Updates the memory with rows of the present; then trains a newly initialised model on the memory.

    Args:
        memory: "greedy" is the paper's sampler, to which a class of full share is closed: where domains bring no class, the
            memory stays that of the first. "balanced_reservoir" is Avalanche's: a uniform sample of each class's whole past.

    >>> gdumb().start, gdumb().remember
    ('scratch', 'before')
    """
    if memory not in get_args(Sampler):
        raise ValueError(f"gdumb: memory {memory!r}: one of {', '.join(get_args(Sampler))}")
    return Method("gdumb", kept, "scratch", {"memory": memory}, exemplars=memory, remember="before")


def kept(buffer: RowNumbers, sizes: Sequence[int], *, seed: int) -> RowNumbers:
    """The memory alone."""
    return buffer
