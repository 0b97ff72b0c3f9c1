"""Read CSV files with a header from outside: every row has the columns of the header, and no column is lost."""

from __future__ import annotations

import collections
import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from .bounded_reading import check_columns

_NONE: Mapping[str, str] = MappingProxyType({})


def csv_rows(
    lines: Iterable[str],
    place: str,
    needed: Mapping[str, str],
    *,
    spelled: Callable[[str], str] = str.strip,
    delimiter: str = ",",
) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Line number of every row below the header, and its fields by column, or its fault if it has another number of fields.

    Rows of another number of fields that are all empty are left out, as are empty lines.

    Args:
        lines: lines without line ends.
        place: the file, for errors.
        needed: column -> the setting to change if it is missing.
        spelled: name of a column by its spelling in the file.
        delimiter: character between fields.

    Raises:
        ValueError: the text is not CSV (the message names the line), or the header is refused by ``check_header``.

    >>> list(csv_rows(["name, size", "a,1", "", "b"], "list 'a.csv'", {"name": "source.path"}))
    [(2, {'name': 'a', 'size': '1'}), (4, '1 fields, the header has 2')]
    """
    rows = csv_fields((f"{line}\n" for line in lines), place, delimiter=delimiter)
    header = [spelled(name) for name in next(rows, (0, []))[1]]
    check_header(header, place, needed)
    for number, fields in rows:
        if len(fields) == len(header):
            yield number, dict(zip(header, fields, strict=True))
        elif any(field.strip() for field in fields):
            yield number, f"{len(fields)} fields, the header has {len(header)}"


def whole_csv_rows(
    lines: Iterable[str], place: str, needed: Mapping[str, str], *, delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """``csv_rows`` of a file in which a row of another number of fields is an error: ``ValueError``, with the line."""
    for number, row in csv_rows(lines, place, needed, delimiter=delimiter):
        if isinstance(row, str):
            raise ValueError(f"{place}, line {number}: {row}")
        yield number, row


def check_header(header: Sequence[str], place: str, needed: Mapping[str, str] = _NONE) -> None:
    """Raise ``ValueError`` if there are more columns than ``MAX_COLUMNS``, a name occurs twice, or a needed column is missing.

    Args:
        header: names of the columns; several may be without a name.
        place: the file, for errors.
        needed: column -> the setting to change if it is missing.
    """
    check_columns(header, place)
    twice = next((name for name, count in collections.Counter(header).items() if name and count > 1), None)
    if twice is not None:
        raise ValueError(f"{place}: its header names {twice[:80]!r} twice: which column is meant?")
    for name, setting in needed.items():
        if name not in header:
            raise ValueError(f"{place} has no column {name!r} ({setting}): it has {', '.join(header)[:200]}")


def csv_fields(lines: Iterable[str], place: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every row, the header included; an empty line has no fields.

    Args:
        lines: lines with line ends.
        place: the file, for errors.
        delimiter: character between fields.

    Raises:
        ValueError: the text is not CSV, such as a quote that is not closed, which would swallow the following rows; the
            message names the line.

    >>> list(csv_fields(["name,size\\n", "a,1\\n"], "a.csv"))
    [(1, ['name', 'size']), (2, ['a', '1'])]
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise ValueError(f"{place}, line {reader.line_num}: {error}") from None
