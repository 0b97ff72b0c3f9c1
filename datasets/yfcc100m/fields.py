"""The columns of YFCC100M's metadata, and rows of them put together: what is not sure to be a photo is left to ``rules``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import Sifted
from .sqlite import COLUMN_NAMES

COLUMNS = tuple(COLUMN_NAMES)
"""The 23 columns in order. The 25-column form has the line number before the id and the photo's hash after it."""

LAYOUTS = {23: COLUMNS, 25: ("line", "id", "hash", *COLUMNS[1:])}

NEEDED = ("id", "date_taken", "date_uploaded", "url", "licence", "extension", "marker")

ENCODED = frozenset({"nickname", "device", "title", "description", "user_tags", "machine_tags"})
"""Columns that are URL-encoded in the file, with + for a space."""

EXTRA = tuple(name for name in LAYOUTS[25] if name not in (*NEEDED, "line"))
"""Columns that can be asked for beside those of ``metadata.Photo``, all as text."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the rows of a frame come from: names those that have no id of their own.

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
    """Some lines.

    Attributes:
        good: columns of ``metadata.Photo`` and those asked for, as text, of the rows that are known to keep all rules.
        index: int64 of shape (good,), increasing: which line each is.
        rest: the other rows: the columns ``NEEDED`` and those asked for as text, empty or null where the field was empty;
            ``index``, increasing, and ``place``, the place of the line in the unit of ``place``, both int64.
        lines: how many there are, those that are rejected with them.
        rejected: lines whose fields could not be distinguished, with the columns ``REJECTS``.
    """

    good: pa.Table
    index: np.ndarray
    rest: pa.Table
    lines: int
    rejected: pa.Table


def rest_table(index: Sequence[int] | np.ndarray, place: Sequence[int] | np.ndarray, texts: Mapping[str, Any]) -> pa.Table:
    """``Parsed.rest`` of its columns."""
    integers = {"index": pa.array(index, pa.int64()), "place": pa.array(place, pa.int64())}
    schema = pa.schema([*((name, pa.int64()) for name in integers), *((name, pa.string()) for name in texts)])
    return pa.table({**integers, **texts}, schema=schema)


def row_schema(extra: Sequence[str]) -> pa.Schema:
    """Columns of ``metadata.Photo`` and ``extra``, none with a missing value."""
    times, texts = ("date_taken", "date_uploaded"), ("uploaded_unix", "url", "extension", "licence", *extra)
    named = [("key", pa.string()), *((name, pa.timestamp("us")) for name in times), *((name, pa.string()) for name in texts)]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in named])


def sift_fields(blocks: Iterable[Parsed], *, place: Place, licences: Sequence[str] | None, extra: Sequence[str]) -> Sifted:
    """Put blocks together as rows of ``metadata.Photo``, and reject rows that break a rule.

    Args:
        blocks: of one file, in order, at least one; only what is kept of one is in memory when the next is requested.
        place: names the rows without a valid id.
        licences: names of licences to keep; None for all. The rows ``good`` have been asked for theirs.
        extra: further columns to give, decoded where they are ``ENCODED``.
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
    if others.num_rows:  # of all blocks at once, as there are few
        from .rules import judged  # takes polars a fifth of a second to load, while another thread may scan

        late, kept, refused = judged(others, file=place.file, unit=place.unit, licences=licences, schema=row_schema(extra))
        rejected.append(refused)
        if kept.num_rows:
            rows = pa.concat_tables([rows, kept]).combine_chunks().take(pa.array(np.argsort(np.concatenate([*index, late]))))
    for name in extra:
        if name in ENCODED:
            from .rules import decoded

            rows = rows.set_column(rows.column_names.index(name), name, decoded(rows, name))
    return Sifted(rows, pa.concat_tables(rejected))
