"""A published dataset as a benchmark of Avalanche, which reads the shards: nothing is written.

Install Avalanche with ``pip install avalanche-lib``; it is imported when a benchmark is requested.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ..reader.collate import picture
from ..reader.dataset import ShardDataset
from ..reader.index import DatasetIndex
from .published import Published


def picture_tensor(sample: Mapping[str, Any]) -> torch.Tensor:
    """The only picture of a sample as torchvision's ``ToTensor`` returns it: float32 (3, height, width), 0 to 1.

    >>> picture_tensor(ShardDataset("out/dataset")[0]).shape
    torch.Size([3, 24, 24])
    """
    return torch.from_numpy(picture(sample)).permute(2, 0, 1).float() / 255


class DecodedSamples:
    """Rows of an index as a dataset of pairs (x, class index), with the ``targets`` that Avalanche requires.

    >>> index = DatasetIndex.open("out/dataset", where={"bucket": 3})
    >>> samples = DecodedSamples(index, index.table["label"].to_pylist(), picture_tensor)
    >>> x, y = samples[0]
    >>> len(samples), x.shape, y == samples.targets[0]
    (70, torch.Size([3, 24, 24]), True)
    """

    def __init__(self, index: DatasetIndex, targets: list[int], x: Callable[[Mapping[str, Any]], Any]) -> None:
        self.targets = targets
        self._samples, self._x = ShardDataset(index), x

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self._x(self._samples[row]), self.targets[row]


def benchmark(
    dataset: str,
    *,
    experience: str,
    label: str = "label",
    x: Callable[[Mapping[str, Any]], Any] = picture_tensor,
    configuration: str = "",
    splits: Sequence[str] = (),
) -> Any:
    """A ``CLScenario`` of Avalanche: a stream for each split, with an experience for each value of a column.

    With a column of times it is domain-incremental; with a column of tasks that introduce classes it is class-incremental
    (``NIScenario`` and ``NCScenario`` in Avalanche). Avalanche's ``task_incremental_benchmark`` adds task labels.

    Args:
        dataset: folder or URL of a published dataset.
        experience: column of integers that orders the experiences, such as ``bucket`` or ``task``.
        label: column of classes: class indices, or names that the dataset lists.
        x: computes the input from a sample as ``ShardDataset`` decodes it.
        configuration: configuration of the dataset that has the splits; by default the first.
        splits: splits of the configuration; by default all.

    Raises:
        ValueError: the column, configuration or split does not exist; a row of a split has no class, or a split no row of an
            experience.

    >>> benchmark("out/dataset", experience="year")
    Traceback (most recent call last):
        ...
    ValueError: out/dataset: no column 'year', there are ...
    """
    of = Published.open(dataset)
    table, name = of.index.table, configuration or next(iter(of.configurations))
    if name not in of.configurations:
        raise ValueError(f"{dataset}: no configuration {name!r}, there are {list(of.configurations)}")
    if missing := [column for column in (experience, label) if column not in table.column_names]:
        raise ValueError(f"{dataset}: no column {missing[0]!r}, there are {table.column_names}")
    masks = of.split_masks(name)
    if unknown := [split for split in splits if split not in masks]:
        raise ValueError(f"{dataset}: configuration {name!r} has no split {unknown[0]!r}, there are {list(masks)}")
    chosen = {split: mask for split, mask in masks.items() if not splits or split in splits}
    theirs = importlib.import_module("avalanche.benchmarks")

    places = pc.unique(table[experience].filter(pa.array(np.any([*chosen.values()], axis=0)))).drop_null().sort().to_pylist()
    streams: dict[str, list[Any]] = {}
    for split, mask in chosen.items():
        parts = [np.flatnonzero(mask & np.asarray(pc.equal(table[experience], place).fill_null(False))) for place in places]
        if empty := [place for place, rows in zip(places, parts, strict=True) if not len(rows)]:
            raise ValueError(
                f"{dataset}: split {split!r} has no row with {experience} = {empty[0]!r}: choose others by splits, "
                f"there are {list(masks)}"
            )
        indices = [_rows(of.index, rows) for rows in parts]
        streams[split] = [
            theirs.utils.as_classification_dataset(DecodedSamples(index, _targets(of, index, label), x)) for index in indices
        ]
    return theirs.with_classes_timeline(theirs.benchmark_from_datasets(**streams))


def _targets(of: Published, index: DatasetIndex, label: str) -> list[int]:
    column = index.table[label]
    if pa.types.is_string(column.type):
        column = pc.index_in(column, value_set=pa.array(of.labels.get(label, []), pa.string()))
    if not pa.types.is_integer(column.type) or column.null_count:
        raise ValueError(
            f"{index.url}: column {label!r} is {index.table[label].type}, and of {len(index)} rows {column.null_count} have no "
            f"class in it: name a column of class indices, or one of {list(of.labels)}"
        )
    return column.to_pylist()


def _rows(index: DatasetIndex, rows: np.ndarray) -> DatasetIndex:
    return DatasetIndex(index.url, index.table.take(pa.array(rows)), index.positions[rows], index.total)
