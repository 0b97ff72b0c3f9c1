"""What all hostile files made by hand share: they change a valid folder on disk.

What would run or be written lies in ``CANARY``, a folder beside everything that a run may touch: the attack looks there after
every input.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

Specials = Callable[[], Mapping[str, Callable[[Path], None]]]
CANARY = "ATTACK_CANARY"
"""Environment variable that names the folder in which nothing may appear."""


def canary() -> Path:
    """The folder in which nothing may appear."""
    return Path(os.environ.get(CANARY, "/tmp/attack-canary"))


def put(name: str, data: bytes | Callable[[], bytes]) -> Callable[[Path], None]:
    """Put these bytes in place of a file."""
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data()) and None


def put_all(name: str, made: Mapping[str, bytes | Callable[[], bytes]]) -> Mapping[str, Callable[[Path], None]]:
    """The same of each of several contents, by what they are."""
    return {told: put(name, data) for told, data in made.items()}


class Gadget:
    """A pickle that would make a file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {canary() / self.name}",)


def gadget(protocol: int = 4) -> bytes:
    """A pickle that runs a command where it is loaded."""
    return pickle.dumps(Gadget("unpickled"), protocol=protocol)
