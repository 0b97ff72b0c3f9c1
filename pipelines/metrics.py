"""Metrics of your own, beside those of a benchmark."""

from __future__ import annotations

import inspect
import statistics
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..curation.flow import Step
from ..curation.keys import named
from ..curation.store import Rows
from ..eval.metrics.registry import METRICS
from ..eval.protocols.predictions import Predictions
from ..eval.results import Value, measured


def with_metrics(
    measures: Mapping[str, Step], metrics: Sequence[str], reader: Callable[[Rows], Any] = Predictions
) -> dict[str, Step]:
    """``measures``, and a step for each further metric that the settings name: see ``measure_by``."""
    found = [METRICS.find(name).reference for name in metrics]
    own = {
        f"own_{number}": Step(measure_by, {"metric": named(reference), "name": reference.rpartition(":")[2], "reader": reader})
        for number, reference in enumerate(found)
    }
    return {**measures, **own}


def measure_by(
    *, predictions: Rows, metric: Callable[..., float | Mapping[str, float]], name: str, reader: Callable[[Rows], Any]
) -> Iterator[Value]:
    """Source step: a further metric of whole trainings.

    Args:
        predictions: what the training left.
        metric: takes what ``reader`` gives, or what that gives as ``matrix`` where its first argument is called so; gives a
            number, or numbers by name.
        name: of the metric, where it gives one number.
        reader: makes ``Predictions`` of the rows; or a list, one for each order that was learned: then the value is the mean.
    """
    if predictions.num_rows:
        read = reader(predictions)
        by_matrix = next(iter(inspect.signature(metric).parameters)) == "matrix"
        numbers: dict[str, list[float]] = {}
        for whole in typing.cast("list[Any]", read) if isinstance(read, list) else [read]:
            found = metric(whole.matrix() if by_matrix else whole)
            for each, number in (found if isinstance(found, Mapping) else {name: found}).items():
                numbers.setdefault(each, []).append(float(number))
        yield from (measured(each, statistics.fmean(those)) for each, those in numbers.items())
