"""IIRC's loop: tasks bring labels that refine earlier ones, and a sample is asked for all of its labels known so far.

Abdelsalam et al., CVPR 2021; PROTOCOLS.md 4.3, 4.4. After task j every evaluation sample with a known label is predicted
once. R_jk is measured on the samples that have a label of task k, R_j on all of them, each once. A killed run goes on after
its last finished task and ends in the same bytes; nothing timed or dated is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...curation.files import write_whole
from ..metrics.label_sets import METRICS, co_predictions, overlaps
from .learner import TaskLearner
from .refined_files import RefinedResults, confusion_file, predictions_csv, write_refined_results
from .run import Progress, commit_progress, held_progress, taking_up

Sets = NDArray[np.bool_]


class LabelledSets(Protocol):
    """Samples with label sets, of which a protocol looks at the labels alone; what they are is the learner's business."""

    @property
    def keys(self) -> Sequence[str]:
        """Unique keys."""
        ...

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n, k) int64 class indices in the order of learning, -1 where a sample has fewer than k; the first is never -1."""
        ...

    def take(self, rows: NDArray[np.int64]) -> LabelledSets:
        """The samples of ``rows``, in that order."""
        ...

    def fingerprint(self) -> str:
        """Digits that change with the samples or their labels."""
        ...


@dataclasses.dataclass(frozen=True)
class RefinedTask:
    """One task.

    Attributes:
        name: what tables call it.
        classes: names of the classes that it brings; their indices go on from those of the tasks before.
        train: what is learned.
        validate: what is watched while learning; None where there is none.
    """

    name: str
    classes: tuple[str, ...]
    train: LabelledSets
    validate: LabelledSets | None


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is evaluated.

    Attributes:
        samples: role (``test``, ``posttask_valid``) -> its samples with all labels of all tasks. The first role is reported.
        kinds: of each class, in the order of learning: measured apart as well.
        confusion_after: numbers of the tasks after which the confusion matrix is kept.
    """

    samples: Mapping[str, LabelledSets]
    kinds: tuple[str, ...]
    confusion_after: tuple[int, ...]


def run_refined(
    learner: TaskLearner,
    tasks: Sequence[RefinedTask],
    asked: Asked,
    *,
    identity: Mapping[str, Any],
    out: Path,
    progress: Progress | None = None,
) -> RefinedResults:
    """Learn ``tasks`` in order, measure after each, and write the results; or go on where ``out`` stops.

    Args:
        learner: fresh, predicting sets; its state is replaced where ``out`` holds a part of this run.
        identity: JSON values that say what is run (method, model, schedule, configuration, seed). A folder that holds a run of
            another identity, or of other samples, is refused.
        out: folder of this run alone: ``progress.json`` and the last checkpoint, ``confusion-<role>-<task>.npy``; when all is
            done ``results.json``, ``measures.csv``, ``classes.csv``, ``curve.csv``, ``predictions.csv``.
        progress: called with one line after each task.

    Raises:
        ValueError: labels that do not fit the tasks, or ``out`` belongs to another run or is damaged.
    """
    check_tasks(tasks, asked)
    out.mkdir(parents=True, exist_ok=True)
    whose = {**identity, "data": _fingerprint(tasks, asked)}
    measures: list[dict[str, Any]] = []
    hits: list[list[list[int]]] = []
    records: list[dict[str, Any]] = []
    if (found := held_progress(out, whose)) is not None:
        held, checkpoint = found
        with taking_up(out):
            measures, hits, records = held["measures"], held["class_counts"], held["records"]
            learner.load(checkpoint, [task.train for task in tasks[: len(records)]])
    for j in range(len(records), len(tasks)):
        learner.learn(tasks[j].train, [] if tasks[j].validate is None else [tasks[j].validate], classes=len(tasks[j].classes))
        records.append(dict(learner.record))
        for role, samples in asked.samples.items():
            guessed = _guess(learner, samples, sum(len(task.classes) for task in tasks[: j + 1]))
            measures += _measure(tasks, asked.kinds, j, role, guessed)
            if role == next(iter(asked.samples)):
                hits.append(_class_counts(guessed))
                if j in asked.confusion_after:
                    write_whole(out / f"confusion-{role}-{j:03}.npy", confusion_file(co_predictions(*guessed[1:])))
                if j == len(tasks) - 1:
                    write_whole(out / "predictions.csv", predictions_csv(guessed[0], *guessed[1:], _names(tasks)))
        fields = {"class_counts": hits, "measures": measures, "records": records}
        commit_progress(out, whose, learner.save, j + 1, fields)
        if progress is not None:
            shown = next(
                one for one in measures if one["known"] == tasks[j].name and (one["task"], one["scope"]) == ("all", "all")
            )
            value = "-" if shown["pw_js"] is None else f"{shown['pw_js']:.3f}"
            progress(f"task {tasks[j].name} ({j + 1} of {len(tasks)}): pw-JS {value} on {shown['role']}")
    results = RefinedResults(
        tasks=tuple(task.name for task in tasks),
        classes=_names(tasks),
        sizes=tuple(len(task.classes) for task in tasks),
        kinds=asked.kinds,
        learned=tuple(len(task.train.labels) for task in tasks),
        measures=tuple(measures),
        class_counts=tuple(hits),
        records=tuple(records),
    )
    write_refined_results(results, identity, out)
    return results


