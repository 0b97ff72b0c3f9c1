"""The facts of CLEAR-10, with the names that ``facts.toml`` gives them; the file says where each value comes from."""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

from ...curation.package_data import package_toml, published_facts
from ...curation.stages.buckets import BucketLimits

IID = ("in_domain", "next_domain", "accuracy", "backward_transfer", "forward_transfer")
STREAMING = ("streaming_next_domain", "streaming_forward_transfer")


@dataclasses.dataclass(frozen=True)
class PublishedScore:
    """One published number.

    Attributes:
        table: of the paper, "" where our source does not name it.
        model: what was trained.
        method: the row.
        metric: the column: one of ``IID`` or ``STREAMING``.
        percent: the value, 0 to 100.
        note: what is known to be odd about it, or "".
    """

    table: str
    model: str
    method: str
    metric: str
    percent: float
    note: str


class Facts(SimpleNamespace):
    """The tables of the file, as attributes. ``classes`` are in the order of the released configuration, ``class_names`` in
    the order of the labels: alphabetical, the background first (``class_names.txt``). ``published`` are the figures.
    """

    def figure(self, table: str, model: str, method: str, metric: str) -> PublishedScore:
        """One published number. Raises ``KeyError`` where there is none of that place."""
        for figure in self.published:
            if (figure.table, figure.model, figure.method, figure.metric) == (table, model, method, metric):
                return figure
        raise KeyError(f"no published figure {metric!r} of {method!r} for {model!r} in {table or 'an unnamed table'!r}")


@functools.cache
def facts() -> Facts:
    """The facts, read once a process."""
    raw = published_facts(__package__)
    tables = {name: SimpleNamespace(**table) for name, table in raw.items() if isinstance(table, dict)}
    classes = tuple(SimpleNamespace(**each) for each in raw["classes"])
    names = (raw["retrieval"]["background"], *sorted(each.name for each in classes))
    published = tuple(figure for table in raw["published"] for figure in _figures(table))
    return Facts(**tables, classes=classes, class_names=names, published=published)


@functools.cache
def published_limits() -> tuple[BucketLimits, ...]:
    """First and last upload time of the eleven buckets of the release, from ``bucket_limits.toml``."""
    return tuple(BucketLimits(item["start"], item["end"]) for item in package_toml(__package__, "bucket_limits.toml")["limits"])


def _figures(table: dict[str, Any]) -> list[PublishedScore]:
    groups = {"iid": IID, "streaming": STREAMING}
    metrics = [metric for column in table["columns"] for metric in groups.get(column, (column,))]
    return [
        PublishedScore(table["table"], table["model"], method, metric, float(percent), table.get("note", ""))
        for method, percents in table["rows"].items()
        for metric, percent in zip(metrics, percents, strict=True)
    ]
