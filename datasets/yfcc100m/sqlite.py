"""The SQLite form of the metadata: the table ``yfcc100m_dataset``, read in ranges and in the order of rowid."""

from __future__ import annotations

import contextlib
import sqlite3
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLE = "yfcc100m_dataset"
MAGIC = b"SQLite format 3\0"
BATCH_ROWS = 20_000

COLUMN_NAMES = {
    "id": "photoid",
    "user_id": "uid",
    "nickname": "unickname",
    "date_taken": "datetaken",
    "date_uploaded": "dateuploaded",
    "device": "capturedevice",
    "title": "title",
    "description": "description",
    "user_tags": "usertags",
    "machine_tags": "machinetags",
    "longitude": "longitude",
    "latitude": "latitude",
    "accuracy": "accuracy",
    "page_url": "pageurl",
    "url": "downloadurl",
    "licence": "licensename",
    "licence_url": "licenseurl",
    "server_id": "serverid",
    "farm_id": "farmid",
    "secret": "secret",
    "secret_original": "secretoriginal",
    "extension": "ext",
    "marker": "marker",
}
"""Our column names -> those of the table."""


_BATCH_BYTES = 1 << 24
"""Bytes of text at which a batch ends, even with fewer than ``BATCH_ROWS`` rows."""

_MAX_CELL_BYTES = 1 << 26
"""A longer field makes the file unreadable; a row with more than ``lines.MAX_LINE_BYTES`` is rejected."""

_STEPS_AT_A_TIME = 1_000_000
_MOST_STEPS = 100 * _STEPS_AT_A_TIME
"""Maximum steps of SQLite's virtual machine for one batch, which takes about two million: more are not plain reading."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_FUNCTION}


class _Steps:
    """Counts the steps of a query, and ends it if there are too many: the content of an untrusted file can make a query
    endless."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self) -> int:
        self.done += _STEPS_AT_A_TIME
        return self.done > _MOST_STEPS


@contextlib.contextmanager
def _reading(path: str) -> Iterator[tuple[sqlite3.Connection, _Steps]]:
    uri = f"file:{urllib.parse.quote(str(Path(path).absolute()))}?mode=ro"
    steps = _Steps()
    try:
        connection = sqlite3.connect(uri, uri=True)
        with contextlib.closing(connection):
            connection.text_factory = bytes
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
            for setting in ("query_only=ON", "trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
                connection.execute(f"PRAGMA {setting}").close()
            connection.set_authorizer(_only_reads)
            connection.set_progress_handler(steps, _STEPS_AT_A_TIME)
            yield connection, steps
    except (sqlite3.Error, OverflowError, MemoryError) as error:
        message = f"more than {_MOST_STEPS:,} steps for some rows" if steps.done > _MOST_STEPS else error
        raise ValueError(f"{path}: not a readable SQLite database: {message}") from error


def _only_reads(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def ranges(path: str, count: int) -> list[tuple[int, int]]:
    """At most ``count`` ranges [first, last) of rowid, of equal width, that contain all rows; none for an empty table.

    Raises:
        ValueError: the file is not an SQLite database, or lacks the table or its columns. Views, virtual tables and generated
            columns are not read, because they may execute code.
    """
    with _reading(path) as (connection, _):
        query = "SELECT type, rootpage FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')"
        kind = connection.execute(query, (TABLE,)).fetchone()
        if kind is None:
            raise ValueError(f"{path}: no table {TABLE!r} in this SQLite database")
        if kind[0] != b"table" or not kind[1]:
            raise ValueError(f"{path}: {TABLE!r} is a view or a virtual table in this SQLite database, which is not read")
        found = {row[1].decode("utf-8", "replace") for row in connection.execute(f"PRAGMA table_info({TABLE})")}
        if missing := [name for name in COLUMN_NAMES.values() if name not in found]:
            raise ValueError(f"{path}: table {TABLE!r} has no column {missing[0]!r}")
        if "rowid" in map(str.lower, found):
            raise ValueError(f"{path}: table {TABLE!r} has a column 'rowid', which hides the row numbers")
        first, last = connection.execute(f"SELECT min(rowid), max(rowid) FROM {TABLE}").fetchone()
    if first is None:
        return []
    width = max(-(-(last + 1 - first) // max(count, 1)), 1)
    return [(at, min(at + width, last + 1)) for at in range(first, last + 1, width)]


def rows(path: str, first: int, last: int, names: tuple[str, ...]) -> Iterator[list[tuple[Any, ...]]]:
    """Rows with a rowid in [first, last): lists of (rowid, field, ...), each field bytes or None, in the order of ``names``.

    Raises:
        ValueError: the file is damaged, for example its rows are out of order.
    """
    fields = ", ".join(f"CAST({COLUMN_NAMES[name]} AS TEXT)" for name in names)
    query = f"SELECT rowid, {fields} FROM {TABLE} WHERE rowid >= ? AND rowid <= ? ORDER BY rowid"
    with _reading(path) as (connection, steps):
        batch: list[tuple[Any, ...]] = []
        held, before = 0, first - 1
        for row in connection.execute(query, (first, last - 1)):
            if row[0] <= before:  # overlapping pages, with which a small file could have any number of rows
                raise ValueError(f"{path}: damaged: row {row[0]} comes after row {before}")
            before = row[0]
            batch.append(row)
            held += sum(len(field) for field in row[1:] if field is not None)
            if len(batch) == BATCH_ROWS or held > _BATCH_BYTES:
                yield batch
                batch, held, steps.done = [], 0, 0
        if batch:
            yield batch
