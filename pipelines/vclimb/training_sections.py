"""Sections of the vCLIMB report about trainings, next to the paper's figures where the record of a run allows it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...datasets.vclimb.facts import facts
from ...eval.labels import line_labels
from ...eval.report.blocks import Block, CellValue, Details, Section, Table, Text
from ...eval.report.dots import dot_chart
from ...eval.report.trainings import (
    SPREAD,
    comparable,
    lines_table,
    metric_blocks,
    position_curves,
    position_heats,
    settings_details,
    switch,
    whole_columns,
)
from ...eval.results import Line
from ...training.baselines.vclimb import CONSISTENT
from .paper import METRICS, Data, published, why_not_the_papers


def results_section(protocol: str, lines: Sequence[Line], data: Data, clips: pa.Table) -> Section:
    """Metrics next to the paper's where comparable, curves, matrices, and tables of classes.

    Args:
        protocol: ``frames 4`` or ``frames all``: the number of frames of a stored clip.
        lines: lines of this protocol.
        data: the recorded data of the run.
        clips: ``label`` and ``role`` of the dataset.
    """
    blocks: list[Block] = []
    if any(_selected_on_test(line) for line in lines):
        text = "Epochs were selected on the reported clips, as in the paper on ActivityNet: scores are optimistic."
        blocks.append(Text([text], tone="note"))
    names = task_names(lines[0])
    same = "released split file, settings of the paper's text or of its code, ImageNet weights"
    fair, verdict = comparable(lines, data.why, lambda line: why_not_the_papers(line, data), same)
    blocks += [verdict, *metric_blocks(lines, METRICS, published=published(fair, data.dataset, len(names)))]
    blocks.append(Text(["BWF is the loss of accuracy of tasks since they were learned: lower is better."]))
    if fair:
        bound = facts().joint.accuracy_percent[data.dataset.removesuffix("_trim").removesuffix("_untrim")]
        text = "that of TSN trained on all classes at once, which the paper cites (section 4.1) and did not train itself"
        blocks.append(Text([f"The upper bound is {bound} %, {text}; `joint` is the bound for this run's own settings."]))
    blocks += _curves(lines)
    blocks.append(lines_table(lines, _HELD, "Contents of the memory after the last task"))
    blocks += position_heats({one.label: (names, one.matrix("accuracy", names)) for one in lines}, of="task")
    blocks += _consistency(lines)
    blocks.append(Details("By class", [_classes(lines, clips)]))
    return Section(f"Baselines, {protocol.removeprefix('frames ')} frames per stored clip", blocks)


def memories_section(protocols: Mapping[str, Sequence[Line]]) -> list[Section]:
    """Methods for all numbers of frames of a stored clip together, if there are several: as in Tables 3 and 4, Figure 3, and
    Figures 1 to 3 of the supplement. A method without a memory is shown once for each of its settings.

    Args:
        protocols: ``frames 4`` and so on -> lines of the protocol.
    """
    if len(protocols) < 2:
        return []
    every = [line for lines in protocols.values() for line in lines]
    settings = [{name: value for name, value in line.labelled[2].items() if name != "memory.frames"} for line in every]
    found: dict[tuple[str, str], Line] = {}
    labels = line_labels([(line.method, own) for line, own in zip(every, settings, strict=True)])
    for line, own, label in zip(every, settings, labels, strict=True):
        protocol = line.protocol if last_held(line) is not None else ""
        text = f"{label}, {protocol.removeprefix('frames ')} frames" if protocol else label
        found.setdefault((label, protocol), dataclasses.replace(line, label=text, settings=own))
    together = [found[key] for key in sorted(found, key=lambda key: (key[0], _place(key[1])))]
    caption = f"By method and by frames per stored clip, as in Tables 3 and 4: percent, {SPREAD}"
    table = lines_table(together, {**_HELD, **whole_columns(METRICS)}, caption)
    return [Section("Baselines by frames per stored clip", [table, *_curves(together), *settings_details(together)])]


def task_names(line: Line) -> list[str]:
    """Names of the tasks, in the order learned."""
    return pc.unique(line.select("accuracy")["tested"]).to_pylist()


def _curves(lines: Sequence[Line]) -> list[Block]:
    """Accuracy and forgetting after each task. All lines have the tasks of the first."""
    names = task_names(lines[0])
    curves = {
        "acc_class_weighted": ("accuracy", "Accuracy over all classes seen so far, after each task"),
        "bwf_class_weighted": (
            "BWF",
            "Backward forgetting (BWF) after each task: the loss of accuracy of earlier tasks since they were learned",
        ),
    }
    return [
        block
        for metric, (axis, caption) in curves.items()
        for block in position_curves(lines, metric, lambda line: names, value_axis=axis, caption=caption)
    ]


def _place(protocol: str) -> float:
    frames = protocol.removeprefix("frames ")
    return float(frames) if frames.isdecimal() else math.inf


def _selected_on_test(line: Line) -> bool:
    roles = line.settings["roles"]
    return roles[1] == roles[2] and line.settings["schedule.select"] == "validation"


def last_held(line: Line) -> tuple[int, int] | None:
    """Clips and frames in the memory after the last task; None for a method that stores no clips."""
    last = line.select("accuracy").to_pylist()[-1]
    return (last["memory_samples"], last["memory_parts"]) if last["memory_parts"] else None


def _held(number: Callable[[int, int], float]) -> Callable[[Line], float | None]:
    return lambda line: None if (held := last_held(line)) is None else number(*held)


_HELD = {
    "clips": _held(lambda clips, frames: clips),
    "frames": _held(lambda clips, frames: frames),
    "frames per clip": _held(lambda clips, frames: frames / clips),
}


def _classes(lines: Sequence[Line], clips: pa.Table) -> Table:
    counts = clips.group_by(["label", "role"]).aggregate([([], "count_all")]).to_pylist()
    known = {(each["label"], each["role"]): each["count_all"] for each in counts}
    several = len({tuple(line.settings["roles"]) for line in lines}) > 1  # then numbers of clips differ between lines
    train, _, report = ("", "", "") if several else lines[0].settings["roles"]
    found = [by_class(line) for line in lines]
    headings = ["class", "task", "learned", "tested"]
    headings += [f"{line.label}, {when}" for line in lines for when in ("learned", "last")]
    rows: list[Sequence[CellValue]] = []
    for (task, name), values in found[0].items():
        row: list[CellValue] = [name, task, known.get((name, train)), known.get((name, report))]
        for each in (values, *(other[task, name] for other in found[1:])):
            row += [100 * float(each[0]), 100 * float(each[-1])]
        rows.append(row)
    caption = "Accuracy in percent just after the class was learned, and after the last task"
    return Table(headings, rows, caption, decimals=1)


_CLASSES = 25
"""Most classes in the figure of temporal consistency."""


def _consistency(lines: Sequence[Line]) -> list[Block]:
    """The classes on which a method without temporal consistency is worst after the last task, compared with the same method
    with it: Figure 4 of the supplement. Empty if no method was trained both ways."""
    of = {line.label: line for line in lines}
    figures: dict[str, Block] = {}
    for label, plain in of.items():
        if (other := of.get(label.replace(plain.method, plain.method + CONSISTENT, 1))) is None:
            continue
        last = [{name: float(values[-1]) for (_, name), values in by_class(line).items()} for line in (plain, other)]
        worst = sorted(last[0], key=lambda name: (last[0][name], name))[:_CLASSES]
        shown = sorted(worst, key=lambda name: (-last[1][name], name))
        text = "all classes" if len(shown) == len(last[0]) else f"the {len(shown)} classes on which {label} is worst"
        figures[label] = dot_chart(
            shown,
            {line.label: [found[name] for name in shown] for line, found in zip((plain, other), last, strict=True)},
            label_axis="class",
            value_axis="accuracy",
            caption=f"Accuracy after the last task on {text}, sorted by the accuracy with temporal consistency.",
        )
    return switch("method", figures)


def by_class(line: Line) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Task and class, in the order of learning -> mean accuracy of the runs after each task, from the class's own task on."""
    rows = line.rows.filter(pc.and_(pc.equal(line.rows["metric"], "accuracy"), pc.not_equal(line.rows["stratum"], "")))
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for each in rows.select(["tested", "stratum", "position", "value"]).to_pylist():
        found.setdefault((each["tested"], each["stratum"]), {}).setdefault(each["position"], []).append(each["value"])
    return {key: np.array([np.mean(values[at]) for at in sorted(values)], np.float64) for key, values in found.items()}
