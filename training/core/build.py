"""Build a learner from its settings, JSON values of one form for all benchmarks."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...curation.registry import check_arguments, check_values
from ..methods.method import Classes, LabelKind, Method
from ..methods.registry import made
from ..models.classifier import Classifier
from ..models.parts import EachPart
from .capacity import Capacity
from .criteria import CRITERIA, Criterion
from .memory import check_policy
from .schedule import Plateau, Schedule

MakeModel = Callable[..., nn.Module]
"""``make(init, *, sample, **settings)``: a network without outputs for samples of shape ``sample``, with weights drawn from the
generator ``init`` alone: a ``Classifier``, or a module that returns (b, width) features and has an integer ``width``."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a learner.

    Attributes:
        method: the continual-learning method.
        schedule: schedule of every task's training.
        criterion: the classification loss.
        make: makes the model.
        model: settings of the model.
        memory: capacity of the memory, for methods with exemplars.
        order: key -> rank of exemplars, for the policy ``given``.
        sets: samples have sets of labels, and sets are predicted.
    """

    method: Method
    schedule: Schedule
    criterion: Criterion
    make: MakeModel
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    memory: Capacity | None = None
    order: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    sets: bool = False

    def __post_init__(self) -> None:
        if self.method.exemplars not in (None, "share") and self.memory is None:
            raise ValueError(f"method {self.method.name!r} keeps exemplars: the settings need the size of a memory")


def parts_of(
    settings: Mapping[str, Any],
    method: Callable[..., Method],
    model: MakeModel,
    *,
    labels: LabelKind,
    classes: Classes,
    given: Sequence[str] = (),
) -> Parts:
    """Return a learner's parts from its settings, checked before any data is read.

    Args:
        settings: ``method``, ``model``, ``schedule`` (fields of ``Schedule``; an empty ``plateau`` means none), ``criterion``,
            and ``memory``: ``size``, ``unit``, ``per_class``, ``choice`` ("method": the method's own policy) and, for policy
            ``given``, ``keys``, best first.
        method: makes the method from ``settings["method"]``.
        model: makes the model from ``settings["model"]``.
        labels, classes: labels and classes of the stream, which the method must support.
        given: names of the arguments that the model receives from the dataset in addition to its settings: a graph.

    Raises:
        ValueError: a value is out of range, missing or unknown, or the method does not fit the stream or the model (methods
            that compare cosines need the model setting ``head`` "cosine_kept" or "cosine_reset").
    """
    chosen = made(method, settings["method"])
    values = dict(settings["schedule"])
    if plateau := values.get("plateau"):
        if not isinstance(plateau, Mapping):
            raise ValueError(f"schedule.plateau = {plateau!r}: expected a table")
        _check("schedule.plateau", Plateau, plateau)
    values["plateau"] = Plateau(**plateau) if plateau else None
    memory = dict(settings.get("memory") or {})
    choice, keys = memory.pop("choice", "method"), memory.pop("keys", ())
    memory.pop("frames", None)  # the view handles which part of a sample is stored
    for what, takes, table in ("schedule", Schedule, values), ("memory", Capacity, memory):
        if table:
            _check(what, takes, table)
    check_model(model, settings["model"], given)
    schedule, capacity = Schedule(**values), Capacity(**memory) if memory else None
    try:
        bound = inspect.signature(model).bind(None, sample=(), **dict.fromkeys(given), **settings["model"])
    except TypeError as error:
        name = getattr(model, "__name__", repr(model))
        called = f"{name}(init, *, {', '.join(('sample', *given))})"
        raise ValueError(f"model {name!r}: {error}: it is called as {called}, with its settings") from None
    if choice != "method" and chosen.exemplars not in (None, "share"):
        chosen = dataclasses.replace(chosen, exemplars=choice)
    if capacity is not None and isinstance(chosen.exemplars, str):
        check_policy(chosen.exemplars, capacity)
    chosen.check_fits(labels=labels, classes=classes)
    bound.apply_defaults()
    head = bound.arguments.get("head", "linear")
    if chosen.head == "cosine" and not str(head).startswith("cosine"):
        raise ValueError(
            f"method {chosen.name!r} compares cosines, and the model's head is {head!r}: give a model that has the setting "
            "head, such as pictures, head = 'cosine_kept', or name another method"
        )
    wanted = settings["criterion"]
    if wanted not in CRITERIA or (labels == "sets" and wanted != "binary_cross_entropy"):
        available = "binary_cross_entropy for sets of labels" if wanted in CRITERIA else ", ".join(CRITERIA)
        raise ValueError(f"criterion {wanted!r}: expected one of {available}")
    order = {key: rank for rank, key in enumerate(keys)}
    return Parts(chosen, schedule, CRITERIA[wanted], model, settings["model"], capacity, order, labels == "sets")


def check_model(model: MakeModel, settings: Mapping[str, Any], given: Sequence[str] = ()) -> None:
    """Raise ValueError if settings do not fit a model, see ``parts_of``."""
    takes = inspect.signature(model).parameters
    open_ended = any(each.kind == each.VAR_KEYWORD for each in takes.values())
    if strange := [name for name in given if name not in takes and not open_ended]:
        raise ValueError(f"model: it does not accept {strange[0]}, which samples of this dataset have: name another model")
    _check("model", model, settings, next(iter(takes), ""), "sample", *given)  # the first is the generator


def _check(what: str, takes: Callable[..., Any], settings: Mapping[str, Any], *given: str) -> None:
    try:
        check_arguments(takes, settings, given=given)
        check_values(takes, settings)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def network_of(make: MakeModel, sample: tuple[int, ...], settings: Mapping[str, Any], init: torch.Generator) -> nn.Module:
    """Make the network for samples of a shape. Graphs of M bodies, (M, V, F) or (M, C, T, V), are processed body by body.

    ``make`` then receives the shape of one body, and its network is applied to each body, see ``EachPart``. If ``make`` has a
    keyword ``bodies``, it also receives M, and its network takes whole samples.
    """
    graph = settings.get("adjacency", settings.get("partitions"))
    if graph is None or len(sample) <= graph.ndim:
        return make(init, sample=sample, **settings)
    if "bodies" in inspect.signature(make).parameters:
        return make(init, sample=sample[1:], bodies=sample[0], **settings)
    network = make(init, sample=sample[1:], **settings)
    if not isinstance(network, Classifier):
        return EachPart(network)
    network.backbone = EachPart(network.backbone)
    return network


def classifier_of(make: MakeModel, sample: tuple[int, ...], settings: Mapping[str, Any], init: torch.Generator) -> Classifier:
    """Make the model, without outputs yet. Raises ValueError if ``make`` returns a module without an integer ``width``."""
    network = network_of(make, sample, settings, init)
    if isinstance(network, Classifier):
        return network
    width = getattr(network, "width", None)
    if not isinstance(width, int):
        raise ValueError(f"model {getattr(make, '__name__', make)!r} gives {_name_of(network)} without a number 'width'")
    return Classifier(network, width)


def _name_of(network: nn.Module) -> str:
    return type(network.network if isinstance(network, EachPart) else network).__name__
