"""Pictures as examples: what evaluation sees, what augmentation may do, and sets of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from benchwright.training.data.examples import Draw
from benchwright.training.data.pictures import PictureCache, PictureExamples, PictureView, ReadPictures, crop_size

PLAIN = PictureView(side_px=8, resize_px=8, augment="crop_flip", mean=(0, 0, 0), std=(1, 1, 1), pad_px=2)
DRAW = Draw(0, "task 0, epoch 0")


def pixels(count: int = 6, side: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 256, (count, side, side, 3), dtype=np.uint8)


def in_memory(**size: int) -> ReadPictures:
    return lambda rows: [pixels(**size)[row] for row in rows]


def pictures(view: PictureView = PLAIN, *, side: int = 8, **held: int) -> PictureExamples:
    labels = np.array([[0, -1], [1, 0], [2, -1], [0, -1], [1, 0], [2, -1]])
    album = PictureCache(in_memory(side=side), view, **held)
    return PictureExamples(album, [f"p{n}" for n in range(6)], np.arange(6), labels)


def test_evaluation_sees_the_pixels() -> None:
    seen = pictures().load([4, 1], None)
    assert seen.dtype == torch.float32
    assert torch.equal((seen * 255).round().to(torch.uint8), torch.from_numpy(pixels()[[4, 1]]).permute(0, 3, 1, 2))
    normal = PictureView(8, 8, "none", (0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    assert pictures(normal).load([0], DRAW)[0, 2, 0, 0] == pytest.approx((pixels()[0, 0, 0, 2] / 255 - 0.3) / 0.1, abs=1e-5)


def test_a_crop_is_a_window_of_the_padded_square() -> None:
    """Every augmented picture is one of (2 * 2 + 1)^2 windows of the picture in two black pixels, mirrored or not."""
    examples = pictures()
    padded = np.pad(pixels(), ((0, 0), (2, 2), (2, 2), (0, 0))).transpose(0, 3, 1, 2)
    windows = set()
    for epoch in range(30):
        seen = (examples.load(range(6), Draw(0, f"epoch {epoch}")) * 255).round().to(torch.uint8).numpy()
        for row in range(6):
            found = [
                (y, x, flip)
                for y in range(5)
                for x in range(5)
                for flip in (False, True)
                if (seen[row][:, :, ::-1] if flip else seen[row]).tobytes() == padded[row, :, y : y + 8, x : x + 8].tobytes()
            ]
            assert len(found) == 1
            windows.add(found[0])
    assert len(windows) > 45  # of 50, in 180 draws
    assert {flip for *_, flip in windows} == {False, True}


def test_a_draw_depends_on_the_key_and_the_stage_alone() -> None:
    whole = pictures().load(range(6), DRAW)
    assert torch.equal(pictures(held_bytes=0).load([5, 2], DRAW), whole[[5, 2]])
    assert torch.equal(pictures().take(np.array([3, 0])).load([1], DRAW), whole[[0]])
    assert not torch.equal(pictures().load(range(6), Draw(0, "another")), whole)
    assert not torch.equal(pictures().load(range(6), Draw(1, DRAW.stage)), whole)


def test_squares_are_kept_while_there_is_room() -> None:
    read_so_far: list[int] = []

    def read(rows: Sequence[int]) -> list[np.ndarray]:
        read_so_far.extend(rows)
        return in_memory()(rows)

    album = PictureCache(read, PLAIN, held_bytes=3 * 3 * 8 * 8)
    for _ in range(2):
        seen = album.squares([0, 1, 2, 3, 0])
        assert [square.tolist() for square in seen] == [pixels()[row].transpose(2, 0, 1).tolist() for row in (0, 1, 2, 3, 0)]
    assert len(read_so_far) == 4 + 1


def test_one_picture_under_two_labels() -> None:
    album = PictureCache(in_memory(), PLAIN)
    keys = [f"p{n}" for n in range(6)]
    first = PictureExamples(album, keys, np.array([0, 1]), np.array([[0, -1], [0, -1]]))
    second = PictureExamples(album, keys, np.array([1]), np.array([[3, -1]]))
    assert first.keys[1] == second.keys[0] == "p1"
    assert torch.equal(first.load([1], None), second.load([0], None))
    assert first.sizes.tolist() == [1, 1]
    with pytest.raises(ValueError, match="one n is needed"):
        PictureExamples(album, keys, np.array([0, 1]), np.array([[0, -1]]))


def test_imagenets_view() -> None:
    view = PictureView(side_px=8, resize_px=9, augment="resized_crop_flip", mean=(0, 0, 0), std=(1, 1, 1))
    examples = pictures(view, side=20)
    seen = examples.load([0, 1, 2], DRAW)
    assert seen.shape == (3, 3, 8, 8)
    assert 0 <= seen.min() <= seen.max() <= 1
    assert torch.equal(examples.load([2], DRAW), seen[[2]])
    # The picture's mean colour survives cutting and scaling, more or less.
    assert abs(float(seen.mean()) - pixels(side=20)[:3].mean() / 255) < 0.1


def test_sizes_of_resized_crops() -> None:
    assert crop_size(100, 100, 0, 0.5) == (28, 28)  # 8 % at an aspect of 1
    assert crop_size(100, 100, 1, 0.5) == (100, 100)
    height, width = crop_size(200, 200, 0.2, 1)  # an aspect of 4/3
    assert width / height == pytest.approx(4 / 3, rel=0.02)
    assert width * height == pytest.approx((0.08 + 0.92 * 0.2) * 200 * 200, rel=0.02)
    assert crop_size(10, 100, 0.9, 0.0)[0] == 10
    shares = np.random.default_rng(0).random((500, 2))
    areas = [math.prod(crop_size(300, 400, a, r)) / 120_000 for a, r in shares.tolist()]
    assert 0.079 < min(areas) <= max(areas) <= 1


@pytest.mark.parametrize("settings", [{"side_px": 9}, {"augment": "flip"}, {"pad_px": -1}, {"side_px": 0}])
def test_views_that_there_are_not(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"augment|px"):
        PictureView(**{**vars(PLAIN), **settings})  # type: ignore[arg-type]
