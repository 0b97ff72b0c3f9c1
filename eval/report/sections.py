"""Sections used by the reports of several benchmarks, composed of blocks from plain numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from ...curation.stage_rows import Rows
from ...curation.store import Store
from .blocks import Album, Block, CellValue, Details, ImageGrid, Section, Sheet, Table, Text, Thumb, value_of
from .images import enlarged, small
from .plan_chart import short_digest


def counts_table(counts: ArrayLike, rows: Sequence[str], columns: Sequence[str], *, what: str, caption: str) -> Table:
    """A table of counts with sums: ``counts`` (r, c) integers >= 0, ``what`` the heading of the row names."""
    values = np.asarray(counts, dtype=np.int64)
    if values.shape != (len(rows), len(columns)):
        raise ValueError(f"counts {values.shape} for {len(rows)} rows and {len(columns)} columns")
    body = [[name, *row, sum(row)] for name, row in zip(rows, values.tolist(), strict=True)]
    total = ["all", *values.sum(0).tolist(), int(values.sum())]
    return Table([what, *columns, "all"], body, caption, total=total)


def task_table(rows: pa.Table, roles: Sequence[str], caption: str) -> Table:
    """Classes and samples of each task by role, with their sums.

    Args:
        rows: columns ``task``, ``label`` and ``role``.
        roles: roles in the order of the columns.
        caption: caption of the table.
    """
    in_role = {role: pc.equal(rows["role"], role).cast(pa.int64()) for role in roles}
    table = pa.table({"task": rows["task"], "label": rows["label"], **in_role}).group_by("task")
    wanted = [("label", "count_distinct", pc.CountOptions(mode="all")), *((role, "sum") for role in roles), ([], "count_all")]
    table = table.aggregate(wanted).sort_by("task")
    columns = [column.to_pylist() for column in table.columns]
    lines: list[Sequence[CellValue]] = [[str(task), *values] for task, *values in zip(*columns, strict=True)]
    totals = [sum(column) for column in columns[1:]]
    return Table(["task", "classes", *roles, "all"], lines, caption, total=["all", *totals])


def picture_sheets(
    rows: pa.Table,
    places: Mapping[str, Mapping[str, Sequence[int]]],
    store: Store,
    *,
    title: str,
    intro: str,
    side_px: int,
    facets: Sequence[str],
) -> Section:
    """Contact sheets of the pictures of some rows.

    Args:
        rows: ``key`` and ``image``, and optionally ``score``.
        places: class -> part of the class -> rows.
        store: store with the bytes of ``image``.
        title, intro, side_px, facets: see ``contact_section``.
    """

    def thumb(row: int) -> Thumb:
        key = rows["key"][row].as_py()
        score = rows["score"][row].as_py() if "score" in rows.column_names else None
        return Thumb(small(store.blob(rows["image"][row].as_py()).read(), enlarged(side_px), where=key), key, score)

    thumbs = {name: {part: [thumb(row) for row in each] for part, each in parts.items()} for name, parts in places.items()}
    return contact_section(thumbs, title=title, intro=intro, side_px=side_px, facets=facets)


def sample_sheet(
    rows: Rows, places: Mapping[str, Sequence[int | None]], *, store: Store, columns: Sequence[tuple[str, str]], caption: str
) -> Sheet:
    """Pictures of some rows of a stage, in rows and columns.

    Args:
        rows: rows with ``key`` and ``image``.
        places: name of a row of the sheet -> a row of the stage for each column, None if there is none.
        store: store with the bytes of ``image``.
        columns, caption: see ``Sheet``.
    """
    wanted = sorted({at for each in places.values() for at in each if at is not None})
    table = rows.table(["key", "image"]).take(wanted)
    images = dict(zip(wanted, table.to_pylist(), strict=True))

    def thumb(at: int) -> Thumb:
        key = images[at]["key"]
        return Thumb(small(store.blob(images[at]["image"]).read(), enlarged(Sheet.side_px), where=key), key)

    shown = [(name, [None if at is None else thumb(at) for at in each]) for name, each in places.items()]
    return Sheet(columns, shown, caption)


def contact_section(
    thumbs: Mapping[str, Mapping[str, Sequence[Thumb]]],
    *,
    title: str,
    intro: str,
    side_px: int = 96,
    facets: Sequence[str] = ("class", "bucket"),
) -> Section:
    """Contact sheets: a grid for each part of each class.

    Args:
        thumbs: class -> heading of the part -> pictures.
        title, intro: title and introduction of the section.
        side_px: see ``ImageGrid``.
        facets: what the reader filters by: the class, or also the part, by its heading up to the first colon.
    """
    grids = [
        ((name, part.partition(":")[0])[: len(facets)], ImageGrid(f"{name}, {part}", images, side_px))
        for name, parts in thumbs.items()
        for part, images in parts.items()
    ]
    return Section(title, [Text([intro]), *([Album(facets, grids)] if grids else [])])


def folded(parts: Mapping[str, Sequence[Block]]) -> list[Block]:
    """The blocks of each part below its name, the first part opened; without names if there is only one part."""
    if len(parts) < 2:
        return [block for blocks in parts.values() for block in blocks]
    return [Details(name, blocks, opened=at == 0) for at, (name, blocks) in enumerate(parts.items()) if blocks]


@dataclasses.dataclass(frozen=True)
class Provenance:
    """A source: its name, licence, digest, and what it is."""

    name: str
    licence: str
    sha256: str = ""
    what: str = ""


def provenance_section(sources: Sequence[Provenance]) -> Section:
    """Table of the sources; columns that are empty for all of them are left out."""
    rows = [[each.name, each.what or None, each.licence or None, short_digest(each.sha256)] for each in sources]
    headings = ["source", "what it is", "licence", "SHA-256"]
    return Section("Provenance", [without_empty_columns(Table(headings, rows))])


def without_empty_columns(table: Table) -> Table:
    """The table without columns that are empty in every row; the first column always stays."""

    lines = [at for at in range(len(table.columns)) if at == 0 or any(value_of(row[at]) is not None for row in table.rows)]
    rows = [[row[at] for at in lines] for row in table.rows]
    return dataclasses.replace(table, columns=[table.columns[at] for at in lines], rows=rows)
