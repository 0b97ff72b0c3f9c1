"""Nap: the model learns the first domain and sleeps ever after, the lower end (Lin et al., NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.buffers import Rows, current_rows


def nap(buffer: Rows, sizes: Sequence[int], *, seed: int) -> Rows:
    """The rows of the first domain, then none. Nothing is drawn."""
    return current_rows(sizes) if len(sizes) == 1 else np.empty(0, dtype=np.int64)
