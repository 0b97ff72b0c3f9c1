"""Blocks of the IIRC report on trained baselines, from the table of results and the predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from ...curation.artifact import Artifact
from ...curation.store import Store
from ...eval.metrics.label_sets import METRICS, co_predictions
from ...eval.protocols.predictions import Predictions
from ...eval.protocols.refined_classification import sets_after
from ...eval.report.blocks import Block, Cell, Details, Section, Table, Text, Value
from ...eval.report.figures import common_scale, heat_map, line_chart
from ...eval.report.label_trees import confusion_figure
from ...eval.results import Line, flat
from ...training.baselines.iirc import paper_methods, paper_settings
from .config import IircConfig

_CURVES = 6
"""A figure tells so many curves apart."""

_HEADINGS = {"pw_js": "pw-JS", "js": "JS", "exact_match": "exact match", "recall": "recall"}
_KINDS = {"superclass": "superclasses", "subclass_with": "subclasses with one", "subclass_without": "lone subclasses"}
_FIRST, _LATER = 10, 5
"""Labels of the first task, and of later ones, that a confusion matrix shows, as the paper's Figure 6."""


def results_sections(
    config: IircConfig, protocol: str, found: Sequence[Line], learned: Mapping[str, Artifact], store: Store
) -> list[Section]:
    """Tables, curves and matrices of all methods that were trained under a protocol.

    Args:
        found: its lines.
        learned: digest -> predictions, which lie in ``store``.
    """
    blocks: list[Block] = [Text([_note(found)], tone="note"), _last(found), *_curves(found)]
    blocks += [_kinds(found), Details("Each task after each task (R_jk)", _matrices(found))]
    sections = [Section(f"Baselines, {protocol}", blocks)]
    after = config.evaluation.confusion_after
    confusions = [block for line in found for block in _confusions(line, learned[_first(line)], store, after)]
    if confusions:
        told = (
            "Figure 6 of the paper, for this run's labels. On the left of each row is what would be right: a superclass's row "
            "shows how its samples are spread over the subclasses that are known by then."
        )
        sections.append(Section(f"Confusion, {protocol}", [Text([told]), *confusions]))
    return sections


def _note(found: Sequence[Line]) -> str:
    counts = ", ".join(f"{line.label} {len(line.runs)}" for line in found)
    changed = "the paper's settings" if all(map(as_published, found)) else "settings changed from the paper's"
    return (
        f"Runs (configurations times seeds): {counts}; {changed}. The paper prints its scores as curves only, so "
        "none of its figures is shown."
    )


def as_published(line: Line) -> bool:
    """Whether a line was trained by the paper's settings, as its own record has them."""
    if line.method not in paper_methods():
        return False
    known = [flat(paper_settings(line.method, dataset=dataset)[1]) for dataset in ("cifar100", "imagenet")]
    return any(all(line.settings.get(name) == value for name, value in one.items()) for one in known)


def _first(line: Line) -> str:
    """Digest of the predictions of a line's first run."""
    order, seed = line.runs[0]
    rows = line.rows.filter(pc.and_(pc.equal(line.rows["order"], order), pc.equal(line.rows["seed"], seed)))
    return rows["experiment"][0].as_py()


def _role(line: Line) -> str:
    """The split that is reported: that of the values of whole trainings."""
    whole = line.select("pw_js").filter(pc.is_null(line.select("pw_js")["position"]))
    return whole["split"][0].as_py()


def _task_names(line: Line) -> list[str]:
    """Of the run with the most tasks."""
    return [name for name in pc.unique(line.select("pw_js", split=_role(line))["tested"]).to_pylist() if name]


def _curve(line: Line, metric: str) -> np.ndarray:
    """(runs, tasks) R_j after each task; NaN beyond the last, since drawn configurations may differ in their tasks."""
    return line.matrix(metric, [""], split=_role(line))[:, :, 0]


def _last(found: Sequence[Line]) -> Table:
    rows: list[Sequence[Value]] = []
    for line in found:
        cells: list[Value] = [line.label, len(_task_names(line))]
        for metric in METRICS:
            last = line.values(metric, split=_role(line))
            cells.append(Cell(100 * float(last.mean()), note=f"± {100 * last.std(ddof=1):.1f}" if len(last) > 1 else ""))
        rows.append([*cells, 100 * float(np.nanmean(_curve(line, "pw_js"), axis=1).mean())])
    headings = ["method", "tasks", *(_HEADINGS[metric] for metric in METRICS), "pw-JS, mean over tasks"]
    caption = f"On {_roles(found)} after the last task, in percent, ± one standard deviation over runs"
    return Table(headings, rows, caption, decimals=1)


def _roles(found: Sequence[Line]) -> str:
    return " or ".join(dict.fromkeys(map(_role, found)))


