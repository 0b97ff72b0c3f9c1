"""The columns of YFCC100M's metadata, and rows assembled from parsed blocks; uncertain rows are left to ``rules``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import Sifted
from .rules import decoded, judged
from .sqlite import COLUMN_NAMES

COLUMNS = tuple(COLUMN_NAMES)
"""The 23 columns in order. The 25-column form has the line number before the id and the photo's hash after it."""

LAYOUTS = {23: COLUMNS, 25: ("line", "id", "hash", *COLUMNS[1:])}

NEEDED = ("id", "date_taken", "date_uploaded", "url", "licence", "extension", "marker")

ENCODED = frozenset({"nickname", "device", "title", "description", "user_tags", "machine_tags"})
"""Columns that are URL-encoded in the file, with + for a space."""

EXTRA = tuple(name for name in LAYOUTS[25] if name not in (*NEEDED, "line"))
"""Columns that can be requested in addition to those of ``metadata.Photo``, all as text."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Origin of the rows of a block, to name rows without an id.

    Attributes:
        file: name of the file within the source.
        unit: ``byte``, ``line`` or ``rowid``.
    """

    file: str
    unit: str

    def key(self, place: int) -> str:
        """Key of a row without an id."""
        return f"{self.file}:{place}"


@dataclasses.dataclass(frozen=True)
class Parsed:
    """Parsed lines of a block.

    Attributes:
        good: rows that are known to pass all rules: columns of ``metadata.Photo`` and the requested ones, as text.
        index: int64 of shape (good,), increasing: line number of each row in the block.
        rest: the other rows: the columns ``NEEDED`` and the requested ones as text, empty or null for empty fields; ``index``,
            increasing, and ``place``, the position of the line in the unit of ``Place``, both int64.
        lines: number of lines, including rejected ones.
        rejected: lines that could not be split into fields, with the columns ``REJECTS``.
    """

    good: pa.Table
    index: np.ndarray
    rest: pa.Table
    lines: int
    rejected: pa.Table


def rest_table(index: Sequence[int] | np.ndarray, place: Sequence[int] | np.ndarray, texts: Mapping[str, Any]) -> pa.Table:
    """The table ``Parsed.rest`` with these columns."""
    integers = {"index": pa.array(index, pa.int64()), "place": pa.array(place, pa.int64())}
    schema = pa.schema([*((name, pa.int64()) for name in integers), *((name, pa.string()) for name in texts)])
    return pa.table({**integers, **texts}, schema=schema)


def row_schema(extra: Sequence[str]) -> pa.Schema:
    """Columns of ``metadata.Photo`` and ``extra``, none with a missing value."""
    times, texts = ("date_taken", "date_uploaded"), ("uploaded_unix", "url", "extension", "licence", *extra)
    named = [("key", pa.string()), *((name, pa.timestamp("us")) for name in times), *((name, pa.string()) for name in texts)]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in named])


def sift_fields(blocks: Iterable[Parsed], *, place: Place, licences: Sequence[str] | None, extra: Sequence[str]) -> Sifted:
    """Assemble blocks into rows of ``metadata.Photo``, and reject rows that break a rule.

    Args:
        blocks: blocks of one file, in order, at least one; when the next one is requested, only the kept part of a block is
            still in memory.
        place: names the rows without a valid id.
        licences: names of licences to keep; None for all. The rows ``good`` have been checked already.
        extra: additional columns, decoded if they are ``ENCODED``.
    """
    good, index, rest, rejected = list[pa.Table](), list[np.ndarray](), list[pa.Table](), list[pa.Table]()
    total = 0
    for block in blocks:
        good.append(block.good)
        index.append(block.index + total)
        rest.append(block.rest.set_column(0, "index", pc.add(block.rest["index"], total)))
        rejected.append(block.rejected)
        total += block.lines
    rows, others = pa.concat_tables(good), pa.concat_tables(rest)
    if others.num_rows:  # for all blocks at once, since there are few
        late, kept, refused = judged(others, file=place.file, unit=place.unit, licences=licences, schema=row_schema(extra))
        rejected.append(refused)
        if kept.num_rows:
            rows = pa.concat_tables([rows, kept]).combine_chunks().take(pa.array(np.argsort(np.concatenate([*index, late]))))
    for name in extra:
        if name in ENCODED:
            rows = rows.set_column(rows.column_names.index(name), name, decoded(rows, name))
    return Sifted(rows, pa.concat_tables(rejected))
