"""One process at a time: a lock that dies with its process, so that a kill leaves none behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from .records import naming
from .store import StoreError


class Busy(RuntimeError):
    """Another process is in progress in the same folder."""


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[TextIO]:
    """Hold the lock of a local file, which is made with its folder where it is missing, and left as it is.

    Args:
        path: of the file.
        busy: what is told where another process holds it.

    Raises:
        Busy: at once, where another process holds it.
        StoreError: where the file is a link, or no file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Nothing is written, and nothing emptied.
    with open(path, "a", encoding="utf-8", opener=_no_link) as lock:
        try:
            with naming(path):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(busy) from None
        yield lock


def _no_link(path: str, flags: int) -> int:
    """An opener that follows no link, and waits for nobody: what is behind it may be anyone's file, or a pipe."""
    try:
        opened = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreError(f"{path} is a symbolic link, and a run needs its own lock file: remove it") from None
        if error.errno == errno.ENXIO:
            raise StoreError(f"{path} is a pipe, and a run needs its own lock file: remove it") from None
        raise
    facts = os.fstat(opened)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(opened)
        raise StoreError(f"{path} is a link to another file, or no file, and a run needs its own lock file: remove it")
    return opened
