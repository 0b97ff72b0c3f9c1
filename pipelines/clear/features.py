"""CLEAR's feature sets: what the report says of them, and their names in a release."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ...curation.verify import DATASET
from ...datasets.clear.release import features_folder, write_features
from ...datasets.reader.features import feature_sets, open_features
from ...eval.report.blocks import Block, Text
from ...eval.results import Line
from ..errors import WrongUse
from ..feature_sets import EMBEDDING, stage_of
from ..report import ReportedRun

RELEASED = {"imagenet_rn50": "imagenet", "moco_imagenet_rn50": "moco_imagenet", "byol_imagenet_rn50": "byol_imagenet"}
"""Feature sets -> their names in the released folders, where Avalanche looks for them; others keep theirs (``moco_b0``)."""


def shared_space(run: ReportedRun, lines: Iterable[Line]) -> list[Block]:
    """That classes were learned in the space in which their images were retrieved, where they were."""
    learned = dict.fromkeys(str(line.settings.get("features", EMBEDDING)) for line in lines)
    same = [name for name in learned if name == EMBEDDING or _made_alike(run, stage_of(name), "embedded")]
    if not same:
        return []
    told = (
        f"Learned in the space that retrieved the images: features {', '.join(same)}. The encoder chose what lies near its "
        "prompts, so its own vectors tell the classes apart more easily; features of another network are not favoured so."
    )
    return [Text([told], tone="note")]


def _made_alike(run: ReportedRun, stage: str, other: str) -> bool:
    """Whether two stages have one encoder, with the same weights."""
    if stage not in run.made or other not in run.made:
        return False
    one, two = (run.made[name].recipe["settings"] for name in (stage, other))
    return all(one[name] == two[name] for name in ("encoder", "checkpoint"))


def write_released_features(out: str, folder: Path) -> None:
    """Write all feature sets of a finished run into a release, bucket by bucket.

    Args:
        out: the run.
        folder: of the release, with the features by which images were retrieved.

    Raises:
        WrongUse: two have one name there.
    """
    dataset = posixpath.join(out, DATASET)
    for name in feature_sets(dataset):
        released = RELEASED.get(name, name)
        if features_folder(folder, released).exists():
            raise WrongUse(
                f"features.{name}: the release has features {released!r} already: give this feature set another name"
            )
        values, table = open_features(dataset, name)
        buckets, labels = table["bucket"].to_numpy(), table["label"].to_numpy()
        for bucket in np.unique(buckets).tolist():
            mine = np.flatnonzero(buckets == bucket)
            write_features(folder, released, bucket, values[mine], labels[mine].tolist())
