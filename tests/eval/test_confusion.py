"""Confusion matrices and their measures: against scikit-learn, against their definitions, and under addition."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from benchwright.eval.metrics.confusion import (
    EMPTY,
    KNOWN,
    TASKS,
    UNKNOWN,
    Confusion,
    Ordered,
    accuracy,
    matthews_correlation,
    mutual_information,
    normalised_mutual_information,
    reduce_labels,
    top_labels,
)
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

labels = st.integers(-4, 6)
pairs = st.lists(st.tuples(labels, labels), min_size=1, max_size=60)


def split(values):
    truth, predicted = zip(*values, strict=True)
    return np.array(truth), np.array(predicted)


@given(pairs)
def test_measures_equal_scikit_learns(values):
    truth, predicted = split(values)
    ours = Confusion.of(truth, predicted)
    every = np.arange(-4, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = np.zeros((len(every), len(every)), dtype=np.int64)
        cells[ours.truth - every[0], ours.predicted - every[0]] = ours.count
        np.testing.assert_array_equal(cells, metrics.confusion_matrix(truth, predicted, labels=every))
        assert accuracy(ours) == metrics.accuracy_score(truth, predicted)
        assert matthews_correlation(ours) == pytest.approx(metrics.matthews_corrcoef(truth, predicted), abs=1e-12)
        assert mutual_information(ours) == pytest.approx(metrics.mutual_info_score(truth, predicted), abs=1e-12)
        if len(set(truth)) > 1 or len(set(predicted)) > 1:
            theirs = metrics.normalized_mutual_info_score(truth, predicted, average_method="arithmetic")
            assert normalised_mutual_information(ours) == pytest.approx(theirs, abs=1e-12)
        else:
            assert normalised_mutual_information(ours) == 0  # 0/0, where scikit-learn says 1


@given(pairs, pairs, pairs)
def test_sums_are_exact_and_in_any_order(a, b, c):
    one, two, three = (Confusion.of(*split(values)) for values in (a, b, c))
    assert one + two == two + one
    assert (one + two) + three == one + (two + three) == Confusion.of(*split([*a, *b, *c]))
    assert one + EMPTY == one
    assert (one + two).n == len(a) + len(b)


@given(pairs, st.sets(st.integers(0, 6)), st.sampled_from(TASKS))
def test_reducing_labels_merges_cells_and_loses_no_sample(values, known, task):
    truth, predicted = split(values)
    whole = Confusion.of(truth, predicted)
    cells = (reduce_labels(side, sorted(known), task) for side in (whole.truth, whole.predicted))
    merged = Confusion.of(*(np.repeat(side, whole.count) for side in cells))
    assert merged == Confusion.of(*(reduce_labels(side, sorted(known), task) for side in (truth, predicted)))
    assert merged.n == len(values)


def test_the_three_reductions_by_hand():
    values = [0, 1, 2, 9, UNKNOWN, -2, -5]
    known = [2, 0, 1]
    assert reduce_labels(values, known, "none").tolist() == values
    assert reduce_labels(values, known, "classification").tolist() == [0, 1, 2, -1, -1, -1, -1]
    assert reduce_labels(values, known, "recognition").tolist() == [KNOWN, KNOWN, KNOWN, 9, -1, -2, -5]
    assert reduce_labels(values, known, "detection").tolist() == [KNOWN, KNOWN, KNOWN, -1, -1, -1, -1]
    with pytest.raises(ValueError, match="task 'detect': one of none, classification"):
        reduce_labels(values, known, "detect")  # type: ignore[arg-type]


def test_rows_are_truth_and_columns_prediction():
    found = Confusion.of([0, 0, 1], [1, 1, 0])
    cells = zip(found.truth.tolist(), found.predicted.tolist(), found.count.tolist(), strict=True)
    assert list(cells) == [(0, 1, 2), (1, 0, 1)]


def test_constant_sides():
    assert matthews_correlation(Confusion.of([1, 1, 1], [1, 2, 1])) == 0
    assert matthews_correlation(Confusion.of([1, 1], [1, 1])) == 0
    assert normalised_mutual_information(Confusion.of([1, 2], [3, 3])) == 0
    assert normalised_mutual_information(Confusion.of([1, 2, 2], [7, 5, 5])) == pytest.approx(1)
    for measure in (accuracy, matthews_correlation, mutual_information, normalised_mutual_information):
        assert math.isnan(measure(EMPTY))


def test_sums_beyond_32_bits_are_exact():
    big = Confusion(np.array([0, 1]), np.array([0, 0]), np.array([3_000_000_000, 1], dtype=np.int64))
    assert (big + big).count.tolist() == [6_000_000_000, 2]
    assert matthews_correlation(big + Confusion.of([1], [1])) == pytest.approx(0.5**0.5, rel=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 6))
def test_top_labels_are_a_stable_sort(seed, columns, k):
    draw = np.random.default_rng(seed)
    labels = draw.permutation(columns) - 2
    scores = draw.integers(0, 4, (9, columns)).astype(np.float32)  # ties on purpose
    expected = labels[np.argsort(-scores, axis=1, kind="stable")[:, :k]]
    np.testing.assert_array_equal(top_labels(labels, scores, k, batch_size=4), expected)
    assert scores.min() >= 0  # the input is not written to


def test_top_k_accuracy_equals_scikit_learns():
    draw = np.random.default_rng(0)
    scores, truth = draw.random((200, 12)), draw.integers(0, 12, 200)
    ordered = Ordered.of(truth, top_labels(np.arange(12), scores, 5))
    for k in range(1, 6):
        assert ordered.top_accuracy(k) == metrics.top_k_accuracy_score(truth, scores, k=k, labels=np.arange(12))
    assert ordered.ranks[2] == Confusion.of(truth, np.argsort(-scores, axis=1)[:, 2])


def test_a_reduced_sample_is_counted_once():
    top = np.array([[-2, -1, -3, 0], [0, 1, 2, -1]])  # a novel sample with three unknown columns; a known one
    ordered = Ordered.of([7, 1], top, [0, 1, 2], "classification")
    assert [rank.n for rank in ordered.ranks] == [2, 1, 1, 2]  # unknown comes back in none of the first row's ranks
    assert [ordered.top_accuracy(k) for k in (1, 2, 4)] == [0.5, 1.0, 1.0]
    assert Ordered.of([7, 1], top, [0, 1, 2], "detection").top_accuracy(4) == 1.0


def test_ordered_sums_of_different_depth():
    a = Ordered.of([0, 1], [[0, 1], [0, 1]])
    b = Ordered.of([2], [[0, 1, 2]])
    assert (a + b).top_accuracy(3) == 1
    assert (a + b).first.n == 3
    assert math.isnan(Ordered(()).top_accuracy(1))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Confusion.of([1, 2], [1]), r"\(2,\) and predictions \(1,\)"),
        (lambda: Confusion.of([0.5], [1]), "truth are float64"),
        (lambda: top_labels([1, 2], np.zeros((3, 3)), 1), r"probabilities \(3, 3\) with \(2,\) columns"),
        (lambda: top_labels([1, 2], np.array([[0.1, 0.9], [np.nan, 1.0]]), 1, batch_size=1), "sample 1 hold NaN"),
    ],
)
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
