"""Estimators without training: values by hand, by scipy, and by loops after the papers' formulas; what must not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchwright.training.illuminants.bright_dark_pca import bright_dark_pca
from benchwright.training.illuminants.bright_pixels import bright_pixels
from benchwright.training.illuminants.gray_edge import gray_edge, kernel, magnitude
from benchwright.training.illuminants.pictures import LinearPictures, unit
from benchwright.training.illuminants.weighted_gray_edge import weighted_gray_edge
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

ESTIMATORS = {
    "gray_world": lambda p: gray_edge(p, order=0, p=1, sigma=0),
    "shades_of_gray": lambda p: gray_edge(p, order=0, p=6, sigma=0),
    "white_patch": lambda p: gray_edge(p, order=0, p=math.inf, sigma=0),
    "general_gray_world": lambda p: gray_edge(p, order=0, p=3, sigma=1.5),
    "gray_edge_1": lambda p: gray_edge(p, order=1, p=4, sigma=1),
    "gray_edge_2": lambda p: gray_edge(p, order=2, p=2, sigma=1),
    "max_edge": lambda p: gray_edge(p, order=1, p=math.inf, sigma=1),
    "weighted_gray_edge": lambda p: weighted_gray_edge(p, p=5, sigma=1, kappa=5),
    "bright_pixels": lambda p: bright_pixels(p, fraction=0.1, p=2),
    "bright_dark_pca": lambda p: bright_dark_pca(p, fraction=0.1),
}
DIAGONAL = [name for name in ESTIMATORS if name not in ("weighted_gray_edge", "bright_pixels", "bright_dark_pca")]
each = pytest.mark.parametrize("name", ESTIMATORS)


def angle_deg(a, b):
    return np.degrees(np.arccos(np.clip((unit(a) * unit(b)).sum(axis=-1), -1, 1)))


def random_images(seed=0, n=5, h=14, w=17):
    """Smooth blobs of colour with noise: no two pixels alike."""
    generator = np.random.default_rng(seed)
    blobs = ndimage.gaussian_filter(generator.random((n, h, w, 3)), (0, 2, 2, 0))
    return (blobs + 0.1 * generator.random((n, h, w, 3))).astype(np.float32)


TWO_BY_TWO = np.array([[[1, 2, 3], [3, 2, 1]], [[5, 0, 4], [0, 6, 8]]], dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gray_world", [9 / 4, 10 / 4, 16 / 4]),
        ("white_patch", [5, 6, 8]),
        ("shades_of_gray", [(1 + 3**6 + 5**6) ** (1 / 6), (2 * 2**6 + 6**6) ** (1 / 6), (3**6 + 1 + 4**6 + 8**6) ** (1 / 6)]),
    ],
)
def test_values_by_hand(name, expected):
    (estimate,) = ESTIMATORS[name](LinearPictures.of(TWO_BY_TWO))
    np.testing.assert_allclose(estimate, np.array(expected) / np.linalg.norm(expected), rtol=1e-6)
    assert estimate.dtype == np.float64


def test_a_mask_leaves_pixels_out():
    mask = np.array([[True, True], [False, False]])
    np.testing.assert_allclose(
        ESTIMATORS["gray_world"](LinearPictures.of(TWO_BY_TWO, mask)), unit(np.array([[2.0, 2, 2]])), rtol=1e-6
    )
    np.testing.assert_allclose(
        ESTIMATORS["white_patch"](LinearPictures.of(TWO_BY_TWO, mask)), unit(np.array([[3.0, 2, 3]])), rtol=1e-6
    )


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("p", [1, 3, math.inf])
def test_one_straight_edge_gives_the_difference_of_its_colours(order, p):
    image = np.empty((9, 12, 3), dtype=np.float32)
    image[:, :5], image[:, 5:] = [0.9, 0.2, 0.4], [0.1, 0.8, 0.3]
    found = gray_edge(LinearPictures.of(image), order=order, p=p, sigma=1.3)
    np.testing.assert_allclose(found, unit(np.array([[0.8, 0.6, 0.1]])), rtol=1e-5)


def test_first_derivatives_are_scipys():
    images = random_images()
    ours = magnitude(images, order=1, sigma=1.7)
    for image, mine in zip(images, ours, strict=True):
        for c in range(3):
            theirs = ndimage.gaussian_gradient_magnitude(image[..., c].astype(np.float64), 1.7, mode="nearest")
            np.testing.assert_allclose(mine[..., c], theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("sigma", [0.4, 1, 2.3])
def test_kernels_are_exact_for_polynomials(sigma):
    x = np.arange(-np.ceil(4 * sigma), np.ceil(4 * sigma) + 1)
    moments = [[(kernel(sigma, order) * x**k).sum() for k in range(3)] for order in range(3)]
    np.testing.assert_allclose(moments[0][:2], [1, 0], atol=1e-12)
    np.testing.assert_allclose(moments[1], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(moments[2], [0, 0, 2], atol=1e-12)


def test_second_derivatives_of_a_saddle():
    y, x = np.mgrid[-20:21, -20:21].astype(np.float64)
    image = np.stack([x * y, x**2, 3 * y**2], axis=2)[None]
    # fxy = 1; fxx = 2; fyy = 6: sqrt(4 fxy^2) = 2, 2, 6. In the middle the border is out of reach.
    middle = magnitude((image + 2000).astype(np.float32), order=2, sigma=2)[0, 20, 20]
    np.testing.assert_allclose(middle, [2, 2, 6], rtol=2e-3)


def weighted_by_loops(image, *, p, sigma, kappa, rounds=10):
    """The paper's iteration: correct the picture, derive it again, weigh, estimate."""
    light = np.ones(3) / 3**0.5
    for _ in range(rounds):
        corrected = image / (3**0.5 * light)
        x = np.stack([ndimage.gaussian_filter(corrected[..., c], sigma, order=(0, 1), mode="nearest") for c in range(3)])
        y = np.stack([ndimage.gaussian_filter(corrected[..., c], sigma, order=(1, 0), mode="nearest") for c in range(3)])
        length = np.sqrt(x**2 + y**2)
        white = np.sqrt((x.sum(axis=0) / 3**0.5) ** 2 + (y.sum(axis=0) / 3**0.5) ** 2)
        weight = np.minimum(white / np.sqrt((length**2).sum(axis=0)), 1) ** kappa
        turn = ((length * weight) ** p).sum(axis=(1, 2)) ** (1 / p)
        turn /= np.linalg.norm(turn)
        light = light * turn / np.linalg.norm(light * turn)
        if np.degrees(np.arccos(min(turn.sum() / 3**0.5, 1))) < 0.05:
            break
    return light


