"""Whole lines out of large text files, block by block, and what is wrong with a line that is not what it should be.

Memory is bounded by ``BLOCK_BYTES`` and ``MAX_LINE_BYTES``, whatever the file holds. Every line is counted once, and what
becomes of it does not depend on where blocks or pieces begin.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterator
from typing import IO

import numpy as np

BLOCK_BYTES = 1 << 22
"""Bytes that are read and parsed at a time: small enough for the allocator to use the same memory again, and for the cache."""

MAX_LINE_BYTES = 1 << 20
"""A longer line is rejected unread. The longest real ones (long descriptions, many tags) are far below."""

LINES_AT_ONCE = 1 << 16
"""Lines that are parsed at a time: what is wrong with a line takes far more memory than an empty one. Those of the metadata are
longer than 64 bytes, so that blocks are seldom cut for it."""

_NEWLINE = ord("\n")
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2"}


@dataclasses.dataclass(frozen=True)
class Lines:
    """Whole lines.

    Attributes:
        data: bytes of the lines with their newlines (the last line of a file, and one that is too long, gets one where it has
            none), to be used before the next block is read.
        size: bytes that they take up in the file; more than are kept where the last line was too long.
    """

    data: memoryview
    size: int


def compression(head: bytes) -> str | None:
    """``gzip``, ``bzip2`` or None, by the first bytes of a file."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def start_of_first(stream: IO[bytes], start: int, end: int) -> int:
    """Where the first line that begins in [start, end) begins; ``end`` where none does."""
    if start == 0:
        return 0
    stream.seek(start - 1)
    while (data := stream.readline(1 << 16)) and not data.endswith(b"\n") and stream.tell() < end:
        pass
    return min(stream.tell(), end)


def blocks(stream: IO[bytes], place: str, size: float = math.inf, block_bytes: int | None = None) -> Iterator[Lines]:
    """The lines of a stream that begin in its next ``size`` bytes. A line begins where it stands.

    Args:
        size: of a stream that can seek; of others all lines are read.
        block_bytes: of a block, or somewhat more; ``BLOCK_BYTES`` by default.

    Raises:
        ValueError: where a compressed stream is cut short or damaged.
    """
    done, start, most = 0, stream.tell() if size < math.inf else 0, block_bytes or BLOCK_BYTES
    # One room for all blocks: the system need not clear memory for each.
    view = np.empty(most + 2 * (MAX_LINE_BYTES + 2), dtype=np.uint8).data
    try:
        while (wanted := int(min(most, size - done))) > 0:
            if size < math.inf:  # look where the last line ends before reading
                stream.seek(start + done + wanted - 1)
                wanted += max(len(stream.readline(MAX_LINE_BYTES + 1)) - 1, 0)
                stream.seek(start + done)
            if not (count := _read(stream, view[:wanted])):
                return
            if view[count - 1] != _NEWLINE:
                rest = stream.readline(MAX_LINE_BYTES + 1)
                view[count : count + len(rest)] = rest
                count += len(rest)
            taken = count
            if view[count - 1] != _NEWLINE:  # the last line of the file, or one that is too long
                count = min(count, bytes(view[:count]).rfind(b"\n") + MAX_LINE_BYTES + 2)
                while (rest := stream.readline(1 << 16)) and (taken := taken + len(rest)) and not rest.endswith(b"\n"):
                    pass
                view[count] = _NEWLINE
                count += 1
            done += taken
            yield Lines(view[:count], taken)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{place}: the compressed stream breaks after {done:,} bytes of text: {error}") from error


def _read(stream: IO[bytes], room: memoryview) -> int:
    """Read into ``room``; how many bytes, 0 at the end."""
    if (read := getattr(stream, "readinto", None)) is not None:
        return read(room)
    data = stream.read(len(room))
    room[: len(data)] = data
    return len(data)


def fault(line: bytes, columns: int) -> tuple[str, str] | None:
    """Why a line cannot be cut into ``columns`` fields, and what was seen; None if it can.

    Args:
        line: with its end.
        columns: tab-separated columns that it must have.
    """
    if len(line) > MAX_LINE_BYTES:
        return "line_too_long", f"more than {MAX_LINE_BYTES:,} bytes"
    line = line.rstrip(b"\r\n")
    if not line:
        return "blank_line", "nothing on it"
    found = line.count(b"\t") + 1
    wrong = None if found == columns else ("wrong_column_count", f"{found} columns, {columns} expected")
    return text_fault(line, "the line") or wrong


def text_fault(data: bytes, what: str) -> tuple[str, str] | None:
    """Why the bytes of a line or a field are no text, and what was seen; None if they are."""
    if b"\0" in data:
        return "nul_byte", f"NUL at byte {data.index(0)} of {what}"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return "bad_utf8", f"{data[error.start : error.start + 4]!r} at byte {error.start} of {what} is not UTF-8"
    return None
