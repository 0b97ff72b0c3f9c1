"""Measures of an open-world run, from its stored predictions alone, as one tidy table.

One row is one number: what figures need is a filter. The paper's Figures 7 to 10, 12 and 13 draw ``mcc``,
``top1_accuracy``, ``top5_accuracy`` or ``nmi_arithmetic`` of a task against ``at``; its Figure 11 draws a reaction time with
``novel_to`` = "evaluator".
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...curation.files import write_whole
from ..metrics.confusion import (
    TASKS,
    Ordered,
    Task,
    matthews_correlation,
    mutual_information,
    normalised_mutual_information,
    top_labels,
)
from ..metrics.novelty import is_novel, reaction_times, says_unknown
from .open_world_files import Record, read_prediction, read_progress
from .predictor import Labels
from .run import to_json

TOP = 5
COLUMNS = pa.schema(
    {
        "increment": pa.int64(),
        "at": pa.float64(),  # where plots put it: t before feedback, t + 0.5 after it
        "phase": pa.string(),  # "pre" or "post"
        "split": pa.string(),  # "train", "validate", "test", "validate+test"
        "feedback": pa.float64(),
        "cumulative": pa.bool_(),  # over this increment and all before it; the released code has it for "post" alone
        "novel_to": pa.string(),  # "predictor" or "evaluator": whose known classes the task goes by; "" for task "none"
        "task": pa.string(),
        "measure": pa.string(),
        "n": pa.int64(),  # samples
        "value": pa.float64(),  # null where undefined
    }
)
"""The tidy table's columns."""

Key = tuple[str, str, str, Task]  # phase, split, novel_to, task


def ordered_measures(ordered: Ordered) -> dict[str, float]:
    """Measure -> value of one sum of ordered confusion matrices; NaN where undefined."""
    return {
        "top1_accuracy": ordered.top_accuracy(1),
        "top5_accuracy": ordered.top_accuracy(TOP),
        "mcc": matthews_correlation(ordered.first),
        "mutual_information": mutual_information(ordered.first),
        "nmi_arithmetic": normalised_mutual_information(ordered.first),
    }


def matrices(truth: Labels, top: Labels, known: Mapping[str, Sequence[int]]) -> dict[tuple[str, Task], Ordered]:
    """Ordered confusion matrices of one split: (novel_to, task) -> sums that may be added to those of other increments.

    Args:
        truth: (n,) class indices.
        top: (n, k) labels.
        known: "predictor" and "evaluator" -> class indices.
    """
    found: dict[tuple[str, Task], Ordered] = {("", "none"): Ordered.of(truth, top)}
    for novel_to, classes in known.items():
        for task in TASKS[1:]:
            found[novel_to, task] = Ordered.of(truth, top, classes, task)
    return found


def tidy_rows(out: Path, steps: Sequence[Record], feedback: float) -> Iterator[dict[str, Any]]:
    """All rows of the table, increment by increment."""
    sums: dict[Key, Ordered] = {}
    for t, record in enumerate(steps):
        for phase, at in (("pre", t), ("post", t + 0.5)):
            if record[phase] is None:
                continue
            base: dict[str, Any] = {"increment": t, "at": float(at), "phase": phase, "feedback": feedback}
            for split, (truth, top) in _tops(out / "predictions" / f"step-{t:03}-{phase}", record[phase]).items():
                known = {who: record[phase][f"known_to_{who}"] for who in ("predictor", "evaluator")}
                for (novel_to, task), ordered in matrices(truth, top, known).items():
                    key: Key = (phase, split, novel_to, task)
                    sums[key] = sums[key] + ordered if key in sums else ordered
                    of = {**base, "split": split, "novel_to": novel_to, "task": task}
                    yield from _rows(of, ordered, cumulative=False)
                    yield from _rows(of, sums[key], cumulative=True)
                for novel_to, classes in known.items() if phase == "pre" else ():
                    of = {
                        **base,
                        "split": split,
                        "novel_to": novel_to,
                        "task": "detection",
                        "cumulative": False,
                        "n": len(truth),
                    }
                    times = reaction_times(is_novel(truth, classes), says_unknown(top[:, 0]))
                    yield from (
                        {**of, "measure": f"reaction_time.{name}", "value": _number(time)} for name, time in times.items()
                    )


def _tops(folder: Path, phase: Record) -> dict[str, tuple[Labels, Labels]]:
    """Split -> (truth, top labels), validation and test also as one, one after the other."""
    found: dict[str, tuple[Labels, Labels]] = {}
    for split, record in phase["splits"].items():
        stored = read_prediction(folder, split, record)
        found[split] = stored.truth, top_labels(stored.columns, stored.probabilities, TOP)
    both = [found[split] for split in ("validate", "test") if split in found]
    if both:
        width = min(top.shape[1] for _, top in both)  # differ where there are fewer than five columns, and a cluster comes up
        found["validate+test"] = np.concatenate([t for t, _ in both]), np.concatenate([top[:, :width] for _, top in both])
    return found


def _rows(of: Mapping[str, Any], ordered: Ordered, *, cumulative: bool) -> Iterator[dict[str, Any]]:
    n = ordered.first.n
    for measure, value in ordered_measures(ordered).items():
        yield {**of, "cumulative": cumulative, "measure": measure, "n": n, "value": _number(value)}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def write_results(out: Path) -> list[dict[str, Any]]:
    """Compute every measure from the folder's predictions and write the table and ``results.json``; returns the rows."""
    held = read_progress(out)
    if held is None:
        raise ValueError(f"{out} holds no finished increment")
    steps = held[0]
    identity = json.loads((out / "progress.json").read_bytes())["identity"]
    rows = list(tidy_rows(out, steps, float(identity["setting"]["feedback"])))
    write_whole(out / "measures.csv", _csv(rows))
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, COLUMNS) as writer:
        writer.write_table(table)
    write_whole(out / "measures.arrow", sink.getvalue().to_pybytes())
    write_whole(out / "results.json", to_json(_results(identity, steps, rows)))
    return rows


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    memory = io.StringIO()
    writer = csv.writer(memory, lineterminator="\n")
    writer.writerow(COLUMNS.names)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in COLUMNS.names])
    return memory.getvalue().encode()


def _results(identity: Mapping[str, Any], steps: Sequence[Record], rows: Sequence[Mapping[str, Any]]) -> Record:
    """What a reader wants first: who ran on what, what was known when, and the sums at the end."""
    last = len(steps) - 1
    final = {
        ".".join(filter(None, [row["phase"], row["split"], row["task"], row["novel_to"], row["measure"]])): row["value"]
        for row in rows
        if row["cumulative"] and row["increment"] == last
    }
    increments = [
        {
            "name": record["name"],
            "labels_given": record["labels_given"],
            "known_to_evaluator": len(record["post"]["known_to_evaluator"]),
            "known_to_predictor": len(record["post"]["known_to_predictor"]),
            "recognised_clusters": {
                split: sum(label < -1 for label in one["columns"]) for split, one in record["post"]["splits"].items()
            },
            "rows": {split: one["n"] for split, one in record["post"]["splits"].items()},
        }
        for record in steps
    ]
    return {"cumulative": final, "format": 1, "identity": dict(identity), "increments": increments}
