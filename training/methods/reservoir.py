"""A buffer of one domain's size, filled by biased reservoir sampling."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.buffers import Removal, Rows, biased_reservoir


def reservoir(buffer: Rows, sizes: Sequence[int], *, seed: int, alpha: float, removal: Removal = "as_released") -> Rows:
    """Acceptance min(1, alpha k / i): alpha 1 is Vitter's reservoir. The paper has alpha .5, 1, 2, 5; its code also .25."""
    return biased_reservoir(buffer, sizes, seed=seed, alpha=alpha, dynamic=False, removal=removal)


def dynamic_reservoir(buffer: Rows, sizes: Sequence[int], *, seed: int, alpha: float, removal: Removal = "as_released") -> Rows:
    """Alpha grows as alpha i / k, so that acceptance is min(1, alpha) throughout. The paper has .25, .5, .75 and 1.

    At 1 every row of the present is accepted: with domains of equal size the buffer is the current domain.
    """
    return biased_reservoir(buffer, sizes, seed=seed, alpha=alpha, dynamic=True, removal=removal)
