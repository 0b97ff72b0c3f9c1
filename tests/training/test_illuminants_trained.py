"""Trained estimators and the table of baselines: worlds with known answers, scipy's solver, round trips."""

from __future__ import annotations

import io
import re
import zipfile
from functools import partial

import numpy as np
import pytest
from benchwright.training.illuminants import gamut as gamuts
from benchwright.training.illuminants.choice import Baseline, PictureEstimator, RelitPictures
from benchwright.training.illuminants.chromagenic import chromagenic, fit_chromagenic
from benchwright.training.illuminants.corrected_moments import corrected_moments, fit_corrected_moments, moments
from benchwright.training.illuminants.gray_edge import gray_edge
from benchwright.training.illuminants.pictures import LinearPictures, StoredPictures, unit
from benchwright.training.illuminants.projective import (
    as_projective_as_possible,
    fit_as_projective_as_possible,
    fit_projective,
    homographies,
    projective,
)
from benchwright.training.illuminants.registry import candidates, estimator, load_baseline
from scipy.optimize import linprog

NAMES = sorted(candidates())


def angle_deg(a, b):
    return np.degrees(np.arccos(np.clip((unit(a) * unit(b)).sum(axis=-1), -1, 1)))


def mondrians(n, *, seed=0, side=4, cell=4):
    """Pictures of flat cells: (n, 16, 16, 3) under lights (n, 3), and the same seen by a second camera."""
    generator = np.random.default_rng(seed)
    surfaces = generator.beta(1.2, 2.5, (n, side, side, 3)) * generator.random((n, side, side, 1))
    lights = np.exp(generator.normal(0, 0.3, (n, 3)))
    images = np.repeat(np.repeat(surfaces * lights[:, None, None], cell, axis=1), cell, axis=2)
    other = images @ np.array([[0.8, 0.1, 0.0], [0.2, 1.1, 0.2], [0.0, 0.1, 0.7]])
    return LinearPictures.of(images, second=other), lights


# ------------------------------------------------------------------------------------------------------- corrected moments


def test_moments_by_hand():
    pictures = LinearPictures.of([[[1, 2, 3], [3, 4, 1], [50, 60, 70]]], [[True, True, False]])
    (found,) = moments(pictures, degree=3, order=0, sigma=0)
    first = [2, 3, 2]
    second = [np.sqrt(v) for v in (5, 7, 3, 10, 5, 5)]  # RR, RG, RB, GG, GB, BB
    third = [np.cbrt(v) for v in (14, 19, 6, 26, 9, 6, 36, 14, 11, 14)]  # RRR, RRG, RRB, RGG, RGB, RBB, GGG, GGB, GBB, BBB
    np.testing.assert_allclose(found, [*first, *second, *third], rtol=1e-6)


@pytest.mark.parametrize("order", [0, 1])
def test_moments_scale_with_the_exposure(order):
    pictures, _ = mondrians(3)
    plain = moments(pictures, degree=3, order=order, sigma=order)
    for exposure in (1e-25, 3, 1e25):
        scaled = LinearPictures.of(pictures.images * np.float32(exposure))
        np.testing.assert_allclose(moments(scaled, degree=3, order=order, sigma=order), plain * exposure, rtol=1e-4)


def test_a_linear_law_between_moments_and_lights_is_found_whatever_the_lengths():
    pictures, _ = mondrians(60)
    law = np.array([[0.8, 0.1, 0.0], [0.1, 0.6, 0.3], [0.05, 0.1, 0.9]])
    lights = moments(pictures, degree=1, order=0, sigma=0) @ law
    lights *= np.random.default_rng(1).uniform(0.2, 5, (60, 1))  # directions are known, lengths are not
    state = fit_corrected_moments(pictures[:40], lights[:40], degree=1, order=0, sigma=0, rounds=5000)
    found = corrected_moments(pictures[40:], **state, degree=1, order=0, sigma=0)
    assert angle_deg(found, lights[40:]).max() < 0.01
    np.testing.assert_allclose(state["matrix"] / state["matrix"].sum(), law / law.sum(), atol=1e-4)


