"""Making one part of a stage: read its rows, call the step, write payloads, rejects and rows, the rows last.

This is what runs in a worker. A part is there when its Parquet file is there: everything that the file names was written,
synced and renamed before it, so a kill at any moment costs at most the parts in flight.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import hashlib
import inspect
import itertools
import posixpath
import re
import time
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .flow import Stage, StageRef
from .keys import plain
from .rows import ARRAY, BLOB, REJECTS, Blob, Reject, Rejected, Sifted, is_array, is_blob
from .shards import encode_member, write_shard
from .store import Rows, Store, write_parquet

_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}\Z")


class StepFailed(RuntimeError):
    """A step raised something that is no ``Reject``. Says the stage, the row and the error; the cause is chained."""


@dataclasses.dataclass(frozen=True)
class Span:
    """Rows [start, stop) of ``rows``, which are the upstream stage's from its row ``offset`` on."""

    start: int
    stop: int
    rows: Rows
    offset: int = 0


@dataclasses.dataclass(frozen=True)
class PartTask:
    """All that a worker needs to make part ``number`` of a stage.

    Attributes:
        store: where to write.
        stage: what to do.
        schema: columns of the stage, as planned.
        key: recipe key, written into every part.
        number: of the part; the first of the parts where the task makes several.
        row_type: row dataclass that the step takes; None where it deals in tables.
        taken: columns of ``row_type``.
        given: columns of the row dataclass that the step gives.
        span: rows to read; None for a source.
        piece: what a split source reads.
        others: rows of the stages that the settings refer to.
    """

    store: Store
    stage: Stage
    schema: pa.Schema
    key: str
    number: int
    row_type: type | None = None
    taken: pa.Schema | None = None
    given: pa.Schema | None = None
    span: Span | None = None
    piece: str | None = None
    others: Mapping[str, Rows] = dataclasses.field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments of the step's call."""
        values = {name: plain(value) for name, value in self.stage.step.settings.items()}
        return {name: self.others[v.name] if isinstance(v, StageRef) else v for name, v in values.items()}

    def signature(self) -> list[Any]:
        """What the part is made from; a part with another signature is made again."""
        span = self.span
        return [self.key, self.piece, [span.offset + span.start, span.offset + span.stop] if span else None]


@dataclasses.dataclass(frozen=True)
class PartRecord:
    """What a worker reports, and what the footer of a part says."""

    number: int
    rows_in: int
    rows: int
    rejects: Mapping[str, int]
    files: Mapping[str, Mapping[str, Any]]
    seconds: float = 0.0


def part_name(number: int) -> str:
    """File name, without ending, of part ``number``."""
    return f"part-{number:05d}"


def folder(stage: str) -> str:
    """Folder of a stage within the store."""
    return posixpath.join("stages", stage)


def make_parts(task: PartTask) -> list[PartRecord]:
    """Make the part, or for a ``whole`` stage or a source that is not split, the parts, that the task stands for."""
    started = time.perf_counter()
    records: list[PartRecord] = []
    for index, (rows_in, output) in enumerate(_outputs(task)):
        with _PartWriter(task, task.number + index) as writer:
            record = writer.write(rows_in, output)
        records.append(dataclasses.replace(record, seconds=time.perf_counter() - started))
        started = time.perf_counter()
    return records


# -------------------------------------------------------------------------------------------------- calling the step


@dataclasses.dataclass
class _Output:
    """Rows as a table, or as row objects beside the columns that are carried along; and the rejects."""

    rejected: list[Rejected] | pa.Table
    table: pa.Table | None = None
    objects: Sequence[Any] = ()
    given: pa.Schema | None = None
    carried: pa.Table | None = None
    samples: Iterator[tuple[str, Mapping[str, bytes]]] | None = None


def _outputs(task: PartTask) -> Iterator[tuple[int, _Output]]:
    match task.stage.kind:
        case "source":
            yield from _source(task)
        case "each" | "each_batch":
            yield _width(task), _each(task)
        case "shards":
            yield _width(task), _shard(task)
        case "table":
            span = typing.cast(Span, task.span)
            table = span.rows.slice(span.start, span.stop)
            yield table.num_rows, _sifted(_called(task, "", task.stage.step.function, table, **task.settings()))
        case _:
            span = typing.cast(Span, task.span)
            result = _called(task, "", task.stage.step.function, span.rows, **task.settings())
            results = [result] if isinstance(result, pa.Table | Sifted) else _guarded(task, result)
            empty = True
            for item in results:
                empty = False
                yield 0, _sifted(item)
            if empty:
                yield 0, _Output(table=task.schema.empty_table(), rejected=[])


