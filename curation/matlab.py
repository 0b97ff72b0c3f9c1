"""Read variables of a MATLAB file, version 4 to 7, in a child process, since a damaged file can make scipy's reader crash."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .child_processes import Died, limit_cpu, memory_is_short, tried_twice
from .rows import MachineFault, one_line

MAX_BYTES = 1 << 28
"""Larger files are refused."""

_MEMORY = 4 << 30  # limit of the child's address space in bytes: a few bytes in a file can claim any size
_CPU_LIMIT_S = 60.0
_WALL_LIMIT_S = 900.0
_SHORT_OF_MEMORY = 3  # exit code


def read_mat(data: bytes, names: Sequence[str]) -> dict[str, list[np.ndarray]]:
    """Read variables by name: each is a list of the cells of a cell array, in column order, or of the array itself.

    Args:
        data: content of the file.
        names: names of the variables, all of which must exist.

    Raises:
        ValueError: not a MATLAB file, a missing variable, one that contains anything but numbers or text, or a file that
            crashes the reader.
        MachineFault: the child was killed from outside or did not answer, twice, or ran out of memory.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"a MATLAB file of {len(data):,} bytes: {MAX_BYTES:,} at most")
    who, helps = "the process that reads a MATLAB file", "the machine may be too busy"
    try:
        child = tried_twice(lambda _: _read_apart(data, names), who=who, silence_s=_WALL_LIMIT_S, helps=helps)
    except Died as died:
        how = f"takes more than {_CPU_LIMIT_S:g} s of processor time" if died.out_of_time else "crashes"
        raise ValueError(f"no MATLAB file that can be read: the reader {how}") from None
    if child.returncode == _SHORT_OF_MEMORY:
        raise MachineFault(f"{who} was refused memory: use fewer --workers, or more memory")
    if child.returncode == 2:
        raise ValueError(child.stderr.decode("utf-8", "replace").strip())
    if child.returncode:  # faults of the file have been reported above
        message = child.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"{who} ended with {child.returncode}: {message}")
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    with np.load(io.BytesIO(child.stdout), allow_pickle=False) as archive:
        for member in archive.files:
            found[member.rpartition("/")[0]].append(archive[member])
    return found


def _read_apart(data: bytes, names: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-P", "-m", __name__, *names]
    try:
        child = subprocess.run(command, input=data, capture_output=True, timeout=_WALL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Died(0) from None
    if child.returncode < 0:
        raise Died(-child.returncode)
    return child


def main() -> None:
    """Entry point of the child: write the variables named by the arguments, read from stdin, to stdout as an npz archive."""
    import resource

    limit_cpu(_CPU_LIMIT_S)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    lowered = 0 <= hard < _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (hard if lowered else _MEMORY, hard))
    import scipy.io

    try:
        found: dict[str, Any] = scipy.io.loadmat(io.BytesIO(sys.stdin.buffer.read()), variable_names=sys.argv[1:])
        arrays: dict[str, np.ndarray] = {}
        for name in sys.argv[1:]:
            if name not in found:
                raise ValueError(f"no variable {name!r}")
            value = np.asarray(found[name])
            for number, cell in enumerate(value.ravel("F") if value.dtype == object else [value]):
                array = np.asarray(cell)
                if array.dtype.kind not in "biufU":
                    raise ValueError(f"variable {name!r} holds {array.dtype}: expected numbers or text")
                arrays[f"{name}/{number:08}"] = array
        out = io.BytesIO()
        np.savez(out, allow_pickle=False, **arrays)
    except Exception as error:  # for damaged files scipy raises many types of exceptions
        if isinstance(error, MemoryError) and (lowered or memory_is_short()):
            sys.exit(_SHORT_OF_MEMORY)
        message = one_line(error, None)
        sys.stderr.write(f"not a MATLAB file with {', '.join(sys.argv[1:])}: {message}\n")
        sys.exit(2)
    sys.stdout.buffer.write(out.getvalue())


if __name__ == "__main__":
    main()
