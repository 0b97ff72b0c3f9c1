"""Streams of tasks on graphs: what is shared is what would be trained alone, and methods do what their formulas say."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.pipelines.skeleton.config import READINGS
from benchwright.training.core.build import classifier_of
from benchwright.training.core.determinism import generator
from benchwright.training.graph_streams.learn import learn_next
from benchwright.training.graph_streams.nets import ModuleNet, net_of
from benchwright.training.graph_streams.parallel_streams import Streams
from benchwright.training.graph_streams.recipe import (
    ClassesOfTask,
    GraphData,
    LearnedStream,
    Recipe,
    chosen_rows,
    full_batches,
    kept_rows,
    task_rows,
)
from benchwright.training.methods import importance
from benchwright.training.methods.registry import method
from benchwright.training.models.gcn.network import Gcn, gcn
from benchwright.training.models.st_gcn import st_gcn
from torch import Tensor, nn

from tests.training.graph_settings import BEST, GRIDS, settings

TASKS: tuple[ClassesOfTask, ...] = ((0, 1), (2, 3), (4, 5))
METHODS = sorted(BEST["ucla"])


@pytest.fixture(scope="module")
def data() -> GraphData:
    """Six classes on a ring of five nodes, ten samples each: a class is a direction in the features."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 10)
    x = draw.normal(size=(60, 5, 7)) + 1.5 * draw.normal(size=(6, 5, 7))[labels]
    ring = np.eye(5) + np.roll(np.eye(5), 1, axis=0) + np.roll(np.eye(5), -1, axis=0)
    at = np.arange(60).reshape(6, 10)
    train, val, test = (at[:, part].ravel() for part in (slice(0, 7), slice(7, 8), slice(8, 10)))
    return GraphData(x.astype(np.float32), labels, train, val, test, ring.astype(np.float32), 6)


def recipe(name: str, **changed: Any) -> Recipe:
    """Of a method with the paper's settings, and a small GCN."""
    given = settings("ucla", name, changed.pop("variant", "as_released")) | changed.pop("settings", {})
    model = {"width": 8, "hidden": 8} | changed.pop("model", {})
    schedule = full_batches(epochs=changed.pop("epochs", 6), learning_rate=1e-3)
    return Recipe(method(name, **given), changed.pop("make", gcn), model, schedule=schedule, **changed)


def same(one: LearnedStream, other: LearnedStream) -> bool:
    """Whether two streams are equal to the last bit."""
    arrays = zip((one.predicted, one.val_predicted), (other.predicted, other.val_predicted), strict=True)
    return (
        (one.order, one.draw, one.state.keys()) == (other.order, other.draw, other.state.keys())
        and all(torch.equal(value, other.state[name]) for name, value in one.state.items())
        and all(np.array_equal(*pair) for pair in arrays)
    )


def accuracy(data: GraphData, end: LearnedStream) -> list[float]:
    """On the test rows of each class learned so far, in the order learned."""
    labels = data.labels[data.test]
    return [float((end.predicted[labels == c] == c).mean()) for task in end.order for c in task]


def learned(data: GraphData, how: Recipe, order: tuple[ClassesOfTask, ...], *, seed: int = 0, draw: str = "0") -> LearnedStream:
    """One stream, alone."""
    last: LearnedStream | None = None
    for task in order:
        (last,) = learn_next(data, how, [last], [task], seed=seed, draws=[draw])
    assert last is not None
    return last


@pytest.mark.parametrize(
    ("method", "variant"),
    [(method, "as_released") for method in METHODS] + [(method, "as_written") for method in READINGS["as_written"]],
)
def test_shared_beginnings_and_neighbours_do_not_change_a_bit(data: GraphData, method: str, variant: Any) -> None:
    how = recipe(method, variant=variant, epochs=3)
    orders = list(itertools.permutations(TASKS))
    tree: dict[tuple[ClassesOfTask, ...], LearnedStream | None] = {(): None}
    for k in range(1, 4):
        prefixes = sorted({order[:k] for order in orders})
        parents, tasks = [tree[prefix[:-1]] for prefix in prefixes], [prefix[-1] for prefix in prefixes]
        found = learn_next(data, how, parents, tasks, seed=3, draws=["0"] * len(prefixes))
        tree |= dict(zip(prefixes, found, strict=True))
    for order in orders[1], orders[4]:
        end = tree[order]
        assert end is not None
        assert same(learned(data, how, order, seed=3), end)
        assert end.order == order
        assert set(end.predicted.tolist()) <= {label for task in order for label in task}


