"""Additional metrics that settings name."""

from __future__ import annotations

import inspect
import math
import statistics
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..curation.flow import Step
from ..curation.keys import named
from ..curation.registry import BUILT_IN, Registry, load_entry
from ..curation.stage_rows import Rows
from ..eval.metrics.clear import NotTested
from ..eval.metrics.registry import OF_STREAMS
from ..eval.protocols.predictions import Predictions
from ..eval.results import Value, measured
from .errors import WrongUse
from .names import short

_MATRIX = "matrix of accuracies"
_TAKEN = {_MATRIX: "square", "confusion of labels": "confusion", "overlaps of label sets": "overlaps"}
"""Input of a built-in metric, as in ``fits`` -> the method of ``Predictions`` that returns it."""


def with_metrics(
    measures: Mapping[str, Step],
    metrics: Sequence[str],
    reader: Callable[[Rows], Any] = Predictions,
    *,
    known: Registry = OF_STREAMS,
) -> dict[str, Step]:
    """``measures``, and a step for each additional metric that the settings name: see ``measure_by``.

    Args:
        measures: metrics of the benchmark.
        metrics: names of the additional metrics.
        reader: see ``measure_by``.
        known: the built-in metrics that can be computed from the result of ``reader``.

    Raises:
        UnknownName: a metric is unknown.
        WrongUse: a metric of the user's takes a matrix of accuracies, and no metric of ``known`` does.
    """
    found, matrices = dict(measures), any(known.fits[each] == _MATRIX for each in known.builtin)
    for number, name in enumerate(metrics):
        entry = known.find(name)
        given = {"metric": named(entry.reference), "name": entry.reference.rpartition(":")[2], "reader": reader}
        taken = {"takes": _TAKEN[entry.fits]} if entry.origin == BUILT_IN else {}
        if not taken and not matrices and _takes_matrix(load_entry(entry)):
            raise WrongUse(
                f"metrics: {short(entry.name)} has the argument 'matrix', and trainings of this benchmark have no {_MATRIX}: "
                "write it with the argument 'predictions'"
            )
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
    """Source step: an additional metric of whole trainings.

    Args:
        predictions: predictions stored by the training.
        metric: returns a number, or numbers by name.
        name: name of the metric, if it returns one number.
        reader: makes ``Predictions`` of the rows; or a list with one for each learned order, whose values are averaged.
        takes: the method of ``reader``'s result whose value is passed to ``metric``. By default ``matrix`` if that is the name
            of its first parameter, otherwise the whole result is passed.

    >>> import benchwright as bw
    >>> facts, rows = next(bw.predictions("out"))
    >>> tested = lambda predictions: len(predictions.tests)
    >>> [(each.metric, each.value) for each in measure_by(predictions=rows, metric=tested, name="tests", reader=Predictions)]
    [('tests', 3.0)]
    """
    if predictions.num_rows:
        read = reader(predictions)
        method = takes or ("matrix" if _takes_matrix(metric) else "")
        numbers: dict[str, list[float]] = {}
        for whole in typing.cast("list[Any]", read) if isinstance(read, list) else [read]:
            found = _value(metric, getattr(whole, method)() if method else whole)
            for each, number in (found if isinstance(found, Mapping) else {name: found}).items():
                numbers.setdefault(each, []).append(float(number))
        yield from (measured(each, statistics.fmean(those)) for each, those in numbers.items())


def _takes_matrix(metric: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(metric).parameters), "") == "matrix"


def _value(metric: Callable[..., float | Mapping[str, float]], given: Any) -> float | Mapping[str, float]:
    """The metric, or NaN if it needs cells that were not tested, as the past under CLEAR's streaming protocol."""
    try:
        return metric(given)
    except NotTested:
        return math.nan
