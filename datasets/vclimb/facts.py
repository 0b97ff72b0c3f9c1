"""The facts of vCLIMB: ``facts.toml``, which states the source of each value."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from ...curation.package_data import FactTable, published_facts


@functools.cache
def facts() -> FactTable:
    """All facts. Keys of ``train_per_task`` and ``first_classes`` are dataset and number of tasks, such as ``ucf101_10``."""
    return published_facts(__package__)


class PublishedResult(NamedTuple):
    """One published pair of numbers, in percent; ``frames`` is the number of frames kept per stored video: 4, 8, 16 or all."""

    table: str
    tasks: int
    frames: str
    dataset: str
    method: str
    acc_percent: float
    bwf_percent: float

    @property
    def group(self) -> str:
        """The table as one word: ``table2``, ``supplement_table1``."""
        return "_".join(reversed(self.table.lower().replace(" ", "").split("ofthe")))


def published_figures() -> Iterator[PublishedResult]:
    """The published results, in the order of the tables."""
    for table in facts().published:
        for method, pairs in table.rows.items():
            for dataset, (acc, bwf) in zip(table.columns, pairs, strict=True):
                yield PublishedResult(table.table, table.tasks, table.frames, dataset, method, float(acc), float(bwf))
