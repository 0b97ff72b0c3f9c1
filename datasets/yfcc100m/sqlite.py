"""The SQLite form of the metadata: the table ``yfcc100m_dataset``, read by ranges of rowid, in order of rowid."""

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
"""Our names of the columns, and those of the table."""


@contextlib.contextmanager
def _reading(path: str) -> Iterator[sqlite3.Connection]:
    uri = f"file:{urllib.parse.quote(str(Path(path).absolute()))}?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True)
        connection.text_factory = bytes
        with contextlib.closing(connection):
            yield connection
    except sqlite3.Error as error:
        raise ValueError(f"{path}: not a readable SQLite database: {error}") from error


def ranges(path: str, count: int) -> list[tuple[int, int]]:
    """At most ``count`` ranges [first, last) of rowid that hold all rows, equal in width; none for an empty table.

    Raises:
        ValueError: for a file that is no SQLite database, or one without the table or its columns.
    """
    with _reading(path) as connection:
        found = {row[1].decode() for row in connection.execute(f"PRAGMA table_info({TABLE})")}
        if not found:
            raise ValueError(f"{path}: no table {TABLE!r} in this SQLite database")
        if missing := [name for name in COLUMN_NAMES.values() if name not in found]:
            raise ValueError(f"{path}: table {TABLE!r} has no column {missing[0]!r}")
        first, last = connection.execute(f"SELECT min(rowid), max(rowid) FROM {TABLE}").fetchone()
    if first is None:
        return []
    width = -(-(last + 1 - first) // max(count, 1))
    return [(at, min(at + width, last + 1)) for at in range(first, last + 1, width)]


def rows(path: str, first: int, last: int, names: tuple[str, ...]) -> Iterator[list[tuple[Any, ...]]]:
    """Rows with a rowid in [first, last): lists of (rowid, field, ...), each field bytes or None, as many as ``names``."""
    fields = ", ".join(f"CAST({COLUMN_NAMES[name]} AS TEXT)" for name in names)
    query = f"SELECT rowid, {fields} FROM {TABLE} WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
    with _reading(path) as connection:
        cursor = connection.execute(query, (first, last))
        while batch := cursor.fetchmany(BATCH_ROWS):
            yield batch
