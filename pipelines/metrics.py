"""Metrics that settings name, beside those of a benchmark."""

from __future__ import annotations

import inspect
import math
import statistics
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..curation.flow import Step
from ..curation.keys import named
from ..curation.registry import BUILT_IN, Registry
from ..curation.store import Rows
from ..eval.metrics.clear import NotTested
from ..eval.metrics.registry import OF_STREAMS
from ..eval.protocols.predictions import Predictions
from ..eval.results import Value, measured

_TAKEN = {"matrix of accuracies": "square", "confusion of labels": "confusion", "overlaps of label sets": "overlaps"}
"""What a built-in metric fits -> the method of ``Predictions`` that gives it."""


def with_metrics(
    measures: Mapping[str, Step],
    metrics: Sequence[str],
    reader: Callable[[Rows], Any] = Predictions,
    *,
    known: Registry = OF_STREAMS,
) -> dict[str, Step]:
    """``measures``, and a step for each further metric that the settings name: see ``measure_by``.

    Args:
        measures: of the benchmark.
        metrics: names of others.
        reader: see ``measure_by``.
        known: those of the built-in ones that can be computed from what ``reader`` gives.

    Raises:
        UnknownName: for another name.
    """
    found = dict(measures)
    for number, name in enumerate(metrics):
        entry = known.find(name)
        given = {"metric": named(entry.reference), "name": entry.reference.rpartition(":")[2], "reader": reader}
        taken = {"takes": _TAKEN[entry.fits]} if entry.origin == BUILT_IN else {}
        found[f"own_{number}"] = Step(measure_by, {**given, **taken})
    return found


def measure_by(
    *,
    predictions: Rows,
    metric: Callable[..., float | Mapping[str, float]],
    name: str,
    reader: Callable[[Rows], Any],
    takes: str = "",
) -> Iterator[Value]:
    """Source step: a further metric of whole trainings.

    Args:
        predictions: what the training left.
        metric: gives a number, or numbers by name.
        name: of the metric, where it gives one number.
        reader: makes ``Predictions`` of the rows; or a list, one for each order that was learned: then the value is the mean.
        takes: the method of what ``reader`` gives whose result ``metric`` takes. By default ``matrix`` where its first argument
            is called so, or else all that ``reader`` gives.
    """
    if predictions.num_rows:
        read = reader(predictions)
        by_matrix = next(iter(inspect.signature(metric).parameters)) == "matrix"
        method = takes or ("matrix" if by_matrix else "")
        numbers: dict[str, list[float]] = {}
        for whole in typing.cast("list[Any]", read) if isinstance(read, list) else [read]:
            found = _value(metric, getattr(whole, method)() if method else whole)
            for each, number in (found if isinstance(found, Mapping) else {name: found}).items():
                numbers.setdefault(each, []).append(float(number))
        yield from (measured(each, statistics.fmean(those)) for each, those in numbers.items())


def _value(metric: Callable[..., float | Mapping[str, float]], given: Any) -> float | Mapping[str, float]:
    """NaN where the metric takes in what was not tested, as the past under CLEAR's streaming protocol."""
    try:
        return metric(given)
    except NotTested:
        return math.nan
