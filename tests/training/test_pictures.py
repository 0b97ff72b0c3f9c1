"""Pictures as examples: what evaluation sees, what augmentation may do, and sets of labels."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.ustar import ShardError
from benchwright.datasets.reader.decode import decode_image
from benchwright.training.baselines.clear import paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.learner import Learner
from benchwright.training.data.examples import Draw
from benchwright.training.data.pictures import PictureCache, PictureExamples, PictureView, ReadPictures, crop_size
from benchwright.training.methods.finetune import finetune
from benchwright.training.models.picture_net import picture_net
from PIL import Image

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


CLEAR = PictureView(side_px=8, resize_px=8, augment="window_flip", mean=(0, 0, 0), std=(1, 1, 1))


def wide(rows: Sequence[int]) -> list[np.ndarray]:
    """Pictures of 8 x 14 pixels, and of 12 x 8."""
    sizes = [(8, 14), (12, 8)]
    return [np.random.default_rng(row).integers(1, 256, (*sizes[row % 2], 3), dtype=np.uint8) for row in rows]


def windows_of(view: PictureView, read: ReadPictures = wide) -> PictureExamples:
    return PictureExamples(PictureCache(read, view), [f"p{n}" for n in range(4)], np.arange(4), np.zeros(4, np.int64))


def as_bytes(seen: torch.Tensor) -> np.ndarray:
    return (seen * 255).round().to(torch.uint8).numpy()


def test_a_window_is_any_square_of_the_scaled_picture_mirrored_or_not() -> None:
    """RandomCrop and RandomHorizontalFlip of torchvision on the whole picture, and not on the square at its centre."""
    examples, found = windows_of(CLEAR), set[tuple[int, int, bool]]()
    for epoch in range(60):
        seen = as_bytes(examples.load([0, 1], Draw(0, f"epoch {epoch}")))
        for row, places in ((0, [(0, x) for x in range(7)]), (1, [(y, 0) for y in range(5)])):
            picture = wide([row])[0].transpose(2, 0, 1)
            fits = [
                (y, x, flip)
                for y, x in places
                for flip in (False, True)
                if (seen[row][:, :, ::-1] if flip else seen[row]).tobytes() == picture[:, y : y + 8, x : x + 8].tobytes()
            ]
            assert len(fits) == 1
            found.add((*fits[0][:2], fits[0][2]))
    assert {place for place in found if place[1]} == {(0, x, flip) for x in range(1, 7) for flip in (False, True)}
    assert {y for y, x, _ in found if not x} == {0, 1, 2, 3, 4}
    centre = as_bytes(examples.load([0, 1], None))
    assert np.array_equal(centre[0], wide([0])[0].transpose(2, 0, 1)[:, :, 3:11])
    assert np.array_equal(centre[1], wide([1])[0].transpose(2, 0, 1)[:, 2:10])


def test_the_papers_resize_scales_the_longer_side_and_adds_black() -> None:
    view = dataclasses.replace(CLEAR, resize="as_written", side_px=14, resize_px=14)
    examples, picture = windows_of(view), wide([0])[0].transpose(2, 0, 1)
    centre = as_bytes(examples.load([0], None))[0]
    assert np.array_equal(centre[:, 3:11], picture)
    assert not centre[:, :3].any()
    assert not centre[:, 11:].any()
    tops = set[int]()
    for epoch in range(40):
        seen = as_bytes(examples.load([0], Draw(0, f"epoch {epoch}")))[0]
        top = int(np.flatnonzero(seen.any(axis=(0, 2)))[0])
        part = seen[:, top : top + 8]
        assert np.array_equal(part, picture) or np.array_equal(part[:, :, ::-1], picture)
        tops.add(top)
    assert tops == set(range(7)), "RandomCrop pads, and the picture may lie anywhere in the square"
    tall = dataclasses.replace(view, side_px=6, resize_px=6)
    assert windows_of(tall).load([0, 1], None).shape == (2, 3, 6, 6)


@pytest.mark.parametrize("view", [CLEAR, dataclasses.replace(CLEAR, side_px=5, resize_px=7)])
def test_evaluation_sees_what_torchvision_shows(view: PictureView) -> None:
    ensure_torchvision()
    from torchvision.transforms import v2

    show = v2.Compose([v2.Resize(view.resize_px, antialias=True), v2.CenterCrop(view.side_px)])
    seen = as_bytes(windows_of(view).load([0, 1], None))
    for row in (0, 1):
        wanted = show(torch.from_numpy(wide([row])[0]).permute(2, 0, 1))
        assert np.array_equal(seen[row], wanted.numpy())


@pytest.mark.parametrize("augment", ["crop_flip", "window_flip", "resized_crop_flip"])
def test_what_is_kept_is_bounded_however_many_rows_there_are_and_spares_the_decoder(augment: str) -> None:
    read_so_far: list[int] = []

    def read(rows: Sequence[int]) -> list[np.ndarray]:
        read_so_far.extend(rows)
        return wide(rows)

    view = dataclasses.replace(CLEAR, augment=augment, side_px=6, resize_px=6)
    album = PictureCache(read, view, held_bytes=9_000)
    examples = PictureExamples(album, [f"p{n}" for n in range(500)], np.arange(500), np.zeros(500, np.int64))
    for epoch in range(2):
        for start in range(0, 500, 50):
            examples.load(range(start, start + 50), Draw(0, f"epoch {epoch}"))
    assert 8_000 < sum(pixels.nbytes for pixels in album._held.values()) <= 9_000
    assert len(read_so_far) == 1_000 - len(album._held), "the second epoch reads what was not kept"


def test_threads_and_the_cache_change_nothing() -> None:
    plain = windows_of(CLEAR).load([3, 0, 2], DRAW)
    assert torch.equal(
        PictureExamples(
            PictureCache(wide, CLEAR, held_bytes=0), [f"p{n}" for n in range(4)], np.arange(4), np.zeros(4, np.int64)
        ).load([3, 0, 2], DRAW),
        plain,
    )
    shared = windows_of(CLEAR)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda _: shared.load([3, 0, 2], DRAW), range(16)))
    assert all(torch.equal(one, plain) for one in seen)


def test_a_strip_is_refused_in_one_line() -> None:
    strip: ReadPictures = lambda rows: [np.zeros((2, 200, 3), np.uint8) for _ in rows]  # noqa: E731
    for view in (CLEAR, PLAIN):
        with pytest.raises(ShardError, match=r"row 1 of the index: .* too_elongated: 200x2 pixels"):
            windows_of(view, strip).load([1], None)


def test_a_large_jpeg_may_be_decoded_at_a_smaller_scale() -> None:
    wave = np.sin(np.linspace(0, 9, 800))[None, :, None] * np.cos(np.linspace(0, 7, 600))[:, None, None]
    file = io.BytesIO()
    Image.fromarray((127 + 120 * wave * np.ones(3)).astype(np.uint8)).save(file, "JPEG", quality=95)
    assert decode_image(file.getvalue()).shape == (600, 800, 3)
    assert decode_image(file.getvalue(), min_side_px=200).shape == (225, 300, 3)
    seen = [
        PictureCache(lambda rows, side=side: [decode_image(file.getvalue(), min_side_px=side)], CLEAR).squares([0])[0]
        for side in (0, 16)
    ]
    assert np.abs(seen[0].astype(int) - seen[1]).mean() < 1


@pytest.mark.parametrize(
    "settings",
    [
        {"side_px": 9},
        {"augment": "flip"},
        {"pad_px": -1},
        {"side_px": 0},
        {"side_px": 10**9, "resize_px": 10**9},
        {"side_px": 8.0},
        {"side_px": "8"},
        {"resize": "longer"},
        {"resize": "as_written"},
        {"std": (1, 1, 0)},
        {"mean": (1,)},
        {"augment": "resized_crop_flip", "scaled_decode": True},
    ],
)
def test_views_that_there_are_not(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"augment|px|resize|std|mean"):
        PictureView(**{**vars(PLAIN), **settings})  # type: ignore[arg-type]


def test_a_last_batch_of_one_small_picture_is_told_of() -> None:
    _, settings = paper_settings("resnet18")
    schedule = {**settings["schedule"], "batch_size": 5, "epochs": 1}
    parts = parts_of({**settings, "method": {}, "schedule": schedule}, finetune, picture_net, labels="one", classes="same")
    view = dataclasses.replace(PLAIN, side_px=8)
    labels = np.array([0, 1, 0, 1, 0, 1])
    examples = PictureExamples(PictureCache(in_memory(), view), [f"p{n}" for n in range(6)], np.arange(6), labels)
    with pytest.raises(ValueError, match=r"a batch has 1 row, .* a multiple of batch_size = 5, plus one: change it"):
        Learner(parts, sample=(3, 8, 8), seed=0).learn(examples, [], classes=2)
