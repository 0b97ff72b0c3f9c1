"""Run torch on one thread, since with several threads the order of additions, and so the last bits of sums, may change.

For encoders and for trainings. Training steps are small, so more threads would gain little, and lose much on shared cores.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_depth = 0
_before = 1


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's kernels on the calling thread only; to use more cores, call from several threads or processes.

    torch keeps the number of threads partly per process (MKL) and partly per thread (OpenMP), so it is set in every thread that
    enters and restored only when the last one leaves. Meanwhile, other threads compute correctly, but more slowly.
    """
    import torch

    global _depth, _before
    with _lock:
        if _depth == 0:
            _before = torch.get_num_threads()
        _depth += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                torch.set_num_threads(_before)
