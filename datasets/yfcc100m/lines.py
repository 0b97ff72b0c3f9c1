"""Whole lines out of large text files, block by block, and what is wrong with a line that is not what it should be.

Memory is bounded by ``BLOCK_BYTES`` and ``MAX_LINE_BYTES``, whatever the file holds. Every line is counted once, and what
becomes of it does not depend on where blocks or pieces begin.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

BLOCK_BYTES = 1 << 24
"""Bytes that are read and parsed at a time: small enough for the allocator to use the same memory again, and for the cache."""

MAX_LINE_BYTES = 1 << 20
"""A longer line is rejected unread. The longest real ones (long descriptions, many tags) are far below."""

LINES_AT_ONCE = 1 << 18
"""Lines that are parsed at a time. Those of the metadata are longer than 64 bytes, so that blocks are seldom cut for it."""

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2"}


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole lines.

    Attributes:
        data: bytes of the lines with their newlines (the last line of a file may lack its own).
        size: bytes that they take up in the file; more than ``len(data)`` where a line was too long to keep.
    """

    data: bytes
    size: int


def compression(head: bytes) -> str | None:
    """``gzip``, ``bzip2`` or None, by the first bytes of a file."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def chunks_of_stream(stream: IO[bytes], place: str, chunk_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """All bytes of a stream that may be compressed.

    Raises:
        ValueError: where the compressed stream is cut short or damaged.
    """
    done = 0
    while True:
        try:
            data = stream.read(chunk_bytes)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{place}: the compressed stream breaks after {done:,} bytes of text: {error}") from error
        if not data:
            return
        done += len(data)
        yield data


def chunks_of_range(stream: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    """Bytes of the lines that begin in [start, end) of a seekable stream, the rest of the last line included.

    ``start`` is where a line begins; ``start_of_first`` finds it.
    """
    at, data = start, b"\n"
    while at < end:
        size = min(BLOCK_BYTES, end - at)
        # Look where the last line ends before reading: a block that ends with a line need not be cut and copied.
        stream.seek(at + size - 1)
        size += max(stream.read(1 << 16).find(b"\n"), 0)
        stream.seek(at)
        data = stream.read(size)
        if not data:
            return
        at += len(data)
        yield data
    while not data.endswith(b"\n"):
        data = stream.read(1 << 16)
        data = data[: data.find(b"\n") + 1 or None]
        if not data:
            return
        yield data


def start_of_first(stream: IO[bytes], start: int, end: int) -> int:
    """Where the first line that begins in [start, end) begins; ``end`` where none does."""
    if start == 0:
        return 0
    stream.seek(start - 1)
    at = start - 1
    while at < end:
        data = stream.read(min(1 << 16, end - at))
        cut = data.find(b"\n")
        if cut >= 0:
            return min(at + cut + 1, end)
        if not data:
            break
        at += len(data)
    return end


def blocks(chunks: Iterable[bytes]) -> Iterator[Block]:
    """Cut chunks of bytes at line ends. A line longer than ``MAX_LINE_BYTES`` comes as a block of its own, cut short."""
    carry = b""
    overlong = 0  # bytes of a line that has been cut short, so far
    for chunk in chunks:
        cut = chunk.find(b"\n") + 1 if overlong else chunk.rfind(b"\n") + 1
        if overlong:
            overlong += cut or len(chunk)
            if not cut:
                continue
            yield Block(carry, overlong)
            carry, overlong, chunk = b"", 0, chunk[cut:]
            cut = chunk.rfind(b"\n") + 1
        if cut:
            data = carry + chunk[:cut] if carry else chunk if cut == len(chunk) else chunk[:cut]
            yield from _some_lines(data)
            carry = chunk[cut:]
        else:
            carry += chunk
        if len(carry) > MAX_LINE_BYTES:
            carry, overlong = carry[: MAX_LINE_BYTES + 1], len(carry)
    if overlong or carry:
        yield Block(carry, overlong or len(carry))


def _some_lines(data: bytes) -> Iterator[Block]:
    """Blocks of at most ``LINES_AT_ONCE`` of these lines: what is wrong with a line takes far more memory than an empty one."""
    while data.count(b"\n") > LINES_AT_ONCE:
        end = 0
        for line in itertools.islice(io.BytesIO(data), LINES_AT_ONCE):
            end += len(line)
        yield Block(data[:end], end)
        data = data[end:]
    yield Block(data, len(data))


def fault(line: bytes, columns: int) -> tuple[str, str] | None:
    """Why a line cannot be cut into ``columns`` fields, and what was seen; None where it can.

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
    """Why the bytes of a line or a field are no text, and what was seen; None where they are."""
    if b"\0" in data:
        return "nul_byte", f"NUL at byte {data.index(0)} of {what}"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return "bad_utf8", f"{data[error.start : error.start + 4]!r} at byte {error.start} of {what} is not UTF-8"
    return None
