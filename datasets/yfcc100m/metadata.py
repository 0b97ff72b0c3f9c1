"""The metadata of YFCC100M as rows: a source that is read in pieces, in parallel.

Three forms are read, distinguished by their content: tab-separated text of 23 columns (``yfcc100m_dataset`` as released) or 25
(with the line number and the photo's hash), plain or compressed by gzip or bzip2; and the SQLite table ``yfcc100m_dataset``.
Quotes have no meaning: a field ends at the next tab. Text fields are URL-encoded in the file and decoded here.

Every line becomes a row or a reject. The reasons, in the order of the checks:

========================  =================================================================================
``line_too_long``         more than ``lines.MAX_LINE_BYTES``
``blank_line``            nothing between two newlines
``nul_byte``              a NUL
``bad_utf8``              bytes that are not UTF-8, in any column
``wrong_column_count``    another number of columns than the file has
``bad_id``                the id is not a positive whole number of at most 18 digits (a header line, for one)
``bad_marker``            the last column is neither 0 (photo) nor 1 (video)
``not_a_photo``           the marker is 1
``null_date_taken``       the capture time is empty or ``null``
``bad_date_taken``        it is not a date and time like ``2006-02-28 20:33:06.0``
``null_date_uploaded``    the upload time is empty or ``null``
``bad_date_uploaded``     it is not a whole number of seconds since 1970, of at most 10 digits
``taken_not_before_upload``  captured at or after the upload, compared without conversion (CLEAR's released code: capture in
                          local time, upload in UTC, compared as naive)
``no_url``                no download address
``licence_not_wanted``    the licence is not among those requested
========================  =================================================================================

A reject's key is the photo's id; for a line without a valid id, ``<file>:<place>``, where the place is the offset in bytes of
the line (plain files), its number from 1 (compressed files) or its rowid (SQLite).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import fnmatch
import io
import itertools
import json
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import fsspec
import numpy as np
import pyarrow as pa

from ...curation.bounded_reading import compression_by_head, decompressed
from ...curation.extras import can_compile
from ...curation.rows import REJECTS, Sifted
from . import lines, sqlite
from .fields import EXTRA, LAYOUTS, NEEDED, Parsed, Place, rest_table, row_schema, sift_fields

PIECE_BYTES = 1 << 26
"""Bytes of a plain file that one piece covers. It changes neither rows nor their order."""

_HEAD_BYTES = 1 << 20
_MAX_BAD_LINES = 1 << 20  # in a piece: each becomes a reject of about a hundred bytes
_SQLITE_ROW_BYTES = 500  # approximate size of a row in the database: only determines the number of pieces


@dataclasses.dataclass(frozen=True)
class Photo:
    """A photo of YFCC100M with capture and upload time.

    Attributes:
        key: Flickr's photo id.
        date_taken: capture time by the camera's clock, naive local time.
        date_uploaded: naive UTC.
        uploaded_unix: the upload time as in the file, for the released order.
        url: URL of the image.
        extension: extension of the original file, without a dot.
        licence: name of the Creative Commons licence.
    """

    key: str
    date_taken: dt.datetime
    date_uploaded: dt.datetime
    uploaded_unix: str
    url: str
    extension: str
    licence: str


def pieces(*, path: str, files: str = "*", piece_bytes: int = PIECE_BYTES, first_lines: int | None = None) -> Iterator[str]:
    """Parts that can be read independently, in the order of the source: files by name, and parts of plain files.

    Args:
        path: a file or a folder, local or an fsspec URL (SQLite: local only). Hidden files of a folder are left out.
        files: shell pattern that selects the files of a folder.
        piece_bytes: size of the pieces of a plain file or a database; compressed files are one piece each.
        first_lines: number of lines to read, over all files (CLEAR: 10,052,717); None for all. They are counted first.

    Yields:
        JSON for ``read_metadata``.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: a file is empty or not YFCC100M metadata, no file of the folder matches, or ``first_lines`` is below 1,
            or of a database, whose rows have another order.
    """
    if piece_bytes < 1:
        raise ValueError(f"piece_bytes is {piece_bytes}: it must be at least 1")
    if first_lines is not None and first_lines < 1:
        raise ValueError(f"first_lines is {first_lines}: it must be at least 1")
    fs, root = fsspec.core.url_to_fs(path)
    for name in _files(fs, root, path, files):
        if first_lines == 0:
            return
        full = _full(fs, root, name)
        size = int(fs.size(full))
        with fs.open(full, "rb") as stream:
            form = _form(stream, name)
            if first_lines is not None:
                if form["form"] == "sqlite":
                    rule = 'a database has another order; `unset = ["source.first_lines"]` in the settings file leaves it out'
                    raise ValueError(f"{name}: first_lines is for text: {rule}")
                size, counted = _size_of_first(stream, form["form"], name, first_lines)
                first_lines -= counted
                if form["form"] != "plain":
                    form["lines"] = counted
        if form["form"] == "sqlite":
            count = -(-size // max(piece_bytes, _SQLITE_ROW_BYTES))
            bounds = sqlite.ranges(_local(fs, full), count)
        elif form["form"] == "plain":
            bounds = [(at, min(at + piece_bytes, size)) for at in range(0, size, piece_bytes)]
        else:
            bounds = [(0, size)]
        for start, end in bounds:
            yield json.dumps({"file": name, **form, "start": start, "end": end})


def read_metadata(
    piece: str, *, path: str, licences: Sequence[str] | None = None, extra: Sequence[str] = ()
) -> Iterator[Sifted]:
    """Photos in one piece of YFCC100M's metadata, in the order of its lines, about 64 MB of text at a time.

    Args:
        piece: one result of ``pieces``.
        path: the same as for ``pieces``.
        licences: names of the licences to keep, as in the file; None for all (as in CLEAR).
        extra: additional columns (``fields.EXTRA``), as text; empty where the file has no value.

    Yields:
        Columns of ``Photo`` and of ``extra``, with the rejects; rows and rejects together are the lines of the piece.

    Raises:
        ValueError: a column is unknown or requested twice, or the file turns out damaged while it is read.
    """
    if unknown := [name for name in extra if name not in EXTRA]:
        raise ValueError(f"extra column {unknown[0]!r}: there are {', '.join(EXTRA)}")
    if len(set(extra)) < len(extra):
        raise ValueError(f"extra columns {', '.join(extra)}: each may be requested only once")
    task = json.loads(piece)
    fs, root = fsspec.core.url_to_fs(path)
    full = _full(fs, root, task["file"])
    if task["form"] == "sqlite":
        if "hash" in extra:
            raise ValueError(f"{task['file']}: the SQLite form has no column 'hash'")
        place = Place(task["file"], "rowid")
        yield from _sifted(_read_sqlite(_local(fs, full), task, place, extra), place, licences, extra)
        return
    if "hash" in extra and task["columns"] == 23:
        raise ValueError(f"{task['file']}: the form of 23 columns has no column 'hash'")
    place = Place(task["file"], "byte" if task["form"] == "plain" else "line")
    with fs.open(full, "rb") as stream:
        yield from _sifted(_read_text(stream, task, place, licences, extra), place, licences, extra)


def _sifted(blocks: Iterator[Parsed], place: Place, licences: Sequence[str] | None, extra: Sequence[str]) -> Iterator[Sifted]:
    for first in blocks:
        several = itertools.chain([first], itertools.islice(blocks, PIECE_BYTES // lines.BLOCK_BYTES - 1))
        yield sift_fields(several, place=place, licences=licences, extra=extra)


# --------------------------------------------------------------------------------------------------------- the source


def _files(fs: Any, root: str, path: str, pattern: str) -> list[str]:
    if fs.isfile(root):
        return [posixpath.basename(root)]
    if not fs.isdir(root):
        raise FileNotFoundError(f"{path}: no such file or folder")
    names = [posixpath.basename(info["name"]) for info in fs.ls(root, detail=True) if info["type"] == "file"]
    chosen = sorted(name for name in names if not name.startswith(".") and fnmatch.fnmatchcase(name, pattern))
    if not chosen:
        raise ValueError(f"{path}: no file fits {pattern!r} in this folder")
    return chosen


def _full(fs: Any, root: str, name: str) -> str:
    return root if fs.isfile(root) else posixpath.join(root, name)


def _local(fs: Any, full: str) -> str:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    if "file" not in protocols:
        raise ValueError(f"{full}: SQLite databases are read from local paths only")
    return full


def _form(stream: IO[bytes], name: str) -> dict[str, Any]:
    head = stream.read(len(sqlite.MAGIC))
    if not head:
        raise ValueError(f"{name}: the file is empty")
    if head == sqlite.MAGIC:
        return {"form": "sqlite"}
    kind = compression_by_head(head)
    ending = posixpath.splitext(name)[1]
    claimed = {".gz": "gzip", ".bz2": "bzip2", ".sqlite": "SQLite", ".db": "SQLite"}.get(ending)
    if claimed is not None and claimed != kind:
        raise ValueError(f"{name}: the name says {claimed}, and the file begins with {head[:4]!r}")
    stream.seek(0)
    first = next(lines.blocks(decompressed(stream, kind), name, block_bytes=_HEAD_BYTES), None)
    if first is None:
        raise ValueError(f"{name}: the file is empty")
    return {"form": kind or "plain", "columns": _columns(bytes(first.data), name)}


def _size_of_first(stream: IO[bytes], form: str, name: str, count: int) -> tuple[int, int]:
    """Bytes of the first ``count`` lines of a text, unpacked, and how many they are: fewer if the file has fewer."""
    stream.seek(0)
    text = stream if form == "plain" else decompressed(stream, form)
    found = [(block.size, several) for block, several in lines.first_of(lines.blocks(text, name), count)]
    return sum(size for size, _ in found), sum(several for _, several in found)


def _columns(head: bytes, name: str) -> int:
    found = [line.count(b"\t") + 1 for line in head.splitlines() if line]
    counts = {count: found.count(count) for count in LAYOUTS}
    best = max(counts, key=lambda count: counts[count])
    if not counts[best]:
        raise ValueError(
            f"{name}: not YFCC100M metadata: none of the first {len(found):,} lines has 23 or 25 tab-separated columns "
            f"(the first has {found[0] if found else 0})"
        )
    return best


# --------------------------------------------------------------------------------------------------------------- text


_Parse = Callable[[memoryview, int], Iterator[Parsed]]
"""Parses whole lines; the second argument is the place of the first line."""


def _read_text(
    stream: IO[bytes], task: dict[str, Any], place: Place, licences: Sequence[str] | None, extra: Sequence[str]
) -> Iterator[Parsed]:
    plain = task["form"] == "plain"
    if plain:
        at = lines.start_of_first(stream, task["start"], task["end"])
        stream.seek(at)
        blocks = lines.blocks(stream, task["file"], task["end"] - at)
    else:
        at = 1
        blocks = lines.blocks(decompressed(stream, task["form"]), task["file"])
        if "lines" in task:
            blocks = (block for block, _ in lines.first_of(blocks, task["lines"]))
    parse = (_scanning if can_compile() else _by_rules)(LAYOUTS[task["columns"]], place, licences, extra)
    bad = 0
    for block in blocks:
        count = 0
        for parsed in parse(block.data, at):
            bad += parsed.rejected.num_rows
            if bad > _MAX_BAD_LINES:
                where = f"{place.unit} {at:,}"
                raise ValueError(f"{task['file']}: more than {_MAX_BAD_LINES:,} lines up to {where} are not metadata")
            count += parsed.lines
            yield parsed
        at += block.size if plain else count


def _by_rules(layout: Sequence[str], place: Place, licences: Sequence[str] | None, extra: Sequence[str]) -> _Parse:
    def parse(data: memoryview, first: int) -> Iterator[Parsed]:
        stream = io.BytesIO(data)
        while some := list(itertools.islice(stream, lines.LINES_AT_ONCE)):
            starts = first + np.cumsum([0, *map(len, some)]) if place.unit == "byte" else first + np.arange(len(some) + 1)
            found = zip(range(len(some)), starts.tolist(), some, strict=False)
            rest, rejected = _ruled(found, layout, place, extra)
            yield Parsed(row_schema(extra).empty_table(), np.zeros(0, dtype=np.int64), rest, len(some), rejected)
            first = int(starts[-1])

    return parse


def _scanning(layout: Sequence[str], place: Place, licences: Sequence[str] | None, extra: Sequence[str]) -> _Parse:
    """Parser with a compiled pass, which finds the good lines, nearly all of them, and splits the others into fields for the
    rules; lines that it is not sure to split correctly are split one by one.
    """
    from .scan import scanner

    names, given = (*NEEDED, *extra), ("id", "date_uploaded", "url", "extension", "licence", *extra)
    scan, schema = scanner(layout, names, given, licences), row_schema(extra)

    def parse(data: memoryview, first: int) -> Iterator[Parsed]:
        begin = 0
        for found in scan(data):
            key, *texts = found.photos.texts
            rows = pa.Table.from_arrays([key, found.taken, found.uploaded, *texts], schema=schema)
            numbers, spans = found.unclear.index, begin + found.unclear.spans
            places, clear = (
                first + (begin + kind.spans[:, 0] if place.unit == "byte" else kind.index)
                for kind in (found.unclear, found.others)
            )
            unclear = (
                (n, at, bytes(data[a:b]))
                for n, at, (a, b) in zip(numbers.tolist(), places.tolist(), spans.tolist(), strict=True)
            )
            rest = rest_table(found.others.index, clear, dict(zip(names, found.others.texts, strict=True)))
            rejected = REJECTS.empty_table()
            if len(numbers):
                ruled, rejected = _ruled(unclear, layout, place, extra)
                rest = pa.concat_tables([rest, ruled]).sort_by("index")
            yield Parsed(rows, found.photos.index, rest, found.lines, rejected)
            begin, first = begin + found.size, first + (0 if place.unit == "byte" else found.lines)

    return parse


def _ruled(
    found: Iterable[tuple[int, int, bytes]], layout: Sequence[str], place: Place, extra: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """Lines with their numbers and places: as ``Parsed.rest`` if they can be split into fields, else as rejects."""
    names = (*NEEDED, *extra)
    cut, faults = list[tuple[Any, ...]](), list[tuple[int, tuple[str, str]]]()
    for number, at, line in found:
        if (fault := lines.fault(line, len(layout))) is not None:
            faults.append((at, fault))
        else:
            every = dict(zip(layout, line.rstrip(b"\r\n").decode().split("\t"), strict=True))
            cut.append((number, at, *(every[name] for name in names)))
    numbers, places, *texts = zip(*cut, strict=True) if cut else [()] * (2 + len(names))
    return rest_table(numbers, places, dict(zip(names, texts, strict=True))), _rejected(faults, place)


def _rejected(faults: Iterable[tuple[int, tuple[str, str]]], place: Place) -> pa.Table:
    """Rejects for lines without an id, named by their places."""
    rows = [(place.key(at), reason, f"{place.unit} {at}: {seen}") for at, (reason, seen) in faults]
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * len(REJECTS), schema=REJECTS)


# ------------------------------------------------------------------------------------------------------------- SQLite


def _read_sqlite(path: str, task: dict[str, Any], place: Place, extra: Sequence[str]) -> Iterator[Parsed]:
    names = (*NEEDED, *extra)
    for batch in sqlite.rows(path, task["start"], task["end"], names):
        rowids = np.asarray([row[0] for row in batch], dtype=np.int64)
        bad = {index: fault for index, row in enumerate(batch) if (fault := _cell_fault(row[1:])) is not None}
        kept = np.asarray([index for index in range(len(batch)) if index not in bad], dtype=np.int64)
        fields = list(zip(*(batch[index][1:] for index in kept.tolist()), strict=True)) or [()] * len(names)
        texts = [[cell.decode() if cell else None for cell in field] for field in fields]
        rest = rest_table(kept, rowids[kept], dict(zip(names, texts, strict=True)))
        none = np.zeros(0, dtype=np.int64)
        faults = [(int(rowids[index]), fault) for index, fault in bad.items()]
        yield Parsed(row_schema(extra).empty_table(), none, rest, len(batch), _rejected(faults, place))


def _cell_fault(cells: Sequence[bytes | None]) -> tuple[str, str] | None:
    if sum(len(cell) for cell in cells if cell is not None) > lines.MAX_LINE_BYTES:
        return "line_too_long", f"more than {lines.MAX_LINE_BYTES:,} bytes"
    return next((fault for cell in cells if cell and (fault := lines.text_fault(cell, "a field"))), None)
