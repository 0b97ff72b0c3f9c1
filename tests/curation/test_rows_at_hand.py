"""Rows that stay at hand for the next stage are those that would be read back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.curation.parquet import compact, write_parquet
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.store import Store

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False, metadata={"kind": "id"}),
        pa.field("licence", pa.string()),
        pa.field("mode", pa.string(), nullable=False, metadata={"kind": "mode"}),
        pa.field("number", pa.int64()),
    ]
)


@pytest.fixture
def both(tmp_path: Path) -> tuple[Rows, Rows]:
    """The same three parts, stored alone and at hand."""
    store = Store(str(tmp_path))
    parts, recent = list[PartInfo](), dict[str, pa.Table]()
    for n in range(3):
        licences = [None if row % 11 == 7 else ("by", "by-nc", "")[row % 3] for row in range(100)]
        table = pa.table([[f"{n}-{row}" for row in range(100)], licences, ["RGB"] * 100, list(range(100))], schema=SCHEMA)
        parts.append(PartInfo(f"part-{n}.parquet", 100))
        recent[parts[-1].name] = compact(table)
        with store.writing(parts[-1].name) as stream:
            write_parquet(stream, table, {})
    return Rows(store, SCHEMA, parts), Rows(store, SCHEMA, parts, recent)


def test_few_different_texts_are_dictionaries(both: tuple[Rows, Rows]) -> None:
    texts = pa.dictionary(pa.int32(), pa.string())
    for table in both[1].recent.values():
        assert [field.type for field in table.schema] == [pa.string(), texts, texts, pa.int64()]
    assert both[0].repetitive() == both[1].repetitive() == ["licence", "mode"]


@pytest.mark.parametrize("columns", [None, ["licence"], ["number", "mode", "licence"], ["key"]])
def test_rows_come_as_they_are_stored(both: tuple[Rows, Rows], columns: list[str] | None) -> None:
    stored, at_hand = (list(rows.batches(columns)) for rows in both)
    for left, right in zip(stored, at_hand, strict=True):
        assert left.schema.remove_metadata().equals(right.schema.remove_metadata(), check_metadata=True)
        assert left.equals(right)
    assert both[0].slice(95, 250, columns).equals(both[1].slice(95, 250, columns))
    assert both[0].table(columns).equals(both[1].table(columns))


def test_dictionaries_come_where_they_are_asked_for(both: tuple[Rows, Rows]) -> None:
    for left, right in zip(*(rows.batches(encoded=["licence"]) for rows in both), strict=True):
        assert pa.types.is_dictionary(left["licence"].type)
        assert pa.types.is_dictionary(right["licence"].type)
        assert left["licence"].to_pylist() == right["licence"].to_pylist()


@pytest.mark.parametrize("encoded", [["licence"], ["licence", "mode"], ["mode", "key"]])
def test_parts_of_a_run_that_went_on_are_as_those_of_the_one_before(both: tuple[Rows, Rows], encoded: list[str]) -> None:
    """Of a stage that was interrupted some parts are read, and those that were made now are at hand."""
    stored, at_hand = both
    mixed = dataclasses.replace(at_hand, recent={name: at_hand.recent[name] for name in list(at_hand.recent)[1:]})
    tables = list(mixed.batches(encoded=encoded))
    assert tables[0].schema.remove_metadata().equals(tables[1].schema.remove_metadata(), check_metadata=True)
    assert pa.concat_tables(tables).to_pylist() == stored.table().to_pylist()
