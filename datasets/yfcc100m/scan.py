"""Fields of tab-separated lines, found and checked and copied by compiled passes.

Nearly all lines of the metadata are ASCII, have all their columns, and write ids and times in one way. These passes know that
way alone, and leave whatever they are not sure of to the rules of ``fields``. Other threads run beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.compiled import Passes
from .lines import MAX_LINE_BYTES


def _load() -> ModuleType:
    from . import scan_passes

    return scan_passes


_passes = Passes(f"{__package__}.scan_passes", _load)


def fields(data: bytes, columns: int, wanted: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Where the fields of lines lie.

    Args:
        data: whole lines, each with its newline, of less than 2 GiB.
        columns: tab-separated columns that a line must have.
        wanted: the columns whose fields are asked for.

    Returns:
        First byte and end of each field, of shape (lines, wanted, 2), -1 throughout for a line that is not clean: one of too
        few or too many columns, with a byte that is not ASCII, with a control character up to 13 other than its tabs and its
        end, or longer than ``MAX_LINE_BYTES``; and where each line begins, with the end of the last, of shape (lines + 1,).

    Raises:
        ValueError: where the last line lacks its newline, or a column is asked for that is not there.
    """
    if data[-1:] not in (b"", b"\n") or not all(0 <= each < columns for each in wanted):
        raise ValueError(
            f"columns {list(wanted)} of {columns}, and data that ends with {data[-1:]!r}: lines end with a newline"
        )
    view, chosen = np.frombuffer(data, dtype=np.uint8), np.asarray(wanted, dtype=np.int64)
    count = _passes.newlines(view, len(view))
    bounds, starts = np.empty((count, len(chosen), 2), dtype=np.int32), np.empty(count + 1, dtype=np.int64)
    begins = np.empty(columns + 1, dtype=np.int64)
    _passes.fields(view, len(view), columns, chosen, len(chosen), MAX_LINE_BYTES, begins, bounds, starts, count)
    return bounds, starts


def photos(data: bytes, bounds: NDArray[np.int32]) -> tuple[NDArray[np.bool_], pa.Array, pa.Array]:
    """Lines that are photos with two usable times, written like ``2006-02-28 20:33:06.0`` and ``1141158786``.

    Args:
        data: as for ``fields``.
        bounds: of the columns ``NEEDED`` in their order, and perhaps of more after them.

    Returns:
        Whether each line is one, and the capture and upload times of those that are, in microseconds.
    """
    view, found = np.frombuffer(data, dtype=np.uint8), np.empty(len(bounds), dtype=bool)
    taken, uploaded = (np.empty(len(bounds), dtype=np.int64) for _ in range(2))
    count = _passes.photos(view, bounds, *bounds.shape[:2], found, taken, uploaded)
    return found, *(pa.array(each[:count]).cast(pa.timestamp("us")) for each in (taken, uploaded))


def texts(data: bytes, bounds: NDArray[np.int32], lines: NDArray[np.bool_], columns: Sequence[int]) -> Iterator[pa.StringArray]:
    """The text of some columns of ``bounds`` for the lines where ``lines`` is true, all of them clean."""
    chosen = np.asarray(columns, dtype=np.int64)
    total, first = np.empty(len(chosen), dtype=np.int64), np.empty(len(chosen) + 1, dtype=np.int64)
    rows = _passes.sizes(bounds, *bounds.shape[:2], lines, chosen, len(chosen), total, first)
    view, text = np.frombuffer(data, dtype=np.uint8), np.empty(first[-1], dtype=np.uint8)
    offsets = np.empty((len(chosen), rows + 1), dtype=np.int32)
    _passes.texts(
        *(view, len(view), bounds, *bounds.shape[:2], lines),
        *(chosen, len(chosen), first, text, offsets, rows),
    )
    buffer = pa.py_buffer(text)
    for each, at, size in zip(offsets, first.tolist(), total.tolist(), strict=False):
        yield pa.StringArray.from_buffers(rows, pa.py_buffer(each), buffer.slice(at, size))
