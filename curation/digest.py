"""Content digest of a stage's rows, computed part by part together with the sum of its keys.

The content digest identifies what a stage made, independently of how its rows are divided into parts. It uses BLAKE3, because
every row is hashed, and BLAKE3 is four times as fast as SHA-256 here. Files and payloads are hashed with SHA-256, which any
system can check.
"""

from __future__ import annotations

import functools
import posixpath
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from .flow import Stage
from .key_hashes import KeySum, key_hashes
from .keys import canonical
from .parquet import compact
from .part_writer import PartRecord, StepFailed, folder, part_name
from .rows import is_array, is_blob, string_bytes
from .store import Store, StoreError
from .threads import in_threads


class ContentDigest:
    """Running BLAKE3 digest of rows in order, column by column.

    Numbers are hashed as little-endian values, text as lengths and bytes, payloads by their own digests, and missing values
    differently from any value; parts, compression and the locations of payloads have no influence.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = {field.name: _ColumnDigest() for field in schema}
        self._schema = schema
        self.rows = 0

    def update(self, table: pa.Table) -> None:
        """Add the rows of ``table``, which must have the columns of the schema."""
        self.rows += table.num_rows
        for field in self._schema:
            column = table[field.name]
            if is_blob(field) or is_array(field):
                # References contain the location of a payload; only its content counts.
                what = ["sha256", "size"] if is_blob(field) else ["sha256"]
                for name in what:
                    self._columns[field.name].update(pc.struct_field(column, name), name)
            else:
                self._columns[field.name].update(column, "")

    def hexdigest(self) -> str:
        """64 hexadecimal digits over the names, types and values of all columns, and the number of rows."""
        columns = [
            [field.name, _type_name(field), self._columns[field.name].digests()]
            for field in sorted(self._schema, key=lambda field: field.name)
        ]
        return blake3(canonical([self.rows, columns]).encode()).hexdigest()


def _type_name(field: pa.Field) -> str:
    if is_blob(field):
        return "blob"
    if is_array(field):
        return "array"
    return _shown(field.type)


def _shown(kind: pa.DataType) -> str:
    # Not str() for lists: Arrow's name for their items differs after a round trip through Parquet.
    return f"list<{_shown(kind.value_type)}>" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else str(kind)


class _ColumnDigest:
    """Streams of one column (validity, values, lengths, children), hashed separately, so that parts have no influence."""

    def __init__(self) -> None:
        self._streams: dict[str, blake3] = {}

    def _add(self, stream: str, data: Any) -> None:
        if stream not in self._streams:
            self._streams[stream] = blake3()
        self._streams[stream].update(data)

    def update(self, column: pa.ChunkedArray | pa.Array, path: str) -> None:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for chunk in chunks:
            if len(chunk):
                self._update_chunk(chunk, path)

    def _update_chunk(self, chunk: pa.Array, path: str) -> None:
        valid = chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else np.ones(len(chunk), dtype=bool)
        self._add(f"{path}?", valid.view(np.uint8))
        kind = chunk.type
        if pa.types.is_dictionary(kind):
            self._update_chunk(chunk.dictionary_decode(), path)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._add(f"{path}#", _fixed(pc.list_value_length(chunk).cast(pa.int64())))
            self.update(pc.list_flatten(chunk), f"{path}/")
        elif pa.types.is_struct(kind):
            for index, field in enumerate(kind):
                self.update(pc.struct_field(chunk, index), f"{path}.{field.name}")
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
            filled = _filled(chunk, b"" if pa.types.is_binary(kind) else "")
            self._add(f"{path}#", _fixed(pc.binary_length(filled).cast(pa.int64())))
            self._add(f"{path}=", string_bytes(filled))
        elif pa.types.is_null(kind):
            pass
        else:
            self._add(f"{path}=", _fixed(chunk))

    def digests(self) -> list[list[str]]:
        return [[name, stream.hexdigest()] for name, stream in sorted(self._streams.items())]


def _filled(array: pa.Array, value: Any) -> pa.Array:
    return array.fill_null(value) if array.null_count else array  # for a small array, the call itself takes longest


def _fixed(array: pa.Array) -> Any:
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        array = array.cast(pa.int64())
    values = _filled(array, False if pa.types.is_boolean(array.type) else 0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False)).view(np.uint8)


_EARLY_PARTS = 16
"""Maximum number of parts that wait in memory for their turn; further parts are read back from the store."""

_REQUESTS, _READ_BYTES = 8, 1 << 25
"""Number of parts that are read back from an object store at once, and the most bytes of their files together."""

_NAME_KEYS = ("table", "whole")
"""Kinds of stage whose steps themselves name the rows that they return and reject."""

_AT_ONCE = 4096
"""Rows of small parts that are added to the digest together: hashing a table of 5 rows takes as long as one of 1,000."""

_RECENT_BYTES = 3 << 27
"""Maximum size of a stage's rows that are kept in memory for the next stage; larger ones are read back from the store."""


