"""Make one part of a stage: read its rows, call the step, write payloads, rejects and rows, the rows last.

This code runs in workers. A part exists once its Parquet file exists: everything that the file refers to was written, synced
and renamed before it, so a kill at any moment costs at most the parts in progress.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import inspect
import itertools
import logging
import os
import posixpath
import threading
import time
import traceback
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from .code_loading import own_line
from .cost import Use, cpu_seconds, peak_bytes, restart_peak
from .extras import NeedsPackage, lacking
from .local_files import Written, place_files
from .part_writer import BEGUN, MachineFailed, Output, PartRecord, PartWriter, StepFailed, folder, of_machine, reject_table
from .rows import MachineFault, Reject, Rejected, Sifted, is_array, is_blob
from .shards import encode_member
from .store import Store, StoreError
from .tasks import PartTask, Span

_ENDED = "the run that requested it is no longer running there: it is not written"

_WRITERS = 2
"""Number of parts of one task that are written at the same time."""


Offer = Callable[[int, pa.Table, pa.Table], None]
"""Called with number, rows and rejects of every part that was written in the process of the run."""


Warnings = list[tuple[int, str]]
"""Level and text of log messages."""


@dataclasses.dataclass
class Made:
    """Result of a task.

    Attributes:
        records: records of the parts, in order.
        written: files of the parts that have yet to be renamed to their paths.
        warnings: warnings logged by steps in another process than that of the run.
        use: time, CPU time and memory that the task used.
    """

    records: list[PartRecord] = dataclasses.field(default_factory=list[PartRecord])
    written: list[Written] = dataclasses.field(default_factory=list[Written])
    warnings: Warnings = dataclasses.field(default_factory=Warnings)
    use: Use | None = None


class Gate:
    """Lets threads write parts until it is closed: a thread of a run that has ended must not write into the next run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside, self._closed = 0, False

    @contextlib.contextmanager
    def passed(self, task: PartTask) -> Iterator[None]:
        """Hold the gate open while a part is written. Raises ``StepFailed`` if it is closed."""
        with self._changed:
            if self._closed:
                raise _failed(task, "", _ENDED)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let no thread write any more, and wait until those that are writing have finished."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)


def make_parts(task: PartTask, offer: Offer | None = None, gate: Gate | None = None) -> Made:
    """Make the part of a task, or all parts of a ``whole`` stage or of a source without ``pieces``.

    Args:
        task: what to make.
        offer: called with number, rows and rejects of every part, in order, so that they need not be read back.
        gate: passed whenever a part is written.
    """
    started, begin = time.perf_counter(), cpu_seconds()
    with task.in_its_room() as placed:
        made = _make_parts(placed, offer, gate)
    made.use = Use.since(started, begin)
    return made


def _make_parts(task: PartTask, offer: Offer | None, gate: Gate | None) -> Made:
    signature = task.signature()
    made = Made()

    def write(
        number: int, rows_in: int, output: Output, later: list[Written] | None = None
    ) -> tuple[PartRecord, pa.Table, pa.Table]:
        writer = PartWriter(task.store, task.stage.name, number, task.schema, signature, check=lambda: _check_asked_for(task))
        with gate.passed(task) if gate else contextlib.nullcontext():
            return writer.write(rows_in, output, later)

    def finish(record: PartRecord, rows: pa.Table, rejected: pa.Table) -> None:
        made.records.append(record)
        if offer is not None:
            offer(record.number, rows, rejected)

    outputs = _outputs(task)
    first = next(outputs)
    second = next(outputs, None)
    if second is None:
        finish(*write(task.number, *first, made.written))
        return made
    # The step makes the next part while two are written, so that one is processed while the other waits for the disk. No more
    # parts are in progress, so that memory is bounded.
    with ThreadPoolExecutor(_WRITERS) as beside:
        under_way = collections.deque([beside.submit(write, task.number, *first)])
        for number, (rows_in, output) in enumerate(itertools.chain([second], outputs), task.number + 1):
            written = under_way.popleft().result() if len(under_way) == _WRITERS else None
            under_way.append(beside.submit(write, number, rows_in, output))
            if written is not None:
                finish(*written)
        for last in under_way:
            finish(*last.result())
    return made


def _check_asked_for(task: PartTask) -> None:
    """Raise ``StepFailed`` if the run that requested the part is no longer active in this folder.

    A worker is not notified if that run ends and another begins, perhaps with other settings. It must not overwrite what the
    other run made.
    """
    if not task.begun:
        return
    try:
        now = task.store.read(posixpath.join(folder(task.stage.name), BEGUN))
    except StoreError:
        now = b""
    if now != task.begun.encode():
        raise _failed(task, "", _ENDED)


