"""Processes that make the parts of stages on this machine: how they start, share libraries, reuse memory and end."""

from __future__ import annotations

import atexit
import functools
import gc
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import os
import signal
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow as pa

from .garbage import collect_rarely

_LARGE = ("numpy", "pyarrow.compute", "pyarrow.parquet", "pandas", "torch")
"""Libraries of which worker processes share one copy. The threads that they start on import (of OpenBLAS and jemalloc) are made
to be lost at a fork; polars, whose thread is not, is imported by each worker."""


def _keep_freed_memory() -> None:
    """Let Arrow reuse freed memory, unless the environment chooses an allocator.

    The default allocator returns memory so soon that clearing new memory takes a fifth of the time for large tables.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


@functools.cache
def _end_at_once() -> None:
    """Skip the garbage collection at the end of the process, which takes an eighth of a second for the 300,000 objects here.

    Python does not guarantee that objects that still exist then are finalised.
    """
    atexit.register(gc.freeze)


def prepare_process() -> None:
    """Settings of a process that makes parts: how it reuses memory, and how it ends."""
    _keep_freed_memory()
    _end_at_once()


class WorkerProcesses(ProcessPoolExecutor):
    """A pool of worker processes, prepared as this process is. They end with it, even by kill -9."""

    def __init__(self, count: int) -> None:
        super().__init__(count, _context(), initializer=_begin_worker, initargs=(dict(os.environ),))

    def kill(self) -> None:
        """End all processes at once, whatever they compute; return when they are gone."""
        for process in list((self._processes or {}).values()):  # from Python 3.14 on: kill_workers
            process.kill()
        self.shutdown(cancel_futures=True)


def _context() -> multiprocessing.context.BaseContext:
    """How worker processes start. On Linux they are forked from a server process that has imported the large libraries which
    this process uses: imported by each worker, they would take seconds and hundreds of megabytes each.

    The server starts with the first run and ends with this process, whose own other pools may use it as well. Variables that
    libraries read on import, such as OMP_NUM_THREADS, keep the values that they had then.
    """
    if not sys.platform.startswith("linux"):  # elsewhere a library may have started what does not survive a fork
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in _LARGE if name in sys.modules])
    return context


def _begin_worker(environment: Mapping[str, str]) -> None:
    """Initialise a worker process, which ignores Ctrl-C and ends when its parent is gone, even by kill -9.

    numpy's global generator is seeded anew: processes that are forked from one server would all draw the same numbers.

    Args:
        environment: that of the parent; the server process may have been started before a change of it.
    """
    os.environ.clear()
    os.environ.update(environment)
    np.random.seed()
    collect_rarely()
    prepare_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
