"""Measures of an open-world run by strata of its samples, from the predictions that it stored.

The paper's ablation (PROTOCOLS.md 2.7) shows the classification task, cumulative, after feedback; the others are here too.
Confusion matrices are summed stratum by stratum: where every sample belongs to one stratum of a stratification, they add up
to the matrix of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ..metrics.confusion import Ordered, Task, top_labels
from .open_world_files import Record, Stored, read_prediction, read_progress
from .open_world_measures import COLUMNS, TOP, ordered_measures

STRATA_COLUMNS = pa.schema([*COLUMNS, pa.field("stratification", pa.string()), pa.field("stratum", pa.string())])
"""The tidy table's columns, and whose samples were counted."""


def measures_by_stratum(
    out: Path,
    strata: pa.Table,
    *,
    feedback: float,
    phases: Sequence[str] = ("post",),
    splits: Sequence[str] = ("test",),
    task: Task = "classification",
    novel_to: str = "predictor",
) -> pa.Table:
    """Measures of each stratum, in the order of increments; ``cumulative`` rows count all increments so far.

    Args:
        out: folder of the run.
        strata: ``uid``, ``stratification``, ``stratum``. A sample may belong to several strata of one stratification, and
            counts in each; one that is not named counts in none.
        feedback: written into the table.
        phases: of "pre" and "post".
        splits: "train", "validate", "test"; summed, under the name "validate+test" and the like.
        task, novel_to: see ``open_world_measures``.

    Returns:
        Columns of ``STRATA_COLUMNS``. A stratum without samples in an increment has cumulative rows alone.

    Raises:
        ValueError: ``out`` holds no finished increment, a file in it is damaged, or ``novel_to`` is not known.
    """
    if novel_to not in ("predictor", "evaluator"):
        raise ValueError(f"novel_to {novel_to!r}: 'predictor' or 'evaluator'")
    held = read_progress(out)
    if held is None:
        raise ValueError(f"{out} holds no finished increment")
    asked = pl.DataFrame(pl.from_arrow(strata.select(["uid", "stratification", "stratum"])))
    groups = asked.select("stratification", "stratum").unique().sort("stratification", "stratum")
    asked = asked.join(groups.with_row_index("group"), on=["stratification", "stratum"]).select("uid", "group")
    named = groups.to_dicts()
    rows: list[dict[str, Any]] = []
    for phase in phases:
        for row in _rows(out, held[0], asked, len(named), phase, splits, task, novel_to):
            group: int = row.pop("group")
            rows.append({**row, "feedback": feedback, **named[group]})
    return pa.Table.from_pylist(rows, schema=STRATA_COLUMNS)


def _rows(
    out: Path,
    steps: Sequence[Record],
    asked: pl.DataFrame,
    groups: int,
    phase: str,
    splits: Sequence[str],
    task: Task,
    who: str,
) -> Iterator[dict[str, Any]]:
    sums: dict[int, Ordered] = {}
    for t, record in enumerate(steps):
        if record[phase] is None:
            continue
        known = record[phase][f"known_to_{who}"]
        new: dict[int, Ordered] = {}
        for split in splits:
            if split in record[phase]["splits"]:
                folder = out / "predictions" / f"step-{t:03}-{phase}"
                stored = read_prediction(folder, split, record[phase]["splits"][split])
                for group, ordered in _by_group(stored, asked, known, task).items():
                    new[group] = new[group] + ordered if group in new else ordered
        for group, ordered in new.items():
            sums[group] = sums[group] + ordered if group in sums else ordered
        of = {"increment": t, "at": t + 0.5 * (phase == "post"), "phase": phase, "split": "+".join(splits), "task": task}
        of["novel_to"] = who if task != "none" else ""
        for group in range(groups):
            for cumulative, found in ((False, new), (True, sums)):
                if group in found:
                    yield from _measured({**of, "group": group, "cumulative": cumulative}, found[group])


def _by_group(stored: Stored, asked: pl.DataFrame, known: Sequence[int], task: Task) -> dict[int, Ordered]:
    top = top_labels(stored.columns, stored.probabilities, TOP)
    uids = pl.DataFrame({"uid": stored.uid.tolist()}, schema={"uid": pl.String}).with_row_index("row")
    pairs = uids.join(asked, on="uid", maintain_order="left")
    row, group = pairs["row"].to_numpy(), pairs["group"].to_numpy()
    found: dict[int, Ordered] = {}
    for one in np.unique(group).tolist():
        mine = row[group == one]
        found[one] = Ordered.of(stored.truth[mine], top[mine], known, task)
    return found


def _measured(of: Mapping[str, Any], ordered: Ordered) -> Iterator[dict[str, Any]]:
    n = ordered.first.n
    for measure, value in ordered_measures(ordered).items():
        yield {**of, "measure": measure, "n": n, "value": None if math.isnan(value) else float(value)}
