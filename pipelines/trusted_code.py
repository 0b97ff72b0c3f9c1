"""Code that the user has named: code named in a ``run.json`` may come from anyone, and is run only if it is on this list.

The user's file ``$XDG_STATE_HOME/benchwright/named-code`` has a line for each: the path of a Python file, or
``module:attribute``. Naming code, on the command line or in a settings file, adds it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..curation.registry import Entry
from .errors import WrongUse

_MOST_BYTES = 1 << 20
_allowed: set[str] = set()
"""Code named in this process, which counts even where the file cannot be written."""


class NotNamed(WrongUse):
    """A run names code that this user has not named."""


def state_file() -> Path:
    """Path of the list."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "benchwright" / "named-code"


def remember(entries: Iterable[Entry]) -> None:
    """Add code that the user has named. If the file cannot be written, it counts for this process only."""
    lines = [line for entry in entries if (line := _line(entry))]
    _allowed.update(lines)
    new = [line for line in dict.fromkeys(lines) if line not in set(_kept())]
    if not new or any("\n" in line for line in new):
        return
    file = state_file()
    with contextlib.suppress(OSError, ValueError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and not list(_kept()):  # damaged, or writable by others: start again
            file.unlink()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with open(os.open(file, flags, 0o600), "ab") as stream:
            stream.write("".join(f"{line}\n" for line in new).encode("utf-8", "surrogateescape"))


def check_trusted(entries: Iterable[Entry], out: str) -> None:
    """Raises ``NotNamed`` if ``out`` names code that is not built in, installed with a package, or named by the user."""
    kept = set(_kept())
    for entry in entries:
        line = _line(entry)
        inside = line.startswith("/") and "://" not in out and Path(line).is_relative_to(Path(out).resolve())
        if not line or line in _allowed or (line in kept and not inside):
            continue
        how = f"name it with --pipeline {line}, or " if entry.kind == "benchmark" else ""
        raise NotNamed(f"{out} wants to run {entry.reference}, which you have not named: {how}allow it with --trust-code")


def _line(entry: Entry) -> str:
    """The file, or the reference; "" for code that is built in or of an installed package."""
    if entry.origin:
        return ""
    place = entry.reference.rpartition(":")[0]
    return str(Path(place).resolve()) if place.endswith(".py") else entry.reference


def _kept() -> Iterator[str]:
    """The lines of the list; none if it is missing, damaged, or writable by others."""
    try:
        with open(os.open(state_file(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            about = os.fstat(stream.fileno())
            own = about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            data = stream.read(_MOST_BYTES) if own and stat.S_ISREG(about.st_mode) else b""
    except (OSError, ValueError):
        return
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("/") or ":" in line:
            yield line
