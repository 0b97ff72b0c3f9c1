"""CLEAR's five metrics against matrices worked out by hand, another formula, and their own identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchwright.eval.metrics.clear import IID_METRICS, STREAMING_METRICS, check_matrix
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

BY_HAND = np.array([[0.9, 0.6, 0.3], [0.8, 0.7, 0.2], [0.5, 0.4, 1.0]])

matrices = st.integers(1, 12).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(0, 1)))


def test_by_hand():
    got = {name: f(BY_HAND) for name, f in IID_METRICS.items()}
    assert got["in_domain"] == pytest.approx((0.9 + 0.7 + 1.0) / 3)
    assert got["next_domain"] == pytest.approx((0.6 + 0.2) / 2)
    assert got["acc"] == pytest.approx((0.9 + 0.8 + 0.7 + 0.5 + 0.4 + 1.0) / 6)
    assert got["bwt"] == pytest.approx((0.8 + 0.5 + 0.4) / 3)
    assert got["fwt"] == pytest.approx((0.6 + 0.3 + 0.2) / 3)


def test_rows_are_what_was_learned_and_columns_what_was_tested():
    forgets = np.array([[1.0, 0.0], [0.25, 1.0]])
    assert IID_METRICS["bwt"](forgets) == 0.25
    assert IID_METRICS["fwt"](forgets) == 0.0


@given(matrices)
def test_same_sums_by_loops(matrix: np.ndarray):
    n = len(matrix)
    cells = [(i, j) for i in range(n) for j in range(n)]
    regions = {
        "in_domain": [c for c in cells if c[0] == c[1]],
        "next_domain": [c for c in cells if c[1] == c[0] + 1],
        "acc": [c for c in cells if c[1] <= c[0]],
        "bwt": [c for c in cells if c[1] < c[0]],
        "fwt": [c for c in cells if c[1] > c[0]],
    }
    for name, region in regions.items():
        got = IID_METRICS[name](matrix)
        if not region:
            assert math.isnan(got)
        else:
            assert got == pytest.approx(math.fsum(matrix[c] for c in region) / len(region))
            assert -1e-12 <= got <= 1 + 1e-12


@given(matrices)
def test_acc_is_the_diagonal_and_what_lies_below_it(matrix: np.ndarray):
    n = len(matrix)
    whole = IID_METRICS["acc"](matrix) * n * (n + 1) / 2
    below = IID_METRICS["bwt"](matrix) * n * (n - 1) / 2 if n > 1 else 0.0
    assert whole == pytest.approx(IID_METRICS["in_domain"](matrix) * n + below)


@given(matrices)
def test_time_reversed_swaps_backward_and_forward(matrix: np.ndarray):
    reverse = matrix[::-1, ::-1]
    assert IID_METRICS["bwt"](matrix) == pytest.approx(IID_METRICS["fwt"](reverse), nan_ok=True)


def test_published_order_of_a_learner_that_gets_worse_with_distance():
    distance = np.subtract.outer(np.arange(10), np.arange(10))
    decay = 0.95 - 0.01 * np.abs(distance)
    got = {name: f(decay) for name, f in IID_METRICS.items()}
    assert got["in_domain"] > got["next_domain"] > got["fwt"]


def test_one_domain_has_a_diagonal_and_nothing_else():
    got = {name: f([[0.5]]) for name, f in IID_METRICS.items()}
    assert got["in_domain"] == got["acc"] == 0.5
    assert all(math.isnan(got[name]) for name in ("next_domain", "bwt", "fwt"))


def test_streaming_needs_the_future_only():
    future = np.full((3, 3), np.nan)
    future[np.triu_indices(3, 1)] = [0.5, 0.25, 0.75]
    assert set(STREAMING_METRICS) == {"next_domain", "fwt"}
    assert STREAMING_METRICS["next_domain"](future) == 0.625
    assert STREAMING_METRICS["fwt"](future) == 0.5
    with pytest.raises(ValueError, match=r"R\[0, 0\] was not tested: in-domain"):
        IID_METRICS["in_domain"](future)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        (np.zeros((0, 0)), "N >= 1"),
        (np.zeros(4), r"shape \(4,\)"),
        ([[0.5, 91.0], [0.1, 0.2]], r"R\[0, 1\] = 91.0"),
        ([[0.5, 0.5], [-0.1, 0.2]], r"R\[1, 0\] = -0.1"),
        ([[0.5, 0.5], [np.inf, 0.2]], r"R\[1, 0\] = inf"),
    ],
)
def test_what_is_no_accuracy_matrix_is_refused(matrix: object, says: str):
    with pytest.raises(ValueError, match=says):
        check_matrix(matrix)  # type: ignore[arg-type]
