"""What is kept of an IIRC run: measures by task and kind of class, counts by class, and the files that are made of them."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from ...curation.files import write_whole
from ..metrics.label_sets import METRICS
from .run import to_json

_MEASURE_COLUMNS = ("known", "role", "task", "scope", "samples", *METRICS)


@dataclasses.dataclass(frozen=True)
class RefinedResults:
    """Outcome over N tasks with C classes in all.

    Attributes:
        tasks, classes: their names; ``sizes`` the number of classes of each task; ``kinds`` of each class.
        learned: training samples of each task.
        measures: rows with ``known`` (the last task learned), ``role``, ``task`` (samples with a label of it, or ``all``),
            ``scope`` (``all`` labels, or those of one kind), ``samples``, and the values of ``label_sets.METRICS``; None of no
            sample.
        class_counts: of each task j, of each class known then: samples that have it, that are predicted to, and both.
        records: the learner's record of each task.
    """

    tasks: tuple[str, ...]
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    kinds: tuple[str, ...]
    learned: tuple[int, ...]
    measures: tuple[Mapping[str, Any], ...]
    class_counts: tuple[Sequence[Sequence[int]], ...]
    records: tuple[Mapping[str, Any], ...]

    def curve(self, metric: str, *, role: str = "test", scope: str = "all") -> NDArray[np.float64]:
        """(N,) R_j of a metric: over all samples after each task, NaN where there is none."""
        rows = [one for one in self.measures if (one["role"], one["task"], one["scope"]) == (role, "all", scope)]
        return np.array([np.nan if one[metric] is None else one[metric] for one in rows], dtype=np.float64)

    def matrix(self, metric: str, *, role: str = "test") -> NDArray[np.float64]:
        """(N, N) R_jk, NaN above the diagonal."""
        made = np.full((len(self.tasks), len(self.tasks)), np.nan)
        place = {name: number for number, name in enumerate(self.tasks)}
        for one in self.measures:
            if one["role"] == role and one["scope"] == "all" and one["task"] in place and one[metric] is not None:
                made[place[one["known"]], place[one["task"]]] = one[metric]
        return made


def write_refined_results(results: RefinedResults, identity: Mapping[str, Any], out: Path) -> None:
    """Write ``results.json`` and the tables of it; undefined values are ``null`` or empty."""
    last = {role: {} for role in dict.fromkeys(one["role"] for one in results.measures)}
    for role in last:
        last[role] = {name: _plain(results.curve(name, role=role)) for name in METRICS}
    value = {
        "class_counts": [[list(counts) for counts in known] for known in results.class_counts],
        "classes": [
            {"kind": kind, "name": name, "task": results.tasks[task]}
            for name, kind, task in zip(results.classes, results.kinds, _of_task(results), strict=True)
        ],
        "curves": last,
        "format": 1,
        "identity": dict(identity),
        "learned": list(results.learned),
        "measures": [dict(one) for one in results.measures],
        "records": [dict(one) for one in results.records],
        "tasks": [{"classes": size, "name": name} for name, size in zip(results.tasks, results.sizes, strict=True)],
    }
    measured = [{name: one[name] for name in _MEASURE_COLUMNS} for one in results.measures]
    write_whole(out / "measures.csv", _csv(measured))
    write_whole(out / "classes.csv", _csv(_class_rows(results)))
    write_whole(out / "curve.csv", _csv(_epochs(results)))
    write_whole(out / "results.json", to_json(value))


def read_refined_results(value: Mapping[str, Any]) -> RefinedResults:
    """The results that ``results.json`` holds."""
    return RefinedResults(
        tasks=tuple(one["name"] for one in value["tasks"]),
        classes=tuple(one["name"] for one in value["classes"]),
        sizes=tuple(one["classes"] for one in value["tasks"]),
        kinds=tuple(one["kind"] for one in value["classes"]),
        learned=tuple(value["learned"]),
        measures=tuple(value["measures"]),
        class_counts=tuple(value["class_counts"]),
        records=tuple(value["records"]),
    )


def predictions_csv(
    keys: Sequence[str], true: NDArray[np.bool_], predicted: NDArray[np.bool_], classes: Sequence[str]
) -> bytes:
    """Key, true labels and predicted labels of samples; labels of one sample are parted by ``|``."""
    names = np.asarray(classes, dtype=object)
    told = [
        {"key": key, "labels": "|".join(names[y]), "predicted": "|".join(names[p])}
        for key, y, p in zip(keys, true, predicted, strict=True)
    ]
    return _csv(told)


def confusion_file(counts: NDArray[np.int64]) -> bytes:
    """The matrix as .npy."""
    sink = io.BytesIO()
    np.save(sink, counts, allow_pickle=False)
    return sink.getvalue()


def _of_task(results: RefinedResults) -> list[int]:
    return np.repeat(np.arange(len(results.tasks)), results.sizes).tolist()


def _class_rows(results: RefinedResults) -> list[dict[str, Any]]:
    """A row a class and task from the one on that brings it."""
    return [
        {
            "known": results.tasks[j],
            "class": results.classes[place],
            "kind": results.kinds[place],
            **dict(zip(("samples", "predicted", "correct"), counts, strict=True)),
        }
        for j, known in enumerate(results.class_counts)
        for place, counts in enumerate(known)
    ]


def _epochs(results: RefinedResults) -> list[dict[str, Any]]:
    """A row an epoch of every task, as the learner recorded it, its columns sorted: a resumed run has them so."""
    return [
        {"task": name, **{column: epoch[column] for column in sorted(epoch)}}
        for name, record in zip(results.tasks, results.records, strict=True)
        for epoch in record.get("epochs", [])
    ]


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def _csv(rows: list[dict[str, Any]]) -> bytes:
    if not rows:
        return b""
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()
