"""Training of skeleton streams in many orders, through the engine: cached by recipe and repeat, taken up after a kill.

``eval/<experiment>/<method>`` is the folder of a run like any other: a stage a repeat and recipe, a part a stretch of orders.
``benchwright show`` and ``verify`` work on it.
"""

from __future__ import annotations

import dataclasses
import itertools
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...curation.artifact import load_artifact, load_run, published_digest
from ...curation.flow import Flow, Stage, join, source, step
from ...curation.keys import How, as_json, how
from ...curation.rng import rng
from ...curation.rows import schema_of
from ...curation.run import Progress, run
from ...curation.store import Store
from ...curation.verify import DATASET
from ..errors import WrongUse, did_you_mean
from .config import SkeletonConfig
from .evaluation import Evaluation, Experiment, Method
from .learning import LearnedRow, Task, learn_orders, stretches

if TYPE_CHECKING:
    from ...datasets.skeleton.view import Orders
    from ...training.graph_streams.recipe import Recipe

EVAL = "eval"
EXPERIMENTS: tuple[Experiment, ...] = ("default", "task_order", "class_order", "architecture", "grid")


@dataclasses.dataclass(frozen=True)
class Training:
    """One stage: orders that one recipe learns in one repeat.

    Attributes:
        experiment, method: name the folder.
        stage: its name in there.
        label: what tells it from others of its method: ``width 32``, ``strength 100``; "" where nothing has to.
        recipe: what learns, and how.
        kind: of the orders.
        orders: tasks of each order.
        indices: number of each.
        repeat: from 0.
    """

    experiment: Experiment
    method: Method
    stage: str
    label: str
    recipe: Recipe
    kind: str
    orders: tuple[tuple[Task, ...], ...]
    indices: tuple[int, ...]
    repeat: int


# ------------------------------------------------------------------------------------------------------- what is trained


def trainings(
    c: SkeletonConfig, orders: Orders, experiments: Iterable[Experiment], methods: Sequence[Method]
) -> list[Training]:
    """All trainings of some experiments, by experiment, method, recipe and repeat.

    Args:
        c: settings of the run.
        orders: those that the run wrote.
        experiments: which.
        methods: which; of the architecture's only those that its settings name.

    Raises:
        WrongUse: settings that a method does not have, or more orders than the run wrote.
    """
    return [
        Training(experiment, method, f"{variant}repeat_{repeat}", label, recipe, kind, tuple(tasks), indices, repeat)
        for experiment in experiments
        for kind, tasks, indices in [_orders_of(c, orders, experiment)]
        for method in methods
        for variant, label, recipe in _recipes(c.evaluation, experiment, method)
        for repeat in range(c.evaluation.repeats)
    ]


def _orders_of(
    c: SkeletonConfig, orders: Orders, experiment: Experiment
) -> tuple[str, list[tuple[Task, ...]], tuple[int, ...]]:
    sizes = np.bincount(orders.task_of_class)
    e = c.evaluation
    if experiment == "class_order":
        if e.class_orders > len(orders.class_orders):
            raise WrongUse(
                f"evaluation.class_orders = {e.class_orders}: the run wrote {len(orders.class_orders)}; see orders.classes"
            )
        chosen = range(e.class_orders)
        return "class_order", [_cut(orders.class_orders[at], sizes) for at in chosen], tuple(chosen)
    if experiment != "task_order":
        return "default", [_cut(orders.task_orders[0], sizes)], (0,)
    there = len(orders.task_orders)
    wanted = there if e.task_orders == "all" else e.task_orders
    if wanted > there:
        raise WrongUse(f"evaluation.task_orders = {wanted}: there are {there}")
    others = rng(c.seed, "task_orders").permutation(there - 1) + 1
    indices = tuple(sorted([0, *others[: wanted - 1].tolist()]))
    tasks = orders.task_of_class
    return (
        "task_order",
        [_cut(orders.task_orders[at], sizes[_in_turn(tasks[orders.task_orders[at]])]) for at in indices],
        indices,
    )


def _cut(order: Any, sizes: Any) -> tuple[Task, ...]:
    return tuple(tuple(part.tolist()) for part in np.split(np.asarray(order), np.cumsum(sizes)[:-1]))


def _in_turn(tasks: Any) -> list[int]:
    return list(dict.fromkeys(tasks.tolist()))


def _recipes(e: Evaluation, experiment: Experiment, method: Method) -> Iterator[tuple[str, str, Recipe]]:
    """Prefix of the stage's name, label, recipe."""
    own, net = e.settings.get(method, {}), e.network
    if experiment == "architecture":
        swept = e.architectures
        if method in (swept.methods or e.methods):
            shapes = [*((width, net.depth) for width in swept.widths), *((net.width, depth) for depth in swept.depths)]
            for width, depth in dict.fromkeys(shapes):
                yield f"width_{width}_depth_{depth}_", f"width {width}, depth {depth}", _recipe(e, method, own, width, depth)
    elif experiment == "grid":
        grid = e.grid.get(method, {})
        for at, values in enumerate(itertools.product(*grid.values()) if grid else ()):
            tried = dict(zip(grid, values, strict=True))
            label = ", ".join(f"{name} {value:g}" for name, value in tried.items())
            yield f"setting_{at}_", label, _recipe(e, method, {**own, **tried}, net.width, net.depth)
    else:
        yield "", "", _recipe(e, method, own, net.width, net.depth)


