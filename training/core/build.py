"""A learner from its settings: JSON values of one form for all benchmarks."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..methods.method import Classes, Labels, Method
from ..methods.registry import made
from ..models.classifier import Classifier
from .criteria import CRITERIA
from .exemplars import Capacity
from .learner import Learner, Memory, SecondView, View
from .schedule import Plateau, Schedule

MakeModel = Callable[..., nn.Module]
"""``make(init, *, sample, **settings)``: a network without outputs, its weights drawn from the generator ``init`` alone, for
samples
of shape ``sample``: a ``Classifier``, or a module that gives (b, width) features and has a number ``width``."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a learner is made of: its settings as values, checked before any data is read.

    Attributes:
        method: what it learns by.
        schedule: of every task's training.
        criterion: name of the classification loss.
        memory: capacity; None where the settings have none.
        order: key -> rank of exemplars that are given.
        model: settings of the model.
    """

    method: Method
    schedule: Schedule
    criterion: str
    memory: Capacity | None
    order: Mapping[str, int]
    model: Mapping[str, Any]


def parts_of(
    settings: Mapping[str, Any],
    method: Callable[..., Method],
    model: MakeModel,
    *,
    labels: Labels,
    classes: Classes,
    given: Sequence[str] = (),
) -> Parts:
    """Check the settings of a learner.

    Args:
        settings: ``method``, ``model``, ``schedule`` (of ``Schedule``; an empty ``plateau`` is none), ``criterion``, and
            ``memory``: ``size``, ``unit``, ``per_class``, ``choice`` ("method" for the method's own) and ``keys``, best first,
                where given.
        method: makes the method from ``settings["method"]``.
        model: makes the model from ``settings["model"]``.
        labels, classes: what the stream has, which the method must fit.
        given: what the model is given of the dataset, beside its settings: a graph.

    Raises:
        ValueError: a value that is out of range, missing or unknown, or a method that does not fit.
    """
    chosen = made(method, settings["method"])
    values = dict(settings["schedule"])
    values["plateau"] = Plateau(**values["plateau"]) if values.get("plateau") else None
    memory = dict(settings.get("memory") or {})
    choice, keys = memory.pop("choice", "method"), memory.pop("keys", ())
    memory.pop("frames", None)  # what is kept of a sample is the view's business
    try:
        schedule, capacity = Schedule(**values), Capacity(**memory) if memory else None
        inspect.signature(model).bind(None, sample=(), **dict.fromkeys(given), **settings["model"])
    except TypeError as error:
        raise ValueError(str(error)) from None
    if choice != "method" and chosen.exemplars not in (None, "share"):
        chosen = dataclasses.replace(chosen, exemplars=choice)
    chosen.check_fits(labels=labels, classes=classes)
    wanted = settings["criterion"]
    if wanted not in CRITERIA or (labels == "sets" and wanted != "binary_cross_entropy"):
        there = "binary_cross_entropy for sets of labels" if wanted in CRITERIA else ", ".join(CRITERIA)
        raise ValueError(f"criterion {wanted!r}: there are {there}")
    if chosen.exemplars not in (None, "share") and capacity is None:
        raise ValueError(f"method {chosen.name!r} keeps exemplars: the settings need the size of a memory")
    order = {key: rank for rank, key in enumerate(keys)}
    return Parts(chosen, schedule, wanted, capacity, order, settings["model"])


def learner_of(
    parts: Parts,
    model: MakeModel,
    *,
    sample: Sequence[int],
    seed: int,
    given: Mapping[str, Any] | None = None,
    sets: bool = False,
    keep: View | None = None,
    second: SecondView | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    workers: int = 0,
) -> Learner:
    """A fresh learner.

    Args:
        parts: see ``parts_of``.
        model: see ``MakeModel``.
        sample: shape of a sample.
        seed: of all draws.
        given: what the model is given beside its settings.
        sets: whether samples have sets of labels.
        keep: how the memory keeps a sample.
        second: of temporal consistency.
        weights: file of the model's weights, given to it as ``weights``; None: random ones.
        device: "cpu", "cuda", "cuda:1".
        workers: threads that load batches ahead.
    """
    given = {**(given or {}), **({} if weights is None else {"weights": weights})}
    return Learner(
        make_model=functools.partial(classifier_of, model, tuple(sample), {**parts.model, **given}),
        method=parts.method,
        schedule=parts.schedule,
        criterion=CRITERIA[parts.criterion],
        seed=seed,
        memory=None if parts.memory is None else Memory(parts.memory, keep, parts.order),
        second=second,
        device=device,
        workers=workers,
        sets=sets,
    )


def classifier_of(make: MakeModel, sample: tuple[int, ...], settings: Mapping[str, Any], init: torch.Generator) -> Classifier:
    """The model, without outputs yet. Raises ValueError where ``make`` gives a module whose features have no known width."""
    network = make(init, sample=sample, **settings)
    if isinstance(network, Classifier):
        return network
    width = getattr(network, "width", None)
    if not isinstance(width, int):
        raise ValueError(f"model {getattr(make, '__name__', make)!r} gives {type(network).__name__} without a number 'width'")
    return Classifier(network, width)
