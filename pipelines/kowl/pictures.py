"""Examples of what visual transforms make of clips, and what predictors say of them: KOWL's Figure 14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...curation.registry import BUILT_IN, load_entry
from ...curation.rows import Reject
from ...curation.stages.transforms import TRANSFORMS
from ...curation.stages.visual_transforms import our_ranges
from ...curation.store import Rows, Store
from ...datasets.features.extract import see_through
from ...eval.protocols.open_world_predictions import OpenWorldPredictions
from ...eval.report.blocks import Section, Sheet, Text, Thumb
from ...eval.report.images import encode
from ..experiments import FOLDER, finished_trainings
from ..own import shown
from .clips import pixels_of, places, with_clips
from .config import ExtractedFeatures, KowlConfig, VideoFeatures

_CLIPS = 3
_PREDICTORS = 3
_ABOUT = (
    "Validation clips of the starting release as they are and through each visual transform, with what predictors say of them "
    "after increment 0. Nothing was learned from the transformed clips.",
)


def transformed_clips(config: KowlConfig, out: str, rows: Rows) -> list[Section]:
    """Some clips of different classes, a row each, with a column for each transform; nothing of features from elsewhere.

    Args:
        config: of the run.
        out: the run.
        rows: of its samples in their increments.
    """
    features = next((each for each in with_clips(config) if each.nuisances), None)
    if features is None:
        return []
    chosen = _chosen(rows, places(features))
    if not chosen:
        return []
    kinds = ["", *(shown(TRANSFORMS.find(kind).name) for kind in features.nuisances)]
    said = _said(out, {row["key"] for row in chosen})
    sheet: list[tuple[str, list[Thumb | None]]] = []
    for row in chosen:
        thumbs = [_thumb(config, features, row, kind, said) for kind in kinds]
        sheet.append((row["label_recent_first"], thumbs))
    columns = [(kind.replace("_", " ") or "as it is", "") for kind in kinds]
    return [Section("Clips through transforms", [Text(_ABOUT), Sheet(columns, sheet, side_px=128)])]


def _chosen(rows: Rows, place: Sequence[str]) -> list[dict[str, Any]]:
    """The first clip of each of some classes, of validation where there is any."""
    names = ["key", "role", "increment", "label_recent_first", *place]
    found: dict[str, dict[str, dict[str, Any]]] = {"val": {}, "test": {}}
    for table in rows.batches(names):
        for row in table.to_pylist():
            if row["increment"] == 0 and row["role"] in found:
                found[row["role"]].setdefault(row["label_recent_first"], row)
    return list((found["val"] or found["test"]).values())[:_CLIPS]


def _said(out: str, keys: set[str]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Key and transform -> predictor and label, of some predictors after increment 0."""
    store = Store(str(Path(out) / FOLDER))
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    told: set[str] = set()
    for one in finished_trainings(out):
        name = one.facts["method"]
        if one.stale or not one.learned.rows or name in told or len(told) == _PREDICTORS:
            continue
        told.add(name)
        predictions = OpenWorldPredictions(one.learned.rows_view(store))
        for part in predictions.transformed():
            if (part.increment, part.phase) != (0, "post"):
                continue
            best = part.columns[part.probabilities.argmax(axis=1)]
            for at in np.flatnonzero(np.isin(part.uid, list(keys))).tolist():
                label = predictions.classes[best[at]] if best[at] >= 0 else "unknown"
                found.setdefault((str(part.uid[at]), part.transform), []).append((name, label))
    return found


def _thumb(
    config: KowlConfig,
    features: ExtractedFeatures | VideoFeatures,
    row: Mapping[str, Any],
    kind: str,
    said: Mapping[tuple[str, str], list[tuple[str, str]]],
) -> Thumb | None:
    found = map(TRANSFORMS.find, features.nuisances)
    own = {shown(entry.name): load_entry(entry) for entry in found if entry.origin != BUILT_IN}
    try:
        pixels = pixels_of(features, row, features.frames)
    except (Reject, ValueError):
        return None
    seen = see_through(pixels, kind=kind or None, seed=config.seed, key=row["key"], ranges=our_ranges(), own=own)
    right = row["label_recent_first"]
    caption = "; ".join(
        f"{name}: {label}, {'right' if label == right else 'wrong'}" for name, label in said.get((row["key"], kind), [])
    )
    return Thumb(encode(Image.fromarray(seen[len(seen) // 2])), caption)
