"""Figures of order sensitivity: what they tell, and what they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest
from benchwright.eval.report.dots import dot_chart
from benchwright.eval.report.order_sensitivity import accuracy_forgetting_chart
from benchwright.eval.report.skeletons import skeleton_chart


def test_points_and_bound_are_told_in_words_and_numbers():
    points = {"bare": ([0.2, 0.25], [0.9, 0.8]), "replay": ([0.7], [0.1])}
    figure = accuracy_forgetting_chart({"task orders": points}, tasks=5)
    assert "bare AA 0.225, AF 0.850; replay AA 0.700, AF 0.100" in figure.alt
    assert figure.data is not None
    assert list(figure.data.rows[0]) == pytest.approx(["bare", "task orders", 2, 0.225, 0.2, 0.25, 0.85, 0.8, 0.9])
    assert figure.light.startswith(b"<?xml")
    assert figure.dark is None
    again = accuracy_forgetting_chart({"task orders": points}, tasks=5)
    assert again.light == figure.light


def test_any_number_of_methods_and_two_kinds_of_orders_are_in_one_plot():
    names = [f"method {n}" for n in range(19)]
    task, of_class = ({name: ([0.01 * n + more], [0.5]) for n, name in enumerate(names)} for more in (0.1, 0.2))
    figure = accuracy_forgetting_chart({"task orders": task, "class orders": of_class}, tasks=5)
    assert figure.data is not None
    assert figure.points is not None
    assert len(figure.data.rows) == len(figure.points.rows) == 38
    assert list(figure.points.rows[-1]) == pytest.approx(["method 18", "class orders", 0, 0.38, 0.5])
    assert "method 3, class orders, AA 0.230" in figure.alt
    # No two methods look alike: at most eight of a colour, which have eight markers.
    drawn = re.findall(rb'<use xlink:href="#(\w+)"[^>]*style="fill: (#\w+)', figure.light)
    assert len({*drawn}) >= 19


def test_dumbbells_have_a_line_each_and_the_published_beside_them():
    figure = dot_chart(
        ["sit", "stand"],
        {"one": [0.2, 1.0], "other": [0.9, float("nan")]},
        label_axis="class",
        value_axis="accuracy",
        published={"one": [0.5, 0.5]},
    )
    assert "sit 20.0 and 90.0; stand 100.0 and none" in figure.alt
    assert figure.data is not None
    assert list(figure.data.columns) == ["class", "one", "other", "one, published"]
    assert figure.data.rows[0] == pytest.approx(["sit", 20, 90, 50])
    assert figure.dark is None
    for wrong in ({}, {"one": [0.5]}, {"one": [float("nan")] * 2}, {str(n): [0.5, 0.5] for n in range(13)}):
        with pytest.raises(ValueError, match=r"labels|NaN"):
            dot_chart(["a", "b"], wrong, label_axis="class", value_axis="accuracy")


@pytest.mark.parametrize(
    "points", [{}, {"bare": ([], [])}, {"bare": ([np.nan], [0.1])}, {"bare": ([0.1, 0.2], [0.1, 0.2, 0.3])}]
)
def test_what_cannot_be_drawn_is_refused(points):
    with pytest.raises(ValueError, match=r"one kind or two|broadcast"):
        accuracy_forgetting_chart({"task orders": points}, tasks=5)


def test_stick_figures_are_drawn_from_the_tensor():
    walk = np.zeros((3, 12, 3), np.float32)
    walk[0] = np.arange(12)[:, None] + [0, 1, 2]
    walk[1, :, 1] = 1
    figure = skeleton_chart({"walk": walk, "short": walk[:, :1]}, [(0, 1), (1, 2)])
    assert "2 sequences, 9 frames" in figure.alt
    assert figure.data is not None
    assert [list(row) for row in figure.data.rows] == [["walk", 12, 3, "0, 1, 2, 4, 5, 6, 8, 9, 11"], ["short", 1, 3, "0"]]
    assert figure.light != skeleton_chart({"walk": walk, "short": walk[:, :1]}, [(0, 1), (0, 2)]).light
    for wrong in ({}, {"flat": walk[0]}, {"gone": np.full((3, 2, 3), np.nan)}):
        with pytest.raises(ValueError, match="sequence"):
            skeleton_chart(wrong, [(0, 1)])
