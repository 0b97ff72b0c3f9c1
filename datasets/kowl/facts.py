"""The facts of KOWL-718 as records: ``facts.toml`` read and checked. The file says where each value comes from."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ...curation.package_data import published_facts


@dataclass(frozen=True)
class LabelFacts:
    """Labels and samples: see ``facts.toml``."""

    releases: tuple[str, ...]
    count: int
    known_at_start: int
    known_at_start_as_written: int
    novel: tuple[int, ...]
    samples: int
    unlabelled: int
    missing: int
    renames: dict[str, str]


@dataclass(frozen=True)
class ListFacts:
    """Rows of one of the authors' lists, and those of them without video or feature (None where that is not said)."""

    release: str
    split: str
    rows: int
    missing: int | None = None


@dataclass(frozen=True)
class IncrementFacts:
    """Increments of each later release: their number, seed and classes; training samples of each release; sums of Table 1."""

    count: tuple[int, ...]
    seeds: tuple[int, ...]
    classes: tuple[tuple[int, ...], ...]
    classes_as_written: tuple[tuple[int, ...], ...]
    kept_train: tuple[int, ...]
    train: int
    test: int


@dataclass(frozen=True)
class Facts:
    """All of it. ``table_1`` and ``table_2`` give the published numbers by column, one an increment from 0 on."""

    labels: LabelFacts
    lists: tuple[ListFacts, ...]
    increments: IncrementFacts
    table_1: dict[str, tuple[int, ...]]
    table_2: dict[str, tuple[int, ...]]


@functools.cache
def facts() -> Facts:
    """The facts, read once a process. An unknown or missing name raises ``TypeError``, which names it."""
    raw = published_facts(__package__)
    return Facts(
        labels=LabelFacts(**raw["labels"]),
        lists=tuple(ListFacts(**item) for item in raw["lists"]),
        increments=IncrementFacts(**raw["increments"]),
        table_1=raw["table_1"],
        table_2=raw["table_2"],
    )
