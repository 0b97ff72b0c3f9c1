"""Local files that appear whole or not at all. Those in the folder of a run are recorded there: see ``curation.records``."""

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
    """A file that is written beside its place, which it may take in any thread, or process of this machine."""

    beside: Path
    path: Path
    sync: bool
    recorded: bool

    def place(self) -> None:
        """Let the file take its place, when it has reached the disk. Where that fails, nothing is left beside the place."""
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
        """Remove what has not taken its place."""
        self.beside.unlink(missing_ok=True)

    def _recording(self) -> contextlib.AbstractContextManager[None]:
        return records.changing(self.path, records.state_of(self.beside), sync=self.sync)


def place(files: Iterable[Written]) -> None:
    """Let files take their places in this order; where one cannot, those after it are removed."""
    waiting = collections.deque(files)
    try:
        while waiting:
            waiting.popleft().place()
    finally:
        for left in waiting:
            left.discard()


@contextlib.contextmanager
def _naming(written: Written) -> Iterator[None]:
    """Name the file in errors of the system that say none, such as those of a full disk, or say what is next to it."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(written.beside)):
            error.filename = str(written.path)
        raise


@contextlib.contextmanager
def replacing(path: str | Path, *, sync: bool = True, later: list[Written] | None = None) -> Iterator[Path]:
    """A place beside ``path`` to write a file at, which takes the place of ``path`` when the block ends without an error.

    A reader, or a crash, sees the old file or the new one and nothing between. The folder is made; several processes may
    write the same file.

    Args:
        path: of the file.
        sync: let it reach the disk first, so that a loss of power leaves it whole, too; many small files take long then.
        later: takes the file, which is put in its place by whoever goes through the list.

    Raises:
        LeavesRun: where the place is in the folder of a run, and a link leads out of that.
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
    """The stream of such a file."""
    with replacing(path, sync=sync, later=later) as temporary, temporary.open("wb") as stream:
        yield stream


def write_whole(path: str | Path, data: bytes, *, sync: bool = True) -> None:
    """Write such a file."""
    with writing(path, sync=sync) as stream:
        stream.write(data)


def remove(path: str | Path) -> None:
    """Remove a file, where it is there."""
    path = Path(path)
    if not path.parent.is_dir():
        return
    with records.changing(path, None, sync=False) if records.is_recorded(path) else contextlib.nullcontext():
        path.unlink(missing_ok=True)


def remove_half_written(folder: str | Path) -> None:
    """Remove what a kill left of files that were being written in a folder, and those below it, that nobody writes to now."""
    records.is_recorded(Path(folder))  # raises where a link leads there
    records.settle(Path(folder))
    for left in list(Path(folder).rglob(f"{records.TEMPORARY}*")):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        elif left.is_file():
            left.unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f"{records.TEMPORARY}{os.getpid()}-{secrets.token_hex(6)}")


def may_leave(name: str) -> bool:
    """Whether a relative path that a list or a setting names is absolute or has a ``..`` anywhere, also where it would stay
    within: the rule for names that need no ``..``, and stricter than ``stages.folder.is_outside``.

    >>> may_leave("lists/train.csv"), may_leave("lists/../train.csv"), may_leave("/lists/train.csv")
    (False, True, True)
    """
    return name.startswith("/") or ".." in name.split("/")
