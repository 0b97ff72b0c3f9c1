"""Names and time spans of the buckets of a run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..report import ReportedRun

STAGE = "bucketed"
_FORMS = {"year": "%Y", "month": "%Y-%m"}


@dataclass(frozen=True)
class Bucket:
    """A time bucket of a run.

    Attributes:
        number: number in the data, from 0 in order of time.
        name: for a calendar bucket its year or month, such as 2009-03; for other buckets the first and last year, month or day
            of its times, the shortest of these by which buckets differ; its number if it has no times.
        heading: the name in words: ``2009-03`` or ``bucket 3``.
        first, last: smallest and largest value of the column by which the buckets were divided.
        images: number of images before retrieval.
        calendar: whether it is a calendar year or month.
    """

    number: int
    name: str
    heading: str
    first: Any
    last: Any
    images: int
    calendar: bool = False

    @property
    def days(self) -> str:
        """First and last day, each on a line; "" if the name says it, or buckets were not divided by time."""
        times = [time for time in (self.first, self.last) if isinstance(time, dt.datetime)]
        return "" if self.calendar or len(times) < 2 else f"{times[0]:%Y-%m-%d}\n{times[1]:%Y-%m-%d}"


def time_buckets(run: ReportedRun) -> tuple[str, list[Bucket]]:
    """The column by which a run's buckets were divided, and the buckets; none if they are not divided yet.

    ``uploaded_unix`` is the upload time in seconds; ``date_uploaded``, the same time, is read instead. The latter is also used
    for a release, whose buckets were divided before it was read, if its metadata contain it.
    """
    rows = run.rows(STAGE, "placed")
    if rows is None:
        return "", []
    settings = run.made[STAGE].recipe["settings"] if STAGE in run.made else {"by": "date_uploaded"}
    by, form = settings["by"], _FORMS.get(settings.get("period", ""), "")
    if STAGE not in run.made and by not in rows.column_names:
        return "", []
    if by == "uploaded_unix" and "date_uploaded" in rows.column_names:
        by = "date_uploaded"
    table = pa.concat_tables(rows.batches(["bucket", by]))
    if STAGE not in run.made and table[by].null_count:
        return "", []
    grouped = table.group_by("bucket").aggregate([(by, "min"), (by, "max"), ([], "count_all")]).sort_by("bucket")
    spans = [(row["bucket"], row[f"{by}_min"], row[f"{by}_max"], row["count_all"]) for row in grouped.to_pylist()]
    found: list[Bucket] = []
    names = [first.strftime(form) for _, first, _, _ in spans] if form else _spans(spans)
    for name, (number, first, last, images) in zip(names, spans, strict=True):
        heading = f"bucket {number}" if name == str(number) else name
        found.append(Bucket(number, name, heading, first, last, images, bool(form)))
    return by, found


def _spans(spans: Sequence[tuple[Any, ...]]) -> list[str]:
    """Names by first and last year, month or day, the coarsest that distinguishes all buckets; by number without times.

    Args:
        spans: number, first and last value, and number of images of each bucket.
    """
    if all(isinstance(first, dt.datetime) for _, first, _, _ in spans):
        for form in ("%Y", "%Y-%m", "%Y-%m-%d"):
            ends = [tuple(dict.fromkeys(time.strftime(form) for time in span[1:3])) for span in spans]
            if len({*ends}) == len(ends):
                return ["\u2013".join(both) for both in ends]
    return [str(number) for number, *_ in spans]


def bucket_names(buckets: list[Bucket], numbers: list[int]) -> list[str]:
    """Names of buckets by their numbers, in that order; a bucket that this run did not divide is named by its number."""
    names: Mapping[int, str] = {bucket.number: bucket.name for bucket in buckets}
    return [names.get(number, str(number)) for number in numbers]
