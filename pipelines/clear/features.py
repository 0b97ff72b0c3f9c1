"""CLEAR's feature sets: what the report says of them, and their names in a release."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

import numpy as np

from ...curation.verify import DATASET
from ...datasets.clear.facts import RELEASED
from ...datasets.reader.features import feature_sets, open_features, read_features
from ...datasets.reader.index import DatasetIndex
from ...eval.report.blocks import Block, Text
from ...eval.results import Line
from ..errors import WrongUse
from ..feature_sets import EMBEDDING, stage_of
from ..report import ReportedRun


def shared_space(run: ReportedRun, lines: Iterable[Line]) -> list[Block]:
    """That classes were learned in the space in which their images were retrieved, where they were."""
    if "retrieved" not in run.made:
        return []
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


def released_features(out: str, embedding: str) -> dict[str, np.ndarray]:
    """Vectors of all rows of a finished run by their names in a release: those of its shards, and its feature sets, mapped.

    Args:
        out: the run.
        embedding: name of those of the shards; "" where there are none.

    Raises:
        WrongUse: two have one name there.
    """
    dataset = posixpath.join(out, DATASET)
    found: dict[str, np.ndarray] = {}
    if embedding:
        found[embedding] = read_features(DatasetIndex.open(dataset))[0]
    for name in feature_sets(dataset):
        released = RELEASED.get(name, name)
        if released in found:
            raise WrongUse(
                f"features.{name}: the release has features {released!r} already: give this feature set another name"
            )
        found[released] = open_features(dataset, name)[0]
    return found
