"""Images from a folder tree, with dates from EXIF or a CSV file; and helpers that image sources share.

A split source: ``folder_pieces`` lists names, in the same order on every machine, and ``read_folder`` reads the files of one
piece on request. Rejects of the listing are part of the piece, so that every file is accounted for.
"""

from __future__ import annotations

import datetime as dt
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..rows import Blob, Reject, Rejected, Sifted, printable, sift
from .dates import DatesTable, parse_local, parse_utc, read_dates_csv
from .exif import read_exif
from .folder import Folder, FolderEntry, key_of, open_folder, walk
from .image_format import KNOWN_EXTENSIONS, SNIFF_BYTES, normal_extension, sniff_extension
from .unique_keys import indices_of, repeated_numbers

MAX_BYTES = 100_000_000
"""Default limit of a file's size."""

FILES_PER_PIECE = 256
BYTES_PER_PIECE = 64_000_000
"""Maximum bytes of a piece: all images of a piece are in memory while it is read."""


@dataclass(frozen=True)
class FoundImage:
    """An image file of a source, not yet decoded.

    Attributes:
        key: key made from the path; letters, digits, ``_`` and ``-``.
        image: bytes of the file.
        extension: extension of the file name, lower case; "" if it has none.
        date_taken: naive local time; None if unknown.
        date_uploaded: naive UTC; None if unknown.
        source_name: name of the source.
        file: path within the source.
        labels: JSON object of all other metadata of the file (other columns of the CSV, the sidecar of a tar).

    >>> jpeg, taken = Blob(b"the bytes of a JPEG"), dt.datetime(2004, 1, 31)
    >>> found = FoundImage("old--b", jpeg, "jpg", taken, None, "mine", "old/b.jpg", "{}")
    >>> found.date_taken.year, found.date_uploaded is None
    (2004, True)
    """

    key: str
    image: Blob
    extension: str
    date_taken: dt.datetime | None
    date_uploaded: dt.datetime | None
    source_name: str
    file: str
    labels: str


# -------------------------------------------------------------------------------------------------------------- folders


def folder_pieces(
    *,
    root: str,
    dates_csv: str | None = None,
    columns: Mapping[str, str] | None = None,
    files_per_piece: int = FILES_PER_PIECE,
    bytes_per_piece: int = BYTES_PER_PIECE,
) -> Iterator[str]:
    """List a folder tree in pieces of files from the same folder.

    Args:
        root: local path or fsspec URL.
        dates_csv: local path or URL of a CSV file with the columns ``file`` (path relative to ``root``), ``date_taken``,
            and optionally ``date_uploaded``; all further columns are labels. Without it dates come from EXIF.
        columns: names of these three columns in the file, if they differ.
        files_per_piece: maximum number of files in a piece.
        bytes_per_piece: maximum bytes in a piece, unless it is a single file.

    Yields:
        JSON: ``folder``, ``files`` (name, and with a CSV the fields of its row) and ``rejects`` (key, reason, detail). The
        rejects: ``hidden``, ``not_a_file``, ``outside_folder``, ``linked_folder``, ``unreadable``, ``bad_name``,
        ``duplicate_key``, and with a CSV ``missing_row``, ``missing_file`` and ``bad_csv_row``.

    Raises:
        ValueError: the CSV has no column ``file`` or ``date_taken``.

    >>> [[name for name, in json.loads(piece)["files"]] for piece in folder_pieces(root="texts")]
    [['one.txt', 'short.txt', 'two.txt']]
    """
    folder = open_folder(root)
    dates, own_path = open_dates(folder, dates_csv, columns or {})
    for at, entries in walk(folder):
        rows = dates.take(at) if dates is not None else None
        files: list[list[str]] = []
        sizes: list[int] = []
        rejects: list[Rejected] = []
        keys: set[str] = set()
        for entry in entries:
            path = f"{at}/{entry.name}" if at else entry.name
            fields = rows.pop(entry.name, None) if rows is not None else ()
            if path == own_path:
                continue
            reject = _listing_reject(entry, path, keys)
            if reject is None and fields is None:
                reject = Rejected(f"./{path}", "missing_row", "the CSV has no row for this file")
            if reject is None:
                files.append([entry.name, *(fields or ())])
                sizes.append(entry.size)
            else:
                rejects.append(reject)
        # The remaining rows of the CSV name files that are not in this folder.
        rejects += [_missing(posixpath.join(at, name)) for name in rows or ()]
        yield from _pieces(at, files, sizes, rejects, files_per_piece, bytes_per_piece)
    if dates is not None:
        rest = [_missing(path) for path in dates.take_rest()]
        yield from _pieces("", [], [], rest + dates.rejects, files_per_piece, bytes_per_piece)


