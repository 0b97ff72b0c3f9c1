"""Baselines of an IIRC run: training, what is stale, scores."""

from __future__ import annotations

import functools
import json
import posixpath
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.artifact import load_artifact
from ...curation.store import Store
from ...datasets.iirc.view import RefinedView
from ..config import with_changes
from ..results import EVAL, Failures, check_listed, code_of, current_results, dataset_digest, stale_results
from .config import IircConfig

if TYPE_CHECKING:
    from ...eval.protocols.refined_classification import Asked, RefinedTask
    from ...eval.protocols.refined_files import RefinedResults
    from ...training.data.examples import Examples

EMBEDDED = "embedded"
"""The stage of vectors, where the settings name an encoder."""

JOINT = ("joint", "incremental_joint")
"""Methods that are given other data: all classes in one task, or all samples so far; both with complete labels."""

SHOWN = {"pw-JS": "pw_js", "JS": "js", "exact match": "exact_match", "recall": "recall"}
"""What ``eval`` prints of the reported role after the last task: heading -> metric."""


def evaluate(
    config: IircConfig,
    out: str,
    *,
    methods: Iterable[str] = (),
    protocols: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, list[RefinedResults]]]:
    """Train baselines on the published shards and evaluate them after each task; what is done already is read.

    Args:
        config: settings of the run.
        out: the run.
        methods: names of ``training.baselines.iirc``; those of the settings by default.
        protocols: ``configuration-0``, ...: task configurations; those of the settings by default.
        progress: told one line a task.

    Returns:
        Information -> method -> results, one a configuration and seed.

    Raises:
        ValueError: for a method or configuration that is not known, and settings that do not fit.
    """
    from ...datasets.reader.index import DatasetIndex
    from ...eval.protocols.refined_classification import run_refined
    from ...training.baselines.iirc import learner_maker, picture_view
    from ...training.data.pictures import Album, Pictures, ShardPictures

    e = config.evaluation
    chosen = list(methods) or e.methods
    numbers = [_number(name, config) for name in protocols] or e.configurations or config.tasks.configurations
    plans = {name: baseline_settings(config, name) for name in chosen}
    index = DatasetIndex.open(posixpath.join(out, "dataset"))
    keys: list[str] = index.table["key"].to_pylist()
    vectors = None if config.vectors is None else read_vectors(out, keys)
    store = ShardPictures(index)
    results: dict[str, list[RefinedResults]] = {}
    failures = Failures(progress)
    for name, settings in plans.items():
        if vectors is None:
            examples = functools.partial(Pictures, Album(store, picture_view(settings), hold=e.hold), keys)
        else:
            settings["model"] = {**settings["model"], "inputs": vectors.shape[1]}
            examples = functools.partial(_of_vectors, vectors, keys)
        make = learner_maker(settings, device=e.device, workers=e.workers)
        for number in numbers if name != "joint" else numbers[:1]:  # its order is that of one configuration
            tasks, asked = read_tasks(index.table, examples, name, number, config)
            for seed in e.seeds:
                folders = (e.information, name, f"configuration-{number}", f"seed-{seed}")
                at = f"configuration {number} {name}"
                with failures.of("/".join(folders), "evaluation.settings.schedule.learning_rate, or method_settings"):
                    found = run_refined(
                        make(seed),
                        tasks,
                        asked,
                        identity=_identity(config, out, *folders),
                        out=Path(out).joinpath(EVAL, *folders),
                        progress=lambda line, at=at: progress(f"{at}: {line}"),
                    )
                    results.setdefault(name, []).append(found)
    failures.check(out)
    return {e.information: results}


def _identity(config: IircConfig, out: str, information: str, name: str, configured: str, seeded: str) -> dict[str, Any]:
    """What the results of a baseline are of: its settings, the dataset, the vectors, and the code that trains and evaluates."""
    from ...eval.protocols.refined_classification import run_refined
    from ...training.baselines.iirc import identity, learner_maker, picture_view
    from ...training.core.criteria import CRITERIA
    from ...training.core.learner import Learner
    from ...training.data.examples import ArrayExamples
    from ...training.data.pictures import Album
    from ...training.methods import registry
    from ...training.models.picture_net import picture_net

    e, settings = config.evaluation, baseline_settings(config, name)
    vectors = None if config.vectors is None else load_artifact(Store(out), EMBEDDED)
    if settings["criterion"] not in CRITERIA:
        raise ValueError(f"criterion {settings['criterion']!r}: there are {', '.join(CRITERIA)}")
    code = [registry.maker(settings["method"]["name"]), CRITERIA[settings["criterion"]], picture_net, Learner, RefinedView]
    code += [Album if config.vectors is None else ArrayExamples, run_refined]
    return {
        **identity(settings, seed=check_listed("evaluation.seeds", int(seeded.removeprefix("seed-")), e.seeds)),
        "code": code_of(code, alone=[registry.method, learner_maker, picture_view, read_tasks]),
        "configuration": _number(configured, config),
        "confusion_after": list(e.confusion_after),
        "dataset_digest": dataset_digest(out),
        "information": information,
        "roles": list(e.roles),
        "vectors": None if vectors is None else vectors.digest,
    }


