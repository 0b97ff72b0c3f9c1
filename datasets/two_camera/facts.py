"""The facts of the two-camera benchmark as records, from ``facts.toml``, which states the source of each value."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ...curation.package_data import package_toml

STATISTICS = ("mean", "median", "best 25 %", "worst 25 %", "Q1", "Q3")
"""Headings of the published tables, angular errors in degrees."""

TABLE = {"radiometric": "Table 1", "nus": "Table 2", "s20": "Table 3"}
"""Dataset -> the paper's table."""


@dataclass(frozen=True)
class Facts:
    """All facts.

    Attributes:
        sets: facts of the datasets, by name.
        seed: seed of the released folds.
        targets: number of re-illuminated pictures for each picture.
        parameters: numbers of parameters of the networks.
        tables: published errors, dataset -> method -> numbers under ``STATISTICS``; methods in the paper's order.
        augmented: Table 4, dataset -> ``without`` or ``with`` -> numbers under the first four of ``STATISTICS``.
        not_run: method in the tables that this package does not have -> reason.
    """

    sets: dict[str, dict[str, Any]]
    seed: int
    targets: int
    parameters: tuple[int, ...]
    tables: dict[str, dict[str, tuple[float, ...]]]
    augmented: dict[str, dict[str, tuple[float, ...]]]
    not_run: dict[str, str]


@functools.cache
def facts() -> Facts:
    """The facts.

    >>> dict(zip(STATISTICS, facts().tables["nus"]["gray world"]))  # degrees
    {'mean': 4.43, 'median': 3.42, 'best 25 %': 0.9, 'worst 25 %': 9.82, 'Q1': 1.54, 'Q3': 6.11}
    """
    raw: dict[str, Any] = package_toml(__package__, "facts.toml")
    tables, augmented = (
        {name: {row: tuple(numbers) for row, numbers in table.items()} for name, table in raw[part].items()}
        for part in ("tables", "augmented")
    )
    return Facts(
        sets=raw["sets"],
        seed=raw["folds"]["seed"],
        targets=raw["augmentation"]["targets"],
        parameters=tuple(raw["network"]["parameters"]),
        tables=tables,
        augmented=augmented,
        not_run=raw["not_run"],
    )