def _width(task: PartTask) -> int:
    return task.span.stop - task.span.start if task.span else 0


def _called(task: PartTask, key: str, function: Any, *args: Any, **settings: Any) -> Any:
    try:
        return function(*args, **settings)
    except (Reject, KeyboardInterrupt):
        raise
    except Exception as error:  # the runner's border: name the place, keep the cause
        raise _failed(task, key, error) from error


def _failed(task: PartTask, key: str, error: Exception) -> StepFailed:
    place = f"row {key!r}" if key else f"piece {task.piece!r}" if task.piece else f"part {task.number}"
    told = str(error) or "no message"
    return StepFailed(f"stage {task.stage.name!r}, {place}: {type(error).__name__}: {told}")


def _guarded(task: PartTask, items: Iterable[Any]) -> Iterator[Any]:
    iterator = iter(items)
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except (Reject, KeyboardInterrupt):
            raise
        except Exception as error:  # the runner's border: name the place, keep the cause
            raise _failed(task, "", error) from error
        yield item


def _sifted(result: Any) -> _Output:
    if isinstance(result, Sifted):
        return _Output(table=result.kept, rejected=result.rejected)
    if isinstance(result, pa.Table):
        return _Output(table=result, rejected=[])
    raise TypeError(f"a table step gives pa.Table or Sifted, not {type(result).__name__}")


def _source(task: PartTask) -> Iterator[tuple[int, _Output]]:
    if task.stage.pieces is not None and task.piece is None:  # the source has no pieces at all
        yield 0, _Output(table=task.schema.empty_table(), rejected=[])
        return
    arguments = () if task.piece is None else (task.piece,)
    items = _guarded(task, _called(task, "", task.stage.step.function, *arguments, **task.settings()))
    first = next(items, None)
    if isinstance(first, pa.Table | Sifted):
        outputs = map(_sifted, itertools.chain([first], items))
        if task.piece is not None:
            outputs = iter([_joined(list(outputs))])
        for output in outputs:
            yield _rows_of(output), output
        return
    every = itertools.chain([first], items) if first is not None else items
    size = None if task.piece is not None else task.stage.rows_per_part
    empty = True
    while empty or task.piece is None:
        chunk = list(itertools.islice(every, size))
        if not chunk and not empty:
            return
        empty = False
        rejected = [item for item in chunk if isinstance(item, Rejected)]
        kept = [item for item in chunk if not isinstance(item, Rejected)]
        yield len(chunk), _Output(objects=kept, given=task.given, rejected=rejected)


def _joined(outputs: list[_Output]) -> _Output:
    return _Output(
        table=pa.concat_tables([typing.cast(pa.Table, o.table) for o in outputs]),
        rejected=pa.concat_tables([_reject_table(o.rejected) for o in outputs]),
    )


def _rows_of(output: _Output) -> int:
    kept = output.table.num_rows if output.table is not None else len(output.objects)
    return kept + len(output.rejected)


def _each(task: PartTask) -> _Output:
    span = typing.cast(Span, task.span)
    taken = typing.cast(pa.Schema, task.taken)
    table = span.rows.slice(span.start, span.stop)
    rows = _row_objects(task, span.rows.store, table)
    settings = task.settings()
    results: list[Any] = []
    if task.stage.kind == "each":
        for row in rows:
            try:
                results.append(_called(task, row.key, task.stage.step.function, row, **settings))
            except Reject as reject:
                results.append(Rejected(row.key, reject.reason, reject.detail))
    else:
        results = list(_called(task, "", _batch_call, task.stage.step.function, rows, settings))
        if len(results) != len(rows):
            raise StepFailed(
                f"stage {task.stage.name!r}, part {task.number}: the step gave {len(results)} results for {len(rows)} rows"
            )
    kept = np.asarray([not isinstance(result, Rejected) for result in results], dtype=bool)
    carried = table.drop_columns(taken.names)
    return _Output(
        objects=[result for result in results if not isinstance(result, Rejected)],
        given=task.given,
        carried=carried.filter(pa.array(kept)),
        rejected=[result for result in results if isinstance(result, Rejected)],
    )


