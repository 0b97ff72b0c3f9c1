"""Measures of order sensitivity: by hand, and what holds for every matrix."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
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
from benchwright.eval.protocols.order_sensitivity import differences, measure_orders, read_orders
from benchwright.eval.protocols.predictions import ONE_LABEL, ORDER, Predictions, orders_of, row
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


def test_values_that_are_not_there_are_left_out():
    mean, deviation = mean_and_deviation([[0.5, NAN, NAN], [0.7, 0.3, NAN], [NAN, NAN, NAN]])
    np.testing.assert_allclose(mean, [0.6, 0.3, NAN])
    np.testing.assert_allclose(deviation, [np.std([0.5, 0.7], ddof=1), NAN, NAN])
    assert isinstance(mean_and_deviation([0.5, 0.7])[0], float)
    _, deviation = mean_and_deviation([[0.5, NAN, NAN], [0.7, 0.3, NAN], [NAN, NAN, NAN]], ddof=0)
    np.testing.assert_allclose(deviation, [np.std([0.5, 0.7]), NAN, NAN])  # one value has none, by either divisor
    assert np.isnan(mean_and_deviation([0.5], ddof=0)[1])


# --- from rows of trainings


def held(*tables: pa.Table) -> Any:
    """Rows of a stage."""
    table = pa.concat_tables(tables)
    return SimpleNamespace(schema=table.schema, num_rows=table.num_rows, column_names=table.column_names, table=table.select)


def one_order(order: int, tasks: list[list[int]], accuracy: list[list[float]], *, val: bool = True) -> pa.Table:
    """Ten samples of each class that test and one that validates, of which so many are told after each task."""
    names = [str(each) for task in tasks for each in task]
    count = len(names)
    parts = [row(ONE_LABEL, "t", 0, "", "test", 10 * count, keys=[], labels=np.repeat(np.arange(count), 10).tolist())]
    parts += [row(ONE_LABEL, "v", 0, "", "val", count, keys=[], labels=[*range(count)])] if val else []
    for k, told in enumerate(accuracy, start=1):
        known = len(told)
        right = [[c] * round(10 * share) + [(c + 1) % known] * (10 - round(10 * share)) for c, share in enumerate(told)]
        parts.append(
            row(
                ONE_LABEL,
                f"{k}",
                k,
                "+".join(map(str, tasks[k - 1])),
                "",
                1,
                class_names=[str(c) for c in tasks[k - 1]],
                record="{}",
            )
        )
        parts.append(row(ONE_LABEL, f"{k}t", k, "", "test", 10 * known, predicted=[*itertools.chain(*right)]))
        parts += [row(ONE_LABEL, f"{k}v", k, "", "val", known, predicted=[*range(known)])] if val else []
    table = pa.concat_tables(parts)
    return table.append_column(ORDER, pa.array([order] * len(table), ORDER.type))


FIRST = one_order(0, [[0, 1], [2]], [[0.9, 0.7], [0.2, 0.4, 1.0]])
SECOND = one_order(1, [[2], [0, 1]], [[1.0], [1.0, 0.1, 0.9]])


def test_streams_by_hand():
    one, other = read_orders(held(SECOND, FIRST))
    assert (one.order, other.order) == (0, 1)
    assert one.tasks == [(0, 1), (2,)]
    np.testing.assert_allclose(one.matrix(), [[0.8, NAN], [0.3, 1.0]])
    told = one.measures()
    assert told["aa", "test"] == pytest.approx(0.65)
    assert told["af_from_best", "test"] == pytest.approx(0.5) == -told["af_final_minus_diagonal", "test"]
    assert told["bound", "test"] == pytest.approx(1 - 2 * 0.65 + 1)
    assert told["aa", "val"] == 1
    (without,) = read_orders(held(one_order(0, [[0, 1], [2]], [[0.9, 0.7], [0.2, 0.4, 1.0]], val=False)))
    assert np.isnan(without.measures()["aa", "val"])


def test_values_are_of_classes_tasks_orders_and_of_all_together():
    values = list(measure_orders(predictions=held(FIRST, SECOND), orders=2))
    found = {one.key: one.value for one in values}
    assert len(found) == len(values)
    assert found["class_accuracy/0/2/1/test/"] == 0.4
    assert found["class_accuracy/1/1/2/test/"] == 1.0  # the class of the first task, whatever it was learned as
    assert found["accuracy/0/2/0+1/test/"] == pytest.approx(0.3)
    assert found["accuracy/1/2/0+1/test/"] == pytest.approx((0.1 + 0.9) / 2)
    assert found["aa/1/2//test/"] == pytest.approx((1.0 + 0.5) / 2)
    assert found["aa/0///test/"] == pytest.approx((0.65 + 0.75) / 2)
    assert {one.position for one in measure_orders(predictions=held(FIRST, SECOND), orders=3)} == {1, 2}  # one has diverged
    assert list(measure_orders(predictions=held(FIRST[:0]), orders=2)) == []


def test_predictions_of_several_orders_are_read_one_by_one():
    both = held(FIRST, SECOND)
    assert orders_of(both) == [0, 1]
    assert Predictions(both, 1).classes == ("2", "0", "1")
    with pytest.raises(ValueError, match="predictions of 2 orders"):
        Predictions(both)


def test_one_order_is_measured_from_its_predictions():
    # Learned: class 7, then class 3; samples of the test set by place in the order of learning.
    def one(key: str, position: int, tested: str, split: str, **values: Any) -> pa.Table:
        return row(ONE_LABEL, key, position, tested, split, 3, **values)

    rows = held(
        one("0", 0, "", "test", keys=["a", "b", "c"], labels=[0, 1, 1]),
        one("1", 1, "7", "", class_names=["7"], record="{}"),
        one("1t", 1, "", "test", predicted=[0]),
        one("2", 2, "3", "", class_names=["3"], record="{}"),
        one("2t", 2, "", "test", predicted=[1, 1, 0]),
    )
    found = {each.key: each.value for each in measure_orders(predictions=rows, orders=1)}
    assert (found["class_accuracy/0/1/7/test/"], found["class_accuracy/0/2/7/test/"]) == (1, 0)
    assert found["class_accuracy/0/2/3/test/"] == 0.5
    assert found["aa/0///test/"] == 0.25
    assert found["aa/0///val/"] is None  # nothing validates


FINAL = {
    (0, "task_order", 0): {"0+1": 0.3, "2": 1.0},
    (0, "task_order", 1): {"0+1": 0.95, "2": 0.1},
    (1, "task_order", 0): {"0+1": 0.3, "2": 1.0},
    (1, "task_order", 1): {"0+1": 0.9, "2": 0.5},
}


def test_differences_go_by_what_was_learned_and_not_by_when():
    names, by_task = differences(FINAL) or pytest.fail("there are task orders")
    assert names == ["0+1", "2"]
    np.testing.assert_allclose(by_task.opd, [[0.65, 0.9], [0.6, 0.5]])
    # Repeat 1 lacks the class order, and is left out.
    names, over = differences({**FINAL, (0, "class_order", 0): {"0+1": 0.0, "2": 0.7}}) or pytest.fail("repeat 0 has all")
    np.testing.assert_allclose(over.opd, [[0.95, 0.9]])
    assert differences({}) is None
    assert (
        differences({(0, "task_order", 0): FINAL[0, "task_order", 0], (1, "task_order", 1): FINAL[1, "task_order", 1]}) is None
    )
    assert (differences({(0, "class_order", 0): {"10": 0.5, "9": 0.1}}) or pytest.fail("one order"))[0] == ["9", "10"]


def test_a_stream_with_a_hole_is_refused():
    late = FIRST.filter(np.asarray(FIRST["position"]) != 1)
    with pytest.raises(ValueError, match=r"after the positions \[2\]"):
        read_orders(held(late))[0].measures()
