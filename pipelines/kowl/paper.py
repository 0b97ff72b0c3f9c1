"""Whether the data of a KOWL run are the paper's, by its record."""

from __future__ import annotations

import pyarrow as pa

from ...datasets.kowl.facts import facts
from ...datasets.kowl.tables import (
    increment_table,
    published_table,
)
from .config import DrawnFeatures, ExtractedFeatures, KowlConfig, VideoFeatures


def data_differs(config: KowlConfig, samples: pa.Table) -> str:
    """Why scores on the starting release are not, or cannot be shown to be, from the paper's samples and features."""
    if not has_published_counts(config, published_table(increment_table(samples))):
        return "the increments are not those of the paper's Table 1"
    every = [each for each in (config.features, *config.feature_sets.values()) if each is not None]
    if any(isinstance(each, DrawnFeatures) for each in every):
        return "features are synthetic"
    if any(isinstance(each, ExtractedFeatures | VideoFeatures) and not each.checkpoint for each in every):
        return "features come from random weights, or from the built-in backbone"
    return "no digest of the paper's X3D-M and TimeSformer weights is known, so this run's cannot be shown to be the same"


def has_published_counts(config: KowlConfig, ours: pa.Table) -> bool:
    """Whether a run has the paper\'s releases and the increments of its Table 1, given by ``published_table``."""
    f = facts()
    if tuple(config.labels.releases) != f.labels.releases:
        return False
    published = table_1()
    return bool(ours.select(published.column_names).equals(published.cast(ours.select(published.column_names).schema)))


def table_1() -> pa.Table:
    """Table 1 of the paper: one row per increment."""
    published = pa.table({name: pa.array(column) for name, column in facts().table_1.items()})
    if "increment" not in published.column_names:
        published = published.add_column(0, "increment", pa.array(range(published.num_rows)))
    return published
