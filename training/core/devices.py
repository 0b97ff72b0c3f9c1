"""Choice of the accelerator: with several GPUs, each process trains on its own."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
from pathlib import Path

import torch

from ...curation.requirements import check_device


def device_of(name: str) -> str:
    """Return the device to train on.

    Args:
        name: "cpu", "cuda", or "cuda:1". "cuda" means the first GPU on which no other process of this library trains; if all
            are taken, one chosen by the process id.

    Raises:
        ValueError: torch does not know the device, or cannot use it here.
    """
    check_device(name)
    return f"cuda:{_mine(torch.cuda.device_count())}" if name == "cuda" else name


def check_compiles(name: str) -> None:
    """Raise ValueError if ``torch.compile`` cannot work for the device."""
    compiler = os.environ.get("CXX", "g++")
    if name == "cpu" and shutil.which(compiler) is None:
        raise ValueError(f"compile: there is no C++ compiler {compiler!r} here: install one, or leave compile out")


@functools.cache
def _mine(count: int) -> int:
    """Return the number of a GPU, and hold a lock on it for the lifetime of the process."""
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