@pytest.mark.parametrize("method", METHODS)
def test_one_program_of_many_streams_is_each_of_them_up_to_rounding(data: GraphData, method: str) -> None:
    how = recipe(method, epochs=4)
    parents: list[LearnedStream | None] = [learned(data, how, TASKS[:1], draw=draw) for draw in "012"]
    together = learn_next(data, how, parents, TASKS[1:2] * 3, seed=0, draws="012", streams_at_once=3)
    for parent, draw, found in zip(parents, "012", together, strict=True):
        (alone,) = learn_next(data, how, [parent], TASKS[1:2], seed=0, draws=[draw])
        # Adam moves a parameter by up to 1e-3 a step, whatever the size of its gradient: so a mean, not each.
        assert (found.state["weights"] - alone.state["weights"]).abs().mean() < 2e-6
        assert torch.allclose(found.state["statistics"], alone.state["statistics"], atol=1e-4)


def test_repeats_differ_and_stand_apart(data: GraphData) -> None:
    how = recipe("er")
    both = learn_next(data, how, [None, None], TASKS[:1] * 2, seed=0, draws=["0", "1"])
    assert not torch.equal(both[0].state["weights"], both[1].state["weights"])
    assert same(learned(data, how, TASKS[:1], draw="1"), both[1])
    with pytest.raises(ValueError, match="parent has draw '1'"):
        learn_next(data, how, [both[1]], [TASKS[1]], seed=0, draws=["0"])


class Plain(nn.Module):
    """The network as one would write it with torch's modules."""

    def __init__(self, net: Gcn, features: int) -> None:
        super().__init__()
        w, self.adjacency = net.width, net.adjacency
        sizes = [features] + [w] * (net.depth - 1)
        self.conv = nn.ModuleList([nn.Linear(size, w) for size in sizes])
        self.residual = nn.ModuleList([nn.Linear(size, w) for size in sizes])
        self.norm = nn.ModuleList([nn.BatchNorm1d(w) for _ in sizes])
        self.gate, self.hidden = nn.Linear(w, 1), nn.Linear(2 * w, 8)
        self.hidden_norm, self.output = nn.BatchNorm1d(8), nn.Linear(8, net.classes)

    def load(self, p: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for layer in range(len(self.conv)):
                for name, module in (("conv", self.conv[layer]), ("residual", self.residual[layer])):
                    assert isinstance(module, nn.Linear)
                    module.weight.copy_(p[f"{layer}/{name}"][0].T)
                    module.bias.copy_(p[f"{layer}/{name}_bias"][0, 0])
            for name in ("gate", "hidden", "output"):
                module = getattr(self, name)
                module.weight.copy_(p[name][0].T)
                module.bias.copy_(p[f"{name}_bias"][0, 0])

    def forward(self, x: Tensor) -> Tensor:
        for conv, residual, norm in zip(self.conv, self.residual, self.norm, strict=True):
            x = conv(self.adjacency @ x).relu() + residual(x).relu()
            x = norm(x.flatten(0, 1)).view(x.shape)
        both = torch.cat([(x * self.gate(x).sigmoid()).sum(1), x.amax(1)], dim=1)
        return self.output(self.hidden_norm(self.hidden(both).relu()))


def plain_run(data: GraphData, seed: int, epochs: int) -> tuple[Tensor, Tensor]:
    """Two tasks with torch's modules and Adam, weighted cross-entropy over the classes seen: logits of the test set."""
    net = Gcn(torch.from_numpy(data.operators), 7, 6, width=8, hidden=8)
    model = Plain(net, 7)
    drawn = net.parameters.draw(generator(seed, "graph_streams weights", "0"))
    model.load(net.parameters.views(drawn[None]))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for seen, task in ((2, TASKS[0]), (4, TASKS[1])):
        rows = task_rows(data, task)
        x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.labels[rows])
        for _ in range(epochs):
            model.train()
            weight = 1 / torch.bincount(y, minlength=seen).clamp_min(1)
            loss = nn.functional.cross_entropy(model(x)[:, :seen], y, weight=weight)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return model.eval()(torch.from_numpy(data.x[data.test])), model.output.weight


