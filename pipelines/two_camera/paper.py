"""Which trainings of a two-camera run match the paper's, by their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...curation.artifact import Artifact
from ...curation.nested import flat
from ...curation.registry import BUILT_IN
from ...datasets.two_camera.facts import facts
from ...eval.report.blocks import Block
from ...eval.report.trainings import changed_settings, digests_to_state, record_differences
from ...eval.results import Line
from ...training.illuminants.registry import ESTIMATORS, candidates, functions
from ...training.two_camera.settings import settings
from .baselines import LINEAR
from .config import LitPictures, Metadata, Radiometric, TwoCameraConfig
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
    return [reason for flag, reason in UNFAIR.items() if line.settings[flag]]


def data_differs(config: TwoCameraConfig, made: Mapping[str, Artifact]) -> str:
    """Why the published figures are for other data than this run's; "" if the record shows that the data are the same."""
    if config.compare_with is None:
        return "the settings do not name a published dataset"
    if isinstance(config.source, LitPictures):
        return "pictures are thumbnails, and the second camera's are computed from spectra instead of charts"
    known = known_digests(config).get("folded")
    if known is None:
        return "no digest of the paper's illuminants and transforms is known, so this run's cannot be shown to be the same"
    return "" if has_digest(made, "folded", known) else "the illuminants, transforms or folds of this run are not the paper's"


def known_digests(config: TwoCameraConfig) -> dict[str, str]:
    """Stage -> digest of the paper's rows: from the facts, and as stated in the settings."""
    released = facts().sets[config.compare_with or "s20"].get("folded_sha256")
    return ({} if released is None else {"folded": released}) | {str(name): each for name, each in config.published.items()}


def has_digest(made: Mapping[str, Artifact], stage: str, digest: str) -> bool:
    return stage in made and made[stage].digest == digest


def digest_notes(config: TwoCameraConfig, made: Mapping[str, Artifact]) -> list[Block]:
    """For data with the published number of pairs that are not computed here: how to state that they are the paper's."""
    if config.compare_with is None or isinstance(config.source, LitPictures | Radiometric) or "folded" not in made:
        return []
    if made["folded"].rows != facts().sets[config.compare_with]["pairs"]:
        return []
    stages = (["folded"] if data_differs(config, made) else []) + (["augmented"] if released_rows_differ(config, made) else [])
    digests = {f"published.{stage}": made[stage].digest for stage in stages if stage in made}
    known = "these data, which have the published number of pairs, are the paper's"
    return [digests_to_state(known, digests)] if digests else []


def why_not_the_papers(config: TwoCameraConfig, line: Line, made: Mapping[str, Artifact]) -> str:
    """Why a training differs from the paper's, by its record and that of the rows; "" if it does not."""
    own = line.settings
    if different := record_differences(own, {"direction": "1to2"}):
        return different[0]
    if line.model == "network":
        return other_augmentation(config, line, made) or other_training(config, own)
    ours: dict[str, tuple[str, dict[str, Any]]] = {LINEAR: (LINEAR, {}), **candidates()}
    if line.method not in ours or paper_name(line) not in facts().tables[config.compare_with or "s20"]:
        return "the method is not in the paper's table"
    model, choices = ours[line.method]
    if line.model != model:
        return f"the estimator is {line.model}"
    usual = flat({"estimator": choices})
    if "longest_px" in own:
        usual["longest_px"] = None
    if changed := [name for name in changed_settings(line, [usual]) if name in usual or name.startswith("estimator")]:
        return f"settings were changed: {', '.join(changed)}"
    return other_augmentation(config, line, made) if line.model == LINEAR or learns(line) else ""


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


def other_augmentation(config: TwoCameraConfig, line: Line, made: Mapping[str, Artifact]) -> str:
    """Why a method was not trained on re-illuminated rows as in the paper; "" if it was. The radiometric set has none there."""
    kind, targets, own = augmentation_of(config, line), facts().augmentation.targets, line.settings
    if config.compare_with == "radiometric":
        return (
            "" if kind == "none" else f"it was trained on re-illuminated rows {kind}, and the paper's radiometric set has none"
        )
    if kind == "of transforms":
        return "re-illuminated rows are computed from transforms, and in the paper from pictures"
    if relit_count(config) != targets:
        return f"the dataset does not have {targets} re-illuminated copies of each picture"
    if kind == "none":
        return "it was trained without the re-illuminated rows of the dataset"
    if config.augmentation is not None and config.augmentation.targets == "same_fold":
        return "pictures are re-illuminated with illuminants of their own fold alone, a rule of ours"
    if learns(line) and own.get("relit_pictures") != targets:
        return f"it was trained without the paper's {targets} re-illuminated copies of each picture"
    if not own["lights_of_test"] and own.get("relit_rows") != targets:
        return f"of the {targets} re-illuminated copies of each picture, those with the light of a test pair were left out"
    return released_rows_differ(config, made)


def released_rows_differ(config: TwoCameraConfig, made: Mapping[str, Artifact]) -> str:
    """Why re-illuminated rows that a run read cannot be shown to be the paper's; "" if they can, or if it made its own."""
    if not isinstance(config.source, Metadata) or not config.source.augmented:
        return ""
    known = known_digests(config).get("augmented")
    if known is None:
        return "no digest of the released re-illuminated rows is known, so this run's cannot be shown to be the same"
    return "" if has_digest(made, "augmented", known) else "the re-illuminated rows of this run are not the released ones"


def augmentation_of(config: TwoCameraConfig, line: Line) -> str:
    """Kind of re-illuminated rows that a method was trained on: ``none``, ``of pictures`` or ``of transforms``."""
    own = line.settings
    if own["reilluminated"]:
        return "of transforms"
    without = own.get("augmented") is False or ("longest_px" in own and not own.get("relit_pictures"))
    return "none" if without or not relit_count(config) else "of pictures"


def relit_count(config: TwoCameraConfig) -> int:
    """Number of re-illuminated copies of each picture in the dataset: made, or released."""
    if isinstance(config.source, Metadata):
        return config.source.augmented
    return 0 if config.augmentation is None else config.augmentation.count
