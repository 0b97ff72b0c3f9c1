"""Blocks of the vCLIMB report on trained baselines, from their table of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...datasets.vclimb.facts import facts
from ...datasets.vclimb.tables import memory_lines
from ...eval.report.blocks import Block, Details, Section, Table, Text, Value
from ...eval.report.figures import common_scale, line_chart
from ...eval.report.sections import Scores, accuracy_blocks, metric_blocks
from ...eval.results import Line
from .config import VclimbConfig
from .fairness import Data, published, verdict

_METRICS = {
    "acc_class_weighted": "Acc (by classes)",
    "bwf_class_weighted": "BWF (by classes)",
    "acc_unweighted": "Acc (plain)",
    "bwf_unweighted": "BWF (plain)",
}
_CURVES = 6
"""A figure tells so many curves apart."""


def results_section(protocol: str, lines: Sequence[Line], data: Data, clips: pa.Table) -> Section:
    """Metrics beside the paper's where they may be compared, progress, matrices, classes.

    Args:
        protocol: ``frames 4`` or ``frames all``: what a stored clip keeps.
        lines: of this protocol.
        data: what is recorded of the run's data.
        clips: ``label`` and ``role`` of the dataset.
    """
    blocks: list[Block] = []
    if any(_selected_on_test(line) for line in lines):
        told = "Epochs were chosen on the clips that are reported, as the paper does on ActivityNet: scores are too good."
        blocks.append(Text([told], tone="note"))
    names = task_names(lines[0])
    fair, note = verdict(lines, data)
    paper = published(fair, data.dataset, len(names)) if fair else []
    tables = ", ".join(dict.fromkeys(figure.table for figure, _ in paper))
    source = f"vCLIMB, {tables}" if tables else "vCLIMB"
    ours = [Scores.of(line.label, {name: line.values(name) for name in _METRICS}) for line in lines]
    blocks += metric_blocks(ours, [each for _, each in paper], _METRICS, fair=bool(fair), note=note, source=source)
    blocks.append(Text(["BWF is the accuracy that tasks lost since they were learned: lower is better."]))
    blocks += _own_metrics(lines)
    blocks += _progress(lines, names)
    blocks.append(_held(lines))
    matrices = {line.label: line.matrix("accuracy", names) for line in lines}
    scale = common_scale([each.mean(0) for each in matrices.values()])
    for label, matrix in matrices.items():
        blocks += accuracy_blocks(matrix, names, method=label, domain="task", scale=scale)[:1]
    blocks.append(Details("By class", [_classes(lines, clips)]))
    return Section(f"Baselines, {protocol.removeprefix('frames ')} frames of a stored clip", blocks)


def _selected_on_test(line: Line) -> bool:
    roles = line.settings["roles"]
    return roles[1] == roles[2] and line.settings["schedule.select"] == "validation"


def task_names(line: Line) -> list[str]:
    """Names of the tasks, in order."""
    return pc.unique(line.select("accuracy")["tested"]).to_pylist()


def _own_metrics(lines: Sequence[Line]) -> list[Block]:
    """Metrics that the settings name beside the paper's: those without a role that was tested."""
    names = list(
        dict.fromkeys(
            name for line in lines for name in line.rows.filter(pc.equal(line.rows["split"], ""))["metric"].to_pylist()
        )
    )
    rows: list[Sequence[Value]] = [[line.label, *(float(np.mean(line.values(name))) for name in names)] for line in lines]
    return [Table(["method", *names], rows, "Metrics of the settings, mean over seeds", decimals=4)] if names else []


def _progress(lines: Sequence[Line], names: Sequence[str]) -> list[Block]:
    if len(names) < 2:
        return []
    curves = {line.label: line.matrix("acc_class_weighted", [""])[:, :, 0].mean(0) for line in lines[:_CURVES]}
    caption = "Accuracy over all classes seen so far, after each task."
    return [line_chart(names, curves, label_axis="task", value_axis="accuracy", caption=caption, shares=True)]


