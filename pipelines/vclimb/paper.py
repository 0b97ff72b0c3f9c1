"""Which trainings of a vCLIMB run match the paper's, by their records, and what the paper's tables print for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...curation.artifact import Artifact
from ...curation.nested import flat
from ...datasets.vclimb.facts import facts, published_figures
from ...eval.report.trainings import PublishedRow, changes_text, record_differences
from ...eval.results import Line
from ...training.baselines.vclimb import CONSISTENT, MODEL, PRESETS, paper_methods, paper_settings, paper_weights, row_of
from .baselines import split_file

METRICS = {
    "Acc (by classes)": "acc_class_weighted",
    "BWF (by classes)": "bwf_class_weighted",
    "Acc (plain)": "acc_unweighted",
    "BWF (plain)": "bwf_unweighted",
}


@dataclass(frozen=True)
class Data:
    """The recorded data of a run.

    Attributes:
        dataset: the paper's dataset that it is, "" for none.
        split_file: SHA-256 of its split file.
        why: why the data differ from the paper's, "" if they do not.
    """

    dataset: str
    split_file: str
    why: str


def data_of(made: Mapping[str, Artifact]) -> Data:
    """The data of a run, from its finished stages."""
    digest = split_file(made.get("listed")) or ""
    released = {one.sha256: one.dataset for one in facts().split_files}
    if digest not in released:
        return Data("", digest, "the split is not one of the released ones")
    untrimmed = made.get("untrimmed")
    name = released[digest]
    if name == "activitynet":
        name += "_trim" if untrimmed is None else "_untrim"
    why = _untrimmed(untrimmed) or _sampled(made.get("sampled"), released[digest])
    return Data(name, digest, why or _lacking(made, facts().datasets[name].get("unusable", {})))


def _untrimmed(stage: Artifact | None) -> str:
    wanted = {"min_coverage": facts().untrim.min_coverage, "several_labels": "reject"}
    return "" if stage is None else next(iter(record_differences(stage.recipe["settings"], wanted, "split.untrim.")), "")


def _sampled(stage: Artifact | None, released: str) -> str:
    """Why stored frames differ from those from which the paper samples."""
    if stage is None:
        return "no frames are stored"
    fps = facts().splits.activitynet_fps if released == "activitynet" else None
    view, made = paper_settings("er", dataset="ucf101", preset="as_written")["view"], stage.recipe["settings"]
    wanted = {"kind": "all", "n": None, "fps": fps, "min_frames": view["segments"]}
    if differences := record_differences(made["plan"], wanted, "frames."):
        return differences[0]
    side = made["settings"].get("short_side_px")
    small = side is not None and side < view["side_px"]
    return f"frames.short_side_px is {side}, but the paper uses crops of {view['side_px']} pixels" if small else ""


def _lacking(made: Mapping[str, Artifact], unusable: Mapping[str, int]) -> str:
    """Clips that the run lacks and the paper trained or tested on: rejects beyond those of the split itself, by reason."""
    stages = [made[name] for name in ("matched", "probed", "sampled", "near") if name in made]
    lost = sum((Counter(stage.rejects) for stage in stages), Counter[str]())
    count = (lost - Counter(unusable)).total()
    return f"{count:,} clips of the split are missing, unusable or were dropped" if count else ""


def why_not_the_papers(line: Line, data: Data) -> str:
    """Why the results of a line may not be shown next to the paper's; "" if they may."""
    if data.why:
        return data.why
    if line.settings.get("split_file") != data.split_file:
        return "it was trained on another split"
    if line.model != MODEL:
        return f"the model is {line.model}"
    if line.method.removesuffix(CONSISTENT) not in paper_methods():
        return "the method is not in the paper"
    weights = line.settings.get("weights")
    if weights is None:
        return "no ImageNet weights were given"
    if not str(weights).startswith(paper_weights()):
        return f"weights are not those of torchvision's ResNet-34, whose SHA-256 begins with {paper_weights()}"
    return changes_text(line, _papers(line, data.dataset), apart=("split_file", "weights"))


def _papers(line: Line, dataset: str) -> Iterable[dict[str, Any]]:
    """The settings of a line's method by the paper's text, and by its code: a mixture of both is neither."""
    for preset in PRESETS:
        settings = paper_settings(line.method, dataset=dataset, preset=preset, frames=line.settings["memory.frames"])
        yield flat({**settings, "roles": ["train", "val", facts().datasets[dataset].evaluated]})


def published(lines: Iterable[Line], dataset: str, tasks: int) -> list[PublishedRow]:
    """The paper's results for the methods of these lines, with this number of tasks and their frames per stored clip.

    A result that several tables print is given once, from the first.
    """
    wanted = {(line.method, line.settings["memory.frames"]) for line in lines}
    found: dict[tuple[str, Any], PublishedRow] = {}
    for one in published_figures():
        if (one.dataset, one.tasks) == (dataset, tasks) and row_of(one) in wanted:
            values = dict(zip(METRICS, (one.acc_percent, one.bwf_percent), strict=False))
            found.setdefault(row_of(one), PublishedRow(one.method, f"vCLIMB, {one.table}", values))
    return list(found.values())