@pytest.mark.parametrize(("p", "kappa"), [(1, 1), (5, 10), (2, 0.5)])
def test_weighted_gray_edge_is_the_papers_iteration(p, kappa):
    images = random_images(3) * np.array([1, 0.6, 0.3], dtype=np.float32)
    found = weighted_gray_edge(LinearPictures.of(images), p=p, sigma=1, kappa=kappa)
    loops = np.stack([weighted_by_loops(image.astype(np.float64), p=p, sigma=1, kappa=kappa) for image in images])
    np.testing.assert_allclose(found, loops, atol=2e-5)


def test_weights_of_power_0_are_gray_edge():
    pictures = LinearPictures.of(random_images())
    plain = gray_edge(pictures, order=1, p=3, sigma=1)
    np.testing.assert_allclose(weighted_gray_edge(pictures, p=3, sigma=1, kappa=0, settled_deg=0), plain, atol=1e-6)


def test_weights_prefer_highlights():
    light = np.array([0.9, 0.6, 0.4])
    image = np.broadcast_to(0.3 * light * [0.9, 0.5, 0.2], (24, 24, 3)).copy()
    image[:, 14:] = 0.3 * light * [0.3, 0.6, 0.2]  # another matter
    image[3:9, 3:9] += 0.5 * light  # a highlight
    pictures = LinearPictures.of(image)
    plain = angle_deg(gray_edge(pictures, order=1, p=1, sigma=1), light)[0]
    weighted = angle_deg(weighted_gray_edge(pictures, p=1, sigma=1, kappa=10), light)[0]
    assert weighted < 0.5 < 3 < plain


