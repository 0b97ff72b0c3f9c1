"""Features drawn from a seed, in place of a backbone's: novelty that shows, and novelty that does not.

A sample is Gaussian, with standard deviation 1, around the centre of its label. Centres lie ``distance`` apart on the
average. Of the labels that later releases bring a share is ``hidden``: each of their samples lies around the centre of a
starting label that is drawn for it alone, so that nothing but a label tells them from known samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rng import rng, uniform
from ..features.rows import WithFeature

if TYPE_CHECKING:
    from ...curation.store import Rows


@dataclass(frozen=True)
class Centred:
    """Column that ``choose_centres`` adds: the label around whose centre the sample lies."""

    key: str
    centre: str


def choose_centres(rows: Rows, *, first: str, splits: Sequence[str], hidden: float, seed: int) -> pa.Table:
    """Whole step: the centre of every sample.

    Args:
        rows: of ``unify.unify``: ``label_recent_first``, ``release``, ``split``.
        first: the release whose training labels are known at the start.
        splits: those of its splits that train.
        hidden: share in [0, 1] of the other labels, drawn label by label.
        seed: of the draws.

    Raises:
        ValueError: a share out of range, or no training sample of the first release.
    """
    if not 0 <= hidden <= 1:
        raise ValueError(f"hidden {hidden}: a share in [0, 1]")
    table = rows.table()
    label = table["label_recent_first"]
    trains = pc.is_in(table["split"], value_set=pa.array(splits, pa.string()))
    starting = pc.and_(pc.equal(table["release"], first), trains)
    known = sorted(pc.unique(label.filter(starting)).to_pylist())
    if not known:
        named = ", ".join(splits) or "no split"
        there = ", ".join(pc.unique(table["release"]).to_pylist()) or "no samples at all"
        raise ValueError(f"no sample of release {first!r} in {named} to train on: there are {there}")
    later = sorted(set(pc.unique(label).to_pylist()) - set(known))
    draws = uniform(seed, "hidden", later)
    away = [name for name, draw in zip(later, draws, strict=True) if draw < hidden]
    among = uniform(seed, "centre", table["key"].to_pylist())
    drawn = pa.array(known).take(pa.array((among * len(known)).astype(np.int64)))
    centre = pc.if_else(pc.is_in(label, value_set=pa.array(away, pa.string())), drawn, label)
    return table.append_column("centre", centre)


def draw_features(rows: Sequence[Centred], *, width: int, distance: float, seed: int) -> list[WithFeature]:
    """A vector for every sample.

    Args:
        rows: keys and centres.
        width: numbers of a vector.
        distance: mean distance of two centres in standard deviations of a sample, about.
        seed: of centres and samples.
    """
    scale = distance / math.sqrt(2 * width)
    names = {row.centre for row in rows}
    centres = {name: scale * rng(seed, "centres", name).standard_normal(width) for name in names}
    return [
        WithFeature(row.key, (centres[row.centre] + rng(seed, "sample", row.key).standard_normal(width)).astype(np.float32))
        for row in rows
    ]