def _batch_call(function: Any, rows: Sequence[Any], settings: Mapping[str, Any]) -> Sequence[Any]:
    if inspect.iscoroutinefunction(function):
        return asyncio.run(function(rows, **settings))
    return function(rows, **settings)


def _shard(task: PartTask) -> _Output:
    span = typing.cast(Span, task.span)
    table = span.rows.slice(span.start, span.stop)
    rows = _row_objects(task, span.rows.store, table)
    settings = task.settings()
    rejected: list[Rejected] = []

    def samples() -> Iterator[tuple[str, Mapping[str, bytes]]]:
        for row in rows:
            try:
                members = _called(task, row.key, task.stage.step.function, row, **settings)
            except Reject as reject:
                rejected.append(Rejected(row.key, reject.reason, reject.detail))
                continue
            yield row.key, {extension: encode_member(extension, value) for extension, value in members.items()}

    payload = [field.name for field in table.schema if is_blob(field) or is_array(field)]
    return _Output(carried=table.drop_columns(payload), samples=samples(), rejected=rejected)


def _row_objects(task: PartTask, store: Store, table: pa.Table) -> list[Any]:
    return read_rows(store, table, typing.cast(type, task.row_type), typing.cast(pa.Schema, task.taken))


def read_rows(store: Store, table: pa.Table, row_type: type, schema: pa.Schema) -> list[Any]:
    """Row objects of a table's columns. Blobs are references that read when asked; arrays are views of mapped files."""
    columns: dict[str, list[Any]] = {}
    for field in schema:
        column = table[field.name]
        if is_blob(field):
            columns[field.name] = [None if ref is None else store.blob(ref) for ref in column.to_pylist()]
        elif is_array(field):
            blocks: dict[str, np.ndarray] = {}
            columns[field.name] = [_array_of(store, ref, blocks) for ref in column.to_pylist()]
        else:
            columns[field.name] = column.to_pylist()
    names = list(columns)
    return [row_type(**dict(zip(names, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def _array_of(store: Store, ref: Mapping[str, Any] | None, blocks: dict[str, np.ndarray]) -> np.ndarray | None:
    if ref is None:
        return None
    if ref["file"] not in blocks:
        blocks[ref["file"]] = store.array(ref["file"])
    return blocks[ref["file"]][ref["row"]]


# --------------------------------------------------------------------------------------------------- writing the part


class _PartWriter:
    """Writes the files of one part, and knows their digests."""

    def __init__(self, task: PartTask, number: int) -> None:
        self._task = task
        self._number = number
        self._stem = posixpath.join(folder(task.stage.name), part_name(number))
        self._files: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> _PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def write(self, rows_in: int, output: _Output) -> PartRecord:
        table = self._shard_table(output) if output.samples is not None else self._table(output)
        rejected = _reject_table(output.rejected)
        if rejected.num_rows:
            with self._file(f"{self._stem}.rejects.parquet") as stream:
                write_parquet(stream, rejected, {"signature": self._task.signature()})
        reasons = collections.Counter(rejected["reason"].to_pylist() if rejected.num_rows < 1000 else [])
        if not reasons and rejected.num_rows:
            counts = pc.value_counts(rejected["reason"]).to_pylist()
            reasons = collections.Counter({str(c["values"]): int(c["counts"]) for c in counts})
        record = PartRecord(self._number, rows_in, table.num_rows, dict(sorted(reasons.items())), self._files)
        footer = {"signature": self._task.signature(), "rows_in": rows_in, "rejects": dict(record.rejects)}
        footer["files"] = self._files
        name = f"{self._stem}.parquet"
        with self._file(name) as stream:
            write_parquet(stream, table, dict(footer, files=dict(self._files)))
        return record

    def _file(self, name: str) -> _HashedFile:
        return _HashedFile(self._task.store, name, self._files)

    def _table(self, output: _Output) -> pa.Table:
        if output.table is not None:
            return conform(output.table, self._task.schema, self._task.stage.name)
        given = typing.cast(pa.Schema, output.given)
        columns = {f.name: self._column(f, [getattr(row, f.name) for row in output.objects]) for f in given}
        made = pa.table(columns) if columns else pa.table({})
        if output.carried is not None:
            for name in output.carried.column_names:
                made = made.append_column(name, output.carried[name])
        return conform(made, self._task.schema, self._task.stage.name)

    def _column(self, field: pa.Field, values: list[Any]) -> pa.Array:
        try:
            if is_blob(field):
                return self._blob_column(field.name, values)
            if is_array(field):
                return self._array_column(field, values)
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            name = self._task.stage.name
            raise StepFailed(f"stage {name!r}, part {self._number}: column {field.name!r}: {error}") from error

    def _blob_column(self, name: str, blobs: list[Blob | None]) -> pa.Array:
        refs: list[Mapping[str, Any] | None] = []
        fresh = [blob for blob in blobs if blob is not None and blob.ref is None]
        if not fresh:
            return pa.array([None if blob is None else blob.ref for blob in blobs], BLOB)
        several = sum(is_blob(field) for field in self._task.schema) > 1
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
                raise StepFailed(
                    f"stage {self._task.stage.name!r}, part {self._number}: column {field.name!r} holds {dtype}{list(shape)}, "
                    f"and the step gave {array.dtype}{list(array.shape)}"
                )
        if not present:
            return pa.array([None] * len(arrays), ARRAY)
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

    def _shard_table(self, output: _Output) -> pa.Table:
        carried = typing.cast(pa.Table, output.carried)
        name = str(carried["shard"][0].as_py())
        if not _SHARD_NAME.match(name):
            raise StepFailed(f"stage {self._task.stage.name!r}: shard {name!r} is not a name of letters, digits, '_', '-', '.'")
        with self._file(posixpath.join(folder(self._task.stage.name), f"{name}.tar")) as stream:
            spans = write_shard(typing.cast("IO[bytes]", stream), typing.cast(Any, output.samples))
        rejected = {reject.key for reject in typing.cast("list[Rejected]", output.rejected)}
        table = carried.filter(pa.array([key not in rejected for key in carried["key"].to_pylist()], pa.bool_()))
        table = table.append_column("offset", pa.array([span.offset for span in spans], pa.int64()))
        table = table.append_column("size", pa.array([span.size for span in spans], pa.int64()))
        return conform(table, self._task.schema, self._task.stage.name)


class _HashedFile:
    """A file of the part that is hashed while it is written, and entered among the part's files when it is in place."""

    def __init__(self, store: Store, name: str, files: dict[str, dict[str, Any]]) -> None:
        self._writing = store.writing(name)
        self._name = posixpath.basename(name)
        self._files = files
        self._hash = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> _HashedFile:
        self._stream = self._writing.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._writing.__exit__(*exc)
        if exc[0] is None:
            self._files[self._name] = {"sha256": self._hash.hexdigest(), "size": self._size}

    closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._hash.update(view)
        self._stream.write(data)
        self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The part closes its files itself; Arrow calls this when it has written its footer."""


def _reject_table(rejected: list[Rejected] | pa.Table) -> pa.Table:
    if isinstance(rejected, pa.Table):
        return rejected.select(REJECTS.names).cast(REJECTS)
    columns = list(zip(*rejected, strict=True)) if rejected else [[], [], []]
    return pa.table([pa.array(list(values), pa.string()) for values in columns], schema=REJECTS)


def conform(table: pa.Table, schema: pa.Schema, stage: str) -> pa.Table:
    """The table's columns in the order and types of the plan; columns that the plan does not know are refused.

    Raises:
        StepFailed: for a column that is missing, unknown, of another type, or without a value where one is needed.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.names]
    if missing or unknown:
        what = f"did not give column {missing[0]!r}" if missing else f"gave a column {unknown[0]!r} that is not in the plan"
        raise StepFailed(f"stage {stage!r}: the step {what}; planned: {', '.join(schema.names)}")
    columns: list[Any] = []
    for field in schema:
        column = table[field.name]
        if not column.type.equals(field.type):
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise StepFailed(f"stage {stage!r}: column {field.name!r} is not {field.type}: {error}") from error
        if not field.nullable and column.null_count:
            raise StepFailed(f"stage {stage!r}: column {field.name!r} has {column.null_count} rows without a value")
        columns.append(column)
    return pa.table(columns, schema=pa.schema([pa.field(f.name, f.type, f.nullable, f.metadata) for f in schema]))
