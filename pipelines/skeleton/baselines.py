"""Baselines of a skeleton run: its experiments, its methods, and the orders to learn.

Methods that train streams side by side (``training.graph_streams``) learn many orders in one training, sharing the common
beginnings of orders; the others learn one order per training.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ...curation.code_loading import load
from ...curation.flow import Step, step
from ...curation.keys import how, named
from ...curation.rng import rng
from ...curation.verify import DATASET
from ...datasets.skeleton.view import ArraysShape, Orders, load_orders, load_shape
from ...eval.metrics.registry import OF_ORDERS
from ...eval.protocols.order_sensitivity import measure_orders, read_orders
from ...training.core.build import check_model, network_of
from ...training.graph_streams.nets import Graph, attends, graph_of
from ...training.graph_streams.recipe import full_batches
from ...training.methods.method import Method
from ...training.methods.registry import METHODS, made
from ...training.models.registry import MODELS
from ..errors import WrongUse, unknown
from ..experiments import Training
from ..metrics import with_metrics
from ..names import quoted, reference_of
from ..stream_trainings import Runs, in_settings, short, stream_training, with_remedy
from ..training_results import dataset_digest
from .config import EXPERIMENTS, WITH_ORDERS, Evaluation, SkeletonConfig, training_settings
from .joints import layout_for
from .learning import PREDICTIONS, learn_orders, order_of, ranges_of_orders, samples_for
from .source_config import NtuNamesSource


def trainings(config: SkeletonConfig, out: str, methods: Iterable[str], protocols: Iterable[str]) -> list[Training]:
    """Every training of some experiments, by experiment, method, recipe and repeat.

    Args:
        config: settings of the run.
        out: the run.
        methods: names in ``methods.registry``, or references; by default those of the settings, for several orders without
            ``joint``.
        protocols: experiments; by default those of the settings.

    Raises:
        WrongUse: an unknown method or experiment, settings that do not fit, more orders than the run wrote, nothing to train,
            or a run without dataset.
    """
    e, protocols, chosen = config.evaluation, list(protocols), list(methods)
    asked = list(dict.fromkeys(map(METHODS.present, chosen or e.methods)))
    wanted = [_known("experiment", name.replace("-", "_"), EXPERIMENTS) for name in protocols] or e.experiments
    if "grid" in wanted and not config.split.validates:
        raise WrongUse("experiment 'grid' selects on validation data, and split.val = 0 leaves none")
    if isinstance(config.source, NtuNamesSource):
        raise WrongUse(f"source.kind = {config.source.kind!r}: names have no joints, so nothing can be trained on them")
    dataset_digest(out)
    orders, shape = load_orders(out), load_shape(out)
    found: list[Training] = []
    for experiment in wanted:
        indices = _indices(config, orders, experiment)
        mine = [
            each
            for method in asked
            if chosen or experiment not in WITH_ORDERS or method != "joint"
            for tried, width, depth in _variants(e, experiment, method)
            for each in _trainings(
                config, out, orders, indices, experiment, method, training_settings(e, method, tried, width, depth), shape
            )
        ]
        if protocols and not mine:
            raise _nothing(experiment, asked)
        found += mine
    if not found:
        raise _nothing(wanted[0], asked)
    return found


def _nothing(experiment: str, asked: Sequence[str]) -> WrongUse:
    """The error of an experiment in which the settings have nothing to train."""
    if experiment in WITH_ORDERS:
        return WrongUse("joint is not trained in several orders, as in the paper: add --method joint, or another method")
    return WrongUse(f"experiment {experiment!r}: the settings name nothing to train for {', '.join(asked)}")


def check_settings(config: SkeletonConfig) -> None:
    """Raise ``WrongUse`` if the settings' baselines do not fit, as far as this can be checked before there is a dataset."""
    if isinstance(config.source, NtuNamesSource):
        return
    e, form = config.evaluation, config.tensor
    if "class_order" in e.experiments and e.class_orders > config.orders.classes:
        raise WrongUse(f"evaluation.class_orders = {e.class_orders}: orders.classes = {config.orders.classes} are listed")
    shape = ArraysShape(layout_for(config), len(form.space), form.frames, form.bodies)
    for experiment, method in itertools.product(e.experiments, e.methods):
        name = METHODS.present(method)
        for tried, width, depth in _variants(e, experiment, name):
            _parts(e, name, training_settings(e, name, tried, width, depth), shape)


def _known(what: str, name: str, names: Sequence[Any]) -> Any:
    if name not in names:
        raise unknown(what, name, names)
    return name


def _indices(c: SkeletonConfig, orders: Orders, experiment: str) -> tuple[int, ...]:
    e = c.evaluation
    if experiment == "class_order":
        if e.class_orders > len(orders.class_orders):
            raise WrongUse(
                f"evaluation.class_orders = {e.class_orders}: the run wrote {len(orders.class_orders)}; see orders.classes"
            )
        return tuple(range(e.class_orders))
    if experiment != "task_order":
        return (0,)
    there = len(orders.task_orders)
    wanted = there if e.task_orders == "all" else e.task_orders
    if wanted > there:
        raise WrongUse(f"evaluation.task_orders = {wanted}: there are {there}")
    others = rng(c.seed, "task_orders").permutation(there - 1) + 1
    return tuple(sorted([0, *others[: wanted - 1].tolist()]))


