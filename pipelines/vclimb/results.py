"""Blocks of the vCLIMB report on trained baselines, from their ``results.json``."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...datasets.vclimb.facts import Figure, facts
from ...datasets.vclimb.tables import memory_lines
from ...eval.report.blocks import Block, Fold, Section, Table, Text, Value
from ...eval.report.figures import common_scale, line_chart
from ...eval.report.sections import Scores, accuracy_blocks, metric_blocks
from .config import VclimbConfig

_PAPER_NAMES = {"EWC": "ewc", "MAS": "mas", "naive": "naive", "iCaRL": "icarl", "BiC": "bic"}
_METRICS = {
    "acc_class_weighted": "Acc (by classes)",
    "bwf_class_weighted": "BWF (by classes)",
    "acc_unweighted": "Acc (plain)",
    "bwf_unweighted": "BWF (plain)",
}
_CURVES = 6
"""A figure tells so many curves apart."""

Seeds = Sequence[Mapping[str, Any]]
"""``results.json`` of one method, one a seed."""


def results_section(config: VclimbConfig, protocol: str, methods: Mapping[str, Seeds], tasks: int, missing: int) -> Section:
    """Metrics beside the paper's where they may be compared, progress, matrices, classes.

    Args:
        protocol: ``frames 4`` or ``frames all``: what a stored clip keeps.
        methods: name -> results.
        tasks: number of tasks.
        missing: clips of the split whose video the copy lacks.
    """
    ours = [Scores(name, *_statistics(seeds)) for name, seeds in methods.items()]
    blocks: list[Block] = []
    if any(one["selected_on_the_evaluation_split"] for seeds in methods.values() for one in seeds):
        told = "Epochs were chosen on the clips that are reported, as the paper does on ActivityNet: scores are too good."
        blocks.append(Text([told], tone="note"))
    fair, note = fairness(config, missing)
    paper = published(config, protocol.removeprefix("frames "), tasks, methods) if fair else []
    source = ", ".join(dict.fromkeys(figure.table for figure, _ in paper))
    rows = [scores for _, scores in paper]
    blocks += metric_blocks(ours, rows, _METRICS, fair=fair, note=note, source=f"vCLIMB, {source}" if source else "vCLIMB")
    blocks.append(Text(["BWF is the accuracy that tasks lost since they were learned: lower is better."]))
    blocks += _progress(methods)
    blocks.append(_held(methods))
    matrices = {name: np.stack([matrix(one) for one in seeds]) for name, seeds in methods.items()}
    scale = common_scale([each.mean(0) for each in matrices.values()])
    for name, seeds in methods.items():
        names = [task["name"] for task in seeds[0]["tasks"]]
        blocks += accuracy_blocks(matrices[name], names, method=name, domain="task", scale=scale)[:1]
    blocks.append(Fold("By class", [_classes(methods)]))
    return Section(f"Baselines, {protocol.removeprefix('frames ')} frames of a stored clip", blocks)


def matrix(result: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """R of a ``results.json``: (N, N) accuracies in [0, 1], NaN above the diagonal."""
    correct = np.asarray(result["correct"], dtype=np.float64)
    starts = np.cumsum([0, *(task["classes"] for task in result["tasks"])])[:-1]
    tested = np.add.reduceat(np.asarray([one["tested"] for one in result["classes"]], dtype=np.float64), starts)
    found = np.add.reduceat(np.maximum(correct, 0), starts, axis=1) / tested
    return np.where(np.tri(len(starts), dtype=bool), found, np.nan)


def _statistics(seeds: Seeds) -> tuple[dict[str, float], dict[str, float]]:
    values = {name: [_number(one["metrics"][name]) for one in seeds] for name in _METRICS}
    std = {name: float(np.std(found, ddof=1)) for name, found in values.items()} if len(seeds) > 1 else {}
    return {name: float(np.mean(found)) for name, found in values.items()}, std


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def fairness(config: VclimbConfig, missing: int) -> tuple[bool, str]:
    """Whether a run's scores may stand beside the paper's, and why, or why not."""
    e = config.evaluation
    if not e.comparable:
        return False, "not the paper's data and settings; none of its figures stands here."
    changed = [*e.settings, *e.method_settings]
    if changed or e.weights is None or config.source.kind != "split_file":
        what = "settings of the paper were changed" if changed else "no ImageNet weights were given"
        what = what if config.source.kind == "split_file" else "the split is not a released one"
        return False, f"{what}; none of the paper's figures stands here."
    if missing:
        return False, f"the copy lacks {missing:,} clips of the split; none of the paper's figures stands here."
    return True, f"released split file, preset {e.preset}, weights {e.weights}."


def published(config: VclimbConfig, frames: str, tasks: int, methods: Collection[str]) -> list[tuple[Figure, Scores]]:
    """The paper's results on the run's data set, of these methods, for so many tasks and frames of a stored clip."""
    found: list[tuple[Figure, Scores]] = []
    for figure in facts().figures(config.evaluation.dataset, tasks):
        plain, _, consistent = figure.method.partition("+")
        name = _PAPER_NAMES[plain] + ("+tc" if consistent else "")
        if figure.frames == frames and name in methods:
            values = {"acc_class_weighted": figure.acc_percent / 100, "bwf_class_weighted": figure.bwf_percent / 100}
            found.append((figure, Scores(figure.method, values)))
    return found


def _progress(methods: Mapping[str, Seeds]) -> list[Block]:
    curves = {
        name: np.mean([one["curve"]["acc_class_weighted"] for one in seeds], axis=0)
        for name, seeds in list(methods.items())[:_CURVES]
    }
    names = [task["name"] for task in next(iter(methods.values()))[0]["tasks"]]
    if len(names) < 2:
        return []
    caption = "Accuracy over all classes seen so far, after each task."
    return [line_chart(names, curves, label_axis="task", value_axis="accuracy", caption=caption, shares=True)]


def _held(methods: Mapping[str, Seeds]) -> Table:
    rows: list[Sequence[Value]] = []
    for name, seeds in methods.items():
        held = seeds[0]["records"][-1]["memory"]
        each = held["parts"] / held["samples"] if held["samples"] else None
        rows.append([name, held["samples"], held["parts"], each])
    return Table(["method", "clips", "frames", "frames a clip"], rows, "What the memory holds after the last task", decimals=1)


def _classes(methods: Mapping[str, Seeds]) -> Table:
    first = next(iter(methods.values()))[0]
    headings = ["class", "task", "learned", "tested"]
    headings += [f"{name}, {when}" for name in methods for when in ("learned", "last")]
    rows: list[Sequence[Value]] = []
    learned_in = np.repeat(np.arange(len(first["tasks"])), [task["classes"] for task in first["tasks"]])
    for at, one in enumerate(first["classes"]):
        row: list[Value] = [one["name"], first["tasks"][learned_in[at]]["name"], one["learned"], one["tested"]]
        for seeds in methods.values():
            correct = np.mean([np.asarray(result["correct"])[:, at] for result in seeds], axis=0)
            row += [100 * float(correct[learned_in[at]]) / one["tested"], 100 * float(correct[-1]) / one["tested"]]
        rows.append(row)
    caption = "Accuracy in percent just after the class was learned, and after the last task"
    return Table(headings, rows, caption, decimals=1)


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
        clips = min(memory["capacity"], stored["clips"])
        for frames in config.evaluation.frames:
            held = clips * (average if frames == "all" else min(frames, average))
            rows.append([f"{frames}", memory["capacity"], clips, round(held), 100 * held / stored["frames"]])
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
            Table(share, rows, f"This run: a capacity of {memory['capacity']} {memory['unit']}", decimals=1),
            Table(headings, stated, "The settings of the paper's tables"),
            Text(["For ActivityNet-Trim the paper counts the frames of whole videos; a segment has about 1,490."]),
        ],
    )
