"""Which trainings of a two-camera run match the paper's, by their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...curation.artifact import Artifact
from ...curation.nested import flat
from ...curation.registry import BUILT_IN
from ...datasets.two_camera.facts import facts
from ...eval.report.trainings import (
    changed_settings,
    record_differences,
)
from ...eval.results import Line
from ...training.illuminants.registry import ESTIMATORS, candidates, functions
from ...training.two_camera.settings import settings
from .baselines import LINEAR
from .config import Evaluation, LitPictures, Metadata, TwoCameraConfig
from .network_costs import shape_in

SHOWN = tuple(f"fold_mean_{name}_deg" for name in ("mean", "median", "best_25", "worst_25", "q1", "q3"))
"""Metrics in the order of the published tables."""
UNFAIR = {
    "looks_at_test": "the checkpoint was selected on the test fold, as the released code does",
    "lights_of_test": "training rows are re-lit with the illuminants of test pairs, as in the released augmentation",
}


def paper_name(line: Line) -> str:
    """Name of the row in the published tables that matches one of our methods."""
    if line.model == "network":
        return f"ours-{line.settings.get('estimator.parameters')}"
    return row_of(line.method)


def row_of(method: str) -> str:
    """Name of the row in the published tables for a baseline, if there is one with that name."""
    return {"bright_dark_pca": "pca", "ffcc": "FFCC"}.get(method, method.removesuffix("_published").replace("_", " "))


def learns(line: Line) -> bool:
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
        return "no digest of the paper's illuminants and transforms is known, so this run's cannot be shown to be the same"
    found = made["folded"].digest if "folded" in made else ""
    return "" if found == known else "the illuminants, transforms or folds of this run are not the released ones"


def why_not_the_papers(config: TwoCameraConfig, line: Line) -> str:
    """Why a training differs from the paper's, by its record; "" if it does not."""
    own = line.settings
    if different := record_differences(own, {"direction": "1to2"}):
        return different[0]
    if line.model == "network":
        return other_augmentation(config, line) or other_training(config, own)
    ours: dict[str, tuple[str, dict[str, Any]]] = {LINEAR: (LINEAR, {}), **candidates()}
    if line.method not in ours or paper_name(line) not in facts().tables[config.compare_with or "s20"]:
        return "the method is not in the paper's table"
    model, choices = ours[line.method]
    if line.model != model:
        return f"the estimator is {line.model}"
    usual = flat({"estimator": choices}) | ({"longest_px": Evaluation.longest_px} if "longest_px" in own else {})
    if changed := [name for name in changed_settings(line, [usual]) if name in usual or name.startswith("estimator")]:
        return f"settings were changed: {', '.join(changed)}"
    if line.model == LINEAR:
        return other_augmentation(config, line)
    if learns(line):
        if own.get("relit_pictures") != facts().targets:
            return f"it was trained without the paper's {facts().targets} re-illuminated copies of each picture"
        return other_augmentation(config, line)
    return ""


def other_training(config: TwoCameraConfig, own: Mapping[str, Any]) -> str:
    """How a network differs from the paper's for this dataset; "" if it does not.

    The paper names rate and epochs of the radiometric set, and the rate of the others; batch and epochs are then the code's.
    The weights may be those of the last epoch, since only the code chooses them by the test fold.
    """
    if "estimator.hidden" in own or "estimator.activation" in own:
        return f"the network has a different shape, {shape_in(own)}"
    radiometric = config.compare_with == "radiometric"
    paper = {"patience_epochs": None, **settings("radiometric" if radiometric else "as_released")}
    if not radiometric and own.get("estimator.hyper.keep") == "last":
        paper["keep"] = "last"
        del paper["check_epochs"]  # nothing depends on the checks
    wanted = {f"estimator.hyper.{name}": value for name, value in paper.items()}
    return next(iter(record_differences(own, {**wanted, "estimator.measured_times": 1})), "")


def other_augmentation(config: TwoCameraConfig, line: Line) -> str:
    """Why a method was not trained on re-illuminated rows as in the paper; "" if it was. The radiometric set has none there."""
    kind, targets = augmentation_of(config, line), facts().targets
    if config.compare_with == "radiometric":
        return (
            "" if kind == "none" else f"it was trained on re-illuminated rows {kind}, and the paper's radiometric set has none"
        )
    if kind != "of pictures" or relit_count(config) != targets:
        return f"the dataset does not have {targets} re-illuminated copies of each picture"
    if not line.settings["lights_of_test"] and line.settings.get("relit_rows") != targets:
        return f"of the {targets} re-illuminated copies of each picture, those with the light of a test pair were left out"
    return ""


def augmentation_of(config: TwoCameraConfig, line: Line) -> str:
    """Kind of re-illuminated rows that a method was trained on: ``none``, ``of pictures`` or ``of transforms``."""
    if line.settings["reilluminated"]:
        return "of transforms"
    return "none" if not relit_count(config) or line.settings.get("augmented") is False else "of pictures"


def relit_count(config: TwoCameraConfig) -> int:
    """Number of re-illuminated copies of each picture in the dataset: made, or released."""
    if isinstance(config.source, Metadata):
        return config.source.augmented
    return 0 if config.augmentation is None else config.augmentation.count
