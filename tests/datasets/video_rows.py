"""Tables of clips for tests of steps, and the rows of a stage that stands for one."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from benchwright.curation.rows import Rejected, schema_of
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.store import Store


class Held(Rows):
    """Rows of a stage, from tables in memory, one a part."""

    def __init__(self, *parts: pa.Table) -> None:
        infos = [PartInfo(str(number), part.num_rows) for number, part in enumerate(parts)]
        super().__init__(Store("."), parts[0].schema, tuple(infos), {str(number): part for number, part in enumerate(parts)})


def taken(rows: Iterable[object], row_type: type) -> tuple[pa.Table, dict[str, int]]:
    """What a source gave: its rows as a table, and its rejects counted by reason."""
    kept, reasons = [], {}
    for row in rows:
        if isinstance(row, Rejected):
            reasons[row.reason] = reasons.get(row.reason, 0) + 1
        else:
            kept.append(vars(row))
    return pa.Table.from_pylist(kept, schema=schema_of(row_type)), reasons
