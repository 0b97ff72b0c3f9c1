r"""Append-only files of JSON lines. Each line is on the disk before its write is confirmed.

The seal of a line covers the line and all lines before it, so that edits are detected. A kill or a loss of power leaves at most
an incomplete last line, which was not confirmed; it is dropped when the file is written again. One process at a time writes a
journal and holds the lock of the file.

>>> from pathlib import Path
>>> said = Path("said.jsonl")
>>> with writing(said, "another process writes it") as journal:
...     journal.append({"said": "a"})
...     journal.append({"said": "b"})
>>> read(said)
[{'said': 'a'}, {'said': 'b'}]
>>> _ = said.write_text(said.read_text().replace(':"a"', ':"c"'))
>>> read(said)
Traceback (most recent call last):
    ...
benchwright.curation.records.Damaged: said.jsonl line 1 does not match its seal: it was damaged or edited
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from .lock import locked
from .records import is_recorded, line_of, naming, read_lines


class Journal:
    """A journal that is open for writing. Threads may share it."""

    def __init__(self, stream: TextIO, path: Path, seal: str) -> None:
        self._stream, self._path, self._seal = stream, path, seal
        self._alone = threading.Lock()

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record. It is on the disk when this returns; on an ``OSError`` nothing is appended."""
        with self._alone, naming(self._path):
            line, seal = line_of(record, self._seal)
            handle = self._stream.fileno()
            size = os.fstat(handle).st_size
            try:
                for start in iter(lambda: os.fstat(handle).st_size - size, len(line)):
                    os.write(handle, line[start:])
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise
            self._seal = seal


@contextlib.contextmanager
def writing(path: Path, busy: str) -> Iterator[Journal]:
    """Open a journal for writing and lock it. It is created if needed, and readable only by its owner.

    Args:
        path: path of the file.
        busy: message if another process holds the lock.

    Raises:
        Busy: another process holds the lock.
        Damaged: a complete line is not what was written.
        LeavesRun: the file is reached through a link out of the run.
        StoreError: the file is a link, or not a regular file.
    """
    is_recorded(path)  # raises LeavesRun
    with locked(path, busy) as stream:
        _, size, seal = read_lines(path)
        os.fchmod(stream.fileno(), 0o600)
        os.ftruncate(stream.fileno(), size)
        _sync(path.parent)
        yield Journal(stream, path, seal)


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a journal. Raises ``Damaged`` if a complete line is not what was written."""
    return read_lines(path)[0]


def _sync(folder: Path) -> None:
    """Write a folder's entries to the disk, so that the name of a new file is there."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
