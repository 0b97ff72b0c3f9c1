"""Graphs of several bodies, and sets larger than a batch, by GCN, ST-GCN and networks of one's own; and on a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.training.core.build import classifier_of, network_of
from benchwright.training.core.determinism import generator
from benchwright.training.graph_streams.learn import learn_next
from benchwright.training.graph_streams.nets import net_of
from benchwright.training.graph_streams.parallel_streams import Streams
from benchwright.training.graph_streams.recipe import ClassesOfTask, GraphData, LearnedStream, Recipe, full_batches
from benchwright.training.methods.registry import method
from benchwright.training.models.gcn.network import gcn
from benchwright.training.models.parts import EachPart
from benchwright.training.models.st_gcn import BlockForm, StGcn, st_gcn
from torch import Tensor, nn

TASKS: tuple[ClassesOfTask, ...] = ((0, 1), (2, 3))
RING = np.eye(5, dtype=np.float32) + np.roll(np.eye(5), 1, axis=0) + np.roll(np.eye(5), -1, axis=0)


class Mean(nn.Module):
    """The mean of what a layer gives of all joints, with batch norm and an attention; it notes how many samples it is given."""

    def __init__(self, features: int, init: torch.Generator) -> None:
        super().__init__()
        self.width, self.layer, self.norm = 8, nn.Linear(features, 8), nn.BatchNorm1d(8)
        for parameter in self.layer.parameters():
            nn.init.uniform_(parameter, -0.3, 0.3, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        SEEN.append(len(x))
        return self.norm(self.layer(x).relu().mean(1))

    def topology(self, x: Tensor) -> Tensor:
        SEEN.append(len(x))
        h = self.layer(x)
        return (h @ h.mT).softmax(-1).norm()


SEEN: list[int] = []


def mean_net(init: torch.Generator, *, sample: tuple[int, ...], adjacency: Tensor) -> Mean:
    assert len(sample) == 2
    return Mean(sample[1], init)


NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gcn": (gcn, {"width": 8, "hidden": 8}),
    "st_gcn": (st_gcn, {"width": 8}),
    "yan": (st_gcn, {"width": 8, "form": "yan"}),
    "own": (mean_net, {}),
}


def told_by_the_second_body(name: str) -> GraphData:
    """Four classes, twelve samples each, of two bodies: the first is noise, the second says the class."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 12)
    shape = (3, 8, 5) if name in ("st_gcn", "yan") else (5, 7)
    x = draw.normal(size=(48, 2, *shape))
    x[:, 1] += 2 * draw.normal(size=(4, *shape))[labels]
    at = np.arange(48).reshape(4, 12)
    train, val, test = (at[:, part].ravel() for part in (slice(0, 7), slice(7, 8), slice(8, 12)))
    operators = RING if len(shape) == 2 else np.stack([RING] * 3)
    return GraphData(x.astype(np.float32), labels, train, val, test, operators.astype(np.float32), 4)


def recipe(network: str, name: str = "joint", *, batch_size: int | None = None, epochs: int = 40, **given: Any) -> Recipe:
    make, model = NETWORKS[network]
    schedule = full_batches(epochs=epochs, learning_rate=1e-2, batch_size=batch_size)
    return Recipe(method(name, **given), make, model, schedule=schedule)


def learned(data: GraphData, how: Recipe, tasks: int = 2, **where: Any) -> LearnedStream:
    last: LearnedStream | None = None
    for task in TASKS[:tasks]:
        (last,) = learn_next(data, how, [last], [task], seed=0, draws=["0"], **where)
    assert last is not None
    return last


@pytest.mark.parametrize("network", NETWORKS)
def test_a_class_that_the_second_body_alone_tells_is_learned(network: str) -> None:
    data = told_by_the_second_body(network)
    end = learned(data, recipe(network))
    assert (end.predicted == data.labels[data.test]).mean() > 0.6
    # The same by one model, as methods have it that learn one order at a time: its features are those of both bodies.
    graph = {"adjacency" if data.operators.ndim == 2 else "partitions": torch.from_numpy(data.operators)}
    make, model = NETWORKS[network]
    one = classifier_of(make, data.x.shape[1:], {**graph, **model}, generator(0, "bodies"))
    one.grow(4, generator(0, "outputs"))
    optimiser = torch.optim.Adam(one.parameters(), lr=1e-2)
    x, y = (torch.from_numpy(each[data.train]) for each in (data.x, data.labels))
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(one.train()(x), y).backward()
        optimiser.step()
    found = one.eval()(torch.from_numpy(data.x[data.test])).argmax(1).numpy()
    assert (found == data.labels[data.test]).mean() > 0.6


@pytest.mark.parametrize("network", NETWORKS)
def test_features_are_the_mean_over_bodies_an_absent_one_among_them(network: str) -> None:
    data = told_by_the_second_body(network)
    make, model = NETWORKS[network]
    both, alone = (net_of(make, model, dataclasses.replace(data, x=x), torch.device("cpu")) for x in (data.x, data.x[:, 0]))
    x = torch.from_numpy(data.x[:6]).clone()
    x[0, 1] = 0

    def logits(net: Any, samples: Tensor) -> Tensor:  # of one generator weights are equal, whatever the bodies
        weights, statistics = (each[None] for each in net.draw(generator(1, "weights")))
        return net.logits(weights, statistics, net.inputs(samples), training=False)

    assert torch.allclose(logits(both, x), (logits(alone, x[:, 0]) + logits(alone, x[:, 1])) / 2, atol=1e-5)


