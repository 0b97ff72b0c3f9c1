"""USTAR archives (POSIX.1-1988): headers that depend only on name and size, and a reader that checks every header.

Python's ``tarfile`` spends most of the time for a shard on ``TarInfo`` objects; here a header is one ``join``. Times,
owners and modes are constants, so a header is identical, byte for byte, to what ``tarfile`` would write for the same member.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np

BLOCK = 512
RECORD = 20 * BLOCK
MAX_SIZE = 8**11 - 1
"""Maximum size of a member in bytes: eleven octal digits, 8 GiB less one."""
MAX_NAME = 100
"""Maximum length of a name in UTF-8 bytes. USTAR's second name field is only for folders, which members of a shard lack."""

_UNSAFE = re.compile(r"^$|^/|(?:^|/)\.\.(?:/|$)|[\\\x00-\x1f\x7f]")
_OCTAL = re.compile(rb"[0-7]*\Z")
_OWNER = b"0000644\x000000000\x000000000\x00"
_TIME = b"00000000000\x00"
_REST = b"0" + bytes(100) + b"ustar\x0000" + bytes(247)
_FIXED_SUM = sum(_OWNER) + sum(_TIME) + 8 * 0x20 + sum(_REST)
_ZEROS = bytes(BLOCK)
_CHUNK = 1 << 20
_MAX_EXTENSION_HEADER = 1 << 20


class ShardError(ValueError):
    """A shard breaks a rule. The message names the shard, the byte offset and the rule."""


class Member(NamedTuple):
    """A regular file in a tar: its name, the bytes where its (first) header and its data start, and its size."""

    name: str
    offset: int
    data: int
    size: int


_Count = TypeVar("_Count", int, np.ndarray)


