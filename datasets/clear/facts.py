"""The facts of CLEAR-10 as records: ``facts.toml`` read and checked. The file says where each value comes from."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeVar

from ...curation.package_data import package_toml
from ...curation.stages.buckets import Limits

IID = ("in_domain", "next_domain", "accuracy", "backward_transfer", "forward_transfer")
STREAMING = ("streaming_next_domain", "streaming_forward_transfer")

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class ClassFacts:
    """A class: its name in the release, its retrieval prompt, its other names, and the option that workers saw."""

    name: str
    prompt: str
    also: tuple[str, ...]
    shown: str


@dataclasses.dataclass(frozen=True)
class BucketFacts:
    """Time buckets: how many, of how many images, which of them are labelled."""

    count: int
    images: int
    lines: int
    paper_per_bucket: int
    labelled: tuple[int, ...]
    pretraining: int
    min_bytes: int


@dataclasses.dataclass(frozen=True)
class RetrievalFacts:
    """Retrieval: encoder, candidates a prompt, images a class and bucket, and the background's share."""

    encoder: str
    width: int
    prefix: str
    candidates: int
    per_class: int
    background: str
    background_in_old_code: str
    background_share: float
    background_per_prompt: int
    per_bucket: int


@dataclasses.dataclass(frozen=True)
class ReviewFacts:
    """The crowd-sourced review: votes, questions, prices in US dollars."""

    workers: int
    exact_votes: int
    background_none_votes: int
    sensitive_votes: int
    sensitive_votes_as_written: int
    options: int
    none_of_the_above: str
    label_question: str
    sensitive_question: str
    usd_per_label: float
    usd_total: int
    clip_precision: float
    sensitive_images_found: int


@dataclasses.dataclass(frozen=True)
class ChoiceFacts:
    """The final choice: images a class and bucket, a bucket, in all."""

    per_class: int
    per_bucket: int
    images: int


@dataclasses.dataclass(frozen=True)
class IidFacts:
    """The iid protocol: five splits of every bucket, 70/30."""

    seeds: tuple[int, ...]
    test_share: float
    test_per_bucket: int
    train_per_bucket: int
    test_per_class: int
    train_per_class: int


@dataclasses.dataclass(frozen=True)
class StreamingFacts:
    """The streaming protocol: train on all of a bucket, test on all of the next."""

    train_per_bucket: int
    test_per_bucket: int


@dataclasses.dataclass(frozen=True)
class ReservoirFacts:
    """Buffers: sizes, and the values of alpha that were tried."""

    buffer_iid: int
    buffer_streaming: int
    fixed_alpha: tuple[float, ...]
    fixed_alpha_in_code_only: tuple[float, ...]
    dynamic_alpha: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class FeatureFacts:
    """Released features: width, side of the input in pixels, and the names of the types."""

    width: int
    side_px: int
    released: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ReleaseFacts:
    """Names under which the data is published; content digest of the shards of a run that has the paper's, "" where unknown."""

    avalanche_name: str
    archive: str
    test_share_folder: str
    dataset_digest: str


@dataclasses.dataclass(frozen=True)
class PublishedScore:
    """One published number.

    Attributes:
        table: of the paper, "" where our source does not name it.
        model: what was trained.
        method: the row.
        metric: the column: one of ``IID`` or ``STREAMING``.
        percent: the value, 0 to 100.
        note: what is known to be odd about it.
    """

    table: str
    model: str
    method: str
    metric: str
    percent: float
    note: str


@dataclasses.dataclass(frozen=True)
class Facts:
    """All of it. ``classes`` are in the order of the released configuration, ``class_names`` in the order of the labels."""

    buckets: BucketFacts
    retrieval: RetrievalFacts
    classes: tuple[ClassFacts, ...]
    review: ReviewFacts
    choice: ChoiceFacts
    iid: IidFacts
    streaming: StreamingFacts
    reservoir: ReservoirFacts
    features: FeatureFacts
    release: ReleaseFacts
    published: tuple[PublishedScore, ...]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The eleven names in the order of their labels: alphabetical, the background first (``class_names.txt``)."""
        return (self.retrieval.background, *sorted(fact.name for fact in self.classes))

    def figure(self, table: str, model: str, method: str, metric: str) -> PublishedScore:
        """One published number. Raises ``KeyError`` where there is none of that place."""
        for figure in self.published:
            if (figure.table, figure.model, figure.method, figure.metric) == (table, model, method, metric):
                return figure
        raise KeyError(f"no published figure {metric!r} of {method!r} for {model!r} in {table or 'an unnamed table'!r}")


@functools.cache
def facts() -> Facts:
    """The facts, read once a process."""
    raw = package_toml(__package__, "facts.toml")
    return Facts(
        buckets=_record(BucketFacts, raw["buckets"]),
        retrieval=_record(RetrievalFacts, raw["retrieval"]),
        classes=tuple(_record(ClassFacts, item) for item in raw["classes"]),
        review=_record(ReviewFacts, raw["review"]),
        choice=_record(ChoiceFacts, raw["choice"]),
        iid=_record(IidFacts, raw["iid"]),
        streaming=_record(StreamingFacts, raw["streaming"]),
        reservoir=_record(ReservoirFacts, raw["reservoir"]),
        features=_record(FeatureFacts, raw["features"]),
        release=_record(ReleaseFacts, raw["release"]),
        published=tuple(figure for table in raw["published"] for figure in _figures(table)),
    )


@functools.cache
def published_limits() -> tuple[Limits, ...]:
    """First and last upload time of the eleven buckets of the release, from ``bucket_limits.toml``."""
    return tuple(Limits(item["start"], item["end"]) for item in package_toml(__package__, "bucket_limits.toml")["limits"])


def _values(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in ("source", "note")}


def _record(kind: type[_T], table: dict[str, Any]) -> _T:
    """A record of one TOML table; an unknown or missing name raises ``TypeError``, which names it."""
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in _values(table).items()})


def _figures(table: dict[str, Any]) -> list[PublishedScore]:
    groups = {"iid": IID, "streaming": STREAMING}
    metrics = [metric for column in table["columns"] for metric in groups.get(column, (column,))]
    return [
        PublishedScore(table["table"], table["model"], method, metric, float(percent), table.get("note", ""))
        for method, percents in table["rows"].items()
        for metric, percent in zip(metrics, percents, strict=True)
    ]
