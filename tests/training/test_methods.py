"""Losses of the methods by hand and beside plain implementations, and the quirks of vCLIMB's released code by name."""

from __future__ import annotations

import copy
import dataclasses
from inspect import signature
from typing import Any, Literal, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from benchwright.curation.registry import load_name
from benchwright.training.core.batches import Batch, Means, batches
from benchwright.training.core.criteria import binary_cross_entropy, cross_entropy, softened_distillation
from benchwright.training.core.lesson import ForwardPass, Lesson, frozen
from benchwright.training.core.schedule import Schedule
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.methods import importance
from benchwright.training.methods.bic import bic, first_stage, split_classes
from benchwright.training.methods.er import er, replay
from benchwright.training.methods.ewc import ewc
from benchwright.training.methods.gem import project_to_cone
from benchwright.training.methods.icarl import distillation, icarl
from benchwright.training.methods.lwf import lwf
from benchwright.training.methods.mas import mas, output_norm
from benchwright.training.methods.method import Method
from benchwright.training.methods.registry import METHODS, method
from benchwright.training.models.classifier import Classifier
from torch import nn

PLAN = Schedule(
    optimiser="sgd",
    learning_rate=0.1,
    momentum=0.0,
    weight_decay=0.0,
    epochs=1,
    batch_size=4,
    drop_last=False,
    clip_norm=None,
    mixed_precision=False,
    select="none",
    eval_every=2,
    first_best="nothing",
)


def classifier(groups: tuple[int, ...] = (2, 2), width: int = 3, seed: int = 0, **settings: Any) -> Classifier:
    model = Classifier(nn.Identity(), width, **settings)
    for number, group in enumerate(groups):
        model.grow(group, torch.Generator().manual_seed(seed + number))
    return model


def samples(n: int, labels: tuple[int, ...], width: int = 3, seed: int = 0) -> ArrayExamples:
    draw = np.random.default_rng(seed)
    return ArrayExamples(draw.normal(size=(n, width)).astype(np.float32), draw.choice(labels, n))


def a_lesson(model: Classifier, train: ArrayExamples, teacher: Classifier | None = None, **changes: Any) -> Lesson:
    plan = dataclasses.replace(PLAN, **changes.pop("plan", {}))
    means = Means(changes.pop("criterion", cross_entropy), plan, 7, torch.device("cpu"), **changes.pop("means", {}))
    values: dict[str, Any] = {"second": None, "previous": None, "validate": (), "state": {}, "task": 1, **changes}
    values.setdefault("fresh", len(train.labels))
    values.setdefault("rows", np.arange(len(train.labels)))
    values.setdefault("starts", np.array([0]))
    values.setdefault("capacity", None)
    old = model.classes - model.groups[-1]
    return Lesson(model=model, teacher=teacher, train=train, means=means, **{"old_classes": old, **values})


def a_step(lesson: Lesson, logits: torch.Tensor, targets: list[int]) -> ForwardPass:
    b = len(targets)
    batch = Batch(torch.arange(b), torch.zeros(b, 3), None, torch.tensor(targets))
    return ForwardPass(lesson, batch, logits, torch.zeros(b, 3))


# --- criteria


def test_criteria_by_hand():
    logits = torch.tensor([[0.0, np.log(3.0)]])
    assert float(cross_entropy(logits, torch.tensor([1]))) == pytest.approx(-np.log(0.75))
    # sigmoid(0) = 1/2 for a class that is not there, sigmoid(ln 3) = 3/4 for the one that is; mean over the two.
    assert float(binary_cross_entropy(logits, torch.tensor([1]))) == pytest.approx((-np.log(0.5) - np.log(0.75)) / 2)
    both = torch.tensor([[1.0, 1.0]])
    assert float(binary_cross_entropy(logits, both)) == pytest.approx((-np.log(0.5) - np.log(0.75)) / 2)


def test_softened_distillation_by_hand():
    old, new = torch.tensor([[2 * np.log(3.0), 0.0]]), torch.tensor([[0.0, 0.0]])
    # At T = 2 the old softmax is (3/4, 1/4), the new one (1/2, 1/2).
    assert float(softened_distillation(new, old, 2.0)) == pytest.approx(np.log(2))
    assert float(softened_distillation(old, old, 2.0)) == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))


