"""Two runs side by side: what differs, row by row."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ...curation.verify import Difference, compare
from ...eval.report.blocks import Block, Cell, Section, Table, Text, Value
from .pages import filled_page, sections_page, whole
from .shown import NotThere, Picture, ShownRun, row_address

_MOST_ROWS = 60
"""Rows of a kind of difference that are shown."""
_COMPARING = threading.Lock()
"""A comparison reads whole stages: one at a time."""


def compare_page(first: ShownRun, second: ShownRun, stage: str) -> str:
    """The stages in which two runs differ; or of one stage the rows, beside each other."""
    if stage:
        first.artifact(stage)
        second.artifact(stage)
    with _COMPARING:
        found = compare(first.out, second.out, stage=stage or None)
    if stage:
        return _stage(first, second, found[0])
    rows: list[Sequence[Value]] = []
    for each in found:
        if each.only_in:
            rows.append([each.stage, None, None, None, None, None, f"only in the {each.only_in} run"])
            continue
        changed = len({key for keys in each.changed.values() for key in keys})
        more = [f"columns of one alone: {', '.join(each.columns)}"] * bool(each.columns)
        more += ["other order"] * each.moved
        told = "the same" if each.same else "; ".join(more) or None
        name = Cell(each.stage, href="" if each.same else f"/compare?stage={each.stage}")
        rows.append([name, *each.rows, len(each.only_first), len(each.only_second), changed, told])
    headings = ["stage", "rows here", "rows there", "only here", "only there", "changed", ""]
    same = all(each.same for each in found)
    verdict = Text(
        ["The runs are the same."] if same else ["Stages that differ lead to their rows."], tone="good" if same else "note"
    )
    return sections_page(
        first, "Two runs", f"{first.out} beside {second.out}", [Section("Stages", [verdict, Table(headings, rows)])]
    )


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
        notes.append(Text(["The rows that both have stand in another order."]))
    if found.columns:
        notes.append(Text([f"Columns that only one of them has: {', '.join(found.columns)}."]))
    if found.same:
        notes.append(Text(["The stage is the same in both runs."], tone="good"))
    sections = [Section("In general", notes)] if notes else []
    subtitle = f"{first.out} beside {second.out}"
    return filled_page(first, "compare", f"{found.stage} in two runs", subtitle, groups=groups, sections=sections)


def _row(stage: str, key: str, runs: Sequence[ShownRun], columns: Sequence[str]) -> Mapping[str, Any]:
    """A key with its row in each of the runs that have it."""
    sides: list[Mapping[str, Any]] = []
    for run in runs:
        try:
            row = run.row(stage, key)
        except NotThere:  # made again meanwhile
            continue
        names = [name for name, payload in run.payloads(stage, row).items() if payload.seen][:1]
        pictures: list[Picture] = [Picture.of(run, stage, key, name) for name in names]
        values = [(name, _told(row.get(name))) for name in columns]
        sides.append({"href": row_address(run, stage, key), "pictures": pictures, "values": values})
    return {"key": key, "sides": sides}


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return f"sha256 {str(value.get('sha256'))[:12]}"
    text = "–" if value is None else whole(value)
    return text if len(text) <= 200 else f"{text[:199]}…"