def _number(text: str, config: IircConfig) -> int:
    digits = text.removeprefix("configuration-").removeprefix("configuration ")
    if not digits.isdecimal() or int(digits) not in config.tasks.configurations:
        known = ", ".join(f"configuration-{number}" for number in config.tasks.configurations)
        raise ValueError(f"no protocol {text!r}: there are {known}")
    return int(digits)


def baseline_settings(config: IircConfig, name: str) -> dict[str, Any]:
    """The paper's settings of one baseline with the changes of the configuration.

    Raises:
        ValueError: for a method, table or name that there is not.
    """
    from ...training.baselines.iirc import paper_settings

    settings = paper_settings(name, dataset=config.evaluation.dataset)
    return with_changes(settings, config.evaluation.settings, config.evaluation.method_settings.get(name, {}))


def read_tasks(
    table: pa.Table, examples: Callable[[Any, Any], Any], method: str, configuration: int, config: IircConfig
) -> tuple[list[RefinedTask], Asked]:
    """The tasks of one configuration, and what is asked after each; pictures are read when they are needed.

    Args:
        table: the index.
        examples: row numbers (n,) and labels (n, k) -> samples that a learner can load.
        method: ``joint`` and ``incremental_joint`` are given other samples and labels than the others.
    """
    from ...eval.protocols.refined_classification import Asked, RefinedTask

    view = RefinedView(table, configuration, joint=method == "joint")
    information = "complete" if method in JOINT else config.evaluation.information
    reach = "so_far" if method in JOINT else "task"
    tasks: list[RefinedTask] = []
    for number, names in enumerate(view.tasks):
        given = {
            role: view.training(number, role=role, information=information, reach=reach) for role in ("train", "intask_valid")
        }
        train, validate = (examples(one.rows, one.labels) for one in given.values())
        tasks.append(RefinedTask(str(number), names, train, validate if len(validate.labels) else None))
    samples = {role: view.evaluation(role) for role in config.evaluation.roles}
    asked = {role: examples(one.rows, one.labels) for role, one in samples.items()}
    return tasks, Asked(asked, view.kinds, tuple(config.evaluation.confusion_after))


def read_vectors(out: str, keys: list[str]) -> NDArray[np.float32]:
    """(n, d) vectors of ``keys``, from the stage that made them.

    Raises:
        ValueError: the run has none, or lacks one.
    """
    store = Store(out)
    artifact = load_artifact(store, EMBEDDED)
    if artifact is None:
        raise ValueError(f"{out} has no vectors: run the pipeline with these settings first")
    rows = artifact.rows_view(store)
    places = {key: row for row, key in enumerate(rows.table(["key"])["key"].to_pylist())}
    if missing := next((key for key in keys if key not in places), None):
        raise ValueError(f"{out} has no vector of {missing!r}: its shards are of another run")
    return rows.gather("embedding", [places[key] for key in keys]).astype(np.float32)


def _of_vectors(vectors: NDArray[np.float32], keys: list[str], rows: NDArray[np.int64], labels: NDArray[np.int64]) -> Examples:
    from ...training.data.examples import ArrayExamples

    places: list[int] = rows.tolist()
    return ArrayExamples(vectors[rows], labels, [keys[row] for row in places])


_RESULTS = "*/*/configuration-*/seed-*"
"""Folders of results within ``eval/``: information, method."""


def stale(config: IircConfig, out: str) -> dict[str, str]:
    """Results of another dataset, other settings or other code: folder -> why."""
    return stale_results(out, _RESULTS, functools.partial(_identity, config, out))


def finished(config: IircConfig, out: str) -> dict[str, dict[str, list[Path]]]:
    """Folders of finished baselines of dataset, settings and code as they are: information -> method -> one a configuration and
    seed, in the order of their names.
    """
    found: dict[str, dict[str, list[Path]]] = {}
    for path, _ in current_results(out, _RESULTS, functools.partial(_identity, config, out), "curves", "measures"):
        found.setdefault(path.parts[-5], {}).setdefault(path.parts[-4], []).append(path.parent)
    return found


def scores(config: IircConfig, out: str) -> dict[str, dict[str, Any]]:
    """Metrics after the last task: information -> method -> ``mean`` and ``std`` over runs (None for one)."""
    told: dict[str, dict[str, Any]] = {}
    for information, methods in finished(config, out).items():
        for name, places in methods.items():
            held = [json.loads((place / "results.json").read_text()) for place in places]
            values = {heading: [_last(one, metric) for one in held] for heading, metric in SHOWN.items()}
            known = {heading: [value for value in found if value is not None] for heading, found in values.items()}
            mean = {heading: statistics.fmean(found) if found else None for heading, found in known.items()}
            std = {heading: statistics.stdev(found) if len(found) > 1 else None for heading, found in known.items()}
            told.setdefault(f"{information} information", {})[name] = {"mean": mean, "std": std, "runs": len(held)}
    return told


def _last(result: Mapping[str, Any], metric: str) -> float | None:
    role = result["measures"][0]["role"]
    return result["curves"][role][metric][-1]
