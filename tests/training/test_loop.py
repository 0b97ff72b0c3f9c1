"""The loop: the paper's hyper-parameters, the steps that torch's own optimiser and loader would take, and determinism."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from benchwright.training.baselines.clear import MODELS, identity, learner_maker, paper_methods, paper_settings
from benchwright.training.core.determinism import Hyper, fit, generator, one_thread
from benchwright.training.core.learner import BufferLearner
from benchwright.training.methods.registry import method
from benchwright.training.models.linear import linear
from benchwright.training.models.mlp import mlp
from torch import nn

SHORT = Hyper(
    epochs=4,
    batch_size=32,
    learning_rate=0.5,
    momentum=0.9,
    weight_decay=0.0,
    decay_after_epochs=2,
    decay_factor=0.1,
    keep="last",
)


def blobs(n: int = 120, d: int = 6, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, n)
    X = (draw.normal(size=(classes, d)) * 2)[y] + draw.normal(size=(n, d))
    return X.astype(np.float32), y.astype(np.int64)


def learner(seed: int = 0, hyper: Hyper = SHORT, rule: str = "cumulative", start: str = "scratch") -> BufferLearner:
    chosen = method(rule, start=start)  # type: ignore[arg-type]
    return BufferLearner(make_model=linear, classes=3, hyper=hyper, method=chosen, seed=seed)


def test_hyper_parameters_of_the_paper():
    settings = paper_settings()
    for name, rate in [("linear", 1.0), ("linear_imagenet", 0.1), ("mlp", 0.1)]:
        values = dict(settings[name])
        assert values.pop("model") in MODELS
        hyper = Hyper(**values)
        assert (hyper.epochs, hyper.batch_size, hyper.momentum, hyper.weight_decay) == (100, 256, 0.9, 0.0)
        rates = [hyper.rate(epoch) for epoch in range(100)]
        assert rates[:60] == [rate] * 60
        assert rates[60:] == pytest.approx([rate / 10] * 40)
        assert hyper.keep == "lowest_loss"


def test_models_of_the_paper():
    init = torch.Generator()
    assert sum(p.numel() for p in linear(2048, 11, init=init).parameters()) == 2048 * 11 + 11
    assert sum(p.numel() for p in mlp(2048, 11, init=init).parameters()) == 2048 * 2048 + 2048 + 2048 * 11 + 11
    assert len(paper_methods()) == 1 + 2 + 2 * 9


def test_fit_takes_the_steps_of_a_plain_loop():
    X, y = map(torch.from_numpy, blobs())
    ours, plain = (linear(6, 3, init=generator(1, "init")) for _ in range(2))
    losses = fit(ours, X, y, SHORT, generator(1, "order"))
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2], gamma=0.1)
    order = generator(1, "order")
    for _ in range(SHORT.epochs):
        for rows in torch.randperm(len(y), generator=order).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(plain(X[rows]), y[rows]).backward()
            optimiser.step()
        schedule.step()
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_lowest_loss_keeps_an_earlier_epoch_and_last_the_last():
    X, y = map(torch.from_numpy, blobs(n=60, seed=4))
    # A rate that grows a hundredfold in the last epochs makes the loss rise again, so that the two rules differ.
    rising = dataclasses.replace(SHORT, epochs=6, learning_rate=0.05, decay_after_epochs=4, decay_factor=400.0)
    kept, last = (linear(6, 3, init=generator(0, "init")) for _ in range(2))
    losses = fit(kept, X, y, dataclasses.replace(rising, keep="lowest_loss"), generator(0, "order"))
    fit(last, X, y, rising, generator(0, "order"))
    best = int(np.argmin(losses))
    assert best < 5
    short = linear(6, 3, init=generator(0, "init"))
    fit(short, X, y, dataclasses.replace(rising, epochs=best + 1), generator(0, "order"))
    torch.testing.assert_close(kept.state_dict(), short.state_dict(), rtol=0, atol=0)
    assert not torch.equal(last.state_dict()["weight"], kept.state_dict()["weight"])


def test_global_generators_are_neither_read_nor_moved():
    X, y = blobs()
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        before = torch.get_rng_state()
        one = learner()
        one.learn(X, y)
        assert torch.equal(before, torch.get_rng_state())
        results.append(one.model.state_dict())
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_seeds_differ():
    X, y = blobs()
    first, second = learner(0), learner(1)
    first.learn(X, y)
    second.learn(X, y)
    assert not torch.equal(first.model.state_dict()["weight"], second.model.state_dict()["weight"])


def test_number_of_threads_outside_is_left_alone_and_changes_nothing():
    X, y = blobs(n=400, d=512)
    before = torch.get_num_threads()
    states = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            one = learner()
            one.learn(X, y)
            assert torch.get_num_threads() == threads
            states.append(one.model.state_dict())
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*states, rtol=0, atol=0)
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("rule", ["finetune", "cumulative", "nap"])
@pytest.mark.parametrize("start", ["scratch", "finetune"])
def test_saved_and_loaded_goes_on_as_if_unbroken(tmp_path: Path, rule: str, start: str):
    domains = [blobs(seed=s) for s in range(3)]
    whole = learner(rule=rule, start=start)
    for X, y in domains:
        whole.learn(X, y)
    broken = learner(rule=rule, start=start)
    for X, y in domains[:2]:
        broken.learn(X, y)
    broken.save(tmp_path / "a.pt")
    again = learner(rule=rule, start=start)
    again.load(tmp_path / "a.pt", domains[:2])
    again.learn(*domains[2])
    torch.testing.assert_close(again.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
    np.testing.assert_array_equal(again.buffer, whole.buffer)


def test_checkpoint_has_equal_bytes_under_any_name_and_refuses_another_place(tmp_path: Path):
    one = learner()
    one.learn(*blobs())
    one.save(tmp_path / "a.pt")
    one.save(tmp_path / "b.pt")
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()
    with pytest.raises(ValueError, match="saved after 1 domains, and 2 are given"):
        learner().load(tmp_path / "a.pt", [blobs(), blobs()])


def test_read_only_features_are_read():
    X, y = blobs()
    one = learner()
    one.learn(X, y)
    expected = one.predict(X)
    X.flags.writeable = False
    np.testing.assert_array_equal(one.predict(X), expected)


def test_errors_say_value_rule_and_place():
    X, y = blobs()
    with pytest.raises(ValueError, match=r"labels 0..7 outside 0..2"):
        learner().learn(X, np.where(y == 0, 7, 0))
    with pytest.raises(ArithmeticError, match=r"in epoch 0 at learning rate 0\.5"):
        learner().learn(np.full_like(X, np.nan), y)
    with pytest.raises(RuntimeError, match="has not learned yet"):
        learner().predict(X)
    with pytest.raises(ValueError, match="keep 'best'"):
        dataclasses.replace(SHORT, keep="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no model is called 'cnn'"):
        learner_maker({"model": "cnn"}, method("nap", start="scratch"), classes=3)
    with pytest.raises(TypeError, match="epochs"):
        learner_maker({"model": "linear"}, method("nap", start="scratch"), classes=3)


def test_identity_is_what_and_not_where():
    said = identity(paper_settings()["linear"], method("reservoir", start="finetune", alpha=2.0), classes=11)
    assert said["method"] == "reservoir-alpha=2.0-finetune"
    assert "device" not in said


def test_scratch_forgets_the_weights_and_finetune_goes_on_with_them():
    still = dataclasses.replace(SHORT, learning_rate=1e-30, weight_decay=0.0)
    X, y = blobs()
    for start in ("scratch", "finetune"):
        one = learner(seed=3, hyper=still, start=start)
        one.learn(X, y)
        before = {name: value.clone() for name, value in one.model.state_dict().items()}
        one.learn(X, y)
        same = all(torch.equal(before[name], value) for name, value in one.model.state_dict().items())
        assert same == (start == "finetune")
