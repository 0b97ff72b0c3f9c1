"""The pages of a run: its plan, tables of rows, single rows, rejected rows and results."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import Artifact
from ...curation.package_data import package_text
from ...curation.rows import is_array, is_blob
from ...eval.report.blocks import Block, Card, Cards, Cell, CellValue, Section, Table, Text
from ...eval.report.html import filled
from ...eval.report.label_trees import tree_figure
from ...eval.report.plan_chart import pipeline_section, plan_chart
from ...eval.results import Line
from ..benchmark import find
from ..report import ReportedRun, plan_stage, position_sections, results_sections
from ..samples import rejects_sections
from .query import OPERATORS, SIMILARITY, Condition, Query, one_at_a_time
from .run_view import ShownPicture, ShownRun, pictured, row_address
from .similarity import find_part, map_part, near_duplicate_groups, view_of
from .table import MOST_DOWNLOADED, Bars, ParquetRows
from .trainings import training_blocks
from .vectors import vector_columns

_LETTERS = 80
"""Most characters of a value in a table."""
_HISTOGRAMS = 40
"""Most columns for which all histograms are drawn."""
_LEAVES = 2000
_DRAWING = threading.Lock()
_PATIENCE_S = 30.0


def drawing() -> contextlib.AbstractContextManager[None]:
    """Lock for matplotlib, whose settings are global: one thread at a time. ``Refused`` if others draw for too long."""
    return one_at_a_time(_DRAWING, _PATIENCE_S, "other pages have been rendering")


def filled_page(run: ShownRun, kind: str, title: str, subtitle: str = "", **more: Any) -> str:
    """A page of ``view.html``.

    Args:
        run: run that the page shows.
        kind: part of the template.
        title, subtitle: title and subtitle of the page.
        more: values for that part.
    """
    record = run.record
    links = [("Plan", "/"), ("Rejected rows", "/rejects"), ("Results", "/results")]
    nav = [(name, run.base + place) for name, place in links]
    nav += [
        ("Compare", "/compare"),
        ("This run" if run.base else "The other run", "/" if run.base else "/other/"),
    ] * run.compared
    stages = [(name, f"{run.base}/stage/{name}") for name in record.stages]
    values: dict[str, Any] = {"kind": kind, "title": title, "subtitle": subtitle, "out": run.out, "nav": nav, "stages": stages}
    values |= {"sections": [], "base": run.base, "linkable": _linkable, "live": False, "operators": OPERATORS}
    return filled(package_text(__package__, "frame.html") + package_text(__package__, "view.html"), **{**values, **more})


def _linkable(href: str) -> bool:
    return href.startswith(("http://", "https://")) or (href.startswith("/") and not href.startswith(("//", "/\\")))


def sections_page(run: ShownRun, title: str, subtitle: str, sections: Sequence[Section], *, live: bool = False) -> str:
    """A page that consists of sections of blocks."""
    return filled_page(run, "sections", title, subtitle, sections=sections, live=live)


def error_page(run: ShownRun, why: str) -> str:
    """An error page of one line."""
    return sections_page(run, "This cannot be shown", "", [Section("Why", [Text([why[:1500]], tone="bad")])])


# ----------------------------------------------------------------------------------------------------------------- plan


def plan_page(run: ShownRun) -> str:
    """The plan as a diagram whose boxes link to the rows of their stages and, for an unfinished run, its progress."""
    record, stages = run.record, run.stages()
    plan = [
        dataclasses.replace(plan_stage(run.store, name, made), href=f"{run.base}/stage/{name}") for name, made in stages.items()
    ]
    pending = [name for name, made in stages.items() if made is None]
    made = [one for one in stages.values() if one is not None]
    lost = sum(sum(one.rejects.values()) for one in made)
    cards = [
        Card("stages finished", f"{len(made)} of {len(stages)}"),
        Card("rows of the last one", made[-1].rows if made else 0, f"stage {made[-1].stage}" if made else ""),
        Card("rows rejected", lost, "each with its reason", tone="note" if lost else "plain"),
    ]
    section = pipeline_section(plan)
    blocks = [_with_links(run, block) if isinstance(block, Table) else block for block in section.blocks]
    caption = "Each box links to the rows of its stage. The width of a band is the number of rows; on the right: rejected rows."
    with drawing():
        drawn = plan_chart(plan, caption=caption)
        sections = [
            Section("Plan", [Cards(cards), *_progress(run, stages, pending), drawn]),
            Section("Stages", blocks),
            Section("Search", [_searched(run, made)]),
        ]
        return sections_page(run, f"Pipeline {record.pipeline}", run.out, sections, live=bool(pending))


def _searched(run: ShownRun, made: Sequence[Artifact]) -> Block:
    """The stages whose rows can be searched by similarity."""
    found = [(one.stage, ", ".join(columns)) for one in made if (columns := vector_columns(run.rows(one.stage).schema))]
    if not found:
        return Text(["No stage has vectors: rows can be searched only by their columns."])
    rows: list[Sequence[CellValue]] = [[Cell(stage, href=f"{run.base}/stage/{stage}"), columns] for stage, columns in found]
    return Table(["stage that can be searched and drawn as a map", "vectors"], rows)


def _with_links(run: ShownRun, table: Table) -> Table:
    """The table of stages, with links to their rows and rejected rows."""
    lost = table.columns.index("rejects")
    rows: list[list[CellValue]] = []
    for row in table.rows:
        stage = f"{run.base}/stage/{row[0]}"
        linked = [Cell(str(row[0]), href=stage), *row[1:]]
        linked[lost] = Cell(row[lost], href=f"{stage}/rejects") if row[lost] else row[lost]  # type: ignore[arg-type]
        rows.append(linked)
    return dataclasses.replace(table, rows=rows)


def _progress(run: ShownRun, stages: Mapping[str, Artifact | None], pending: Sequence[str]) -> list[Block]:
    """Progress of the first stage that is not finished."""
    if not pending:
        return []
    name = pending[0]
    so_far = run.progress(name)
    earlier = list(stages)[: list(stages).index(name)]
    above = stages[earlier[-1]] if earlier else None
    total = f" of {above.rows:,}" if above and so_far["done"] <= above.rows else ""
    reasons = sorted(so_far["rejects"].items(), key=lambda each: (-each[1], each[0]))
    text = ", ".join(f"{reason} {rows:,}" for reason, rows in reasons) or "none"
    lines: list[Sequence[CellValue]] = [
        [
            Cell(name, href=f"{run.base}/stage/{name}"),
            so_far["parts"],
            f"{so_far['done']:,}{total}",
            None if so_far["rate"] is None else f"{so_far['rate']:,.0f} rows/s",
            Cell(text, href=f"{run.base}/stage/{name}/rejects" if reasons else ""),
            None if so_far["since"] is None else f"{so_far['since']:,.0f} s ago",
        ]
    ]
    headings = ["stage", "parts written", "rows done", "rate", "rejected so far", "last part"]
    why = f"The run is not finished: stage {name} is being made, or waits to be; {len(pending) - 1} more follow."
    return [Text([why], tone="note"), Table(headings, lines)]


# ----------------------------------------------------------------------------------------------------------------- rows


def stage_page(run: ShownRun, stage: str, asked: Sequence[tuple[str, str]], *, rejected: bool = False) -> str:
    """Rows of a stage, or its rejected rows: the view that the address describes."""
    rows, query = view_of(run, stage, asked, rejected=rejected)
    found = rows.page(query)
    here = f"{run.base}/stage/{stage}{'/rejects' if rejected else ''}"
    columns = rows.plain[:_HISTOGRAMS] if query.histogram == "all" else [query.histogram] * bool(query.histogram)
    bars = [_linked(rows.histogram(name, query), query, here) for name in columns]
    artifact = run.artifact(stage)
    made = artifact.kind if artifact else "not finished: the parts that are there"
    lost = sum(artifact.rejects.values()) if artifact else sum(run.part_rejects(stage).values())
    lines = _groups(rows, query, found.rows, here) if query.group else _lines(run, stage, rows, found.rows, rejected=rejected)
    pages = max(1, -(-found.total // query.size)) if not query.group else 1
    return filled_page(
        run,
        "stage",
        f"{stage}: rejected rows" if rejected else stage,
        made,
        sections=[] if rejected or query.conditions or query.group or rows.chosen else _trees(rows),
        find=None if rejected else find_part(run, stage, run.rows(stage), query, here),
        map=None if rejected else map_part(run, stage, run.rows(stage), query, here),
        kept=query.pairs(conditions=(), sort="", group="", histogram="", size=Query.size),
        here=here,
        stage=stage,
        rejected=rejected,
        lost=lost,
        query=query,
        columns=rows.plain,
        headings=_headings(rows, query, here, rejected=rejected),
        lines=lines,
        total=found.total,
        count=rows.count,
        page_count=pages,
        before=f"{here}?{query.address(page=query.page - 1)}" if query.page > 1 else "",
        after=f"{here}?{query.address(page=query.page + 1)}" if query.page < pages else "",
        bars=bars,
        everything=f"{here}?{query.address(histogram='all')}",
        downloads=[]
        if rejected or query.group
        else [(form, f"{here}/rows.{form}?{query.address()}") for form in ("csv", "parquet")],
        most=MOST_DOWNLOADED,
        live=artifact is None,
    )


def groups_page(run: ShownRun, stage: str, asked: Mapping[str, str]) -> str:
    """Groups of near-duplicates of a stage, with their pictures."""
    found = near_duplicate_groups(run, stage, asked)
    subtitle = f"by {found['column']}" + (f", cosine {found['least']:g} or more" if found["least"] else "")
    return filled_page(run, "groups", f"{stage}: near-duplicates", subtitle, stage=stage, **found)


def _headings(rows: ParquetRows, query: Query, here: str, *, rejected: bool) -> list[tuple[str, str, str]]:
    """Name, address of the view sorted by that column (reversed if it is sorted so already), and the current direction."""
    if query.group:
        return [(query.group, "", ""), ("rows", "", "")]
    found: list[tuple[str, str, str]] = []
    for name in _shown_columns(rows):
        sorted_now = query.sort == name
        address = query.address(sort=name, down=sorted_now and not query.down) if name in rows.plain else ""
        way = ("descending" if query.down else "ascending") if sorted_now else ""
        found.append((name, f"{here}?{address}" if address else "", way))
    return found


def _shown_columns(rows: ParquetRows) -> list[str]:
    """Columns in order: the key, the similarity in a search, payloads, then the others."""
    names = rows.schema.names
    first = ["key", *[SIMILARITY] * (rows.chosen is not None and rows.chosen.shown)]
    payload = [name for name in names if name not in rows.plain]
    return [*first, *payload, *(name for name in rows.plain if name not in first)]


def _groups(rows: ParquetRows, query: Query, found: Sequence[Mapping[str, Any]], here: str) -> list[Mapping[str, Any]]:
    lines: list[Mapping[str, Any]] = []
    for row in found:
        chosen = (*query.conditions, *rows.being(query.group, row["value"]))
        href = f"{here}?{query.address(group='', sort='', conditions=chosen)}" if len(chosen) > len(query.conditions) else ""
        lines.append({"href": href, "pictures": [], "cells": [cell(row["value"]), cell(row["rows"])]})
    return lines


def _lines(
    run: ShownRun, stage: str, rows: ParquetRows, found: list[dict[str, Any]], *, rejected: bool
) -> list[Mapping[str, Any]]:
    if rejected:
        return [{"href": "", "pictures": [], "cells": [cell(row[name]) for name in rows.schema.names]} for row in found]
    run.remember(stage, found)
    seen = pictured(run, stage, found)
    fields = {field.name: field for field in rows.schema}
    return [
        {
            "href": row_address(run, stage, row["key"]),
            "pictures": [ShownPicture.of(run, stage, row["key"], name) for name in seen],
            "cells": [cell(row[name], fields[name]) for name in _shown_columns(rows)],
        }
        for row in found
    ]


def cell(value: Any, field: pa.Field | None = None) -> Cell:
    """A value as a table shows it; a long one is cut, and shown in full when hovering."""
    if field is not None and is_blob(field):
        return Cell(None if value is None else f"{value['size']:,} bytes")
    if field is not None and is_array(field):
        return Cell(None if value is None else f"{(field.metadata or {}).get(b'dtype', b'').decode()} array")
    if value is None or isinstance(value, int):
        return Cell(value)
    if isinstance(value, float):
        return Cell(f"{value:.6g}" if math.isfinite(value) else str(value))
    text = whole(value)
    return Cell(text, title="") if len(text) <= _LETTERS else Cell(f"{text[: _LETTERS - 1]}…", title=text[:2000])


def whole(value: Any) -> str:
    """A value as text."""
    if isinstance(value, bytes):
        return f"{len(value):,} bytes: {value[:32].hex()}"
    if isinstance(value, list):
        return ", ".join(f"{item:.6g}" if isinstance(item, float) else str(item) for item in value)
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    return str(value)


def _linked(bars: Bars, query: Query, here: str) -> Mapping[str, Any]:
    """A histogram whose bars link to their rows."""
    most = max([count for _, count, _ in bars.bars], default=1) or 1
    lines = [
        {
            "label": label,
            "rows": count,
            "share": f"{100 * count / most:.1f}",
            "href": f"{here}?{query.address(conditions=(*query.conditions, *chosen))}" if chosen and count else "",
        }
        for label, count, chosen in bars.bars
    ]
    return {"column": bars.column, "bars": lines, "summary": bars.summary}


def _trees(rows: ParquetRows) -> list[Section]:
    """The labels of rows with two levels of labels, as a tree."""
    if not {"superclass", "subclass"} <= {*rows.plain}:
        return []
    groups: dict[str, list[str]] = {}
    lone: list[str] = []
    for pair in rows.distinct(["superclass", "subclass"], _LEAVES):
        if pair["subclass"] is not None:
            (lone if pair["superclass"] is None else groups.setdefault(pair["superclass"], [])).append(pair["subclass"])
    if not groups and not lone:
        return []
    with drawing():
        return [Section("Labels", [tree_figure(groups, lone, caption="Superclasses and their subclasses.")])]


def for_csv(table: pa.Table) -> pa.Table:
    """The table with lists and bytes as text, which CSV can hold."""
    for at, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            texts = [None if value is None else whole(value) for value in table[at].to_pylist()]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
    return table


# ----------------------------------------------------------------------------------------------- rejected rows, results


def rejects_page(run: ShownRun) -> str:
    """Rejected rows by stage and reason, with an example and some pictures; also for unfinished stages."""
    stages = run.stages()
    made = {name: one for name, one in stages.items() if one is not None}
    counts = {name: dict(one.rejects) if one is not None else run.part_rejects(name) for name, one in stages.items()}
    lines: list[Sequence[CellValue]] = []
    for stage, reasons in counts.items():
        for reason, rows in sorted(reasons.items(), key=lambda each: (-each[1], each[0])):
            there = Query((Condition("reason", "eq", reason),)).address()
            lines.append([stage, Cell(reason, href=f"{run.base}/stage/{stage}/rejects?{there}"), rows])
    if not lines:
        return sections_page(run, "Rejected rows", "", [Section("By reason", [Text(["No row was rejected."])])])
    total = ["all", None, sum(rows for reasons in counts.values() for rows in reasons.values())]
    sections = [Section("By reason", [Table(["stage", "reason", "rows"], lines, total=total)])]
    for section in rejects_sections(run.store, made):
        sections.append(Section("Examples", section.blocks))
    return sections_page(run, "Rejected rows", "each with its reason", sections, live=len(made) < len(stages))


def results_page(run: ShownRun) -> str:
    """Metrics, curves and matrices of all trainings side by side, labelled by the settings in which they differ."""
    reported, waiting = ReportedRun.of(run.out), training_blocks(run)
    at_work = [Section("Trainings", waiting)] if waiting else []
    if not reported.lines:
        text = f"Nothing is trained on this run yet: `benchwright train {run.out}`."
        return sections_page(run, "Results", "", at_work or [Section("Trainings", [Text([text])])], live=bool(waiting))
    with drawing():
        sections = [*at_work, *results_sections(reported, _metrics(run, reported.lines)), *position_sections(reported)]
        return sections_page(run, "Results", f"{len(reported.lines)} lines of trainings", sections, live=bool(waiting))


def _metrics(run: ShownRun, lines: Sequence[Line]) -> Mapping[str, str]:
    """Heading -> metric: the benchmark's choice; for a user's pipeline, whose code is not loaded, all metrics of whole
    trainings that have a split, since the others are shown anyway.
    """
    record = run.record
    if "pipeline" not in record.code and (shown := find(record.pipeline).shown):
        return shown
    whole = [line.rows.filter(pc.is_null(line.rows["position"])) for line in lines]
    parts = [rows.filter(pc.not_equal(rows["split"], "")) for rows in whole]
    return {name: name for name in dict.fromkeys(name for part in parts for name in part["metric"].to_pylist())}
