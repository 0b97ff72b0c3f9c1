"""Write one part: payloads, rejects and rows, each hashed while it is written, the rows last."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import io
import posixpath
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .local_files import Written, place_files
from .parquet import write_parquet
from .rows import (
    ARRAY,
    BLOB,
    REJECTS,
    Blob,
    MachineFault,
    Rejected,
    check_reason,
    is_array,
    is_blob,
    printable,
    string_bytes,
    without_addresses,
)
from .shards import members_sha256, write_shard
from .store import Store

_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}\Z")


WORK = ".work"
"""Subfolder of a stage's folder with the work folders of its parts; see ``keys.work_folder``."""


BEGUN = ".begun"
"""File in a stage's folder, while a cluster makes its parts, that identifies the run that requested them."""


class StepFailed(RuntimeError):
    """A step raised an exception other than ``Reject``, or returned something that does not fit the plan.

    The message names the stage and the place.
    """


class MachineFailed(StepFailed):
    """A step, or the writing of its part, failed because of the machine that it ran on, not because of the code or the rows."""


_OF_MACHINES = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "ENOSPC", "EDQUOT", "EROFS", "ENOMEM", "EMFILE", "ENFILE", "ESTALE", "EPIPE", "ETIMEDOUT", "ENETDOWN"),
        *("ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED"),
    )
)


def of_machine(error: BaseException) -> bool:
    """Whether an error is due to the machine, such as a full disk or a lost connection, so that another machine may succeed."""
    if isinstance(error, OSError):
        return error.errno in _OF_MACHINES or isinstance(error, ConnectionError | TimeoutError)
    return isinstance(error, MachineFailed | MachineFault | MemoryError)


def part_name(number: int) -> str:
    """File name, without extension, of part ``number``."""
    return f"part-{number:05d}"


def folder(stage: str) -> str:
    """Folder of a stage within the store."""
    return posixpath.join("stages", stage)


def written_parts(store: Store, stage: str) -> list[str]:
    """Names of the parts of a stage that are written, without extension: all of a finished stage, or those so far."""
    ends = [name.removesuffix(".parquet") for name in store.list(folder(stage)) if name.endswith(".parquet")]
    return [posixpath.join(folder(stage), name) for name in ends if name.startswith("part-") and "." not in name]


@dataclasses.dataclass(frozen=True)
class PartRecord:
    """Record of a part, as a worker reports it and the part's footer contains it.

    Attributes:
        number: number of the part.
        rows_in: number of input rows; 0 for a part of a ``whole`` stage, which takes all rows at once.
        rows: number of output rows.
        rejects: reason -> number of rejected rows.
        files: file name -> size and SHA-256.
    """

    number: int
    rows_in: int
    rows: int
    rejects: Mapping[str, int]
    files: Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass
class Output:
    """Result of the call of a step: a table; or row objects, or samples of a shard, together with columns passed through.

    Attributes:
        rejected: rejects, as a list or table.
        table: rows as a table.
        objects: rows as objects.
        given: columns of ``objects``.
        carried: columns of the input that are passed through unchanged.
        samples: key and members of every sample, generated while they are written.
    """

    rejected: list[Rejected] | pa.Table
    table: pa.Table | None = None
    objects: Sequence[Any] = ()
    given: pa.Schema | None = None
    carried: pa.Table | None = None
    samples: Iterator[tuple[str, Mapping[str, bytes]]] | None = None


