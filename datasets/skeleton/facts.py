"""The facts of the skeleton benchmarks: ``facts.toml``, which states the source of each value; and Tables 2 to 5 of
the paper on the order sensitivity of continual graph learning: ``paper_tables.toml``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...curation.package_data import FactTable, package_toml, published_facts


@functools.cache
def facts() -> FactTable:
    """All facts, read once per process. ``ntu.classes`` are the 120 classes; the first ``classes_60`` are the 60."""
    return published_facts(__package__)


@dataclass(frozen=True)
class PublishedSensitivity:
    """One method's figures in percent, each with its standard deviation over five repeats (0 where none is printed)."""

    aopd_percent: float
    aopd_std_percent: float
    mopd_percent: float
    mopd_std_percent: float


def table_2(by: Literal["task", "class"], dataset: Literal["ucla", "ntu"]) -> dict[str, PublishedSensitivity]:
    """Table 2, GCN: method -> figures over task orders (accuracy by task), or over all 220 orders (accuracy by class)."""
    return {method: PublishedSensitivity(*values) for method, values in _read()[by][dataset].items()}


def table_3(dataset: Literal["ucla", "ntu"]) -> Mapping[str, Mapping[str, float]]:
    """Table 3: method -> settings chosen by the paper's grid search. Methods without settings are left out."""
    return _read()["best"][dataset]


@functools.cache
def _read() -> Mapping[str, Any]:
    return package_toml(__package__, "paper_tables.toml")
