"""Whom a data set owes its pictures to: a table of authors, titles and licences, which CC BY and its kin ask for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

ATTRIBUTION = "ATTRIBUTION.csv"

_NAMES = {
    "author": ("author", "nickname", "owner", "creator", "photographer"),
    "title": ("title",),
    "licence": ("licence", "license", "licence_name", "license_name"),
    "licence_url": ("licence_url", "license_url"),
    "source_url": ("source_url", "page_url", "url"),
}
"""Column of the table -> columns in which sources have it, by preference."""

_LABELS = "labels"
"""Column of JSON in which sources without columns of their own for it keep what else they know of a picture."""


def attribution_csv(index: pa.Table) -> bytes | None:
    """The table as it is published beside a data set: key, author, title, licence, licence_url, source_url.

    Args:
        index: the rows of the data set, with what the source says of them, in columns or in a column ``labels`` of JSON.

    Returns:
        None where no row names a licence.

    >>> rows = pa.table({"key": ["1", "2"], "licence": ["CC BY 2.0", None], "nickname": ["Ann", "Bo"]})
    >>> print(attribution_csv(rows).decode())
    key,author,title,licence,licence_url,source_url
    1,Ann,,CC BY 2.0,,
    2,Bo,,,,
    <BLANKLINE>
    """
    wanted = {name for names in _NAMES.values() for name in names}
    there = [name for name in index.column_names if name in wanted or name in ("key", _LABELS)]
    lines = [_line(row) for row in index.select(there).to_pylist()]
    if not any(line["licence"] for line in lines):
        return None
    text = io.StringIO()
    table = csv.DictWriter(text, ["key", *_NAMES], lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    return text.getvalue().encode()


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    try:
        labels = json.loads(row.get(_LABELS) or "{}")
    except (TypeError, ValueError):  # labels of another kind
        labels = {}
    known = {**(labels if isinstance(labels, dict) else {}), **{name: value for name, value in row.items() if value}}
    found = {name: next((known[each] for each in names if known.get(each)), "") for name, names in _NAMES.items()}
    return {"key": row["key"], **{name: value if isinstance(value, str) else "" for name, value in found.items()}}
