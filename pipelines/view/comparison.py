"""Comparison of two runs, row by row."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ...curation.verify import Difference, compare
from ...eval.report.blocks import Block, Cell, CellValue, Section, Table, Text
from .cache import Cache
from .pages import filled_page, sections_page, whole
from .query import Refused, one_at_a_time
from .run_view import NotThere, ShownPicture, ShownRun, row_address

_MOST_ROWS = 60
"""Most rows shown for each kind of difference."""
_MOST_READ = 2_000_000
_PATIENCE_S = 30.0
_differences: Cache[Difference] = Cache(64, lambda _: 1)
_COMPARING = threading.Lock()
"""A comparison reads whole stages: only one runs at a time."""


def compare_page(first: ShownRun, second: ShownRun, stage: str) -> str:
    """The stages in which two runs differ; or, for one stage, its rows side by side."""
    if stage:
        if why := _not_compared(first, second, stage):
            raise Refused(f"stage {stage}: {why}")
        return _stage(first, second, _compared(first, second, stage))
    there = second.record.stages
    rows: list[Sequence[CellValue]] = []
    same = True
    for name in dict.fromkeys([*first.record.stages, *there]):
        if name not in there or name not in first.record.stages:
            rows.append([name, None, None, None, None, None, f"only in the {'first' if name not in there else 'second'} run"])
            same = False
        elif why := _not_compared(first, second, name):
            rows.append([name, None, None, None, None, None, why])
            same = False
        else:
            found = _compared(first, second, name)
            same = same and found.same
            rows.append(_line(found))
    headings = ["stage", "rows here", "rows there", "only here", "only there", "changed", ""]
    message = "The runs are the same." if same else "Stages that differ lead to their rows."
    sections = [Section("Stages", [Text([message], tone="good" if same else "note"), Table(headings, rows)])]
    return sections_page(first, "Two runs", f"{first.out} beside {second.out}", sections)


def _line(found: Difference) -> list[CellValue]:
    changed = len({key for keys in found.changed.values() for key in keys})
    more = [f"columns of one alone: {', '.join(found.columns)}"] * bool(found.columns)
    more += ["other order"] * found.moved
    text = "the same" if found.same else "; ".join(more) or None
    name = Cell(found.stage, href="" if found.same else f"/compare?stage={found.stage}")
    return [name, *found.rows, len(found.only_first), len(found.only_second), changed, text]


def _not_compared(first: ShownRun, second: ShownRun, stage: str) -> str:
    """Why a stage is not compared here; "" if it is."""
    here, there = first.artifact(stage), second.artifact(stage)
    if here is None or there is None:
        return f"not finished {'here' if here is None else 'there'}"
    if here.digest != there.digest and (rows := here.rows + there.rows) > _MOST_READ:
        return f"{rows:,} rows are too many to compare here: use benchwright compare"
    return ""


def _compared(first: ShownRun, second: ShownRun, stage: str) -> Difference:
    """The differences; cached by the digests of both stages."""
    artifacts = [run.artifact(stage) for run in (first, second)]
    key = (first.out, second.out, stage, *(one.digest for one in artifacts if one))
    if (found := _differences.get(key)) is not None:
        return found
    with one_at_a_time(_COMPARING, _PATIENCE_S, "another comparison has been running"):
        return _differences.keep(key, compare(first.out, second.out, stage=stage)[0])


def _stage(first: ShownRun, second: ShownRun, found: Difference) -> str:
    changed: dict[str, list[str]] = {}
    for column, keys in found.changed.items():
        for key in keys:
            changed.setdefault(key, []).append(column)
    parts = [
        ("changed", [*changed], (first, second)),
        ("only here", list(found.only_first), (first,)),
        ("only there", list(found.only_second), (second,)),
    ]
    for _, keys, runs in parts:
        for run in runs:
            run.remember(found.stage, run.rows(found.stage).by_keys(keys[:_MOST_ROWS]))
    groups = [
        {
            "title": title,
            "count": len(keys),
            "rows": [_row(found.stage, key, runs, changed.get(key, [])) for key in keys[:_MOST_ROWS]],
        }
        for title, keys, runs in parts
        if keys
    ]
    notes: list[Block] = []
    if found.moved:
        notes.append(Text(["The common rows are in a different order."]))
    if found.columns:
        notes.append(Text([f"Columns that only one of them has: {', '.join(found.columns)}."]))
    if found.same:
        notes.append(Text(["The stage is the same in both runs."], tone="good"))
    sections = [Section("In general", notes)] if notes else []
    subtitle = f"{first.out} beside {second.out}"
    return filled_page(first, "compare", f"{found.stage} in two runs", subtitle, groups=groups, sections=sections)


def _row(stage: str, key: str, runs: Sequence[ShownRun], columns: Sequence[str]) -> Mapping[str, Any]:
    """A key with its row in each run that has it."""
    sides: list[Mapping[str, Any]] = []
    for run in runs:
        try:
            row = run.row(stage, key)
        except NotThere:  # the stage was recomputed meanwhile
            continue
        names = [name for name, payload in run.payloads(stage, row).items() if payload.seen][:1]
        pictures: list[ShownPicture] = [ShownPicture.of(run, stage, key, name) for name in names]
        values = [(name, _value_text(row.get(name))) for name in columns]
        sides.append({"href": row_address(run, stage, key), "pictures": pictures, "values": values})
    return {"key": key, "sides": sides}


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return f"sha256 {str(value.get('sha256'))[:12]}"
    text = "–" if value is None else whole(value)
    return text if len(text) <= 200 else f"{text[:199]}…"
