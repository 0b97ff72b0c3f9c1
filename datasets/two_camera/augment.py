"""Re-illumination: M pictures become M * M, each under the lights of the others.

Source: the paper's section 3.4, Eqs. 8 and 9 (the printed equations show the picture where the chart is meant): per camera,
a 3 x 3 matrix from the chart's colours in picture i to those in picture j is applied to picture i. Its light becomes the light
of j, the same j for both cameras, and the transform between the cameras is fitted again. 99 other j are drawn for each i.

The paper does not say whose lights the training folds are given; its released rows have those of test pictures, too. ``any``
draws j from all other pictures, as the release; an evaluation that withholds lights of test pictures then has fewer than 99
left. ``training_folds`` draws for each test fold from the pictures of the others, so that 99 are left for every test fold, and
the set holds more rows. ``same_fold`` draws j only from the picture's own fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.npy import npy_blob
from ...curation.rng import rng
from ...curation.rows import Blob, Reject, with_column
from ...curation.stage_rows import Rows
from .pictures import array_of, valid_colours
from .rows import Augmented, lists, numbers
from .transforms import TransformPreset, fit

TargetLights = Literal["any", "training_folds", "same_fold"]

CHANGES = ("relight_1", "relight_2")
"""Columns with the matrices, one per camera, row by row, that re-illuminate the pair's pictures with the other light."""

Changes = tuple[NDArray[np.float64], Mapping[tuple[str, str], int]]
"""Matrices (2, n, 3, 3) for both cameras, and the row for each key of a pair and key of the pair whose light it gets."""

RELIT = ("gt_1", "gt_2", "transform_1to2", "transform_2to1", "transform_chart_1to2", "transform_chart_2to1", *CHANGES)
_WIDTHS = (3, 3, 9, 9, 9, 9, 9, 9)


def changes_in(relit: pa.Table) -> Changes:
    """How re-illuminated rows change the pictures of their pairs."""
    matrices = np.stack([numbers(relit[name], 9).reshape(-1, 3, 3) for name in CHANGES])
    keys = zip(relit["source_key"].to_pylist(), relit["target_key"].to_pylist(), strict=True)
    return matrices, {pair: row for row, pair in enumerate(keys)}


@dataclass(frozen=True)
class PairToRelight:
    """Columns of a pair that ``relight`` reads."""

    key: str
    fold: int
    image_1: Blob
    image_2: Blob
    valid: Blob
    patches_1: list[float]
    patches_2: list[float]
    saturated: list[bool]


@dataclass(frozen=True)
class Relit(PairToRelight):
    """``PairToRelight`` with the column that ``relight`` adds.

    Attributes:
        relit: .npy of float64 (targets, 61): the number of the target among the pairs, then the numbers of ``RELIT``. Targets
            whose colours are singular are left out.
    """

    relit: Blob


def relight(
    row: PairToRelight,
    *,
    charts: Rows,
    count: int,
    targets: TargetLights,
    preset: TransformPreset,
    max_condition: float,
    darkest: float,
    seed: int,
) -> Relit:
    """Each step: the lights and transforms of the pair under the lights of ``count`` others.

    Args:
        charts: rows of all pairs: ``key``, ``fold``, ``patches_1``, ``patches_2``, ``saturated``, ``gt_1``, ``gt_2``.
        count: number of targets of each pair, drawn without repetition; all others if there are fewer. With
            ``training_folds`` for each test fold in which the pair is trained on.
        targets: see the docstring of the module.
        preset: see ``transforms``.
        max_condition: maximum condition number of the re-illuminated colours.
        darkest: see ``pictures.measure_pictures``.
        seed: seed for the choice of targets.

    Raises:
        Reject: ``singular``: the picture's own chart cannot be inverted.
    """
    known = charts.table(["key", "fold", "patches_1", "patches_2", "saturated", "gt_1", "gt_2"])
    others = np.asarray([key != row.key for key in known["key"].to_pylist()], dtype=bool)
    if targets == "same_fold":
        others &= known["fold"].to_numpy() == row.fold
    candidates = np.flatnonzero(others)
    drawn, fold = rng(seed, "relight", row.key).permutation(candidates), known["fold"].to_numpy()
    chosen = np.sort(drawn[:count])
    if targets == "training_folds":
        tested = np.setdiff1d(fold, [row.fold])
        chosen = np.unique(np.concatenate([chosen[:0], *(drawn[fold[drawn] != test][:count] for test in tested)]))
    patches = [numbers(known[f"patches_{n}"], 72).reshape(-1, 24, 3)[chosen] for n in (1, 2)]
    own = [np.reshape(values, (24, 3)) for values in (row.patches_1, row.patches_2)]
    saturated = np.reshape(known["saturated"].combine_chunks().flatten().to_numpy(zero_copy_only=False), (-1, 24))
    clear = ~(np.asarray(row.saturated, dtype=bool) | saturated[chosen])
    changes = [to_light(mine, theirs, clear=clear) for mine, theirs in zip(own, patches, strict=True)]
    one, two = valid_colours(row.image_1, row.image_2, row.valid, darkest=darkest)
    lights = [numbers(known[f"gt_{n}"], 3)[chosen] for n in (1, 2)]
    found = np.empty((len(chosen), 1 + sum(_WIDTHS)))
    for number, (change_1, change_2) in enumerate(zip(*changes, strict=True)):
        pictures = one @ change_1, two @ change_2
        charts_seen = own[0] @ change_1, own[1] @ change_2
        there, back = (fit(*pair, preset=preset) for pair in (pictures, pictures[::-1]))
        of_chart = [fit(*pair, preset=preset, valid=clear[number]) for pair in (charts_seen, charts_seen[::-1])]
        parts = [
            lights[0][number],
            lights[1][number],
            *(each.matrix.ravel() for each in (there, back, *of_chart)),
            change_1.ravel(),
            change_2.ravel(),
        ]
        good = max(there.condition, back.condition) <= max_condition
        found[number] = np.concatenate([[chosen[number]], *parts]) if good else np.nan
    found = found[np.isfinite(found).all(axis=1)]
    kept: dict[str, Any] = {name: getattr(row, name) for name in PairToRelight.__dataclass_fields__}
    return Relit(**kept, relit=npy_blob(found))


