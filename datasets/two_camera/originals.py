"""Rows that were measured, said to be so."""

from __future__ import annotations

import pyarrow as pa

from ...curation.rows import with_column


def mark_originals(table: pa.Table) -> pa.Table:
    """Table step: the columns of ``rows.Augmented``, for rows that were all measured."""
    table = with_column(table, "source_key", table["key"])
    table = with_column(table, "target_key", pa.array([""] * table.num_rows, pa.string()))
    return with_column(table, "original", pa.array([True] * table.num_rows))