def test_bare_is_what_torchs_modules_and_adam_give(data: GraphData) -> None:
    end = learned(data, recipe("finetune", epochs=8), TASKS[:2], seed=5)
    logits, weight = plain_run(data, 5, 8)
    net = Gcn(torch.from_numpy(data.operators), 7, 6, width=8, hidden=8)
    state = {name: value[None] for name, value in end.state.items()}
    ours = net.logits(state["weights"], state["statistics"], net.inputs(torch.from_numpy(data.x[data.test])), training=False)
    assert torch.allclose(ours[0], logits, atol=2e-4)
    assert torch.allclose(net.parameters.views(state["weights"])["output"][0].T, weight, atol=1e-5)
    assert end.predicted.tolist() == logits[:, :4].argmax(1).tolist()
    assert end.val_predicted.shape == (6,)
    assert set(end.val_predicted.tolist()) <= {0, 1, 2, 3}


def test_ewc_keeps_squared_gradients_and_the_penalty_is_that_of_the_other_learners(data: GraphData) -> None:
    first, end = (learned(data, recipe("ewc"), TASKS[:count]) for count in (1, 2))
    net = Gcn(torch.from_numpy(data.operators), 7, 6, width=8, hidden=8)
    rows = task_rows(data, TASKS[0])
    flat = first.state["weights"][None].clone().requires_grad_()
    logits = net.logits(
        flat, first.state["statistics"][None].clone(), net.inputs(torch.from_numpy(data.x[rows])), training=True
    )
    loss = nn.functional.cross_entropy(logits[0][:, :2], torch.from_numpy(data.labels[rows]))
    (gradient,) = torch.autograd.grad(loss, flat)
    assert "0000/importance/flat" not in first.state  # it is taken as the next task begins
    kept = end.state["0000/importance/flat"]
    assert kept.max() > 0
    assert torch.allclose(kept, gradient[0] ** 2, rtol=1e-3, atol=1e-9)
    assert torch.equal(end.state["0000/value/flat"], first.state["weights"])
    now = {"flat": end.state["weights"][None] + 0.1}
    along_streams = importance.penalty(now, {name: value[None] for name, value in end.state.items()})
    parts = {kind: net.parameters.views(end.state[f"0000/{kind}/flat"][None]) for kind in ("importance", "value")}
    by_name = {f"0000/{kind}/{name}": value for kind, views in parts.items() for name, value in views.items()}
    assert torch.allclose(along_streams, importance.penalty(net.parameters.views(now["flat"]), by_name))


@pytest.mark.parametrize("method", ["ewc", "mas", "twp"])
def test_a_strong_penalty_holds_what_matters(data: GraphData, method: str) -> None:
    names = [name for name in GRIDS[method] if name.startswith("strength")]
    alone: dict[str, float] = {"beta": 0} if method == "twp" else {}
    moved: list[float] = []
    for strength in (0.0, 1e8):
        how = recipe(method, variant="as_written", settings=dict.fromkeys(names, strength) | alone)
        first = learned(data, how, TASKS[:1])
        (second,) = learn_next(data, how, [first], [TASKS[1]], seed=0, draws=["0"])
        weight = learned(data, recipe("ewc"), TASKS[:2]).state["0000/importance/flat"]
        moved.append(float((weight * (second.state["weights"] - first.state["weights"]) ** 2).sum()))
        bare = learned(data, recipe("finetune"), TASKS[:2])
        # Taking the importance moves the statistics of batch norm; weights are those of the method without a penalty.
        assert (strength == 0) == torch.equal(second.state["weights"], bare.state["weights"])
    assert moved[1] < moved[0] / 2


def test_masa_average_is_cglbs_or_a_mean(data: GraphData) -> None:
    parent = learned(data, recipe("mas"), TASKS[:2])
    kept = {
        average: learn_next(data, recipe("mas", settings={"average": average}), [parent], [TASKS[2]], seed=0, draws=["0"])[0]
        for average in ("released", "mean")
    }
    old, seen, count = parent.state["0000/importance/flat"], float(parent.state["seen"]), 14.0
    assert seen == 14  # importance is taken at the start of a task, from its own samples: none at the first
    fresh = kept["mean"].state["0000/importance/flat"] * (seen + count) - old * seen
    expected = (old * seen + fresh / count + count) / (seen + count)
    assert torch.allclose(kept["released"].state["0000/importance/flat"], expected, atol=1e-5)
    assert torch.equal(kept["mean"].state["0000/value/flat"], parent.state["weights"])


