"""Features in Parquet: a column of names and a column of lists. A stretch is of whole row groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .files import FeatureFile, Stretch, Values, open_file, place_of


def stretches(root: str, file: FeatureFile, max_bytes: int) -> Iterator[Stretch]:
    """Row groups of about ``max_bytes`` as they are stored."""
    with open_file(place := place_of(root, file.path)) as stream:
        found = _parquet(stream, place, file)
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


def read_stretch(root: str, file: FeatureFile, stretch: Stretch) -> Values:
    """One array a row: a row may have any width, and a None within it becomes NaN."""
    with open_file(place := place_of(root, file.path)) as stream:
        found = _parquet(stream, place, file)
        table = found.read_row_groups(list(range(stretch.start, stretch.stop)), columns=[file.uid, file.feature])
    names = table[file.uid].cast(pa.string()).to_pylist()
    values: list[np.ndarray] = []
    for chunk in table[file.feature].chunks:
        # Views of the chunk's flat values.
        flat = np.asarray(chunk.flatten().to_numpy(zero_copy_only=False))
        widths = np.asarray(chunk.value_lengths().fill_null(0))
        ends = np.cumsum(widths)
        values += [flat[end - width : end] for end, width in zip(ends.tolist(), widths.tolist(), strict=True)]
    return [(name or "", value) for name, value in zip(names, values, strict=True)]


def _parquet(stream: IO[bytes], place: str, file: FeatureFile) -> pq.ParquetFile:
    try:
        found = pq.ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{place} is no Parquet file: {error}") from None
    for name in (file.uid, file.feature):
        if name not in found.schema_arrow.names:
            raise ValueError(f"{place} has no column {name!r}: it has {', '.join(found.schema_arrow.names)}")
    kind = found.schema_arrow.field(file.feature).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise ValueError(f"{place}, column {file.feature!r}: {kind}, where lists of numbers are wanted")
    return found
