"""Table 2 of the paper on the order sensitivity of continual graph learning, as records: ``published.toml``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from ...curation.package_data import package_toml


@dataclass(frozen=True)
class Published:
    """One method's figures in percent, each with its standard deviation over five repeats (0 where none is printed)."""

    aopd_percent: float
    aopd_std_percent: float
    mopd_percent: float
    mopd_std_percent: float


def table_2(by: Literal["task", "class"], dataset: Literal["ucla", "ntu"]) -> dict[str, Published]:
    """Table 2, GCN: method -> figures over task orders (accuracy by task), or over all 220 orders (accuracy by class)."""
    return {method: Published(*values) for method, values in _read()[by][dataset].items()}


@functools.cache
def _read() -> dict[str, dict[str, dict[str, list[float]]]]:
    return package_toml(__package__, "published.toml")
