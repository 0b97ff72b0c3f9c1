"""The tree of a hierarchy and confusion matrices as figures."""

from __future__ import annotations

import numpy as np
import pytest
from benchwright.eval.report.label_trees import confusion_figure, tree_figure


def test_tree() -> None:
    figure = tree_figure({"dog": ["pug", "$husky$"], "cat": ["manx"]}, ["newt"], caption="a caption")
    assert figure.alt == "Tree of 2 superclasses with 3 subclasses, and 1 lone subclasses: dog has 2; cat has 1."
    assert figure.light.startswith(b"<?xml")
    assert figure.light == tree_figure({"dog": ["pug", "$husky$"], "cat": ["manx"]}, ["newt"]).light
    assert figure.dark is None
    assert figure.data is not None
    assert list(figure.data.rows[0]) == ["dog", 2, "pug, $husky$"]
    assert list(figure.data.rows[-1]) == ["none", 1, "newt"]


def test_a_large_tree_is_counted_rather_than_named() -> None:
    groups = {f"top {n}": [f"sub {n} {k}" for k in range(10)] for n in range(30)}
    named, counted = tree_figure(groups, []), tree_figure(groups, ["x"])
    assert len(counted.light) < len(named.light) / 2
    assert counted.alt.endswith("and more.")


def test_trees_of_lone_classes_and_of_none() -> None:
    assert "0 superclasses with 0 subclasses, and 2 lone" in tree_figure({}, ["a", "b"]).alt
    with pytest.raises(ValueError, match="nothing to draw"):
        tree_figure({}, [])


def test_confusion() -> None:
    matrices = {"right": np.eye(3), "found": np.array([[0.5, 0, 0], [0, 1, 0], [np.nan] * 3])}
    figure = confusion_figure(matrices, ["a", "b", "c"], breaks=[1], caption="a caption")
    assert figure.alt == (
        "Which of 3 labels are predicted for samples of each. "
        "right: on the diagonal 100%; found: on the diagonal 75% in the mean."
    )
    assert figure.data is not None
    assert list(figure.data.rows[1]) == ["b", 1.0, 1.0]
    with pytest.raises(ValueError, match="for 2 labels"):
        confusion_figure(matrices, ["a", "b"])
