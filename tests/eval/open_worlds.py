"""A training in an open world without the engine: its tables as rows of a stage, and what is measured of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from benchwright.curation.keys import canonical
from benchwright.curation.rows import schema_of
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.store import Store
from benchwright.eval.protocols.open_world.measures import measure_open_world
from benchwright.eval.protocols.open_world.predictions import COLUMNS
from benchwright.eval.results import RESULTS, Value


def rows_of(tables: Iterable[pa.Table]) -> Rows:
    """The tables as the parts of a stage, in memory."""
    parts = {f"part-{number:05}.parquet": table for number, table in enumerate(tables)}
    return Rows(Store("memory://none"), COLUMNS, tuple(PartInfo(name, t.num_rows) for name, t in parts.items()), parts)


def results_of(
    rows: Rows, *, feedback: float, method: str, settings: Mapping[str, Any] | None = None, seed: int = 0
) -> pa.Table:
    """A table of results with what is measured of one training."""
    values = list(measure_open_world(predictions=rows))
    assert len({value.key for value in values}) == len(values)
    measured = pa.Table.from_pylist([vars(value) for value in values], schema=schema_of(Value))
    facts = {"benchmark": "kowl", "dataset": "", "experiment": "", "protocol": f"feedback {feedback:g}", "method": method}
    facts |= {"model": "", "settings": canonical(settings or {}), "seed": seed}
    columns = {name: pa.array([facts[name]] * len(values)) if name in facts else measured[name] for name in RESULTS.names}
    return pa.table(columns, schema=RESULTS)