def test_bright_pixels_by_hand():
    image = np.zeros((2, 5, 3), dtype=np.float32)
    image[0] = [[1, 1, 1], [9, 0, 0], [2, 3, 4], [0, 0, 1], [0, 8, 0]]  # sums 3, 9, 9, 1, 8
    found = [bright_pixels(LinearPictures.of(image), fraction=f, p=1)[0] for f in (0.1, 0.2, 0.3)]
    tied = np.array([11, 3, 4]) / np.linalg.norm([11, 3, 4])  # the two of 9 are one level
    np.testing.assert_allclose(found[:2], [tied, tied], rtol=1e-6)
    np.testing.assert_allclose(found[2], np.array([11, 11, 4]) / np.linalg.norm([11, 11, 4]), rtol=1e-6)


def test_principal_direction_is_that_of_numpys_svd():
    images = random_images(5)
    found = bright_dark_pca(LinearPictures.of(images), fraction=0.05)
    for image, estimate in zip(images, found, strict=True):
        colours = image.reshape(-1, 3).astype(np.float64)
        mean = colours.mean(axis=0)
        order = np.argsort(colours @ mean / np.linalg.norm(mean))
        ends = colours[np.concatenate([order[:12], order[-12:]])]  # 5 % of 238
        np.testing.assert_allclose(estimate, np.abs(np.linalg.svd(ends)[2][0]), atol=1e-5)


# ------------------------------------------------------------------------------------------------ what must not matter


@each
def test_exposure_does_not_matter(name):
    images = random_images(1)
    plain = ESTIMATORS[name](LinearPictures.of(images))
    for exposure in (1e-30, 1e-3, 40, 1e30):
        np.testing.assert_allclose(ESTIMATORS[name](LinearPictures.of(images * np.float32(exposure))), plain, atol=1e-5)


@pytest.mark.parametrize("name", DIAGONAL)
def test_a_scale_of_channels_goes_through(name):
    images, scale = random_images(2), np.array([0.3, 1.1, 2.5])
    turned = ESTIMATORS[name](LinearPictures.of(images * scale.astype(np.float32)))
    np.testing.assert_allclose(turned, unit(ESTIMATORS[name](LinearPictures.of(images)) * scale), atol=1e-5)


@each
def test_channels_are_alike(name):
    images = random_images(3)
    turned = ESTIMATORS[name](LinearPictures.of(images[..., [2, 0, 1]]))
    np.testing.assert_allclose(turned, ESTIMATORS[name](LinearPictures.of(images))[:, [2, 0, 1]], atol=1e-5)


@each
def test_pictures_do_not_see_each_other(name):
    images = random_images(4)
    images[1] *= 1000
    images[2] = 0.5  # flat
    together = ESTIMATORS[name](LinearPictures.of(images))
    alone = np.concatenate([ESTIMATORS[name](LinearPictures.of(image)) for image in images])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-12)


@each
def test_what_is_hidden_does_not_matter(name):
    images = random_images(6)
    mask = np.random.default_rng(7).random(images.shape[:3]) > 0.4
    mask[:, 2:6, 3:9] = False
    found = []
    for junk in (0, 1e6, -3, math.nan, math.inf):
        hidden = images.copy()
        hidden[~mask] = junk
        found.append(ESTIMATORS[name](LinearPictures.of(hidden, mask)))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@each
def test_a_mask_makes_no_edge(name):
    image = np.broadcast_to(np.array([0.2, 0.5, 0.3], dtype=np.float32), (10, 10, 3)).copy()
    mask = np.ones((10, 10), dtype=bool)
    mask[3:6, 3:6] = False
    image[3:6, 3:6] = [1, 0, 0]
    np.testing.assert_allclose(ESTIMATORS[name](LinearPictures.of(image, mask)), unit(np.array([[0.2, 0.5, 0.3]])), atol=1e-6)


# ------------------------------------------------------------------------------------------------------ what is refused


@each
def test_flat_pictures_and_single_pixels_give_their_colour(name):
    expected = unit(np.array([[0.2, 0.0, 0.3]]))
    np.testing.assert_allclose(ESTIMATORS[name](LinearPictures.of(np.full((6, 7, 3), [0.2, 0, 0.3]))), expected, atol=1e-6)
    np.testing.assert_allclose(ESTIMATORS[name](LinearPictures.of([[[0.2, 0, 0.3]]])), expected, atol=1e-6)
    mask = np.zeros((6, 7), dtype=bool)
    mask[2, 3] = True
    image = random_images(0, 1, 6, 7)[0]
    np.testing.assert_allclose(ESTIMATORS[name](LinearPictures.of(image, mask)), unit(image[2, 3][None]), atol=1e-6)


