"""Levenberg-Marquardt on the two-camera networks: derivatives, steps, minima, and runs that do not know each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from benchwright.datasets.two_camera.folds import Fold
from benchwright.training.core.determinism import generator
from benchwright.training.models.illuminant_net import ACTIVATIONS, draw_nets
from benchwright.training.two_camera import newton
from benchwright.training.two_camera.batched import NetworkRun, estimated_ratios
from benchwright.training.two_camera.linear import ratios_of
from benchwright.training.two_camera.networks import NetworkEstimator, load_networks
from benchwright.training.two_camera.newton import fit_newton, log_ratio_jacobian, ridge_solve
from benchwright.training.two_camera.settings import Newton, hyper_of, settings
from benchwright.training.two_camera.shapes import NetworkShape, nines

from . import two_camera_rows
from .two_camera_rows import keys_of

HYPER = Newton(decay=0.5, tip=0.01, iterations=200, tolerance=1e-5, curvature_rows=0)


def drawn(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """As ``two_camera_rows.drawn``, the last column constant."""
    X, ratios = two_camera_rows.drawn(n, seed=3)
    X[:, 8] = 0.5
    return X, ratios


def runs_of(n: int, seeds: range) -> list[NetworkRun]:
    rows = np.arange(n)
    return [NetworkRun(rows[seed:], rows[:0], seed, f"fold {seed}") for seed in seeds]


@pytest.mark.parametrize("shape", [nines(2), nines(5), *(NetworkShape((7, 4), name) for name in ACTIVATIONS)], ids=str)
def test_derivatives_are_those_of_autograd(shape):
    nets = draw_nets(shape, [generator(1, "test")]).double()
    flat = nets.flat.detach()[0, : shape.parameters].clone()
    X = torch.randn(6, 9, generator=generator(0, "X"), dtype=torch.float64)
    log_ratios, by_parameter = log_ratio_jacobian(flat, X, shape)
    torch.testing.assert_close(log_ratios.exp(), nets(X[None])[0])

    def alone(values: torch.Tensor) -> torch.Tensor:
        return log_ratio_jacobian(values, X, shape)[0]

    torch.testing.assert_close(by_parameter, torch.autograd.functional.jacobian(alone, flat))


@pytest.mark.parametrize("rows", [5, 30])
def test_a_step_solves_the_damped_equations_whichever_gram_matrix_is_smaller(rows):
    draw = generator(2, "step")
    root, gradient = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in [(rows, 12), (12,)])
    small = root @ root.T if rows < 12 else root.T @ root
    expected = torch.linalg.solve(root.T @ root + 0.3 * torch.eye(12, dtype=torch.float64), gradient)
    torch.testing.assert_close(ridge_solve(root, small, 0.3, gradient), expected)


@pytest.mark.parametrize("starts", [1, 2])
def test_a_loss_that_is_not_finite_is_an_error(starts):
    """It ended quietly, with the weights of the start."""
    X, ratios = drawn()
    hyper = dataclasses.replace(HYPER, decay=1e308, starts=starts)
    with pytest.raises(ArithmeticError, match="the loss of fold 0, seed 0, is not finite from the start"):
        fit_newton(X, ratios, runs_of(40, range(1)), shape=nines(2), hyper=hyper)


def test_a_curvature_that_is_not_finite_is_an_error(monkeypatch):
    """It was a RuntimeError of the decomposition, which stopped all trainings."""
    monkeypatch.setattr(newton._Problem, "root", lambda problem, flat, step: torch.full((40, len(flat)), torch.inf).double())
    with pytest.raises(ArithmeticError, match="curvature or gradient of the loss is not finite after step 0"):
        fit_newton(*drawn(), runs_of(40, range(1)), shape=nines(2), hyper=HYPER)


def test_a_matrix_that_rounding_spoils_is_damped_more(monkeypatch):
    calls: list[float] = []

    def spoiled(root, small, ridge, gradient):
        calls.append(ridge)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("not positive-definite")
        return ridge_solve(root, small, ridge, gradient)

    monkeypatch.setattr(newton, "ridge_solve", spoiled)
    fitted = fit_newton(*drawn(), runs_of(40, range(1)), shape=nines(2), hyper=HYPER)
    assert fitted.steps[0] > 10
    assert calls[1] > calls[0]


def test_training_ends_at_a_minimum_that_lbfgs_does_not_undercut():
    X, ratios = drawn()
    (run,) = runs_of(40, range(1))
    fitted = fit_newton(X, ratios, [run], shape=nines(2), hyper=HYPER)
    assert 10 < fitted.steps[0] < HYPER.iterations
    assert (np.diff(fitted.losses[:, 0]) < 0).all()

    mean, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    scale[8] = 1
    features, truth = torch.from_numpy((X - mean) / scale)[None], torch.from_numpy(ratios)[None]
    nets = draw_nets(nines(2), [generator(0, "two_camera weights", "fold 0")]).double()
    optimiser = torch.optim.LBFGS(nets.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = ((nets(features) - truth).square() + 1e-4).sqrt().sum() + 0.25 * nets.flat.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    assert fitted.losses[fitted.steps[0], 0] < 1.02 * loss().item()


def test_a_run_among_others_is_the_run_alone_and_twice_named_rows_count_twice():
    X, ratios = drawn()
    short = dataclasses.replace(HYPER, iterations=15)
    runs = runs_of(40, range(3))
    together = fit_newton(X, ratios, runs, shape=nines(2), hyper=short)
    for at, run in enumerate(runs):
        alone = fit_newton(X, ratios, [run], shape=nines(2), hyper=short)
        assert torch.equal(alone.nets.flat[0], together.nets.flat[at])
    twice = [dataclasses.replace(run, train=np.tile(run.train, 2)) for run in runs[:1]]
    doubled = fit_newton(X, ratios, twice, shape=nines(2), hyper=dataclasses.replace(short, decay=1.0, iterations=1))
    single = fit_newton(X, ratios, runs[:1], shape=nines(2), hyper=dataclasses.replace(short, iterations=1))
    assert doubled.losses[0, 0] == pytest.approx(2 * single.losses[0, 0])


def test_the_networks_take_plain_transforms():
    X, ratios = drawn()
    fitted = fit_newton(X, ratios, runs_of(40, range(1)), shape=nines(5), hyper=HYPER)
    (found,) = estimated_ratios(fitted.nets, [X])
    mean, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    scale[8] = 1
    flat = fitted.nets.flat.detach()[0].double()
    first, bias = flat[:81].view(9, 9), flat[81:90]
    inner = flat[: nines(5).parameters].clone()
    inner[:81], inner[81:90] = (first * torch.from_numpy(scale)[:, None]).flatten(), bias + torch.from_numpy(mean) @ first
    loss = np.sqrt((found - ratios) ** 2 + HYPER.tip**2).sum() + HYPER.decay / 2 * inner.square().sum().item()
    assert loss == pytest.approx(fitted.losses[fitted.steps[0], 0], rel=1e-4)
    assert np.abs(found - ratios).mean() < 0.5 * np.abs(ratios - np.median(ratios, axis=0)).mean()


def test_damping_that_has_fallen_far_gets_up_again():
    X, ratios = drawn(400)
    hyper = dataclasses.replace(HYPER, decay=1e-3, tolerance=1e-9, curvature_rows=130, iterations=120)
    fitted = fit_newton(X, ratios, runs_of(400, range(1)), shape=nines(2), hyper=hyper)
    assert fitted.steps[0] == 120  # with a floor a million times lower, 108


def test_curvature_of_some_rows_finds_a_minimum_about_as_low():
    X, ratios = drawn(400)
    every, some = (
        fit_newton(X, ratios, runs_of(400, range(1)), shape=nines(2), hyper=dataclasses.replace(HYPER, curvature_rows=rows))
        for rows in (0, 200)
    )
    assert np.nanmin(some.losses) < 1.05 * np.nanmin(every.losses)


def test_the_start_of_the_least_loss_goes_on():
    X, ratios = drawn()
    hyper = dataclasses.replace(HYPER, iterations=12, scouting=4)
    found = [
        fit_newton(X, ratios, runs_of(40, range(1)), shape=nines(5), hyper=dataclasses.replace(hyper, starts=starts))
        for starts in (1, 2, 4, 6)
    ]
    after_scouting = [float(fitted.losses[4, 0]) for fitted in found]
    assert after_scouting == sorted(after_scouting, reverse=True)
    assert after_scouting[-1] < after_scouting[0]
    assert all(fitted.steps[0] == 12 for fitted in found)
    with pytest.raises(ValueError, match="starts 0"):
        dataclasses.replace(HYPER, starts=0)


def test_settings_that_make_no_sense_are_told():
    assert isinstance(hyper_of(settings("decayed")), Newton)
    with pytest.raises(ValueError, match="decay 0"):
        dataclasses.replace(HYPER, decay=0.0)
    with pytest.raises(ValueError, match="iterations 0"):
        dataclasses.replace(HYPER, iterations=0)
    with pytest.raises(ValueError, match="ratios above 0"):
        fit_newton(
            *(values * sign for values, sign in zip(drawn(), (1, -1), strict=True)),
            runs_of(40, range(1)),
            shape=nines(2),
            hyper=HYPER,
        )


def part(name: str) -> Fold:
    """20 measured rows, 60 re-lit with the light of another, 10 to test."""
    X, ratios = drawn(90)
    gt = np.insert(ratios, 1, 1.0, axis=1)
    pair = np.array([f"p{row % 20:02}" for row in range(80)])
    light = np.array([f"p{(row % 20 + row // 20) % 20:02}" for row in range(80)])
    return Fold(name, X[:80], gt[:80], pair, light, X[:0], gt[:0], keys_of(10), X[80:], None)


def test_a_pupil_says_what_the_average_of_its_teachers_says_and_needs_no_truth_of_its_own():
    folds = [part("fold 0"), part("fold 1")]
    short = dataclasses.replace(HYPER, iterations=40)
    teacher = NetworkEstimator(nines(2), short, range(3))
    with pytest.raises(ValueError, match="train on the same number first"):
        teacher.averaged([folds[0].X_test])
    pupils = NetworkEstimator(nines(2), dataclasses.replace(short, decay=0.01), [5], teacher=teacher, rows=60)
    found = pupils.estimate_folds(folds)
    said = teacher.estimate_folds(folds)
    logs = [np.mean([np.log(ratios_of(run[k])) for run in said.values()], axis=0) for k in range(2)]
    for k, averaged in enumerate(teacher.averaged([fold.X_test for fold in folds])):
        np.testing.assert_allclose(np.log(averaged), logs[k], atol=1e-6)
        spread = np.abs(np.log(ratios_of(found[5][k])) - logs[k]).mean()
        assert spread < 0.2 * np.abs(logs[k] - logs[k].mean(axis=0)).mean()
    nets, names = load_networks(pupils.artifacts()["networks.npz"])
    assert (nets.runs, names) == (2, ["fold 0, seed 5", "fold 1, seed 5"])
