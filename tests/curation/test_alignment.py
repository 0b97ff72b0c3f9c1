"""Homographies, warping with averaging, and the colour chart."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from benchwright.curation.rows import Reject
from benchwright.curation.stages import alignment
from benchwright.curation.stages.alignment import align, fit_homography, mapped, match_points, scaled, tile_points
from benchwright.curation.stages.colour_chart import find_chart, light, measure_patches, outline, patch_centres
from benchwright.curation.stages.raw import Linear

from tests.curation.phone_pairs import phone

WIDTH, HEIGHT = 640, 480
CORNERS = np.array([[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]], dtype=float)


def linear(rgb, scale=1, saturated=None):
    over = np.zeros(rgb.shape[:2], dtype=bool) if saturated is None else saturated
    return Linear(np.asarray(rgb, dtype=np.float32), over, scale)


@pytest.fixture(scope="module")
def scene():
    return phone.drawn_scene(WIDTH, HEIGHT, np.random.default_rng(0))


@pytest.fixture(scope="module")
def pair(scene):
    place = phone.homography(WIDTH, HEIGHT)
    moved = cv2.warpPerspective(scene, np.linalg.inv(place), (WIDTH, HEIGHT), flags=cv2.INTER_CUBIC)
    return linear(scene), linear(moved @ phone.CAMERA_2.astype(np.float32)), place


def test_scaling_a_homography_keeps_pixel_centres():
    matrix = phone.homography(WIDTH, HEIGHT)
    point = np.array([[37.0, 12.0]])
    half = (point - 0.5) / 2  # binned by 2, pixel x lies at raw 2 x + 0.5
    there = mapped(half, scaled(matrix, scale_2=2, scale_1=6))
    assert there * 6 + 2.5 == pytest.approx(mapped(point, matrix))


def test_features_and_tiles_find_a_known_homography(pair):
    one, two, place = pair
    first = fit_homography(*match_points(one, two), threshold_px=3)
    assert np.linalg.norm(mapped(CORNERS, first.matrix) - mapped(CORNERS, place), axis=1).max() < 2
    last = fit_homography(*tile_points(one, two, homography=first.matrix), threshold_px=3)
    assert np.linalg.norm(mapped(CORNERS, last.matrix) - mapped(CORNERS, place), axis=1).max() < 0.25
    assert 0 < last.residual_px < 1
    assert last.points > 100


def test_the_number_of_threads_changes_nothing(pair):
    one, two, _ = pair
    before = cv2.getNumThreads()
    found = []
    try:
        for threads in (1, 2, 4):
            cv2.setNumThreads(threads)
            points = match_points(one, two)
            found.append((*points, fit_homography(*points, threshold_px=3).matrix))
    finally:
        cv2.setNumThreads(before)
    for again in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], again, strict=True))


def test_a_homography_that_is_not_there_is_told():
    generator = np.random.default_rng(0)
    scattered = generator.uniform(0, 500, (200, 2)), generator.uniform(0, 500, (200, 2))
    with pytest.raises(Reject) as caught:
        fit_homography(*scattered, threshold_px=2)
    assert caught.value.reason in ("too_few_matches", "no_homography")
    with pytest.raises(Reject, match="5 points, expected at least 20"):
        fit_homography(scattered[0][:5], scattered[1][:5], threshold_px=2)
    flat = linear(np.full((64, 64, 3), 0.5))
    assert len(match_points(flat, flat)[0]) == 0
    assert len(tile_points(flat, flat, homography=np.eye(3))[0]) == 0


def test_outliers_do_not_move_a_homography():
    generator = np.random.default_rng(1)
    place = phone.homography(WIDTH, HEIGHT)
    points_2 = generator.uniform(0, 640, (300, 2))
    points_1 = mapped(points_2, place)
    points_1[:120] = generator.uniform(0, 640, (120, 2))
    found = fit_homography(points_1, points_2, threshold_px=2)
    assert np.allclose(found.matrix, place, atol=1e-6)
    assert 180 <= found.points <= 185


def test_aligning_averages_squares_and_masks_what_is_unseen_or_saturated():
    picture = np.arange(12 * 18 * 3, dtype=np.float32).reshape(12, 18, 3) / 1000
    saturated = np.zeros((12, 18), dtype=bool)
    saturated[7, 7] = True
    shift = np.array([[1.0, 0, 6], [0, 1, 0], [0, 0, 1]])  # the second sees what lies 6 further right in the first
    moved = np.roll(picture, -6, axis=1)
    found = align(linear(picture, saturated=saturated), linear(moved), homography=shift, factor=6)
    means = picture.reshape(2, 6, 3, 6, 3).mean(axis=(1, 3))
    assert found.image_1 == pytest.approx(means, abs=1e-5)
    assert found.image_2[:, 1:] == pytest.approx(means[:, 1:], abs=1e-5)
    assert found.valid.tolist() == [[False, True, True], [False, False, True]]


def test_a_picture_warped_in_strips_is_that_warped_at_once(pair, monkeypatch):
    place = np.array([[1.01, 0.02, -3.3], [-0.01, 0.99, 2.2], [1e-5, -2e-5, 1.0]])
    found = []
    for strip in (10_000, 5):
        monkeypatch.setattr(alignment, "_STRIP_ROWS", strip)
        found.append(align(*pair[:2], homography=place, factor=6))
    whole, strips = found
    # OpenCV rounds places to 1/32 of a pixel, from sums that differ in their last digit.
    assert np.abs(strips.image_2.astype(float) - whole.image_2).max() < 0.002 * whole.image_2.max()
    assert np.array_equal(strips.valid, whole.valid)


def test_a_picture_smaller_than_a_square_is_turned_away():
    with pytest.raises(Reject, match="5x5 pixels, squares of 6"):
        align(linear(np.zeros((5, 5, 3))), linear(np.zeros((5, 5, 3))), homography=np.eye(3), factor=6)


# --------------------------------------------------------------------------------------------------------------- chart


@pytest.fixture(scope="module")
def chart(scene):
    picture = scene.copy()
    colours = phone.chart_colours() * 0.8
    corners = phone.paste_chart(picture, colours=colours, left=330, top=300, spacing=40)
    return picture, corners, colours


def test_patches_are_measured_where_they_are(chart):
    picture, corners, colours = chart
    assert patch_centres(corners)[[0, 1, 6, 23]].tolist() == [[330, 300], [370, 300], [330, 340], [530, 420]]
    found = measure_patches(linear(picture), corners)
    assert found.colours == pytest.approx(colours, abs=1e-6)
    assert (found.pixels > 300).all()
    assert found.spread.max() < 1e-6


def test_hot_pixels_do_not_move_a_patch(chart):
    picture, corners, colours = chart
    noisy = picture.copy()
    generator = np.random.default_rng(0)
    hot = generator.uniform(size=noisy.shape[:2]) < 0.02
    noisy[hot] = 1.0
    assert measure_patches(linear(noisy), corners).colours == pytest.approx(colours, abs=1e-6)


def test_the_light_is_that_of_the_greys_that_are_neither_saturated_nor_dark(chart):
    picture, corners, colours = chart
    warm = np.array([1.2, 1.0, 0.5], dtype=np.float32)
    lit = picture * warm
    patches = measure_patches(linear(lit, saturated=(lit >= 0.8).any(axis=2)), corners)
    assert patches.saturated[18]
    expected = (colours[19:23] * warm).sum(axis=0)
    assert light(patches) == pytest.approx(expected / expected[1], rel=1e-5)
    with pytest.raises(Reject, match="all grey patches are saturated"):
        light(measure_patches(linear(lit, saturated=np.ones(lit.shape[:2], dtype=bool)), corners))
    with pytest.raises(Reject, match=r"limit 0\.01"):
        light(measure_patches(linear(lit / 1000), corners))


def test_a_chart_that_is_not_in_the_picture_is_turned_away(chart):
    picture, corners, _ = chart
    with pytest.raises(Reject, match="chart_outside"):
        measure_patches(linear(picture), corners + 200)
    with pytest.raises(Reject, match="chart_too_small"):
        measure_patches(linear(picture), 300 + (corners - 300) / 40)


def test_the_outline_holds_the_frame_and_no_more_than_a_patch_beside_it(chart):
    _, corners, _ = chart
    low, high = outline(corners).min(axis=0), outline(corners).max(axis=0)
    assert low == pytest.approx([330 - 54, 300 - 54], abs=1e-4)
    assert high == pytest.approx([530 + 54, 420 + 54], abs=1e-4)


def test_a_chart_is_found_by_the_detector_and_missed_where_there_is_none():
    canvas = np.full((600, 900, 3), 0.25, dtype=np.float32)
    corners = phone.paste_chart(canvas, colours=phone.chart_colours() * 0.8, left=220, top=180, spacing=80)
    light_of_day = np.array([0.9, 1.0, 0.7], dtype=np.float32)
    assert np.abs(find_chart(linear(canvas * light_of_day)) - corners).max() < 12
    with pytest.raises(Reject, match="no_chart"):
        find_chart(linear(np.full((300, 400, 3), 0.3)))