def _held(lines: Sequence[Line]) -> Table:
    rows: list[Sequence[Value]] = []
    for line in lines:
        last = line.select("accuracy").to_pylist()[-1]
        clips, frames = last["memory_samples"] or 0, last["memory_parts"] or 0
        rows.append([line.label, clips, frames, frames / clips if clips else None])
    return Table(["method", "clips", "frames", "frames a clip"], rows, "What the memory holds after the last task", decimals=1)


def _classes(lines: Sequence[Line], clips: pa.Table) -> Table:
    counts = clips.group_by(["label", "role"]).aggregate([([], "count_all")]).to_pylist()
    known = {(each["label"], each["role"]): each["count_all"] for each in counts}
    several = len({tuple(line.settings["roles"]) for line in lines}) > 1  # then no number is that of all lines
    train, _, report = ("", "", "") if several else lines[0].settings["roles"]
    found = [by_class(line) for line in lines]
    headings = ["class", "task", "learned", "tested"]
    headings += [f"{line.label}, {when}" for line in lines for when in ("learned", "last")]
    rows: list[Sequence[Value]] = []
    for (task, name), values in found[0].items():
        row: list[Value] = [name, task, known.get((name, train)), known.get((name, report))]
        for each in (values, *(other[task, name] for other in found[1:])):
            row += [100 * float(each[0]), 100 * float(each[-1])]
        rows.append(row)
    caption = "Accuracy in percent just after the class was learned, and after the last task"
    return Table(headings, rows, caption, decimals=1)


def by_class(line: Line) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Task and class, in the order of learning -> mean accuracy of the runs after each task, from the one that brought it."""
    rows = line.rows.filter(pc.and_(pc.equal(line.rows["metric"], "accuracy"), pc.not_equal(line.rows["stratum"], "")))
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for each in rows.select(["tested", "stratum", "position", "value"]).to_pylist():
        found.setdefault((each["tested"], each["stratum"]), {}).setdefault(each["position"], []).append(each["value"])
    return {key: np.array([np.mean(values[at]) for at in sorted(values)], np.float64) for key, values in found.items()}


def memory_section(config: VclimbConfig, stored: Mapping[str, int], settings: Mapping[str, Any]) -> Section:
    """What memories hold in frames: this run's settings, and the paper's.

    Args:
        stored: clips and frames of the training role: ``clips``, ``frames``.
        settings: of a baseline; its ``memory`` is stated.
    """
    memory = settings["memory"]
    rows: list[Sequence[Value]] = []
    if stored["clips"]:
        average = stored["frames"] / stored["clips"]
        clips = min(memory["size"], stored["clips"])
        for frames in config.evaluation.frames:
            held = clips * (average if frames == "all" else min(frames, average))
            rows.append([f"{frames}", memory["size"], clips, round(held), 100 * held / stored["frames"]])
    f, counts = facts(), (4, 8, 16)
    paper = {
        name: (one.videos, one.all_frames_in_paper, *(one.frames_in_paper[n] for n in counts)) for name, one in f.memory.items()
    }
    lines = memory_lines(paper, {name: one.frames_per_video for name, one in f.datasets.items()}, counts)
    stated: list[Sequence[Value]] = [
        [line.dataset, line.videos, str(line.frames_per_video or "all"), line.frames, line.in_paper] for line in lines
    ]
    share = ["frames a clip", "capacity", "clips held at most", "frames held", "% of the training frames"]
    headings = ["data set", "videos", "frames a video", "frames, computed", "frames in the paper"]
    return Section(
        "Memory in frames",
        [
            Table(share, rows, f"This run: a capacity of {memory['size']} {memory['unit']}", decimals=1),
            Table(headings, stated, "The settings of the paper's tables"),
            Text(["For ActivityNet-Trim the paper counts the frames of whole videos; a segment has about 1,490."]),
        ],
    )
