"""How often Python looks for garbage in processes of ours. Imports nothing: the command line calls it before all else."""

from __future__ import annotations

import gc


def collect_rarely() -> None:
    """Let Python look for cycles of garbage after 10,000 new objects, not 700 to 2000, and not among those that are there.

    For a process of ours alone. It would spend a fifth of a small run on the objects of the libraries, which all stay in use;
    and in a worker process, whose memory is that of the server that it was forked from, each look would copy their pages.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