def open_dates(folder: Folder, dates_csv: str | None, columns: Mapping[str, str]) -> tuple[DatesTable | None, str | None]:
    """Rows of the CSV of dates, and the path of the CSV if it is inside the folder, so that the listing can skip it.

    None and None without a CSV. Raises as ``read_dates_csv``.

    >>> from pathlib import Path
    >>> size = Path("dates.csv").write_text("file,date_taken\\none.txt,2007-04-09\\n")
    >>> dates, own_path = open_dates(open_folder("texts"), "dates.csv", {})
    >>> own_path, dates.take("")  # the CSV is not inside the folder
    (None, {'one.txt': ('2007-04-09', '', '{}')})
    """
    if dates_csv is None:
        return None, None
    parent, name = posixpath.split(dates_csv)
    beside = open_folder(parent or ".")
    with beside.open(name) as stream:
        dates = read_dates_csv(stream, dates_csv, columns)
    path = posixpath.join(beside.root, name)
    within = type(beside.fs) is type(folder.fs) and path.startswith(folder.root + "/")
    return dates, posixpath.relpath(path, folder.root) if within else None


def _missing(path: str) -> Rejected:
    return Rejected(f"./{path}", "missing_file", "named by the CSV, not in the folder")


def _listing_reject(entry: FolderEntry, path: str, keys: set[str]) -> Rejected | None:
    if entry.reason is not None:
        return Rejected(f"./{printable(path)}", entry.reason, entry.detail)
    key = key_of(path)
    if key in keys:
        return Rejected(f"./{path}", "duplicate_key", f"another file has the key {key}")
    keys.add(key)
    return None


def _pieces(
    at: str, files: list[list[str]], sizes: list[int], rejects: list[Rejected], max_files: int, max_bytes: int
) -> Iterator[str]:
    start, total = 0, 0
    for stop, size in enumerate(sizes):
        if stop > start and (stop - start == max_files or total + size > max_bytes):
            yield json.dumps({"folder": at, "files": files[start:stop], "rejects": []})
            start, total = stop, 0
        total += size
    if start < len(files) or rejects:
        yield json.dumps({"folder": at, "files": files[start:], "rejects": rejects})


def read_folder(
    piece: str, *, root: str, source_name: str, require_date: bool = True, exif: bool = True, max_bytes: int = MAX_BYTES
) -> Iterator[FoundImage | Rejected]:
    """Read the photos of one piece of ``folder_pieces``, one by one, with their dates.

    Args:
        piece: JSON text from ``folder_pieces`` for the same ``root``.
        root: local path or fsspec URL.
        source_name: value of the column of that name.
        require_date: reject photos without a date of capture (``no_date``); otherwise their date is None.
        exif: whether to read dates from the files.
        max_bytes: larger files are rejected as ``too_large``.

    Yields:
        Files whose extension or content is that of an image, unchanged; ``check_image`` checks whether they decode.
        Rejects of the listing, and ``not_an_image``, ``bad_date`` (an unreadable date in the CSV), ``no_date``,
        ``missing_file``, ``not_a_file``, ``outside_folder``, ``too_large`` and ``unreadable``.

    >>> (piece,) = folder_pieces(root="texts")
    >>> [row.reason for row in read_folder(piece, root="texts", source_name="mine")]
    ['not_an_image', 'not_an_image', 'not_an_image']
    """
    folder = open_folder(root)
    listed = json.loads(piece)
    for name, *fields in listed["files"]:
        path = posixpath.join(listed["folder"], name)
        key = key_of(path)
        try:
            if (extension := extension_of(path)) not in KNOWN_EXTENSIONS:
                check_content(folder.head(path, SNIFF_BYTES), path)
            data = folder.read(path, max_bytes=max_bytes)
            found = read_exif(data).date_taken if exif and not fields else None
            taken, uploaded, labels = csv_dates(fields) if fields else (found, None, "{}")
            if taken is None and require_date:
                raise Reject("no_date", f"{path}: no date of capture")
            yield FoundImage(key, Blob(data), extension, taken, uploaded, source_name, path, labels)
        except Reject as reject:
            yield Rejected(key, reject.reason, reject.detail)
    yield from (Rejected(*reject) for reject in listed["rejects"])


def extension_of(path: str) -> str:
    """Normalised extension of a file name, lower case; "" if it has none.

    >>> extension_of("old/B.JPEG"), extension_of("old/b")
    ('jpg', '')
    """
    return normal_extension(posixpath.splitext(path)[1])


def check_content(data: bytes, path: str) -> None:
    """Raise ``Reject`` ``not_an_image`` unless the bytes begin with the signature of an image format.

    >>> check_content(b"a rose is a rose", "texts/one.txt")
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: not_an_image: texts/one.txt: neither by name nor by its first bytes, b'a rose is a rose'
    """
    if sniff_extension(data) is None:
        raise Reject("not_an_image", f"{path}: neither by name nor by its first bytes, {data[:16]!r}")


