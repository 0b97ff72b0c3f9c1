"""Comparison of a two-camera run with the paper's figures, by the run's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...curation.artifact import Artifact
from ...curation.nested import flat
from ...curation.registry import BUILT_IN
from ...datasets.two_camera.facts import STATISTICS, TABLE, facts
from ...eval.report.blocks import Block, Cell, CellValue, Details, Table, Text
from ...eval.report.trainings import (
    Column,
    PublishedRow,
    changed_settings,
    comparable,
    lines_table,
    record_differences,
    whole_columns,
)
from ...eval.results import Line
from ...training.illuminants.registry import ESTIMATORS, candidates, functions
from ...training.two_camera.settings import settings
from ..report import ReportedRun
from .baselines import LINEAR
from .config import Evaluation, LitPictures, Metadata, TwoCameraConfig
from .cost import shape_in

SHOWN = tuple(f"fold_mean_{name}_deg" for name in ("mean", "median", "best_25", "worst_25", "q1", "q3"))
"""Metrics in the order of the published tables."""

UNFAIR = {
    "looks_at_test": "the checkpoint was selected on the test fold, as the released code does",
    "lights_of_test": "training rows are re-lit with the illuminants of test pairs, as in the released augmentation",
}
_ON_LEARNED = (
    "Methods that learn from pictures are fitted to the training pictures and their illuminants, as the networks are; they see "
    "pictures, and the networks the nine numbers of T. The chromagenic methods, which are not in the paper, can "
    "only return illuminants of training pictures."
)


def _paper_name(line: Line) -> str:
    """Name of the row in the published tables that matches one of our methods."""
    if line.model == "network":
        return f"ours-{line.settings.get('estimator.parameters')}"
    return row_of(line.method)


def row_of(method: str) -> str:
    """Name of the row in the published tables for a baseline, if there is one with that name."""
    return {"bright_dark_pca": "pca", "ffcc": "FFCC"}.get(method, method.removesuffix("_published").replace("_", " "))


def kind_of(line: Line) -> str:
    if line.model in ("network", "distilled"):
        return "network on T"
    if line.model == LINEAR:
        return "regression on T"
    if ":" in line.model:
        return "user-defined"
    origin = {entry.name: entry.origin for entry in ESTIMATORS.entries()}.get(line.model, "a package that is not installed")
    if origin != BUILT_IN:
        return f"of {origin}"
    return "learned" if _learns(line) else "statistics"


def _learns(line: Line) -> bool:
    """Whether a built-in estimator on pictures is fitted to the training pictures."""
    built_in = {entry.name: entry.reference for entry in ESTIMATORS.entries() if entry.origin == BUILT_IN}
    return "fit" in functions(built_in[line.model]) if line.model in built_in else False


def warnings_of(line: Line) -> list[str]:
    return [told for flag, told in UNFAIR.items() if line.settings[flag]]


def data_differs(config: TwoCameraConfig, made: Mapping[str, Artifact]) -> str:
    """Why the published figures are for other data than this run's; "" if the record shows that the data are the same."""
    if config.compare_with is None:
        return "the settings do not name a published dataset"
    known = facts().sets[config.compare_with].get("folded_sha256")
    if isinstance(config.source, LitPictures):
        return "pictures are thumbnails, and the second camera's are computed from spectra instead of charts"
    if known is None:
        return "its transforms were not released, so this run's cannot be shown to be the same"
    found = made["folded"].digest if "folded" in made else ""
    return "" if found == known else "the illuminants, transforms or folds of this run are not the released ones"


def why_not_the_papers(config: TwoCameraConfig, line: Line) -> str:
    """Why a training differs from the paper's, by its record; "" if it does not."""
    own, wanted = line.settings, {"direction": "1to2", "reilluminated": False}
    if different := record_differences(own, wanted):
        return different[0]
    if line.model == "network":
        if why := _other_augmentation(config, line):
            return why
        return _other_training(own)
    ours: dict[str, tuple[str, dict[str, Any]]] = {LINEAR: (LINEAR, {}), **candidates()}
    if line.method not in ours or _paper_name(line) not in facts().tables[config.compare_with or "s20"]:
        return "the method is not in the paper's table"
    model, choices = ours[line.method]
    if line.model != model:
        return f"the estimator is {line.model}"
    usual = flat({"estimator": choices}) | ({"longest_px": Evaluation.longest_px} if "longest_px" in own else {})
    if changed := [name for name in changed_settings(line, [usual]) if name in usual or name.startswith("estimator")]:
        return f"settings were changed: {', '.join(changed)}"
    if _learns(line) and own.get("relit_pictures") != facts().targets:
        return f"it was trained without the paper's {facts().targets} re-illuminated copies of each picture"
    return ""


def _other_training(own: Mapping[str, Any]) -> str:
    """How a network differs from the released ones; "" if it does not."""
    if "estimator.hidden" in own or "estimator.activation" in own:
        return f"the network has a different shape, {shape_in(own)}"
    paper = {**settings("as_released"), "patience_epochs": own.get("estimator.hyper.patience_epochs")}
    return next(iter(record_differences(own, {f"estimator.hyper.{name}": value for name, value in paper.items()})), "")


def _other_augmentation(config: TwoCameraConfig, line: Line) -> str:
    """Why a network was not trained on re-illuminated rows as in the paper; "" if it was."""
    if augmentation_of(config, line) == "of pictures" and config.augmentation and config.augmentation.count == facts().targets:
        return ""
    return f"the dataset does not have {facts().targets} re-illuminated copies of each picture"