def _curves(found: Sequence[Line]) -> list[Block]:
    shown = [line for line in found if len(_task_names(line)) > 1]
    made: list[Block] = []
    for start in range(0, len(shown), _CURVES):
        some = shown[start : start + _CURVES]
        longest = max(map(_task_names, some), key=len)
        for metric in ("pw_js", "js"):
            curves = {line.label: _curve(line, metric) for line in some}
            values = {
                name: np.pad(each, ((0, 0), (0, len(longest) - each.shape[1])), constant_values=np.nan)
                for name, each in curves.items()
            }
            several = any(len(each) > 1 for each in values.values())
            figure = line_chart(
                longest,
                {name: np.nanmean(each, axis=0) for name, each in values.items()},
                label_axis="task",
                value_axis=_HEADINGS[metric],
                shares=True,
                caption=f"{_HEADINGS[metric]} over all {_roles(some)} samples with a known label, after each task (R_j)"
                + ("; band: one standard deviation over runs." if several else "."),
                spread={name: np.nanstd(each, axis=0) for name, each in values.items() if len(each) > 1} if several else None,
            )
            made.append(figure)
    return made


def _kinds(found: Sequence[Line]) -> Table:
    kinds = [kind for kind in _KINDS if any(len(line.values("pw_js", stratum=kind)) for line in found)]
    rows: list[Sequence[Value]] = []
    for line in found:
        cells = [line.values(metric, stratum=kind).mean() for kind in kinds for metric in ("pw_js", "recall")]
        rows.append([line.label, *(100 * float(value) for value in cells)])
    headings = ["method", *(f"{_KINDS[kind]}, {what}" for kind in kinds for what in ("pw-JS", "recall"))]
    return Table(headings, rows, "By kind of class after the last task, in percent: its labels alone", decimals=1)


def _matrices(found: Sequence[Line]) -> list[Block]:
    """Means over the runs that have as many tasks as the first."""
    matrices: dict[str, tuple[list[str], int, np.ndarray]] = {}
    for line in found:
        names, lengths = _task_names(line), (~np.isnan(_curve(line, "pw_js"))).sum(1)
        tasks, same = names[: int(lengths[0])], lengths == lengths[0]
        each = line.matrix("pw_js", tasks, split=_role(line))[same, : len(tasks)]
        if len(tasks) > 1 and not np.isnan(matrix := each.mean(0)).all():
            matrices[line.label] = tasks, len(each), matrix
    scale = common_scale([matrix for *_, matrix in matrices.values()]) if matrices else None
    made: list[Block] = []
    for name, (tasks, runs, matrix) in matrices.items():
        figure = heat_map(
            matrix,
            tasks,
            tasks,
            row_axis="trained up to task",
            column_axis="samples of task",
            scale=scale,
            caption=f"{name}: pw-JS in percent, {runs} run{'s' if runs > 1 else ''}.",
        )
        made.append(figure)
    return made or [Text(["No method met more than one task."])]


def _confusions(line: Line, learned: Artifact, store: Store, after: Sequence[int]) -> list[Block]:
    """A row of matrices, one a task: what would be right, and what was predicted, by the line's first run."""
    found = Predictions(learned.rows_view(store))
    test, kept = found.tests[0], [task for task in after if task < len(found.positions)]
    made: list[Block] = []
    for task in kept:
        truth, guess = sets_after(found, task + 1, test)
        shown, breaks = _shown(found, [each for each in kept if each <= task])
        with np.errstate(invalid="ignore"):
            matrices = {
                "what would be right": _shares(co_predictions(truth, truth), truth)[np.ix_(shown, shown)],
                f"{line.label}, after task {task}": _shares(co_predictions(truth, guess), truth)[np.ix_(shown, shown)],
            }
        labels = [found.classes[at] for at in shown]
        caption = (
            f"{line.label}, configuration {line.runs[0][0]}, {test.split}: share of a row's samples that have, and are "
            "predicted to have, a label."
        )
        made.append(confusion_figure(matrices, labels, breaks=breaks, caption=caption))
    return [Details(line.label, made, opened=False)] if made else []


def _shown(found: Predictions, tasks: Sequence[int]) -> tuple[list[int], list[int]]:
    shown: list[int] = []
    breaks: list[int] = []
    for task in tasks:
        one = found.positions[task]
        start = one.known - len(one.classes)
        breaks += [len(shown)] if shown else []
        shown += range(start, min(one.known, start + (_LATER if task else _FIRST)))
    return shown, breaks


def _shares(counts: np.ndarray, truth: np.ndarray) -> np.ndarray:
    samples = truth.sum(0).astype(np.float64)
    samples[samples == 0] = math.nan
    return counts / samples[:, None]