class Ledger:
    """Computes the content digest and the key sum of a stage, part by part, from rows in memory or read back from the store.

    The digest depends on the order of the parts, which finish in any order; parts that finish early wait for their turn.

    Args:
        store: store of the parts.
        stage: the stage.
        following: the next stage. If it reads the rows, they are kept in memory; if it names their keys, these are summed.
    """

    def __init__(self, store: Store, stage: Stage, following: Stage | None = None) -> None:
        self._store, self._stage = store, stage
        self.keeps = following is not None and stage.name in following.inputs()
        self._digest: ContentDigest | None = None
        self._next = 0
        self._turned: list[pa.Table] = []  # rows whose turn has come
        self._early: dict[int, tuple[pa.Table, pa.Table]] = {}
        self._turn = threading.Condition()
        self._adding = False
        self._follows = True
        self._recent: dict[str, pa.Table] = {}
        self._recent_bytes = 0
        # For the other kinds of stage, the engine itself copies the keys from the input rows.
        self.keys = KeySum(distinct=stage.expands) if stage.kind in _NAME_KEYS else None
        self.row_keys: KeySum | None = None
        if following is not None and following.after == stage.name:
            self.row_keys = KeySum(distinct=False) if following.kind in _NAME_KEYS and not following.expands else None

    def offer(self, number: int, rows: pa.Table, rejected: pa.Table) -> None:
        """Add the rows of a part that was just written. May be called from any thread."""
        self._follows = False
        kept = compact(rows) if self.keeps and self._recent_bytes <= _RECENT_BYTES else rows
        with self._turn:
            if self.keeps:
                self._keep(number, kept)
            # If another thread is adding, it continues with this part; wait for it only if it has fallen behind.
            self._turn.wait_for(lambda: not self._adding or len(self._early) < _EARLY_PARTS)
            room = len(self._early) < _EARLY_PARTS or number == self._next
            if number >= self._next and room:
                self._early[number] = (rows, rejected)
            if self._adding:
                return
            self._adding = True
        try:
            while (part := self._take()) is not None:
                self._add(*part)
        except BaseException:
            with self._turn:
                self._adding = False
                self._turn.notify_all()
            raise

    def _take(self) -> tuple[pa.Table, pa.Table] | None:
        """The next part if it is waiting; otherwise None, and adding ends."""
        with self._turn:
            part = self._early.pop(self._next, None)
            self._adding = part is not None
            self._turn.notify_all()
            return part

    def follow(self, records: Mapping[int, PartRecord]) -> None:
        """Add some of the parts that other processes have written, while further ones are made; ``finish`` adds the others.

        What cannot be read now, ``finish`` tries again.
        """
        ready: list[PartRecord] = []
        while self._follows and len(ready) < _EARLY_PARTS and (record := records.get(self._next + len(ready))):
            ready.append(record)
        try:
            self._add_written(ready)
        except (OSError, StoreError):
            self._follows = False

    def finish(self, records: Sequence[PartRecord]) -> str:
        """Add the remaining parts, once all of them are written, and return the content digest."""
        self._add_written(records[self._next :])
        if (digest := self._digested()) is None:
            raise StepFailed(f"stage {self._stage.name!r} made no part")
        return digest.hexdigest()

    def _add_written(self, records: Sequence[PartRecord]) -> None:
        if len(records) > 1 and not self._store.local:
            largest = max(record.files[f"{part_name(record.number)}.parquet"]["size"] for record in records)
            read = in_threads(self._rows_of, zip(records), min(_REQUESTS, max(_READ_BYTES // max(largest, 1), 1)))
        else:
            read = map(self._rows_of, records)
        for rows, rejected in read:
            self._add(rows, rejected)

    def _rows_of(self, record: PartRecord) -> tuple[pa.Table, pa.Table]:
        """The rows of a part, and the keys that it rejected if they are summed, from memory or the store."""
        if record.number in self._early:
            return self._early.pop(record.number)
        rejected = pa.table({"key": pa.array([], pa.string())})
        if self.keys is not None and f"{part_name(record.number)}.rejects.parquet" in record.files:
            rejected = self._read(record, "rejects.parquet", ["key"])
        return self._read(record, "parquet"), rejected

    def _read(self, record: PartRecord, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
        name = f"{part_name(record.number)}.{kind}"
        place = posixpath.join(folder(self._stage.name), name)
        return self._store.read_parquet(place, columns, size=record.files[name]["size"])

    @property
    def recent(self) -> dict[str, pa.Table]:
        """File name -> rows, for the parts that were offered; empty if they exceed the size limit together."""
        return self._recent if self._recent_bytes <= _RECENT_BYTES else {}

    def _keep(self, number: int, rows: pa.Table) -> None:
        self._recent_bytes += rows.get_total_buffer_size()
        if self._recent_bytes <= _RECENT_BYTES:
            self._recent[posixpath.join(folder(self._stage.name), f"{part_name(number)}.parquet")] = rows
        else:
            self._recent.clear()

    def _add(self, rows: pa.Table, rejected: pa.Table) -> None:
        self._next += 1
        if sum(table.num_rows for table in [*self._turned, rows]) > _AT_ONCE:
            self._digested()
        self._turned.append(rows)
        if rows.num_rows >= _AT_ONCE or len(self._turned) == _EARLY_PARTS:
            self._digested()
        hashes = functools.cache(lambda name: key_hashes(rows[name]))
        if self.row_keys:
            self.row_keys.add(hashes("key"))
        if self.keys:
            self.keys.add(hashes("source_key" if self._stage.expands else "key"))
            self.keys.add(key_hashes(rejected["key"]))

    def _digested(self) -> ContentDigest | None:
        """The digest, after adding all rows whose turn has come; None if there are none."""
        if self._turned:
            self._digest = self._digest or ContentDigest(self._turned[0].schema)
            several = len(self._turned) > 1
            self._digest.update(pa.concat_tables(self._turned).combine_chunks() if several else self._turned[0])
            self._turned.clear()
        return self._digest
