"""Differences over orders as ``eval`` prints them, next to the paper's where comparable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...curation.artifact import load_run
from ...curation.store import Store
from ...eval.labels import unnamed
from ...eval.metrics.order_sensitivity import TABLE_2_DDOF, mean_and_deviation
from ...eval.results import lines
from ..training_results import results
from .config import SkeletonConfig
from .paper import data_differs, table_2_of, why_not_the_papers
from .series import over_orders


def order_scores(config: SkeletonConfig, out: str) -> dict[str, dict[str, Any]]:
    """Differences over orders, which combine several trainings: ``mean`` and ``std`` by heading, with the paper's values.

    A deviation over n repeats is divided by n, as in Table 2.
    """
    found = lines(results(out))
    data = data_differs(config, out, load_run(Store(out)).config) if found else ""
    scores: dict[str, dict[str, Any]] = {}
    for by in ("task", "class"):
        pairs = over_orders(found, by)
        for (one, over), apart in zip(pairs, unnamed([one.labelled for one, _ in pairs]), strict=True):
            table = scores.setdefault(f"difference over orders, by {by}", {})
            means = {"AOPD": over.difference.aopd, "MOPD": over.difference.mopd}
            figures = {name: mean_and_deviation(values, ddof=TABLE_2_DDOF) for name, values in means.items()}
            table[f"{one.label}, {over.orders} orders"] = _line(figures) | ({"apart": apart} if apart else {})
            if not data and not why_not_the_papers(config, one, over, by):
                table[f"{one.label}, Table 2"] = _line(table_2_of(config, by)[one.method])
    return scores


def _line(values: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    parts = {"mean": {name: float(mean) for name, (mean, _) in values.items()}}
    parts["std"] = {name: float(std) for name, (_, std) in values.items()}
    return {part: {name: None if math.isnan(each) else each for name, each in those.items()} for part, those in parts.items()}