def _recipe(e: Evaluation, method: Method, settings: Mapping[str, Any], width: int, depth: int) -> Recipe:
    from ...training.graph_streams.learn import method_of
    from ...training.graph_streams.published import READINGS
    from ...training.graph_streams.recipe import Recipe

    try:
        recipe = Recipe(
            architecture=e.network.architecture,
            width=width,
            depth=depth,
            method=method,
            settings={**READINGS[e.preset].get(method, {}), **settings},
            readout="weighted_sum_max" if e.preset == "as_released" else "sum_max",
            epochs=e.schedule.epochs,
            learning_rate=e.schedule.learning_rate,
        )
        method_of(recipe)
    except (ValueError, TypeError) as error:
        raise WrongUse(f"evaluation.settings.{method}: {error}") from None
    return recipe


def _flow(chosen: Iterable[Training], c: SkeletonConfig, out: str) -> Flow:
    dataset, e = posixpath.join(out, DATASET), c.evaluation
    digest = published_digest(Store(dataset))
    return join(
        *(
            source(
                one.stage,
                step(
                    learn_orders,
                    dataset=how(dataset),
                    digest=digest,
                    recipe=one.recipe,
                    kind=one.kind,
                    orders=one.orders,
                    indices=one.indices,
                    seed=c.seed,
                    repeat=one.repeat,
                    device=e.device,
                ),
                pieces=step(stretches, orders=len(one.orders), orders_per_part=_together(one, e)),
                gives=LearnedRow,
            )
            for one in chosen
        )
    )


def _together(one: Training, e: Evaluation) -> int:
    # Joint learns each set of tasks once, however many orders it stands in.
    orders = len(one.orders) if one.method == "joint" else e.orders_per_part
    # On an accelerator streams are trained in one program, and how many there are shows in the last bits.
    return how(orders) if e.device == "cpu" else orders


# ---------------------------------------------------------------------------------------------------------- train


def orders_of(out: str) -> Orders:
    """The orders that a run wrote."""
    from ...datasets.skeleton.view import load_orders

    return load_orders(out)


def evaluate(
    config: SkeletonConfig,
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Train what the settings name and is not there yet; a kill costs the stretches of orders at work.

    Args:
        config: settings of the run.
        out: the run.
        methods: those of the settings by default.
        protocols: experiments; those of the settings by default.
        progress: told a line for every stretch of orders, with the rate.

    Raises:
        WrongUse: for a method or experiment that there is not, settings that do not fit, or a run without data set.
    """
    e = config.evaluation
    asked = [_known("method", name, e.methods) for name in methods] or e.methods
    wanted = [_known("experiment", name.replace("-", "_"), EXPERIMENTS) for name in protocols] or e.experiments
    if not Store(out).exists(posixpath.join(DATASET, "dataset.json")):
        raise WrongUse(f"{out} has no data set yet: run it to its end first")
    everything = trainings(config, orders_of(out), wanted, asked)
    if protocols and (idle := [name for name in wanted if all(one.experiment != name for one in everything)]):
        raise WrongUse(f"experiment {idle[0]!r}: the settings name nothing to train for {', '.join(asked)}")
    for (experiment, method), group in _by_folder(everything).items():
        run(
            _flow(group, config, out),
            posixpath.join(out, EVAL, experiment, method),
            scheduler="processes" if e.workers > 1 else "sync",
            workers=e.workers,
            pipeline="skeleton",
            config=load_run(Store(out)).config,
            on_progress=_teller(f"{experiment} {method}", group, progress),
        )


def _known(what: str, name: str, names: Sequence[Any]) -> Any:
    if name not in names:
        raise WrongUse(f"no {what} {name!r}: there are {', '.join(names)}{did_you_mean(name, names)}")
    return name


def _by_folder(every: Iterable[Training]) -> dict[tuple[Experiment, Method], list[Training]]:
    found: dict[tuple[Experiment, Method], list[Training]] = {}
    for one in every:
        found.setdefault((one.experiment, one.method), []).append(one)
    return found


def _teller(name: str, group: Sequence[Training], tell: Callable[[str], None]) -> Callable[[Progress], None]:
    by_stage = {one.stage: one for one in group}

    def told(progress: Progress) -> None:
        one = by_stage[progress.stage]
        label = f"{name} {one.label}" if one.label else name
        done = progress.rows // len(one.orders[0])
        state = f"{done} of {len(one.orders)} orders"
        if progress.state == "reused":
            tell(f"{label}, repeat {one.repeat}: there already")
        elif progress.state == "running" and progress.seconds > 0:
            tell(f"{label}, repeat {one.repeat}: {state}, {60 * done / progress.seconds:.1f} a minute")

    return told


# -------------------------------------------------------------------------------------------------------- results


def results(config: SkeletonConfig, out: str) -> list[tuple[Training, pa.Table]]:
    """Rows of every training of the settings that is finished, in their order; see ``LearnedRow``.

    What was trained with other settings, or on another data set, is left out; what was trained by earlier code is not.
    """
    if not Store(out).exists(posixpath.join(DATASET, "dataset.json")):
        return []
    found: list[tuple[Training, pa.Table]] = []
    for (experiment, method), group in _by_folder(
        trainings(config, orders_of(out), EXPERIMENTS, config.evaluation.methods)
    ).items():
        store = Store(posixpath.join(out, EVAL, experiment, method))
        stages = {stage.name: stage for stage in _flow(group, config, out).stages}
        for one in group:
            artifact = load_artifact(store, one.stage)
            if artifact is not None and artifact.recipe["settings"] == _settings(stages[one.stage]):
                found.append((one, artifact.rows_view(store).table().cast(schema_of(LearnedRow))))
    return found


def _settings(stage: Stage) -> dict[str, Any]:
    return {name: as_json(name, value) for name, value in stage.step.all_settings().items() if not isinstance(value, How)}
