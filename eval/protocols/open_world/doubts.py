"""Reports predictors that failed because they had too little data, or unsuitable settings, from the results of a training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ...results import Line, lines
from .measures import TEST_SET

LEAST_STEPS = 50
"""Minimum number of optimiser steps for increment 0; with fewer, nothing is learned. At the paper's size one epoch has 219."""

_ALL, _NONE = 0.99, 0.01
"""A predictor is reported if it calls at least ``_ALL`` of the samples unknown, or at most ``_NONE`` of the novel count."""


def doubts(results: pa.Table) -> list[str]:
    """One line for each training whose settings do not suit its data: few optimiser steps; or nothing, or everything, called
    unknown although there were samples of both new and known classes.

    Args:
        results: table with the columns ``eval.results.RESULTS``.

    >>> from benchwright.eval.results import RESULTS
    >>> doubts(RESULTS.empty_table())
    []
    """
    return [doubt for line in lines(results) for doubt in _of_line(line)]


def _of_line(line: Line) -> Iterator[str]:
    who, where, settings = f"{line.label}, {line.protocol}", dict[str, str](), dict[str, Any]()
    for name, value in line.settings.items():
        dotted = name.removeprefix("predictor.")
        own = dotted.removeprefix("ann.").removeprefix("evm.")  # prefixes of the parts of ann_evm
        settings[own], where[own] = value, f"evaluation.settings.{line.method}.{dotted}"
    rows = _mean(line, "labels_given", at=0)
    if rows and {"epochs", "batch_size"} <= settings.keys():
        batch = min(int(settings["batch_size"]), max(1, int(rows) // int(settings.get("least_steps", 1))))
        steps = int(settings["epochs"]) * math.ceil(rows / batch)
        if steps < LEAST_STEPS:
            yield (
                f"{who}: increment 0 was learned in {steps} optimiser steps ({rows:,.0f} samples in batches of {batch}, "
                f"epochs: {settings['epochs']}): raise {where['epochs']}"
            )
    count, said, novel = (_mean(line, f"pre.{name}", split=TEST_SET) for name in ("samples", "said_unknown", "novel"))
    if not count or not novel:
        return
    text = f"before feedback it called {said:,.0f} of {count:,.0f} samples unknown, {novel:,.0f} were of new classes"
    if said <= _NONE * novel:
        yield f"{who}: {text}: {_more(settings, where, rows)}"
    elif said >= _ALL * count and novel < _ALL * count:
        yield f"{who}: {text}: {_less(settings, where)}"


def _mean(line: Line, metric: str, *, split: str | None = None, at: int | None = None) -> float:
    """Mean over the runs; 0 if nothing was measured."""
    found = line.values(metric, split=split, at=at)
    return float(np.nanmean(found)) if len(found) and not np.isnan(found).all() else 0.0


def _more(settings: Mapping[str, Any], where: Mapping[str, str], rows: float) -> str:
    if "tail_size" in settings:
        at_most = f"{where['tail_size']} ({settings['tail_size']}) or tail_share ({settings.get('tail_share', 1)})"
        return f"a tail with most of the {rows:,.0f} training samples finds nothing novel: lower {at_most}"
    if "validation_error" in settings:
        return f"raise {where['validation_error']} ({settings['validation_error']})"
    if "min_error_tol" in settings:
        return f"raise {where['min_error_tol']} ({settings['min_error_tol']})"
    return "its threshold rejects nothing"


def _less(settings: Mapping[str, Any], where: Mapping[str, str]) -> str:
    if settings.get("shrinkage") == "none":
        return f'clusters with fewer samples than features are flat, and hold no new one: set {where["shrinkage"]} = "oas"'
    if "validation_error" in settings:
        return f"lower {where['validation_error']} ({settings['validation_error']}), or train longer"
    return "its threshold rejects everything"
