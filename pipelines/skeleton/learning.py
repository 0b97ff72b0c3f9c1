"""The step that trains methods on streams side by side: several orders of tasks, which share the training of their beginnings.

An edit of a table or of a figure makes no training again: this module reaches none.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...curation.rows import Sifted
from ...eval.protocols.predictions import ONE_LABEL, ORDER, columns
from ...eval.protocols.streams import Position, Samples, Stream, Test, learn_position, test_sets
from ..experiments import LOGGER, told
from ..streams import diverged

if TYPE_CHECKING:
    from ...training.graph_streams.recipe import GraphData, LearnedStream, Recipe

Task = tuple[int, ...]
Order = tuple[Task, ...]


PREDICTIONS = columns(ONE_LABEL).append(ORDER)
"""Columns of what a training of several orders leaves."""


def ranges_of_orders(*, orders: int, orders_per_part: int) -> Iterator[str]:
    """Pieces: so many orders each, neighbours in lexicographic order, which share the most."""
    for start in range(0, orders, orders_per_part):
        yield f"{start}-{min(start + orders_per_part, orders)}"


def learn_orders(
    piece: str,
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    method: Callable[..., Any],
    model: Callable[..., Any],
    orders: Sequence[Sequence[Task]],
    indices: Sequence[int],
    device: str,
) -> Iterator[pa.Table | Sifted]:
    """Source step: train the orders of a piece, all of one length together, and each common beginning once.

    Args:
        piece: of ``ranges_of_orders``.
        training: facts, see ``experiments.Training``: of its settings ``method``, ``model``, ``schedule`` and ``seed``. All
            randomness comes from that seed, the number of the repeat, and what was learned before.
        digest: content digest of the data set.
        dataset: folder of its shards.
        method: makes the method, a ``Method`` that streams side by side learn by.
        model: makes the network.
        orders: tasks of each order, each a tuple of classes.
        indices: number of each order.
        device: see ``core.devices.device_of``.
    """
    from ...training.graph_streams.nets import graph_of
    from ...training.graph_streams.recipe import Recipe, full_batches
    from ...training.methods.registry import made

    start, stop = map(int, piece.split("-"))
    settings, began = training["settings"], time.monotonic()
    data = graph_data(dataset, digest, graph_of(model))
    schedule = full_batches(**settings["schedule"])
    recipe = Recipe(made(method, settings["method"]), model, settings["model"], schedule=schedule)
    mine = [tuple(tuple(task) for task in order) for order in orders[start:stop]]
    try:
        learned = _learn_all(data, recipe, mine, settings["seed"], training["seed"], device)
    except ArithmeticError as error:
        if type(error) is not ArithmeticError:  # a division by zero, say, is a fault of ours
            raise
        yield diverged(PREDICTIONS, error, key=f"diverged-{piece}")
        return
    for index, order, found in zip(indices[start:stop], mine, learned, strict=True):
        yield _predictions(data, index, order, found)
    rate = 60 * len(mine) / max(time.monotonic() - began, 1e-9)
    LOGGER.info("%s: %d of %d orders, %.1f a minute", told(training), stop, len(orders), rate)


def _learn_all(
    data: GraphData, recipe: Recipe, orders: Sequence[Order], seed: int, repeat: int, device: str
) -> list[list[LearnedStream]]:
    """Each order after each of its tasks."""
    from ...training.core.devices import device_of
    from ...training.graph_streams.learn import learn_next
    from ...training.graph_streams.recipe import LearnedStream

    nothing, any_order = np.zeros(0, dtype=np.int64), recipe.method.any_order
    learned: dict[Order, LearnedStream] = {}
    found: list[list[LearnedStream]] = [[] for _ in orders]
    for k in range(1, len(orders[0]) + 1):
        known = [tuple(sorted(order[:k])) if any_order else order[:k] for order in orders]
        wanted = list(dict.fromkeys(known))
        parents = [learned.get(each[:-1]) for each in wanted]
        if any_order and k > 1:  # which takes no more than the order from its parent
            parents = [LearnedStream(each[:-1], repeat, {}, nothing, nothing) for each in wanted]
        after = learn_next(
            data,
            recipe,
            parents,
            [each[-1] for each in wanted],
            seed=seed,
            repeats=[repeat] * len(wanted),
            device=device_of(device),
            streams_at_once=1 if device == "cpu" else 64,
        )
        learned = dict(zip(wanted, after, strict=True))
        for mine, each in zip(found, known, strict=True):
            mine.append(dataclasses.replace(learned[each], state={}))
    return found


class _Retold:
    """A stream that was learned already, as a learner that meets its positions one after another."""

    def __init__(self, data: GraphData, order: Order, learned: Sequence[LearnedStream]) -> None:
        self.record: dict[str, Any] = {}
        self._data, self._learned, self._place = data, iter(learned), place_of_class(order)
        self._predicted = np.zeros(len(data.labels), dtype=np.int64)

    def learn(self, train: Any, validate: Sequence[Any], *, classes: int) -> None:
        one = next(self._learned)
        for rows, predicted in ((self._data.test, one.predicted), (self._data.val, one.val_predicted)):
            self._predicted[rows] = self._place[predicted]

    def predict(self, samples: NumberedRows) -> NDArray[np.int64]:
        return self._predicted[samples.rows]


@dataclass(frozen=True)
class NumberedRows:
    """Samples of ``graph_data`` by their rows: what protocols look at.

    Attributes:
        rows: (n,) int64.
        labels: (n,) int64 class indices in the order of learning.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def keys(self) -> list[str]:
        """The numbers of the rows."""
        return [str(row) for row in self.rows.tolist()]

    def take(self, rows: NDArray[np.int64]) -> NumberedRows:
        """The samples at these places."""
        return NumberedRows(self.rows[rows], self.labels[rows])


