"""Blocks of the IIRC report on trained baselines, from what they left."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...datasets.iirc.view import RefinedView, label_sets
from ...eval.metrics.label_sets import METRICS, co_predictions
from ...eval.protocols.refined_files import RefinedResults, read_refined_results
from ...eval.report.blocks import Block, Cell, Fold, Section, Table, Text, Value
from ...eval.report.figures import common_scale, heat_map, line_chart
from ...eval.report.label_trees import confusion_figure
from .config import IircConfig

_CURVES = 6
"""A figure tells so many curves apart."""

_HEADINGS = {"pw_js": "pw-JS", "js": "JS", "exact_match": "exact match", "recall": "recall"}
_FIRST, _LATER = 10, 5
"""Labels of the first task, and of later ones, that a confusion matrix shows, as the paper's Figure 6."""

Runs = Mapping[str, Sequence[RefinedResults]]
"""Method -> results, one a configuration and seed."""


def results_sections(
    config: IircConfig, information: str, places: Mapping[str, Sequence[Path]], index: pa.Table
) -> list[Section]:
    """Tables, curves and matrices of all methods that were trained with ``information``.

    Args:
        places: method -> folders of its runs.
        index: columns of the published table, for what would be right in a confusion matrix.
    """
    runs = {
        name: [read_refined_results(json.loads((place / "results.json").read_bytes())) for place in found]
        for name, found in places.items()
    }
    role = config.evaluation.roles[0]
    blocks: list[Block] = [Text([_note(config, runs)], tone="note"), _last(runs, role), *_curves(runs, role)]
    blocks += [_kinds(runs, role), Fold("Each task after each task (R_jk)", _matrices(runs, role))]
    confusions = [figure for name, found in places.items() for figure in _confusions(config, name, found[0], index)]
    sections = [Section(f"Baselines, {information} information", blocks)]
    if confusions:
        told = (
            "Figure 6 of the paper, for this run's labels. On the left of each row is what would be right: a superclass's row "
        )
        told += "shows how its samples are spread over the subclasses that are known by then."
        sections.append(Section(f"Confusion, {information} information", [Text([told]), *confusions]))
    return sections


def _note(config: IircConfig, runs: Runs) -> str:
    counts = ", ".join(f"{name} {len(found)}" for name, found in runs.items())
    changed = "the paper's settings" if not config.evaluation.settings else "settings changed from the paper's"
    return (
        f"Runs (configurations times seeds): {counts}; {changed}. The paper prints its scores as curves only: none of its "
        "figures stands here."
    )


def _lasts(found: Sequence[RefinedResults], metric: str, role: str, scope: str = "all") -> np.ndarray:
    """(runs,) values after the last task."""
    return np.array([one.curve(metric, role=role, scope=scope)[-1] for one in found])


def _values(found: Sequence[RefinedResults], metric: str, role: str, size: int) -> np.ndarray:
    """(runs, size) values after each task; NaN beyond the last, since drawn configurations may differ in their tasks."""
    curves = [one.curve(metric, role=role) for one in found]
    return np.stack([np.pad(curve, (0, size - len(curve)), constant_values=np.nan) for curve in curves])


def _last(runs: Runs, role: str) -> Table:
    rows: list[Sequence[Value]] = []
    for name, found in runs.items():
        cells: list[Value] = [name, len(found[0].tasks)]
        for metric in METRICS:
            last = _lasts(found, metric, role)
            cells.append(Cell(100 * float(last.mean()), note=f"± {100 * last.std(ddof=1):.1f}" if len(last) > 1 else ""))
        rows.append([*cells, 100 * float(np.mean([np.nanmean(one.curve("pw_js", role=role)) for one in found]))])
    headings = ["method", "tasks", *(_HEADINGS[metric] for metric in METRICS), "pw-JS, mean over tasks"]
    return Table(headings, rows, f"On {role} after the last task, in percent, ± one standard deviation over runs", decimals=1)


