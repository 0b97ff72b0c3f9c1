"""A bounded cache of recently computed values in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cache(Generic[T]):
    """A thread-safe cache that evicts the least recently used value first.

    Args:
        most: largest total size.
        size: function that returns the size of a value.
    """

    def __init__(self, most: int, size: Callable[[T], int]) -> None:
        self._most, self._size = most, size
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """The value, or None if it is not in the cache."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: Hashable, value: T) -> T:
        """Add a value, and return it."""
        with self._lock:
            self._total += self._size(value) - (self._size(self._values.pop(key)) if key in self._values else 0)
            self._values[key] = value
            while self._total > self._most:
                self._total -= self._size(self._values.popitem(last=False)[1])
        return value
