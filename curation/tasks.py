"""The tasks of a stage: what a worker receives to make a part, and which input rows each task reads."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from .artifact import Artifact
from .checkpoint import work_room
from .flow import Stage, StageRef, row_types
from .keys import WorkFolder, canonical, plain, sha256
from .part_writer import WORK, StepFailed, folder
from .rows import schema_of
from .stage_rows import Rows
from .store import Store


@dataclasses.dataclass(frozen=True)
class Span:
    """Rows [start, stop) of ``rows``, which begin at row ``offset`` of the upstream stage."""

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
        key: digest of the recipe key and of the layouts of the inputs; part of ``signature``.
        number: number of the part; of the first part if the task makes several.
        row_type: row dataclass that the step takes; None if it takes tables.
        taken: columns of ``row_type``.
        given: columns of the row dataclass that the step returns.
        span: rows to read; None for a source.
        piece: the piece to read, for a source with ``pieces``.
        others: rows of the stages that the settings refer to.
        room: work folder of the part while it is made, see ``keys.work_folder``; "" before.
        begun: content of the file ``BEGUN`` while the run that requests the part is active; "" if no worker outlives the run.
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
    others: Mapping[str, Rows] = dataclasses.field(default_factory=dict[str, Rows])
    room: str = ""
    begun: str = ""

    def settings(self) -> dict[str, Any]:
        """Keyword arguments for the call of the step."""
        return {name: self._given(value) for name, value in self.stage.step.settings.items()}

    def _given(self, value: Any) -> Any:
        if isinstance(value, WorkFolder):
            return self.room
        return self.others[value.name] if isinstance(value, StageRef) else plain(value)

    def in_its_room(self) -> contextlib.AbstractContextManager[PartTask]:
        """Context manager that provides the task with a work folder, if its step asks for one."""
        return self._in_room() if self.stage.has_room else contextlib.nullcontext(self)

    @contextlib.contextmanager
    def _in_room(self) -> Iterator[PartTask]:
        place = posixpath.join(folder(self.stage.name), WORK, sha256(canonical(self.signature()))[:16])
        with work_room(self.store, place) as room:
            yield dataclasses.replace(self, room=room)

    def signature(self) -> list[Any]:
        """Identifies what the part is made from; a part with another signature is recomputed."""
        span = self.span
        return [self.key, self.piece, [span.offset + span.start, span.offset + span.stop] if span else None]


def stage_tasks(
    stage: Stage,
    schema: pa.Schema,
    key: str,
    made: Mapping[str, Artifact],
    store: Store,
    recent: dict[str, pa.Table],
) -> list[PartTask]:
    """The tasks that make a stage.

    Args:
        stage: the stage.
        schema: schema of its rows.
        key: see ``PartTask``.
        made: artifacts of earlier stages, by name.
        store: store of the run.
        recent: parts that are still in memory, by file name.
    """
    views = {name: made[name].rows_view(store, recent) for name in stage.inputs()}
    taken, given = row_types(stage)
    schemas = [None if row_type is None else schema_of(row_type) for row_type in (taken, given)]
    base = PartTask(store, stage, schema, key, 0, taken, *schemas, others=views)
    if stage.kind == "source":
        if stage.pieces is None:
            return [base]
        settings = {name: plain(value) for name, value in stage.pieces.settings.items()}
        pieces = list(stage.pieces.function(**settings))
        return [dataclasses.replace(base, number=n, piece=piece) for n, piece in enumerate(pieces)] or [base]
    upstream = views[stage.after or ""]
    if stage.kind == "whole":
        return [dataclasses.replace(base, span=Span(0, upstream.num_rows, upstream))]
    if stage.kind == "shards":
        bounds = _shard_bounds(upstream)
    else:
        total, each = upstream.num_rows, stage.rows_per_part
        bounds = [(start, min(start + each, total)) for start in range(0, total, each)] or [(0, 0)]
    # A row may be compared with all rows of the upstream stage, which is then a second input as well.
    others = {ref.name: views[ref.name] for ref in stage.step.settings.values() if isinstance(ref, StageRef)}
    ends = np.cumsum([part.rows for part in upstream.parts])
    return [
        dataclasses.replace(base, number=n, span=_narrow(upstream, ends, start, stop), others=others)
        for n, (start, stop) in enumerate(bounds)
    ]


def _shard_bounds(rows: Rows) -> list[tuple[int, int]]:
    """Ranges [start, stop) of rows with the same ``shard``. Raises ``StepFailed`` if the rows of a shard are not contiguous."""
    starts, names, at = list[int](), list[str](), 0
    for table in rows.batches(["shard"]):
        if not table.num_rows:
            continue
        encoded = table["shard"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        begins = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
        found = encoded.dictionary.take(pa.array(codes[begins])).to_pylist()
        goes_on = names[-1:] == found[:1]
        names += found[goes_on:]
        starts += (begins + at)[goes_on:].tolist()
        at += table.num_rows
    if not starts:
        return [(0, 0)]
    if len(starts) != len(set(names)):
        raise StepFailed("the rows of a shard are not contiguous: sort them by the column 'shard'")
    return list(zip(starts, [*starts[1:], at], strict=True))


def _narrow(rows: Rows, ends: np.ndarray, start: int, stop: int) -> Span:
    """Span of the rows [start, stop) with only the parts that contain them, so that a task stays small.

    ``ends``, int64 of shape (parts,), is the row at which each part ends.
    """
    low = int(np.searchsorted(ends, start, side="right"))
    high = int(np.searchsorted(ends, stop, side="left")) + 1
    offset = int(ends[low - 1]) if low else 0
    return Span(start - offset, stop - offset, dataclasses.replace(rows, parts=rows.parts[low:high]), offset)