def csv_dates(fields: Sequence[str]) -> tuple[dt.datetime | None, dt.datetime | None, str]:
    """Parse the dates of a CSV row (taken, uploaded, labels): None for blanks; raise ``Reject`` ``bad_date`` if unreadable.

    >>> csv_dates(["2007-04-09", "", "{}"])
    (datetime.datetime(2007, 4, 9, 0, 0), None, '{}')
    >>> csv_dates(["spring", "", "{}"])
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: bad_date: date_taken 'spring' is neither ISO 8601 nor EXIF's form
    """
    taken_text, uploaded_text, labels = fields
    taken, uploaded = parse_local(taken_text), parse_utc(uploaded_text)
    for column, text, parsed in (("date_taken", taken_text, taken), ("date_uploaded", uploaded_text, uploaded)):
        if parsed is None and text.strip() not in ("", "null"):
            raise Reject("bad_date", f"{column} {text[:60]!r} is neither ISO 8601 nor EXIF's form")
    return taken, uploaded, labels


# ------------------------------------------------------------------------------------------------------ beside metadata


@dataclass(frozen=True)
class NamedImage:
    """A metadata row whose image is in a folder.

    >>> NamedImage("photo7", "jpg")
    NamedImage(key='photo7', extension='jpg')
    """

    key: str
    extension: str


@dataclass(frozen=True)
class ReadImage:
    """The row with the bytes of its image.

    >>> ReadImage("photo7", "jpg", Blob(b"the bytes of a JPEG")).image.size
    19
    """

    key: str
    extension: str
    image: Blob


def read_image(row: NamedImage, *, root: str, path: str = "{key}.{extension}", max_bytes: int = MAX_BYTES) -> ReadImage:
    """Read the image of a metadata row from a folder.

    Args:
        root: local path or fsspec URL.
        path: path of the file in the folder: a format string of ``key``, ``key3`` (the first three characters of the key,
            as in the layout of large collections) and ``extension``.
        max_bytes: larger files are rejected as ``too_large``.

    Raises:
        Reject: ``missing_file``, ``outside_folder``, ``not_a_file``, ``too_large`` or ``unreadable``.

    >>> read_image(NamedImage("one", "txt"), root="texts").image.read()  # any file: check_image comes next
    b'a rose is a rose'
    >>> read_image(NamedImage("three", "txt"), root="texts")
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: missing_file: ...
    """
    name = path.format(key=row.key, key3=row.key[:3], extension=row.extension)
    return ReadImage(row.key, row.extension, Blob(open_folder(root).read(name, max_bytes=max_bytes)))


def drop_duplicate_content(rows: Any) -> Iterable[Sifted]:
    """Reject images whose bytes equal those of an earlier row as ``duplicate_content``; the detail names the key of that row.

    Args:
        rows: ``stage_rows.Rows`` with the columns ``key`` and ``image``. The first 128 bits of digests are compared; no image
            is read. Memory: as ``take_first``.

    >>> from benchwright.curation.stage_rows import Rows
    >>> images = [Blob(text) for text in (b"a rose", b"a tulip", b"a rose")]
    >>> stored = pa.array([{"sha256": each.sha256, "size": each.size, "file": "", "offset": 0} for each in images])
    >>> [(kept, rejected)] = drop_duplicate_content(Rows.of(pa.table({"key": ["a", "b", "c"], "image": stored})))
    >>> kept["key"].to_pylist(), rejected.to_pylist()
    (['a', 'b'], [{'key': 'c', 'reason': 'duplicate_content', 'detail': 'same bytes as a'}])
    """
    again = repeated_numbers((_digest_words(table)[:, 0] for table in rows.batches(["image"])), rows.num_rows)
    first: dict[bytes, str] = {}
    for table in rows.batches():
        words = _digest_words(table)
        details: list[str | None] = [None] * table.num_rows
        for at in indices_of(again, words[:, 0]).tolist():
            digest = words[at].tobytes()
            if digest in first:
                details[at] = f"same bytes as {first[digest]}"
            else:
                first[digest] = table["key"][at].as_py()
        detail_column = pa.array(details, pa.string())
        yield sift(table, {"duplicate_content": detail_column.is_valid()}, detail=detail_column)


def _digest_words(table: pa.Table) -> np.ndarray:
    """The first 128 bits of each image's SHA-256, uint64 of shape (n, 2)."""
    column = table["image"].combine_chunks()
    texts = column.field("sha256").to_pylist()
    return np.frombuffer(bytes.fromhex("".join(text[:32] for text in texts)), dtype=np.uint64).reshape(-1, 2)