def spoiled(value, where=(2, 1, 1)):
    images = random_images(0, 4, 3, 3)
    images[where] = value
    return images


@pytest.mark.parametrize(
    ("images", "others", "message"),
    [
        (spoiled(math.nan), {}, "image 2 has a usable pixel that is NaN or infinite"),
        (spoiled(math.inf), {}, "image 2 has a usable pixel that is NaN or infinite"),
        (spoiled(0, 1), {}, "image 1 is black"),
        (spoiled(-1, 1), {}, "image 1 is black"),
        (spoiled(0, slice(1, 4)), {}, r"image 1 is black.*and 2 more"),
        (spoiled(9, 3), {"saturation": 8.5}, "image 3 has no usable pixel: all are masked or saturated"),
        (random_images(0, 1, 3, 3), {"usable": np.zeros((1, 3, 3))}, "image 0 has no usable pixel"),
        (random_images(0, 2, 3, 3), {"usable": np.ones((2, 3, 4))}, r"usable of shape \(2, 3, 4\)"),
        (random_images(0, 2, 3, 3), {"second": np.ones((2, 3, 4, 3))}, r"second of shape \(2, 3, 4, 3\)"),
        (random_images(0, 2, 3, 3), {"second": spoiled(math.nan)[1:3]}, "image 1 has a usable pixel that is NaN"),
        (np.ones((3, 3)), {}, r"images of shape \(3, 3\)"),
        (np.ones((2, 0, 3, 3)), {}, "no axis of length 0"),
        (np.ones((2, 3, 3, 4)), {}, r"\(n, h, w, 3\)"),
    ],
)
def test_what_is_no_picture(images, others, message):
    with pytest.raises(ValueError, match=message):
        LinearPictures.of(images, **others)


def test_saturated_pixels_are_left_out_in_both_cameras():
    image, second = np.full((1, 4, 3), 0.2), np.full((1, 4, 3), 0.4)
    image[0, 1, 2] = 1
    second[0, 3, 0] = 1.5
    pictures = LinearPictures.of(image, second=second, saturation=1)
    assert pictures.usable.tolist() == [[[True, False, True, False]]]
    assert gray_edge(pictures, order=0, p=math.inf, sigma=0)[0].tolist() == pytest.approx([3**-0.5] * 3)


def test_the_callers_arrays_stay_as_they_are():
    image, mask = np.full((3, 3, 3), -1.0, dtype=np.float32), np.ones((3, 3), dtype=bool)
    image[0] = 2
    mask[1] = False
    before = image.copy(), mask.copy()
    LinearPictures.of(image, mask, saturation=5)
    np.testing.assert_array_equal(image, before[0])
    np.testing.assert_array_equal(mask, before[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: gray_edge(p, order=0, p=0.5, sigma=0), "p 0.5"),
        (lambda p: gray_edge(p, order=1, p=math.nan, sigma=1), "p nan"),
        (lambda p: gray_edge(p, order=1, p=1, sigma=0), "sigma 0"),
        (lambda p: gray_edge(p, order=3, p=1, sigma=1), "order 3"),
        (lambda p: weighted_gray_edge(p, p=1, sigma=1, kappa=-1), "kappa -1"),
        (lambda p: weighted_gray_edge(p, p=1, sigma=0, kappa=1), "sigma 0"),
        (lambda p: bright_pixels(p, fraction=0, p=1), "fraction 0"),
        (lambda p: bright_dark_pca(p, fraction=0.6), "fraction 0.6"),
    ],
)
def test_settings_outside_their_range(call, message):
    with pytest.raises(ValueError, match=message):
        call(LinearPictures.of(random_images()))


@settings(max_examples=60)
@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6).map(lambda s: (*s, 3)),
        elements=st.floats(0, 2.0**100, width=32),
    ),
    st.sampled_from(sorted(ESTIMATORS)),
)
def test_an_answer_is_never_nan(image, name):
    if not image.any():
        return
    estimate = ESTIMATORS[name](LinearPictures.of(image))
    assert np.isfinite(estimate).all()
    assert (estimate >= 0).all()
    assert np.linalg.norm(estimate) == pytest.approx(1)
