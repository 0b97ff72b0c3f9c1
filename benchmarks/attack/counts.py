"""How many rows a careful reader finds in a file, at the least: what a run may reject, and may not lose in silence.

Written apart from the parsers, and plainly: they look for what is there, whatever an index or an end mark says.
"""

from __future__ import annotations

import gzip
import io
import posixpath
import re
import zipfile
import zlib

_HEADER = 512


def _file_headers(data: bytes) -> list[str]:
    """Names of the files whose headers stand in a tar, at any block, before or after end marks.

    Bodies are stepped over, so that a tar within a tar counts once.
    """
    names: list[str] = []
    at = 0
    while at + _HEADER <= len(data):
        header = data[at : at + _HEADER]
        size = _checked_size(header)
        at += _HEADER
        if size is None:
            continue
        if at + size > len(data):
            break
        if header[156:157] in (b"0", b"\0"):
            prefix = header[345:500].split(b"\0")[0].decode("utf-8", "replace")
            names.append(posixpath.join(prefix, header[:100].split(b"\0")[0].decode("utf-8", "replace")))
        at += -(-size // _HEADER) * _HEADER
    return names


def _checked_size(header: bytes) -> int | None:
    """Size that a tar's header declares, None where it is no header."""
    if header[257:262] != b"ustar":
        return None
    total = sum(header[:148]) + sum(header[156:]) + 8 * 32
    told = header[148:156].strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]+", told) or int(told, 8) != total:
        return None
    size = header[124:136].strip(b"\0 ")
    return int(size, 8) if re.fullmatch(rb"[0-7]+", size) else None


def members(data: bytes) -> int:
    """Files in a tar that its headers tell, packed or not."""
    return len(_file_headers(unpacked(data)))


def samples(data: bytes) -> int:
    """Samples of a WebDataset tar: runs of files of one stem."""
    stems = [re.match(r"[^.]*", name)[0] for name in _file_headers(unpacked(data))]  # type: ignore[index]
    return sum(a != b for a, b in zip(stems, ["", *stems], strict=False))


def unpacked(data: bytes) -> bytes:
    """What can be unpacked of gzip, member by member; other data as they are, and packed in another way nothing."""
    if data[:3] in (b"BZh", b"\xfd7z"):
        return b""
    if data[:2] != b"\x1f\x8b":
        return data
    found = b""
    while data[:2] == b"\x1f\x8b":
        engine = zlib.decompressobj(31)
        try:
            found += engine.decompress(data, 1 << 24)
        except zlib.error:
            break
        if not engine.eof:
            break
        data = engine.unused_data.lstrip(b"\0")
    return found


def lines(data: bytes) -> int:
    """Lines that are not blank, by line feeds alone; 0 for what is no UTF-8, which may be rejected whole."""
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return 0
    return sum(bool(line.strip()) for line in data.split(b"\n"))


def lines_below_header(data: bytes) -> int:
    """The same but the first."""
    return max(0, lines(data) - 1)


def gzip_lines(data: bytes) -> int:
    """Lines of a gzip file that is whole; 0 for one that is not."""
    try:
        return lines(gzip.decompress(data))
    except (OSError, EOFError, zlib.error):
        return 0


def gzip_lines_below_header(data: bytes) -> int:
    """The same but the first."""
    return max(0, gzip_lines(data) - 1)


def npz(data: bytes) -> int:
    """Arrays that lie in a zip by its local headers, whatever its index names, where each holds a sample: 0 of stacked ones."""
    names = [
        data[match.start() + 30 : match.start() + 30 + int.from_bytes(data[match.start() + 26 : match.start() + 28], "little")]
        for match in re.finditer(rb"PK\x03\x04", data)
    ]
    arrays = [name for name in names if name.endswith(b".npy")]
    if b"feature.npy" in arrays:
        return 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = sum(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError):
        return 0
    return max(listed, len(arrays))
