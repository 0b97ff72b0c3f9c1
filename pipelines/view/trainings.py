"""Progress of the unfinished trainings of a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...curation.artifact import load_artifact, load_run
from ...curation.part_writer import folder
from ...curation.rows import visible
from ...curation.store import Store
from ...eval.report.blocks import Block, CellValue, Table, Text
from ..training_results import FOLDER, LEARNED
from .run_view import ShownRun

_MOST = 100
"""Most trainings in the table."""
_MOST_BYTES = 1 << 20


def training_blocks(run: ShownRun) -> list[Block]:
    """The trainings that are not finished, with the number of positions learned; empty if all are."""
    store = Store(os.path.join(run.out, FOLDER))
    if not store.exists("run.json"):
        return []
    names = [name for name in load_run(store).stages if name.startswith(LEARNED)]
    waiting = [name for name in names if load_artifact(store, name) is None]
    if not waiting:
        return []
    lines: list[Sequence[CellValue]] = []
    for name in waiting[:_MOST]:
        touched = max((os.stat(path).st_mtime for path in _files(run, store, name)), default=None)
        since = None if touched is None else f"{max(time.time() - touched, 0):,.0f} s ago"
        learned = _positions(run, store, name)
        lines.append([visible(name.removeprefix(LEARNED)), "waits" if learned is None else "at work", learned, since])
    text = f"{len(names) - len(waiting)} of {len(names)} trainings are done."
    rest = f" The first {_MOST} of the others:" if len(waiting) > _MOST else ""
    return [Text([text + rest], tone="note"), Table(["training", "state", "positions learned", "last written"], lines)]


def _files(run: ShownRun, store: Store, name: str) -> Iterator[Path]:
    """Files of a training's folder and of its checkpoint, except links that lead out of the run."""
    top, own = Path(store.path(folder(name))), os.path.realpath(run.out)
    for path in (*top.glob("*"), *top.glob(".work/*/*")):
        if path.is_file() and path.name != ".witness" and Path(os.path.realpath(path)).is_relative_to(own):
            yield path


def _positions(run: ShownRun, store: Store, name: str) -> int | None:
    """Number of learned positions, by the checkpoint or the parts written; None if the training has not started."""
    done: list[int] = []
    for path in _files(run, store, name):
        if path.name == "progress.json" and path.stat().st_size < _MOST_BYTES:
            try:
                number = json.loads(path.read_bytes()).get("done")
            except (OSError, ValueError, AttributeError):  # replaced meanwhile, or not a checkpoint of this package
                continue
            done.append(number if isinstance(number, int) and 0 <= number < 1 << 40 else 0)
        elif path.name.startswith("part-"):
            done.append(0)
    return max(done, default=None)
