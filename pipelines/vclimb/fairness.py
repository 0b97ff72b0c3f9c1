"""Whether results may stand beside the paper's, by what a run has recorded: its stages, and the settings of each training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...curation.artifact import Artifact
from ...datasets.vclimb.facts import PublishedResult, facts
from ...eval.report.sections import Scores
from ...eval.results import Line, flat
from ...training.baselines.vclimb import CONSISTENT, MODEL, PRESETS, paper_methods, paper_settings, paper_weights

_PAPER_NAMES = {"EWC": "ewc", "MAS": "mas", "naive": "er", "iCaRL": "icarl", "BiC": "bic"}
_BROKEN_IN_TABLE_1 = "bad_segment"
"""Segments of no or negative length, which Table 1 counts and nobody can use."""


@dataclass(frozen=True)
class Data:
    """What is recorded of a run's data.

    Attributes:
        dataset: which data set of the paper it is, "" for none.
        split_file: SHA-256 of its split file.
        why: why it is none of the paper's, "" where it is one.
    """

    dataset: str
    split_file: str
    why: str


def data_of(made: Mapping[str, Artifact]) -> Data:
    """The data of a run, from its finished stages."""
    listed = made.get("listed")
    path = {} if listed is None else listed.recipe["settings"].get("path")
    digest = str(path.get("content", "")) if isinstance(path, Mapping) else ""
    released = {one.sha256: one.dataset for one in facts().split_files}
    if digest not in released:
        return Data("", digest, "the split is not a released one")
    untrimmed = made.get("untrimmed")
    name = released[digest]
    if name == "activitynet":
        name += "_trim" if untrimmed is None else "_untrim"
    return Data(name, digest, _untrimmed(untrimmed) or _sampled(made.get("sampled"), released[digest]) or _lacking(made))


def _untrimmed(stage: Artifact | None) -> str:
    wanted = {"min_coverage": facts().untrim.min_coverage, "several_labels": "reject"}
    return "" if stage is None else _difference("split.untrim", stage.recipe["settings"], wanted)


def _sampled(stage: Artifact | None, released: str) -> str:
    """Why stored frames are not those from which the paper draws."""
    if stage is None:
        return "no frames are stored"
    fps = facts().activitynet_fps if released == "activitynet" else None
    wanted = {"kind": "all", "n": None, "fps": fps, "min_frames": paper_settings("er", dataset="ucf101")["view"]["segments"]}
    return _difference("frames", stage.recipe["settings"]["plan"], wanted)


def _difference(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = [name for name, value in wanted.items() if found.get(name) != value]
    return f"{what}.{names[0]} is {found.get(names[0])}, and {wanted[names[0]]} in the paper" if names else ""


def _lacking(made: Mapping[str, Artifact]) -> str:
    stages = [made[name] for name in ("matched", "probed", "sampled") if name in made]
    count = sum(n for stage in stages for reason, n in stage.rejects.items() if reason != _BROKEN_IN_TABLE_1)
    return f"the copy lacks {count:,} clips of the split" if count else ""


def why_unfair(line: Line, data: Data) -> str:
    """Why the results of some trainings may not stand beside the paper's; "" where they may."""
    if data.why:
        return data.why
    if line.settings.get("split_file") != data.split_file:
        return "it was trained on another split"
    if line.model != MODEL:
        return f"the model is {line.model}"
    if line.method.removesuffix(CONSISTENT) not in paper_methods():
        return "no method of the paper"
    weights = line.settings.get("weights")
    if weights is None:
        return "no ImageNet weights were given"
    if not str(weights).startswith(paper_weights()):
        return f"weights are not those of torchvision's ResNet-34, whose SHA-256 begins with {paper_weights()}"
    changed = min((_changed(line, paper) for paper in _papers(line, data.dataset)), key=len)
    return f"settings of the paper were changed: {', '.join(changed)}" if changed else ""


def _papers(line: Line, dataset: str) -> Iterable[dict[str, Any]]:
    """The paper's settings of a line's method, by preset and variant."""
    frames = line.settings["memory.frames"]
    for preset in PRESETS:
        for variant in PRESETS if line.method.endswith(CONSISTENT) else (None,):
            settings = paper_settings(line.method, dataset=dataset, preset=preset, frames=frames, variant=variant)
            yield flat({**settings, "roles": ["train", "val", facts().datasets[dataset].evaluated]})


def _changed(line: Line, paper: Mapping[str, Any]) -> list[str]:
    """Names of settings that are not the paper's."""
    found = {name: value for name, value in line.settings.items() if name not in ("split_file", "weights")}
    return [name for name in {**paper, **found} if name not in found or name not in paper or found[name] != paper[name]]


def verdict(lines: Sequence[Line], data: Data) -> tuple[list[Line], str]:
    """The lines that may stand beside the paper's results, and what is to be said of it."""
    why = {line.label: why_unfair(line, data) for line in lines}
    fair = [line for line in lines if not why[line.label]]
    if not fair:
        return fair, f"{'; '.join(dict.fromkeys(why.values()))}; the paper's figures are not shown."
    others = "".join(f" Not of {label}: {reason}." for label, reason in why.items() if reason)
    return fair, f"released split file, settings of the paper, ImageNet weights.{others}"


def published(lines: Iterable[Line], dataset: str, tasks: int) -> list[tuple[PublishedResult, Scores]]:
    """The paper's results of these lines' methods, for so many tasks and their frames of a stored clip."""
    asked = {(line.method, str(line.settings["memory.frames"])) for line in lines}
    found: list[tuple[PublishedResult, Scores]] = []
    for figure in facts().figures(dataset, tasks):
        plain, _, consistent = figure.method.partition("+")
        if (_PAPER_NAMES[plain] + (CONSISTENT if consistent else ""), figure.frames) in asked:
            values = {"acc_class_weighted": figure.acc_percent / 100, "bwf_class_weighted": figure.bwf_percent / 100}
            found.append((figure, Scores(figure.method, values)))
    return found
