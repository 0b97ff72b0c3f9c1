"""vCLIMB's loop: tasks bring classes of their own, and after each one all classes seen so far compete.

Villa et al., CVPR 2022; PROTOCOLS.md 1.7. After task i the evaluation samples of each task j <= i are predicted. Hits are
kept by class, so that R, both weightings and tables a class are computed from what is stored. A killed run goes on after
its last finished task and ends in the same bytes; nothing timed or dated is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...curation.files import write_whole
from .class_incremental_files import ClassResults, predictions_csv, write_class_results
from .learner import Labels, TaskLearner
from .run import Progress, commit_progress, held_progress, taking_up


class Samples(Protocol):
    """Labelled samples, of which a protocol looks at the labels alone; what they are is the learner's business."""

    @property
    def keys(self) -> Sequence[str]:
        """Unique keys."""
        ...

    @property
    def labels(self) -> Labels:
        """(n,) int64 class indices in the order of learning."""
        ...

    def fingerprint(self) -> str:
        """Digits that change with the samples."""
        ...


@dataclasses.dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: what tables call it.
        classes: names of its classes; their indices go on from those of the tasks before.
        train: what is learned.
        validate: what chooses epochs; may be empty.
        test: what is reported. The same as ``validate`` where a data set has no third split, which the results then say.
    """

    name: str
    classes: tuple[str, ...]
    train: Samples
    validate: Samples | None
    test: Samples


def run_class_incremental(
    learner: TaskLearner,
    tasks: Sequence[Task],
    *,
    identity: Mapping[str, Any],
    out: Path,
    progress: Progress | None = None,
) -> ClassResults:
    """Learn ``tasks`` in order, test after each, and write the results; or go on where ``out`` stops.

    Args:
        learner: fresh; its state is replaced where ``out`` holds a part of this run.
        identity: JSON values that say what is run (method, model, schedule, seed). A folder that holds a run of another
            identity, or of other samples, is refused.
        out: folder of this run alone: ``progress.json`` and the last checkpoint; when all is done ``results.json``,
            ``matrix.csv`` (R), ``tasks.csv``, ``classes.csv``, ``curve.csv`` and ``predictions.csv`` (after the last task).
        progress: called with one line after each task.

    Raises:
        ValueError: tasks whose labels are not those of their classes, or ``out`` belongs to another run or is damaged.
    """
    check_tasks(tasks)
    out.mkdir(parents=True, exist_ok=True)
    whose = {**identity, "data": fingerprint(tasks)}
    correct, records = _take_up(learner, tasks, whose, out)
    guesses: list[Labels] = []
    for i in range(len(records), len(tasks)):
        sets = [task.validate for task in tasks[: i + 1] if task.validate is not None]
        learner.learn(tasks[i].train, sets, classes=len(tasks[i].classes))
        records.append(dict(learner.record))
        guesses = [np.asarray(learner.predict(task.test)) for task in tasks[: i + 1]]
        correct[i] = _hits(tasks[: i + 1], guesses, correct.shape[1])
        if i == len(tasks) - 1:
            write_whole(out / "predictions.csv", predictions_csv(_predicted(tasks, guesses)))
        commit_progress(out, whose, learner.save, i + 1, {"correct": correct[: i + 1].tolist(), "records": records})
        if progress is not None:
            progress(f"task {tasks[i].name} ({i + 1} of {len(tasks)}) learned and tested")
    results = ClassResults(
        tasks=tuple(task.name for task in tasks),
        classes=tuple(name for task in tasks for name in task.classes),
        sizes=tuple(len(task.classes) for task in tasks),
        learned=np.bincount(np.concatenate([task.train.labels for task in tasks]), minlength=correct.shape[1]),
        tested=np.bincount(np.concatenate([task.test.labels for task in tasks]), minlength=correct.shape[1]),
        correct=correct,
        records=tuple(records),
        selected_on_test=any(_same(task.validate, task.test) for task in tasks),
    )
    write_class_results(results, identity, out)
    return results


def class_tasks(
    number: ArrayLike,
    role: Sequence[str],
    class_index: ArrayLike,
    label: Sequence[str],
    samples: Callable[[NDArray[np.int64]], Samples],
    *,
    roles: tuple[str, str | None, str] = ("train", "val", "test"),
) -> list[Task]:
    """Tasks from the columns of an index.

    Args:
        number, role, class_index, label: (n,) columns: task, role, class index in the order of learning, class name.
        samples: rows -> the samples of these rows.
        roles: which roles train, choose the epoch (None: nothing does) and report. ("train", "val", "val") for
            ActivityNet, which has no test split.

    Raises:
        ValueError: a class index with two names or in two tasks, or a role that no row of a task has.
    """
    tasks, places = np.asarray(number, dtype=np.int64), np.asarray(class_index, dtype=np.int64)
    parts, names = np.asarray(role, dtype=np.str_), np.asarray(label, dtype=np.str_)
    made: list[Task] = []
    for task in np.unique(tasks).tolist():
        mine = tasks == task
        found: dict[int, str] = {}
        for place, name in sorted(set(zip(places[mine].tolist(), names[mine].tolist(), strict=True))):
            if found.setdefault(place, name) != name:
                raise ValueError(f"task {task}: class index {place} is {found[place]!r} and {name!r}")

        def of(part: str | None, mine: NDArray[np.bool_] = mine, task: int = task) -> Samples | None:
            rows = np.flatnonzero(mine & (parts == part)) if part is not None else np.empty(0, dtype=np.int64)
            if part is not None and not len(rows):
                there = sorted(set(parts[mine].tolist()))
                raise ValueError(
                    f"task {task} has no row with role {part!r}: there are {there}. Change the split, or name other roles for "
                    "training, the choice of epochs ('none': the last is taken) and the test"
                )
            return samples(rows) if len(rows) else None

        train, validate, test = (of(part) for part in roles)
        if train is None or test is None:
            raise ValueError(f"roles {roles}: the first and the last must be named")
        made.append(Task(str(task), tuple(found[place] for place in sorted(found)), train, validate, test))
    check_tasks(made)
    return made


def check_tasks(tasks: Sequence[Task]) -> None:
    """Raise ValueError unless each task's labels are those of its classes, and each class is trained and tested."""
    known = 0
    if not tasks:
        raise ValueError("no task: there is nothing to learn")
    for task in tasks:
        wanted = np.arange(known, known + len(task.classes))
        for split, samples in (("train", task.train), ("test", task.test)):
            found = np.unique(samples.labels)
            if not np.array_equal(found, wanted):
                raise ValueError(
                    f"task {task.name!r}, {split}: classes {found.tolist()[:20]}, and {known}..{known + len(task.classes) - 1} "
                    "are its own: indices go by the order of learning, and every class needs samples"
                )
        if task.validate is not None and not np.isin(task.validate.labels, wanted).all():
            raise ValueError(f"task {task.name!r}, validation: labels outside {known}..{known + len(task.classes) - 1}")
        known += len(task.classes)