def to_light(own: np.ndarray, others: np.ndarray, *, clear: np.ndarray) -> np.ndarray:
    """Matrices from the chart of a picture (24, 3) to the charts under other lights (n, 24, 3), float64 (n, 3, 3).

    Args:
        own: colours of the picture's chart.
        others: colours of the same patches under the other lights.
        clear: bool (n, 24): patches to use for each light. The matrix is NaN if they do not suffice.

    Raises:
        Reject: ``singular``: there is no matrix for any light.

    >>> chart = np.random.default_rng(0).uniform(0.1, 0.9, (24, 3))
    >>> [change] = to_light(chart, np.stack([chart * [2.0, 1.0, 0.5]]), clear=np.ones((1, 24), bool))
    >>> np.diag(change).round(6)
    array([2. , 1. , 0.5])
    """
    found = fit(np.broadcast_to(own, others.shape), others, preset="as_written", valid=clear).matrix
    if len(others) and not np.isfinite(found).any():
        raise Reject("singular", "the chart's colours span no volume")
    return found


@dataclass(frozen=True)
class Expanded(Augmented):
    """Columns that ``expand`` adds or changes: ``Augmented``, matrices that measured pairs do not have (``CHANGES``), and
    payloads that re-illuminated copies do not have."""

    relight_1: list[float] | None
    relight_2: list[float] | None
    image_1: Blob | None
    image_2: Blob | None
    valid: Blob | None
    relit: Blob | None


def expand(rows: Rows) -> Iterator[pa.Table]:
    """Whole step (``expands``): every pair, followed by copies under other lights; columns of ``Expanded``.

    Keys of the copies are ``<pair>-as-<target>``; they have the fold of the pair, and no pictures.
    """
    names = rows.table(["key"])["key"].combine_chunks()
    for table in rows.batches():
        for number, ref in enumerate(table["relit"].to_pylist()):
            yield _copied(table.slice(number, 1), array_of(rows.store.blob(ref)), names)


def _copied(row: pa.Table, relit: np.ndarray, names: pa.Array) -> pa.Table:
    """One row, followed by a copy for each row of ``relit``."""
    count = len(relit)
    key = row["key"][0].as_py()
    target = names.take(pa.array(relit[:, 0].astype(np.int64))).to_pylist()
    table = row.take(pa.array([0] * (count + 1)))
    table = table.set_column(table.column_names.index("key"), "key", pa.array([key, *(f"{key}-as-{name}" for name in target)]))
    ends = np.cumsum((1, *_WIDTHS))
    for name, start, stop in zip(RELIT, ends, ends[1:], strict=False):
        own = np.full((1, stop - start), np.nan) if name in CHANGES else numbers(row[name], stop - start)
        whole = np.concatenate([own, relit[:, start:stop]])
        table = with_column(table, name, lists(whole))
    for name in ("image_1", "image_2", "valid", "relit"):
        kind = table.schema.field(name).type
        table = with_column(table, name, pa.concat_arrays([row[name].combine_chunks(), pa.nulls(count, kind)]))
    table = with_column(table, "source_key", pa.array([key] * (count + 1)))
    table = with_column(table, "target_key", pa.array(["", *target]))
    return with_column(table, "original", pa.array([True] + [False] * count))
