"""A published dataset as arrays, with its layout and its orders."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..reader.features import read_features
from ..reader.index import DatasetIndex
from ..reader.samples import Samples
from .layouts import Layout, layout_from_values
from .samples import CONFIDENCE, TENSOR

ORDERS = "orders.parquet"
"""File next to the folder of the dataset."""


@dataclass(frozen=True)
class SkeletonArrays:
    """All sequences of a dataset, in the order of the source's files.

    Attributes:
        x: (n, C, T, V, M) float32.
        labels: (n,) int64, class index in the published order.
        roles: (n,) ``train``, ``val`` or ``test``.
        tasks: (n,) int64, task of the class in the default order.
        keys: keys of the sequences.
        classes: class names in the published order.
        layout: layout of the joints.
        confidence: (n, T, V, M) float32, see ``rows.CompletedRow``; None if not read.
    """

    x: NDArray[np.float32]
    labels: NDArray[np.int64]
    roles: NDArray[np.str_]
    tasks: NDArray[np.int64]
    keys: tuple[str, ...]
    classes: tuple[str, ...]
    layout: Layout
    confidence: NDArray[np.float32] | None = None


def load_arrays(url: str, *, confidence: bool = False) -> SkeletonArrays:
    """Read the shards of a dataset.

    Args:
        url: folder ``dataset`` of a run, or the folder of the run; local or an fsspec URL.
        confidence: whether to read confidences, if the dataset has any.

    Raises:
        FileNotFoundError: the dataset does not exist.
        ShardError: a shard is missing or damaged.
        ValueError: the dataset has no sample.
    """
    index = _index(url)
    x, table = read_features(index, TENSOR)
    order = np.argsort(table["position"].to_numpy(), kind="stable")
    table = table.take(pa.array(order))
    labels = table["label"].to_numpy()
    names = dict(zip(labels.tolist(), table["class_name"].to_pylist(), strict=True))
    first = Samples(index)[0]
    layout = layout_from_values(first["json"]["layout"])
    known = read_features(index, CONFIDENCE)[0][order] if confidence and CONFIDENCE in first else None
    return SkeletonArrays(
        x[order],
        labels,
        np.asarray(table["role"].to_pylist()),
        table["task"].to_numpy(),
        tuple(table["key"].to_pylist()),
        tuple(names[label] for label in sorted(names)),
        layout,
        known,
    )


@dataclass(frozen=True)
class ArraysShape:
    """What all sequences of a dataset have in common: layout, and numbers of axes, frames and bodies."""

    layout: Layout
    axes: int
    frames: int
    bodies: int = 1


def load_shape(url: str) -> ArraysShape:
    """Read the shape from the first sample. ``url`` and errors as for ``load_arrays``."""
    first = Samples(_index(url))[0]
    axes, frames, _, bodies = first[TENSOR].shape
    return ArraysShape(layout_from_values(first["json"]["layout"]), axes, frames, bodies)


@dataclass(frozen=True)
class Orders:
    """Orders of learning, as written by a run.

    Attributes:
        task_of_class: (classes,) int64, task of each class in the default order.
        task_orders: (n, classes) int64: classes in the order in which they are learned, task by task; row 0 is the default.
        class_orders: (m, classes) int64.
    """

    task_of_class: NDArray[np.int64]
    task_orders: NDArray[np.int64]
    class_orders: NDArray[np.int64]


def load_orders(url: str) -> Orders:
    """Read the orders next to a dataset.

    Args:
        url: as for ``load_arrays``.

    Raises:
        FileNotFoundError: the dataset has no orders.
    """
    path = posixpath.join(posixpath.dirname(_dataset(url)), ORDERS)
    with fsspec.open(path, "rb") as stream:
        table = pq.ParquetFile(stream).read().sort_by("label")
    found: dict[str, list[NDArray[np.int64]]] = {"task_order": [], "class_order": []}
    for name in table.column_names:
        if (kind := name.rstrip("0123456789")) in found:
            found[kind].append(np.argsort(table[name].to_numpy()))
    width = table.num_rows
    task, classes = (np.asarray(orders, dtype=np.int64).reshape(len(orders), width) for orders in found.values())
    return Orders(table["task"].to_numpy(), task, classes)


def _index(url: str) -> DatasetIndex:
    index = DatasetIndex.open(_dataset(url))
    if not len(index):
        raise ValueError(f"{url}: the data set is empty")
    return index


def _dataset(url: str) -> str:
    at = url.rstrip("/")
    return at if posixpath.basename(at) == "dataset" else posixpath.join(at, "dataset")