def test_lengths_that_take_turns_beat_plain_least_squares():
    pictures, lights = mondrians(400, seed=3)
    train, test = slice(0, 300), slice(300, 400)
    one, many = (fit_corrected_moments(pictures[train], lights[train], degree=1, order=0, sigma=0, rounds=r) for r in (0, 100))
    errors = [angle_deg(corrected_moments(pictures[test], **s, degree=1, order=0, sigma=0), lights[test]) for s in (one, many)]
    gray = angle_deg(gray_edge(pictures[test], order=0, p=1, sigma=0), lights[test])
    assert errors[1].mean() <= errors[0].mean() < gray.mean()


def test_few_pictures_train_no_matrix():
    pictures, lights = mondrians(18)
    with pytest.raises(ValueError, match="18 pictures: a matrix of 19 moments"):
        fit_corrected_moments(pictures, lights, degree=3, order=0, sigma=0)


# ------------------------------------------------------------------------------------------------------------ chromagenic


def test_a_light_is_told_by_its_map():
    generator = np.random.default_rng(0)
    lights = np.array([[1.0, 0.9, 0.5], [0.6, 0.9, 1.0], [0.9, 1.0, 0.9]])
    maps = np.eye(3) + generator.normal(0, 0.2, (3, 3, 3))
    which = np.arange(30) % 3
    images = generator.random((30, 4, 5, 3)) * lights[which][:, None, None]
    second = np.maximum(images @ maps[which][:, None], 0)
    pictures = LinearPictures.of(images, second=second)
    state = fit_chromagenic(pictures[:15], lights[which[:15]] * generator.uniform(1, 3, (15, 1)), chromaticities=False)
    assert state["maps"].shape == (3, 3, 3)
    np.testing.assert_allclose(chromagenic(pictures[15:], **state, chromaticities=False), unit(lights[which[15:]]), atol=1e-5)


@pytest.mark.parametrize("chromaticities", [False, True])
def test_the_least_sum_of_squares_is_that_of_a_loop(chromaticities):
    pictures, lights = mondrians(40, seed=2)
    state = fit_chromagenic(pictures[:30], lights[:30], chromaticities=chromaticities)
    found = chromagenic(pictures[30:], **state, chromaticities=chromaticities)
    for i, estimate in enumerate(found, 30):
        p, q = (view[i].reshape(-1, 3).astype(np.float64) for view in (pictures.images, pictures.second))
        if chromaticities:
            p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
        errors = [((p @ m - q) ** 2).sum() for m in state["maps"]]
        chosen = int(np.flatnonzero((state["lights"] == estimate).all(axis=1))[0])
        assert errors[chosen] <= min(errors) * (1 + 1e-6) + 1e-9


def test_chromaticities_free_the_second_camera_from_its_exposure():
    pictures, lights = mondrians(40, seed=4)
    state = fit_chromagenic(pictures, lights, chromaticities=True)
    brighter = LinearPictures.of(pictures.images, second=pictures.second * 7)
    np.testing.assert_array_equal(
        chromagenic(brighter, **state, chromaticities=True), chromagenic(pictures, **state, chromaticities=True)
    )


def test_one_camera_is_no_pair():
    with pytest.raises(ValueError, match="pictures have no second camera"):
        chromagenic(LinearPictures.of(np.ones((2, 2, 3))), np.zeros((1, 3, 3)), np.ones((1, 3)), chromaticities=False)


# ------------------------------------------------------------------------------------------------------------------ gamut


def cube_corners():
    """Training pictures that show the whole unit cube under white light, and under a red one."""
    corners = np.array([[r, g, b] for r in (0, 1) for g in (0, 1) for b in (0, 1)], dtype=np.float64).reshape(1, 2, 4, 3)
    red = np.array([1.0, 0.5, 0.25])
    return LinearPictures.of(np.concatenate([corners, corners * red])), np.stack([np.ones(3), red])


def test_a_cube_as_gamut_makes_white_patch_of_it():
    state = gamuts.fit_gamut(*cube_corners(), order=0, sigma=0)
    assert len(state["corners"]) == 8
    pictures, _ = mondrians(20)
    found = gamuts.gamut(pictures, **state, order=0, sigma=0)
    np.testing.assert_allclose(found, gray_edge(pictures, order=0, p=np.inf, sigma=0), atol=1e-6)