class PartWriter:
    """Writes the files of one part and computes their digests.

    Args:
        store: where to write.
        stage: name of the stage.
        number: number of the part.
        schema: columns of the stage, as planned.
        signature: identifies what the part is made from; stored in the footers.
        check: called when a file is complete, before it is uploaded; raises if the part is no longer wanted.
    """

    def __init__(
        self,
        store: Store,
        stage: str,
        number: int,
        schema: pa.Schema,
        signature: Sequence[Any],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._stage, self._number, self._schema = store, stage, number, schema
        self._signature, self._check = list(signature), check
        self._stem = posixpath.join(folder(stage), part_name(number))
        self._files: dict[str, dict[str, Any]] = {}
        self._written: list[Written] = []

    def write(self, rows_in: int, output: Output, later: list[Written] | None = None) -> tuple[PartRecord, pa.Table, pa.Table]:
        """Write the part; return its record, rows and rejects. The file of the rows comes last: the part exists once it does.

        With ``later``, the part's local files are appended to that list, and the caller calls ``local_files.place_files``.
        """
        try:
            made = self._write(rows_in, output)
        except BaseException:
            for written in self._written:
                written.discard()
            raise
        if later is None:
            place_files(self._written)
        else:
            later += self._written
        return made

    def _write(self, rows_in: int, output: Output) -> tuple[PartRecord, pa.Table, pa.Table]:
        table = self._shard_table(output) if output.samples is not None else self._table(output)
        rejected = self._rejects(output.rejected)
        reasons: dict[str, int] = {}
        if rejected.num_rows:
            with self._file(f"{self._stem}.rejects.parquet") as stream:
                write_parquet(stream, rejected, {"signature": self._signature})
            reasons = {str(c["values"]): int(c["counts"]) for c in pc.value_counts(rejected["reason"]).to_pylist()}
            reasons = dict(sorted(reasons.items()))
            self._check_repeatable(rejected["key"])
        self._check_repeatable(table["key"])
        footer = {"signature": self._signature, "rows_in": rows_in, "rejects": reasons, "files": dict(self._files)}
        with self._file(f"{self._stem}.parquet") as stream:
            write_parquet(stream, table, footer)
        return PartRecord(self._number, rows_in, table.num_rows, reasons, self._files), table, rejected

    def _check_repeatable(self, keys: pa.ChunkedArray) -> None:
        # Searching the text of all keys at once is many times as fast as key by key, and nearly always sufficient.
        texts = (np.frombuffer(string_bytes(chunk), dtype=np.uint8) for chunk in keys.chunks if len(chunk))
        if not any(np.any(text == ord(" ")) and b" at 0x" in text.tobytes() for text in texts):
            return
        for key in keys.filter(pc.fill_null(pc.match_substring(keys, " at 0x"), False)).to_pylist():
            if without_addresses(key) != key:
                message = "contains a memory address, which differs in every run"
                raise self._failed(f"key {key!r} {message}: build keys from the content of rows")

    @contextlib.contextmanager
    def _file(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file that is hashed while it is written, and added to the part's files when it is complete."""
        with self._store.writing(name, later=self._written) as stream:
            hashing = Hashing(stream)
            yield typing.cast("IO[bytes]", hashing)
            self._check()
        self._files[posixpath.basename(name)] = hashing.facts

    def _failed(self, message: str) -> StepFailed:
        return StepFailed(f"stage {self._stage!r}, part {self._number}: {message}")

    def _table(self, output: Output) -> pa.Table:
        if output.table is not None:
            return conform(output.table, self._schema, self._stage)
        given = typing.cast(pa.Schema, output.given)
        columns = {f.name: self._column(f, output.objects) for f in given}
        made = pa.table(columns) if columns else pa.table({})
        if output.carried is not None:
            for name in output.carried.column_names:
                made = made.append_column(name, output.carried[name])
        return conform(made, self._schema, self._stage)

    def _values(self, name: str, rows: Sequence[Any]) -> list[Any]:
        try:
            return [getattr(row, name) for row in rows]
        except AttributeError as error:
            raise self._failed(f"the step returned something without the planned field {name!r}: {error}") from None

    def _column(self, field: pa.Field, rows: Sequence[Any]) -> pa.Array:
        values = self._values(field.name, rows)
        try:
            if is_blob(field):
                return self._blob_column(field.name, values)
            if is_array(field):
                return self._array_column(field, values)
            _check_exact(field.type, values)
            return pa.array(values, field.type)
        except UnicodeEncodeError as error:
            key = next(row.key for row, value in zip(rows, values, strict=True) if not _is_utf8(value, field.type))
            raise self._failed(f"row {key!r}, column {field.name!r}: {error}") from error
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, _Inexact) as error:
            raise self._failed(f"column {field.name!r}: {error}") from error

    def _rejects(self, rejected: list[Rejected] | pa.Table) -> pa.Table:
        if isinstance(rejected, list) and not rejected:
            return REJECTS.empty_table()
        try:
            table = reject_table(rejected)
            for reason in pc.unique(table["reason"]).to_pylist():
                check_reason(reason)
        except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError, ValueError) as error:
            raise self._failed(f"its rejects: {error}") from error
        return table

    def _blob_column(self, name: str, blobs: list[Blob | None]) -> pa.Array:
        refs: list[Mapping[str, Any] | None] = []
        fresh = [blob for blob in blobs if blob is not None and blob.ref is None]
        if not fresh:
            return pa.array([None if blob is None else blob.ref for blob in blobs], BLOB)
        several = sum(is_blob(field) for field in self._schema) > 1
        file = f"{self._stem}.{name}.blobs" if several else f"{self._stem}.blobs"
        offset = 0
        with self._file(file) as stream:
            for blob in blobs:
                if blob is None or blob.ref is not None:
                    refs.append(None if blob is None else blob.ref)
                    continue
                data = blob.read()
                stream.write(data)
                sha = hashlib.sha256(data).hexdigest()
                refs.append({"sha256": sha, "size": len(data), "file": file, "offset": offset})
                offset += len(data)
        return pa.array(refs, BLOB)

    def _array_column(self, field: pa.Field, arrays: list[np.ndarray | None]) -> pa.Array:
        metadata = field.metadata or {}
        dtype = np.dtype(metadata[b"dtype"].decode())
        shape = tuple(int(side) for side in metadata[b"shape"].decode().split(",") if side)
        present = [array for array in arrays if array is not None]
        for array in present:
            fits = array.dtype == dtype and len(array.shape) == len(shape)
            if not fits or any(want not in (-1, side) for want, side in zip(shape, array.shape, strict=True)):
                seen = f"{array.dtype}{list(array.shape)}"
                raise self._failed(f"column {field.name!r} holds {dtype}{list(shape)}, and the step returned {seen}")
        if not present:
            return pa.array([None] * len(arrays), ARRAY)
        if len(shapes := sorted({array.shape for array in present})) > 1:
            message = (
                f"the step returned {list(shapes[0])} and {list(shapes[-1])}: rows have one shape; a Blob may have any size"
            )
            raise self._failed(f"column {field.name!r}: {message}")
        file = f"{self._stem}.{field.name}.npy"
        block = np.ascontiguousarray(np.stack(present))
        with self._file(file) as stream:
            np.lib.format.write_array(stream, block, allow_pickle=False)
        rows = iter(range(len(present)))
        refs = [
            None if a is None else {"sha256": hashlib.sha256(block[i := next(rows)]).hexdigest(), "file": file, "row": i}
            for a in arrays
        ]
        return pa.array(refs, ARRAY)

    def _shard_table(self, output: Output) -> pa.Table:
        carried = typing.cast(pa.Table, output.carried)
        if not carried.num_rows:  # a stage without rows has one part without a shard
            return self._schema.empty_table()
        name = str(carried["shard"][0].as_py())
        if not _SHARD_NAME.match(name):
            raise self._failed(f"shard {name!r} is not a name of letters, digits, '_', '-', '.'")
        digests: list[str] = []

        def digested() -> Iterator[tuple[str, Mapping[str, bytes]]]:
            for key, members in output.samples or ():
                digests.append(members_sha256(members))
                yield key, members

        with self._file(posixpath.join(folder(self._stage), f"{name}.tar")) as stream:
            try:
                spans = write_shard(typing.cast(BinaryIO, stream), digested())
            except ValueError as error:
                raise self._failed(f"shard {name!r}: {error}") from error
        rejected = {reject.key for reject in typing.cast("list[Rejected]", output.rejected)}
        table = carried.filter(pa.array([key not in rejected for key in carried["key"].to_pylist()], pa.bool_()))
        table = table.append_column("offset", pa.array([span.offset for span in spans], pa.int64()))
        table = table.append_column("size", pa.array([span.size for span in spans], pa.int64()))
        table = table.append_column("sha256", pa.array(digests, pa.string()))
        return conform(table, self._schema, self._stage)