def test_the_second_view_shares_the_classification_loss():
    """L = (1 - w) CE(F(x), y) + w CE(F(x_d), y)."""
    model, train, second = classifier((3,)), samples(4, (0, 1, 2)), samples(4, (0,), seed=1)
    lesson = a_lesson(model, train, means={"second_weight": 0.25}, second=second)
    x, x_d, y = train.load(range(4), None), second.load(range(4), None), torch.from_numpy(train.labels)
    batch = next(batches(train, range(4), None, lesson.means, second=second))
    torch.testing.assert_close(batch.second, x_d)
    got = ForwardPass(lesson, batch, model(x), x).classification()
    expected = 0.75 * nn.functional.cross_entropy(model(x), y) + 0.25 * nn.functional.cross_entropy(model(x_d), y)
    torch.testing.assert_close(got, expected)


# --- iCaRL


def test_icarl_sums_over_old_classes_and_averages_over_samples():
    lesson = a_lesson(classifier((2, 1)), samples(2, (0, 1, 2)))
    logits = torch.tensor([[0.0, np.log(3.0), 9.0], [np.log(3.0), 0.0, -9.0]])
    q = torch.tensor([[0.5, 1.0], [0.0, 0.5]])
    by_class = [(np.log(2) - np.log(1 - 0.75)) / 2, (-np.log(0.75) + np.log(2)) / 2]
    assert float(distillation(a_step(lesson, logits, [2, 2]), q)) == pytest.approx(sum(by_class))


def run_icarl(targets: str, **plan: Any) -> tuple[Classifier, Lesson]:
    old = classifier((2,))
    model = copy.deepcopy(old)
    model.grow(1, torch.Generator().manual_seed(9))
    lesson = a_lesson(model, samples(10, (0, 1, 2)), frozen(old), plan=plan)
    icarl(targets=targets).teach(lesson)  # type: ignore[misc, arg-type]
    return model, lesson


def plain_icarl(zero: set[int], drop_last: bool) -> Classifier:
    """The same steps written out: full q, save for rows ``zero``."""
    old = classifier((2,))
    model = copy.deepcopy(old)
    model.grow(1, torch.Generator().manual_seed(9))
    train = samples(10, (0, 1, 2))
    X, y = train.load(range(10), None), torch.from_numpy(train.labels)
    q = torch.sigmoid(old(X)).detach()
    q[sorted(zero)] = 0
    lesson = a_lesson(classifier((3,)), train, plan={"drop_last": drop_last})
    order = lesson.shuffled(np.arange(10), "1/1/0")
    optimiser = torch.optim.SGD([model.weight, model.bias], lr=0.1)
    for start in range(0, len(order), 4):
        rows = torch.from_numpy(order[start : start + 4])
        logits = nn.functional.linear(X[rows], model.weight, model.bias)
        loss = nn.functional.cross_entropy(logits, y[rows])
        for c in range(2):
            loss = loss + nn.functional.binary_cross_entropy_with_logits(logits[:, c], q[rows, c])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@pytest.mark.parametrize("drop_last", [False, True])
def test_icarl_takes_the_steps_of_a_plain_loop(drop_last: bool):
    model, _ = run_icarl("all_rows", drop_last=drop_last)
    expected = plain_icarl(set(), drop_last)
    torch.testing.assert_close(model.weight, expected.weight)
    torch.testing.assert_close(model.bias, expected.bias)


def test_quirk_icarl_as_released_leaves_targets_at_zero_for_the_dropped_batch():
    released, lesson = run_icarl("as_released", drop_last=True)
    dropped = set(range(10)) - set(lesson.shuffled(np.arange(10), "1/targets").tolist())
    assert len(dropped) == 2
    torch.testing.assert_close(released.weight, plain_icarl(dropped, drop_last=True).weight)
    correct, _ = run_icarl("all_rows", drop_last=True)
    assert not torch.equal(released.weight, correct.weight)
    same, _ = run_icarl("as_released", drop_last=False)
    torch.testing.assert_close(same.weight, run_icarl("all_rows", drop_last=False)[0].weight)


def test_icarl_learns_the_first_task_by_classification_alone():
    one, two = classifier((2,)), classifier((2,))
    train = samples(8, (0, 1))
    icarl().teach(a_lesson(one, train, task=0))  # type: ignore[misc]
    a_lesson(two, train, task=0).fit(lambda step: step.classification())
    torch.testing.assert_close(one.weight, two.weight)


# --- EWC and MAS


def grown_pair() -> tuple[Classifier, ArrayExamples, ArrayExamples]:
    return classifier((2, 2)), samples(10, (0, 1)), samples(9, (2, 3), seed=1)