def _curves(runs: Runs, role: str) -> list[Block]:
    shown = {name: found for name, found in runs.items() if len(found[0].tasks) > 1}
    made: list[Block] = []
    names = list(shown)
    for start in range(0, len(names), _CURVES):
        some = names[start : start + _CURVES]
        for metric in ("pw_js", "js"):
            longest = max((one.tasks for name in some for one in shown[name]), key=len)
            values = {name: _values(shown[name], metric, role, len(longest)) for name in some}
            several = any(len(each) > 1 for each in values.values())
            figure = line_chart(
                list(longest),
                {name: np.nanmean(each, axis=0) for name, each in values.items()},
                label_axis="task",
                value_axis=_HEADINGS[metric],
                shares=True,
                caption=f"{_HEADINGS[metric]} over all {role} samples with a known label, after each task (R_j)"
                + ("; band: one standard deviation over runs." if several else "."),
                spread={name: np.nanstd(each, axis=0) for name, each in values.items() if len(each) > 1} if several else None,
            )
            made.append(figure)
    return made


def _kinds(runs: Runs, role: str) -> Table:
    kinds = list(dict.fromkeys(next(iter(runs.values()))[0].kinds))
    rows: list[Sequence[Value]] = []
    for name, found in runs.items():
        cells = [float(_lasts(found, metric, role, kind).mean()) for kind in kinds for metric in ("pw_js", "recall")]
        rows.append([name, *(100 * value for value in cells)])
    told = {"superclass": "superclasses", "subclass_with": "subclasses with one", "subclass_without": "lone subclasses"}
    headings = ["method", *(f"{told[kind]}, {what}" for kind in kinds for what in ("pw-JS", "recall"))]
    return Table(headings, rows, "By kind of class after the last task, in percent: its labels alone", decimals=1)


def _matrices(runs: Runs, role: str) -> list[Block]:
    matrices: dict[str, np.ndarray] = {}
    for name, found in runs.items():
        matrix = np.mean([one.matrix("pw_js", role=role) for one in found if one.sizes == found[0].sizes], axis=0)
        if len(found[0].tasks) > 1 and not np.isnan(matrix).all():
            matrices[name] = matrix
    made: list[Block] = []
    for name, matrix in matrices.items():
        found, tasks = runs[name], runs[name][0].tasks
        figure = heat_map(
            matrix,
            tasks,
            tasks,
            row_axis="trained up to task",
            column_axis="samples of task",
            scale=common_scale(list(matrices.values())),
            caption=f"{name}: pw-JS in percent, {len(found)} run{'s' if len(found) > 1 else ''}.",
        )
        made.append(figure)
    return made or [Text(["No method met more than one task."])]


def _confusions(config: IircConfig, name: str, place: Path, index: pa.Table) -> list[Block]:
    """A row of matrices, one a task after which one was kept: what would be right, and what was predicted."""
    files = sorted(place.glob("confusion-*.npy"))
    if not files:
        return []
    role = files[0].stem.split("-")[1]
    number = int(place.parent.name.removeprefix("configuration-"))
    view = RefinedView(index, number, joint=name == "joint")
    kept = [task for task in config.evaluation.confusion_after if task < len(view.tasks)]
    made: list[Block] = []
    for file in files:
        after = int(file.stem.rsplit("-", 1)[1])
        known = sum(len(task) for task in view.tasks[: after + 1])
        given = view.evaluation(role, known=after)
        truth = label_sets(given.labels, known)
        starts = np.cumsum([0, *(len(task) for task in view.tasks)])
        shown, breaks = _shown(view, [task for task in kept if task <= after], starts)
        counts = np.load(file, allow_pickle=False)
        with np.errstate(invalid="ignore"):
            matrices = {
                "what would be right": _shares(co_predictions(truth, truth), truth)[np.ix_(shown, shown)],
                f"{name}, after task {after}": _shares(counts, truth)[np.ix_(shown, shown)],
            }
        labels = [view.classes[at] for at in shown]
        caption = (
            f"{name}, configuration {number}, {role}: share of a row's samples that have, and are predicted to have, a label."
        )
        made.append(confusion_figure(matrices, labels, breaks=breaks, caption=caption))
    return [Fold(f"{name}", made, opened=False)]


def _shown(view: RefinedView, tasks: Sequence[int], starts: np.ndarray) -> tuple[list[int], list[int]]:
    shown: list[int] = []
    breaks: list[int] = []
    for task in tasks:
        count = min(len(view.tasks[task]), _LATER if task else _FIRST)
        breaks += [len(shown)] if shown else []
        shown += range(int(starts[task]), int(starts[task]) + count)
    return shown, breaks


def _shares(counts: np.ndarray, truth: np.ndarray) -> np.ndarray:
    samples = truth.sum(0).astype(np.float64)
    samples[samples == 0] = math.nan
    return counts / samples[:, None]