def ask_again(tasks: Iterable[PartTask]) -> list[PartTask]:
    """The tasks for other workers than before, whose parts are refused from now on."""
    begun = uuid.uuid4().hex
    again = [dataclasses.replace(task, begun=begun) for task in tasks]
    for stage, store in {task.stage.name: task.store for task in again}.items():
        store.write(posixpath.join(folder(stage), BEGUN), begun.encode())
    return again


def make_parts_apart(task: PartTask, *, elsewhere: bool = False) -> Made:
    """``make_parts`` in another process than that of the run. The result includes warnings and peak memory.

    Exceptions are replaced by ones that contain only text: the original may refer, directly or by its cause, to something that
    cannot be pickled, such as a lock.

    Args:
        task: what to make.
        elsewhere: whether this may be another machine than that of the run, so that files must be renamed before returning.
    """
    logger, heard = logging.getLogger("benchwright"), _Heard()
    logger.addHandler(heard)
    started, begin = time.perf_counter(), cpu_seconds()
    if not elsewhere:  # a cluster worker may make other parts at the same time
        restart_peak()
    try:
        made = make_parts(task)
        if elsewhere:
            place_files(made.written)
            made.written = []
        return dataclasses.replace(made, warnings=heard.warnings, use=Use.since(started, begin, peak_bytes()))
    except Exception as error:  # any exception, since this is the boundary between processes
        failure = _in_words(task, error)
        failure.add_note("".join(traceback.format_exception(error)))  # for --debug
    finally:
        logger.removeHandler(heard)
    raise failure  # outside the handler, so that it has no context, which would be pickled too


def _in_words(task: PartTask, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, error.filename and os.fsdecode(error.filename))
    if isinstance(error, StepFailed | NeedsPackage):
        return type(error)(str(error))
    text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
    return _failed(task, "", text, MachineFailed if of_machine(error) else StepFailed)


