"""The facts of IIRC, with the names used in ``facts.toml``, which states the source of each value."""

from __future__ import annotations

import functools
from types import SimpleNamespace

from ...curation.package_data import published_facts


@functools.cache
def facts() -> SimpleNamespace:
    """``shares``, ``training``, ``agem`` and ``confusion`` as tables; and ``sets``: each dataset's counts, as attributes."""
    raw = published_facts(__package__)
    rest = {name: raw.pop(name) for name in ("shares", "training", "agem", "confusion")}
    return SimpleNamespace(sets={name: SimpleNamespace(**table) for name, table in raw.items()}, **rest)
