"""The facts of the skeleton benchmarks as records: ``facts.toml``, which says where each value comes from."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ...curation.package_data import published_facts


@dataclass(frozen=True)
class NwuclaFacts:
    """N-UCLA: see ``facts.toml``."""

    actions: tuple[int, ...]
    classes: tuple[str, ...]
    sequences: int
    per_class: tuple[int, ...]
    per_task: tuple[int, ...]
    x_view_train_cameras: tuple[int, ...]
    x_view: tuple[int, int]
    length_1: tuple[str, ...]


@dataclass(frozen=True)
class NtuFacts:
    """NTU RGB+D: see ``facts.toml``. ``classes`` are those of the 120, of which the first ``classes_60`` are the 60."""

    setups: int
    cameras: int
    performers: int
    replications: int
    classes_60: int
    available: int
    missing: int
    x_sub: tuple[int, int]
    x_view: tuple[int, int]
    x_view_train_cameras: tuple[int, ...]
    x_sub_train_performers: tuple[int, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class CilFacts:
    """Counts of a benchmark: see ``facts.toml``."""

    sequences: int
    per_class: tuple[int, ...]
    per_task: tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """All of it."""

    nwucla: NwuclaFacts
    ntu: NtuFacts
    ntu_cil: CilFacts


@functools.cache
def facts() -> Facts:
    """The facts, read once a process. An unknown or missing name raises ``TypeError``, which names it."""
    raw = published_facts(__package__)
    return Facts(NwuclaFacts(**raw.pop("nwucla")), NtuFacts(**raw.pop("ntu")), CilFacts(**raw.pop("ntu_cil")), **raw)
