"""Baselines of a vCLIMB run: training, what is stale, scores."""

from __future__ import annotations

import functools
import posixpath
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import with_changes
from ..results import EVAL, Failures, check_listed, code_of, current_results, dataset_digest, stale_results
from .config import VclimbConfig

if TYPE_CHECKING:
    from ...eval.protocols.class_incremental import ClassResults, Task

_SHOWN = {
    "acc": "acc_class_weighted",
    "bwf": "bwf_class_weighted",
    "acc unweighted": "acc_unweighted",
    "bwf unweighted": "bwf_unweighted",
}
"""What ``eval`` prints: heading -> metric of ``results.json``."""


def evaluate(
    config: VclimbConfig,
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, list[ClassResults]]]:
    """Train baselines on the published shards and evaluate them after each task; what is done already is read.

    Args:
        config: settings of the run.
        out: the run.
        methods: names of ``training.baselines.vclimb``; those of the settings by default.
        protocols: ``frames-4``, ``frames-all``, ...: frames of a stored clip; those of the settings by default.
        progress: told one line a task.

    Returns:
        Protocol -> method -> results, one a seed.

    Raises:
        ValueError: for a method or protocol that is not known, and settings that do not fit.
    """
    from ...eval.protocols.class_incremental import run_class_incremental
    from ...training.baselines.vclimb import learner_maker

    chosen = list(methods) or config.evaluation.methods
    asked = [_frames(name) for name in protocols] or config.evaluation.frames
    plans = {(frames, name): baseline_settings(config, name, frames) for frames in asked for name in chosen}
    weights = None if config.evaluation.weights is None else Path(config.evaluation.weights)
    results: dict[str, dict[str, list[ClassResults]]] = {}
    failures = Failures(progress)
    for (frames, name), settings in plans.items():
        make = learner_maker(settings, weights=weights, device=config.evaluation.device, workers=config.evaluation.workers)
        tasks = read_tasks(posixpath.join(out, "dataset"), settings, config.evaluation.roles)
        if len(tasks) != config.split.tasks:
            raise ValueError(
                f"{out} has clips of {len(tasks)} tasks, and split.tasks is {config.split.tasks}: see its coverage"
            )
        for seed in config.evaluation.seeds:
            folders = (f"frames-{frames}", name, f"seed-{seed}")
            with failures.of("/".join(folders), "evaluation.settings.schedule.learning_rate, or method_settings"):
                found = run_class_incremental(
                    make(seed),
                    tasks,
                    identity=_identity(config, out, *folders),
                    out=Path(out).joinpath(EVAL, *folders),
                    progress=lambda line, name=name, frames=frames: progress(f"frames {frames} {name}: {line}"),
                )
                results.setdefault(f"frames {frames}", {}).setdefault(name, []).append(found)
    failures.check(out)
    return results


def _identity(config: VclimbConfig, out: str, protocol: str, name: str, seeded: str) -> dict[str, Any]:
    """What the results of a baseline are of: its settings, the dataset, and the code that trains and evaluates."""
    from ...eval.protocols.class_incremental import class_tasks, run_class_incremental
    from ...training.baselines.vclimb import clip_view, identity, learner_maker
    from ...training.core.criteria import CRITERIA
    from ...training.core.learner import Learner
    from ...training.data.clips import consistent, kept, shard_clips
    from ...training.methods import registry
    from ...training.models.tsn import tsn

    settings, weights = baseline_settings(config, name, _frames(protocol)), config.evaluation.weights
    seed = check_listed("evaluation.seeds", int(seeded.removeprefix("seed-")), config.evaluation.seeds)
    if settings["criterion"] not in CRITERIA:
        raise ValueError(f"criterion {settings['criterion']!r}: there are {', '.join(CRITERIA)}")
    code = [registry.maker(settings["method"]["name"]), CRITERIA[settings["criterion"]], tsn, Learner, kept, consistent]
    code += [shard_clips, class_tasks, run_class_incremental]
    return {
        **identity(settings, seed=seed, weights=None if weights is None else Path(weights)),
        "code": code_of(code, alone=[registry.method, learner_maker, clip_view, read_tasks]),
        "dataset_digest": dataset_digest(out),
        "roles": list(config.evaluation.roles),
    }


def _frames(text: str) -> int | str:
    frames = text.removeprefix("frames-").removeprefix("frames ")
    if frames != "all" and not (frames.isdecimal() and int(frames)):
        raise ValueError(f"no protocol {text!r}: frames of a stored clip are wanted, such as frames-4 or frames-all")
    return "all" if frames == "all" else int(frames)


def baseline_settings(config: VclimbConfig, name: str, frames: Any) -> dict[str, Any]:
    """The paper's settings of one baseline with the changes of the configuration.

    Raises:
        ValueError: for a method, table or name that there is not.
    """
    from ...training.baselines.vclimb import paper_settings

    e = config.evaluation
    settings = paper_settings(name, dataset=e.dataset, preset=e.preset, frames=frames, variant=e.variant)
    if e.roles[1] == "none":
        settings["schedule"] = {**settings["schedule"], "select": "none"}
    return with_changes(settings, e.settings, e.method_settings.get(name, {}))


def read_tasks(url: str, settings: Mapping[str, Any], roles: tuple[str, str, str]) -> list[Task]:
    """The tasks of a published dataset; frames are read from the shards when they are needed."""
    from ...datasets.reader.index import DatasetIndex
    from ...eval.protocols.class_incremental import class_tasks
    from ...training.baselines.vclimb import clip_view
    from ...training.data.clips import shard_clips

    index = DatasetIndex.open(url)
    clips = shard_clips(index, clip_view(settings))
    table = index.table
    return class_tasks(
        table["task"].to_numpy(),
        table["role"].to_pylist(),
        table["class_index"].to_numpy(),
        table["label"].to_pylist(),
        clips.take,
        roles=(roles[0], None if roles[1] == "none" else roles[1], roles[2]),
    )


_RESULTS = "frames-*/*/seed-*"
"""Folders of results within ``eval/``."""


def stale(config: VclimbConfig, out: str) -> dict[str, str]:
    """Results of another dataset, other settings or other code: folder -> why."""
    return stale_results(out, _RESULTS, functools.partial(_identity, config, out))


def seed_results(config: VclimbConfig, out: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """``results.json`` of every finished baseline of dataset, settings and code as they are: protocol -> method -> seeds."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for path, value in current_results(out, _RESULTS, functools.partial(_identity, config, out), "metrics"):
        protocol = path.parts[-4].replace("-", " ", 1)
        found.setdefault(protocol, {}).setdefault(path.parts[-3], []).append(value)
    return found


def scores(config: VclimbConfig, out: str) -> dict[str, dict[str, Any]]:
    """Metrics of every baseline that was run: protocol -> method -> ``mean`` and ``std`` over seeds (None for one seed)."""
    told: dict[str, dict[str, Any]] = {}
    for protocol, methods in seed_results(config, out).items():
        for name, seeds in methods.items():
            values = {heading: [one["metrics"][metric] for one in seeds] for heading, metric in _SHOWN.items()}
            mean = {heading: None if None in found else statistics.fmean(found) for heading, found in values.items()}
            std = {heading: statistics.stdev(v) if len(v) > 1 and None not in v else None for heading, v in values.items()}
            told.setdefault(protocol, {})[name] = {"mean": mean, "std": std, "seeds": len(seeds)}
    return told