def test_distillation_holds_the_old_outputs(data: GraphData) -> None:
    bare = learned(data, recipe("finetune"), TASKS[:2])
    idle = learned(data, recipe("lwf", settings={"strength": 0.0, "heads": "seen"}), TASKS[:2])
    assert torch.equal(idle.state["weights"], bare.state["weights"])
    net = Gcn(torch.from_numpy(data.operators), 7, 6, width=8, hidden=8)
    inputs = net.inputs(torch.from_numpy(data.x[task_rows(data, TASKS[1])]))

    def shares(state: LearnedStream) -> Tensor:
        logits = net.logits(state.state["weights"][None], state.state["statistics"][None], inputs, training=True)
        return logits[0, :, :2].softmax(1)

    first = learned(data, recipe("finetune", epochs=40), TASKS[:1])
    apart: list[float] = []
    for strength in (0.0, 30.0):
        how = recipe("lwf", epochs=40, settings={"strength": strength})
        (second,) = learn_next(data, how, [first], [TASKS[1]], seed=0, draws=["0"])
        apart.append(float((shares(second) - shares(first)).abs().mean()))
    assert apart[1] < apart[0] / 2


def test_memories_are_a_share_of_each_task_whatever_the_order(data: GraphData) -> None:
    kept = kept_rows(data, TASKS[1], 0.2, seed=1, draw="0")
    assert len(kept) == int(0.2 * 14) == 2
    assert set(kept.tolist()) < set(task_rows(data, TASKS[1]).tolist())
    assert kept.tolist() == kept_rows(data, TASKS[1][::-1], 0.2, seed=1, draw="0").tolist()
    replayed = chosen_rows(recipe("er").method, data, TASKS[1::-1], seed=1, draw="0")
    assert replayed.tolist() == [*task_rows(data, TASKS[0]).tolist(), *kept.tolist()]
    draws = {tuple(kept_rows(data, TASKS[1], 0.2, seed=1, draw=draw).tolist()) for draw in "012345678"}
    assert len(draws) > 3
    assert len(kept_rows(data, TASKS[1], 0.01, seed=1, draw="0")) == 1
    with pytest.raises(ValueError, match=r"fraction 7 of a task kept in memory: above 0, and 1 at most"):
        kept_rows(data, TASKS[1], 7, seed=1, draw="0")


@pytest.mark.parametrize("method", ["er", "gem"])
def test_a_memory_of_the_past_holds_its_loss_down(data: GraphData, method: str) -> None:
    more = {"fraction": 1.0} | ({"strength": 0.5, "forward": "memory"} if method == "gem" else {})
    first = learned(data, recipe("finetune", epochs=30), TASKS[:1])
    net = Gcn(torch.from_numpy(data.operators), 7, 6, width=8, hidden=8)
    rows = task_rows(data, TASKS[0])
    losses: dict[str, float] = {}
    for how in recipe("finetune", epochs=30), recipe(method, epochs=30, settings=more):
        (end,) = learn_next(data, how, [first], [TASKS[1]], seed=0, draws=["0"])
        state = {name: value[None] for name, value in end.state.items()}
        inputs = net.inputs(torch.from_numpy(data.x[rows]))
        logits = net.logits(state["weights"], state["statistics"], inputs, training=True)[0, :, :4]
        losses[how.method.name] = float(nn.functional.cross_entropy(logits, torch.from_numpy(data.labels[rows])))
    assert losses[method] < losses["finetune"] - 0.05


def test_joint_that_goes_on_is_replay_of_all_samples(data: GraphData) -> None:
    # Section 3.3 of the paper: REPLAY that stores 100 % of the data.
    joint, replay = recipe("joint", settings={"start": "finetune"}), recipe("er", settings={"fraction": 1.0})
    assert same(*(learned(data, how, (TASKS[1], TASKS[0], TASKS[2])) for how in (joint, replay)))


def test_joint_asks_for_the_set_of_tasks_alone(data: GraphData) -> None:
    how = recipe("joint")
    ends = [learned(data, how, order) for order in (TASKS, TASKS[::-1])]
    assert all(torch.equal(value, ends[1].state[name]) for name, value in ends[0].state.items())
    nothing = np.zeros(0, dtype=np.int64)
    parent = LearnedStream(TASKS[:2], "0", {}, nothing, nothing)
    (again,) = learn_next(data, how, [parent], [TASKS[2]], seed=0, draws=["0"])
    assert same(again, ends[0])


