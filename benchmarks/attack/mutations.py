"""Changes to a valid file, drawn from a generator: what a broken disk, a cut download or an attacker may make of it."""

from __future__ import annotations

import binascii
import gzip
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence

import numpy as np

Draw = np.random.Generator
Change = Callable[[bytes, Sequence[bytes], Draw], bytes]

_NUMBERS = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_EXTREMES = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 62,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
# fmt: off
_WORDS = (
    b"0", b"-1", b"-0", b"1e999", b"-1e999", b"NaN", b"Infinity", b"9223372036854775808", b"-9223372036854775809", b"9" * 400,
    b"1e-999", b"0x10", b"1_000", b"01", b".", b"", b" ", b"\x00", b"null", b"true", b'""', b'"', b"'", b"{}", b"[]",
    b"[" * 3000,
    b'{"a":' * 3000, b"\\ud800", b'"\\ud800"', b"\xed\xa0\x80", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\t", b",", b";",
    b"../../../../etc/passwd", b"/etc/passwd", b"=cmd|' /C calc'!A0", b"\xe2\x80\xae", b"a" * 70_000, b"%s%n", b"{0.__class__}",
)
# fmt: on


def _cut(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    return data[: int(draw.integers(len(data) + 1))]


def _beheaded(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    return data[int(draw.integers(len(data) + 1)) :]


def _flipped(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    changed = bytearray(data)
    for at in draw.integers(len(data), size=int(draw.integers(1, 9))):
        changed[at] ^= 1 << int(draw.integers(8))
    return bytes(changed)


def _head_flipped(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    """Flips near the beginning, where most formats keep what they claim."""
    head = min(len(data), 256)
    return _flipped(data[:head], others, draw) + data[head:]


def _block(data: bytes, draw: Draw) -> tuple[int, int]:
    start = int(draw.integers(len(data)))
    return start, min(len(data), start + int(2 ** draw.uniform(0, 12)))


def _zeroed(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    start, stop = _block(data, draw)
    return data[:start] + bytes(stop - start) + data[stop:]


def _noisy(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    start, stop = _block(data, draw)
    return data[:start] + draw.bytes(stop - start) + data[stop:]


def _without(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    start, stop = _block(data, draw)
    return data[:start] + data[stop:]


def _repeated(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    start, stop = _block(data, draw)
    return data[:stop] + data[start:stop] * int(draw.integers(1, 4)) + data[stop:]


def _swapped(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    a, b, c = sorted(int(at) for at in draw.integers(len(data) + 1, size=3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _spliced(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    other = others[int(draw.integers(len(others)))] if others else data
    return data[: int(draw.integers(len(data) + 1))] + other[int(draw.integers(len(other) + 1)) :]


def _joined(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    other = others[int(draw.integers(len(others)))] if others else data
    return data + bytes(int(draw.integers(2)) * 512) + other


def _extreme(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    """An integer of 1 to 8 bytes becomes one of the numbers at which types end."""
    width = int(draw.choice([1, 2, 4, 8]))
    at = int(draw.integers(max(1, min(len(data), 4096) if draw.random() < 0.7 else len(data))))
    value = int(draw.choice(np.array(_EXTREMES, dtype=np.uint64))) & ((1 << 8 * width) - 1)
    return data[:at] + value.to_bytes(width, "little" if draw.random() < 0.5 else "big") + data[at + width :]


def _enlarged(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    """What looks like a size (an integer of 4 bytes, not above the file's own) is declared a thousand times as large."""
    for _ in range(64):
        at, order = int(draw.integers(max(1, len(data) - 4))), "<I" if draw.random() < 0.5 else ">I"
        if len(data) >= at + 4 and 0 < (value := struct.unpack_from(order, data, at)[0]) <= len(data):
            return (
                data[:at] + struct.pack(order, min(value * int(draw.choice([16, 1024, 1 << 20])), 0xFFFFFFFF)) + data[at + 4 :]
            )
    return _extreme(data, others, draw)


def _other_number(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    found = list(_NUMBERS.finditer(data))
    if not found:
        return _word(data, others, draw)
    match = found[int(draw.integers(len(found)))]
    return data[: match.start()] + _WORDS[int(draw.integers(len(_WORDS)))] + data[match.end() :]


def _word(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    at = int(draw.integers(len(data) + 1))
    return data[:at] + _WORDS[int(draw.integers(len(_WORDS)))] + data[at:]


def _field(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    """A field between separators becomes another word."""
    places = [0, *(match.end() for match in re.finditer(rb"[,\t\n:\[\]{}= ]", data)), len(data)]
    at = int(draw.integers(len(places) - 1))
    return data[: places[at]] + _WORDS[int(draw.integers(len(_WORDS)))] + data[max(places[at], places[at + 1] - 1) :]


def _lines(data: bytes, others: Sequence[bytes], draw: Draw) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return _word(data, others, draw)
    at = int(draw.integers(len(lines)))
    match int(draw.integers(5)):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[int(draw.integers(len(lines)))])
        case 2:
            lines[at] = lines[at].rstrip(b"\r\n") + b"\r" * 2 + b"\n"
        case 3:
            lines.insert(at, b"\n" * int(draw.integers(1, 50)))
        case _:
            lines[at] = lines[at].rstrip(b"\r\n")
    return b"".join(lines)


ANY: tuple[Change, ...] = (
    _cut,
    _beheaded,
    _flipped,
    _flipped,
    _head_flipped,
    _zeroed,
    _noisy,
    _without,
    _repeated,
    _swapped,
    _spliced,
    _joined,
    _extreme,
    _enlarged,
)
TEXT: tuple[Change, ...] = (
    _other_number,
    _other_number,
    _word,
    _field,
    _field,
    _lines,
    _cut,
    _flipped,
    _joined,
    _spliced,
    _swapped,
    _noisy,
)


def changed(data: bytes, others: Sequence[bytes], draw: Draw, *, text: bool = False, packed: str = "") -> bytes:
    """The file after one to three changes.

    Args:
        data: a valid file.
        others: further valid files of the kind, to be spliced in.
        draw: decides everything.
        text: whether fields, numbers and lines are what is changed most.
        packed: ``zip``, ``gzip``, ``tar`` or ``png``: half of the changes are made inside, with all checksums made right.
    """
    if packed and draw.random() < 0.5:
        return _INSIDE[packed](data, draw, text)
    for _ in range(int(draw.choice([1, 1, 1, 2, 3]))):
        if not data:
            break
        choice = TEXT if text and draw.random() < 0.8 else ANY
        data = choice[int(draw.integers(len(choice)))](data, others, draw)
    return data


def _in_zip(data: bytes, draw: Draw, text: bool) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(made, "w") as other:
        infos = archive.infolist()
        chosen = int(draw.integers(len(infos)))
        for number, info in enumerate(infos):
            body = archive.read(info)
            compression = zipfile.ZIP_DEFLATED if draw.random() < 0.3 else zipfile.ZIP_STORED
            fresh = zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0))
            other.writestr(fresh, changed(body, [], draw, text=text) if number == chosen else body, compression)
    return made.getvalue()


def _in_gzip(data: bytes, draw: Draw, text: bool) -> bytes:
    return gzip.compress(changed(gzip.decompress(data), [], draw, text=text), mtime=0)


def _in_tar(data: bytes, draw: Draw, text: bool) -> bytes:
    """One header of an uncompressed tar is changed, and its checksum made right again."""
    headers = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"]
    if not headers:
        return _flipped(data, [], draw)
    at = headers[int(draw.integers(len(headers)))]
    header = bytearray(data[at : at + 512])
    fields = {
        "name": (0, 100),
        "mode": (100, 8),
        "size": (124, 12),
        "mtime": (136, 12),
        "type": (156, 1),
        "link": (157, 100),
        "prefix": (345, 155),
    }
    start, width = list(fields.values())[int(draw.integers(len(fields)))]
    texts = [
        b"\xff" * width,
        b"\x80" + b"\xff" * (width - 1),
        b"7" * width,
        b"0" * width,
        b"../" * 40,
        b"/etc/x",
        b"-1",
        bytes(width),
        draw.bytes(width),
        b"\xed\xa0\x80",
        b"1L5gxKV"[int(draw.integers(7)) :][:1],
    ]
    header[start : start + width] = texts[int(draw.integers(len(texts)))][:width].ljust(width, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return data[:at] + bytes(header) + data[at + 512 :]


def _in_png(data: bytes, draw: Draw, text: bool) -> bytes:
    """One chunk of a PNG is changed, and its CRC made right again; pixels are changed before they are packed."""
    chunks, at = [], 8
    while at + 8 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += size + 12
    pixels = b"".join(body for kind, body in chunks if kind == b"IDAT")
    chosen = int(draw.integers(len(chunks)))
    if draw.random() < 0.3:  # what is packed is changed, and packed again in one chunk
        packed = b"IDAT", zlib.compress(changed(zlib.decompress(pixels), [], draw))
        first = next(number for number, (kind, _) in enumerate(chunks) if kind == b"IDAT")
        chunks = [*chunks[:first], packed, *(chunk for chunk in chunks[first:] if chunk[0] != b"IDAT")]
    else:
        chunks[chosen] = chunks[chosen][0], changed(chunks[chosen][1], [], draw)
    made = data[:8]
    for kind, body in chunks:
        made += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", binascii.crc32(kind + body))
    return made


_INSIDE = {"zip": _in_zip, "gzip": _in_gzip, "tar": _in_tar, "png": _in_png}
