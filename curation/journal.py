r"""Files of lines of JSON that only grow, each line on the disk before anybody is told of it.

A line carries a seal of itself and of all lines before it, so that an edit shows. A kill, or a loss of power, leaves at most a
last line that is not whole, which nobody was told of: it is dropped when the file is written again. One process at a time
writes a journal: it holds the lock of the file.

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
        """Add a record. It is on the disk when this returns; where that fails nothing is added."""
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
    """Hold a journal, which is made if there is none, readable by its owner alone.

    Args:
        path: of the file.
        busy: what is reported where another process holds it.

    Raises:
        Busy: another process holds it.
        Damaged: a line that is whole is not what was written.
        LeavesRun: a link leads to it, out of the run.
        StoreError: the file is a link, or no file.
    """
    is_recorded(path)  # raises where a link leads there
    with locked(path, busy) as stream:
        _, size, seal = read_lines(path)
        os.fchmod(stream.fileno(), 0o600)
        os.ftruncate(stream.fileno(), size)
        _sync(path.parent)
        yield Journal(stream, path, seal)


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a journal. Raises ``Damaged`` if a line that is whole is not what was written."""
    return read_lines(path)[0]


def _sync(folder: Path) -> None:
    """Let the name of a new file reach the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
