"""Fast Fourier colour constancy beside the same written down without Fourier transforms, and with torch's derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchwright.training.illuminants import ffcc
from benchwright.training.illuminants.pictures import LinearPictures, unit
from benchwright.training.illuminants.registry import candidates
from scipy import ndimage
from scipy.fft import rfft2
from threadpoolctl import threadpool_limits

SMOOTH = {"colours": -9.0, "edges": -11.0, "plausible": -10.0}


@pytest.fixture(scope="module")
def seen():
    """Pictures with a hole each, their lights in bins, and the start of the bins."""
    draw = np.random.default_rng(3)
    lights = np.exp(draw.normal(0, 0.5, (5, 3)))
    surfaces = ndimage.gaussian_filter(draw.beta(0.6, 1.2, (5, 12, 10, 3)), (0, 1, 1, 0))
    usable = np.ones((5, 12, 10), dtype=bool)
    usable[:, 3:6, 2:5] = False
    truth = np.log(lights[:, 1:2] / lights[:, [0, 2]])
    start = truth.mean(axis=0) - 1
    return LinearPictures.of(surfaces * lights[:, None, None], usable), (truth - start) * 32 % 64, start


def counted(picture, usable, start):
    """Histograms of one picture, pixel by pixel."""
    found = np.zeros((2, 64, 64))
    height, width = usable.shape
    least = picture[usable].max() / 256
    for y, x in np.argwhere(usable):
        near = [(b, a) for b in range(y - 1, y + 2) for a in range(x - 1, x + 2) if (b, a) != (y, x)]
        near = [(b, a) for b, a in near if 0 <= b < height and 0 <= a < width and usable[b, a]]
        edge = np.mean([np.abs(picture[b, a] - picture[y, x]) for b, a in near], axis=0)
        for kind, (r, g, b) in enumerate((picture[y, x], edge)):
            if min(r, g, b) >= least:
                u, v = (
                    int(np.round((value - low) * 32)) for value, low in zip((np.log(g / r), np.log(g / b)), start, strict=True)
                )
                found[kind, u % 64, v % 64] += 1
    return found / found.sum(axis=(1, 2), keepdims=True)


def test_histograms_are_those_of_loops_over_pixels(seen):
    pictures, _, start = seen
    found = ffcc.histograms(pictures, start)
    theirs = [counted(view.astype(float), usable, start) for view, usable in zip(pictures.images, pictures.usable, strict=True)]
    np.testing.assert_allclose(found, theirs, atol=1e-12)


def judged(maps, counts, truth, smooth, weight, *, entropy):
    """The objective by convolutions in space: ``maps`` (3, 64, 64) is a tensor, and so is the result."""
    value = torch.zeros((), dtype=torch.float64)
    axis = torch.arange(64, dtype=torch.float64)
    for each, place in zip(counts, truth, strict=True):
        scores = maps[2].clone()
        for kind in range(2):
            for u, v in np.argwhere(each[kind]):
                scores = scores + each[kind, u, v] * torch.roll(maps[kind], (int(u), int(v)), (0, 1))
        logs = scores - torch.logsumexp(scores.ravel(), 0)
        if entropy:
            low, share = np.floor(place).astype(int), place % 1
            for b in (0, 1):
                for a in (0, 1):
                    times = (share[0] if b else 1 - share[0]) * (share[1] if a else 1 - share[1])
                    value = value - times * logs[(low[0] + b) % 64, (low[1] + a) % 64]
            continue
        chances = logs.exp()
        means, far = [], []
        for along in (chances.sum(1), chances.sum(0)):
            angle = torch.atan2(
                (along * torch.sin(axis * torch.pi / 32)).sum(), (along * torch.cos(axis * torch.pi / 32)).sum()
            )
            means.append(angle * 32 / torch.pi % 64)
            far.append((axis - means[-1].detach().round() + 32) % 64 - 32)
        one, two = far[0][:, None].expand(64, 64), far[1].expand(64, 64)
        mean_one, mean_two = (chances * one).sum(), (chances * two).sum()
        shared = (chances * (one - mean_one) * (two - mean_two)).sum()
        rows = [(chances * (one - mean_one) ** 2).sum() + 1, shared, shared, (chances * (two - mean_two) ** 2).sum() + 1]
        miss = torch.stack([(torch.as_tensor(p) - m + 32) % 64 - 32 for p, m in zip(place, means, strict=True)])
        normal = torch.distributions.MultivariateNormal(torch.zeros(2, dtype=torch.float64), torch.stack(rows).reshape(2, 2))
        value = value - normal.log_prob(miss) - np.log(2 * np.pi)
    penalty = torch.zeros((), dtype=torch.float64)
    for each, power in zip(maps, smooth, strict=True):
        slopes = sum(((each - torch.roll(each, 1, way)) ** 2).sum() for way in (0, 1)) / 8
        penalty = penalty + 64**2 * (2.0**power * slopes + 2.0**-35 * (each**2).sum())
    return weight * value / len(counts) + penalty / 2


@pytest.mark.parametrize("entropy", [True, False])
def test_what_is_minimised_and_its_slopes_are_those_of_convolutions_in_space(seen, entropy):
    pictures, truth, start = seen
    counts, scale = ffcc.histograms(pictures, start), ffcc.scale_of(list(SMOOTH.values()))
    parameters = 0.05 * np.random.default_rng(4).standard_normal(3 * 64 * 64)
    measure = ffcc.bin_cross_entropy if entropy else ffcc.likelihood
    value, slopes = ffcc.objective(parameters, rfft2(counts), truth, scale, measure, 0.3)
    maps = torch.tensor(ffcc.maps_of(parameters, scale), requires_grad=True)
    theirs = judged(maps, counts, truth, list(SMOOTH.values()), 0.3, entropy=entropy)
    assert value == pytest.approx(theirs.item(), rel=1e-9)
    theirs.backward()
    back = ffcc.maps_of(maps.grad.numpy(), scale).ravel()  # the parameters' part in the maps is symmetric
    np.testing.assert_allclose(slopes, back, atol=1e-8 * np.abs(back).max())


def test_lights_of_new_pictures_are_found_whose_surfaces_are_not_grey():
    """Greenish and saturated surfaces, whose colours wrap around the torus, under lights that fill half of it."""
    draw = np.random.default_rng(5)
    lights = np.exp(draw.uniform(-0.5, 0.5, (45, 3)) * [1, 0, 1])
    surfaces = draw.beta(2, 3, (45, 12, 12, 3)) * [0.6, 1.0, 0.4] * draw.random((45, 12, 12, 1))
    pictures = LinearPictures.of(surfaces * lights[:, None, None])
    setting = {key: value[0] for key, value in candidates()["ffcc"][1].items()}
    state = ffcc.fit_ffcc(pictures[:30], lights[:30], **setting)
    found = ffcc.ffcc(pictures[30:], **state, **setting)
    plain = unit(pictures.images[30:].mean(axis=(1, 2)))
    ours, theirs = (np.degrees(np.arccos((each * unit(lights[30:])).sum(axis=1))).mean() for each in (found, plain))
    assert ours < 5 < 12 < theirs
    with pytest.raises(ValueError, match="a light without some channel has no log colour"):
        ffcc.fit_ffcc(pictures[:2], np.array([[1, 1, 0], [1, 1, 1]]), **setting)


def test_what_is_learned_does_not_depend_on_the_number_of_threads(seen):
    pictures, truth, _ = seen
    lights = np.exp(np.stack([-truth[:, 0] / 32, 0 * truth[:, 0], -truth[:, 1] / 32], axis=1))
    found = []
    for count in (1, 2):
        with threadpool_limits(count):
            found.append(ffcc.fit_ffcc(pictures, lights, colours=-23, edges=-29.5, plausible=-26, weight=-2.25))
    for name, array in found[0].items():
        assert array.tobytes() == found[1][name].tobytes(), name
