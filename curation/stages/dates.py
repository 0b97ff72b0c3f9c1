"""Dates as people and programs write them, and the CSV files that give them to images."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import json
import posixpath
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..bounded_reading import check_bad_rows, check_columns, text_lines
from ..rows import Rejected, is_text, printable
from .exif import parse_exif_date
from .folder import is_outside


def parse_local(text: str) -> dt.datetime | None:
    """A capture date as the camera's clock showed it: ISO 8601 (date alone is midnight) or EXIF's form; an offset is dropped.

    Returns:
        A naive datetime, or None if the text is no date.

    >>> parse_local("2007-04-09"), parse_local("2007:04:09 03:27:17"), parse_local("spring")
    (datetime.datetime(2007, 4, 9, 0, 0), datetime.datetime(2007, 4, 9, 3, 27, 17), None)
    """
    parsed = _parse(text)
    return None if parsed is None else parsed.replace(tzinfo=None)


def parse_utc(text: str) -> dt.datetime | None:
    """An upload date: Unix seconds, or ISO 8601, in which an offset is honoured and UTC is assumed if there is none.

    Returns:
        A naive datetime in UTC, or None if the text is no date.

    >>> parse_utc("1176089237"), parse_utc("2007-04-09T05:27:17+02:00")
    (datetime.datetime(2007, 4, 9, 3, 27, 17), datetime.datetime(2007, 4, 9, 3, 27, 17))
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 11:
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=int(text))
    parsed = _parse(text)
    if parsed is None or parsed.tzinfo is None:
        return parsed
    try:
        return parsed.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:
        return None


def _parse(text: str) -> dt.datetime | None:
    text = text.strip()
    # fromisoformat also takes "20040131" and week dates, which are likelier to be numbers of something else.
    if len(text) < 10 or text[4] not in "-:":
        return None
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return parse_exif_date(text) if text[4] == ":" else None


