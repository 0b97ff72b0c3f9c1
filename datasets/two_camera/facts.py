"""The facts of the two-camera benchmark: ``facts.toml``, which states the source of each value."""

from __future__ import annotations

import functools

from ...curation.package_data import FactTable, published_facts

STATISTICS = ("mean", "median", "best 25 %", "worst 25 %", "Q1", "Q3")
"""Headings of the published tables, angular errors in degrees."""

TABLE = {"radiometric": "Table 1", "nus": "Table 2", "s20": "Table 3"}
"""Dataset -> the paper's table."""


@functools.cache
def facts() -> FactTable:
    """All facts. ``tables`` are published errors, dataset -> method -> numbers under ``STATISTICS``, methods in the paper's
    order; ``augmented`` is Table 4, dataset -> ``without`` or ``with`` -> numbers under the first four of them.

    >>> dict(zip(STATISTICS, facts().tables["nus"]["gray world"]))  # degrees
    {'mean': 4.43, 'median': 3.42, 'best 25 %': 0.9, 'worst 25 %': 9.82, 'Q1': 1.54, 'Q3': 6.11}
    """
    return published_facts(__package__)
