"""One process at a time: a lock that dies with its process, so that a kill leaves none behind.

An object store has no such lock. There the holder changes a file every few seconds, and another takes it over where it has
not changed for a minute, as its own clock tells: the clocks of two machines are not compared.
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
"""File of a run's folder."""

_BEAT = 5.0
"""Seconds between two changes of a lock in an object store."""

_SILENCE = 60.0
"""Seconds without a change after which its holder counts as dead."""

_LOGGER = logging.getLogger("benchwright")


class Busy(RuntimeError):
    """Another process is in progress in the same folder."""


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[TextIO]:
    """Hold the lock of a local file, which is made with its folder where it is missing, and left as it is.

    Args:
        path: of the file.
        busy: what is reported where another process holds it.

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


@contextlib.contextmanager
def locked_bucket(store: Store, busy: str) -> Iterator[None]:
    """Hold the lock of a folder of an object store.

    Args:
        store: the folder.
        busy: what is reported where another process holds it.

    Raises:
        Busy: where another process holds it; at the end of the block, where another has taken it over meanwhile, since this one
            gave no sign for a minute.
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
        """Make the file; if there is one, watch for a sign of its holder first."""
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
        """Give signs until the end, or until another has taken over."""
        number = 0
        while not self.ends.wait(_BEAT):
            number += 1
            with contextlib.suppress(OSError):  # no network now: the next time
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
