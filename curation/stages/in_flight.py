"""Room for pictures that are being decoded: so many bytes in a process, however many threads decode.

A limit of pixels bounds one picture, and not the memory: threads decode beside each other, and a file of a few kB may declare
any size. What a decoder will need is told from the header, before a pixel is decoded, and those wait that find no room. No
result depends on it.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator

IN_FLIGHT = 1 << 30
"""Bytes that decoders of one process may take together: 15 baseline JPEGs of 24 megapixels. A larger picture goes alone."""


class Room:
    """Bytes that threads take and give back, in the order in which they asked.

    Args:
        size: of all that is taken at a time. Who asks for more waits until nobody has any.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._waiting: collections.deque[object] = collections.deque()
        self._changed = threading.Condition()
        self._mine = threading.local()

    @contextlib.contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Hold ``count`` bytes. A thread that holds some already gets these without waiting, since it would wait for itself."""
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
"""That of this process."""
