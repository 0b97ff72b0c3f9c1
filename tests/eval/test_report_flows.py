"""The picture of changed names."""

from __future__ import annotations

import re

import numpy as np
import pytest
from benchwright.eval.report.flows import Change, _stacked, flow_chart

KINDS = ("renamed", "split", "merged", "moved")
CHANGES = [
    Change("hugging", "hugging (not baby)", "renamed", 80),
    Change("throwing ball", "throwing a ball", "split", 60),
    Change("throwing ball", "juggling $1 & <b>", "split", 20),
    Change("making tea", "cooking", "merged", 5),
    Change("making soup", "cooking", "merged", 1),
]


def chart(changes: list[Change] = CHANGES):
    return flow_chart(changes, KINDS, old_axis="2017", new_axis="2018", value_axis="samples", caption="What changed.")


def test_bands_of_a_name_lie_together_and_are_as_thick_as_they_are_many():
    thick = np.array([1.8, 1.35, 0.45, 0.1, 0.05])
    top, middles, height = _stacked([each.old for each in CHANGES], thick)
    assert top[2] == pytest.approx(top[1] + 1.35)  # the bands of one name touch
    assert list(middles) == ["hugging", "throwing ball", "making tea", "making soup"]
    assert middles["throwing ball"] == pytest.approx(top[1] + 0.9)
    gaps = np.diff(list(middles.values()))
    assert (gaps >= 1).all()  # a line of text for each
    assert height == pytest.approx(1.8 + 1.8 + 1 + 1 + 4 * 0.12)


def test_the_figure_tells_its_numbers():
    figure = chart()
    assert figure.data is not None
    assert [list(row) for row in figure.data.rows] == [list(each) for each in CHANGES]
    assert "hugging to hugging (not baby) 80 (renamed)" in figure.alt
    svg = figure.light.decode()
    assert figure.dark is None
    assert len(re.findall(r'<g id="patch_\d+">', svg)) >= len(CHANGES)
    assert chart().light == figure.light  # the same bytes


def test_many_are_told_in_short():
    many = [Change(f"old {n}", f"new {n}", "moved", n + 1) for n in range(28)]
    assert chart(many).alt.endswith("; and 16 more.")


@pytest.mark.parametrize("changes", [[], [Change("a", "b", "grown", 1)], [Change("a", "b", "split", 0)]])
def test_what_cannot_be_drawn(changes: list[Change]):
    with pytest.raises(ValueError, match="one at least"):
        chart(changes)
