"""One torch thread a call, because the order in which several threads add up changes the last bits of a sum: for encoders, and
for trainings, whose steps are small, so that more threads gain little, and lose much where cores are shared."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_depth = 0
_before = 1


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's kernels on the calling thread alone; more cores are used by calling from more threads or processes.

    torch keeps this number partly a process (MKL) and partly a thread (OpenMP), so it is set in every thread that enters
    and given back only when the last one leaves. What other threads compute meanwhile is right, but slower.
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
