"""Visual transforms: exact where they are exact, the same for all frames of a video but noise, the same bytes each time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from benchwright.curation.stages.visual_transforms import (
    KINDS,
    choose_kind,
    colour_jitter,
    draw_parameters,
    our_ranges,
    perspective,
    transform_frames,
)

OURS = our_ranges()
SHAPE = (5, 40, 56, 3)
MOVING = np.random.default_rng(1).integers(0, 256, SHAPE).astype(np.uint8)
STILL = np.repeat(MOVING[:1], 5, axis=0)


@pytest.mark.parametrize("kind", KINDS)
def test_same_arguments_same_bytes_and_frames_of_the_same_size(kind):
    once = transform_frames(MOVING, kind, 7, "video")
    assert once.shape == SHAPE
    assert once.dtype == np.uint8
    assert np.array_equal(once, transform_frames(MOVING.copy(), kind, 7, "video"))
    assert not np.array_equal(once, MOVING)


@pytest.mark.parametrize("kind", KINDS)
def test_input_is_left_as_it_is(kind):
    before = MOVING.copy()
    transform_frames(MOVING, kind, 7, "video")[:] = 0
    assert np.array_equal(MOVING, before)


@pytest.mark.parametrize("kind", ["colour_invert", "vertical_flip"])
def test_twice_is_nothing(kind):
    assert np.array_equal(transform_frames(transform_frames(MOVING, kind, 7, "v"), kind, 7, "v"), MOVING)


def test_invert_and_flip_are_what_they_are_called():
    assert np.array_equal(transform_frames(MOVING, "colour_invert", 0, "v").astype(int), 255 - MOVING.astype(int))
    assert np.array_equal(transform_frames(MOVING, "vertical_flip", 0, "v"), MOVING[:, ::-1])


@pytest.mark.parametrize("kind", KINDS)
def test_all_frames_alike_but_for_noise(kind):
    done = transform_frames(STILL, kind, 3, "video")
    alike = [np.array_equal(done[0], frame) for frame in done[1:]]
    assert alike == [kind != "gaussian_noise"] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_does_not_depend_on_the_frames_around_it(kind):
    assert np.array_equal(transform_frames(MOVING, kind, 3, "v")[:2], transform_frames(MOVING[:2], kind, 3, "v"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("colour_invert", "vertical_flip")])
def test_videos_and_seeds_differ(kind):
    first = transform_frames(STILL, kind, 3, "video")
    assert not np.array_equal(first, transform_frames(STILL, kind, 3, "another"))
    assert not np.array_equal(first, transform_frames(STILL, kind, 4, "video"))


def test_parameters_fill_their_ranges_and_stay_within():
    assert set(OURS) < set(KINDS)
    for kind, ranges in OURS.items():
        drawn = [draw_parameters(kind, 0, str(n), OURS) for n in range(400)]
        for name, (low, high) in ranges.items():
            values = np.abs([p[name] for p in drawn]) if name == "angle_deg" else np.asarray([p[name] for p in drawn])
            assert low <= values.min() < low + 0.1 * (high - low)
            assert high - 0.1 * (high - low) < values.max() <= high
    signs = Counter(draw_parameters("rotation", 0, str(n), OURS)["angle_deg"] > 0 for n in range(400))
    assert min(signs.values()) > 150
    assert draw_parameters("colour_invert", 0, "v", OURS) == {}


def test_noise_has_the_strength_that_was_drawn():
    grey = np.full((2, 200, 200, 3), 128, np.uint8)
    std = draw_parameters("gaussian_noise", 5, "v", OURS)["std_levels"]
    difference = transform_frames(grey, "gaussian_noise", 5, "v").astype(float) - 128
    assert abs(difference.mean()) < 0.3
    assert abs(difference.std() - std) < 0.02 * std
    assert abs(np.corrcoef(difference[0].ravel(), difference[1].ravel())[0, 1]) < 0.02


def test_blur_keeps_a_plain_picture_and_agrees_with_scipy():
    plain = np.full((1, 30, 30, 3), 77, np.uint8)
    assert np.array_equal(transform_frames(plain, "gaussian_blur", 0, "v"), plain)
    ndimage = pytest.importorskip("scipy.ndimage")
    frame = np.random.default_rng(2).integers(0, 256, (120, 160, 3)).astype(np.uint8)
    sigma = draw_parameters("gaussian_blur", 0, "v", OURS)["sigma_share"] * 120
    radius = int(np.ceil(3 * sigma))
    expected = ndimage.gaussian_filter(frame.astype(float), (sigma, sigma, 0), mode="reflect", radius=(radius, radius, 0))
    blurred = transform_frames(frame[None], "gaussian_blur", 0, "v")[0]
    assert np.abs(blurred - expected).max() <= 0.5 + 1e-3


def test_jitter_by_nothing_is_nothing_and_a_third_of_a_turn_moves_the_primaries():
    primaries = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], np.uint8)
    assert np.array_equal(colour_jitter(primaries, 1.0, 0.0), primaries)
    moved = colour_jitter(primaries, 1.0, 1 / 3).astype(int)
    assert np.abs(moved - primaries[:, [1, 2, 0]]).max() <= 6  # hue has 256 steps a turn
    assert np.array_equal(colour_jitter(np.full((2, 2, 3), 100, np.uint8), 0.5, 0.2), np.full((2, 2, 3), 50))


def test_rotation_fills_the_corners_with_one_colour():
    p = draw_parameters("rotation", 0, "v", OURS)
    white = np.full((1, 60, 60, 3), 255, np.uint8)
    done = transform_frames(white, "rotation", 0, "v")[0]
    assert done[0, 0].tolist() == p["fill_rgb"]
    assert (done[20:40, 20:40] == 255).all()


def test_perspective_takes_the_corners_where_it_says():
    frame = np.zeros((200, 300, 3), np.uint8)
    frame[..., 0] = 255
    shifts = [0.2, 0.1, 0.3, 0.3, 0.1, 0.2, 0.35, 0.15]
    done = perspective(frame, shifts, (0, 0, 255))
    inside = done[..., 0] > 127
    quad = [(30, 10), (300 - 45, 30), (300 - 15, 200 - 20), (52.5, 200 - 15)]
    # The even-odd area of the quadrilateral, and points on either side of each corner.
    x, y = np.array(quad).T
    area = abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
    assert abs(inside.sum() - area) < 0.01 * area
    for cx, cy in quad:
        towards = np.sign([150 - cx, 100 - cy]) * 4
        assert inside[int(cy + towards[1]), int(cx + towards[0])]
        assert not inside[int(cy - towards[1]), int(cx - towards[0])]
    assert np.array_equal(perspective(frame, [0.0] * 8, (0, 0, 255)), frame)


def test_bad_frames_are_told():
    with pytest.raises(ValueError, match=r"float64 \(2, 3, 4, 3\)"):
        transform_frames(np.ones((2, 3, 4, 3)), "rotation", 0, "v")
    with pytest.raises(ValueError, match="kind 'mirror'"):
        transform_frames(MOVING, "mirror", 0, "v")
    with pytest.raises(ValueError, match="kind 'mirror'"):
        choose_kind(["mirror"], 0, "v")
    with pytest.raises(ValueError, match="no kind"):
        choose_kind([], 0, "v")
    assert transform_frames(MOVING[:0], "rotation", 0, "v").shape == (0, 40, 56, 3)


@pytest.mark.parametrize("ranges", [{}, {"rotation": {}}, {"rotation": {"angle_deg": [9, 1]}}])
def test_ranges_must_be_there(ranges):
    with pytest.raises(ValueError, match="ranges of rotation"):
        transform_frames(MOVING, "rotation", 0, "v", ranges=ranges)
    assert transform_frames(MOVING, "vertical_flip", 0, "v", ranges=ranges).shape == SHAPE


def test_ranges_may_be_of_a_user():
    still = {"colour_jitter": {"brightness": [0, 0], "hue_turns": [0, 0]}}
    assert not transform_frames(MOVING, "colour_jitter", 0, "v", ranges=still).any()