def check_tasks(tasks: Sequence[RefinedTask], asked: Asked) -> None:
    """Raise ValueError unless labels are those seen by then, every class is learned in its task, and all samples have one."""
    if not tasks or not asked.samples:
        raise ValueError("no task, or nothing to evaluate: both are needed")
    known = 0
    for task in tasks:
        own = np.arange(known, known + len(task.classes))
        known += len(task.classes)
        for split, samples in (("train", task.train), ("validation", task.validate)):
            if samples is None:
                continue
            _check_labels(f"task {task.name!r}, {split}", samples.labels, known)
            if split == "train" and (missing := np.setdiff1d(own, samples.labels)).size:
                raise ValueError(f"task {task.name!r} has no training sample of class {task.classes[missing[0] - own[0]]!r}")
    if len(asked.kinds) != known:
        raise ValueError(f"{len(asked.kinds)} kinds for {known} classes: one each")
    for role, samples in asked.samples.items():
        _check_labels(role, samples.labels, known)


def _check_labels(what: str, labels: NDArray[np.int64], known: int) -> None:
    if labels.ndim != 2 or labels.dtype.kind != "i" or not labels.shape[1]:
        raise ValueError(f"{what}: labels {labels.dtype} {labels.shape}: int64 (n, k) class indices are wanted")
    if len(labels) and (labels.min() < -1 or labels.max() >= known or (labels[:, 0] < 0).any()):
        raise ValueError(
            f"{what}: labels from {labels.min()} to {labels.max()}, and 0..{known - 1} are known: -1 only fills up"
        )


def _names(tasks: Sequence[RefinedTask]) -> tuple[str, ...]:
    return tuple(name for task in tasks for name in task.classes)


def _fingerprint(tasks: Sequence[RefinedTask], asked: Asked) -> str:
    whole = hashlib.sha256(f"{asked.kinds}\n{asked.confusion_after}\n".encode())
    for task in tasks:
        whole.update(f"{task.name}\n{task.classes}\n{task.train.fingerprint()}\n".encode())
        whole.update(f"{'' if task.validate is None else task.validate.fingerprint()}\n".encode())
    for role, samples in asked.samples.items():
        whole.update(f"{role}\n{samples.fingerprint()}\n".encode())
    return whole.hexdigest()


Guessed = tuple[list[str], Sets, Sets]
"""Keys, true sets and predicted sets (n, known) of the samples that have a known label."""


def _guess(learner: TaskLearner, samples: LabelledSets, known: int) -> Guessed:
    labels = samples.labels
    rows = np.flatnonzero(((labels >= 0) & (labels < known)).any(1))
    true = np.zeros((len(rows), known + 1), dtype=bool)  # one column more for labels that are not known yet
    at = np.where((labels[rows] >= 0) & (labels[rows] < known), labels[rows], known)
    np.put_along_axis(true, at, True, axis=1)
    guess = np.asarray(learner.predict(samples.take(rows))) if len(rows) else np.zeros((0, known), dtype=bool)
    if guess.dtype != np.bool_ or guess.shape != (len(rows), known):
        raise ValueError(f"predictions {guess.dtype} {guess.shape}: bool ({len(rows)}, {known}) are wanted")
    keys = samples.keys
    return [keys[row] for row in rows.tolist()], true[:, :known], guess


def _measure(tasks: Sequence[RefinedTask], kinds: Sequence[str], j: int, role: str, guessed: Guessed) -> list[dict[str, Any]]:
    """Rows of R_jk (k <= j), of R_j, and of R_j within each kind of class: its labels alone, of the samples that have one."""
    _, true, guess = guessed
    counts = overlaps(true, guess)
    rows: list[dict[str, Any]] = []

    def add(task: str, scope: str, found: Any) -> None:
        values = {name: metric(found) if len(found) else None for name, metric in METRICS.items()}
        rows.append({"known": tasks[j].name, "role": role, "task": task, "scope": scope, "samples": len(found), **values})

    start = 0
    for task in tasks[: j + 1]:
        stop = start + len(task.classes)
        add(task.name, "all", counts.take(true[:, start:stop].any(1)))
        start = stop
    add("all", "all", counts)
    of_class = np.asarray(kinds[:start])
    for kind in dict.fromkeys(kinds):
        columns = of_class == kind
        mine = true[:, columns].any(1)
        add("all", kind, overlaps(true[np.ix_(mine, columns)], guess[np.ix_(mine, columns)]))
    return rows


def _class_counts(guessed: Guessed) -> list[list[int]]:
    """A list a class: samples that have it, samples predicted to, samples of both."""
    _, true, guess = guessed
    return np.stack([true.sum(0), guess.sum(0), (true & guess).sum(0)], axis=1).tolist()
