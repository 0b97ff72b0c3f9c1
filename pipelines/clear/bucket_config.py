"""Settings of CLEAR's time buckets."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ...curation.stages.buckets import BucketLimits, checked_limits
from ...datasets.clear.facts import published_limits
from ..settings_type import settings_type


def _time(text: str) -> str:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is not None:
        raise ValueError("it should be a time such as 2007-04-09 03:27:17, without a time zone")
    return text


Time = Annotated[str, AfterValidator(_time)]


@settings_type
class EqualCountBuckets:
    """Buckets with equal counts.

    Attributes:
        count: number of buckets.
    """

    kind: Literal["equal_count"]
    count: Annotated[int, Field(ge=1)]


@settings_type
class CalendarBuckets:
    """One bucket per year or month.

    Attributes:
        period: time span of a bucket.
    """

    kind: Literal["calendar"]
    period: Literal["year", "month"]


@settings_type
class TimeLimits:
    """First and last time of a bucket, inclusive.

    Attributes:
        start: the first, such as 2007-04-09 03:27:17.
        end: the last.
    """

    start: Time
    end: Time


@settings_type
class LimitedBuckets:
    """Buckets between given times.

    Attributes:
        limits: limits of each bucket, in order of time.
    """

    kind: Literal["limits"]
    limits: Annotated[list[TimeLimits], Field(min_length=1)]

    def __post_init__(self) -> None:
        checked_limits([BucketLimits(each.start, each.end) for each in self.limits])


@settings_type
class PublishedBuckets:
    """The eleven buckets of CLEAR-10, by their published limits."""

    kind: Literal["clear10"]


@settings_type
class Buckets:
    """Time buckets.

    Attributes:
        by: the column of times.
        rule: how the times are divided.
        first_labelled: buckets below this number are retrieved but not labelled.
    """

    by: str
    rule: Annotated[EqualCountBuckets | CalendarBuckets | LimitedBuckets | PublishedBuckets, Field(discriminator="kind")]
    first_labelled: Annotated[int, Field(ge=0)] = 0


def count_of_buckets(buckets: Buckets | None) -> int | None:
    """Number of buckets of a rule; None if it depends on the data."""
    if buckets is None or isinstance(buckets.rule, CalendarBuckets):
        return None
    if isinstance(buckets.rule, EqualCountBuckets):
        return buckets.rule.count
    return len(published_limits() if isinstance(buckets.rule, PublishedBuckets) else buckets.rule.limits)
