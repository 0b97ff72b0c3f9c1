"""Read zip archives, such as npz and torch files, only if their list of members accounts for every byte."""

from __future__ import annotations

import contextlib
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

_LOCAL_HEADER_BYTES = 30
_END_BYTES = 22
_MAX_DESCRIPTOR_BYTES = 24  # after a member that was written before its size was known
_HAS_DESCRIPTOR = 0x8
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    IndexError,
    OverflowError,
    UnicodeError,
)


@contextlib.contextmanager
def open_zip(stream: IO[bytes], place: str, what: str) -> Iterator[zipfile.ZipFile]:
    """The archive, after ``check_whole``. Errors of a damaged archive in the block are also raised as ``ValueError``.

    Args:
        stream: seekable stream.
        place: the file, for errors.
        what: what the file should be, for errors, such as ``npz file``.

    Raises:
        ValueError: the archive is damaged, contains data that it does not list, or two members of the same name.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            check_whole(archive, place)
            yield archive
    except _DAMAGE as error:  # RuntimeError for encrypted or unusually compressed members
        raise ValueError(f"{place} is not a valid {what}: {error}") from None


def check_whole(archive: zipfile.ZipFile, place: str) -> None:
    """Raise ``ValueError`` unless the file consists only of the listed members, each once, the list and its end record."""
    names = archive.namelist()
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{place} holds {again!r} twice: one of them would be lost")
    stream = cast("IO[bytes]", archive.fp)
    end = stream.seek(0, 2)
    stream.seek(max(end - _END_BYTES - len(archive.comment), 0))
    if stream.read(4) != b"PK\x05\x06":
        raise ValueError(f"{place} continues after the end of its zip archive: bytes that would not be read")
    at = flags = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        slack = _MAX_DESCRIPTOR_BYTES if flags & _HAS_DESCRIPTOR else 0
        if not 0 <= info.header_offset - at <= slack:
            raise _gap(place, at, info.header_offset)
        at, flags = _end_of(stream, info, place), info.flag_bits
    slack = _MAX_DESCRIPTOR_BYTES if flags & _HAS_DESCRIPTOR else 0
    if not 0 <= archive.start_dir - at <= slack:
        raise _gap(place, at, archive.start_dir)


def _end_of(stream: IO[bytes], info: zipfile.ZipInfo, place: str) -> int:
    stream.seek(info.header_offset)
    head = stream.read(_LOCAL_HEADER_BYTES)
    if len(head) < _LOCAL_HEADER_BYTES or head[:4] != b"PK\x03\x04":
        raise ValueError(
            f"{place}: no member begins at byte {info.header_offset}, where its zip archive lists {info.filename!r}"
        )
    name, extra = struct.unpack("<HH", head[26:30])
    return info.header_offset + _LOCAL_HEADER_BYTES + name + extra + info.compress_size


def _gap(place: str, at: int, begin: int) -> ValueError:
    if begin < at:
        return ValueError(f"{place}: members of its zip archive overlap at byte {begin}")
    return ValueError(f"{place}: {begin - at} bytes from byte {at} on are of no member that its zip archive lists")
