"""Tables as Parquet files: uncompressed, with a record in the footer, read by row groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP = 16384
"""Rows per Parquet row group, the minimum that a task reads when it needs a few rows of a large part."""

_FEW = 4096
"""Rows below which a row group is read without threads, which takes a third less CPU time."""

SAMPLE = 4096
"""Number of rows by which to decide whether a text column is stored as a dictionary."""


def read_groups(file: pq.ParquetFile, columns: Sequence[str] | None, start: int, stop: int | None) -> pa.Table:
    """Rows [start, stop); reads only the row groups that contain them."""
    groups, first, row = [], 0, 0
    for index in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(index).num_rows
        if row + rows > start and (stop is None or row < stop):
            first = row if not groups else first
            groups.append(index)
        row += rows
    wanted = list(columns) if columns is not None else None
    few = len(groups) == 1 and file.metadata.row_group(groups[0]).num_rows < _FEW  # threads would cost more than they gain
    table = file.read_row_groups(groups, columns=wanted, use_threads=not few)
    return table.slice(start - first if groups else 0, None if stop is None else stop - start)


def write_parquet(stream: IO[bytes], table: pa.Table, record: Any) -> None:
    """Write rows with a record in the footer. The same rows give the same bytes with one version of pyarrow."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    table = table.replace_schema_metadata({"benchwright": text})
    pq.write_table(
        table,
        stream,
        compression="none",
        row_group_size=ROW_GROUP,
        write_batch_size=ROW_GROUP,  # a whole column of a row group: takes a fifth less time than batches of 1024 values
        use_dictionary=repetitive(table),  # pyright: ignore[reportArgumentType]  # column names are accepted, too
        write_statistics=False,
        store_schema=True,
    )


def repetitive(table: pa.Table) -> list[str]:
    """Columns with few distinct values in their first rows. For other columns, a dictionary costs more than it saves."""
    columns: list[str] = []
    for field in table.schema:
        if pa.types.is_string(field.type):
            sample = table[field.name].slice(0, SAMPLE)
            if len(sample) >= 4 * len(sample.unique()):
                columns.append(field.name)
        elif pa.types.is_struct(field.type):
            columns.append(f"{field.name}.file")
    return columns


def compact(table: pa.Table) -> pa.Table:
    """The table with text columns of few distinct values as dictionaries, which take less memory."""
    for name in set(repetitive(table)).intersection(table.column_names):
        encoded, field = table[name].dictionary_encode(), table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field.with_type(encoded.type), encoded)
    return table