def plain_gradients(model: Classifier, data: ArrayExamples, loss: Any, orders: list[np.ndarray]) -> dict[str, torch.Tensor]:
    X, y = data.load(range(len(data.labels)), None), torch.from_numpy(data.labels)
    total = {"weight": torch.zeros_like(model.weight), "bias": torch.zeros_like(model.bias)}
    for rows in orders:
        value = loss(nn.functional.linear(X[rows], model.weight, model.bias), y[rows])
        for name, gradient in zip(total, torch.autograd.grad(value, [model.weight, model.bias]), strict=True):
            total[name] += gradient
    return total


@pytest.mark.parametrize("kind", ["ewc", "mas"])
def test_importance_is_weighed_after_the_gradients_of_all_batches_are_summed(kind: str):
    """Quirk: (sum of gradients) squared, not the sum of squares, and not divided by the batches; with the grown head."""
    model, before, now = grown_pair()
    start = copy.deepcopy(model)
    lesson = a_lesson(model, now, previous=before)
    (ewc(strength=0.5) if kind == "ewc" else mas(strength=0.5)).teach(lesson)  # type: ignore[misc]
    order = lesson.shuffled(np.arange(10), "1/importance")
    parts = [order[:4], order[4:8], order[8:]]
    if kind == "ewc":
        summed = plain_gradients(start, before, nn.functional.cross_entropy, parts)
        expected = {name: value**2 for name, value in summed.items()}
    else:
        summed = plain_gradients(start, before, lambda logits, _: logits.square().sum(1).sqrt().mean(), parts)
        expected = {name: value.abs() for name, value in summed.items()}
    assert set(lesson.state) == {f"0000/{what}/{name}" for what in ("importance", "value") for name in ("weight", "bias")}
    for name in ("weight", "bias"):
        torch.testing.assert_close(lesson.state[f"0000/importance/{name}"], expected[name])
        torch.testing.assert_close(lesson.state[f"0000/value/{name}"], getattr(start, name))
        assert len(expected[name]) == 4  # new outputs were there already


def test_the_penalty_by_hand():
    """Summed over tasks, without one half, and a grown parameter compared on the rows that it had."""
    state = {
        "0000/importance/weight": torch.tensor([1.0, 2.0]),
        "0000/value/weight": torch.tensor([0.0, 1.0]),
        "0001/importance/weight": torch.tensor([1.0, 1.0, 4.0]),
        "0001/value/weight": torch.tensor([3.0, 3.0, 3.0]),
    }
    now = {"weight": torch.tensor([3.0, 3.0, 2.0, 100.0])}
    assert float(importance.penalty(now, state)) == (1 * 9 + 2 * 4) + (0 + 0 + 4 * 1)
    assert float(importance.penalty(now, {})) == 0


def test_the_penalty_holds_parameters_where_they_were():
    free, held = grown_pair()[0], grown_pair()[0]
    _, before, now = grown_pair()
    ewc(strength=0.0).teach(a_lesson(free, now, previous=before, plan={"epochs": 5}))  # type: ignore[misc]
    ewc(strength=5.0).teach(a_lesson(held, now, previous=before, plan={"epochs": 5}))  # type: ignore[misc]
    start = grown_pair()[0].weight.detach()
    moved = [float((model.weight.detach() - start)[:2].norm()) for model in (held, free)]
    assert moved[0] < 0.5 * moved[1]


def test_mas_takes_the_norm_of_the_logits_and_not_its_square():
    lesson = a_lesson(classifier((2,)), samples(2, (0, 1)))
    assert float(output_norm(a_step(lesson, torch.tensor([[3.0, 4.0], [0.0, 1.0]]), [0, 0]))) == 3.0


def test_importance_is_taken_in_training_mode():
    """Dropout is on and batch norm's statistics move while it is taken."""
    model, before, now = classifier((2, 2), dropout=0.5), samples(8, (0, 1)), samples(8, (2, 3))
    seen: list[bool] = []
    model.backbone.register_forward_hook(lambda module, *_: seen.append(module.training))
    lesson = a_lesson(model, now, previous=before)
    lesson.gradients(lambda step: step.classification(), before)
    assert seen == [True, True]
    assert model.weight.grad is None


# --- LwF


