"""Tables as the rows of a finished stage, for tests that call a whole step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from benchwright.curation.parquet import write_parquet
from benchwright.curation.rows import Sifted
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.store import Store


def stored(folder: Path, *tables: pa.Table) -> Rows:
    """Each table as a part."""
    store = Store(str(folder))
    infos: list[PartInfo] = []
    schema = pa.schema(
        [pa.field(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in tables[0].schema]
    )
    for number, table in enumerate(tables):
        name = f"part-{number:05d}.parquet"
        with store.writing(name) as stream:
            write_parquet(stream, table.cast(schema), {})
        infos.append(PartInfo(name, table.num_rows))
    return Rows(store, schema, tuple(infos))


def gathered(results) -> tuple[pa.Table, list[tuple[str, str, str]]]:
    """All kept rows, and all rejects as (key, reason, detail)."""
    items = [item if isinstance(item, Sifted) else Sifted(item, None) for item in results]
    rejects = [tuple(row.values()) for item in items if item.rejected is not None for row in item.rejected.to_pylist()]
    return pa.concat_tables([item.kept for item in items]), rejects