def _variants(e: Evaluation, experiment: str, method: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Settings of the method to try, with the width and depth of the network."""
    net = e.network
    if experiment == "architecture":
        swept = e.architectures
        if method in (swept.methods or e.methods):
            shapes = [*((width, net.depth) for width in swept.widths), *((net.width, depth) for depth in swept.depths)]
            yield from (({}, width, depth) for width, depth in dict.fromkeys(shapes))
    elif experiment == "grid":
        grid = e.grid.get(method, {})
        for values in itertools.product(*grid.values()) if grid else ():
            yield dict(zip(grid, values, strict=True)), net.width, net.depth
    else:
        yield {}, net.width, net.depth


def _trainings(
    c: SkeletonConfig,
    out: str,
    orders: Orders,
    indices: tuple[int, ...],
    experiment: str,
    name: str,
    settings: dict[str, Any],
    shape: ArraysShape,
) -> Iterator[Training]:
    """The trainings of one method with its settings, one per repeat, or one per repeat and order."""
    e = c.evaluation
    reference, method, model, graph = _parts(e, name, settings, shape)
    settings |= {"seed": c.seed, "task_orders": "all" if c.orders.task_orders is None else "drawn"}
    settings |= {"draws": e.draws} if experiment in WITH_ORDERS else {}
    dataset = posixpath.join(out, DATASET)
    measures = {"orders": Step(measure_orders, {"orders": 1 if "streams" not in method.learners else len(indices)})}
    measures = with_metrics(measures, e.metrics, read_orders, known=OF_ORDERS)
    if "streams" not in method.learners:
        schedule = dataclasses.asdict(full_batches(**settings["schedule"])) | {"batch_size": e.schedule.batch_size}
        settings |= {"criterion": "cross_entropy", "memory": {"size": e.memory}, "schedule": schedule}
        for repeat, index in itertools.product(range(e.repeats), indices):
            yield stream_training(
                protocol=experiment,
                method=(name, reference),
                model=(e.network.architecture, model),
                settings=settings,
                seed=repeat,
                prepare=f"{__package__}.learning:{'node' if graph == 'adjacency' else 'tensor'}_stream",
                measures=measures,
                runs=Runs(dataset, device=e.device),
                samples="graphs",
                labels="one",
                classes="new",
                order=index,
                given=(graph,),
                change="evaluation.schedule.learning_rate",
            )
        return
    facts = settings | {"orders": len(indices)}
    # Methods for which the order makes no difference learn each set of tasks once, however many orders share its draw.
    together = len(indices) if method.any_order and e.draws == "per_repeat" else e.orders_per_part
    # On an accelerator streams are trained in one program, so that their number affects the last bits.
    pieces = step(ranges_of_orders, orders=len(indices), orders_per_part=how(together) if e.device == "cpu" else together)
    learn = step(
        learn_orders,
        training={},
        digest="",
        dataset=how(dataset),
        method=named(reference),
        model=named(model),
        orders=[order_of(orders, experiment, index) for index in indices],
        indices=indices,
        device=e.device,
    )
    names = short(name), short(e.network.architecture)
    for repeat in range(e.repeats):
        yield Training(
            experiment, *names, facts, repeat, learn, PREDICTIONS, measures, 0, pieces, "evaluation.schedule.learning_rate"
        )


def _parts(e: Evaluation, name: str, settings: dict[str, Any], shape: ArraysShape) -> tuple[str, Method, str, Graph]:
    """References of a method and of the network, the method with its settings, and the graph that the network takes.

    Raises:
        WrongUse: settings that do not fit; a network that cannot be built for such samples, or that lacks the attention the
            method needs.
    """
    reference, method = _made(name, settings["method"])
    try:
        model = MODELS.find(e.network.architecture).reference
        make = load(model)
        graph = graph_of(make)
        given = [graph, *(["bodies"] if "bodies" in inspect.signature(make).parameters else [])]
        check_model(make, settings["model"], given)
        sample, operators = samples_for(graph, shape)
        network = network_of(make, sample, {graph: torch.from_numpy(operators), **settings["model"]}, torch.Generator())
    except (ValueError, LookupError) as error:
        raise WrongUse(f"evaluation.network: {str(error).removeprefix('model: ')}") from None
    if method.attention and not attends(network):
        raise WrongUse(
            f"method {name!r} computes attention over the graph's edges, but evaluation.network.architecture = "
            f"{e.network.architecture!r} has none: name gcn or st_gcn, or give the network a method topology(x)"
        )
    return reference, method, model, graph


def _made(name: str, settings: dict[str, Any]) -> tuple[str, Method]:
    """Reference of a method, and the method with its settings."""
    reference = reference_of(METHODS, name, METHODS.builtin)
    try:
        return reference, made(load(reference), settings)
    except (ValueError, LookupError) as error:
        message = str(error).removeprefix(f"{reference.rpartition(':')[2]}: ")
        table = f"evaluation.settings.{quoted(name)}"
        raise WrongUse(f"{table}: {with_remedy(message, in_settings(table))}") from None
