"""Pages of vectors: searches, neighbours of a row, groups of near-duplicates, and maps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from ...curation.stages.image_format import PILLOW_NAMES, sniff_extension
from ...curation.stages.near_duplicates import MIN_COSINE
from . import maps
from .query import Condition, Query, Refused
from .run_view import NotThere, ShownPicture, ShownRun, pictured, row_address
from .table import Chosen, ParquetRows
from .vectors import MOST_ALIKE, VectorColumn, encode, made_by, near_groups, vector_columns

MOST_PICTURE_BYTES = 1 << 24
_NEIGHBOURS = 12
_GROUPS, _MEMBERS = 24, 8
"""Groups of near-duplicates on a page, and rows shown of each."""


def view_of(
    run: ShownRun, stage: str, asked: Sequence[tuple[str, str]], *, rejected: bool = False
) -> tuple[ParquetRows, Query]:
    """The rows that an address selects, among all or among the rejected ones, and the query."""
    rows = run.rejects(stage) if rejected else run.rows(stage)
    query = Query.of(asked, rows.plain)
    if not (query.lasso or query.searching):
        return rows, query
    if rejected:
        raise Refused("rejected rows have no vectors: search those that were kept")
    vectors = VectorColumn.of(run, stage, query.vectors)
    inside = maps.enclosed(maps.plane(vectors, query.map or maps.KINDS[0]), query.lasso) if query.lasso else None
    if not query.searching:
        numbers = inside if inside is not None else np.empty(0, np.int64)
        return rows.choosing(Chosen(numbers, np.zeros(len(numbers)), shown=False)), query
    among = rows.fitting(query)
    if inside is not None:
        within: NDArray[np.bool_] = np.zeros(rows.count, bool)
        within[inside] = True
        among = within if among is None else among & within
    return rows.choosing(Chosen(*vectors.alike(_wanted(run, vectors, query), MOST_ALIKE, among))), query


def _wanted(run: ShownRun, vectors: VectorColumn, query: Query) -> NDArray[np.float32]:
    """The vector to search for."""
    if query.near:
        return vectors.one(query.near)
    return encode(vectors, query.like or kept_picture(run, query.picture))


def keep_picture(run: ShownRun, data: bytes) -> str:
    """Hold a picture that a visitor sent, so that similar rows can be searched, and return its digest.

    Raises:
        Refused: it is not a picture of a supported format.
    """
    if sniff_extension(data) not in PILLOW_NAMES:
        raise Refused(f"{len(data):,} bytes that are no picture of {', '.join(PILLOW_NAMES)}")
    digest = hashlib.sha256(data).hexdigest()
    run.pictures.keep(digest, data)
    return digest


def kept_picture(run: ShownRun, digest: str) -> bytes:
    """A picture that was sent recently. Raises ``NotThere`` if it is not cached."""
    if (data := run.pictures.get(digest)) is None:
        raise NotThere("this picture is no longer cached: choose its file again")
    return data


def find_part(run: ShownRun, stage: str, rows: ParquetRows, query: Query, here: str) -> Mapping[str, Any] | None:
    """Values for the search form; None for a stage without vectors."""
    columns = vector_columns(rows.schema)
    if not columns or run.artifact(stage) is None:
        return None
    vectors = VectorColumn.of(run, stage, query.vectors)
    made = made_by(vectors)
    stop = f"{here}?{query.address(like='', near='', picture='', sort='' if query.sort == 'similarity' else query.sort)}"
    return {
        "columns": columns,
        "column": vectors.column,
        "reason": made.reason,
        "texts": made.spec is not None and made.spec.kind != "efficientnet_lite",
        "pictures": made.spec is not None,
        "most": MOST_ALIKE,
        "stop": stop,
        "hidden": query.pairs(like="", near="", picture="", vectors="", sort=""),
        "groups": f"{here}/groups?{urlencode({'vectors': vectors.column})}",
        "inside": f"{here}?{query.address(lasso='')}" if query.lasso else "",
        "thumb": f"{run.base}/picture/{query.picture}" if run.pictures.get(query.picture) else "",
    }


def map_part(run: ShownRun, stage: str, rows: ParquetRows, query: Query, here: str) -> Mapping[str, Any] | None:
    """Values for drawing the map of a stage; None for a stage without vectors."""
    artifact = run.artifact(stage)
    if not vector_columns(rows.schema) or artifact is None:
        return None
    kinds = {"pca": "principal axes", "umap": "UMAP"}
    shown = bool(query.map or query.lasso) or artifact.rows <= maps.AT_ONCE
    return {
        "data": f"{here}/map?{query.address()}" if shown else "",
        "ask": f"{here}?{query.address(map='pca')}",
        "count": artifact.rows,
        "kinds": [(kind, title) for kind, title in kinds.items() if kind != "umap" or maps.has_umap()],
        "kind": query.map or "pca",
        "umap": maps.has_umap(),
        "hidden": query.pairs(map="", colour=""),
        "rest": f"{here}?{query.address(lasso='', map=query.map or 'pca')}",
        "row": f"{here}/at",
        "side": maps.LASSO_SIDE,
    }


def map_data(run: ShownRun, stage: str, asked: Sequence[tuple[str, str]]) -> bytes:
    """The map of a view, little-endian: length of the JSON header in four bytes, the header (count, step, legend), then two
    coordinates of two bytes per point, and one byte per point for its colour."""
    rows = run.rows(stage)
    query = Query.of(asked, rows.plain)
    vectors = VectorColumn.of(run, stage, query.vectors)
    drawn = maps.plane(vectors, query.map or "pca")
    colours, legend = maps.coloured(rows, query, drawn)
    if query.searching:
        found, _ = view_of(run, stage, asked)
        chosen = found.chosen.numbers if found.chosen is not None else np.empty(0, np.int64)
        colours[~np.isin(drawn.numbers, chosen)] = maps.NOT_SHOWN
    head = {
        "count": len(drawn.numbers),
        "step": drawn.step,
        "values": [*legend.values],
        "low": legend.low,
        "high": legend.high,
        "others": legend.others,
        "missing": legend.missing,
        "colour": query.colour,
    }
    header = json.dumps(head, ensure_ascii=True).encode()
    header += b" " * (-len(header) % 4)
    return len(header).to_bytes(4, "little") + header + drawn.points.astype("<u2").tobytes() + colours.tobytes()


def neighbours(run: ShownRun, stage: str, key: str) -> Mapping[str, Any] | None:
    """The most similar rows, with their pictures; for a stage with many rows only the address of the search."""
    artifact = run.artifact(stage)
    if artifact is None or not vector_columns(run.rows(stage).schema):
        return None
    all_of_them = f"{run.base}/stage/{stage}?{urlencode({'near': key})}"
    found: list[Mapping[str, Any]] = []
    if artifact.rows <= maps.AT_ONCE:
        vectors = VectorColumn.of(run, stage)
        try:
            numbers, scores = vectors.alike(vectors.one(key), _NEIGHBOURS + 1)
        except Refused as error:
            return {"href": "", "rows": [], "message": str(error)}
        rows = _rows_at(run, stage, numbers)
        near = [(row, score) for row, score in zip(rows, scores.tolist(), strict=True) if row["key"] != key]
        pictures = pictured(run, stage, rows)
        found = [_small(run, stage, row["key"], pictures, f"{score:.4f}") for row, score in near[:_NEIGHBOURS]]
    return {"href": all_of_them, "rows": found, "message": ""}


def same_group(run: ShownRun, stage: str, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The other rows of a row's group of near-duplicates, if a stage of the plan has found groups."""
    group = row.get("duplicate_group")
    if not isinstance(group, str):
        return None
    query = Query((Condition("duplicate_group", "eq", group),), size=_NEIGHBOURS + 1)
    rows = run.rows(stage).page(query).rows
    run.remember(stage, rows)
    pictures = pictured(run, stage, rows)
    others = [_small(run, stage, one["key"], pictures, "") for one in rows if one["key"] != row["key"]]
    return {"href": f"{run.base}/stage/{stage}?{query.address(size=Query.size)}", "rows": others, "message": ""}