def augmentation_of(config: TwoCameraConfig, line: Line) -> str:
    """Kind of re-illuminated rows that a network was trained on: ``none``, ``of pictures`` or ``of transforms``."""
    if line.settings["reilluminated"]:
        return "of transforms"
    return "none" if config.augmentation is None or line.settings.get("augmented") is False else "of pictures"


def beside_the_paper(config: TwoCameraConfig, run: ReportedRun, found: Sequence[Line]) -> list[Block]:
    """Results of the run; below them the published table, and both side by side for trainings that match the paper's."""
    columns: dict[str, Column[Line]] = {
        **_comparable(found),
        "kind": kind_of,
        **whole_columns(dict(zip(STATISTICS, SHOWN, strict=True))),
    }
    same = "illuminants, transforms, folds and settings of the paper"
    fair, verdict = comparable(found, data_differs(config, run.made), lambda line: why_not_the_papers(config, line), same)
    rows: list[PublishedRow] = []
    beside: list[Sequence[CellValue]] = []
    if config.compare_with is not None and fair:
        name, table = TABLE[config.compare_with], facts().tables[config.compare_with]
        rows = [
            PublishedRow(row, f"{name} of the paper", dict(zip(STATISTICS, each, strict=True))) for row, each in table.items()
        ]
        pairs = [(line.label, float(np.nanmean(line.values(SHOWN[0]))), table[_paper_name(line)][0]) for line in fair]
        beside = [[label, ours, paper, ours - paper] for label, ours, paper in pairs]
    caption = "This run: angular errors in degrees, means over folds, ± one standard deviation over seeds"
    columns_beside = ["method", "ours, mean", "paper, mean", "difference"]
    return [
        lines_table(found, columns, caption, times=1, decimals=2, published=rows),
        verdict,
        *([Table(columns_beside, beside, "Side by side", decimals=2), _not_here(config, found)] if beside else []),
        *_of_other_pictures(config, found),
        *_with_and_without(config, run, found),
        *([Text([_ON_LEARNED])] if any(map(_learns, found)) else []),
    ]


def _of_other_pictures(config: TwoCameraConfig, found: Sequence[Line]) -> list[Block]:
    """The paper's rows for the methods of this run, separately, if its pictures are the paper's at another size."""
    if not isinstance(config.source, LitPictures) or config.compare_with is None:
        return []
    table = facts().tables[config.compare_with]
    names = [name for name in dict.fromkeys(map(_paper_name, found)) if name in table]
    text = (
        f"Results on the same dataset at full size; ours differ: {data_differs(config, {})}. They indicate only the magnitude "
        "of the errors, and are not a target."
    )
    rows: list[Sequence[CellValue]] = [[name, *table[name]] for name in names]
    title = f"{TABLE[config.compare_with]} of the paper, for other pictures"
    return [Details(title, [Text([text]), Table(["row", *STATISTICS], rows, decimals=2)])] if rows else []


def _comparable(found: Sequence[Line]) -> dict[str, Column[Line]]:
    """The column that marks lines that are not fair; empty if all are."""
    if not any(map(warnings_of, found)):
        return {}
    return {"comparable": lambda line: Cell("no", tone="bad") if warnings_of(line) else "yes"}


def _not_here(config: TwoCameraConfig, found: Sequence[Line]) -> Details:
    """The published rows that no line of this run matches, and why."""
    ours = {_paper_name(line) for line in found}
    on_transforms = {*(f"ours-{count}" for count in facts().parameters), row_of(LINEAR)}
    rows: list[Sequence[CellValue]] = []
    for row in facts().tables[config.compare_with or "s20"]:
        why = "not among this run's methods"
        if isinstance(config.source, Metadata) and row not in on_transforms:
            why = "needs pictures, and this run has none"
        if row not in ours:
            rows.append([row, facts().not_run.get(row, why)])
    return Details("Rows of the paper's table that this run does not have", [Table(["row", "why"], rows)])


def _with_and_without(config: TwoCameraConfig, run: ReportedRun, found: Sequence[Line]) -> list[Block]:
    """Networks without and with re-illuminated rows, if the run has both, in the form of Table 4."""
    kinds = {line.label: augmentation_of(config, line) for line in found if line.model == "network"}
    if "none" not in kinds.values() or len({*kinds.values()}) < 2:
        return []
    lines = [line for line in found if line.label in kinds]
    columns: dict[str, Column[Line]] = {
        "re-illuminated rows": lambda line: kinds[line.label],
        **_comparable(lines),
        **whole_columns(dict(zip(STATISTICS[:4], SHOWN, strict=False))),
    }
    papers = facts().augmented.get(config.compare_with or "", {})
    data = data_differs(config, run.made)

    def why(line: Line) -> str:
        if line.settings["direction"] != "1to2" or line.settings.get("estimator.parameters") != facts().parameters[0]:
            return f"Table 4 is for {facts().parameters[0]} parameters and direction 1to2"
        other = "" if kinds[line.label] == "none" else _other_augmentation(config, line)
        return other or _other_training(line.settings)

    fair, _ = comparable(lines, data, why, "")
    rows = [
        PublishedRow(
            "without" if kind == "none" else "with", "Table 4 of the paper", dict(zip(STATISTICS, numbers, strict=False))
        )
        for kind, numbers in (("none", papers.get("without")), ("of pictures", papers.get("with")))
        if numbers is not None and kind in {kinds[line.label] for line in fair}
    ]
    caption = "Without and with re-illuminated training rows: angular errors in degrees, means over folds"
    return [lines_table(lines, columns, caption, times=1, decimals=2, published=rows)]
