"""Segments of videos, for collections with too few recordings to part: pieces of one recording in different roles are no honest
test of recognition, only of the pipeline, and the leak report says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from .rows import ROLES

if TYPE_CHECKING:
    from ...curation.store import Rows


@dataclass(frozen=True)
class Cut:
    """Columns that ``cut_segments`` changes or adds; ``source_key`` is the video's key, ``segment`` counts from 0."""

    key: str
    source_key: str
    role: str
    t_start: float | None
    t_end: float | None
    segment: int


def cut_segments(rows: Rows, *, roles: Sequence[str]) -> pa.Table:
    """Whole step (``expands``): every video in as many segments of equal length as there are roles, one after another.

    A segment begins with frame ``i * n_frames // len(roles)``. All keep the video's group.

    Args:
        rows: with columns ``key``, ``n_frames`` and ``fps`` of probed videos, and ``t_start``, ``t_end``.
        roles: of the segments in order of time: ``train``, ``val`` or ``test``.

    Raises:
        ValueError: for another role, or none.
    """
    if not roles or not set(roles) <= set(ROLES):
        raise ValueError(f"roles are {', '.join(roles) or 'none'}: one a segment, each of {', '.join(ROLES)}")
    table, parts = rows.table(), len(roles)
    number = np.tile(np.arange(parts), table.num_rows)
    table = table.take(pa.array(np.repeat(np.arange(table.num_rows), parts)))
    frames, fps = table["n_frames"].to_numpy(), table["fps"].to_numpy()
    columns = {
        "source_key": table["key"],
        "role": pa.array(list(roles)).take(pa.array(number)),
        "t_start": pa.array(number * frames // parts / fps),
        "t_end": pa.array((number + 1) * frames // parts / fps),
        "segment": pa.array(number.astype(np.int64)),
    }
    keys = pl.Series(pl.from_arrow(table["key"])) + pl.Series([f"-part{part}" for part in number.tolist()], dtype=pl.String)
    columns["key"] = pa.array(keys.to_arrow()).cast(pa.string())
    kept = table.drop_columns([name for name in columns if name in table.column_names])
    for name, column in columns.items():
        kept = kept.append_column(name, column)
    return kept
