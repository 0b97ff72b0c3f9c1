"""The vectors of a stage as points in a plane, coloured by a column; and the rows whose points a lasso encloses."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.path import Path
from numpy.typing import NDArray

from ...curation.encoders.encoder import unit_rows
from .cache import Cache
from .query import Query, Refused, one_at_a_time
from .table import ParquetRows
from .vectors import VectorColumn

KINDS = ("pca", "umap")
SIDE = 65535
"""Largest coordinate, so that it fits in two bytes."""
LASSO_SIDE = 10_000
"""Largest coordinate of a lasso's corners in an address."""
AT_ONCE = 100_000
"""Most vectors that are drawn without a request by the user."""
NOT_SHOWN, NO_VALUE, OTHERS = 255, 254, 253
"""Colour codes of a point whose row is filtered out, has no value, or a value that is not among the most frequent."""
COLOURS = 8
"""Number of values with a colour of their own."""
SHADES = 64
_MOST_POINTS = 1_000_000
_MOST_UMAP = 20_000
"""UMAP of more rows would take too long."""
_AXES_ROWS = 20_000
"""Number of rows from which the axes of a PCA are computed."""
_MOST_CORNERS = 200
_PATIENCE_S = 120.0


@dataclasses.dataclass(frozen=True)
class Plane:
    """Points of the map.

    Attributes:
        numbers: row numbers of the points, int64 (n,).
        points: uint16 (n, 2), the second downwards.
        step: one point is drawn for every ``step`` rows.
    """

    numbers: NDArray[np.int64]
    points: NDArray[np.uint16]
    step: int


_planes: Cache[Plane] = Cache(4, lambda _: 1)
_drawing = threading.Lock()


def has_umap() -> bool:
    """Whether ``umap-learn`` is installed."""
    return importlib.util.find_spec("umap") is not None


def plane(vectors: VectorColumn, kind: str) -> Plane:
    """Coordinates of the rows, cached.

    Args:
        vectors: vectors of the rows.
        kind: "pca" (the first two principal axes) or "umap".

    Raises:
        Refused: UMAP is not installed, or computing the map takes too long.
    """
    if kind not in KINDS:
        raise Refused(f"map = {kind[:40]!r}: {' or '.join(KINDS)}")
    if kind == "umap" and not has_umap():
        raise Refused("this map needs a package: pip install umap-learn")
    key = (vectors.run.out, vectors.artifact.digest, vectors.column, kind)
    if (held := _planes.get(key)) is not None:
        return held
    with one_at_a_time(_drawing, _PATIENCE_S, "another map has been computing"):
        return _planes.get(key) or _planes.keep(key, _computed_plane(vectors, kind))


