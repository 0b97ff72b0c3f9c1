"""What is kept of a class-incremental run: hits by class, and the files that are made of them."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...curation.files import write_whole
from ..metrics.accuracy import accuracy_matrix
from ..metrics.class_incremental import accuracy_curve, backward_forgetting, final_accuracy
from .run import matrix_csv, to_json


@dataclasses.dataclass(frozen=True)
class ClassResults:
    """Outcome over N tasks with C classes in all.

    Attributes:
        tasks, classes: their names; ``sizes`` the number of classes of each task.
        learned, tested: (C,) training and evaluation samples by class.
        correct: (N, C) hits by class after each task, -1 where the class was not seen yet.
        records: the learner's record of each task.
        selected_on_test: whether epochs were chosen on the very samples that are reported (ActivityNet has no third split).
    """

    tasks: tuple[str, ...]
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    learned: NDArray[np.int64]
    tested: NDArray[np.int64]
    correct: NDArray[np.int64]
    records: tuple[Mapping[str, Any], ...]
    selected_on_test: bool

    def by_task(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts by class (..., C), added up by task (..., N)."""
        return np.add.reduceat(counts, np.cumsum([0, *self.sizes[:-1]]), axis=-1)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """R, (N, N) in [0, 1], NaN above the diagonal."""
        seen = np.tri(len(self.tasks), dtype=bool)
        return accuracy_matrix(np.where(seen, self.by_task(np.maximum(self.correct, 0)), -1), self.by_task(self.tested))

    @property
    def metrics(self) -> dict[str, float]:
        """Acc and BWF, weighted by classes (released code) and plain (paper)."""
        return {
            "acc_class_weighted": final_accuracy(self.matrix, self.sizes),
            "acc_unweighted": final_accuracy(self.matrix),
            "bwf_class_weighted": backward_forgetting(self.matrix, self.sizes),
            "bwf_unweighted": backward_forgetting(self.matrix),
        }


def write_class_results(results: ClassResults, identity: Mapping[str, Any], out: Path) -> None:
    """Write ``results.json``, ``matrix.csv``, ``tasks.csv``, ``classes.csv`` and ``curve.csv``.

    Accuracies are fractions, undefined ones ``null``. The counts allow both weightings to be computed anew.
    """
    of_task = np.repeat(np.arange(len(results.tasks)), results.sizes).tolist()
    columns = zip(results.classes, of_task, results.learned.tolist(), results.tested.tolist(), strict=True)
    classes = [
        {"name": name, "task": results.tasks[task], "learned": learned, "tested": tested}
        for name, task, learned, tested in columns
    ]
    counts = (results.sizes, results.by_task(results.learned).tolist(), results.by_task(results.tested).tolist())
    tasks = [
        {"name": name, "classes": size, "learned": learned, "tested": tested}
        for name, size, learned, tested in zip(results.tasks, *counts, strict=True)
    ]
    value = {
        "classes": classes,
        "correct": results.correct.tolist(),
        "curve": {
            "acc_class_weighted": accuracy_curve(results.matrix, results.sizes).tolist(),
            "acc_unweighted": accuracy_curve(results.matrix).tolist(),
        },
        "format": 1,
        "identity": dict(identity),
        "metrics": {name: None if math.isnan(x) else x for name, x in results.metrics.items()},
        "records": list(results.records),
        "selected_on_the_evaluation_split": results.selected_on_test,
        "tasks": tasks,
    }
    write_whole(out / "matrix.csv", matrix_csv(results.tasks, results.matrix))
    write_whole(out / "tasks.csv", _csv(tasks))
    write_whole(out / "classes.csv", _csv(_class_rows(results, classes)))
    write_whole(out / "curve.csv", _csv(_curve_rows(results)))
    write_whole(out / "results.json", to_json(value))


def predictions_csv(rows: Iterable[tuple[str, str, str, str]]) -> bytes:
    """Task, key, class and predicted class of samples as CSV."""
    return _csv([{"task": task, "key": key, "class": truth, "predicted": guess} for task, key, truth, guess in rows])


def _class_rows(results: ClassResults, classes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row a class: its hits after each task, empty before it was learned."""
    return [
        {**row, **{f"correct_after_{name}": "" if hit < 0 else hit for name, hit in zip(results.tasks, hits, strict=True)}}
        for row, hits in zip(classes, results.correct.T.tolist(), strict=True)
    ]


def _curve_rows(results: ClassResults) -> list[dict[str, Any]]:
    """A row an epoch of every task, as the learner recorded it."""
    return [
        {"task": name, **{key: "" if epoch[key] is None else epoch[key] for key in sorted(epoch)}}
        for name, record in zip(results.tasks, results.records, strict=True)
        for epoch in record.get("epochs", [])
    ]


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()