class _Heard(logging.Handler):
    """Collects the warnings of this thread only, since other threads may make other parts."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: Warnings = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.warnings.append((record.levelno, record.getMessage()))


# -------------------------------------------------------------------------------------------------- calling the step


def _outputs(task: PartTask) -> Iterator[tuple[int, Output]]:
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
            yield table.num_rows, _sifted(task, _called(task, "", task.stage.step.function, table, **task.settings()))
        case _:
            span = typing.cast(Span, task.span)
            result = _called(task, "", task.stage.step.function, span.rows, **task.settings())
            results = [result] if isinstance(result, pa.Table | Sifted) else _guarded(task, result)
            empty = True
            for item in results:
                empty = False
                yield 0, _sifted(task, item)
            if empty:
                yield 0, Output(table=task.schema.empty_table(), rejected=[])


def _width(task: PartTask) -> int:
    return task.span.stop - task.span.start if task.span else 0


def _called(task: PartTask, key: str, function: Any, *args: Any, **settings: Any) -> Any:
    try:
        return function(*args, **settings)
    except (StepFailed, NeedsPackage):
        raise
    except (Exception, SystemExit) as error:  # whatever a step raises: add the place, keep the cause
        if isinstance(error, Reject) and task.stage.kind in ("each", "shards"):
            raise
        if needs := lacking(error):
            raise NeedsPackage(f"stage {task.stage.name!r} {needs}") from error
        message = f"{type(error).__name__}: {str(error) or 'no message'}{own_line(error)}"
        message = str(error) if isinstance(error, MachineFault) else message
        raise _failed(task, key, message, MachineFailed if of_machine(error) else StepFailed) from error


def _failed(task: PartTask, key: str, message: str, kind: type[StepFailed] = StepFailed) -> StepFailed:
    place = f"row {key!r}" if key else f"piece {task.piece!r}" if task.piece else f"part {task.number}"
    return kind(f"stage {task.stage.name!r}, {place}: {message}")


def _guarded(task: PartTask, items: Iterable[Any]) -> Iterator[Any]:
    if not isinstance(items, Iterable):
        raise _failed(task, "", f"the step returned {type(items).__name__}, which holds no rows")
    iterator = iter(items)
    end = object()
    while (item := _called(task, "", next, iterator, end)) is not end:
        yield item


def _sifted(task: PartTask, result: Any) -> Output:
    if isinstance(result, Sifted):
        return Output(table=result.kept, rejected=result.rejected)
    if isinstance(result, pa.Table):
        return Output(table=result, rejected=[])
    raise _failed(task, "", f"the step returned {type(result).__name__}, not pa.Table or Sifted")


def _source(task: PartTask) -> Iterator[tuple[int, Output]]:
    if task.stage.pieces is not None and task.piece is None:  # the source has no pieces at all
        yield 0, Output(table=task.schema.empty_table(), rejected=[])
        return
    arguments = () if task.piece is None else (task.piece,)
    items = _guarded(task, _called(task, "", task.stage.step.function, *arguments, **task.settings()))
    first = next(items, None)
    if isinstance(first, pa.Table | Sifted):
        outputs = (_sifted(task, item) for item in itertools.chain([first], items))
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
        yield len(chunk), Output(objects=kept, given=task.given, rejected=rejected)


def _joined(outputs: list[Output]) -> Output:
    return Output(
        table=pa.concat_tables([typing.cast(pa.Table, o.table) for o in outputs]),
        rejected=pa.concat_tables([reject_table(o.rejected) for o in outputs]),
    )


def _rows_of(output: Output) -> int:
    kept = output.table.num_rows if output.table is not None else len(output.objects)
    return kept + len(output.rejected)


def _each(task: PartTask) -> Output:
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
        results = list(_guarded(task, _called(task, "", _batch_call, task.stage.step.function, rows, settings)))
        if len(results) != len(rows):
            raise _failed(task, "", f"the step returned {len(results)} results for {len(rows)} rows")
    for row, result in zip(rows, results, strict=True):
        if getattr(result, "key", None) != row.key:
            message = f"a row with key {result.key!r}" if hasattr(result, "key") else type(result).__name__
            raise _failed(task, row.key, f"the step returned {message}: a row keeps its key")
    kept = np.asarray([not isinstance(result, Rejected) for result in results], dtype=bool)
    replaced = {*taken.names, *typing.cast(pa.Schema, task.given).names}
    carried = table.select([name for name in table.column_names if name not in replaced])
    return Output(
        objects=[result for result in results if not isinstance(result, Rejected)],
        given=task.given,
        carried=carried.filter(pa.array(kept)),
        rejected=[result for result in results if isinstance(result, Rejected)],
    )


def _batch_call(function: Any, rows: Sequence[Any], settings: Mapping[str, Any]) -> Sequence[Any]:
    if inspect.iscoroutinefunction(function):
        return asyncio.run(function(rows, **settings))
    return function(rows, **settings)


def _shard(task: PartTask) -> Output:
    span = typing.cast(Span, task.span)
    table = span.rows.slice(span.start, span.stop)
    rows = _row_objects(task, span.rows.store, table)
    settings = task.settings()
    rejected: list[Rejected] = []
    _check_keys(task, span, table)

    def samples() -> Iterator[tuple[str, Mapping[str, bytes]]]:
        for row in rows:
            try:
                members = _called(task, row.key, _encoded, task.stage.step.function, row, settings)
            except Reject as reject:
                rejected.append(Rejected(row.key, reject.reason, reject.detail))
                continue
            yield row.key, members

    payload = [field.name for field in table.schema if is_blob(field) or is_array(field)]
    return Output(carried=table.drop_columns(payload), samples=samples(), rejected=rejected)


_TOLD = 3
"""Maximum number of columns that a message names to distinguish two rows."""


def _check_keys(task: PartTask, span: Span, table: pa.Table) -> None:
    """Raise ``StepFailed`` if two rows of a shard have the same key; the message names columns in which they differ."""
    keys = table["key"].to_pylist()
    if len({*keys}) == len(keys):
        return
    first: dict[str, int] = {}
    row, at = next((row, first[key]) for row, key in enumerate(keys) if first.setdefault(key, row) != row)
    names = [field.name for field in table.schema if pa.types.is_string(field.type)]
    pairs = {name: (table[name][at].as_py(), table[name][row].as_py()) for name in names}
    differ = [f"{name} {one!r} and {other!r}" for name, (one, other) in pairs.items() if one != other]
    apart = f", of {', '.join(differ[:_TOLD])}" if differ else ""
    raise StepFailed(
        f"stage {task.stage.name!r}, shard {table['shard'][0].as_py()!r}: key {keys[row]!r} is on rows {span.start + at} "
        f"and {span.start + row} of stage {task.stage.after!r}{apart}: give each row "
        "a unique key, or use take_first to reject repeated ones"
    )


def _encoded(function: Any, row: Any, settings: Mapping[str, Any]) -> dict[str, bytes]:
    members = function(row, **settings)
    if not isinstance(members, Mapping):
        raise TypeError(f"the step returned {type(members).__name__}, and not a mapping of extensions to payloads")
    return {extension: encode_member(extension, value) for extension, value in members.items()}


def _row_objects(task: PartTask, store: Store, table: pa.Table) -> list[Any]:
    """Rows of a table as objects. Blobs are references that are read on demand; arrays are views of memory-mapped files."""
    row_type = typing.cast(type, task.row_type)
    columns: dict[str, list[Any]] = {}
    for field in typing.cast(pa.Schema, task.taken):
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
