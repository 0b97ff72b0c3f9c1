"""The facts of IIRC: ``facts.toml``, which states the source of each value."""

from __future__ import annotations

import functools

from ...curation.package_data import FactTable, published_facts


@functools.cache
def facts() -> FactTable:
    """All facts. ``sets`` holds the counts of each dataset, by its name."""
    return published_facts(__package__)
