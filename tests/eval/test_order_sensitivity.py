"""Measures of order sensitivity: by hand, and what holds for every matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.eval.metrics.class_incremental import accuracy_curve, backward_forgetting, final_accuracy
from benchwright.eval.metrics.order_sensitivity import (
    final_minus_diagonal,
    forgetting_bound,
    forgetting_from_best,
    mean_and_deviation,
    order_difference,
    task_accuracy_matrix,
)
from benchwright.eval.protocols.order_sensitivity import (
    IDENTITY,
    class_differences,
    measures,
    orders_in,
    streams,
    task_differences,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

NAN = float("nan")
R = [[0.6, NAN, NAN], [0.9, 0.8, NAN], [0.3, 0.5, 1.0]]
"""The first task gets better with the second, so that the best is not the diagonal."""

MATRICES = st.integers(2, 7).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(0, 1)))


def test_forgetting_by_hand():
    assert forgetting_from_best(R) == pytest.approx(((0.9 - 0.3) + (0.8 - 0.5)) / 2)
    assert final_minus_diagonal(R) == pytest.approx(((0.3 - 0.6) + (0.5 - 0.8)) / 2)
    assert forgetting_from_best([[0.5, NAN], [0.7, 1.0]]) == pytest.approx(-0.2)  # a task that gained since
    assert np.isnan(forgetting_from_best([[0.5]]))
    assert np.isnan(final_minus_diagonal([[0.5]]))
    with pytest.raises(ValueError, match=r"R\[2, 0\] was not tested"):
        forgetting_from_best([[0.6, NAN, NAN], [0.9, 0.8, NAN], [NAN, 0.5, 1.0]])


def test_bound_by_hand():
    # AA = 0.6 over three tasks: 1 - 3/2 * 0.6 + 1/2.
    assert forgetting_bound(0.6, 3) == pytest.approx(0.6)
    assert forgetting_bound([0.2, 1.0], 5, newest=[1.0, 0.8]).tolist() == pytest.approx([1.0, -0.05])
    with pytest.raises(ValueError, match="1 tasks"):
        forgetting_bound(0.5, 1)


def test_bound_is_reached_where_all_that_was_learned_perfectly_is_lost():
    matrix = [[1.0, NAN, NAN], [0.0, 1.0, NAN], [0.0, 0.0, 1.0]]
    assert forgetting_from_best(matrix) == 1 == pytest.approx(forgetting_bound(final_accuracy(matrix), 3))


@given(MATRICES)
def test_bound_holds_for_every_matrix(matrix: np.ndarray):
    average = accuracy_curve(matrix)[-1]
    lost = forgetting_from_best(matrix)
    assert lost <= forgetting_bound(average, len(matrix), newest=matrix[-1, -1]) + 1e-12
    assert lost <= forgetting_bound(average, len(matrix)) + 1e-12
    # The best so far is no worse than the accuracy just after the task.
    assert lost >= backward_forgetting(matrix) - 1e-12
    assert final_minus_diagonal(matrix) == -backward_forgetting(matrix)


def test_tasks_are_means_of_their_classes():
    matrix = task_accuracy_matrix([[0.5], [0.25, 1.0, 0.5], [0.0, 0.5, 0.5, 1.0, 0.2]], [1, 2, 2])
    np.testing.assert_allclose(matrix, [[0.5, NAN, NAN], [0.25, 0.75, NAN], [0.0, 0.5, 0.6]])
    with pytest.raises(ValueError, match="all classes seen"):
        task_accuracy_matrix([[0.5], [0.25, 1.0]], [1, 2])


def test_order_difference_by_hand():
    final = [
        [[0.9, 0.5, 1.0], [0.1, 0.5, 0.8], [0.4, 0.6, 0.9]],
        [[0.7, 0.2, 1.0], [0.5, 0.2, 0.4], [0.6, 0.2, 0.9]],
    ]
    found = order_difference(final)
    np.testing.assert_allclose(found.opd, [[0.8, 0.1, 0.2], [0.2, 0.0, 0.6]])
    np.testing.assert_allclose(found.aopd, [1.1 / 3, 0.8 / 3])
    np.testing.assert_allclose(found.mopd, [0.8, 0.6])
    mean, deviation = mean_and_deviation(found.aopd)
    assert mean == pytest.approx(0.95 / 3)
    assert deviation == pytest.approx(0.3 / 3 / np.sqrt(2))


@given(arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 4)), elements=st.floats(0, 1)))
def test_order_difference_lies_in_0_to_1_and_knows_no_order_of_orders(final: np.ndarray):
    found = order_difference(final)
    assert (found.opd >= 0).all()
    assert (found.aopd <= found.mopd + 1e-12).all()
    assert (found.mopd <= 1).all()
    np.testing.assert_array_equal(order_difference(final[:, ::-1]).opd, found.opd)
    # One more order can only widen the range.
    assert (order_difference(final[:, :1]).opd == 0).all()
    assert (order_difference(final[:, : max(1, final.shape[1] - 1)]).opd <= found.opd).all()


@pytest.mark.parametrize(
    ("final", "says"),
    [([[0.5]], "repeats, orders, tasks"), ([[[NAN]]], "repeat 0, order 0, task 0"), ([[[0.1, 50.0]]], "order 0, task 1")],
)
def test_what_is_no_accuracy_is_refused(final: Any, says: str):
    with pytest.raises(ValueError, match=says):
        order_difference(final)


def test_one_repeat_has_no_deviation():
    mean, deviation = mean_and_deviation([[0.5, 0.7]])
    assert mean.tolist() == [0.5, 0.7]
    assert np.isnan(deviation).all()
    with pytest.raises(ValueError, match="at least one"):
        mean_and_deviation([])


# --- from rows of results


def rows(kind: str, index: int, repeat: int, tasks: list[list[int]], accuracy: list[list[float]]) -> list[dict[str, Any]]:
    shared = dict(zip(IDENTITY, ("ewc", "{}", "gcn", 64, 2, kind, index, repeat), strict=True))
    return [
        {
            **shared,
            "k": k,
            "classes": [each for task in tasks[:k] for each in task],
            "sizes": [len(task) for task in tasks[:k]],
            "class_accuracy": accuracy[k - 1],
            "val_class_accuracy": [1.0] * len(accuracy[k - 1]),
        }
        for k in range(1, len(tasks) + 1)
    ]


RESULTS = pa.Table.from_pylist(
    [
        *rows("task_order", 0, 0, [[0, 1], [2]], [[0.9, 0.7], [0.2, 0.4, 1.0]]),
        *rows("task_order", 1, 0, [[2], [0, 1]], [[1.0], [0.1, 0.9, 1.0]]),
        *rows("class_order", 0, 0, [[0, 2], [1]], [[0.5, 0.5], [0.0, 0.7, 0.8]]),
        *rows("task_order", 0, 1, [[0, 1], [2]], [[0.9, 0.7], [0.3, 0.3, 1.0]]),
        *rows("task_order", 1, 1, [[2], [0, 1]], [[1.0], [0.5, 0.8, 1.0]]),
        *rows("default", 0, 0, [[0, 1], [2]], [[0.9, 0.7], [0.2, 0.4, 1.0]]),
    ][::-1]  # whatever the order of the rows
)


def test_streams_by_hand():
    found = {(one.kind, one.order_index, one.repeat): one for one in streams(RESULTS)}
    one = found["task_order", 0, 0]
    assert one.tasks == ((0, 1), (2,))
    np.testing.assert_allclose(one.matrix, [[0.8, NAN], [0.3, 1.0]])
    told = one.measures()
    assert told["aa"] == pytest.approx(0.65)
    assert told["af_from_best"] == pytest.approx(0.5) == -told["af_final_minus_diagonal"]
    assert told["bound"] == pytest.approx(1 - 2 * 0.65 + 1)
    assert told["val_aa"] == 1
    assert measures(streams(RESULTS)).num_rows == 6
    assert orders_in(found.values()) == {"class_order": 1, "default": 1, "task_order": 2}


def test_differences_go_by_what_was_learned_and_not_by_when():
    found = streams(RESULTS)
    names, by_task = task_differences(found) or pytest.fail("there are task orders")
    assert names == [(0, 1), (2,)]
    # Repeat 0: (0.2 + 0.4) / 2 against (0.9 + 1.0) / 2; 1.0 against 0.1. Repeat 1: 0.3 against 0.9; 1.0 against 0.5.
    np.testing.assert_allclose(by_task.opd, [[0.65, 0.9], [0.6, 0.5]])
    # Repeat 1 lacks the class order, and is left out.
    names, by_class = class_differences(found) or pytest.fail("there are class orders")
    assert names == [(0,), (1,), (2,)]
    np.testing.assert_allclose(by_class.opd, [[0.9 - 0.0, 1.0 - 0.4, 1.0 - 0.1]])
    assert task_differences([one for one in found if one.kind == "default"]) is None


def test_a_stream_with_a_hole_is_refused():
    with pytest.raises(ValueError, match=r"after \[2\] tasks"):
        streams(RESULTS.slice(0, 1))
    twice = pa.concat_tables([RESULTS, RESULTS])
    with pytest.raises(ValueError, match=r"after \[1, 1, 2, 2\] tasks"):
        streams(twice)
