"""Rows for tests of IIRC's assignment, and the table that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from benchwright.datasets.iirc.assign import Shares, assign

CIFAR = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8)
IMAGENET = Shares(in_task=0.04, post_task=0.04, superclass=0.4, subclass=0.8, cap=8)


class Held:
    """A table where a step wants rows."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def table(self, columns: Any = None) -> pa.Table:
        return self._table


def listed(counts: Mapping[str, tuple[int, int]]) -> pa.Table:
    """Rows of classes with so many samples to train and to test; both 0-based, their files numbered from the last back."""
    rows = [
        (f"{split}-{name}-{number}", split, name, f"{split}/{name}/{number:05d}")
        for name, pair in counts.items()
        for split, count in zip(("train", "test"), pair, strict=True)
        for number in reversed(range(count))
    ]
    names = ("key", "split", "class_name", "file")
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


def assigned(counts: Mapping[str, tuple[int, int]], **settings: Any) -> pa.Table:
    """What ``assign`` keeps of ``listed(counts)``."""
    return assign(Held(listed(counts)), **settings).kept  # type: ignore[arg-type]
