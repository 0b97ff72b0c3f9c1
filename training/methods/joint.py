"""Joint training: nothing is forgotten, since everything is still there."""

from __future__ import annotations

from typing import Literal

from .cumulative import cumulative
from .method import Method


def joint(*, start: Literal["scratch", "finetune"] = "scratch") -> Method:
    """The upper end: each task trains on all samples so far. Only the last task counts where the bound alone is wanted.

    Args:
        start: "scratch" draws new weights for each task, "finetune" goes on with the last ones.
    """
    return Method("joint", cumulative, start)
