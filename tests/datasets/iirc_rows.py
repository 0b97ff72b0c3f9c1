"""Rows for tests of IIRC's assignment, and the table that it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from benchwright.curation.rows import Sifted
from benchwright.datasets.iirc.assign import Shares, assign

CIFAR = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8)
IMAGENET = Shares(in_task=0.04, post_task=0.04, superclass=0.4, subclass=0.8, cap=8)


class Held:
    """A table, in two parts, where a step wants rows."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.num_rows, self.schema = table.num_rows, table.schema

    def repetitive(self) -> list[str]:
        return []

    def batches(self, columns: Sequence[str] | None = None, *, encoded: Sequence[str] = ()) -> Iterator[pa.Table]:
        half = self.num_rows // 2
        for part in (self._table.slice(0, half), self._table.slice(half)):
            yield part if columns is None else part.select(list(columns))


def sifted(table: pa.Table, **settings: Any) -> Sifted:
    """All that ``assign`` keeps and rejects."""
    made = list(assign(Held(table), **settings))  # type: ignore[arg-type]
    return Sifted(*(pa.concat_tables(part) for part in zip(*made, strict=True)))


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
    return sifted(listed(counts), **settings).kept