def test_moments_of_the_input_are_of_each_body_as_in_ctr_gcn() -> None:
    """And of all bodies in Yan et al.'s form: an absent body then moves those of the other."""
    partitions, x = torch.eye(5)[None], torch.randn(6, 2, 3, 8, 5, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 0
    columns: dict[BlockForm, int] = {"ctr_gcn": 2 * 5 * 3, "yan": 5 * 3}
    for form in columns:
        net = StGcn(partitions, 3, 1, width=4, form=form, bodies=2)
        assert net.statistics.pieces["input/mean"].shape[-1] == columns[form]
        weights, statistics = (each[None] for each in net.draw(generator(0, "net")))
        net.logits(weights, statistics, x, training=True)
        moved = net.statistics.views(statistics)["input/variance"].view(-1)[:15]
        first = x[:, 0].permute(0, 3, 1, 2).reshape(6, 15, 8).transpose(1, 2).reshape(-1, 15)
        wanted = first if form == "ctr_gcn" else torch.cat([first, torch.zeros_like(first)])
        assert torch.allclose(moved, 0.9 + 0.1 * wanted.var(0), atol=1e-5)


def test_a_network_that_names_bodies_is_given_all_of_them() -> None:
    def whole(init: torch.Generator, *, sample: tuple[int, ...], adjacency: Tensor, bodies: int = 1) -> nn.Module:
        return Whole(bodies * sample[0] * sample[1])

    graph = {"adjacency": torch.from_numpy(RING)}
    assert network_of(whole, (2, 5, 7), graph, generator(0, ""))(torch.zeros(3, 2, 5, 7)).shape == (3, 4)
    assert isinstance(network_of(mean_net, (2, 5, 7), graph, generator(0, "")), EachPart)
    assert isinstance(network_of(mean_net, (5, 7), graph, generator(0, "")), Mean)


class Whole(nn.Module):
    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.width, self.layer = 4, nn.Linear(numbers, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


CASES: dict[str, dict[str, Any]] = {
    "finetune": {},
    "ewc": {"strength": 1.0},
    "mas": {"strength": 1.0, "omega": "square", "data": "learned"},
    "twp": {"strength_loss": 1.0, "strength_topology": 1.0},
    "lwf": {"strength": 1.0, "temperature": 2.0},
    "gem": {"strength": 0.5, "fraction": 0.9},
}


@pytest.mark.parametrize("name", CASES)
def test_no_pass_has_more_samples_than_a_batch(name: str) -> None:
    data = told_by_the_second_body("own")
    data = dataclasses.replace(data, x=data.x[:, 1])
    for size, most in ((None, 16), (5, 5)):  # without a size: the 14 samples of a task, the 16 that test
        SEEN.clear()
        learned(data, recipe("own", name, batch_size=size, epochs=2, **CASES[name]))
        assert max(SEEN) == most


def lesson(data: GraphData, how: Recipe, first: LearnedStream) -> Streams:
    """The second task's, as it begins."""
    net = net_of(how.make, how.model, data, torch.device("cpu"))
    state = {key: value[None] for key, value in first.state.items()}
    rows = data.train[np.isin(data.labels[data.train], TASKS[1])]
    return Streams(net, data, how, state, orders=[TASKS], draws=["0"], rows=rows, seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize("network", ["gcn", "own"])
def test_what_is_taken_in_parts_is_what_one_pass_gives(network: str) -> None:
    """Outputs and attention, which batch norm's moments of a batch do not enter; and means over samples add up."""
    data = told_by_the_second_body(network)
    first = learned(data, recipe(network, "twp", epochs=2), tasks=1)
    one, parts = (lesson(data, recipe(network, "twp", batch_size=size, epochs=2), first) for size in (None, 5))
    assert one.previous is not None
    assert parts.previous is not None
    assert parts.previous.inputs is None
    assert [len(each.labels) for each, _ in parts.parts(parts.previous)] == [5, 5, 4]
    assert torch.allclose(parts.logits_before, one.logits_before, atol=1e-6)
    assert parts.logits_before.shape == (1, 14, 4)
    assert np.array_equal(parts.predict(data.test), one.predict(data.test))
    ours, theirs = parts.topology_gradient(parts.previous), one.topology_gradient(one.previous)
    assert float(theirs.abs().max()) > 0
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6 * float(theirs.abs().max()))
    shares = [share * float(each.weights.sum()) for each, share in parts.parts(parts.previous)]
    assert sum(shares) == pytest.approx(1)
    total = parts.gradients(lambda step: step.classification(), parts.previous)["flat"]
    added = torch.zeros_like(total)
    for each, share in parts.parts(parts.previous):
        added += share * parts.gradients(lambda step: step.classification(), each)["flat"]
    assert torch.allclose(total, added, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("network", ["gcn", "st_gcn"])
def test_a_task_on_a_gpu_is_that_of_the_processor(network: str) -> None:
    data = told_by_the_second_body(network)
    cpu, gpu = (learned(data, recipe(network, "finetune", epochs=5), tasks=1, device=device) for device in ("cpu", "cuda"))
    # Adam moves a parameter by up to 1e-2 a step, whatever the size of its gradient: so a mean, not each.
    assert (cpu.state["weights"] - gpu.state["weights"]).abs().mean() < 1e-3
    assert torch.allclose(cpu.state["statistics"], gpu.state["statistics"], atol=1e-2)
    assert (cpu.predicted == gpu.predicted).mean() > 0.9
