"""Figures of order sensitivity: what they tell, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from benchwright.eval.report.order_sensitivity import accuracy_forgetting_chart
from benchwright.eval.report.skeletons import skeleton_chart


def test_points_and_bound_are_told_in_words_and_numbers():
    figure = accuracy_forgetting_chart({"bare": ([0.2, 0.25], [0.9, 0.8]), "replay": ([0.7], [0.1])}, tasks=5)
    assert "bare AA 0.225, AF 0.850; replay AA 0.700, AF 0.100" in figure.alt
    assert figure.data is not None
    assert list(figure.data.rows[0]) == pytest.approx(["bare", 2, 0.225, 0.2, 0.25, 0.85, 0.8, 0.9])
    assert figure.light.startswith(b"<?xml")
    assert figure.light != figure.dark
    again = accuracy_forgetting_chart({"bare": ([0.2, 0.25], [0.9, 0.8]), "replay": ([0.7], [0.1])}, tasks=5)
    assert again.light == figure.light


@pytest.mark.parametrize(
    "points", [{}, {"bare": ([], [])}, {"bare": ([np.nan], [0.1])}, {str(n): ([0], [0]) for n in range(9)}]
)
def test_what_cannot_be_drawn_is_refused(points):
    with pytest.raises(ValueError, match="one to eight methods"):
        accuracy_forgetting_chart(points, tasks=5)


def test_stick_figures_are_drawn_from_the_tensor():
    walk = np.zeros((3, 12, 3), np.float32)
    walk[0] = np.arange(12)[:, None] + [0, 1, 2]
    walk[1, :, 1] = 1
    figure = skeleton_chart({"walk": walk, "short": walk[:, :1]}, [(0, 1), (1, 2)], frames=4)
    assert "2 sequences, 4 frames" in figure.alt
    assert figure.data is not None
    assert [list(row) for row in figure.data.rows] == [["walk", 12, 3, "0, 3, 7, 11"], ["short", 1, 3, "0"]]
    assert figure.light != skeleton_chart({"walk": walk, "short": walk[:, :1]}, [(0, 1), (0, 2)], frames=4).light
    for wrong in ({}, {"flat": walk[0]}, {"gone": np.full((3, 2, 3), np.nan)}):
        with pytest.raises(ValueError, match="sequence"):
            skeleton_chart(wrong, [(0, 1)])
