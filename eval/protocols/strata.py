"""Measures of a training in an open world by strata of its samples, from the predictions that it stored.

The paper's ablation shows the classification task, cumulative, after feedback; the others are here too. Confusion matrices
are summed stratum by stratum: where every sample belongs to one stratum of a stratification, they add up to the matrix of the
whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...curation.store import Rows
from ..metrics.confusion import Ordered, Task, top_labels
from ..results import Value, measured
from .open_world_measures import TOP, Sums
from .open_world_predictions import OpenWorldPredictions, Predicted


def measures_by_stratum(
    predictions: Rows,
    strata: pa.Table,
    *,
    phases: Sequence[str] = ("pre", "post"),
    splits: Sequence[str] = ("validate", "test"),
    task: Task = "classification",
    novel_to: str = "predictor",
) -> Iterator[Value]:
    """Measures of each stratum, in the order of increments; see ``open_world_measures`` for their names.

    Args:
        predictions: what the training left; nothing where it diverged.
        strata: ``uid``, ``stratification``, ``stratum``. A sample may belong to several strata of one stratification, and
            counts in each; one that is not named counts in none.
        phases: of "pre" and "post".
        splits: "train", "validate", "test"; summed, under the name "validate+test" and the like.
        task, novel_to: see ``open_world_measures``.

    Yields:
        Values whose stratum is called ``stratification=stratum``. One without samples in an increment has cumulative values
        alone.

    Raises:
        ValueError: ``novel_to`` is not known.
    """
    if novel_to not in ("predictor", "evaluator"):
        raise ValueError(f"novel_to {novel_to!r}: 'predictor' or 'evaluator'")
    asked = pl.DataFrame(pl.from_arrow(strata)).select("uid", name=pl.col("stratification") + "=" + pl.col("stratum"))
    split, whose, sums = "+".join(splits), novel_to if task != "none" else "", Sums()
    parts = (part for part in OpenWorldPredictions(predictions) if part.phase in phases and part.split in splits)
    for (increment, phase), some in itertools.groupby(parts, lambda part: (part.increment, part.phase)):
        new: dict[str, Ordered] = {}
        for part in some:
            for name, ordered in _by_stratum(part, asked, part.known[novel_to], task).items():
                new[name] = new[name] + ordered if name in new else ordered
        for name, ordered in sorted(new.items()):
            yield measured(f"{phase}.samples", ordered.first.n, position=increment, split=split, stratum=name)
            yield from sums.add(ordered, phase, task, whose, position=increment, split=split, stratum=name)
        yield from sums.so_far(phase, increment)
    for phase in phases:
        yield from sums.so_far(phase, None)


def _by_stratum(part: Predicted, asked: pl.DataFrame, known: Sequence[int], task: Task) -> dict[str, Ordered]:
    top = top_labels(part.columns, part.probabilities, TOP)
    uids = pl.DataFrame({"uid": part.uid.tolist()}, schema={"uid": pl.String}).with_row_index("row")
    pairs = uids.join(asked, on="uid", maintain_order="left")
    row, name = pairs["row"].to_numpy(), np.asarray(pairs["name"].to_list(), dtype=np.str_)
    return {
        one: Ordered.of(part.truth[row[name == one]], top[row[name == one]], known, task) for one in np.unique(name).tolist()
    }
