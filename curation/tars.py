"""Tars of strangers, read to their last byte: an end mark ends nothing as long as members follow it, as for
``tar --ignore-zeros``; what follows and is no member is told, with its size."""

from __future__ import annotations

import tarfile
import typing
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from tarfile import HeaderError, ReadError, TarError, TarFile, TarInfo
from typing import IO, Any

from .bounded_reading import decompressed

TAR_ERRORS = (TarError, EOFError, OSError, ValueError, zlib.error, LZMAError, OverflowError, IndexError, KeyError)
"""What reading a damaged tar raises."""

_COMPRESSED = {".gz": "gzip", ".tgz": "gzip", ".bz2": "bzip2", ".xz": "xz"}
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_MAX_EXTENSION_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20


class _Member(TarInfo):
    """A member's header. Where the file just stops, or a header is damaged, tarfile takes it for the end of the archive and
    says nothing; here only zeros up to the end of the file are one."""

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> _Member:
        stream = typing.cast("IO[bytes]", tarfile.fileobj)
        block, blank = stream.read(512), b""
        while block and not block.strip(b"\0"):
            blank, block = block, stream.read(512)
        at = stream.tell() - len(block)
        try:
            # Without a block after zeros: their header, which is tarfile's mark of the end.
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


def _unread(told: str, stream: IO[bytes], at: int) -> ReadError:
    """The error, with the number of bytes from ``at`` on."""
    size = stream.tell() - at
    try:
        while data := stream.read(_CHUNK_BYTES):
            size += len(data)
    except TAR_ERRORS:
        return ReadError(f"{told}; bytes after {at} are not read")
    return ReadError(f"{told}; {size} bytes from byte {at} on are not read" if size else told)


def opened(stream: IO[bytes], name: str) -> IO[bytes]:
    """The tar's own bytes, decompressed by its name's ending, with a ``seek`` that goes forward."""
    return decompressed(stream, next((kind for ending, kind in _COMPRESSED.items() if name.lower().endswith(ending)), None))


def members(plain: IO[bytes]) -> Iterator[tuple[int, TarInfo, TarFile]]:
    """Number and header of every member from where the stream stands, with the archive to extract it from.

    Raises one of ``TAR_ERRORS``; of what is no header it says how many bytes, from which one on, are not read.
    """
    archive = tarfile.open(fileobj=plain, mode="r:", tarinfo=_Member)  # noqa: SIM115  # holds nothing itself
    for number, member in enumerate(iter(archive.next, None)):
        typing.cast(Any, archive).members = []  # tarfile would keep every header to the end
        yield number, member, archive
