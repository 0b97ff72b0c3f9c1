"""Novelty reaction time: Eq. 1 computed the long way, its limits, and its readings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchwright.eval.metrics.novelty import is_novel, reaction, reaction_times, says_unknown
from hypothesis import assume, given
from hypothesis import strategies as st

samples = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


def by_definition(novel, unknown, end, detection, counted="inclusive"):
    """Eq. 1, index by index."""
    n = len(novel)
    places = [i for i in range(n) if novel[i]]
    if not places:
        return math.nan
    a = places[0]
    z = n - 1 if end == "last_sample" else places[-1]
    d = next((i for i in range(a, z + 1) if unknown[i] and (detection == "any" or novel[i])), None)
    r = len(places)
    m = r if d is None else sum(novel[a : d + (counted == "inclusive")])
    d = z + 1 if d is None else d
    return 0.0 if d == a else 2 / ((z + 1 - a) / (d - a) + r / m)


def arrays(values):
    novel, unknown = zip(*values, strict=True)
    return np.array(novel), np.array(unknown)


@given(samples)
def test_all_readings_equal_the_definition(values):
    novel, unknown = arrays(values)
    assert len(reaction_times(novel, unknown)) == 8
    for name, time in reaction_times(novel, unknown).items():
        expected = by_definition(novel.tolist(), unknown.tolist(), *name.split("."))
        assert time == pytest.approx(expected, nan_ok=True)
        assert math.isnan(time) or 0 <= time <= 1


@given(samples)
def test_later_detection_is_never_better(values):
    novel, unknown = arrays(values)
    found = reaction(novel, unknown)
    assume(found.detected is not None)
    later = unknown.copy()
    later[found.detected] = False
    assert reaction(novel, later).time > found.time
    assert reaction(novel, unknown, detection="strict").time >= found.time


def test_edges():
    novel = np.array([False, False, True, False, True, False])
    never, at_once, before = np.zeros(6, bool), np.ones(6, bool), np.array([1, 1, 0, 0, 0, 0], bool)
    assert reaction(novel, never).time == 1
    assert reaction(novel, before).time == 1  # a false alarm before any novelty detects nothing
    assert reaction(novel, at_once).time == 0
    assert all(math.isnan(time) for time in reaction_times(never, at_once).values())
    assert math.isnan(reaction(np.zeros(0, bool), np.zeros(0, bool)).time)
    assert reaction(np.array([True]), np.array([True])).time == 0
    assert reaction(np.array([True]), np.array([False])).time == 1


def test_a_detection_by_hand():
    novel = np.array([0, 0, 1, 0, 1, 1, 0, 0], bool)
    unknown = np.array([0, 1, 0, 1, 1, 0, 0, 0], bool)
    any_last = reaction(novel, unknown)  # a = 2, d = 3, z = 7, m = 1, r = 3
    assert (any_last.first, any_last.detected, any_last.end, any_last.novel, any_last.novel_until) == (2, 3, 7, 3, 1)
    assert any_last.time == pytest.approx(2 / (6 / 1 + 3 / 1))
    assert reaction(novel, unknown, detection="strict").time == pytest.approx(2 / (6 / 2 + 3 / 2))  # d = 4, m = 2
    before = reaction(novel, unknown, detection="strict", counted="before")  # m = 1: the text has the samples before d
    assert before.time == pytest.approx(2 / (6 / 2 + 3 / 1))
    assert reaction(novel, unknown, end="last_novel").time == pytest.approx(2 / (4 / 1 + 3 / 1))  # z = 5


def test_a_detection_after_the_last_novel_sample_is_none_in_that_reading():
    novel, unknown = np.array([1, 0, 0], bool), np.array([0, 0, 1], bool)
    assert reaction(novel, unknown, end="last_novel").detected is None
    assert reaction(novel, unknown, end="last_novel").time == 1
    assert reaction(novel, unknown, end="last_sample").detected == 2


def test_what_is_novel_and_what_says_unknown():
    assert is_novel([3, 1, 2], [1, 2]).tolist() == [True, False, False]
    assert is_novel([3], []).tolist() == [True]
    assert says_unknown([-1, -7, 0, 3]).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("novel", "unknown", "words", "says"),
    [
        ([True], [True, False], {}, "must be"),
        ([1, 0], [0, 1], {}, "int64"),
        ([True], [True], {"end": "last"}, "end 'last'"),
        ([True], [True], {"detection": "all"}, "detection 'all'"),
        ([True], [True], {"counted": "after"}, "counted 'after'"),
    ],
)
def test_wrong_input_is_refused(novel, unknown, words, says):
    with pytest.raises(ValueError, match=says):
        reaction(novel, unknown, **words)