class DatesTable:
    """The rows of a CSV file of dates, by folder: Arrow columns, some 60 bytes a row, whatever the size of the file.

    Attributes:
        rejects: rows that cannot be used; added to as folders are taken.

    >>> import io
    >>> lines = b"file,date_taken,park\\na.jpg,2007-04-09,north\\nold/b.jpg,2004-01-31,south\\n"
    >>> table = read_dates_csv(io.BytesIO(lines), "dates.csv")
    >>> table.take(""), table.take("")  # each row is taken once
    ({'a.jpg': ('2007-04-09', '', '{"park": "north"}')}, {})
    >>> list(table.take_rest())
    ['old/b.jpg']
    """

    def __init__(self, table: pa.Table, rejects: list[Rejected], place: str) -> None:
        self._place = place
        self._table = table.sort_by([("folder", "ascending"), ("name", "ascending"), ("line", "ascending")])
        folders = self._table["folder"].combine_chunks()
        runs = pc.run_end_encode(folders)
        ends = runs.run_ends.to_pylist()
        names = runs.values.to_pylist()
        self._runs = {name: (start, end - start) for name, start, end in zip(names, [0, *ends], ends, strict=False)}
        self.rejects = rejects

    def take(self, folder: str) -> dict[str, tuple[str, str, str]]:
        """The rows of one folder, once: name -> (date taken, date uploaded, labels as JSON), the dates as written."""
        start, count = self._runs.pop(folder, (0, 0))
        rows: dict[str, tuple[str, str, str]] = {}
        for batch in self._table.slice(start, count).to_batches(_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                if row["name"] in rows:
                    self.rejects.append(_csv_reject(row["line"], "duplicate_row", posixpath.join(folder, row["name"])))
                else:
                    rows[row["name"]] = (row["taken"], row["uploaded"], row["labels"])
            if self.rejects:
                check_bad_rows(len(self.rejects), self.rejects[-1], self._place)
        return rows

    def labels(self) -> Iterator[tuple[str, str]]:
        """Path, and labels as JSON, of every row that was read."""
        for batch in self._table.select(["folder", "name", "labels"]).to_batches(_ROWS_AT_ONCE):
            yield from ((posixpath.join(row["folder"], row["name"]), row["labels"]) for row in batch.to_pylist())

    def take_rest(self) -> Iterator[str]:
        """Paths of the rows whose folders were not taken."""
        for folder in sorted(self._runs):
            yield from (posixpath.join(folder, name) for name in self.take(folder))


def read_dates_csv(stream: IO[bytes], place: str, columns: Mapping[str, str] = MappingProxyType({})) -> DatesTable:
    r"""Read a CSV file with the columns ``file``, ``date_taken``, perhaps ``date_uploaded``, and labels.

    Args:
        stream: UTF-8, with or without a byte-order mark. Rows of a wrong number of fields, that are no UTF-8, or whose
            quotes do not close are rejects ``bad_csv_row``; paths that leave the folder are ``outside_folder``.
        place: named in errors.
        columns: ``file``, ``date_taken`` or ``date_uploaded`` -> what the file calls it.

    Raises:
        ValueError: the header lacks ``file`` or ``date_taken``, or names a column twice.

    >>> import io
    >>> table = read_dates_csv(io.BytesIO(b"file,date_taken\nspring/a.jpg,2007-04-09\n"), "dates.csv")
    >>> table.take("spring")
    {'a.jpg': ('2007-04-09', '', '{}')}
    >>> read_dates_csv(io.BytesIO(b"name,date\n"), "dates.csv")
    Traceback (most recent call last):
        ...
    ValueError: dates.csv: columns name, date: file and date_taken are needed, each once
    """
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(text_lines(text, place))
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise ValueError(f"{place}: its header is not readable as CSV: {error}") from None
    check_columns(header, place)
    file, taken = (columns.get(name, name) for name in ("file", "date_taken"))
    if not {file, taken} <= set(header) or len(set(header)) != len(header):
        raise ValueError(
            f"{place}: columns {printable(', '.join(header))[:200] or 'none'}: {file} and {taken} are needed, each once"
        )
    ours = {theirs: name for name, theirs in columns.items()}
    header = [ours.get(name, name) for name in header]
    if len(set(header)) != len(header):
        raise ValueError(
            f"{place}: columns {printable(', '.join(header))[:200]}: one appears twice once {', '.join(ours)} are renamed"
        )
    rejects: list[Rejected] = []
    tables = [_CSV_SCHEMA.empty_table()]
    while True:
        rows = list(itertools.islice(_csv_rows(reader, header, rejects, place), _ROWS_AT_ONCE))
        if not rows:
            return DatesTable(pa.concat_tables(tables).combine_chunks(), rejects, place)
        tables.append(pa.Table.from_pylist(rows, schema=_CSV_SCHEMA))
        if sum(table.nbytes for table in tables) > _MAX_BYTES:
            raise ValueError(
                f"{place}: its rows up to line {reader.line_num:,} take more than {_MAX_BYTES:,} bytes: split it into parts"
            )


_ROWS_AT_ONCE = 8192
_MAX_BYTES = 1 << 30


_TEXTS = ("folder", "name", "taken", "uploaded", "labels")
_CSV_SCHEMA = pa.schema([*((name, pa.string()) for name in _TEXTS), ("line", pa.int64())])


def _csv_reject(line: int, reason: str, detail: str) -> Rejected:
    return Rejected(f"./csv-line-{line}", reason, printable(detail)[:200])


def _csv_rows(reader: Any, header: list[str], rejects: list[Rejected], place: str) -> Iterator[dict[str, Any]]:
    while True:
        if rejects:
            check_bad_rows(len(rejects), rejects[-1], place)
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            rejects.append(_csv_reject(line, "bad_csv_row", str(error)))
            continue
        if not fields:
            continue  # an empty line
        if len(fields) != len(header) or not all(is_text(field) for field in fields):
            rejects.append(_csv_reject(line, "bad_csv_row", f"{len(fields)} fields, header has {len(header)}: {fields[:60]}"))
            continue
        row = dict(zip(header, fields, strict=True))
        path = row.pop("file").strip()
        if not path or is_outside(path):
            rejects.append(_csv_reject(line, "outside_folder" if path else "bad_csv_row", path or "no file name"))
            continue
        taken, uploaded = row.pop("date_taken"), row.pop("date_uploaded", "")
        folder, name = posixpath.split(posixpath.normpath(path))
        labels = json.dumps(row, sort_keys=True, ensure_ascii=False)
        yield {"folder": folder, "name": name, "taken": taken, "uploaded": uploaded, "labels": labels, "line": line}