def fingerprint(tasks: Sequence[Task]) -> str:
    """SHA-256 over names, classes and samples: a resumed run must find those that it started with."""
    whole = hashlib.sha256()
    for task in tasks:
        whole.update(f"{task.name}\n{task.classes}\n".encode())
        for samples in (task.train, task.validate, task.test):
            whole.update(f"{'' if samples is None else samples.fingerprint()}\n".encode())
    return whole.hexdigest()


def _take_up(
    learner: TaskLearner, tasks: Sequence[Task], whose: Mapping[str, Any], out: Path
) -> tuple[NDArray[np.int64], list[dict[str, Any]]]:
    correct = np.full((len(tasks), sum(len(task.classes) for task in tasks)), -1, dtype=np.int64)
    found = held_progress(out, whose)
    if found is None:
        return correct, []
    held, checkpoint = found
    with taking_up(out):
        done = len(held["correct"])
        correct[:done] = held["correct"]
        if len(held["records"]) != done:
            raise ValueError(f"{len(held['records'])} records of {done} tasks")
        learner.load(checkpoint, [task.train for task in tasks[:done]])
    return correct, held["records"]


def _hits(tasks: Sequence[Task], guesses: Sequence[Labels], classes: int) -> NDArray[np.int64]:
    truth = np.concatenate([task.test.labels for task in tasks])
    guess = np.concatenate(guesses)
    if guess.shape != truth.shape or guess.dtype.kind not in "iu":
        raise ValueError(f"predictions {guess.dtype} {guess.shape} for {truth.shape} samples: one class index each")
    hits = np.bincount(truth[guess == truth], minlength=classes)
    hits[sum(len(task.classes) for task in tasks) :] = -1
    return hits


def _same(validate: Samples | None, test: Samples) -> bool:
    return validate is not None and validate.fingerprint() == test.fingerprint()


def _predicted(tasks: Sequence[Task], guesses: Sequence[Labels]) -> Iterator[tuple[str, str, str, str]]:
    """Task, key, class and predicted class of every evaluation sample."""
    names = [name for task in tasks for name in task.classes]
    for task, guess_of in zip(tasks, guesses, strict=True):
        for key, truth, guess in zip(task.test.keys, task.test.labels.tolist(), guess_of.tolist(), strict=True):
            yield task.name, key, names[truth], names[guess]