@pytest.mark.parametrize(("order", "sigma"), [(0, 0), (0, 1), (1, 1)])
def test_the_largest_trace_is_scipys(order, sigma):
    pictures, lights = mondrians(60)
    (corners,) = gamuts.fit_gamut(pictures[:40], lights[:40], order=order, sigma=sigma).values()
    normals, offsets = gamuts._faces(corners)
    seen = [gamuts._extreme(a) for a in gamuts._values(pictures[40:], order, sigma)]
    for values in seen:
        d = gamuts.largest_trace(values[None], normals, offsets, np.abs(corners).max(axis=0))[0]
        inequalities = (normals[:, None] * values).reshape(-1, 3)
        theirs = linprog([-1, -1, -1], A_ub=inequalities, b_ub=np.repeat(offsets, len(values)), bounds=[(0, None)] * 3)
        assert (inequalities @ d <= np.repeat(offsets, len(values)) + 1e-7).all()
        assert d.sum() == pytest.approx(-theirs.fun, rel=1e-6)


def test_training_pictures_fit_into_their_own_gamut():
    pictures, lights = mondrians(30)
    (corners,) = gamuts.fit_gamut(pictures, lights, order=0, sigma=0).values()
    normals, offsets = gamuts._faces(corners)
    inside = (pictures.images.reshape(30, -1, 3) / lights[:, None]) @ normals.T <= offsets + 1e-6
    assert inside.all()
    strength = 1 / gamuts._lights([gamuts._extreme(a) for a in gamuts._values(pictures, 0, 0)], corners)
    assert (
        strength.sum(axis=1) >= (1 / lights).sum(axis=1) - 1e-5
    ).all()  # the true map is feasible, the chosen one not smaller


def test_a_gamut_grows_for_what_does_not_fit():
    """A canonical gamut of near-greys: a picture of pure red and pure green fits under no light."""
    generator = np.random.default_rng(0)
    greys = generator.uniform(0.1, 0.9, (20, 3, 3, 1)) * generator.uniform(0.9, 1.1, (20, 3, 3, 3))
    state = gamuts.fit_gamut(LinearPictures.of(greys), np.ones((20, 3)), order=0, sigma=0)
    strange = LinearPictures.of([[[1, 0, 0.2], [0, 1, 0.2]]])
    (found,) = gamuts.gamut(strange, **state, order=0, sigma=0)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    shown = LinearPictures.of(greys[:1] * [0.5, 1, 2])
    assert angle_deg(gamuts.gamut(shown, **state, order=0, sigma=0), np.array([[0.5, 1, 2]]))[0] < 4


def test_levelled_gamuts_do_not_know_the_exposures_of_training_pictures():
    pictures, lights = mondrians(40)
    exposed = LinearPictures.of(pictures.images * np.random.default_rng(0).uniform(0.05, 1, (40, 1, 1, 1)).astype(np.float32))
    plain, levelled = (
        [gamuts.fit_gamut(each, lights, order=0, sigma=0, levelled=levelled) for each in (pictures, exposed)]
        for levelled in (False, True)
    )
    np.testing.assert_allclose(levelled[0]["corners"], levelled[1]["corners"], atol=1e-5)
    assert not np.array_equal(plain[0]["corners"], plain[1]["corners"])


def test_a_light_that_leaves_a_channel_dark_teaches_no_gamut():
    pictures, lights = mondrians(12)
    some = gamuts.fit_gamut(pictures[1:], lights[1:], order=0, sigma=0)
    lights[0, 2] = 0
    np.testing.assert_array_equal(gamuts.fit_gamut(pictures, lights, order=0, sigma=0)["corners"], some["corners"])


def test_what_makes_no_gamut():
    flat = LinearPictures.of(np.full((3, 4, 4, 3), 0.5))
    with pytest.raises(ValueError, match="has no volume"):
        gamuts.fit_gamut(flat, np.ones((3, 3)), order=0, sigma=0)
    with pytest.raises(ValueError, match="has no volume"):
        gamuts.fit_gamut(flat, np.ones((3, 3)), order=1, sigma=1)
    with pytest.raises(ValueError, match="has no volume"):
        gamuts.fit_gamut(LinearPictures.of(mondrians(3)[0].images), np.zeros((3, 3)), order=0, sigma=0)
    with pytest.raises(ValueError, match="order 2"):
        gamuts.fit_gamut(flat, np.ones((3, 3)), order=2, sigma=1)


# ------------------------------------------------------------------------------------------------------- corrected answers


