"""The facts of KOWL-718: ``facts.toml``, which says where each value comes from."""

from __future__ import annotations

import functools

from ...curation.package_data import FactTable, published_facts


@functools.cache
def facts() -> FactTable:
    """All of it. ``table_1`` and ``table_2`` give the published numbers by column, one an increment from 0 on."""
    return published_facts(__package__)
