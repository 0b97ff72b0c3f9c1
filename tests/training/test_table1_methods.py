"""Methods of CLEAR's Table 1 by hand and beside plain implementations: EWC, SI, LwF, CWR*, GDumb, ER, A-GEM, and DER++."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.training.core.build import Parts
from benchwright.training.core.capacity import Capacity
from benchwright.training.core.criteria import cross_entropy
from benchwright.training.core.exemplars import greedily_balanced, reservoir_sample
from benchwright.training.core.learner import Learner
from benchwright.training.core.lesson import ForwardPass
from benchwright.training.core.schedule import Schedule
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.methods import agem as agem_module
from benchwright.training.methods.method import Method
from benchwright.training.methods.registry import method
from benchwright.training.models.classifier import Classifier
from benchwright.training.models.linear import linear
from benchwright.training.models.mlp import mlp
from torch import Tensor, nn

PLAN = Schedule(
    optimiser="sgd",
    learning_rate=0.1,
    momentum=0.0,
    weight_decay=0.0,
    epochs=2,
    batch_size=8,
    drop_last=False,
    clip_norm=None,
    mixed_precision=False,
    select="none",
    eval_every=1,
    first_best="nothing",
)


def bucket(seed: int, n: int = 24, classes: int = 3, width: int = 4) -> ArrayExamples:
    draw = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = (np.eye(classes, width) * 3)[y] + draw.normal(size=(n, width))
    return ArrayExamples(X.astype(np.float32), y, [f"{seed}-{row}" for row in range(n)])


def a_learner(chosen: Method, capacity: Any = "first_position", **plan: Any) -> Learner:
    parts = Parts(chosen, dataclasses.replace(PLAN, **plan), cross_entropy, linear, {}, Capacity(capacity), {})
    return Learner(parts, sample=(4,), seed=0)


def learned(one: Learner, *buckets: ArrayExamples) -> Learner:
    for each in buckets:
        one.learn(each, [], classes=0 if one._seen else 3)
    return one


def state_of(one: Learner) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in one.model.named_parameters() if value.requires_grad}


def normed(init: torch.Generator, *, sample: tuple[int, ...]) -> Classifier:
    """Batch norm and a head."""
    return Classifier(nn.BatchNorm1d(sample[0]), sample[0])


def a_learner_with_norm(chosen: Method, **plan: Any) -> Learner:
    parts = Parts(chosen, dataclasses.replace(PLAN, **plan), cross_entropy, normed, {}, Capacity("first_position"), {})
    return Learner(parts, sample=(4,), seed=0)


def watch(one: Learner, look: Callable[[ForwardPass, Tensor], None]) -> None:
    """Call ``look`` with each step of the trainings to come, and its loss."""
    inner = one._method.teach

    def teach(lesson: Any) -> None:
        fit = lesson.fit

        def fitted(loss: Any, **settings: Any) -> None:
            def seen(step: ForwardPass) -> Tensor:
                value = loss(step)
                look(step, value.detach())
                return value

            fit(seen, **settings)

        lesson.fit = fitted
        if inner is None:
            lesson.fit(lambda step: step.classification())
        else:
            inner(lesson)

    one._method = dataclasses.replace(one._method, teach=teach)


# --- EWC


@pytest.mark.parametrize("fisher", ["batches", "samples"])
def test_online_fisher_information_is_the_mean_square_that_its_name_says(fisher: str):
    decay, first, second = 0.5, bucket(0), bucket(1)
    one = a_learner(method("ewc", strength=0.4, fisher=fisher, online=True, decay=decay))
    expected: dict[str, Tensor] = {}
    for each in (first, second):
        learned(one, each)
        size = 8 if fisher == "batches" else 1
        squares: list[dict[str, Tensor]] = []
        for start in range(0, 24, size):
            x, y = torch.from_numpy(each.X[start : start + size]), torch.from_numpy(each.labels[start : start + size])
            model = copy.deepcopy(one.model)
            model.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            squares.append({n: p.grad**2 for n, p in model.named_parameters() if p.grad is not None})
        mean = {name: torch.stack([s[name] for s in squares]).mean(0) for name in squares[0]}
        expected = {name: value + decay * expected.get(name, torch.zeros(())) for name, value in mean.items()}
        last = state_of(one)
    learned(one, bucket(2))
    for name, value in expected.items():
        torch.testing.assert_close(one._state[f"online/importance/{name}"], value)
        torch.testing.assert_close(one._state[f"online/value/{name}"], last[name])


def test_separate_penalties_keep_the_weights_of_each_position_and_online_the_last():
    for online, wanted in ((False, {"0000", "0001"}), (True, {"online"})):
        one = learned(a_learner(method("ewc", strength=1.0, fisher="batches", online=online)), *map(bucket, range(3)))
        assert {name.split("/")[0] for name in one._state} == wanted


def test_a_strong_penalty_holds_the_weights():
    moved = {}
    for strength in (0.0, 5.0):
        one = learned(a_learner(method("ewc", strength=strength, fisher="samples", online=True)), bucket(0))
        before = state_of(one)["weight"]
        learned(one, bucket(1))
        moved[strength] = float((state_of(one)["weight"] - before).norm())
    assert moved[5.0] < moved[0.0]


# --- SI


@pytest.mark.parametrize("form", ["as_written", "as_released"])
def test_importance_of_si_is_the_path_integral(form: str):
    """A plain loop over the same batches: w = sum g (theta' - theta), Omega = -w / (way^2 + xi)."""
    strength, damping = 0.5, 1e-3
    one = a_learner(method("si", strength=strength, damping=damping, form=form))
    plain = Classifier(nn.Identity(), 4)
    total: dict[str, Tensor] = {}
    anchor: dict[str, Tensor] = {}
    orders: list[Tensor] = []
    watch(one, lambda step, value: orders.append(step.batch.rows))
    for number in range(2):
        orders.clear()
        train = bucket(number)
        learned(one, train)
        if number == 0:
            init = a_learner(method("finetune"), learning_rate=1e-30)
            plain = learned(init, train).model
        start = {n: p.detach().clone() for n, p in plain.named_parameters() if p.requires_grad}
        path = {n: torch.zeros_like(p) for n, p in start.items()}
        for rows in orders:
            x, y = torch.from_numpy(train.X[rows]), torch.from_numpy(train.labels[rows])
            loss = nn.functional.cross_entropy(plain(x), y)
            held = {n: p for n, p in plain.named_parameters() if p.requires_grad}
            share = strength / 2 if form == "as_released" else strength
            for name, omega in total.items():
                omega = omega.clamp(max=1e-3) if form == "as_released" else omega
                loss = loss + share * (omega * (held[name] - anchor[name]) ** 2).sum()
            gradients = torch.autograd.grad(loss, list(held.values()))
            with torch.no_grad():
                for (name, parameter), gradient in zip(held.items(), gradients, strict=True):
                    path[name] += gradient * (-0.1 * gradient)
                    parameter -= 0.1 * gradient
        for name, parameter in plain.named_parameters():
            if parameter.requires_grad:
                way = parameter.detach() - start[name]
                total[name] = total.get(name, torch.zeros(())) - path[name] / (way**2 + damping)
                anchor[name] = parameter.detach().clone()
    for name, value in total.items():
        torch.testing.assert_close(one._state[f"path/sum/{name}"], value, rtol=1e-3, atol=1e-6)
        bounded = value.clamp(max=1e-3) if form == "as_released" else value
        torch.testing.assert_close(one._state[f"path/importance/{name}"], bounded, rtol=1e-3, atol=1e-6)
    for (name, a), b in zip(one.model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_importance_of_si_ends_with_the_epoch_that_is_kept():
    """Of labels that nothing tells apart the loss does not fall for ever: six epochs end as fewer do."""
    chosen, own = method("si", strength=0.5, damping=1e-3), bucket(0)
    train = ArrayExamples(own.X, np.random.default_rng(0).permutation(own.labels), own.keys)
    one = learned(a_learner(chosen, learning_rate=2.0, epochs=6, select="lowest_loss"), train)
    losses = [float(entry["loss"] or 0) for entry in one.record["epochs"]]
    kept = losses.index(min(losses)) + 1
    assert 1 < kept < 6
    short = learned(a_learner(chosen, learning_rate=2.0, epochs=kept), train)
    assert one._state.keys() == short._state.keys()
    for name, value in short._state.items():
        assert torch.equal(one._state[name], value), name


# --- LwF


def test_strength_of_lwf_by_position():
    rising = learned(a_learner(method("lwf", strength=[0.0, 0.0, 2.0], temperature=1.0)), *map(bucket, range(3)))
    none = learned(a_learner(method("finetune")), *map(bucket, range(2)))
    two = learned(a_learner(method("lwf", strength=[0.0, 0.0, 2.0], temperature=1.0)), *map(bucket, range(2)))
    torch.testing.assert_close(two.model.weight, none.model.weight)
    assert not torch.equal(rising.model.weight, learned(none, bucket(2)).model.weight)
    with pytest.raises(ValueError, match="empty list"):
        method("lwf", strength=[], temperature=1.0)


@pytest.mark.parametrize("form", ["as_written", "as_released"])
def test_batch_norm_of_the_old_model_of_lwf_is_as_in_tests_or_as_in_training(form: str):
    one = learned(a_learner_with_norm(method("lwf", strength=1.0, temperature=1.0, form=form), learning_rate=1.0), bucket(0))
    old = copy.deepcopy(one.model).train(form == "as_released")
    steps: list[tuple[ForwardPass, Tensor]] = []
    watch(one, lambda step, value: steps.append((step, value)))
    learned(one, bucket(1))
    step, value = steps[0]
    with torch.no_grad():
        then, now = old(step.batch.x).softmax(1), step.logits.log_softmax(1)
    distance = -(then * now).sum(1).mean()
    torch.testing.assert_close(value - nn.functional.cross_entropy(step.logits, step.batch.targets).detach(), distance)


# --- CWR*


def test_cwr_averages_centred_weights_by_the_roots_of_samples():
    """Of 24, then 24 samples a position: (c sqrt(1) + w) / 2, where w is trained from c."""
    one = learned(a_learner(method("cwr")), bucket(0))
    first = one.model.weight.detach().clone()
    assert float(first.mean()) == pytest.approx(0, abs=1e-6)
    whole = learned(a_learner(method("finetune", start="finetune")), bucket(0))
    whole.model.weight.data.copy_(first)
    whole.model.bias.data.copy_(one.model.bias.data)
    trained = [learned(whole, bucket(1)).model.weight.detach()]
    learned(one, bucket(1))
    torch.testing.assert_close(one.model.weight.detach(), (first + trained[0] - trained[0].mean()) / 2)


@pytest.mark.parametrize("form", ["as_written", "as_released"])
def test_cwr_counts_the_samples_that_bring_a_class_or_not(form: str):
    """After each of three positions of 24 samples (c sqrt(past / 24) + w) / (sqrt(past / 24) + 1)."""
    one, free = learned(a_learner(method("cwr", form=form)), bucket(0)), learned(a_learner(method("finetune")), bucket(0))
    past = [24, 48] if form == "as_written" else [0, 24]
    for number in (1, 2):
        before = one.model.weight.detach().clone()
        free.model.load_state_dict(one.model.state_dict())
        trained = learned(free, bucket(number)).model.weight.detach()
        learned(one, bucket(number))
        share = (past[number - 1] / 24) ** 0.5
        torch.testing.assert_close(one.model.weight.detach(), (before * share + trained - trained.mean()) / (share + 1))


def test_cwr_trains_the_head_alone_after_the_first_position():
    one = Learner(Parts(method("cwr"), PLAN, cross_entropy, mlp, {}, None, {}), sample=(4,), seed=0)
    learned(one, bucket(0))
    backbone = copy.deepcopy(one.model.backbone.state_dict())
    bias = one.model.bias.detach().clone()
    learned(one, bucket(1))
    for name, value in one.model.backbone.state_dict().items():
        assert torch.equal(value, backbone[name]), name
    assert not torch.equal(one.model.bias, bias)


# --- memories


def test_gdumb_as_written_keeps_the_first_bucket_and_a_balanced_reservoir_does_not():
    greedy = learned(a_learner(method("gdumb")), *map(bucket, range(3)))
    assert greedy.buffer.tolist() == list(range(24))
    balanced = learned(a_learner(method("gdumb", memory="balanced_reservoir")), *map(bucket, range(3)))
    assert Counter((balanced.buffer % 24 % 3).tolist()) == {0: 8, 1: 8, 2: 8}
    assert set((balanced.buffer // 24).tolist()) == {0, 1, 2}


def test_the_greedy_sampler_makes_room_for_new_classes():
    labels = np.array([0] * 10 + [1] * 10 + [2] * 10)
    held = greedily_balanced(np.arange(0), np.arange(10), labels[:10], 6, seed=0)
    assert len(held) == 6
    held = greedily_balanced(held, np.arange(10, 20), labels[:20], 6, seed=0)
    assert Counter(labels[held].tolist()) == {0: 3, 1: 3}
    held = greedily_balanced(held, np.arange(20, 30), labels, 6, seed=0)
    assert Counter(labels[held].tolist()) == {0: 2, 1: 2, 2: 2}


def test_gdumb_trains_on_its_memory_alone_from_new_weights():
    one = learned(a_learner(method("gdumb", memory="balanced_reservoir")), bucket(0), bucket(1))
    seen: set[int] = set()
    watch(one, lambda step, value: seen.update(step.lesson.rows.tolist()))
    learned(one, bucket(2))
    assert seen == set(one.buffer.tolist())
    assert len(one.buffer) == 24
    assert one.record["memory"] == {"samples": 24, "parts": 24}


def test_a_reservoir_is_a_uniform_sample_of_the_stream_wherever_positions_begin():
    rows = np.arange(300)
    keys = [f"k{row}" for row in rows]
    counts = np.zeros(300)
    for seed in range(400):
        held = np.arange(0)
        for cut in np.split(rows, [10, 120]):
            pool = np.concatenate([held, cut])
            held = reservoir_sample(pool, [keys[row] for row in pool], Capacity(30), np.ones(len(pool), np.int64), seed=seed)
        whole = reservoir_sample(rows, keys, Capacity(30), np.ones(300, np.int64), seed=seed)
        np.testing.assert_array_equal(held, whole)
        counts[held] += 1
    # 400 draws at 1/10: mean 40, standard deviation 6.
    assert counts.mean() == 40
    assert counts.min() > 15
    assert counts.max() < 65
    assert abs(counts[:10].mean() - 40) < 8


def test_er_pairs_as_many_kept_samples_with_new_ones():
    one = learned(a_learner(method("er", batches="paired", memory="reservoir")), bucket(0))
    shares: list[tuple[int, int]] = []

    def look(step: ForwardPass, value: Tensor) -> None:
        kept = int((step.batch.rows >= step.lesson.fresh).sum())
        shares.append((len(step.batch.rows) - kept, kept))

    watch(one, look)
    learned(one, bucket(1))
    assert shares == [(8, 8)] * 6  # 24 of each, two epochs


def test_agem_takes_its_reference_on_as_many_samples_of_each_position(monkeypatch: pytest.MonkeyPatch):
    one = learned(a_learner(method("agem", memory="each_position", sample="capacity")), *map(bucket, range(3)))
    assert one.buffer.tolist() == list(range(72))
    drawn: list[list[int]] = []
    plain = agem_module.batches

    def noted(examples: Any, order: Any, *rest: Any, **more: Any) -> Any:
        drawn.append([int(row) for row in order])
        return plain(examples, order, *rest, **more)

    monkeypatch.setattr(agem_module, "batches", noted)
    learned(one, bucket(3))
    assert drawn
    for rows in drawn:
        # Of the lesson: 24 new rows, then 24 of each position before; 24 // 3 of each.
        assert Counter((row - 24) // 24 for row in rows) == {0: 8, 1: 8, 2: 8}
        assert len(set(rows)) == 24


def test_agem_of_clear_has_one_memory_of_one_size(monkeypatch: pytest.MonkeyPatch):
    one = learned(a_learner(method("agem", memory="reservoir", sample="capacity")), *map(bucket, range(3)))
    assert len(one.buffer) == 24
    drawn: list[list[int]] = []
    plain = agem_module.batches

    def noted(examples: Any, order: Any, *rest: Any, **more: Any) -> Any:
        drawn.append(sorted(int(row) for row in order))
        return plain(examples, order, *rest, **more)

    monkeypatch.setattr(agem_module, "batches", noted)
    learned(one, bucket(3))
    assert drawn
    assert all(rows == list(range(24, 48)) for rows in drawn), "of a lesson: behind the 24 new rows, all of the memory"


def test_agem_takes_the_gradient_of_the_whole_sample_in_parts():
    weights: list[Tensor] = []
    for at_once in ("all", 5):
        chosen = method("agem", memory="reservoir", sample="capacity", at_once=at_once)
        weights.append(learned(a_learner(chosen, epochs=4, learning_rate=0.5), *map(bucket, (0, 1))).model.weight)
    torch.testing.assert_close(*weights)
    projected = learned(a_learner(method("finetune"), epochs=4, learning_rate=0.5), *map(bucket, (0, 1))).model.weight
    assert not torch.allclose(weights[0], projected)


def test_parts_of_the_sample_of_agem_move_the_statistics_of_batch_norm_once():
    """One step on 24 rows, then the reference on the 24 of before, 8 at once: each moves the statistics by a tenth."""
    chosen = method("agem", memory="reservoir", sample="capacity", at_once=8)
    one = learned(a_learner_with_norm(chosen, epochs=1, batch_size=24), bucket(0))
    norm = one.model.backbone
    assert isinstance(norm, nn.BatchNorm1d)
    mean = norm.get_buffer("running_mean").clone()
    learned(one, bucket(1))
    for X in (bucket(1).X, bucket(0).X):
        mean = 0.9 * mean + 0.1 * torch.from_numpy(X).mean(0)
    torch.testing.assert_close(norm.running_mean, mean)
    assert (norm.momentum, int(norm.get_buffer("num_batches_tracked"))) == (0.1, 3)


# --- DER++


def test_der_keeps_the_logits_that_a_sample_had_when_it_was_kept():
    one = a_learner(method("der", alpha=0.5, beta=1.0), capacity=12)
    first, second = bucket(0), bucket(1)
    learned(one, first)
    then = one.model(torch.from_numpy(first.X)).detach()
    held = one.buffer.copy()
    learned(one, second)
    assert torch.equal(one._state["rows"], torch.from_numpy(held))
    torch.testing.assert_close(one._state["logits"], then[held])
    now = one.model(torch.from_numpy(second.X)).detach()
    held = one.buffer.copy()
    learned(one, bucket(2))
    expected = torch.stack([then[row] if row < 24 else now[row - 24] for row in held.tolist()])
    torch.testing.assert_close(one._state["logits"], expected)


def test_loss_of_der_by_hand():
    one = a_learner(method("der", alpha=0.25, beta=2.0), capacity=24, epochs=1)
    learned(one, bucket(0))
    values: list[tuple[ForwardPass, float]] = []
    watch(one, lambda step, value: values.append((step, float(value))))
    teacher, first = copy.deepcopy(one.model), bucket(0)
    learned(one, bucket(1))
    step, value = values[0]
    old = step.batch.rows >= 24
    x = torch.from_numpy(first.X[step.lesson.rows[step.batch.rows[old].numpy()]])
    now, y = step.logits.detach(), step.batch.targets
    expected = nn.functional.cross_entropy(now[~old], y[~old])
    expected += 0.25 * ((now[old] - teacher(x).detach()) ** 2).mean() + 2 * nn.functional.cross_entropy(now[old], y[old])
    assert value == pytest.approx(float(expected), rel=1e-5)


def test_der_leaves_out_the_outputs_of_classes_that_came_later():
    one = a_learner(method("der", alpha=1.0, beta=0.0), capacity=24)
    for task in range(3):
        own = bucket(task)
        one.learn(ArrayExamples(own.X, own.labels + 3 * task, own.keys), [], classes=3)
    logits, rows = one._state["logits"], one._state["rows"]
    assert logits.shape[1] == 6
    assert bool(logits[rows < 24][:, 3:].isnan().all())
    assert not bool(logits[rows >= 24].isnan().any())


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("ewc", {"strength": 1.0, "fisher": "exact"}, "ewc: fisher = 'exact': expected 'summed' or 'batches' or 'samples'"),
        ("ewc", {"strength": 1.0, "online": True, "decay": 2.0}, "decay 2.0"),
        ("si", {"strength": 1.0, "form": "new"}, "form = 'new': expected"),
        ("cwr", {"form": "new"}, "form = 'new': expected"),
        ("lwf", {"strength": 1.0, "temperature": 1.0, "form": "new"}, "form = 'new': expected"),
        ("si", {"strength": 1.0, "damping": 0.0}, "damping 0.0"),
        ("gdumb", {"memory": "herding"}, "memory = 'herding': expected"),
        ("er", {"memory": "herding"}, "memory = 'herding': expected"),
        ("er", {"batches": "triple"}, "batches = 'triple': expected"),
        ("agem", {"sample": 0}, "sample 0"),
        ("agem", {"sample": "some"}, "agem: sample = 'some': expected int or 'batch' or 'capacity'"),
        ("mas", {"strength": 1.0, "omega": "sqare"}, "mas: omega = 'sqare': expected 'norm' or 'square'"),
        ("mas", {"strength": 1.0, "omega": "square", "data": "old"}, "data = 'old': expected"),
        ("mas", {"strength": 1.0, "omega": "square", "average": "sum"}, "average = 'sum': expected"),
        ("gem", {"forward": "tasks"}, "gem: forward = 'tasks': expected 'task' or 'memory'"),
        ("lwf", {"strength": 1.0, "temperature": 1.0, "heads": "tasks"}, "lwf: heads = 'tasks': expected 'task' or 'seen'"),
        ("lwf", {"strength": 1.0, "temperature": "warm"}, "lwf: temperature = 'warm': expected float"),
        ("twp", {"gradients": "sumed"}, "twp: gradients = 'sumed': expected"),
    ],
)
def test_wrong_settings_are_refused(name: str, settings: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        method(name, **settings)
