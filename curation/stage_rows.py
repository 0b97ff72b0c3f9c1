"""The rows of a finished stage as steps receive them: tables, arrays and payloads, read part by part."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .parquet import SAMPLE, repetitive
from .rows import Blob
from .store import Store, StoreError


@dataclasses.dataclass(frozen=True)
class PartInfo:
    """One part of a finished stage: name of its Parquet file within the store, number of rows, and bytes if they are known."""

    name: str
    rows: int
    size: int | None = None


@dataclasses.dataclass(frozen=True)
class Rows:
    """All rows of a finished stage, read part by part; the input of a ``whole`` step.

    Attributes:
        store: store that contains them.
        schema: their columns; payload columns hold references (``rows.BLOB``, ``rows.ARRAY``).
        parts: the parts in order.
        recent: file name -> rows, for parts that are still in memory and need not be read.

    >>> rows = Rows.of(pa.table({"key": ["a", "b", "c"], "year": [2004, 2005, 2004]}))
    >>> rows.num_rows, rows.column_names
    (3, ['key', 'year'])
    >>> rows.table(["year"])["year"].to_pylist()
    [2004, 2005, 2004]
    """

    store: Store
    schema: pa.Schema
    parts: tuple[PartInfo, ...]
    recent: Mapping[str, pa.Table] = dataclasses.field(default_factory=dict[str, pa.Table], repr=False, compare=False)

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        """Rows of a table in memory, to try a ``whole`` step without a run. The table must have no payload columns.

        >>> Rows.of(pa.table({"key": ["a", "b"]})).slice(1, 2).to_pylist()
        [{'key': 'b'}]
        """
        return cls(Store("."), table.schema, (PartInfo("rows", table.num_rows),), {"rows": table})

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(part.rows for part in self.parts)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def repetitive(self) -> list[str]:
        """Text columns that are stored as dictionaries, judged by the first part; none if the rows are only in memory."""
        first = next(iter(self.parts), None)
        if first is None or (first.name in self.recent and not self.store.exists(first.name)):
            return []
        texts = [field.name for field in self.schema if pa.types.is_string(field.type)]
        return repetitive(self._part(first, texts, 0, SAMPLE))

    def batches(self, columns: Sequence[str] | None = None, *, encoded: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield one Arrow table per part, in order; never more than one part in memory.

        The text columns ``encoded`` are returned as dictionaries.
        """
        for part in self.parts:
            yield self._part(part, columns, encoded=encoded)

    def _part(
        self,
        part: PartInfo,
        columns: Sequence[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        *,
        encoded: Sequence[str] = (),
    ) -> pa.Table:
        table = self.recent.get(part.name)
        if table is None:
            return self.store.read_parquet(part.name, columns, start, stop, encoded=encoded, size=part.size)
        table = (table if columns is None else table.select(list(columns))).slice(start, None if stop is None else stop - start)
        for index, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type) and field.name not in encoded:
                table = table.set_column(
                    index, field.with_type(field.type.value_type), table[index].cast(field.type.value_type)
                )
            elif field.name in encoded:
                column = table[index].dictionary_encode()
                table = table.set_column(index, field.with_type(column.type), column)  # keeps ``nullable``, as on disk
        return table

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, of ``columns`` only, as one table. Without ``columns``, the table may not fit in memory."""
        schema = pa.schema([self.schema.field(name) for name in columns] if columns is not None else list(self.schema))
        return pa.concat_tables([schema.empty_table(), *(t.select(schema.names).cast(schema) for t in self.batches(columns))])

    def slice(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows [start, stop) in the order of the stage."""
        pieces: list[pa.Table] = []
        first = 0
        for part in self.parts:
            if first < stop and first + part.rows > start:
                low, high = max(start - first, 0), min(stop - first, part.rows)
                pieces.append(self._part(part, columns, low, high if high < part.rows else None))
            first += part.rows
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table().select(columns or self.schema.names)

    def arrays(self, column: str) -> Iterator[np.ndarray]:
        """Yield one array of shape (rows, *shape) per part, in the order of ``batches``; see ``gather_arrays``."""
        for table in self.batches([column]):
            yield gather_arrays(self.store, table[column])

    def gather(self, column: str, indices: Any) -> np.ndarray:
        """Arrays of the rows at ``indices`` (int, shape (n,)), in that order, as one array of shape (n, *shape).

        Raises ``IndexError`` for a row below 0 or past the end.
        """
        wanted = np.asarray(indices, dtype=np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.num_rows):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} of a stage of {self.num_rows} rows")
        order = np.argsort(wanted, kind="stable")
        ends = np.cumsum([part.rows for part in self.parts])
        pieces: list[pa.Table] = []
        # Only the parts that contain a requested row are read, so that a few rows of a large stage are cheap.
        for number, at in enumerate(np.split(order, np.searchsorted(wanted[order], ends)[:-1])):
            if len(at):
                table = self._part(self.parts[number], [column])
                pieces.append(table.take(pa.array(wanted[at] - (ends[number] - self.parts[number].rows))))
        if not pieces:
            return gather_arrays(self.store, self.schema.empty_table()[column])
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return gather_arrays(self.store, pa.concat_tables(pieces)[column].take(pa.array(back)))

    def blobs(self, column: str) -> Iterator[Blob]:
        """Yield the payloads of a column in order; each is read only when requested."""
        for table in self.batches([column]):
            for ref in table[column].to_pylist():
                yield self.store.blob(ref)


def gather_arrays(store: Store, refs: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Arrays of a reference column as one array of shape (rows, *shape).

    If all of them are consecutive rows of one local file, the result is memory-mapped, not copied.
    """
    refs = refs.combine_chunks() if isinstance(refs, pa.ChunkedArray) else refs
    if len(refs) == 0:
        return np.empty((0,), dtype=np.float32)
    files = pc.struct_field(refs, "file").dictionary_encode()
    rows = pc.struct_field(refs, "row").to_numpy(zero_copy_only=False)
    names = files.dictionary.to_pylist()
    if len(names) == 1:
        block = store.array(names[0])
        first = int(rows[0])
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            return block[first : first + len(rows)]
        return block[rows]
    codes = files.indices.to_numpy(zero_copy_only=False)
    blocks = [store.array(name) for name in names]
    if len(shapes := {block.shape[1:] for block in blocks}) > 1:
        raise StoreError(f"{store.url}: arrays of one column have the shapes {sorted(shapes)}, as in {names[0]}: one is needed")
    out = np.empty((len(rows), *blocks[0].shape[1:]), dtype=blocks[0].dtype)
    for code, block in enumerate(blocks):
        mask = codes == code
        out[mask] = block[rows[mask]]
    return out
