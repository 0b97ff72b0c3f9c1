"""Results that threads compute while the ones before them are in use."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, each computed in another thread while the previous one is in use.

    >>> list(ahead(n * n for n in range(3)))
    [0, 1, 4]
    """
    iterator = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, iterator, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc]  # not the end


def in_threads(
    function: Callable[..., T], arguments: Iterable[tuple[Any, ...]], threads: int = 2, *, most: int | None = None
) -> Iterator[T]:
    """Yield the results of calls in order; up to ``most`` of them, by default one per thread, wait while another one is in use.

    >>> list(in_threads(pow, [(2, 3), (3, 2)]))
    [8, 9]
    """
    under_way: collections.deque[Future[T]] = collections.deque()
    with ThreadPoolExecutor(threads) as pool:
        for each in arguments:
            under_way.append(pool.submit(function, *each))
            if len(under_way) > (most or threads):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