def padded(size: _Count) -> _Count:
    """``size`` in bytes, a number or an integer array, rounded up to whole blocks of 512 bytes."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


def member_header(name: str, size: int) -> bytes:
    """The 512-byte USTAR header of a regular file with mode 0644 and times and owners 0.

    Args:
        name: ``<key>.<extension>``, at most 100 bytes of UTF-8.
        size: bytes of data, at most 8 GiB less one.

    Raises:
        ValueError: the name or the size is too large.
    """
    encoded = name.encode()
    if len(encoded) > MAX_NAME:
        raise ValueError(f"member name {name!r} is {len(encoded)} bytes of UTF-8: USTAR takes at most {MAX_NAME}")
    if size > MAX_SIZE:
        raise ValueError(f"member {name!r} is {size} bytes: USTAR takes at most {MAX_SIZE} (8 GiB less one)")
    digits = b"%011o\x00" % size
    checksum = b"%06o\x00 " % (_FIXED_SUM + sum(encoded) + sum(digits))
    return b"".join((encoded.ljust(MAX_NAME, b"\x00"), _OWNER, digits, _TIME, checksum, _REST))


def iter_members(tar: bytes | mmap.mmap, *, place: str, base: int = 0, whole: bool = True) -> Iterator[Member]:
    """Yield the regular files of a tar; every header is checked.

    Reads USTAR, and the PAX and GNU forms of long names and sizes. Folders are skipped; links, devices and sparse files are
    errors, because skipping them would lose samples silently.

    Args:
        tar: the archive, or with ``whole=False`` a run of complete members from it.
        place: name or path of the shard, for errors.
        base: byte of the shard at which ``tar`` starts; added only to the offsets in errors.
        whole: whether to require the end marker of two zero blocks, and only zeros after it.

    Raises:
        ShardError: wrong checksum, truncation, a size beyond the end, a name that leaves the folder, or an unsupported type of
            member.
    """
    end = len(tar)
    position = start = 0
    path: bytes | None = None
    pax_size: int | None = None
    while whole or position < end:
        block = tar[position : position + BLOCK]
        if len(block) < BLOCK:
            raise _error(place, base + position, "truncated: a header or the end marker of two zero blocks is missing")
        if block == _ZEROS:
            _check_end(tar, position, start, place, base)
            return
        if not _checksum_holds(block):
            raise _error(place, base + position, "the header's checksum is wrong")
        kind = block[156:157]
        size = _size(block, place, base + position)
        if pax_size is not None and kind not in b"xgLK":
            size = pax_size
        data = position + BLOCK
        after = data + padded(size)
        if after > end:
            rule = f"truncated: the member needs bytes up to {base + after}, the data end at {base + end}"
            raise _error(place, base + position, rule)
        if kind in (b"0", b"\x00", b"7"):
            name = _name(path if path is not None else _ustar_path(block), place, base + position)
            yield Member(name, start, data, size)
        elif kind in (b"x", b"g", b"L", b"K"):
            extra = _extension_header(kind, tar, data, size, place, base + position)
            path = extra.get(b"path", path)
            pax_size = int(extra[b"size"]) if b"size" in extra else pax_size
        elif kind != b"5":
            rule = f"member of type {kind!r} (link, device or sparse file): a shard may contain only regular files"
            raise _error(place, base + position, rule)
        position = after
        if kind not in (b"x", b"g", b"L", b"K"):
            start, path, pax_size = after, None, None
    if start != position:
        raise _error(place, base + start, "an extension header has no member after it")


def _error(place: str, offset: int, rule: str) -> ShardError:
    return ShardError(f"{place}, byte {offset}: {rule}")


def _checksum_holds(block: bytes) -> bool:
    # The low half of Adler-32 is 1 + the sum of the bytes, modulo 65521, and thirty times as fast as sum(block).
    field = block[148:156]
    digits = field.strip(b" \x00")
    total = (zlib.adler32(block) & 0xFFFF) - 1 - sum(field) + 8 * 0x20
    return bool(digits and _OCTAL.match(digits)) and (int(digits, 8) - total) % 65521 == 0


def _size(block: bytes, place: str, offset: int) -> int:
    field = block[124:136]
    if field[0] == 0x80:  # GNU: big-endian binary
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \x00")
    if not _OCTAL.match(digits):
        raise _error(place, offset, f"the size field {field!r} is not an octal number")
    return int(digits or b"0", 8)


def _ustar_path(block: bytes) -> bytes:
    name = block[:100].split(b"\x00", 1)[0]
    # Only POSIX has a prefix; old GNU archives (magic "ustar  ") store times there.
    prefix = block[345:500].split(b"\x00", 1)[0] if block[257:263] == b"ustar\x00" else b""
    return prefix + b"/" + name if prefix else name


def _name(path: bytes, place: str, offset: int) -> str:
    try:
        name = path.decode()
    except UnicodeDecodeError:
        raise _error(place, offset, f"the member name {path!r} is not UTF-8") from None
    if _UNSAFE.search(name):
        raise _error(place, offset, f"the member name {name!r} is empty or absolute, or contains '..' or control characters")
    return name


def _extension_header(kind: bytes, tar: bytes | mmap.mmap, data: int, size: int, place: str, offset: int) -> dict[bytes, bytes]:
    if size > _MAX_EXTENSION_HEADER:
        raise _error(place, offset, f"an extension header of {size} bytes: at most {_MAX_EXTENSION_HEADER} are read")
    body = tar[data : data + size]
    if kind == b"L":
        return {b"path": body.rstrip(b"\x00")}
    if kind == b"K":
        return {}
    records: dict[bytes, bytes] = {}
    while body:
        digits = body.partition(b" ")[0]
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        name, equals, value = body[len(digits) + 1 : length].partition(b"=")
        if length > len(body) or not equals or value[-1:] != b"\n":
            raise _error(place, offset, "a PAX record is not 'length key=value'")
        records[name] = value[:-1]
        body = body[length:]
    if any(name.startswith(b"GNU.sparse") for name in records):
        raise _error(place, offset, "a sparse file: a shard may contain only plain files")
    if not re.fullmatch(rb"[0-9]{1,19}", records.get(b"size", b"0")):
        raise _error(place, offset, f"the PAX size {records[b'size']!r} is not a number")
    if kind == b"g" and records.keys() & {b"path", b"size"}:
        raise _error(place, offset, "a global PAX header sets a path or a size for all members")
    return records


def _check_end(tar: bytes | mmap.mmap, position: int, start: int, place: str, base: int) -> None:
    if start != position:
        raise _error(place, base + start, "an extension header has no member after it")
    if len(tar) - position < 2 * BLOCK:
        raise _error(place, base + position, "truncated: the end marker is two zero blocks, here is one")
    for at in range(position, len(tar), _CHUNK):
        if tar[at : at + _CHUNK].strip(b"\x00"):
            raise _error(place, base + position, "there is data after the end marker")
