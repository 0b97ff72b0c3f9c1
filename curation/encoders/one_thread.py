"""Run torch so that equal inputs give equal bits: on one thread, and on a GPU with deterministic convolutions.

With several threads, the order of additions, and so the last bits of sums, may change. For encoders and for trainings. Training
steps are small, so more threads would gain little, and lose much on shared cores.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_lock = threading.Lock()
_depth = 0
_before = 1
_on_gpu = _in_float32 = 0
_flags = contextlib.ExitStack()


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


@contextlib.contextmanager
def exact(device: str | torch.device, *, half: bool = False) -> Iterator[None]:
    """``one_thread``; on a GPU also with deterministic convolutions, without TensorFloat-32 unless ``half``.

    cuDNN's flags are per process: the last thread that leaves restores them, and while any computes without ``half``, none has
    TensorFloat-32. Meanwhile, results of other threads that use the GPU stay correct.
    """
    with one_thread():
        if not str(device).startswith("cuda"):
            yield
            return
        _enter(half=half)
        try:
            yield
        finally:
            _leave(half=half)


def _enter(*, half: bool) -> None:
    from torch.backends import cudnn

    global _on_gpu, _in_float32
    with _lock:
        if _on_gpu == 0:
            _flags.enter_context(cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=half))
        _on_gpu, _in_float32 = _on_gpu + 1, _in_float32 + (not half)
        cudnn.allow_tf32 = _in_float32 == 0


def _leave(*, half: bool) -> None:
    from torch.backends import cudnn

    global _on_gpu, _in_float32
    with _lock:
        _on_gpu, _in_float32 = _on_gpu - 1, _in_float32 - (not half)
        cudnn.allow_tf32 = _in_float32 == 0
        if _on_gpu == 0:
            _flags.close()
