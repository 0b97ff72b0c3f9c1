"""Orientation and date of a picture from its EXIF data; a damaged block is treated as absent.

Exif 2.32 (CIPA DC-008-2019): a TIFF structure inside JPEG's APP1, PNG's eXIf, WebP's EXIF chunk, or the TIFF file
itself. Pillow also reads EXIF, but warns of damage through process-wide state, and cannot read it from a file's head alone.
"""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import dataclass

_ORIENTATION, _DATE_TIME, _EXIF_IFD, _DATE_TIME_ORIGINAL = 0x0112, 0x0132, 0x8769, 0x9003
_ASCII, _SHORT, _LONG = 2, 3, 4
_MAX_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Exif:
    """EXIF data of a picture.

    Attributes:
        orientation: 1 to 8 as in EXIF tag 0x0112; 1, upright, if it is absent or out of range.
        date_taken: DateTimeOriginal, else DateTime, as written (naive local time); None if neither can be read.

    >>> Exif(orientation=6).date_taken is None  # 6: to be turned by 90 degrees, clockwise
    True
    """

    orientation: int = 1
    date_taken: dt.datetime | None = None


def read_exif(data: bytes) -> Exif:
    """EXIF data of an image file; upright and undated if it has none. Never raises.

    >>> read_exif(b"no picture")
    Exif(orientation=1, date_taken=None)
    """
    block = _find_block(data)
    if block is None or block[:4] not in (b"II*\0", b"MM\0*"):
        return Exif()
    order = "<" if block[:2] == b"II" else ">"
    main = _read_ifd(block, order, _u32(block, order, 4))
    orientation = main.get(_ORIENTATION, 1)
    taken = None
    offset = main.get(_EXIF_IFD)
    if isinstance(offset, int):
        taken = parse_exif_date(_read_ifd(block, order, offset).get(_DATE_TIME_ORIGINAL))
    if taken is None:
        taken = parse_exif_date(main.get(_DATE_TIME))
    return Exif(orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1, taken)


def parse_exif_date(text: object) -> dt.datetime | None:
    """Parse ``"2006:02:28 20:33:06"`` to a naive datetime; None for anything else, also for blank and all-zero dates.

    >>> parse_exif_date("2006:02:28 20:33:06"), parse_exif_date("0000:00:00 00:00:00")
    (datetime.datetime(2006, 2, 28, 20, 33, 6), None)
    """
    if not isinstance(text, str):
        return None
    try:
        return dt.datetime.strptime(text.strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S")
    except ValueError:
        return None


def _u32(block: bytes, order: str, offset: int) -> int:
    return struct.unpack_from(order + "I", block, offset)[0] if offset + 4 <= len(block) else 0


def _read_ifd(block: bytes, order: str, offset: int) -> dict[int, int | str]:
    """Tags of one directory that are a short, a long or text; entries that point outside the block are left out."""
    if not 8 <= offset <= len(block) - 2:
        return {}
    (count,) = struct.unpack_from(order + "H", block, offset)
    tags: dict[int, int | str] = {}
    for index in range(min(count, _MAX_ENTRIES)):
        at = offset + 2 + 12 * index
        if at + 12 > len(block):
            break
        tag, kind, length = struct.unpack_from(order + "HHI", block, at)
        if kind == _SHORT and length == 1:
            tags[tag] = struct.unpack_from(order + "H", block, at + 8)[0]
        elif kind == _LONG and length == 1:
            tags[tag] = _u32(block, order, at + 8)
        elif kind == _ASCII and length <= 64:
            start = at + 8 if length <= 4 else _u32(block, order, at + 8)
            tags[tag] = block[start : start + length].decode("ascii", "replace")
    return tags


def _find_block(data: bytes) -> bytes | None:
    if data[:2] == b"\xff\xd8":
        return _find_in_jpeg(data)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _find_in_chunks(data, 8, ">I4s", b"eXIf", trailer=4)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _find_in_chunks(data, 12, "<4sI", b"EXIF", trailer=0)
    return data if data[:4] in (b"II*\0", b"MM\0*") else None


def _find_in_jpeg(data: bytes) -> bytes | None:
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte before the marker
            at += 1
            continue
        if marker in (0xDA, 0xD9):  # the scan: no metadata after it
            return None
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0":
            return data[at + 10 : at + 2 + length]
        at += 2 + max(length, 2)
    return None


def _find_in_chunks(data: bytes, start: int, layout: str, wanted: bytes, trailer: int) -> bytes | None:
    """Body of the first chunk named ``wanted`` in PNG's (length, name) or RIFF's (name, length) chunks."""
    at = start
    while at + 8 <= len(data):
        first, second = struct.unpack_from(layout, data, at)
        name, length = (first, second) if isinstance(first, bytes) else (second, first)
        if name == wanted:
            return data[at + 8 : at + 8 + length].removeprefix(b"Exif\0\0")
        at += 8 + length + trailer
        if trailer == 0:
            at += length % 2  # RIFF pads its chunks to even lengths
    return None