def test_the_optimiser_goes_from_task_to_task(data: GraphData) -> None:
    assert float(learned(data, recipe("finetune"), TASKS[:2]).state["adam/step"]) == 12


def test_summed_gradients_are_summed(data: GraphData) -> None:
    # Adam's first step does not ask how long the gradient is, so 2 g gives what g gives, but where g is next to nothing.
    one, bare = (learned(data, recipe(method, epochs=1), TASKS[:1]).state["weights"] for method in ("twp", "finetune"))
    assert (one - bare).abs().mean() < 1e-5
    fresh = recipe("twp", epochs=5, settings={"gradients": "fresh"})
    summed = recipe("twp", epochs=5)
    a, b = (learned(data, how, TASKS[:1]).state["adam/exp_avg"] for how in (fresh, summed))
    assert b.norm() > 3 * a.norm()


@pytest.mark.parametrize(("width", "depth"), [(16, 4), (16, 16), (64, 1)])
def test_deep_and_wide_networks_train(data: GraphData, width: int, depth: int) -> None:
    how = recipe("finetune", epochs=60, model={"width": width, "depth": depth})
    # On what they learn from: sixteen layers guess the four samples that test, whatever computes them.
    seen = dataclasses.replace(data, test=data.train)
    assert np.mean(accuracy(seen, learned(seen, how, TASKS[:1]))) >= 0.9


@pytest.fixture(scope="module")
def moving(data: GraphData) -> GraphData:
    """The same as tensors (C, T, V), with two partitions of the ring."""
    x = np.ascontiguousarray(data.x.transpose(0, 2, 1)[:, None])
    return dataclasses.replace(data, x=x, operators=np.stack([np.eye(5, dtype=np.float32), data.operators]))


@pytest.mark.parametrize("form", ["ctr_gcn", "yan"])
def test_st_gcn_learns_by_every_method(moving: GraphData, form: str) -> None:
    for name in METHODS:
        how = dataclasses.replace(recipe(name, epochs=2), make=st_gcn, model={"width": 4, "form": form})
        first, *rest = learn_next(moving, how, [None, None], TASKS[:2], seed=0, draws=["0", "0"], streams_at_once=2)
        assert same(first, learned(moving, how, TASKS[:1]))
        (second,) = learn_next(moving, how, [first], [TASKS[1]], seed=0, draws=["0"])
        assert second.state["weights"].isfinite().all()
        assert not torch.equal(second.state["weights"], rest[0].state["weights"])
    long = dataclasses.replace(recipe("finetune", epochs=40), make=st_gcn, model={"width": 8, "form": form})
    assert np.mean(accuracy(moving, learned(moving, long, TASKS[:1]))) >= 0.75


@pytest.mark.parametrize("name", METHODS)
def test_small_batches(data: GraphData, name: str) -> None:
    # Seven samples a class: batches of 5 are three parts of 14. What several orders share is the same beside others.
    how = recipe(name, epochs=2)
    small = dataclasses.replace(how, schedule=full_batches(epochs=2, learning_rate=1e-3, batch_size=5))
    one, other = learn_next(data, small, [None, None], TASKS[:2], seed=0, draws=["0", "0"])
    assert same(one, learned(data, small, TASKS[:1]))
    assert same(other, learned(data, small, TASKS[1:2]))
    assert one.state["adam/step"].item() == 6
    twice = learn_next(data, small, [one, one], [TASKS[1], TASKS[2]], seed=0, draws=["0", "0"])
    assert all(each.state["weights"].isfinite().all() for each in twice)
    whole = dataclasses.replace(how, schedule=full_batches(epochs=2, learning_rate=1e-3, batch_size=14))
    assert same(learned(data, whole, TASKS[:1]), learned(data, how, TASKS[:1]))
    again = learned(data, small, TASKS[:1], draw="1"), learned(data, small, TASKS[:1], seed=1)
    assert not any(torch.equal(one.state["weights"], each.state["weights"]) for each in again)


def test_beta_counts_where_its_norm_has_a_gradient(data: GraphData) -> None:
    def end(beta: float, norm: str, **reading: str) -> LearnedStream:
        how = recipe("twp", epochs=3, settings={"gradients": "fresh", "beta": beta, "norm": norm, **reading})
        return learned(data, how, TASKS[:2])

    plain = end(0.0, "minimised")
    assert same(plain, end(0.1, "constant"))  # CGLB's, a number
    assert same(plain, end(0.01, "constant"))
    assert not same(plain, end(0.1, "minimised"))
    assert not same(end(0.1, "minimised", gradients="summed"), end(0.1, "constant", gradients="summed"))


