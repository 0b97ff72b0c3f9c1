"""Features in Parquet: a column of names and a column of lists. A stretch consists of whole row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...curation.parquet_footer import Chunk, column_chunks, opened
from .files import FeatureFile, Stretch, open_file, place_of

_BATCH_BYTES = 1 << 25
_BATCH_ROWS = 1 << 14
_LARGEST_NUMBER = 8
_MAX_EXCESS = 1 << 26  # tolerated numbers in a row group beyond those that its rows should have


def stretches(root: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]:
    """Stretches of row groups of about ``max_bytes`` each, as stored."""
    with _parquet(place_of(root, file.path), file) as (found, _):
        groups = [found.metadata.row_group(n) for n in range(found.metadata.num_row_groups)]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
    start = first = rows = held = 0
    for n, (count, size) in enumerate(sizes):
        if held and held + size > max_bytes:
            yield Stretch(start, n, first)
            start, first, held = n, rows, 0
        rows, held = rows + count, held + size
    if sizes:
        yield Stretch(start, len(sizes), first)


def read_stretch(root: str, file: FeatureFile, stretch: Stretch, numbers: int | None) -> Iterator[tuple[str, np.ndarray]]:
    """One array per row, of any width, with NaN for None in a list. A limited number of rows is held at a time."""
    with _parquet(place := place_of(root, file.path), file) as (found, columns):
        groups = list(range(stretch.start, stretch.stop))
        for n in groups:
            _check_claims(found.metadata.row_group(n).num_rows, columns[n], f"{place}, row group {n}", file, numbers)
        rows = max(1, _BATCH_BYTES // (_LARGEST_NUMBER * max(numbers or 1, 1)))
        for batch in found.iter_batches(min(rows, _BATCH_ROWS), row_groups=groups, columns=[file.uid, file.feature]):
            yield from _rows(batch.column(file.uid).cast(pa.string()), batch.column(file.feature))


def _rows(names: pa.Array, values: Any) -> Iterator[tuple[str, np.ndarray]]:
    # The arrays are views of the batch's flat values.
    flat = np.asarray(values.flatten().to_numpy(zero_copy_only=False))
    widths = np.asarray(values.value_lengths().fill_null(0))
    ends = np.cumsum(widths)
    for name, end, width in zip(names.to_pylist(), ends.tolist(), widths.tolist(), strict=True):
        yield name or "", flat[end - width : end]


def _check_claims(rows: int, columns: list[Chunk], place: str, file: FeatureFile, numbers: int | None) -> None:
    """Raise ``ValueError`` if a row group has far more numbers than its rows should have: a few bytes can claim gigabytes."""
    held = sum(column.values for column in columns if column.column.split(".")[0] == file.feature)
    if numbers is not None and held > rows * numbers + _MAX_EXCESS:
        raise ValueError(f"{place}: {held:,} numbers in {rows:,} rows of {file.feature}, expected {numbers:,} each")


@contextlib.contextmanager
def _parquet(place: str, file: FeatureFile) -> Iterator[tuple[pq.ParquetFile, list[list[Chunk]]]]:
    """The file, and the columns of its row groups."""
    with open_file(place) as stream, opened(stream, place) as found:
        schema = found.schema_arrow
        for name in (file.uid, file.feature):
            if name not in schema.names:
                raise ValueError(f"{place} has no column {name!r}: it has {', '.join(schema.names)}")
        kind = schema.field(file.feature).type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise ValueError(f"{place}, column {file.feature!r}: {kind}, expected lists of numbers")
        yield found, column_chunks(stream)
