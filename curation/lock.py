"""Lock for one process at a time, which ends with its process, so that a kill leaves no lock.

Object stores have no such lock. There, the holder changes a lock file every few seconds, and another process takes over if the
file has not changed for a minute by its own clock, so that the clocks of two machines are not compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from .records import naming
from .store import Store, StoreError

LOCK = ".lock"
"""Name of the lock file in a run's folder."""

_BEAT = 5.0
"""Seconds between two changes of a lock in an object store."""

_SILENCE = 60.0
"""Seconds without a change of the lock file after which its holder counts as dead."""

_LOGGER = logging.getLogger("benchwright")


class Busy(RuntimeError):
    """Another process is using the same folder.

    >>> with locked(Path("out.lock"), "never said"), locked(Path("out.lock"), "another run is in progress in out"):
    ...     print("both hold the lock")
    Traceback (most recent call last):
        ...
    benchwright.curation.lock.Busy: another run is in progress in out
    """


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[TextIO]:
    """Hold the lock of a local file. The file and its folder are created if needed, and kept afterwards.

    Args:
        path: path of the file.
        busy: message if another process holds the lock.

    Raises:
        Busy: another process holds the lock; raised without waiting.
        StoreError: the file is a link, or not a regular file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Mode "a" neither writes nor truncates.
    with open(path, "a", encoding="utf-8", opener=_no_link) as lock:
        try:
            with naming(path):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(busy) from None
        yield lock


@contextlib.contextmanager
def locked_bucket(store: Store, busy: str) -> Iterator[None]:
    """Hold the lock of a folder in an object store.

    Args:
        store: the folder.
        busy: message if another process holds the lock.

    Raises:
        Busy: another process holds the lock; or, at the end of the block, another process has taken it over meanwhile, because
            this one had not changed the lock file for a minute.
    """
    holder = _Holder(store)
    holder.take(busy)
    beating = threading.Thread(target=holder.beat, name=LOCK, daemon=True)
    beating.start()
    try:
        yield
    finally:
        holder.ends.set()
        beating.join()
        if not holder.lost:
            store.remove([LOCK])
    if holder.lost:
        raise Busy(
            f"{store.url}: this run gave no sign for {_SILENCE:g} s, and another one began there: run again when it has ended"
        )


class _Holder:
    def __init__(self, store: Store) -> None:
        self._store, self._who = store, uuid.uuid4().hex
        self.ends, self.lost = threading.Event(), False

    def take(self, busy: str) -> None:
        """Create the lock file; if it exists, first wait to see whether its holder still changes it."""
        if (seen := self._read()) is not None:
            _LOGGER.warning(
                "%s: looking for up to %g s whether the run still lives that began there", self._store.url, _SILENCE
            )
            until = time.monotonic() + _SILENCE
            while time.monotonic() < until:
                time.sleep(_BEAT / 5)
                if (now := self._read()) is None:
                    break
                if now != seen:
                    raise Busy(busy)
            if self._read() == seen:
                self._store.remove([LOCK])
        if not self._store.create(LOCK, self._sign(0)):
            raise Busy(busy)

    def beat(self) -> None:
        """Change the lock file regularly until the end of the block, or until another process has taken the lock over."""
        number = 0
        while not self.ends.wait(_BEAT):
            number += 1
            with contextlib.suppress(OSError):  # network errors: retried at the next change
                seen = self._read()
                if seen is not None and not seen.startswith(self._who.encode()):
                    self.lost = True
                    return
                self._store.write(LOCK, self._sign(number))

    def _sign(self, number: int) -> bytes:
        return f"{self._who} {number}\n".encode()

    def _read(self) -> bytes | None:
        try:
            return self._store.read(LOCK)
        except StoreError:
            return None


def _no_link(path: str, flags: int) -> int:
    """Opener that refuses links, whose target may be anyone's file, and does not block on pipes."""
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