def _computed_plane(vectors: VectorColumn, kind: str) -> Plane:
    rows = vectors.artifact.rows
    step = max(1, -(-rows // (_MOST_UMAP if kind == "umap" else _MOST_POINTS)))
    place = _by_umap(vectors, step) if kind == "umap" else _by_axes(vectors, rows)
    numbers: list[NDArray[np.int64]] = []
    places: list[NDArray[np.float64]] = []
    for number, block in vectors.blocks(step):
        numbers.append(number)
        places.append(place(number, block))
    found = np.concatenate([np.empty((0, 2)), *places])
    return Plane(np.concatenate([np.empty(0, np.int64), *numbers]), _fitted(found), step)


def _by_axes(vectors: VectorColumn, rows: int) -> Callable[[NDArray[np.int64], NDArray[Any]], NDArray[np.float64]]:
    """Projection to the first two principal axes of evenly spaced rows; the largest coefficient of each axis is positive."""
    some = np.concatenate([_units(block) for _, block in vectors.blocks(max(1, -(-rows // _AXES_ROWS)))] or [np.zeros((1, 2))])
    mean = some.mean(axis=0)
    _, axes = np.linalg.eigh((some - mean).T @ (some - mean))
    main = axes[:, ::-1][:, :2]
    main = np.hstack([main, np.zeros((len(main), 2 - main.shape[1]))])
    main = main * np.where(main[np.abs(main).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    return lambda _, block: (_units(block) - mean) @ main


def _by_umap(vectors: VectorColumn, step: int) -> Callable[[NDArray[np.int64], NDArray[Any]], NDArray[np.float64]]:
    units = np.concatenate([_units(block) for _, block in vectors.blocks(step)] or [np.zeros((0, 2))])
    if len(units) < 4:
        raise Refused(f"UMAP of {len(units)} rows: at least 4")
    near = min(15, len(units) - 1)
    umap = importlib.import_module("umap")  # an optional package, not a dependency
    placed = umap.UMAP(n_neighbors=near, metric="cosine", random_state=0, n_jobs=1).fit_transform(units)
    return lambda numbers, _: np.asarray(placed, dtype=np.float64)[numbers // step]


def _units(block: NDArray[Any]) -> NDArray[np.float64]:
    return unit_rows(np.nan_to_num(block, posinf=0.0, neginf=0.0)).astype(np.float64)


def _fitted(places: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Coordinates centred in the square, with the same scale on both axes."""
    if not len(places):
        return np.zeros((0, 2), np.uint16)
    low, high = places.min(axis=0), places.max(axis=0)
    span = max(float((high - low).max()), 1e-12)
    share = (places - (low + high) / 2) / span + 0.5
    share[:, 1] = 1 - share[:, 1]
    return np.clip(np.round(share * SIDE), 0, SIDE).astype(np.uint16)


def enclosed(plane: Plane, lasso: str) -> NDArray[np.int64]:
    """Numbers of the rows inside a lasso: ``x.y.x.y...``, corners in a square of ``LASSO_SIDE``."""
    texts = lasso.split(".")
    if len(texts) % 2 or not 6 <= len(texts) <= 2 * _MOST_CORNERS or not all(_corner(each) for each in texts):
        raise Refused(f"lasso = {lasso[:80]!r}: 3 to {_MOST_CORNERS} corners as x.y.x.y, each from 0 to {LASSO_SIDE}")
    corners = np.array(texts, dtype=np.float64).reshape(-1, 2) * (SIDE / LASSO_SIDE)
    inside = Path(corners).contains_points(plane.points, radius=1e-9)
    return plane.numbers[inside]


def _corner(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= LASSO_SIDE


# --------------------------------------------------------------------------------------------------------------- colours


@dataclasses.dataclass(frozen=True)
class Legend:
    """Legend of the colours.

    Attributes:
        values: the most frequent values as text, in the order of their colours; empty for a column of many numbers.
        low, high: range of a column of numbers, as text.
        others: number of rows with other values.
        missing: number of rows without a value.
    """

    values: Sequence[str] = ()
    low: str = ""
    high: str = ""
    others: int = 0
    missing: int = 0


def coloured(rows: ParquetRows, query: Query, plane: Plane) -> tuple[NDArray[np.uint8], Legend]:
    """The colour of every point, and the legend: a colour per value for few values, a shade from low to high for many numbers.

    Args:
        rows: rows of the stage.
        query: query whose conditions select the rows that are shown.
        plane: points of the map.
    """
    shown = rows.fitting(query)
    colours: NDArray[np.uint8] = np.zeros(len(plane.numbers), np.uint8)
    legend = Legend()
    if query.colour:
        column = rows.column(query.colour).take(pa.array(plane.numbers))
        colours, legend = _by_value(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if shown is not None:
        colours[~shown[plane.numbers]] = NOT_SHOWN
    if query.lasso:
        colours[~np.isin(plane.numbers, enclosed(plane, query.lasso))] = NOT_SHOWN
    return colours, legend


def _by_value(column: pa.Array) -> tuple[NDArray[np.uint8], Legend]:
    kind = column.type
    missing = column.null_count
    if pa.types.is_list(kind):
        column, kind = pc.list_value_length(column), pa.int32()  # pyright: ignore[reportAttributeAccessIssue]
    if pa.types.is_timestamp(kind):
        column, kind = pc.strftime(column, format="%Y"), pa.string()  # pyright: ignore[reportAttributeAccessIssue]
    counts = sorted(
        ((each["values"], each["counts"]) for each in pc.value_counts(column).to_pylist() if each["values"] is not None),  # pyright: ignore[reportAttributeAccessIssue]
        key=lambda each: (-each[1], str(each[0])),
    )
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if number and len(counts) > COLOURS:
        values = np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        there = np.isfinite(values)
        low, high = (float(values[there].min()), float(values[there].max())) if there.any() else (0.0, 0.0)
        shades = np.nan_to_num((values - low) / max(high - low, 1e-300) * (SHADES - 1), nan=0.0, posinf=0.0, neginf=0.0)
        colours = np.where(there, np.clip(shades, 0, SHADES - 1).astype(np.uint8), NO_VALUE).astype(np.uint8)
        return colours, Legend(low=f"{low:.4g}", high=f"{high:.4g}", missing=int((~there).sum()))
    named = [value for value, _ in counts[:COLOURS]]
    if number:
        named.sort()
    codes: Mapping[Any, int] = {value: at for at, value in enumerate(named)}
    encoded = column.dictionary_encode()
    table = np.array([codes.get(value, OTHERS) for value in encoded.dictionary.to_pylist()] + [NO_VALUE], dtype=np.uint8)
    at = encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
    lines = [("yes" if value else "no") if isinstance(value, bool) else str(value)[:80] for value in named]
    return table[at], Legend(lines, others=sum(count for _, count in counts[COLOURS:]), missing=missing)