def alternating_by_loops(estimates, lights, weights):
    """One homography by the papers' two steps, a picture at a time: column vectors, H (E D) = L, both sides weighted."""
    columns, truth = unit(estimates).T * weights, unit(lights).T * weights
    scales = np.array([np.linalg.lstsq(a[:, None], b)[0][0] for a, b in zip(columns.T, truth.T, strict=True)])
    for _ in range(1000):
        matrix = np.linalg.lstsq((columns * scales).T, truth.T)[0].T
        new = np.array([np.linalg.lstsq((matrix @ a)[:, None], b)[0][0] for a, b in zip(columns.T, truth.T, strict=True)])
        moved, scales = np.linalg.norm(new - scales), new
        if moved < 1e-6:
            break
    return matrix.T


def test_homographies_are_the_papers_alternation_by_loops():
    generator = np.random.default_rng(3)
    estimates = generator.uniform(0.2, 1.0, (12, 3))
    lights = estimates @ np.array([[1.0, 0.1, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 1.4]]) * generator.uniform(0.8, 1.2, (12, 3))
    weights = np.stack([np.ones(12), generator.uniform(0.065, 1, 12)])
    for found, each in zip(homographies(estimates, lights, weights), weights, strict=True):
        expected = alternating_by_loops(estimates, lights, each)  # of no scale: that of the lights is free
        np.testing.assert_allclose(found / np.linalg.norm(found), expected / np.linalg.norm(expected), atol=2e-4)


def test_a_least_weight_of_1_is_the_one_homography_of_all_and_less_is_local():
    pictures, lights = mondrians(60, seed=11)
    lights = lights * [1.0, 1.0, 1.5]
    lights[::2] *= [1.3, 1.0, 0.9]  # no one matrix fits
    own = {"of": "gray_edge", "order": 0, "p": 1, "sigma": 0}
    new, _ = mondrians(7, seed=12)
    one = projective(new, **fit_projective(pictures, lights, **own), **own)
    state = fit_as_projective_as_possible(pictures, lights, width_deg=3, least=1, **own)
    np.testing.assert_allclose(as_projective_as_possible(new, **state, width_deg=3, least=1, **own), one, atol=1e-6)
    local = as_projective_as_possible(new, **state, width_deg=1, least=0.01, **own)
    assert angle_deg(local, one).max() > 0.1
    # Its weights, written out for the first picture.
    answers = gray_edge(new, order=0, p=1, sigma=0)
    weights = np.maximum(np.exp(-angle_deg(answers[:1], state["estimates"])), 0.01)
    expected = answers[:1] @ alternating_by_loops(state["estimates"], lights, weights)
    assert angle_deg(local[:1], expected) < 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"of": "gamut", "order": 0, "sigma": 0}, "of 'gamut': answers of bright_dark_pca, bright_pixels, gray_edge"),
        ({"of": "gray_edge", "order": 0}, "settings of gray_edge, whose answers are corrected: missing a required"),
        ({"of": "gray_edge", "order": 0, "p": 1, "sigma": 0, "kappa": 1}, "got an unexpected keyword argument 'kappa'"),
    ],
)
def test_what_cannot_be_corrected(settings, message):
    pictures, lights = mondrians(4)
    with pytest.raises(ValueError, match=message):
        fit_projective(pictures, lights, **settings)


def test_weights_and_numbers_of_pictures_outside_their_range():
    pictures, lights = mondrians(4)
    own = {"of": "gray_edge", "order": 0, "p": 1, "sigma": 0}
    with pytest.raises(ValueError, match=r"width_deg 0, least 0\.5: a width above 0"):
        fit_as_projective_as_possible(pictures, lights, width_deg=0, least=0.5, **own)
    for call in (fit_projective, partial(fit_as_projective_as_possible, width_deg=3, least=0.5)):
        with pytest.raises(ValueError, match="2 pictures: a homography of lights needs 3 at least"):
            call(pictures[:2], lights[:2], **own)


# --------------------------------------------------------------------------------------------------- the table of baselines


