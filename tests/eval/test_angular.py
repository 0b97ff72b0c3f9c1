"""Angular error and its statistics: by hand, by numpy, and the folds of the released networks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from benchwright.eval.metrics.angular import (
    AngularStatistics,
    angular_error_deg,
    angular_statistics,
    first_two_folds_mean,
    fold_mean,
    mean_statistics,
    pooled,
)

# The released 200-parameter S20 networks, statistics of each fold (a released run; the paper's Table 3 has other networks').
RELEASED = [
    AngularStatistics(2.303, 1.636, 0.537, 5.151, 0.889, 2.805),
    AngularStatistics(1.332, 1.150, 0.267, 2.915, 0.424, 2.024),
    AngularStatistics(1.516, 0.877, 0.240, 3.503, 0.447, 2.529),
]


def test_angles_by_hand():
    truth = np.ones((4, 3))
    estimate = [[1, 0, 0], [2, 2, 2], [1, 1, 0], [0, 1, 0]]
    expected = [np.degrees(np.arccos(3**-0.5)), 0, np.degrees(np.arccos(2 / 6**0.5)), np.degrees(np.arccos(3**-0.5))]
    np.testing.assert_allclose(angular_error_deg(estimate, truth), expected, atol=0.01)
    assert angular_error_deg([[1, 0, 0]], [[0, 1, 0]]) == pytest.approx(90)
    assert angular_error_deg([[1, 0, 0]], [[-1, 0, 0]]) == pytest.approx(180, abs=0.01)


def test_the_released_formula_puts_equal_unit_vectors_apart():
    assert angular_error_deg([[1, 0, 0]], [[1, 0, 0]])[0] == pytest.approx(np.degrees(np.arccos(1 / (1 + 1e-8))), rel=1e-6)
    assert angular_error_deg([[0.5, 1, 0.7]], [[0.5, 1, 0.7]])[0] < 0.0081


def test_angles_of_many_follow_the_cross_product():
    draw = np.random.default_rng(0)
    a, b = draw.uniform(0.1, 2, (2, 500, 3))
    by_tangent = np.degrees(np.arctan2(np.linalg.norm(np.cross(a, b), axis=1), (a * b).sum(axis=1)))
    np.testing.assert_allclose(angular_error_deg(a, b), by_tangent, atol=1e-4)
    np.testing.assert_allclose(angular_error_deg(7 * a, b), angular_error_deg(a, b), atol=1e-4)


def test_statistics_by_hand():
    found = angular_statistics([5, 1, 4, 2, 3, 6, 8, 7])
    assert found == AngularStatistics(mean=4.5, median=4.5, best_25=1.5, worst_25=7.5, q1=2.75, q3=6.25)


@pytest.mark.parametrize(("count", "quarter"), [(3, 1), (5, 1), (6, 2), (10, 2), (14, 4), (54, 14), (65, 16), (162, 40)])
def test_a_quarter_is_rounded_half_to_even(count, quarter):
    errors = np.random.default_rng(count).permutation(np.linspace(0, 20, count))
    found = angular_statistics(errors)
    assert quarter == int(np.round(count / 4))
    assert found.best_25 == pytest.approx(np.sort(errors)[:quarter].mean())
    assert found.worst_25 == pytest.approx(np.sort(errors)[-quarter:].mean())
    assert (found.q1, found.median, found.q3) == pytest.approx(tuple(np.quantile(errors, [0.25, 0.5, 0.75])))


def test_the_folds_of_the_released_networks():
    three = dataclasses.astuple(mean_statistics(RELEASED))
    assert three == pytest.approx((1.717, 1.221, 0.348, 3.856, 0.587, 2.452), abs=0.0011)
    two = dataclasses.astuple(mean_statistics(RELEASED[:2]))
    assert two == pytest.approx((1.818, 1.393, 0.402, 4.033, 0.656, 2.414), abs=0.0011)


def test_pooled_and_averaged_differ_and_the_released_mean_leaves_a_fold_out():
    folds = [np.array([1.0, 2, 3, 4]), np.array([2.0, 2, 2, 2]), np.array([10.0, 20, 30, 40])]
    assert pooled(folds).mean == fold_mean(folds).mean == pytest.approx(118 / 12)
    assert pooled(folds).median == 2.5
    assert fold_mean(folds).median == pytest.approx((2.5 + 2 + 25) / 3)
    assert first_two_folds_mean(folds).mean == 2.25
    assert first_two_folds_mean(folds) == fold_mean(folds[:2])


def test_errors_say_value_and_rule():
    with pytest.raises(ValueError, match=r"\(2, 3\) and truths \(1, 3\)"):
        angular_error_deg(np.ones((2, 3)), np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"row 1: estimate .*nan"):
        angular_error_deg([[1, 1, 1], [np.nan, 1, 1]], np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"row 0: .*divided by green"):
        angular_error_deg([[0.010, 0.013, 0.007]], np.ones((1, 3)))
    with pytest.raises(ValueError, match="3 or more"):
        angular_statistics([1.0, 2.0])
    with pytest.raises(ValueError, match="expected 0 to 180"):
        angular_statistics([1.0, 2.0, 181.0])
    with pytest.raises(ValueError, match="at least one fold"):
        mean_statistics([])