def near_duplicate_groups(run: ShownRun, stage: str, asked: Mapping[str, str]) -> Mapping[str, Any]:
    """Groups of near-duplicates: those found by a stage of the plan, or of vectors with a cosine of at least ``least``."""
    rows = run.rows(stage)
    base = f"{run.base}/stage/{stage}"
    if "duplicate_group" in rows.plain:
        query = Query((Condition("duplicate_group", "some", ""),), group="duplicate_group")
        found = rows.page(query)
        shown = [
            _group(run, stage, rows.page(Query(mine, size=_MEMBERS)).rows, one["rows"], f"{base}?{Query(mine).address()}")
            for one in found.rows[:_GROUPS]
            if (mine := (Condition("duplicate_group", "eq", one["value"]),))
        ]
        return {"groups": shown, "count": found.total, "least": None, "column": "duplicate_group"}
    least = _least(asked.get("least", ""))
    vectors = VectorColumn.of(run, stage, asked.get("vectors", ""))
    near = near_groups(vectors, least)
    shown: list[Mapping[str, Any]] = []
    for numbers in near[:_GROUPS]:
        some = _rows_at(run, stage, np.array(numbers[:_MEMBERS], np.int64))
        shown.append(_group(run, stage, some, len(numbers), f"{base}?{urlencode({'near': some[0]['key']})}"))
    return {"groups": shown, "count": len(near), "least": least, "column": vectors.column}


def _least(text: str) -> float:
    try:
        value = float(text or MIN_COSINE)
    except ValueError:
        value = float("nan")
    if not 0.5 <= value <= 1:
        raise Refused(f"least = {text[:40]!r}: a cosine from 0.5 to 1")
    return value


def _group(run: ShownRun, stage: str, rows: list[dict[str, Any]], count: int, href: str) -> Mapping[str, Any]:
    run.remember(stage, rows)
    pictures = pictured(run, stage, rows)
    return {"href": href, "count": count, "rows": [_small(run, stage, row["key"], pictures, "") for row in rows]}


def _rows_at(run: ShownRun, stage: str, numbers: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Rows by their numbers, in that order."""
    chosen = Chosen(numbers, np.zeros(len(numbers)), shown=False)
    rows = run.rows(stage).choosing(chosen).page(Query(size=max(len(numbers), 1))).rows if len(numbers) else []
    run.remember(stage, rows)
    return rows


def _small(run: ShownRun, stage: str, key: str, pictures: Sequence[str], message: str) -> Mapping[str, Any]:
    some = [ShownPicture.of(run, stage, key, name) for name in pictures[:1]]
    return {"key": key, "href": row_address(run, stage, key), "pictures": some, "message": message}


def key_at(run: ShownRun, stage: str, number: str) -> str:
    """The key of the row with a number (from 0)."""
    rows = run.rows(stage)
    if not (number.isascii() and number.isdigit() and len(number) < 16 and int(number) < rows.count):
        raise NotThere(f"stage {stage} has no row of number {number[:40]!r}: from 0 to {rows.count - 1}")
    return _rows_at(run, stage, np.array([int(number)]))[0]["key"]