def test_the_size_of_a_gradient_has_the_gradient_that_differences_say(data: GraphData) -> None:
    wide = dataclasses.replace(data, x=data.x[:, :, :3])
    ring = torch.from_numpy(data.operators)
    net = gcn(generator(1, "net"), sample=(5, 3), adjacency=ring, width=3, hidden=3).along_streams(6)
    weights, statistics = net.draw(generator(2, "weights"))
    state = {"weights": weights[None].double(), "statistics": statistics[None].double()}
    streams = Streams(
        net, wide, recipe("twp"), state, orders=[TASKS[:1]], draws=["0"], rows=np.arange(14), seed=0, device=torch.device("cpu")
    )
    exact = dataclasses.replace(streams.train, inputs=net.inputs(torch.from_numpy(wide.x[:14]).double()))
    exact = dataclasses.replace(exact, weights=exact.weights.double())
    found = streams.gradients(lambda step: step.gradient_size(), exact, twice=True)["flat"]
    along = torch.zeros_like(found)
    for view in net.parameters.views(along).values():
        view.normal_(generator=generator(3, "along"))
    ends: list[float] = []
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            streams.flat.add_(step * along)
        ends.append(float(streams.gradients(lambda each: each.classification(), exact, twice=True)["flat"].abs().sum()))
        with torch.no_grad():
            streams.flat.sub_(step * along)
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((found * along).sum()), rel=1e-3)


def test_what_cannot_be_learned_is_refused(data: GraphData) -> None:
    finetune, first = recipe("finetune"), learned(data, recipe("finetune"), TASKS[:1])
    cases: list[tuple[str, Recipe, list[LearnedStream | None], ClassesOfTask]] = [
        ("none that is known", finetune, [first], (1, 2)),
        ("at least one class", finetune, [None], ()),
        ("class 9 of task", finetune, [None], (9,)),
        ("ST-GCN needs tensors", dataclasses.replace(finetune, make=st_gcn, model={}), [None], (0, 1)),
    ]
    for message, how, parents, task in cases:
        with pytest.raises(ValueError, match=message):
            learn_next(data, how, parents, [task], seed=0, draws=["0"])
    with pytest.raises(ValueError, match=r"ewc: strenght = 1: there is no such setting: .*did you mean 'strength'"):
        method("ewc", strenght=1)
    with pytest.raises(ValueError, match="method 'icarl' does not train on batched graph streams"):
        dataclasses.replace(finetune, method=method("icarl"))
    for name, more in (("er", {}), ("gem", {"strength": 1, "forward": "task"})):
        with pytest.raises(ValueError, match="fraction 7 of a task kept in memory"):
            method(name, fraction=7, **more)
    with pytest.raises(ValueError, match="epochs 0"):
        recipe("finetune", epochs=0)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device = 'cuda'"):
            learn_next(data, finetune, [None], [TASKS[0]], seed=0, draws=["0"], device="cuda")


class Mean(nn.Module):
    """A layer on the nodes' mean over their neighbours, with batch norm: a network of somebody's own."""

    def __init__(self, adjacency: Tensor, features: int, width: int, init: torch.Generator) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("adjacency", adjacency / adjacency.sum(1, keepdim=True))
        self.layer, self.norm = nn.Linear(features, width), nn.BatchNorm1d(width)
        for parameter in self.layer.parameters():
            nn.init.uniform_(parameter, -0.3, 0.3, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(self.adjacency @ x).relu().mean(1))


def mean_net(init: torch.Generator, *, sample: tuple[int, ...], adjacency: Tensor, width: int = 16) -> Mean:
    return Mean(adjacency, sample[1], width, init)