@pytest.mark.parametrize("by_task", [False, True])
def test_lwf_takes_the_step_of_a_plain_loop(by_task: bool):
    old = classifier((2, 1))
    model = copy.deepcopy(old)
    model.grow(2, torch.Generator().manual_seed(3))
    expected = copy.deepcopy(model)
    train = samples(4, (3, 4))
    lwf(strength=3.0, temperature=2.0, by_task=by_task).teach(a_lesson(model, train, frozen(old), task=2))  # type: ignore[misc]
    X, y = train.load(range(4), None), torch.from_numpy(train.labels)
    logits, before = nn.functional.linear(X, expected.weight, expected.bias), old(X).detach()
    loss = nn.functional.cross_entropy(logits, y)
    for part in [slice(0, 2), slice(2, 3)] if by_task else [slice(0, 3)]:
        p, log_q = (before[:, part] / 2).softmax(1), (logits[:, part] / 2).log_softmax(1)
        loss = loss - 3.0 * (p * log_q).sum(1).mean()
    gradient = torch.autograd.grad(loss, expected.weight)[0]
    torch.testing.assert_close(model.weight, expected.weight - 0.1 * gradient)


# --- BiC


def test_bic_splits_each_class_at_the_whole_part():
    labels = np.array([0] * 5 + [1] * 10 + [0] * 2)
    one, two = split_classes(labels, 0.9)  # int(6.3) and int(9)
    assert two.tolist() == [14, 16]
    assert sorted([*one, *two]) == list(range(17))


def test_bics_first_stage_by_hand():
    """a KD + (1 - a) CE with a = old / all, KD from the corrected outputs of the old model."""
    old = classifier((2,))
    with torch.no_grad():
        old.weight.zero_()
        old.bias.copy_(torch.tensor([np.log(9.0), 0.0]))
        old.alpha.fill_(2.0)  # corrected: (2 ln 9, 0), at T = 2 softmax (0.9, 0.1)
    lesson = a_lesson(classifier((2, 1)), samples(1, (2,)), frozen(old))
    got = first_stage(a_step(lesson, torch.zeros(1, 3), [2]), temperature=2.0)
    kd = -(0.9 * np.log(0.5) + 0.1 * np.log(0.5))
    assert float(got) == pytest.approx(2 / 3 * kd + 1 / 3 * np.log(3))


