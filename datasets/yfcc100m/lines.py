"""Whole lines from large text files, block by block, and the faults of malformed lines.

Memory is bounded by ``BLOCK_BYTES`` and ``MAX_LINE_BYTES``, whatever the content of the file. Every line is counted once, and
its result does not depend on the boundaries of blocks or pieces.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np

BLOCK_BYTES = 1 << 22
"""Bytes that are read and parsed at a time: small enough for the cache, and for the allocator to reuse the same memory."""

MAX_LINE_BYTES = 1 << 20
"""Longer lines are rejected without being read. The longest real ones (long descriptions, many tags) are far below."""

LINES_AT_ONCE = 1 << 16
"""Lines that are parsed at a time: the reject of a line takes far more memory than an empty line. Lines of the metadata are
longer than 64 bytes, so that blocks are seldom cut because of this."""

_NEWLINE = ord("\n")


@dataclasses.dataclass(frozen=True)
class Lines:
    """Whole lines.

    Attributes:
        data: bytes of the lines with their newlines (one is added to the last line of a file if it has none, and to a line that
            is too long); valid until the next block is read.
        size: bytes of the lines in the file; more than in ``data`` if the last line was too long.
    """

    data: memoryview
    size: int


def start_of_first(stream: IO[bytes], start: int, end: int) -> int:
    """Position of the first line that begins in [start, end); ``end`` if there is none."""
    if start == 0:
        return 0
    stream.seek(start - 1)
    while (data := stream.readline(1 << 16)) and not data.endswith(b"\n") and stream.tell() < end:
        pass
    return min(stream.tell(), end)


def blocks(stream: IO[bytes], place: str, size: float = math.inf, block_bytes: int | None = None) -> Iterator[Lines]:
    """The lines of a stream that begin in its next ``size`` bytes.

    Args:
        size: for a seekable stream; all lines of other streams are read.
        block_bytes: approximate size of a block; ``BLOCK_BYTES`` by default.

    Raises:
        ValueError: a compressed stream is truncated or damaged.
    """
    done, start, most = 0, stream.tell() if size < math.inf else 0, block_bytes or BLOCK_BYTES
    # One buffer for all blocks: the system need not clear memory for each.
    view = np.empty(most + 2 * (MAX_LINE_BYTES + 2), dtype=np.uint8).data
    try:
        while (wanted := int(min(most, size - done))) > 0:
            if size < math.inf:  # find the end of the last line before reading
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


def first_of(blocks: Iterable[Lines], count: int) -> Iterator[tuple[Lines, int]]:
    """The first ``count`` lines of blocks, with their number in each block."""
    for block in blocks:
        ends = np.flatnonzero(np.frombuffer(block.data, dtype=np.uint8) == _NEWLINE)[:count]
        if (count := count - len(ends)) > 0:
            yield block, len(ends)
            continue
        end = int(ends[-1]) + 1
        # A whole block may end in the beginning of an overlong line: then it is larger than its data.
        yield Lines(block.data[:end], block.size if end == len(block.data) else end), len(ends)
        return


def _read(stream: IO[bytes], room: memoryview) -> int:
    """Read into ``room``; return the number of bytes, 0 at the end."""
    if (read := getattr(stream, "readinto", None)) is not None:
        return read(room)
    data = stream.read(len(room))
    room[: len(data)] = data
    return len(data)


def fault(line: bytes, columns: int) -> tuple[str, str] | None:
    """Why a line cannot be split into ``columns`` fields, and what was found; None if it can.

    Args:
        line: the line with its newline.
        columns: required number of tab-separated columns.
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
    """Why the bytes of a line or a field are not text, and what was found; None if they are."""
    if b"\0" in data:
        return "nul_byte", f"NUL at byte {data.index(0)} of {what}"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return "bad_utf8", f"{data[error.start : error.start + 4]!r} at byte {error.start} of {what} is not UTF-8"
    return None
