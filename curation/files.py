"""Local files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str | Path, *, sync: bool = True) -> Iterator[Path]:
    """A place beside ``path`` to write a file at, which takes the place of ``path`` when the block ends without an error.

    A reader, or a crash, sees the old file or the new one and nothing between. The folder is made; several processes may
    write the same file.

    Args:
        path: of the file.
        sync: let it reach the disk first, so that a loss of power leaves it whole, too; many small files take long then.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(6)}")
    try:
        yield beside
        if sync:
            with beside.open("rb+") as stream:
                os.fsync(stream.fileno())
        beside.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(beside)):  # a full disk does not say which file
            error.filename = str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: str | Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """The stream of such a file."""
    with replacing(path, sync=sync) as beside, beside.open("wb") as stream:
        yield stream


def write_whole(path: str | Path, data: bytes, *, sync: bool = True) -> None:
    """Write such a file."""
    with writing(path, sync=sync) as stream:
        stream.write(data)


def remove_half_written(folder: str | Path) -> None:
    """Remove what a kill left of files that were being written in a folder, and those below it, that nobody writes to now."""
    for left in Path(folder).rglob(".tmp-*"):
        if left.is_file():
            left.unlink()