def test_bics_second_stage_moves_the_two_numbers_of_the_current_task_alone():
    old = classifier((2,))
    model = copy.deepcopy(old)
    model.grow(2, torch.Generator().manual_seed(5))
    train = ArrayExamples(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.repeat(np.arange(4), 10))
    plain = copy.deepcopy(model)
    lesson = a_lesson(model, train, frozen(old), plan={"epochs": 3})
    bic(share=0.8).teach(lesson)  # type: ignore[misc]
    teacher = frozen(old)
    one, two = split_classes(train.labels, 0.8)
    only = a_lesson(plain, train, teacher, plan={"epochs": 3})
    only.fit(lambda step: first_stage(step, temperature=2.0), rows=one)
    torch.testing.assert_close(model.weight, plain.weight)  # the network did not move in stage 2
    assert model.alpha[0] == 1
    assert model.beta[0] == 0
    assert model.alpha[1] != 1
    assert model.beta[1] != 0
    assert [entry["fit"] for entry in lesson.curve] == [1] * 3 + [2] * 3
    assert [value.requires_grad for value in (model.weight, model.bias, model.alpha, model.beta)] == [True, True, False, False]
    # A plain second stage: SGD at 0.001 with momentum 0.9 on two numbers.
    alpha, beta = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([alpha, beta], lr=1e-3, momentum=0.9)
    X, y = train.load(range(40), None), torch.from_numpy(train.labels)
    for epoch in range(3):
        order = lesson.shuffled(two, f"1/2/{epoch}")
        for rows in (order[:4], order[4:8]):
            raw = nn.functional.linear(X[rows], plain.weight, plain.bias).detach()
            loss = nn.functional.cross_entropy(torch.cat([raw[:, :2], alpha * raw[:, 2:] + beta], 1), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.testing.assert_close(model.alpha[1:], alpha.detach())
    torch.testing.assert_close(model.beta[1:], beta.detach())


def test_bic_has_no_second_stage_in_the_first_task():
    lesson = a_lesson(classifier((2,)), samples(8, (0, 1)), task=0)
    bic().teach(lesson)  # type: ignore[misc]
    assert [entry["fit"] for entry in lesson.curve] == [1]


# --- names


def test_replay_trains_on_the_task_and_then_the_memory():
    assert replay(np.array([1, 0]), [3, 2], seed=0).tolist() == [3, 4, 1, 0]


def test_replay_follows_the_code_by_default_and_the_supplement_by_name():
    assert er().predict == "head"
    assert er(predict="nearest_mean").predict == "nearest_mean"
    assert er().teach is None  # no distillation
    assert method("naive").name == method("replay").name == "er"


@pytest.mark.parametrize(
    ("groups", "known", "classes"),
    [((2, 2, 2), (2, 4), "then"), ((2, 2, 2), (6, 6), "now"), ((6,), (6, 6), "then")],  # tasks, tasks, domains
)
def test_gem_steps_along_the_projection_of_parallel_streams(groups: tuple[int, ...], known: tuple[int, int], classes: str):
    model = classifier(groups)
    memories = {0: samples(7, (0, 1), seed=1), 1: samples(5, (0, 1, 2, 3), seed=2)}  # the first is larger than a batch
    train = ArrayExamples(memories[0].X[:4], 1 - memories[0].labels[:4])  # against the first memory
    trained = [each for each in model.parameters() if each.requires_grad]

    def gradient(part: ArrayExamples, outputs: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(torch.from_numpy(part.X))[:, :outputs], torch.from_numpy(part.labels))
        return torch.cat([each.flatten() for each in torch.autograd.grad(loss, trained)])

    references = torch.stack([gradient(part, outputs) for part, outputs in zip(memories.values(), known, strict=True)])
    plain = gradient(train, 6)
    assert (references @ plain).min() < 0
    step = project_to_cone(plain[None], references[None], margin=0.5)[0]
    expected = torch.cat([each.detach().flatten() for each in trained]) - PLAN.learning_rate * step

    teach = method("gem", strength=0.5, classes=classes).teach
    assert teach is not None
    teach(a_lesson(model, train, task=2, old_classes=4 if len(groups) == 3 else 6, stored=lambda: memories))
    torch.testing.assert_close(torch.cat([each.detach().flatten() for each in trained]), expected)


def test_all_methods_have_names_and_wrong_settings_are_refused():
    given: dict[str, dict[str, Any]] = {
        "der": {"alpha": 0.5, "beta": 1.0},
        "ewc": {"strength": 1.0},
        "si": {"strength": 1.0},
        "mas": {"strength": 1.0},
        "lwf": {"strength": 1.0, "temperature": 2.0},
        "reservoir": {"alpha": 1.0},
        "dynamic_reservoir": {"alpha": 1.0},
        "gem": {"strength": 0.5, "fraction": 0.2, "forward": "memory"},
        "twp": {"strength_loss": 1.0, "strength_topology": 1.0, "gradients": "fresh"},
    }
    for name in METHODS.builtin:
        assert method(name, **given.get(name, {})).name == name
    assert method("joint", start="finetune").start == "finetune"
    with pytest.raises(ValueError, match="ewc: strength is missing: there are strength"):
        method("ewc")
    with pytest.raises(ValueError, match="share 1"):
        method("bic", share=1)
    with pytest.raises(ValueError, match="icarl: targets = 'some': expected 'all_rows' or"):
        method("icarl", targets="some")
    with pytest.raises(ValueError, match="er: predict = 'tail': expected 'head' or 'nearest_mean'"):
        method("naive", predict="tail")


@pytest.mark.parametrize("name", ["agem", "bic", "cwr", "er", "gdumb", "icarl", "lwf", "mas", "si", "twp"])
def test_a_word_that_there_is_not_is_told_in_python_too(name: str) -> None:
    make = load_name(METHODS, name)
    word = next(each for each, kind in get_type_hints(make).items() if get_origin(kind) is Literal)
    required = {each.name: 1.0 for each in signature(make).parameters.values() if each.default is each.empty}
    assert make(**required).name == name
    with pytest.raises(ValueError, match=f"{word} = 'sqare': expected '"):
        make(**required, **{word: "sqare"})


@pytest.mark.parametrize("name", METHODS.builtin)
def test_the_listed_kinds_of_streams_are_those_that_a_method_learns(name: str) -> None:
    make = load_name(METHODS, name)
    required = {each.name: 1.0 for each in signature(make).parameters.values() if each.default is each.empty}
    streams: dict[str, Any] = {
        "domains": {"labels": "one", "classes": "same"},
        "tasks": {"labels": "one", "classes": "new"},
        "sets of labels": {"labels": "sets", "classes": "new"},
    }

    def learned(**settings: Any) -> list[str]:
        found = method(name, **required, **settings)
        return [kind for kind, stream in streams.items() if fits(found, stream)] or ["tasks of graphs"]

    def fits(found: Method, stream: dict[str, Any]) -> bool:
        try:
            found.check_fits(**stream)
        except ValueError:
            return False
        return True

    told, with_head = METHODS.fits[name].split(", "), " with predict=head"
    always = [kind for kind in told if not kind.endswith(with_head)]
    assert learned() == always
    if told != always:
        assert learned(predict="head") == [kind.removesuffix(with_head) for kind in told]
