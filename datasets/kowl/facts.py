"""The facts of KOWL-718: ``facts.toml``, which states the source of each value."""

from __future__ import annotations

import functools

from ...curation.package_data import FactTable, published_facts


@functools.cache
def facts() -> FactTable:
    """All facts. ``table_1`` and ``table_2`` hold the published numbers by column, one per increment from 0."""
    return published_facts(__package__)
