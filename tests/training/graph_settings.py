"""The paper's grids and best settings, which tests hold the packaged settings against."""

from __future__ import annotations

from typing import Any, Literal, get_args

from benchwright.curation.package_data import package_toml
from benchwright.datasets.skeleton.facts import table_3
from benchwright.pipelines.skeleton.config import READINGS

Paper = Literal["ucla", "ntu"]
METHODS = ("finetune", "joint", "ewc", "mas", "twp", "lwf", "gem", "er")

PAPER = package_toml("benchwright.datasets.skeleton", "paper_tables.toml")

GRIDS = {name: {key: tuple(values) for key, values in PAPER["grid"].get(name, {}).items()} for name in METHODS}
"""The published grids, searched on the default order by AA on the validation set."""

BEST = {paper: {name: table_3(paper).get(name, {}) for name in METHODS} for paper in get_args(Paper)}
"""The best settings that the paper names for UCLA-CIL and NTU-CIL."""


def settings(benchmark: Paper, method: str, variant: Literal["as_released", "as_written"]) -> dict[str, Any]:
    """All settings of a method: the paper's best, and the reading of the method."""
    return {**BEST[benchmark][method], **READINGS[variant].get(method, {})}
