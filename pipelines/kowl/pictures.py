"""Examples of clips under visual transforms, with the predictions for them: KOWL's Figure 14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...curation.keys import canonical
from ...curation.registry import BUILT_IN, load_entry
from ...curation.rows import Reject
from ...curation.stage_rows import Rows
from ...curation.stages.transforms import TRANSFORMS
from ...curation.stages.visual_transforms import our_ranges
from ...curation.store import Store
from ...datasets.features.extract import see_through
from ...eval.metrics.confusion import top_labels
from ...eval.protocols.open_world.measures import TOP, predictor_labels
from ...eval.protocols.open_world.predictions import OpenWorldPredictions
from ...eval.report.blocks import Section, Sheet, Text, Thumb
from ...eval.report.images import encode
from ..names import short
from ..training_results import FOLDER, Trained, current_trainings, results
from .clips import pixels_of, places, with_clips
from .config import ExtractedFeatures, KowlConfig, VideoFeatures
from .protocols import START

_CLIPS = 3
_PREDICTORS = 4
_ABOUT = (
    "Validation clips of the starting release, untransformed and under each visual transform, with the predictions after "
    "increment 0, and whether they are right. No predictor was trained on the transformed clips."
)


def transformed_clips(config: KowlConfig, out: str, rows: Rows) -> list[Section]:
    """Some clips of different classes, a row each, with a column for each transform; empty without viewable clips.

    Args:
        config: settings of the run.
        out: the run.
        rows: samples of the run in their increments.
    """
    features = next((each for each in with_clips(config) if each.nuisances), None)
    if features is None:
        return []
    chosen = _chosen(rows, places(features))
    if not chosen:
        return []
    kinds = ["", *(short(TRANSFORMS.find(kind).name) for kind in features.nuisances)]
    said, notes = _said(out, {row["key"] for row in chosen})
    sheet: list[tuple[str, list[Thumb | None]]] = []
    for row in chosen:
        thumbs = [_thumb(config, features, row, kind, said) for kind in kinds]
        sheet.append((row["label_recent_first"], thumbs))
    columns = [(kind.replace("_", " ") or "untransformed", "") for kind in kinds]
    return [Section("Transformed clips", [Text([_ABOUT, *notes]), Sheet(columns, sheet, side_px=128)])]


def _chosen(rows: Rows, place: Sequence[str]) -> list[dict[str, Any]]:
    """The first clip of each of some classes, from validation if possible, else from test."""
    names = ["key", "role", "increment", "label_recent_first", *place]
    found: dict[str, dict[str, dict[str, Any]]] = {"val": {}, "test": {}}
    for table in rows.batches(names):
        for row in table.to_pylist():
            if row["increment"] == 0 and row["role"] in found:
                found[row["role"]].setdefault(row["label_recent_first"], row)
    return list((found["val"] or found["test"]).values())[:_CLIPS]


def _said(out: str, keys: set[str]) -> tuple[dict[tuple[str, str], list[str]], list[str]]:
    """Key and transform -> predictions of some predictors after increment 0; and lines on what is not shown, and why.

    A predictor is named by all settings in which it differs from others of its method, including its feature set; the amount of
    feedback makes no difference after increment 0. With protocol ``start`` it was trained on the first release's own labels.
    """
    store, labels = Store(str(Path(out) / FOLDER)), predictor_labels(results(out))
    trained = [one for one in current_trainings(out) if one.learned.rows]
    shown_as: dict[str, Trained] = {}
    for one in sorted(trained, key=lambda one: one.facts["method"] != "original"):  # the backbones' own classifiers first
        facts = one.facts
        label = labels[facts["method"], facts["model"], canonical(facts["settings"])]
        shown_as.setdefault(f"{label}, {START}" if facts["protocol"] == START else label, one)
    found: dict[tuple[str, str], list[str]] = {}
    unseen: list[str] = []
    for name, one in list(shown_as.items())[:_PREDICTORS]:
        predictions, seen = OpenWorldPredictions(one.learned.rows_view(store)), set[str]()
        for part in predictions.transformed():
            if (part.increment, part.phase) != (0, "post"):
                continue
            seen.add(part.transform)
            top = top_labels(part.columns, part.probabilities, TOP)
            for at in np.flatnonzero(np.isin(part.uid, list(keys))).tolist():
                best, truth = int(top[at, 0]), int(part.truth[at])
                label = predictions.classes[best] if best >= 0 else "unknown"
                verdict = "right" if best == truth else f"wrong, {'' if truth in top[at] else 'not '}in its top {TOP}"
                found.setdefault((str(part.uid[at]), part.transform), []).append(f"{name}: {label}, {verdict}")
        if seen == {""}:
            unseen.append(name)
    left_out = list(shown_as)[_PREDICTORS:]
    lines = [f"Not shown: {', '.join(left_out)}."] if left_out else []
    if unseen:
        why = "their features have no transforms, or were evaluated from kept states, without storing predictions"
        lines.append(
            f"No predictions for transformed clips from {', '.join(unseen)}: {why}; `train --protocol start` stores them."
        )
    return found, lines


def _thumb(
    config: KowlConfig,
    features: ExtractedFeatures | VideoFeatures,
    row: Mapping[str, Any],
    kind: str,
    said: Mapping[tuple[str, str], list[str]],
) -> Thumb | None:
    found = map(TRANSFORMS.find, features.nuisances)
    own = {short(entry.name): load_entry(entry) for entry in found if entry.origin != BUILT_IN}
    try:
        pixels = pixels_of(features, row, features.frames)
    except (Reject, ValueError):
        return None
    seen = see_through(pixels, kind=kind or None, seed=config.seed, key=row["key"], ranges=our_ranges(), own=own)
    return Thumb(encode(Image.fromarray(seen[len(seen) // 2])), "; ".join(said.get((row["key"], kind), [])))
