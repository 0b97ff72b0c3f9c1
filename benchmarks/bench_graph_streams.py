"""All orders of tasks with shared beginnings beside one torch module a run, on skeleton-sized graphs.

    python benchmarks/bench_graph_streams.py [--quick] [--graphs 240] [--tasks 5] [--epochs 100]

One process, one thread; the data is drawn (20 nodes, 156 features, two classes a task), which changes no time. The other way is
what one would write: an nn.Module a run, batch norm, cross-entropy and Adam of torch, the whole stream again for each order.
A step of each is timed by turns, several times, and the least CPU time of each is taken: a busy machine only adds. What a
whole experiment takes is steps times that; only the steps timed are run, and --quick times fewer.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time

import numpy as np
import torch
from benchwright.training.graph_streams.learn import learn_next
from benchwright.training.graph_streams.recipe import GraphData, Recipe, full_batches
from benchwright.training.methods.finetune import finetune
from benchwright.training.models.gcn.network import gcn
from torch import Tensor, nn

NODES, FEATURES, WIDTH = 20, 156, 64


class Plain(nn.Module):
    """The same network with torch's modules."""

    def __init__(self, adjacency: Tensor, classes: int) -> None:
        super().__init__()
        self.adjacency = adjacency
        sizes = [FEATURES, WIDTH]
        self.conv = nn.ModuleList([nn.Linear(size, WIDTH) for size in sizes])
        self.residual = nn.ModuleList([nn.Linear(size, WIDTH) for size in sizes])
        self.norm = nn.ModuleList([nn.BatchNorm1d(WIDTH) for _ in sizes])
        self.gate = nn.Linear(WIDTH, 1)
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """(n, V, F) -> (n, classes)."""
        for conv, residual, norm in zip(self.conv, self.residual, self.norm, strict=True):
            x = conv(self.adjacency @ x).relu() + residual(x).relu()
            x = norm(x.flatten(0, 1)).view(x.shape)
        return self.head(torch.cat([(x * self.gate(x).sigmoid()).sum(1), x.amax(1)], dim=1))


def plain_seconds(data: GraphData, epochs: int) -> float:
    """CPU time of a step, after two to warm up."""
    model = Plain(torch.from_numpy(data.operators), data.classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    rows = data.train[data.labels[data.train] < 2]
    x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.labels[rows])
    start = 0.0
    for epoch in range(epochs + 2):
        if epoch == 2:
            start = time.process_time()
        loss = nn.functional.cross_entropy(model(x)[:, :2], y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return (time.process_time() - start) / epochs


def our_seconds(data: GraphData, epochs: int, streams: int) -> float:
    """CPU time of a step of one stream, all that a task costs besides (loading, evaluation) in it."""
    how = Recipe(finetune(), gcn, schedule=full_batches(epochs=epochs, learning_rate=1e-3))
    start = time.process_time()
    learn_next(
        data, how, [None] * streams, [(0, 1)] * streams, seed=0, draws=[*map(str, range(streams))], streams_at_once=streams
    )
    return (time.process_time() - start) / epochs / streams


def drawn(graphs: int, tasks: int) -> GraphData:
    """Noise in the shape of skeletons: a path of 20 joints."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(2 * tasks), graphs // 2)
    path = np.eye(NODES) + np.eye(NODES, k=1) + np.eye(NODES, k=-1)
    x = draw.normal(size=(len(labels), NODES, FEATURES)).astype(np.float32)
    rows = np.arange(len(labels))
    return GraphData(x, labels, rows, rows[::20], rows[::20], path.astype(np.float32), 2 * tasks)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--graphs", type=int, default=240, help="training samples a task")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100, help="of a task, in the sums")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = drawn(given.graphs, given.tasks)
    steps, rounds = (20, 2) if given.quick else (50, 6)
    ways = {"a module a run": lambda: plain_seconds(data, steps)} | {
        f"{streams} streams at once": lambda streams=streams: our_seconds(data, steps, streams)
        for streams in ((1, 4) if given.quick else (1, 2, 4, 8))
    }
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            least[name] = min(least[name], way())
    runs = sum(1 for _ in itertools.permutations(range(given.tasks))) * given.tasks
    shared = sum(len(set(itertools.permutations(range(given.tasks), k))) for k in range(1, given.tasks + 1))
    print(f"{given.graphs} graphs a task, {given.tasks} tasks, all orders: {runs} trainings of a task, {shared} when shared")
    unshared = least["a module a run"] * runs * given.epochs
    for name, seconds in least.items():
        whole = seconds * given.epochs * (runs if name == "a module a run" else shared)
        print(f"{name:18s} {seconds * 1e3:7.2f} ms a step, {whole / 60:6.1f} CPU minutes in all, {unshared / whole:4.1f} times")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")


if __name__ == "__main__":
    main()
