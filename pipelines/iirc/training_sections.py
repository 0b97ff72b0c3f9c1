"""Sections of the IIRC report about trainings, from the table of results and the predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.compute as pc

from ...curation.stage_rows import Rows
from ...datasets.iirc.facts import facts
from ...eval.metrics.label_sets import co_predictions
from ...eval.protocols.predictions import Predictions
from ...eval.report.blocks import Block, Details, Section, Text
from ...eval.report.label_trees import confusion_figure
from ...eval.report.trainings import (
    SPREAD,
    lines_table,
    own_metrics,
    position_curves,
    position_heats,
    settings_details,
    whole_columns,
)
from ...eval.results import Line
from .config import IircConfig
from .paper import departure

_HEADINGS = {"pw_js": "pw-JS", "js": "JS", "exact_match": "exact match", "recall": "recall"}
_KINDS = {"superclass": "superclasses", "subclass_with": "subclasses with a superclass", "subclass_without": "lone subclasses"}
_FIRST, _LATER = 10, 5
"""Labels of the first task, and of later ones, shown in a confusion matrix, as in the paper's Figure 6."""


def protocol_sections(
    config: IircConfig, protocol: str, found: Sequence[Line], predicted: Callable[[Line], Rows], published: str
) -> list[Section]:
    """Tables, curves and matrices of all methods trained under a protocol.

    Args:
        found: lines of the protocol.
        predicted: predictions of the first run of a line.
        published: see ``paper.departure``.
    """
    roles = " or ".join(dict.fromkeys(map(_role, found)))
    caption = f"On {roles} after the last task, in percent, {SPREAD} over runs"
    last = {
        "tasks": lambda line: len(_task_names(line)),
        **whole_columns({heading: metric for metric, heading in _HEADINGS.items()}, _role),
        "pw-JS, mean over tasks": lambda line: np.nanmean(_curve(line), axis=1),
    }
    blocks: list[Block] = [
        Text([_note(found, published)], tone="note"),
        lines_table(found, last, caption),
        *own_metrics(found),
        *settings_details(found),
    ]
    for metric in ("pw_js", "js"):
        text = f"{_HEADINGS[metric]} over all {roles} samples with a known label, after each task (R_j)"
        blocks += position_curves(
            found, metric, _task_names, value_axis=_HEADINGS[metric], caption=text, split=_role, ends=True
        )
    text = f"pw-JS over only the {roles} samples of a task, right after it was learned (R_jj), as in the paper's Figure 5"
    blocks += position_curves(found, "pw_js", _task_names, value_axis="pw-JS", caption=text, split=_role, same=True)
    kinds = {
        f"{name}, {what}": (lambda line, kind=kind, metric=metric: line.values(metric, stratum=kind))
        for kind, name in _KINDS.items()
        for metric, what in (("pw_js", "pw-JS"), ("recall", "recall"))
        if any(len(line.select(metric, stratum=kind)) for line in found)
    }
    blocks.append(lines_table(found, kinds, "By kind of class after the last task, in percent: labels of this kind only"))
    several = [line for line in found if len(_task_names(line)) > 1]
    curves = [
        block
        for kind, name in _KINDS.items()
        for block in position_curves(
            [line for line in found if len(line.select("pw_js", stratum=kind))],
            "pw_js",
            _task_names,
            value_axis="pw-JS",
            caption=f"pw-JS on only the labels of {name}, after each task",
            split=_role,
            stratum=kind,
            ends=True,
        )
    ]
    if curves:
        blocks.append(Details("By kind of class after each task", curves))
    matrices = position_heats({line.label: _matrix(line) for line in several}, of="task", what="pw-JS")
    nothing = Text(["No method was trained on more than one task."])
    blocks.append(Details("Each task after each task (R_jk)", matrices or [nothing]))
    sections = [Section(f"Baselines, {protocol}", blocks)]
    after = config.evaluation.confusion_after
    confusions = [block for line in found for block in _confusions(line, Predictions(predicted(line)), after)]
    if confusions:
        text = (
            "Figure 6 of the paper, for this run's labels. On the left is the ground truth: a superclass's row shows the "
            "distribution of its samples over the subclasses known at that time."
        )
        sections.append(Section(f"Confusion, {protocol}", [Text([text]), *confusions]))
    return sections


def _note(found: Sequence[Line], published: str) -> str:
    counts = ", ".join(f"{line.label} {len(line.runs)}" for line in found)
    reasons: dict[str, list[str]] = {}
    for line in found:
        reasons.setdefault(departure(line, published) or "settings of the paper's released code", []).append(line.label)
    why = "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in reasons.items())
    return (
        f"Runs (configurations times seeds): {counts}. {why}. The paper shows its scores as curves and has their numbers in "
        "its Appendix H, which benchwright does not include: none are shown here."
    )


def _role(line: Line) -> str:
    """The reported split: that of the values of whole trainings."""
    whole = line.select("pw_js").filter(pc.is_null(line.select("pw_js")["position"]))
    return whole["split"][0].as_py()


def _task_names(line: Line) -> list[str]:
    """Names of the tasks of the run with the most tasks."""
    return [name for name in pc.unique(line.select("pw_js", split=_role(line))["tested"]).to_pylist() if name]


def _curve(line: Line) -> np.ndarray:
    """(runs, tasks) R_j of pw-JS; NaN beyond the last, since drawn configurations may differ in their tasks."""
    return line.matrix("pw_js", [""], split=_role(line))[:, :, 0]


def _matrix(line: Line) -> tuple[list[str], np.ndarray]:
    """Tasks and R_jk of the runs that have the same number of tasks as the first."""
    lengths = (~np.isnan(_curve(line))).sum(1)
    tasks = _task_names(line)[: int(lengths[0])]
    return tasks, line.matrix("pw_js", tasks, split=_role(line))[lengths == lengths[0], : len(tasks)]


def _confusions(line: Line, found: Predictions, after: Sequence[int]) -> list[Block]:
    """Pairs of matrices, one per task: ground truth, and predictions of the line's first run, for the samples of Figure 6, or
    of the first role if those were not tested."""
    test = next((each for each in found.tests if each.split == facts().confusion["role"]), found.tests[0])
    kept = [task for task in after if task < len(found.positions)] or [len(found.positions) - 1]
    made: list[Block] = []
    for task in kept:
        truth, guess = found.sets_after(task + 1, test)
        shown, breaks = _shown(found, [each for each in kept if each <= task])
        with np.errstate(invalid="ignore"):
            matrices = {
                "ground truth": _shares(co_predictions(truth, truth), truth)[np.ix_(shown, shown)],
                f"{line.label}, after task {task}": _shares(co_predictions(truth, guess), truth)[np.ix_(shown, shown)],
            }
        labels = [found.classes[at] for at in shown]
        caption = (
            f"{line.label}, configuration {line.runs[0][0]}, {test.split}: share of a row's samples with each label, true and "
            "predicted."
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
