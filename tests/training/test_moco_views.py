"""MoCo's views: the same operations as torchvision's, drawn by seed, epoch, key and view alone."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.training.moco.settings import MocoView, moco_settings
from benchwright.training.moco.views import Draws, coloured, crop_box, crops, draw_views

ensure_torchvision()
from torchvision.transforms.v2 import functional as theirs  # noqa: E402

VIEW = dataclasses.replace(moco_settings("moco_v2", {}).view, side_px=32)
KEYS = [f"photo{number}" for number in range(64)]


def pictures(count: int = 64) -> list[np.ndarray]:
    """Of several sizes, with flat ground, where hue is undefined, among them."""
    draw = np.random.default_rng(0)
    found = [draw.integers(0, 256, (int(h), int(w), 3), dtype=np.uint8) for h, w in draw.integers(24, 90, (count, 2))]
    for picture in found:
        picture[:8] = picture[0, 0, 0]
    return found


def plain(cut: torch.Tensor, draws: Draws, row: int, view: MocoView) -> torch.Tensor:
    """One picture through torchvision's operations, with what was drawn for it."""
    x = theirs.to_dtype(cut, torch.float32, scale=True)
    changes = (theirs.adjust_brightness, theirs.adjust_contrast, theirs.adjust_saturation, theirs.adjust_hue)
    if draws.jitter[row]:
        for operation in draws.order[row].tolist():
            x = changes[operation](x, float(draws.factors[row, operation]))
    if draws.grey[row]:
        x = theirs.rgb_to_grayscale(x, num_output_channels=3)
    if draws.sigma[row]:
        x = theirs.gaussian_blur(x, [2 * view.blur_reach_px + 1] * 2, [float(draws.sigma[row])] * 2)
    return theirs.normalize(x, list(view.mean), list(view.std))


def test_operations_are_those_of_torchvision_with_a_number_a_picture() -> None:
    draws, found = draw_views(VIEW, seed=0, epoch=3, keys=KEYS, number=0), pictures()
    cuts = crops(found, draws, VIEW)
    for row, picture in enumerate(found):
        top, left, height, width = crop_box(*picture.shape[:2], draws.crops[row], VIEW)
        whole = torch.from_numpy(picture).permute(2, 0, 1)
        cut = theirs.resized_crop(whole, top, left, height, width, [32, 32], antialias=True)
        assert torch.equal(cuts[row], theirs.horizontal_flip(cut) if draws.flip[row] else cut)
    made = coloured(cuts, draws, VIEW)
    wanted = torch.stack([plain(cut, draws, row, VIEW) for row, cut in enumerate(cuts)])
    assert (made - wanted).abs().max() < 2e-5
    assert {draws.jitter.any(), draws.grey.any(), (draws.sigma > 0).any(), draws.flip.any()} == {True}
    assert not draws.jitter.all()


@pytest.mark.parametrize("operation", range(4))
def test_each_change_of_colour_alone(operation: int) -> None:
    """Where one change follows another, an error of the first may be clipped away by the next."""
    drawn = draw_views(VIEW, seed=1, epoch=0, keys=KEYS, number=1)
    off, on = np.zeros(64, dtype=bool), np.ones(64, dtype=bool)
    neutral = np.tile(np.array([1, 1, 1, 0], dtype=np.float32), (64, 1))
    neutral[:, operation] = drawn.factors[:, operation]
    draws = dataclasses.replace(drawn, jitter=on, grey=off, sigma=np.zeros(64, dtype=np.float32), factors=neutral)
    cuts = crops(pictures(), draws, VIEW)
    wanted = torch.stack([plain(cut, draws, row, VIEW) for row, cut in enumerate(cuts)])
    assert (coloured(cuts, draws, VIEW) - wanted).abs().max() < 2e-5
    unchanged = (cuts.float() / 255 - torch.tensor(VIEW.mean).view(1, 3, 1, 1)) / torch.tensor(VIEW.std).view(1, 3, 1, 1)
    assert (wanted - unchanged).abs().max() > 0.1


def test_a_view_depends_on_seed_epoch_key_and_number_alone() -> None:
    found = pictures()

    def views(rows: list[int], *, seed: int = 0, epoch: int = 0, number: int = 0) -> torch.Tensor:
        draws = draw_views(VIEW, seed=seed, epoch=epoch, keys=[KEYS[row] for row in rows], number=number)
        return coloured(crops([found[row] for row in rows], draws, VIEW), draws, VIEW)

    together = views([0, 1, 2, 3, 4, 5])
    assert torch.allclose(views([5, 2]), together[[5, 2]], atol=1e-6)
    for other in ({"seed": 1}, {"epoch": 1}, {"number": 1}):
        assert (views([0, 1], **other) - together[:2]).abs().amax((1, 2, 3)).min() > 0.1


def test_boxes_are_chosen_as_by_random_resized_crop() -> None:
    """A plain reference, number by number: ten tries, then the greatest cut of an allowed aspect from the centre."""

    def reference(height: int, width: int, u: list[float]) -> tuple[int, int, int, int]:
        for number in range(10):
            area = height * width * (0.2 + 0.8 * u[2 * number])
            aspect = math.exp(math.log(3 / 4) + u[2 * number + 1] * (math.log(4 / 3) - math.log(3 / 4)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return math.floor(u[20] * (height - h + 1)), math.floor(u[21] * (width - w + 1)), h, w
        if width / height < 3 / 4:
            h, w = round(width / (3 / 4)), width
        elif width / height > 4 / 3:
            h, w = height, round(height * 4 / 3)
        else:
            h, w = height, width
        return (height - h) // 2, (width - w) // 2, h, w

    draw = np.random.default_rng(1)
    strips = 0
    for _ in range(500):
        height, width = draw.integers(8, 300, 2).tolist()
        u = draw.random(22)
        box = crop_box(height, width, u, VIEW)
        assert box == reference(height, width, u.tolist())
        strips += max(height, width) > 4 * min(height, width)
        assert 0 <= box[0] <= height - box[2]
        assert 0 <= box[1] <= width - box[3]
    assert strips > 20


def test_chances_are_those_of_the_settings() -> None:
    draws = draw_views(VIEW, seed=0, epoch=0, keys=[str(number) for number in range(4000)], number=0)
    shares = [draws.jitter.mean(), draws.grey.mean(), (draws.sigma > 0).mean(), draws.flip.mean()]
    assert shares == pytest.approx([0.8, 0.2, 0.5, 0.5], abs=0.025)
    assert draws.factors.min(0) == pytest.approx([0.6, 0.6, 0.6, -0.1], abs=0.002)
    assert draws.factors.max(0) == pytest.approx([1.4, 1.4, 1.4, 0.1], abs=0.002)
    blurred = draws.sigma[draws.sigma > 0]
    assert [blurred.min(), blurred.max()] == pytest.approx([0.1, 2.0], abs=0.01)
    counts = np.unique(draws.order, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert counts.min() > 100
