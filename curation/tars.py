"""Read untrusted tars to their last byte.

Members after an end-of-archive mark are read, as by ``tar --ignore-zeros``; other data there raise an error with their size.
"""

from __future__ import annotations

import tarfile
import typing
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from tarfile import HeaderError, ReadError, TarError, TarFile, TarInfo
from typing import IO, Any

TAR_ERRORS = (TarError, EOFError, OSError, ValueError, zlib.error, LZMAError, OverflowError, IndexError, KeyError)
"""Exceptions that reading a damaged tar may raise."""

_EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_MAX_EXTENSION_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20


class _Member(TarInfo):
    """A member's header. Only zeros up to the end of the file end the archive.

    tarfile itself would also silently treat a truncated file or a damaged header as the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> _Member:
        stream = typing.cast("IO[bytes]", tarfile.fileobj)
        block, blank = stream.read(512), b""
        while block and not block.strip(b"\0"):
            blank, block = block, stream.read(512)
        at = stream.tell() - len(block)
        try:
            # If no block follows the zeros, pass a zero block, which tarfile takes as the end of the archive.
            member = typing.cast(Any, cls.frombuf(block or bytes(512 if blank else 0), tarfile.encoding, tarfile.errors))
            if member.size < 0 or (member.type in _EXTENSIONS and member.size > _MAX_EXTENSION_BYTES):
                raise _unread(f"a header of type {member.type!r} that claims {member.size} bytes", stream, at)
            member.offset = at
            return member._proc_member(tarfile)
        except HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # which the type stubs do not know
                raise
            message = "behind an end-of-archive mark" if blank else "no end-of-archive mark"
            raise _unread(f"{message} ({error})", stream, at) from None


def _unread(message: str, stream: IO[bytes], at: int) -> ReadError:
    """The error for data from byte ``at`` on that cannot be read, with their size."""
    size = stream.tell() - at
    try:
        while data := stream.read(_CHUNK_BYTES):
            size += len(data)
    except TAR_ERRORS:
        return ReadError(f"{message}; bytes after {at} are not read")
    return ReadError(f"{message}; {size} bytes from byte {at} on are not read" if size else message)


def members(plain: IO[bytes]) -> Iterator[tuple[int, TarInfo, TarFile]]:
    """Number and header of every member from the stream's position on, with the archive to extract it from.

    Raises one of ``TAR_ERRORS``; for an invalid header, the message says how many bytes are not read, and from which byte on.
    """
    archive = tarfile.open(fileobj=plain, mode="r:", tarinfo=_Member)  # noqa: SIM115  # it holds no resources itself
    for number, member in enumerate(iter(archive.next, None)):
        typing.cast(Any, archive).members = []  # otherwise tarfile would keep all headers in memory
        yield number, member, archive
