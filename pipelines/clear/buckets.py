"""What a bucket of a run is called, and of which time it is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from ..report import ReportedRun

STAGE = "bucketed"
_FORMS = {"year": "%Y", "month": "%Y-%m"}


@dataclass(frozen=True)
class Bucket:
    """A time bucket of a run.

    Attributes:
        number: as the data have it, from 0 in order of time.
        name: of a calendar bucket its year or month, such as 2009-03; of another one the first and last year, month or day
            of its times, the shortest of these by which buckets differ; its number where it has no times.
        heading: the same in words: ``2009-03`` or ``bucket 3``.
        first, last: values of the column by which the buckets were cut.
        images: that it had before retrieval.
        calendar: whether it is a year or month as the calendar has it.
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
        """First and last day, each on a line; "" if the name says it, or buckets were not cut by times."""
        times = [time for time in (self.first, self.last) if isinstance(time, dt.datetime)]
        return "" if self.calendar or len(times) < 2 else f"{times[0]:%Y-%m-%d}\n{times[1]:%Y-%m-%d}"


def time_buckets(run: ReportedRun) -> tuple[str, list[Bucket]]:
    """The column by which a run's buckets were cut, and the buckets; none if it has not cut any.

    ``uploaded_unix`` is the upload time in seconds: ``date_uploaded`` says the same and is read in its place. So it is of a
    release, whose buckets were cut before it was read, where its metadata have it.
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
    frame = pl.DataFrame(pl.from_arrow(pa.concat_tables(rows.batches(["bucket", by]))))
    if STAGE not in run.made and frame[by].null_count():
        return "", []
    spans = frame.group_by("bucket").agg(first=pl.col(by).min(), last=pl.col(by).max(), images=pl.len()).sort("bucket")
    found: list[Bucket] = []
    names = [first.strftime(form) for first in spans["first"]] if form else _spans(spans)
    for name, (number, first, last, images) in zip(names, spans.rows(), strict=True):
        heading = f"bucket {number}" if name == str(number) else name
        found.append(Bucket(number, name, heading, first, last, images, bool(form)))
    return by, found


def _spans(buckets: pl.DataFrame) -> list[str]:
    """Buckets by first and last year, month or day, whichever distinguishes them first; by number where they have no times."""
    times = buckets.select("first", "last").rows()
    if all(isinstance(first, dt.datetime) for first, _ in times):
        for form in ("%Y", "%Y-%m", "%Y-%m-%d"):
            ends = [tuple(dict.fromkeys(time.strftime(form) for time in both)) for both in times]
            if len({*ends}) == len(ends):
                return ["\u2013".join(both) for both in ends]
    return [str(number) for number in buckets["bucket"]]


def bucket_names(buckets: list[Bucket], numbers: list[int]) -> list[str]:
    """Names of buckets by their numbers, in the order of these; a bucket that was not cut by this run goes by its number."""
    names: Mapping[int, str] = {bucket.number: bucket.name for bucket in buckets}
    return [names.get(number, str(number)) for number in numbers]