class Hashing(io.RawIOBase):
    """Hashes bytes and passes them on to a stream, which the caller closes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._size = 0

    @property
    def facts(self) -> dict[str, Any]:
        """``size`` and ``sha256`` of the bytes so far."""
        return {"sha256": self._digest.hexdigest(), "size": self._size}

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self._stream.write(data)
        self._size += memoryview(data).nbytes
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._size


class _Inexact(ValueError):
    """A value that Arrow would accept, but change."""


def _check_exact(kind: pa.DataType, values: list[Any]) -> None:
    """Refuse values that Arrow would silently change: it truncates 1.5 to the integer 1, and converts zoned times to UTC."""
    if pa.types.is_list(kind):
        _check_exact(kind.value_type, [item for value in values if value is not None for item in value])
    elif pa.types.is_integer(kind):
        for value in values:
            if type(value) is not int and isinstance(value, float | np.floating) and not float(value).is_integer():
                raise _Inexact(f"{value!r} is not a whole number")
    elif pa.types.is_timestamp(kind):
        for value in values:
            if getattr(value, "tzinfo", None) is not None:
                raise _Inexact(f"{value} has a time zone, which columns do not store: convert it to a naive time")


def _is_utf8(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except UnicodeEncodeError:
        return False
    return True


def reject_table(rejected: list[Rejected] | pa.Table) -> pa.Table:
    """Rejects as a table of ``REJECTS``, without the memory addresses that details may quote from messages of libraries."""
    if not isinstance(rejected, list):
        table = rejected.select(REJECTS.names).cast(REJECTS)
        if not pc.any(pc.match_substring(table["detail"], " at 0x")).as_py():
            return table
        details = [text and without_addresses(text) for text in table["detail"].to_pylist()]
        return table.set_column(2, REJECTS.field("detail"), pa.chunked_array([details], pa.string()))
    # Keys and details may quote file names that are not UTF-8.
    rows = [[printable(key), reason, printable(without_addresses(detail))] for key, reason, detail in rejected]
    columns = [pa.array([row[column] for row in rows], pa.string()) for column in range(len(REJECTS))]
    return pa.table(columns, schema=REJECTS)


def conform(table: pa.Table, schema: pa.Schema, stage: str) -> pa.Table:
    """The table with its columns in the order and types of the plan.

    Raises:
        StepFailed: a column is missing, not in the plan, of a type that cannot be converted, has times with a time zone, or has
            nulls though it is not nullable.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.names]
    if missing or unknown:
        what = f"did not return column {missing[0]!r}" if missing else f"returned column {unknown[0]!r}, which is not planned"
        raise StepFailed(f"stage {stage!r}: the step {what}; planned: {', '.join(schema.names)}")
    columns: list[Any] = []
    for field in schema:
        column = table[field.name]
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            raise StepFailed(f"stage {stage!r}: column {field.name!r} has times with a time zone, which columns do not store")
        if not column.type.equals(field.type):
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise StepFailed(f"stage {stage!r}: column {field.name!r} is not {field.type}: {error}") from error
        if not field.nullable and column.null_count:
            raise StepFailed(f"stage {stage!r}: column {field.name!r} has {column.null_count} rows without a value")
        columns.append(column)
    return pa.table(columns, schema=pa.schema([pa.field(f.name, f.type, f.nullable, f.metadata) for f in schema]))
