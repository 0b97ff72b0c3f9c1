"""Write local files so that they appear whole or not at all. Files in a run's folder are recorded: see ``curation.records``."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from . import records


@dataclasses.dataclass(frozen=True)
class Written:
    """A temporary file, ``beside``, to be renamed to ``path`` by any thread or process of this machine."""

    beside: Path
    path: Path
    sync: bool
    recorded: bool

    def place(self) -> None:
        """Rename the file to ``path``, after fsync if ``sync`` is set. If this fails, the temporary file is removed."""
        try:
            with _naming(self):
                if self.sync:
                    with self.beside.open("rb+") as stream:
                        os.fsync(stream.fileno())
                with self._recording() if self.recorded else contextlib.nullcontext():
                    self.beside.replace(self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the temporary file."""
        self.beside.unlink(missing_ok=True)

    def _recording(self) -> contextlib.AbstractContextManager[None]:
        return records.changing(self.path, records.state_of(self.beside), sync=self.sync)


def place_files(files: Iterable[Written]) -> None:
    """Rename temporary files to their paths, in this order; if one fails, those after it are removed."""
    waiting = collections.deque(files)
    try:
        while waiting:
            waiting.popleft().place()
    finally:
        for left in waiting:
            left.discard()


@contextlib.contextmanager
def _naming(written: Written) -> Iterator[None]:
    """Set the path in any ``OSError`` that names no file, such as that of a full disk, or names the temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(written.beside)):
            error.filename = str(written.path)
        raise


@contextlib.contextmanager
def replacing(path: str | Path, *, sync: bool = True, later: list[Written] | None = None) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, which replaces ``path`` when the block ends without an error.

    Readers see either the old or the new file, also after a crash. The folder is created if needed; several processes may write
    the same file.

    Args:
        path: path of the file.
        sync: fsync before the rename, so that the file is whole even after a loss of power; slow for many small files.
        later: list to which the file is appended instead of being renamed; the caller calls ``place_files`` for it.

    Raises:
        LeavesRun: the path is in the folder of a run, and a link leads out of that folder.
    """
    path = Path(path)
    written = Written(_beside(path), path, sync, records.is_recorded(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _naming(written):
            yield written.beside
    except BaseException:
        written.discard()
        raise
    if later is None:
        written.place()
    else:
        later.append(written)


@contextlib.contextmanager
def writing(path: str | Path, *, sync: bool = True, later: list[Written] | None = None) -> Iterator[BinaryIO]:
    """Yield a stream that writes a file as ``replacing`` does."""
    with replacing(path, sync=sync, later=later) as temporary, temporary.open("wb") as stream:
        yield stream


def write_whole(path: str | Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file as ``replacing`` does."""
    with writing(path, sync=sync) as stream:
        stream.write(data)


def remove(path: str | Path) -> None:
    """Remove a file if it exists."""
    path = Path(path)
    if not path.parent.is_dir():
        return
    with records.changing(path, None, sync=False) if records.is_recorded(path) else contextlib.nullcontext():
        path.unlink(missing_ok=True)


def holds_files(folder: str | Path) -> bool:
    """Whether a folder holds more than temporary files, which a kill may leave there before the first file is complete."""
    return Path(folder).is_dir() and any(not path.name.startswith(records.TEMPORARY) for path in Path(folder).iterdir())


def remove_half_written(folder: str | Path) -> None:
    """Remove temporary files that a kill left in a folder and the folders below it. No process may be writing there."""
    records.is_recorded(Path(folder))  # raises LeavesRun if the folder is reached through a link out of the run
    records.settle(Path(folder))
    for left in list(Path(folder).rglob(f"{records.TEMPORARY}*")):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        elif left.is_file():
            left.unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f"{records.TEMPORARY}{os.getpid()}-{secrets.token_hex(6)}")


def may_leave(name: str) -> bool:
    """Whether a path from a list or setting, which should be relative, is absolute or contains ``..``.

    A ``..`` counts even if the path stays within the folder: this is for names that need no ``..``, and stricter than
    ``stages.folder.is_outside``.

    >>> may_leave("lists/train.csv"), may_leave("lists/../train.csv"), may_leave("/lists/train.csv")
    (False, True, True)
    """
    return name.startswith("/") or ".." in name.split("/")
