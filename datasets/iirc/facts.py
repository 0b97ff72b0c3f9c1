"""The facts of IIRC, with the names used in ``facts.toml``, which states the source of each value."""

from __future__ import annotations

import functools
from types import SimpleNamespace

from ...curation.package_data import published_facts


@functools.cache
def facts() -> SimpleNamespace:
    """The tables ``shares``, ``training`` and ``confusion``; and ``sets``, the counts of each dataset as attributes."""
    raw = published_facts(__package__)
    rest = {name: raw.pop(name) for name in ("shares", "training", "confusion")}
    return SimpleNamespace(sets={name: SimpleNamespace(**table) for name, table in raw.items()}, **rest)
