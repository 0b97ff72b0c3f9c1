"""Tables of clips for tests of steps, and the rows of a stage that stands for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from benchwright.curation.rows import Rejected, schema_of


class Held:
    """What a whole step asks of a stage's rows, from tables in memory, one a part."""

    def __init__(self, *parts: pa.Table) -> None:
        self.parts = parts
        self.column_names = parts[0].column_names
        self.num_rows = sum(part.num_rows for part in parts)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        table = pa.concat_tables(self.parts)
        return table if columns is None else table.select(list(columns))

    def batches(self, columns: Sequence[str] | None = None) -> Iterable[pa.Table]:
        return (part if columns is None else part.select(list(columns)) for part in self.parts)


def taken(rows: Iterable[object], row_type: type) -> tuple[pa.Table, dict[str, int]]:
    """What a source gave: its rows as a table, and its rejects counted by reason."""
    kept, reasons = [], {}
    for row in rows:
        if isinstance(row, Rejected):
            reasons[row.reason] = reasons.get(row.reason, 0) + 1
        else:
            kept.append(vars(row))
    return pa.Table.from_pylist(kept, schema=schema_of(row_type)), reasons