def _predictions(data: GraphData, index: int, order: Order, learned: Sequence[LearnedStream]) -> pa.Table:
    stream, learner = stream_of_order(data, order, NumberedRows), _Retold(data, order, learned)
    tables = [test_sets(stream), *(learn_position(learner, stream, at) for at in range(len(order)))]
    table = pa.concat_tables(tables).append_column(ORDER, pa.repeat(pa.scalar(index, ORDER.type), sum(map(len, tables))))
    return table.set_column(0, "key", pc.binary_join_element_wise(f"{index:05d}", table["key"], "/"))


def stream_of_order(
    data: GraphData, order: Order, samples: Callable[[NDArray[np.int64], NDArray[np.int64]], Samples]
) -> Stream:
    """The stream of the tasks of an order: all sequences that test, and all that validate, are tested after each task.

    Args:
        data: of the data set.
        order: tasks, each its classes.
        samples: makes samples of rows of the data, and their class indices in the order of learning.
    """
    place = place_of_class(order)

    def of(rows: NDArray[np.int64]) -> Samples:
        return samples(rows, place[data.labels[rows]])

    tests = [Test("", split, of(rows)) for split, rows in (("test", data.test), ("val", data.val)) if len(rows)]
    positions = [
        Position(
            name="+".join(map(str, sorted(task))),
            train=of(data.train[np.isin(data.labels[data.train], task)]),
            classes=tuple(map(str, task)),
            tests=tuple(range(len(tests))),
        )
        for task in order
    ]
    return Stream(tuple(positions), tuple(tests))


def place_of_class(order: Order) -> NDArray[np.int64]:
    """(classes,) the place of each class among all as they are learned, from 0."""
    return np.argsort([label for task in order for label in task])


@functools.lru_cache(maxsize=2)
def graph_data(dataset: str, digest: str, graph: str) -> GraphData:
    """The shards as networks take them that ask for ``graph``, see ``graph_streams.nets.graph_of``.

    It is held, for a process trains many pieces of them. ``digest`` names the content.
    """
    from ...datasets.skeleton.tensors import node_vectors
    from ...datasets.skeleton.view import load_arrays
    from ...training.graph_streams.recipe import GraphData

    arrays = load_arrays(dataset)
    if graph == "adjacency":
        x, operators = node_vectors(arrays.x), arrays.layout.adjacency() + np.eye(len(arrays.layout.joints), dtype=np.float32)
    else:
        x, operators = arrays.x[..., 0], arrays.layout.partitions()
    train, val, test = (np.flatnonzero(arrays.roles == role) for role in ("train", "val", "test"))
    return GraphData(np.ascontiguousarray(x), arrays.labels, train, val, test, operators, len(arrays.classes))
