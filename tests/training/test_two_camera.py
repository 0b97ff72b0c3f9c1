"""The networks: size, the steps of torch's own loop, runs side by side as if alone, checkpoints, export, re-illumination."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from benchwright.curation.checkpoint import Checkpoint
from benchwright.datasets.two_camera.folds import Fold
from benchwright.training.core.determinism import generator
from benchwright.training.models.illuminant_net import IlluminantNets, draw_nets
from benchwright.training.two_camera import batched
from benchwright.training.two_camera.batched import NetworkRun, estimated_ratios, fit_runs
from benchwright.training.two_camera.linear import ratios_of
from benchwright.training.two_camera.networks import NetworkEstimator, load_networks
from benchwright.training.two_camera.reillumination import reilluminated_transforms
from benchwright.training.two_camera.settings import Hyper, settings
from benchwright.training.two_camera.shapes import nines, shape_of

from .two_camera_rows import drawn, keys_of

SHORT = Hyper(
    epochs=40,
    batch_size=16,
    learning_rate=1e-2,
    schedule="constant",
    keep="last",
    validation_share=0.25,
    check_epochs=2,
    patience_epochs=None,
)


def runs_of(n: int, sizes: list[int], hyper: Hyper = SHORT) -> list[NetworkRun]:
    """Seed s learns from the first ``sizes[s]`` rows and watches the others."""
    rows = np.arange(n)
    watched = len(rows) if hyper.keep == "last" else 0
    return [NetworkRun(rows[:size], rows[max(size, watched) :], seed, "fold 0") for seed, size in enumerate(sizes)]


def weights(nets: IlluminantNets, run: int) -> np.ndarray:
    return np.concatenate([part[run].detach().numpy().ravel() for layer in nets.layers() for part in layer])


def part(name: str = "fold 0", *, reveal: bool = False, validation: int = 0) -> Fold:
    X, ratios = drawn(60)
    gt = np.insert(ratios, 1, 1.0, axis=1)
    key = np.array([f"p{row:02}" for row in range(60)])
    train, held = slice(0, 40 - validation), slice(40 - validation, 40)
    pairs = key[train], key[train]
    return Fold(name, X[train], gt[train], *pairs, X[held], gt[held], keys_of(20), X[40:], gt[40:] if reveal else None)


@pytest.mark.parametrize(("layers", "parameters"), [(2, 200), (5, 470), (16, 1460)])
def test_sizes_of_the_paper(layers, parameters):
    nets = IlluminantNets(nines(layers), 3)
    assert sum(part[0].numel() for layer in nets.layers() for part in layer) == nines(layers).parameters == parameters
    assert shape_of(parameters) == nines(layers)
    with pytest.raises(ValueError, match="201 parameters"):
        shape_of(201)


def test_weights_start_within_glorots_bounds_and_biases_at_zero():
    nets = draw_nets(nines(2), [generator(seed, "test") for seed in range(200)])
    for layer, bound in [(0, (6 / 18) ** 0.5), (2, (6 / 11) ** 0.5)]:
        weight, bias = nets.layers()[layer]
        assert bound * 0.99 < float(weight.detach().abs().max()) <= bound
        assert not bias.any()


def test_output_is_the_exponential_of_a_plain_perceptron():
    nets = draw_nets(nines(2), [generator(1, "test"), generator(2, "test")])
    X = torch.randn(2, 7, 9, generator=generator(0, "X"))
    for run in range(2):
        hidden = X[run]
        *inner, (weight, bias) = nets.layers()
        for w, b in inner:
            hidden = torch.relu(hidden @ w[run] + b[run])
        torch.testing.assert_close(nets(X)[run], torch.exp(hidden @ weight[run] + bias[run]))


def test_full_batches_take_the_steps_of_torchs_own_loop():
    X, ratios = drawn(20)
    hyper = dataclasses.replace(SHORT, batch_size=32)
    (run,) = runs_of(20, [20])
    fitted = fit_runs(X, ratios, [run], shape=nines(2), hyper=hyper)
    plain = draw_nets(nines(2), [generator(run.seed, "two_camera weights", run.key)])
    features, truth = torch.from_numpy(X)[None], torch.from_numpy(np.insert(ratios, 1, 1, axis=1)).float()
    optimiser = torch.optim.Adam(plain.parameters(), lr=1e-2, eps=1e-7)
    for _ in range(hyper.epochs):
        found = plain(features)[0]
        estimate = torch.stack([found[:, 0], torch.ones(20), found[:, 1]], dim=1)
        optimiser.zero_grad()
        torch.nn.functional.l1_loss(estimate, truth).backward()  # Keras' MAE, over R/G, 1 and B/G
        optimiser.step()
    np.testing.assert_allclose(weights(fitted.nets, 0), weights(plain, 0), atol=2e-5)
    assert fitted.steps.tolist() == [hyper.epochs]


@pytest.mark.parametrize("keep", ["last", "validation"])
@pytest.mark.parametrize("batch_size", [16, 64])
def test_a_run_among_others_is_the_run_alone_whatever_the_threads(keep, batch_size):
    X, ratios = drawn()
    # With patience runs end at different steps, so that the stack gets smaller on the way.
    hyper = dataclasses.replace(SHORT, keep=keep, batch_size=batch_size, epochs=60, learning_rate=3e-2, patience_epochs=4)
    runs = runs_of(60, [40] * 4, hyper)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        together = fit_runs(X, ratios, runs, shape=nines(2), hyper=hyper)
        torch.set_num_threads(1)
        again = fit_runs(X, ratios, runs[::-1], shape=nines(2), hyper=hyper)
    finally:
        torch.set_num_threads(before)
    assert len({int(step) for step in together.steps}) > 1
    for at, run in enumerate(runs):
        alone = fit_runs(X, ratios, [run], shape=nines(2), hyper=hyper)
        np.testing.assert_array_equal(weights(alone.nets, 0), weights(together.nets, at))
        np.testing.assert_array_equal(weights(again.nets, 3 - at), weights(together.nets, at))
        assert alone.steps[0] == together.steps[at]


def test_runs_of_different_numbers_of_rows_are_as_if_alone_but_for_rounding():
    X, ratios = drawn()
    hyper = dataclasses.replace(SHORT, epochs=20, batch_size=64)
    runs = runs_of(60, [25, 60, 40])
    together = fit_runs(X, ratios, runs, shape=nines(2), hyper=hyper)
    for at, run in enumerate(runs):
        alone = fit_runs(X, ratios, [run], shape=nines(2), hyper=hyper)
        np.testing.assert_allclose(weights(alone.nets, 0), weights(together.nets, at), atol=1e-3)


class EndsAfter(Checkpoint):
    """A process that ends right after so many commits."""

    def __init__(self, folder: Path, commits: int) -> None:
        super().__init__(folder)
        self.left = commits

    def commit(self, save, predicted=None) -> None:
        super().commit(save, predicted)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "changes",
    [
        {"keep": "validation", "batch_size": 16, "patience_epochs": 4},
        {"keep": "last", "batch_size": 16, "schedule": "cosine"},
        {"keep": "validation", "batch_size": 64, "patience_epochs": 4},
    ],
)
def test_training_resumes_from_any_checkpoint_to_the_same_weights(tmp_path, monkeypatch, changes):
    monkeypatch.setattr(batched, "_COMMIT_STEPS", 25)
    X, ratios = drawn()
    hyper = dataclasses.replace(SHORT, epochs=60, learning_rate=3e-2, **changes)
    given = {"runs": runs_of(60, [40] * 4, hyper), "shape": nines(2), "hyper": hyper}
    whole = fit_runs(X, ratios, **given)
    assert (len(set(whole.steps.tolist())) > 1) == (hyper.keep == "validation"), "runs that end on the way"
    begun = []
    for commits in range(1, 100):
        folder = tmp_path / str(commits)
        with contextlib.suppress(KeyboardInterrupt):
            fit_runs(X, ratios, **given, checkpoint=EndsAfter(folder, commits))
            break
        begun.append(int(Checkpoint(folder).arrays()["step"]))
        resumed = fit_runs(X, ratios, **given, checkpoint=Checkpoint(folder))
        assert torch.equal(resumed.nets.flat, whole.nets.flat)
        np.testing.assert_array_equal(resumed.steps, whole.steps)
        np.testing.assert_array_equal(resumed.losses, whole.losses)
    assert len(begun) > 1
    assert begun == sorted(set(begun))


def test_seeds_and_keys_differ_and_global_generators_are_left_alone():
    X, ratios = drawn()
    rows = np.arange(40)
    runs = [NetworkRun(rows, rows[:0], seed, key) for seed, key in [(0, "fold 0"), (1, "fold 0"), (0, "fold 1")]]
    before = torch.get_rng_state()
    nets = fit_runs(X, ratios, runs, shape=nines(2), hyper=SHORT).nets
    assert torch.equal(before, torch.get_rng_state())
    assert len({weights(nets, run).tobytes() for run in range(3)}) == 3


def test_training_learns_what_there_is_to_learn():
    X, ratios = drawn(200)
    hyper = dataclasses.replace(SHORT, epochs=150, batch_size=64)
    fitted = fit_runs(X, ratios, runs_of(200, [150] * 5), shape=nines(2), hyper=hyper)
    missed = [np.abs(found - ratios[150:]).mean() for found in estimated_ratios(fitted.nets, [X[150:]] * 5)]
    # The median: now and then a drawn net has lost its units to ReLU.
    assert np.median(missed) < 0.5 * np.abs(ratios[150:] - ratios[:150].mean(axis=0)).mean()


def test_validation_keeps_the_lowest_of_the_losses_that_it_saw():
    X, ratios = drawn()
    hyper = dataclasses.replace(SHORT, keep="validation", learning_rate=0.03, epochs=100)
    runs = runs_of(60, [12, 12], hyper)
    fitted = fit_runs(X, ratios, runs, shape=nines(5), hyper=hyper)
    for at, run in enumerate(runs):
        best = int(np.nanargmin(fitted.losses[:, at]))
        found = estimated_ratios(fitted.nets, [X[run.watch]] * 2)[at]
        mae = np.abs(found - ratios[run.watch]).sum() / (3 * len(run.watch))
        assert mae == pytest.approx(fitted.losses[best, at], rel=1e-4)
        assert best < len(fitted.losses) - 1  # so few rows are soon learned by heart


def test_patience_ends_a_run_that_has_converged():
    X, ratios = drawn()
    hyper = dataclasses.replace(SHORT, learning_rate=1e-7, epochs=500, batch_size=64, patience_epochs=10)
    fitted = fit_runs(X, ratios, runs_of(60, [40]), shape=nines(2), hyper=hyper)
    assert fitted.steps[0] < 50


def test_estimator_holds_out_pairs_and_does_not_learn_from_their_lights():
    fold = part()
    fold = dataclasses.replace(
        fold,
        X_train=np.concatenate([fold.X_train, fold.X_train]),
        gt_train=np.concatenate([fold.gt_train, np.roll(fold.gt_train, -1, axis=0)]),
        light_train=np.concatenate([fold.light_train, np.roll(fold.light_train, -1)]),
        pair_train=np.concatenate([fold.pair_train, fold.pair_train]),
    )
    hyper = dataclasses.replace(SHORT, keep="validation")
    run = NetworkEstimator(nines(2), hyper, [0])._run(fold, 1000, 0)
    train, watch = run.train - 1000, run.watch - 1000
    assert len(watch) == 10
    assert (watch < 40).all()
    held = set(fold.pair_train[watch])
    assert not held & set(fold.pair_train[train])
    assert not held & set(fold.light_train[train])
    other = NetworkEstimator(nines(2), hyper, [1])._run(fold, 1000, 1)
    assert set(other.watch) != set(run.watch)
    twelve = NetworkEstimator(nines(2), SHORT, [0], measured_times=12)._run(fold, 0, 0)
    assert np.bincount(twelve.train).tolist() == [12] * 40 + [1] * 40


def test_estimator_gives_each_seed_its_lights_and_files(tmp_path):
    folds = [part("fold 0"), part("fold 1")]
    estimator = NetworkEstimator(nines(2), SHORT, [3, 5])
    found = estimator.estimate_folds(folds)
    assert list(found) == [3, 5]
    nets, names = load_networks(estimator.artifacts()["networks.npz"])
    assert names == ["fold 0, seed 3", "fold 1, seed 3", "fold 0, seed 5", "fold 1, seed 5"]
    again = estimated_ratios(nets, [fold.X_test for _ in range(2) for fold in folds])
    np.testing.assert_allclose(ratios_of(found[5][1]), again[3], rtol=1e-6)
    assert (found[5][1][:, 1] == 1).all()
    same = NetworkEstimator(nines(2), SHORT, [3, 5])
    same.estimate_folds(folds)
    assert same.artifacts() == estimator.artifacts()


def test_validation_rows_of_a_fold_are_used_and_the_test_fold_only_when_revealed():
    fold = part(validation=10)
    hyper = dataclasses.replace(SHORT, keep="validation")
    assert NetworkEstimator(nines(2), hyper, [0])._run(fold, 0, 0).watch.tolist() == list(range(30, 40))
    peeking = NetworkEstimator(nines(2), dataclasses.replace(SHORT, keep="test_fold"), [0])
    assert peeking.looks_at_test
    assert not NetworkEstimator(nines(2), hyper, [0]).looks_at_test
    with pytest.raises(ValueError, match="needs the ground truth of the test rows of fold 0"):
        peeking.estimate_folds([fold])
    assert peeking._run(part(reveal=True), 0, 0).watch.tolist() == list(range(40, 60))
    found = peeking.estimate_folds([part(reveal=True)])
    assert found[0][0].shape == (20, 3)


def test_presets_of_paper_and_code():
    released, readme = (Hyper(**settings(name)) for name in ("as_released", "as_released_readme"))
    assert (released.epochs, released.batch_size, released.learning_rate) == (500_000, 256, 1e-3)
    assert (readme.epochs, readme.batch_size, readme.learning_rate) == (1_000_000, 1024, 1e-4)
    assert released.keep == readme.keep == "test_fold"
    papers = ("as_released", "as_released_readme", "as_written", "radiometric")
    assert {Hyper(**settings(name)).patience_epochs for name in papers} == {None}, "the paper and its code stop no run early"
    assert {Hyper(**settings(name)).keep for name in ("as_written", "reilluminated")} == {"last"}
    assert {Hyper(**settings(name)).keep for name in ("validated", "radiometric")} == {"validation"}
    with pytest.raises(ValueError, match="no preset 'x': there are as_released"):
        settings("x")


def simulated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pictures of 4,000 pixels, (n, pixels, 3), of two cameras, under white light; small changes of colour around gray.

    The second camera sees other colours of the same mean, so that the transform of the picture differs from that of a chart.
    """
    draw = np.random.default_rng(seed)
    mix = draw.normal(0, 1, (n, 3, 3))
    one = 1 + 0.03 * draw.normal(size=(n, 4000, 3)) @ mix
    two = one + 0.3 * (1 - one) * [1, 0, 0] + 0.2 * (one[..., 2:] - one[..., :1]) * [0, 0, 1]
    return one, two, np.exp(draw.normal(0, 0.25, (n, 3))), np.exp(draw.normal(0, 0.25, (n, 3)))