@pytest.fixture(scope="module")
def fitted():
    pictures, lights = mondrians(150, seed=5)
    few = slice(0, 20)  # enough for FFCC, which would take longer than all others together
    of = {name: few if name == "ffcc" else slice(None) for name in NAMES}
    return {name: estimator(*candidates()[name]).fitted(pictures[of[name]], lights[of[name]]) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_baseline_answers_the_odd_pictures_too(name, fitted):
    images, _ = mondrians(5, seed=6)
    views = [images.images.copy(), images.second.copy()]
    for view in views:
        view[0] = [0.3, 0.2, 0.1]  # flat
        view[1, :, :, 2] = 0  # a channel that saw nothing
        view[2] *= 1e-20
        view[3] *= 1e20
    mask = np.ones((5, 16, 16), dtype=bool)
    mask[4] = False
    mask[4, 3, 3] = True
    odd = LinearPictures.of(views[0], mask, second=views[1])
    found = fitted[name].estimate(odd)
    assert found.shape == (5, 3)
    assert found.dtype == np.float64
    assert (found >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    alone = np.concatenate([fitted[name].estimate(odd[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(found, alone, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_comes_back(name, fitted):
    data = fitted[name].save()
    assert data == fitted[name].save()
    again = load_baseline(data)
    assert again.setting == fitted[name].setting
    pictures, _ = mondrians(4, seed=7)
    np.testing.assert_array_equal(again.estimate(pictures), fitted[name].estimate(pictures))


def test_pictures_that_lack_because_settings_are_chosen_on_some_are_told():
    draw = np.random.default_rng(0)
    few = LinearPictures.of(draw.random((20, 8, 8, 3)))
    told = "16 pictures: a matrix of 19 moments needs at least as many; 4 of 20 are held out to choose between 2 settings"
    with pytest.raises(ValueError, match=re.escape(told)):
        estimator(*candidates()["corrected_moments_edges"]).fitted(few, np.ones((20, 3)))


def test_the_setting_is_the_best_of_its_list_on_the_held_out_pictures(fitted):
    pictures, lights = mondrians(150, seed=5)
    held = pictures[np.arange(0, 150, 5)]
    for name in ("shades_of_gray", "gray_edge_1", "bright_pixels"):
        settings = estimator(*candidates()[name]).settings
        errors = [angle_deg(Baseline(fitted[name].estimator, s, {}).estimate(held), lights[::5]).mean() for s in settings]
        assert fitted[name].setting == settings[int(np.argmin(errors))]
        assert len(settings) > 1


@pytest.mark.parametrize("name", NAMES)
def test_stored_pictures_give_the_same_baseline_and_few_are_in_memory_at_once(name, monkeypatch):
    """Those in memory are one block, unless products of matrices differ in the last bits by the number of their rows."""
    pictures, lights = mondrians(20 if name == "ffcc" else 50, seed=9)
    changes = np.random.default_rng(0).uniform(0.5, 1, (2, 6, 3, 3))
    of = np.arange(6)
    read = []
    kept = StoredPictures.of([pictures[:7], pictures[7:]]).changed(lambda some, rows: read.append(len(rows)) or some)
    saved, answers = [], []
    for given in (pictures, kept):
        if given is kept or name == "ffcc" or name.startswith("apap"):
            monkeypatch.setattr("benchwright.training.illuminants.pictures._PIXELS", 8 * 16 * 16)
            for module in ("gamut", "ffcc"):
                monkeypatch.setattr(f"benchwright.training.illuminants.{module}._BLOCK", 8)
        relit = RelitPictures(given[of].relit(*changes), lights[of], of, of + 1)
        made = estimator(*candidates()[name]).fitted(given, lights, relit=relit)
        saved.append(made.save())
        answers.append(made.estimate(given))
    assert saved[0] == saved[1]
    assert np.array_equal(*answers)
    assert max(read) <= 8


@pytest.mark.parametrize(
    ("blocks", "told"), [([], "no pictures"), ([2, 3], r"pictures of \(3, 3, 3\) after some of \(2, 2, 3\)")]
)
def test_stored_pictures_are_of_one_size(blocks, told):
    with pytest.raises(ValueError, match=told):
        StoredPictures.of(LinearPictures.of(np.ones((1, side, side, 3))) for side in blocks)


def light_of(pictures, *, light, reach):
    return np.tile(light, (len(pictures), 1))


def fit_light_of(pictures, lights, *, reach):
    """The light farthest from white, or the mean: a stray one spoils the first."""
    learned_from.append((len(pictures), lights))
    return {"light": unit(lights)[np.argmin(unit(lights).min(axis=1))] if reach == "farthest" else unit(lights).mean(axis=0)}


learned_from: list = []


def test_what_is_trained_to_no_number_is_an_error():
    """Its estimates were refused in the end, which stopped all trainings."""
    pictures, lights = mondrians(10)
    made = PictureEstimator(
        estimate=light_of, fit=lambda pictures, lights, *, reach: {"light": lights[0] / reach}, reach=[np.inf]
    )
    assert made.fitted(pictures, lights).state["light"].tolist() == [0, 0, 0]
    made.fit = lambda pictures, lights, *, reach: {"light": lights[0] * reach}
    with pytest.raises(ArithmeticError, match="light of light_of is not finite"):
        made.fitted(pictures, lights)
    several = PictureEstimator(
        estimate=light_of, fit=lambda pictures, lights, *, reach: {"light": lights[0] * reach}, reach=[np.inf, 1.0]
    )
    assert several.fitted(pictures, lights).setting == {"reach": 1.0}, "one that diverges does not reject the others"


def test_ffcc_that_diverges_is_an_error():
    pictures, lights = mondrians(10)
    with pytest.raises(ArithmeticError, match="the loss of ffcc is not finite: weight 1023 is too high"):
        estimator(*candidates()["ffcc"]).fit(pictures, lights, colours=-23, edges=-29, plausible=-26, weight=1023)


def test_settings_are_compared_on_what_the_chosen_one_learns_from():
    pictures, _ = mondrians(10)
    lights = np.tile([1.0, 1.0, 0.5], (10, 1))
    lights[1:10:3] = [1.0, 1.0, 0.7]
    measured = PictureEstimator(estimate=light_of, fit=fit_light_of, reach=["farthest", "mean"])
    assert measured.fitted(pictures, lights).setting == {"reach": "farthest"}  # those held out are 0.5
    of, under = np.array([1, 2, 5, 3, 4]), np.array([2, 1, 3, 0, -1])
    relit = RelitPictures(pictures[of], np.array([[1, 1, 0.1]] * 2 + [[9, 9, 9]] * 2 + [[1, 1, 0.1]]), of, under)
    learned_from.clear()
    assert measured.fitted(pictures, lights, relit=relit).setting == {"reach": "mean"}
    (some, compared), _, (number, whole) = learned_from
    assert (some, number) == (8 + 3, 10 + 5)
    assert not (compared == 9).any(), "neither a held-out picture, 5, nor the light of one, 0"
    assert (whole == 9).any()


def test_corrected_moments_beat_gray_world_on_new_pictures(fitted):
    pictures, lights = mondrians(100, seed=8)
    gray, corrected = (
        angle_deg(fitted[name].estimate(pictures), lights).mean() for name in ("gray_world", "corrected_moments")
    )
    assert corrected < gray


def saved_with(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are not a saved baseline"),
        (b"PK\x03\x04 and then nothing", "are not a saved baseline"),
        (saved_with(other=np.ones(2)), "are not a saved baseline"),
        (saved_with(baseline=np.array("[1, 2]")), "are not a saved baseline"),
        (saved_with(baseline=np.array({"estimator": "gamut"}, dtype=object)), "are not a saved baseline"),
        (
            saved_with(baseline=np.array('{"estimator": "crystal_ball", "setting": {}}')),
            "no estimator is called 'crystal_ball'",
        ),
    ],
)
def test_what_is_no_saved_baseline(data, message):
    with pytest.raises(ValueError, match=message):
        load_baseline(data)


def test_a_file_that_was_cut_is_no_baseline(fitted):
    data = fitted["gamut_pixel"].save()
    assert zipfile.is_zipfile(io.BytesIO(data))
    for length in (10, len(data) // 2, len(data) - 5):
        with pytest.raises(ValueError, match="not a saved baseline"):
            load_baseline(data[:length])


def test_wrong_calls_say_so():
    pictures, lights = mondrians(4)
    with pytest.raises(ValueError, match=r"illuminants of shape \(3, 3\): 4 pictures need \(4, 3\)"):
        estimator(*candidates()["gray_world"]).fitted(pictures, lights[:3])
    with pytest.raises(ValueError, match="choosing between 4 settings needs at least two"):
        estimator(*candidates()["gamut_edge"]).fitted(pictures[:1], lights[:1])
