"""The paper's grids and best settings, which tests hold the packaged settings against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from benchwright.pipelines.skeleton.config import READINGS

GRIDS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "finetune": {},
    "joint": {},
    "ewc": {"strength": (1, 100, 1e4, 1e6)},
    "mas": {"strength": (1, 100, 1e4, 1e6)},
    "twp": {"strength_loss": (100, 1e4), "strength_topology": (100, 1e4), "beta": (0.01, 0.1)},
    "lwf": {"strength": (0.1, 1, 10), "temperature": (0.2, 2, 20)},
    "gem": {"strength": (0.05, 0.5, 5), "fraction": (0.05, 0.1, 0.2)},
    "er": {"fraction": (0.05, 0.1, 0.2)},
}
"""The published grids, searched on the default order by AA on the validation set."""

BEST: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "ucla": {
        "finetune": {},
        "joint": {},
        "ewc": {"strength": 1e6},
        "mas": {"strength": 100},
        "twp": {"strength_loss": 1e4, "strength_topology": 1e4, "beta": 0.01},
        "lwf": {"strength": 1, "temperature": 2},
        "gem": {"strength": 5, "fraction": 0.2},
        "er": {"fraction": 0.2},
    },
    "ntu": {
        "finetune": {},
        "joint": {},
        "ewc": {"strength": 1e6},
        "mas": {"strength": 100},
        "twp": {"strength_loss": 100, "strength_topology": 1e4, "beta": 0.01},
        "lwf": {"strength": 0.1, "temperature": 2},
        "gem": {"strength": 5, "fraction": 0.2},
        "er": {"fraction": 0.2},
    },
}
"""The best settings that the paper names for UCLA-CIL and NTU-CIL."""


def settings(benchmark: Literal["ucla", "ntu"], method: str, variant: Literal["as_released", "as_written"]) -> dict[str, Any]:
    """All settings of a method: the paper's best, and the reading of the method."""
    return {**BEST[benchmark][method], **READINGS[variant].get(method, {})}
