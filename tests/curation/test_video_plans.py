"""Which frames a plan chooses, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from benchwright.curation.rng import rng
from benchwright.curation.rows import Reject
from benchwright.curation.video.frame_plans import (
    FramePlan,
    choose_frames,
    dense_frames,
    memory_frames,
    segment_bounds,
    segment_frames,
    uniform_frames,
)


def even_times(n_frames: int, fps: float) -> np.ndarray:
    return np.arange(n_frames + 1) / fps


def test_dense_frames_are_a_window_within_the_clip() -> None:
    draws = np.array([dense_frames(20, 4, 3, rng(0, "test", str(draw))) for draw in range(200)])
    assert (np.diff(draws) == 3).all()
    assert set(draws[:, 0].tolist()) == set(range(11)), "from the first place to the last that leaves room"
    assert dense_frames(20, 4, 3, None).tolist() == [5, 8, 11, 14]
    assert dense_frames(10, 4, 3, rng(0, "test")).tolist() == [0, 3, 6, 9], "one place alone"
    assert dense_frames(9, 4, 3, rng(0, "test")).tolist() == [0, 2, 4, 6], "spread over what there is"
    with pytest.raises(ValueError, match="stride 0"):
        dense_frames(9, 4, 0, None)


def test_uniform_frames_stand_in_the_middle_of_their_shares():
    assert uniform_frames(16, 8).tolist() == [1, 3, 5, 7, 9, 11, 13, 15]
    assert uniform_frames(77, 8).tolist() == [4, 14, 24, 33, 43, 52, 62, 72]  # tick 9.625
    assert uniform_frames(4, 8).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert uniform_frames(1, 3).tolist() == [0, 0, 0]


def test_uniform_frames_of_every_count_are_in_range_and_in_order():
    for n_frames in range(1, 300):
        for n in (1, 4, 8, 16):
            frames = uniform_frames(n_frames, n)
            assert len(frames) == n
            assert 0 <= frames[0] <= frames[-1] < n_frames
            assert np.all(np.diff(frames) >= (n_frames // n if n_frames >= n else 0))


def test_segments_draw_one_frame_of_each_and_never_the_last_remainder():
    draws = np.array([segment_frames(83, 8, rng(0, "test", str(draw))) for draw in range(400)])
    low = np.arange(8) * 10
    assert np.all((draws >= low) & (draws < low + 10))
    assert draws.max() == 79  # 80, 81 and 82 are the remainder of 83 by 8
    assert {tuple(np.unique(column - begin)) for column, begin in zip(draws.T, low, strict=True)} == {tuple(range(10))}


def test_clips_shorter_than_the_segments_repeat_their_frames_in_order():
    assert segment_frames(4, 8, rng(0, "test")).tolist() == np.repeat(np.arange(4), 2).tolist()
    assert segment_frames(3, 8, rng(0, "test")).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_memory_keeps_uniform_frames_or_all():
    assert memory_frames(16, 4).tolist() == [2, 6, 10, 14]
    assert memory_frames(3, 4).tolist() == [0, 1, 2]
    assert memory_frames(5, None).tolist() == [0, 1, 2, 3, 4]


def test_draws_depend_on_seed_and_key_alone():
    plan = FramePlan("segments", n=8, seed=3)
    once = choose_frames(plan, even_times(100, 25), fps=25, key="a")
    assert once == choose_frames(plan, even_times(100, 25), fps=25, key="a")
    assert once != choose_frames(plan, even_times(100, 25), fps=25, key="b")
    assert once != choose_frames(FramePlan("segments", n=8, seed=4), even_times(100, 25), fps=25, key="a")


def test_a_segment_is_cut_by_rounded_times():
    places, _ = choose_frames(FramePlan("all"), even_times(100, 30), fps=30, t_start=0.5, t_end=0.85)
    assert places == list(range(15, 26))  # round(25.5) is 26 in Python: to the even neighbour
    assert segment_bounds(100, 30, 3.0, 9.0) == (90, 100)
    assert segment_bounds(100, 30, None, 1.0) == (0, 30)
    assert choose_frames(FramePlan("uniform", n=2), even_times(100, 30), fps=30, t_start=1, t_end=2)[0] == [37, 52]


@pytest.mark.parametrize(("start", "end"), [(-1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (float("nan"), 2.0), (0.0, float("inf"))])
def test_a_segment_that_is_none_is_turned_away(start, end):
    with pytest.raises(Reject, match="bad_segment"):
        segment_bounds(100, 30, start, end)


def test_clips_below_the_least_number_are_turned_away():
    plan = FramePlan("uniform", n=8, min_frames=8)
    assert len(choose_frames(plan, even_times(8, 25), fps=25)[0]) == 8
    for times, cut in ((even_times(7, 25), {}), (even_times(100, 25), {"t_start": 1.0, "t_end": 1.2})):
        with pytest.raises(Reject, match="too_few_frames"):
            choose_frames(plan, times, fps=25, **cut)
    with pytest.raises(Reject, match="too_few_frames"):
        choose_frames(FramePlan("all"), even_times(100, 25), fps=25, t_start=9.0, t_end=10.0)


def test_a_clock_shows_the_frame_on_display():
    # Begin at 0, 0.1, 0.5 and 0.6 s, end at 1 s: at 5 a second the ticks are 0, 0.2, 0.4, 0.6 and 0.8.
    times = np.array([0.0, 0.1, 0.5, 0.6, 1.0])
    assert choose_frames(FramePlan("all", fps=5), times, fps=4)[0] == [0, 1, 1, 3, 3]
    assert choose_frames(FramePlan("all", fps=5), times, fps=4, t_start=0.2, t_end=0.6)[0] == [1, 1]
    assert choose_frames(FramePlan("uniform", n=2, fps=5), times, fps=4)[0] == [1, 3]
    fast, n_available = choose_frames(FramePlan("all", fps=30), even_times(25, 25), fps=25)
    assert (len(fast), n_available) == (30, 30)
    assert fast[:7] == [0, 0, 1, 2, 3, 4, 5]  # 1/30 s is within the first frame's 1/25 s
    assert choose_frames(FramePlan("all", fps=25), even_times(75, 25), fps=25)[0] == list(range(75))
    assert choose_frames(FramePlan("all", fps=0.1), even_times(5, 25), fps=25)[0] == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "every"},
        {"kind": "uniform"},
        {"kind": "uniform", "n": 0},
        {"kind": "all", "n": 3},
        {"kind": "segments", "n": 8},
        {"kind": "uniform", "n": 8, "seed": 1},
        {"kind": "all", "fps": 0},
        {"kind": "all", "fps": float("nan")},
        {"kind": "all", "min_frames": 0},
    ],
)
def test_a_plan_that_means_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="plan"):
        FramePlan(**wrong)
