"""Weights & Biases: a run per training, in a project."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .tracker import Tracker


def wandb(place: str, name: str, facts: Mapping[str, Any]) -> Tracker:
    """Runs of Weights & Biases in the project PLACE; WANDB_MODE, WANDB_DIR and its other variables apply."""
    package: Any = importlib.import_module("wandb")
    run = package.init(
        project=place or "benchwright", id=name, name=name, config=dict(facts), resume="allow", reinit="create_new"
    )
    return _Run(run)


class _Run:
    def __init__(self, run: Any) -> None:
        self._run = run
        self._axes: set[str] = set()

    def log(self, values: Mapping[str, float], step: int) -> None:
        # A wandb run has a single step that only increases; epochs start again with each task.
        axes = {f"{name.replace('/', '_')}_step": name for name in values}
        for axis, name in axes.items():
            if axis not in self._axes:
                self._run.define_metric(name, step_metric=axis)
        self._axes |= axes.keys()
        self._run.log({**values, **dict.fromkeys(axes, step)})

    def close(self) -> None:
        self._run.finish()
