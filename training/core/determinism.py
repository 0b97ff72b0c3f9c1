"""What makes a training a function of its arguments: generators by name, and sums in one order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from ...curation.rng import rng

_ENTERED = {"count": 0, "before": 1}
_LOCK = threading.Lock()


def generator(seed: int, stage: str, key: str = "") -> torch.Generator:
    """A CPU generator that depends on (seed, stage, key) alone; the global one is never touched."""
    return torch.Generator().manual_seed(int(rng(seed, stage, key).integers(2**63)))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's CPU kernels on one thread.

    Sums split over threads depend on how many there are, so one thread is what makes results equal between machines
    with different numbers of cores. Steps are small, so more threads gain little, and lose much where cores are shared:
    trainings side by side use the cores better. Threads of Python may be in here together: the last one out restores.
    """
    with _LOCK:
        if not _ENTERED["count"]:
            _ENTERED["before"] = torch.get_num_threads()
        _ENTERED["count"] += 1
        torch.set_num_threads(1)  # each thread of Python has a number of its own
    try:
        yield
    finally:
        with _LOCK:
            _ENTERED["count"] -= 1
            if not _ENTERED["count"]:
                torch.set_num_threads(_ENTERED["before"])