def fitted_transforms(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    a, b = (x / x.sum(axis=2, keepdims=True) for x in (one, two))
    return np.array([np.linalg.lstsq(p, q, rcond=None)[0] for p, q in zip(a, b, strict=True)])


def test_reillumination_is_the_transform_of_reilluminated_pixels():
    one, two, light, new_light = simulated(8, 0)
    chart = np.tile(np.eye(3), (8, 1, 1))  # both cameras have the same colours, so a noiseless chart has the identity
    before = fitted_transforms(one * light[:, None], two * light[:, None])
    after = fitted_transforms(one * new_light[:, None], two * new_light[:, None])
    found = reilluminated_transforms(before, chart, light, chart, new_light)
    changed = np.abs(after - before).max()
    assert changed > 0.03
    np.testing.assert_allclose(found, after, atol=changed / 50)
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=1e-9)


def test_reillumination_with_its_own_light_changes_nothing_and_a_chartlike_picture_gets_the_new_charts_transform():
    draw = np.random.default_rng(1)

    def stochastic(n):
        T = np.eye(3) + draw.normal(0, 0.1, (n, 3, 3))
        return T / T.sum(axis=2, keepdims=True)

    image, chart, other = stochastic(5), stochastic(5), stochastic(5)
    light, new_light = np.exp(draw.normal(0, 0.3, (2, 5, 3)))
    np.testing.assert_allclose(reilluminated_transforms(image, chart, light, chart, light), image, atol=1e-12)
    np.testing.assert_allclose(reilluminated_transforms(chart, chart, light, other, new_light), other, atol=1e-12)
    with pytest.raises(ValueError, match="cannot be inverted"):
        reilluminated_transforms(image, np.zeros((5, 3, 3)), light, chart, light)


def test_errors_say_value_and_rule():
    X, ratios = drawn()
    runs = runs_of(60, [40])
    with pytest.raises(ValueError, match=r"\(60, 8\) and ratios \(60, 2\)"):
        fit_runs(X[:, :8], ratios, runs, shape=nines(2), hyper=SHORT)
    with pytest.raises(ValueError, match="ratios above 0"):
        fit_runs(X, -ratios, runs, shape=nines(2), hyper=SHORT)
    with pytest.raises(ValueError, match="watch has 0 rows"):
        fit_runs(X, ratios, runs, shape=nines(2), hyper=dataclasses.replace(SHORT, keep="validation"))
    with pytest.raises(ArithmeticError, match="not finite after step"):
        fit_runs(X * 1e30, ratios, runs, shape=nines(2), hyper=SHORT)
    with pytest.raises(ValueError, match=r"networks\.npz"):
        load_networks(b"PK")
    with pytest.raises(ValueError, match="keep = 'best': expected 'last' or"):
        dataclasses.replace(SHORT, keep="best")
    with pytest.raises(ValueError, match="none twice"):
        NetworkEstimator(nines(2), SHORT, [1, 1])
