"""Shortages: buckets that have fewer rows of a class than wanted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa

OnShortage = Literal["keep", "quiet", "error"]
"""What to do about too few rows: continue with those available, with a warning (``keep``) or without (``quiet``), or stop."""


_NAMED = 5
"""Maximum number of shortages named in a message."""


def shortages(table: pa.Table, *, buckets: Sequence[int], wanted: Mapping[str, int]) -> pa.Table:
    """List the buckets and classes with too few rows.

    Args:
        table: rows with columns ``bucket`` and ``concept``.
        buckets: the expected buckets.
        wanted: number of rows wanted of each class, in the order of the result.

    Returns:
        Columns bucket, concept, found, wanted (concept: string, others: int64), one row per bucket and class with too few rows.

    >>> rows = pa.table({"bucket": [1, 1, 2], "concept": ["bus", "bus", "bus"]})
    >>> shortages(rows, buckets=[1, 2], wanted={"bus": 2}).to_pylist()
    [{'bucket': 2, 'concept': 'bus', 'found': 1, 'wanted': 2}]
    """
    counts = table.group_by(["bucket", "concept"]).aggregate([([], "count_all")])
    pairs = zip(counts["bucket"].to_pylist(), counts["concept"].to_pylist(), strict=True)
    found = dict(zip(pairs, counts["count_all"].to_pylist(), strict=True))
    short = [
        {"bucket": bucket, "concept": name, "found": found.get((bucket, name), 0), "wanted": count}
        for bucket in buckets
        for name, count in wanted.items()
        if found.get((bucket, name), 0) < count
    ]
    fields = [("bucket", pa.int64()), ("concept", pa.string()), ("found", pa.int64()), ("wanted", pa.int64())]
    return pa.Table.from_pylist(short, schema=pa.schema(fields))


def report_shortages(short: pa.Table, stage: str, on_shortage: OnShortage) -> None:
    """Handle the result of ``shortages``: ``keep``: log a warning, ``quiet``: do nothing, ``error``: raise ``ValueError``.

    >>> short = shortages(pa.table({"bucket": [1], "concept": ["bus"]}), buckets=[1], wanted={"bus": 2})
    >>> report_shortages(short, "choose", "error")
    Traceback (most recent call last):
        ...
    ValueError: choose: too few rows: bucket 1 'bus' 1 of 2
    """
    if not short.num_rows or on_shortage == "quiet":
        return
    lines = [f"bucket {row['bucket']} {row['concept']!r} {row['found']} of {row['wanted']}" for row in short.to_pylist()]
    more = f", and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    line = f"{stage}: too few rows: {', '.join(lines[:_NAMED])}{more}"
    if on_shortage == "error":
        raise ValueError(line)
    logging.getLogger("benchwright").warning("%s; the run continues with what there is", line)
