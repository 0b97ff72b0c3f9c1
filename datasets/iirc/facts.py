"""The facts of IIRC as records: ``facts.toml`` read and checked. The file says where each value comes from."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ...curation.package_data import published_facts


@dataclass(frozen=True)
class SetFacts:
    """Counts of one of the published data sets: see ``facts.toml``."""

    superclasses: int
    subclasses_with: int
    lone: int
    labels: int
    tasks: int
    first_task: int
    later_task: int
    configurations: int
    subclass_sizes: tuple[int, int]
    in_task: float
    post_task: float
    tasks_as_written: int | None = None


@dataclass(frozen=True)
class Facts:
    """All of it: counts by data set, and the tables of values that all share."""

    sets: dict[str, SetFacts]
    shares: dict[str, Any]
    training: dict[str, Any]
    confusion: dict[str, Any]


@functools.cache
def facts() -> Facts:
    """The facts, read once a process. An unknown or missing name raises ``TypeError``, which names it."""
    raw = published_facts(__package__)
    rest = {name: raw.pop(name) for name in ("shares", "training", "confusion")}
    return Facts(sets={name: SetFacts(**table) for name, table in raw.items()}, **rest)
