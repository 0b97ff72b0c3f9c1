"""Which accelerator a process trains on: if there are several, each process has one to itself."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
from pathlib import Path

import torch


def device_of(name: str) -> str:
    """The device to train on.

    Args:
        name: "cpu", "cuda", or "cuda:1". "cuda" alone stands for the first GPU that no other process here trains on; where all
            are taken, for one by the number of the process.

    Raises:
        ValueError: for "cuda" where torch can use none.
    """
    if name != "cuda":
        return name
    if not torch.cuda.is_available():
        raise ValueError("device 'cuda': this machine has none that torch can use")
    return f"cuda:{_mine(torch.cuda.device_count())}"


def check_compiles(name: str) -> None:
    """Raise ValueError where ``torch.compile`` cannot work for that device."""
    compiler = os.environ.get("CXX", "g++")
    if name == "cpu" and shutil.which(compiler) is None:
        raise ValueError(f"compile: there is no C++ compiler {compiler!r} here: install one, or leave compile out")


@functools.cache
def _mine(count: int) -> int:
    """Holds a lock on the GPU as long as the process lives."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all").replace("/", "_")
    for number in range(count):
        path = Path(tempfile.gettempdir()) / f"benchwright-{os.getuid()}-gpu-{visible}-{number}.lock"
        held = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            continue
        return number
    return os.getpid() % count
