"""Memory budget for pictures that are being decoded, shared by all threads of a process.

A limit of pixels bounds one picture but not the total memory: threads decode in parallel, and a file of a few kB may declare
any size. The memory of a decoder is estimated from the header, before a pixel is decoded; decoders wait until it fits the
budget. Results do not depend on it.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator

IN_FLIGHT = 1 << 30
"""Bytes that all decoders of a process may use: about 7 baseline JPEGs of 24 megapixels. A larger picture is decoded alone."""


class Room:
    """Memory budget that threads take bytes from and give back, in the order of their requests.

    Args:
        size: size of the budget in bytes. A larger request waits until no other is held.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._waiting: collections.deque[object] = collections.deque()
        self._changed = threading.Condition()
        self._mine = threading.local()

    @contextlib.contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Hold ``count`` bytes. A thread that already holds some does not wait, since it would wait for itself."""
        if getattr(self._mine, "holds", False):
            yield
            return
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._fits(count))
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
            self._taken += count
        self._mine.holds = True
        try:
            yield
        finally:
            self._mine.holds = False
            with self._changed:
                self._taken -= count
                self._changed.notify_all()

    def _fits(self, count: int) -> bool:
        return not self._taken or self._taken + count <= self._size


ROOM = Room(IN_FLIGHT)
"""Memory budget of this process."""