def test_any_module_learns_along_streams_what_torch_gives(data: GraphData) -> None:
    how = Recipe(method("finetune"), mean_net, {"width": 16}, schedule=full_batches(epochs=8, learning_rate=1e-3))
    both = learn_next(data, how, [None, None], TASKS[:1] * 2, seed=5, draws=["0", "1"], streams_at_once=2)
    alone = [learned(data, how, TASKS[:1], seed=5, draw=draw) for draw in "01"]
    for one, other in zip(both, alone, strict=True):
        assert torch.allclose(one.state["weights"], other.state["weights"], atol=1e-6)
    assert not torch.equal(alone[0].state["weights"], alone[1].state["weights"])

    graph = {"adjacency": torch.from_numpy(data.operators)}
    init = generator(5, "graph_streams weights", "0")
    model = classifier_of(mean_net, data.x.shape[1:], {**graph, "width": 16}, init)
    model.grow(6, init)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    rows = task_rows(data, TASKS[0])
    x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.labels[rows])
    for _ in range(8):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model.train()(x)[:, :2], y).backward()
        optimiser.step()
    net = net_of(mean_net, {"width": 16}, data, torch.device("cpu"))
    assert isinstance(net, ModuleNet)
    state = {name: value[None] for name, value in alone[0].state.items()}
    seen = torch.from_numpy(data.x[data.test])
    ours = net.logits(state["weights"], state["statistics"], net.inputs(seen), training=False)[0]
    with torch.no_grad():
        assert torch.allclose(ours, model.eval()(seen), atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_by_a_network_of_ones_own(data: GraphData, name: str) -> None:
    how = dataclasses.replace(recipe(name, epochs=2), make=mean_net, model={})
    if name == "twp":
        with pytest.raises(ValueError, match=r"this network has no topology\(x\)"):
            learned(data, how, TASKS[:2])
    else:
        assert learned(data, how, TASKS[:2]).state["weights"].isfinite().all()


class Attentive(Mean):
    """With an attention of its own: over neighbours, by products of what the layer gives."""

    def topology(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        return (h @ h.mT).masked_fill(self.adjacency == 0, -torch.inf).softmax(-1).norm()


def attentive_net(init: torch.Generator, *, sample: tuple[int, ...], adjacency: Tensor) -> Attentive:
    return Attentive(adjacency, sample[1], 16, init)


def test_twp_weighs_the_attention_that_a_network_of_ones_own_gives(data: GraphData) -> None:
    settings = {"strength_loss": 0.0, "strength_topology": 1.0, "gradients": "fresh"}
    how = dataclasses.replace(recipe("twp", epochs=2, settings=settings), make=attentive_net, model={})
    first, second = (learned(data, how, TASKS[:tasks]).state for tasks in (1, 2))
    net = net_of(attentive_net, {}, data, torch.device("cpu"))
    assert isinstance(net, ModuleNet)
    backbone = net._module.backbone
    views = net._parameters.views(first["weights"][None])
    with torch.no_grad():
        for name, value in backbone.named_parameters():
            value.copy_(views[f"backbone.{name}"][0])
    backbone.topology(torch.from_numpy(data.x[task_rows(data, TASKS[0])])).backward()
    weights = net._parameters.views(second["0000/importance/flat"][None])
    assert torch.allclose(weights["backbone.layer.weight"][0], backbone.layer.weight.grad**2, rtol=1e-4)
    assert not weights["weight"].any()  # the head has no part in the attention


def test_a_gcn_as_a_backbone_is_that_of_the_streams(data: GraphData) -> None:
    graph = {"adjacency": torch.from_numpy(data.operators)}
    backbone = gcn(generator(1, "backbone"), sample=(5, 7), width=8, hidden=8, **graph)
    net, x = Gcn(graph["adjacency"], 7, 1, width=8, hidden=8), torch.from_numpy(data.x[:20])
    weights, statistics = net.draw(generator(1, "backbone"))
    features = net.features(weights[None], statistics[None], net.inputs(x), training=True)[0]
    assert torch.equal(backbone.train()(x), features)
    backbone(x).square().sum().backward()
    assert backbone.weights.grad is not None
    assert float(backbone.weights.grad.abs().sum()) > 0


def test_a_loss_that_explodes_is_said(data: GraphData) -> None:
    broken = dataclasses.replace(data, x=np.where(data.x > 2, np.float32(np.inf), data.x))
    with pytest.raises(ArithmeticError, match="not finite after finetune"):
        learned(broken, recipe("finetune"), TASKS[:1])


def test_published_settings_name_what_methods_take() -> None:
    for benchmark, name, variant in itertools.product(("ucla", "ntu"), METHODS, ("as_released", "as_written")):
        found = settings(benchmark, name, variant)  # pyright: ignore[reportArgumentType]
        assert set(GRIDS[name]) <= set(found)
        assert all(found[each] in values for each, values in GRIDS[name].items())
        assert found.items() <= method(name, **found).settings.items()
