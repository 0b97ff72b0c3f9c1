"""Cells of near vectors: their products are exact."""

from __future__ import annotations

import numpy as np
import pytest
from benchwright.curation.stages.vector_cells import whole_vectors


@pytest.mark.parametrize("width", [1, 3, 512, 2048])
def test_products_of_whole_vectors_are_exact(width: int) -> None:
    draw = np.random.default_rng(0)
    unit = draw.normal(size=(200, width))
    unit[:100] = np.abs(unit[:100])
    unit[0], unit[1, 1:] = 1, 0
    whole = whole_vectors((unit / np.linalg.norm(unit, axis=1, keepdims=True)).astype(np.float32))
    exact = whole.astype(np.int64) @ whole.astype(np.int64).T
    assert np.abs(exact).max() < 1 << 24
    assert np.array_equal(whole @ whole.T, exact)
    assert np.diag(exact).min() > 0.95 * (1 << 24)
