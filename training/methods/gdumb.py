"""GDumb (Prabhu et al., ECCV 2020): a new model trained on a balanced memory alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...curation.registry import checked
from ..core.exemplars import RowNumbers
from .method import Method

GdumbSampler = Literal["greedy", "balanced_reservoir"]


@checked
def gdumb(*, memory: GdumbSampler = "greedy") -> Method:
    """Update the memory with the current rows, then train a newly initialised model on the memory alone.

    Args:
        memory: "greedy" is the paper's sampler, which adds no rows to a class that has reached its share: if domains add no
            classes, the memory stays that of the first. "balanced_reservoir" (Avalanche): a uniform sample of all past samples
            of each class.

    >>> gdumb().start, gdumb().remember
    ('scratch', 'before')
    """
    return Method("gdumb", kept, "scratch", exemplars=memory, remember="before")


def kept(buffer: RowNumbers, sizes: Sequence[int], *, seed: int) -> RowNumbers:
    """The rows in the memory alone."""
    return buffer
