"""Maps of vectors and the drift of class means: the same numbers whatever the batches, and what they show."""

from __future__ import annotations

import re

import numpy as np
import pytest
from benchwright.eval.metrics.drift import cosine_distances, group_sums, principal_plane
from benchwright.eval.report.blocks import Figure, Heats, Table, Text
from benchwright.eval.report.maps import CLASSES, KINDS, drift_blocks, map_figures, scatter_chart

DRAW = np.random.default_rng(0)


def test_the_plane_is_that_of_greatest_variance_whatever_the_sign_and_the_order() -> None:
    plane = np.linalg.qr(DRAW.normal(size=(6, 6)))[0][:2]
    true = DRAW.normal(size=(50, 2)) * [5, 2]
    vectors = true @ plane + 0.01 * DRAW.normal(size=(50, 6)) + 7
    points, shares = principal_plane(vectors)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert distances == pytest.approx(np.linalg.norm(true[:, None] - true[None], axis=2), abs=0.1)
    assert shares.sum() == pytest.approx(1, abs=1e-3)
    assert shares[0] > shares[1]
    order = DRAW.permutation(50)
    again, _ = principal_plane(vectors[order])
    assert again == pytest.approx(points[order], abs=1e-9)
    directions = np.linalg.lstsq(points, vectors - vectors.mean(axis=0), rcond=None)[0]
    assert all(row[np.abs(row).argmax()] > 0 for row in directions)
    mirrored, _ = principal_plane(-vectors)
    assert mirrored == pytest.approx(-points, abs=1e-9)


@pytest.mark.parametrize("vectors", [[[1.0, 2.0]], [[1.0, 2.0]] * 5, [[1.0], [2.0], [4.0]]])
def test_a_plane_that_there_is_not(vectors: list[list[float]]) -> None:
    points, shares = principal_plane(vectors)
    assert np.isfinite(points).all()
    assert (points[:, 1] == 0).all()
    assert shares[1] == 0


def test_sums_of_groups_do_not_depend_on_the_batches() -> None:
    vectors, groups = DRAW.normal(size=(40, 3)), DRAW.integers(0, 4, 40)
    expected = np.array([vectors[groups == group].sum(axis=0) for group in range(5)])
    for size in (1, 7, 40):
        found = group_sums((vectors[at : at + size].astype(np.float32) for at in range(0, 40, size)), groups, 5)
        assert found == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="39 vectors for 40 groups"):
        group_sums([vectors[:39]], groups, 5)


def test_cosine_distances_of_sums_are_those_of_means() -> None:
    a, b = DRAW.random((4, 3)), DRAW.random((4, 3))
    assert cosine_distances(5 * a, b / 9) == pytest.approx(cosine_distances(a, b))
    assert cosine_distances(a, a) == pytest.approx(np.zeros(4), abs=1e-12)


def drifting(classes: int, domains: int, step: float) -> np.ndarray:
    """Sums of two halves of unit vectors that turn by ``step`` radians a domain, each class in a plane of its own."""
    sums = np.zeros((2, classes, domains, 2 * classes))
    for name in range(classes):
        for domain in range(domains):
            angle = step * domain * (name + 1)
            sums[:, name, domain, 2 * name : 2 * name + 2] = np.cos(angle), np.sin(angle)
    return sums


def test_drift_is_the_distance_from_the_first_domain() -> None:
    told, curves, heats = drift_blocks(drifting(2, 3, 0.1), ["cat", "dog"], ["2009", "2010", "2011"], of="bucket")
    assert isinstance(curves, Figure)
    assert isinstance(curves.data, Table)
    assert [list(row) for row in curves.data.rows] == [
        ["2009", 0.0, 0.0],
        ["2010", pytest.approx(1 - np.cos(0.1)), pytest.approx(1 - np.cos(0.2))],
        ["2011", pytest.approx(1 - np.cos(0.2)), pytest.approx(1 - np.cos(0.4))],
    ]
    assert isinstance(heats, Heats)
    between = np.array(heats.heats[0].values)
    assert np.diagonal(between) == pytest.approx(np.zeros(3), abs=1e-12)
    assert between[0, 1] == pytest.approx(1 - (np.cos(0.1) + np.cos(0.2)) / 2)
    assert (between == between.T).all()
    assert isinstance(told, Text)
    assert "a mean distance of 0.0000" in told.paragraphs[1]


def test_a_class_that_a_domain_lacks_and_one_of_no_domain() -> None:
    sums = drifting(3, 3, 0.1)
    sums[:, 0, 0] = 0  # comes later: from its first domain on
    sums[:, 2] = 0
    blocks = drift_blocks(sums, ["late", "whole", "none"], ["a", "b", "c"], of="bucket")
    curves = blocks[1]
    assert isinstance(curves, Figure)
    assert curves.data is not None
    assert curves.data.columns == ["bucket", "late", "whole"]
    assert [row[1] for row in curves.data.rows][1:] == [0.0, pytest.approx(1 - np.cos(0.1))]
    assert np.isnan(curves.data.rows[0][1])
    assert drift_blocks(sums[:, :, :1], ["a", "b", "c"], ["a"], of="bucket") == []


def test_of_many_classes_those_that_move_furthest_have_a_curve() -> None:
    names = [f"class {at}" for at in range(CLASSES + 3)]
    figures = [
        each for each in drift_blocks(drifting(len(names), 2, 0.02), names, ["a", "b"], of="bucket") if isinstance(each, Figure)
    ]
    shown = [name for figure in figures if figure.data is not None for name in figure.data.columns[1:]]
    assert shown == names[3:]
    assert f"The {CLASSES} of {len(names)} classes that move most." in figures[0].caption


def test_maps_of_classes_and_of_domains_are_the_same_bytes_twice() -> None:
    vectors = DRAW.normal(size=(30, 8)).astype(np.float32)
    kinds = [("class", ["cat", "dog"], np.arange(30) % 2, False), ("bucket", list("abc"), np.arange(30) % 3, True)]
    first, second = (map_figures(vectors, kinds, seed=0) for _ in range(2))
    assert [figure.light for figure in first] == [figure.light for figure in second]
    assert "30 samples by principal components, coloured by class." in [figure.caption for figure in first]
    assert first[0].data is not None
    assert [row[:2] for row in first[0].data.rows] == [["cat", 15], ["dog", 15]]
    assert first[1].dark not in (None, first[1].light)


def test_groups_beyond_those_that_colours_tell_apart_are_drawn_as_one() -> None:
    count = KINDS + 3
    of = np.repeat(np.arange(count), np.r_[1:4, [5] * KINDS])
    figure = scatter_chart(
        DRAW.normal(size=(len(of), 2)), of, [f"c{at}" for at in range(count)], axes=("", ""), group_axis="class"
    )
    named = re.findall(rb"<!-- (c\d+|others) -->", figure.light)
    assert named[-1] == b"others"
    assert len(named) == KINDS
    assert b"c0" not in named
    with pytest.raises(ValueError, match="at least one"):
        scatter_chart(np.zeros((2, 2)), [0, 5], ["a"], axes=("", ""), group_axis="class")
