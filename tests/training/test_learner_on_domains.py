"""The learner on domains of the same classes: the paper's hyper-parameters, a plain loop's steps, and determinism."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.encoders.one_thread import one_thread
from benchwright.training.baselines.clear import paper_methods, paper_settings
from benchwright.training.core.build import Parts, parts_of
from benchwright.training.core.criteria import cross_entropy
from benchwright.training.core.determinism import generator
from benchwright.training.core.learner import Learner
from benchwright.training.core.schedule import Schedule
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.methods.registry import method
from benchwright.training.models.linear import linear
from benchwright.training.models.mlp import mlp
from torch import nn

SHORT = Schedule(
    optimiser="sgd",
    epochs=4,
    batch_size=32,
    learning_rate=0.5,
    momentum=0.9,
    weight_decay=0.0,
    drop_last=False,
    clip_norm=None,
    mixed_precision=False,
    select="none",
    eval_every=1,
    first_best="nothing",
    decay_after_epochs=2,
    decay_factor=0.1,
)


def blobs(n: int = 120, d: int = 6, classes: int = 3, seed: int = 0) -> ArrayExamples:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, n)
    X = (draw.normal(size=(classes, d)) * 2)[y] + draw.normal(size=(n, d))
    return ArrayExamples(X.astype(np.float32), y)


def learner(seed: int = 0, schedule: Schedule = SHORT, name: str = "cumulative", d: int = 6, **settings: Any) -> Learner:
    return Learner(Parts(method(name, **settings), schedule, cross_entropy, linear), sample=(d,), seed=seed)


def learned(one: Learner, *domains: ArrayExamples, classes: int = 3) -> Learner:
    for domain in domains:
        one.learn(domain, [], classes=0 if one._seen else classes)
    return one


def test_hyper_parameters_of_the_paper() -> None:
    for name, rate in [("linear", 1.0), ("linear_imagenet", 0.1), ("mlp", 0.1)]:
        model, settings = paper_settings(name)
        made = parts_of({**settings, "method": {}}, method_of("nap"), linear, labels="one", classes="same").schedule
        assert model == name.partition("_")[0]
        assert (made.epochs, made.batch_size, made.momentum, made.weight_decay) == (100, 256, 0.9, 0.0)
        assert (made.learning_rate, made.decay_after_epochs, made.decay_factor) == (rate, 60, 0.1)
        assert made.select == "lowest_loss"
    with pytest.raises(ValueError, match=r"there are linear, linear_imagenet, mlp, resnet18, small_resnet$"):
        paper_settings("cubic")


def method_of(name: str) -> Any:
    return lambda **settings: method(name, **settings)


def test_models_of_the_paper() -> None:
    def count(model: nn.Module) -> int:
        model.grow(11, torch.Generator())  # type: ignore[operator]
        return sum(p.numel() for p in model.parameters() if p.requires_grad)

    assert count(linear(torch.Generator(), sample=(2048,))) == 2048 * 11 + 11
    assert count(mlp(torch.Generator(), sample=(2048,))) == 2048 * 2048 + 2048 + 2048 * 11 + 11
    assert len(paper_methods()) == 7 + 1 + 2 + 2 * 9 + len(["der", "joint"])


def test_it_takes_the_steps_of_a_plain_loop() -> None:
    samples = blobs()
    X, y = torch.from_numpy(samples.X), torch.from_numpy(samples.labels)
    ours = learned(learner(seed=1), samples).model
    plain = linear(generator(1, "init", "0"), sample=(6,))
    plain.grow(3, generator(1, "head", "0/0"))
    optimiser = torch.optim.SGD([plain.weight, plain.bias], lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2], gamma=0.1)
    for epoch in range(SHORT.epochs):
        for rows in torch.randperm(len(y), generator=generator(1, "order", f"0/1/{epoch}")).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(nn.functional.linear(X[rows], plain.weight, plain.bias), y[rows]).backward()
            optimiser.step()
        schedule.step()
    torch.testing.assert_close(ours.weight, plain.weight)
    torch.testing.assert_close(ours.bias, plain.bias)


def test_lowest_loss_keeps_an_earlier_epoch_and_none_the_last() -> None:
    # A rate that grows a hundredfold in the last epochs makes the loss rise again, so that the two rules differ.
    rising = dataclasses.replace(SHORT, epochs=6, learning_rate=0.05, decay_after_epochs=4, decay_factor=400.0)
    kept = learned(learner(schedule=dataclasses.replace(rising, select="lowest_loss")), blobs(n=60, seed=4))
    last = learned(learner(schedule=rising), blobs(n=60, seed=4))
    best = int(np.argmin([epoch["loss"] for epoch in kept.record["epochs"]]))
    assert best < 5
    short = learned(learner(schedule=dataclasses.replace(rising, epochs=best + 1)), blobs(n=60, seed=4))
    torch.testing.assert_close(kept.model.state_dict(), short.model.state_dict(), rtol=0, atol=0)
    assert not torch.equal(last.model.weight, kept.model.weight)


def test_global_generators_are_neither_read_nor_moved() -> None:
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        before = torch.get_rng_state()
        one = learned(learner(), blobs())
        assert torch.equal(before, torch.get_rng_state())
        results.append(one.model.state_dict())
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_seeds_differ() -> None:
    first, second = (learned(learner(seed), blobs()) for seed in (0, 1))
    assert not torch.equal(first.model.weight, second.model.weight)


def test_number_of_threads_outside_is_left_alone_and_changes_nothing() -> None:
    before = torch.get_num_threads()
    states = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            one = learned(learner(d=512), blobs(n=400, d=512))
            assert torch.get_num_threads() == threads
            states.append(one.model.state_dict())
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*states, rtol=0, atol=0)
    with one_thread(), one_thread():
        assert torch.get_num_threads() == 1
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert torch.get_num_threads() == before


CHOICES: list[tuple[str, dict[str, Any]]] = [("nap", {})]
CHOICES += [(name, {"start": start}) for name in ("finetune", "cumulative") for start in ("scratch", "finetune")]
CHOICES += [("lwf", {"strength": 1.0, "temperature": 2.0}), ("ewc", {"strength": 10.0}), ("mas", {"strength": 1.0})]


@pytest.mark.parametrize(("name", "settings"), CHOICES)
def test_saved_and_loaded_goes_on_as_if_unbroken(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    domains = [blobs(seed=s) for s in range(3)]
    whole = learned(learner(name=name, **settings), *domains)
    broken = learned(learner(name=name, **settings), *domains[:2])
    broken.save(tmp_path / "a.pt")
    again = learner(name=name, **settings)
    again.load(tmp_path / "a.pt", domains[:2])
    again.learn(domains[2], [], classes=0)
    torch.testing.assert_close(again.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
    np.testing.assert_array_equal(again.buffer, whole.buffer)


def test_checkpoint_has_equal_bytes_under_any_name_and_refuses_another_place(tmp_path: Path) -> None:
    one = learned(learner(), blobs())
    one.save(tmp_path / "a.pt")
    one.save(tmp_path / "b.pt")
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()
    with pytest.raises(ValueError, match="saved after 1 tasks, and 2 are given"):
        learner().load(tmp_path / "a.pt", [blobs(), blobs()])


def test_read_only_features_are_read() -> None:
    samples = blobs()
    one = learned(learner(), samples)
    expected = one.predict(samples)
    samples.X.flags.writeable = False
    np.testing.assert_array_equal(one.predict(samples), expected)


def test_exemplars_of_a_further_domain_are_chosen_among_old_and_new() -> None:
    _, settings = paper_settings("linear")
    values = {**settings, "method": {}, "memory": {"size": 30}, "schedule": {**settings["schedule"], "epochs": 2}}
    one = Learner(parts_of(values, method_of("er"), linear, labels="one", classes="same"), sample=(6,), seed=0)
    learned(one, blobs(), blobs(seed=1))
    assert len(one.buffer) == 30
    assert (one.buffer < 120).any()
    assert (one.buffer >= 120).any()


def test_methods_that_do_not_fit_are_refused_before_anything_is_read() -> None:
    _, settings = paper_settings("linear")

    def check(name: str, labels: Any = "one", **changed: Any) -> None:
        parts_of({**settings, "method": {}, **changed}, method_of(name), linear, labels=labels, classes="same")

    with pytest.raises(ValueError, match="'bic' does not fit a stream with the same classes"):
        check("bic")
    with pytest.raises(ValueError, match="'icarl' needs one class per sample"):
        check("icarl", labels="sets", criterion="binary_cross_entropy")
    with pytest.raises(ValueError, match="criterion 'cross_entropy': expected one of binary_cross_entropy for sets"):
        check("finetune", labels="sets")
    with pytest.raises(ValueError, match="'er' keeps exemplars: the settings need the size of a memory"):
        check("er", memory={})
    with pytest.raises(ValueError, match="reservoir: alpha is missing: there are alpha"):
        check("reservoir")
    with pytest.raises(ValueError, match="no method 'sgd': there are agem"):
        check("sgd")


def test_errors_say_value_rule_and_place() -> None:
    samples = blobs()
    with pytest.raises(ValueError, match=r"labels \[0, 7\] are not among its classes 0..2"):
        learned(learner(), ArrayExamples(samples.X, np.where(samples.labels == 0, 7, 0)))
    with pytest.raises(ArithmeticError, match=r"in epoch 0 of task 0, at learning rate 0\.5"):
        learned(learner(), ArrayExamples(np.full_like(samples.X, np.nan), samples.labels))
    with pytest.raises(RuntimeError, match="is not trained yet"):
        learner().predict(samples)
    with pytest.raises(ValueError, match="select = 'best': expected 'validation' or"):
        dataclasses.replace(SHORT, select="best")  # type: ignore[arg-type]


def test_scratch_forgets_the_weights_and_finetune_goes_on_with_them() -> None:
    still = dataclasses.replace(SHORT, learning_rate=1e-30)
    for start in ("scratch", "finetune"):
        one = learned(learner(seed=3, schedule=still, start=start), blobs())
        before = {name: value.clone() for name, value in one.model.state_dict().items()}
        learned(one, blobs())
        same = all(torch.equal(before[name], value) for name, value in one.model.state_dict().items())
        assert same == (start == "finetune")
