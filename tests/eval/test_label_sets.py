"""Measures of label sets, against values worked out by hand and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from benchwright.eval.metrics.label_sets import (
    METRICS,
    Overlaps,
    co_predictions,
    exact_match,
    jaccard_similarity,
    label_recall,
    overlaps,
    precision_weighted_jaccard,
)


def sets(*rows: str) -> np.ndarray:
    return np.asarray([[mark == "x" for mark in row] for row in rows])


# |Y|, |P|, both: 2 2 2; 2 1 1; 1 3 1; 1 0 0; 1 1 0.
TRUE = sets("xx..", ".xx.", "x...", "...x", "..x.")
GUESS = sets("xx..", ".x..", "xxx.", "....", "...x")


def test_by_hand() -> None:
    counts = overlaps(TRUE, GUESS)
    assert counts.common.tolist() == [2, 1, 1, 0, 0]
    assert jaccard_similarity(counts) == pytest.approx((1 + 1 / 2 + 1 / 3 + 0 + 0) / 5)
    # Precision is 1, 1, 1/3, 0 of an empty prediction, 0.
    assert precision_weighted_jaccard(counts) == pytest.approx((1 + 1 / 2 + 1 / 9) / 5)
    assert exact_match(counts) == pytest.approx(1 / 5)
    assert label_recall(counts) == pytest.approx(4 / 7)


def test_against_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, jaccard_score, precision_score, recall_score

    generator = np.random.default_rng(0)
    true, guess = generator.random((300, 7)) < 0.3, generator.random((300, 7)) < 0.4
    true[np.arange(300), generator.integers(0, 7, 300)] = True
    counts = overlaps(true, guess)
    assert jaccard_similarity(counts) == pytest.approx(jaccard_score(true, guess, average="samples"))
    assert exact_match(counts) == pytest.approx(accuracy_score(true, guess))
    assert label_recall(counts) == pytest.approx(recall_score(true, guess, average="micro"))
    of_each = [
        jaccard_score(y, p, zero_division=0) * precision_score(y, p, zero_division=0) for y, p in zip(true, guess, strict=True)
    ]
    assert precision_weighted_jaccard(counts) == pytest.approx(np.mean(of_each), abs=1e-7)


def test_no_sample_and_no_label() -> None:
    empty = np.zeros((0, 3), dtype=bool)
    assert all(np.isnan(metric(overlaps(empty, empty))) for metric in METRICS.values())
    with pytest.raises(ValueError, match="sample 1 has no true label"):
        overlaps(sets("x.", ".."), sets("x.", "x."))
    with pytest.raises(ValueError, match="int64"):
        overlaps(np.zeros((2, 3), dtype=np.int64), np.zeros((2, 3), dtype=bool))
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        overlaps(np.ones((2, 4), dtype=bool), np.ones((2, 3), dtype=bool))


def test_some_samples() -> None:
    counts = overlaps(TRUE, GUESS)
    assert exact_match(counts.take([0, 3])) == 0.5
    assert len(counts.take(np.asarray([True, False, True, False, False]))) == 2
    assert isinstance(counts.take([0]), Overlaps)


def test_co_predictions() -> None:
    # Class 1 is true of samples 0 and 1: both are predicted to have it, one of them class 0 as well.
    assert co_predictions(TRUE, GUESS).tolist() == [[2, 2, 1, 0], [1, 2, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]
    assert co_predictions(TRUE, TRUE).diagonal().tolist() == TRUE.sum(0).tolist()
