"""Re-illumination: M pictures become M * M, each under the lights of the others.

Source: the paper's section 3.4, Eqs. 8 and 9 (the printed equations show the picture where the chart is meant): a
3 x 3 matrix from the chart's colours in picture i to those in picture j, per camera, is applied to picture i. Its light becomes
that of j, the same j for both cameras, and the transform between the cameras is fitted again. 99 other j are drawn for each i.

``targets`` is ours: the paper takes any other picture, so that a training picture may be re-lit with the illuminant of a test
picture; ``same_fold`` takes those of the picture's own fold, and the lights of tests stay unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import pyarrow as pa

from ...curation.rng import rng
from ...curation.rows import Blob, Reject, with_column
from .pictures import array_of, clear_patches, npy, valid_colours
from .rows import Augmented, lists, numbers
from .transforms import Fitted, Preset, divisors, fit, solve

if TYPE_CHECKING:
    from ...curation.store import Rows

Targets = Literal["any", "same_fold"]

_PIXELS_AT_ONCE = 1 << 15

RELIT = ("gt_1", "gt_2", "transform_1to2", "transform_2to1", "transform_chart_1to2", "transform_chart_2to1")
_WIDTHS = (3, 3, 9, 9, 9, 9)


class Charts(Protocol):
    """Rows of another stage (``curation.store.Rows``), as far as ``relight`` uses them."""

    def table(self, columns: Sequence[str] | None = None) -> pa.Table: ...


@dataclass(frozen=True)
class PairToRelight:
    """What ``relight`` needs of a pair."""

    key: str
    fold: int
    image_1: Blob
    image_2: Blob
    valid: Blob
    patches_1: list[float]
    patches_2: list[float]


@dataclass(frozen=True)
class Relit(PairToRelight):
    """The same with the column that ``relight`` adds.

    Attributes:
        relit: .npy of float64 (targets, 43): the number of the target among the pairs, then the numbers of ``RELIT``. Targets
            whose colours are singular are left out.
    """

    relit: Blob


def relight(
    row: PairToRelight,
    *,
    charts: Charts,
    count: int,
    targets: Targets,
    preset: Preset,
    max_condition: float,
    darkest: float,
    seed: int,
) -> Relit:
    """Each step: the lights and transforms of the picture under the lights of ``count`` others.

    Args:
        charts: of all pairs: ``key``, ``fold``, ``patches_1``, ``patches_2``, ``gt_1``, ``gt_2``.
        count: targets of each pair, drawn without repetition; all others where there are fewer.
        targets: see the module.
        preset: see ``transforms``.
        max_condition: limit of the condition of the re-illuminated colours.
        darkest: see ``pictures.measure_pictures``.
        seed: draws the targets.

    Raises:
        Reject: ``singular`` where the picture's own chart cannot be inverted.
    """
    known = charts.table(["key", "fold", "patches_1", "patches_2", "gt_1", "gt_2"])
    others = np.asarray([key != row.key for key in known["key"].to_pylist()], dtype=bool)
    if targets == "same_fold":
        others &= known["fold"].to_numpy() == row.fold
    candidates = np.flatnonzero(others)
    chosen = np.sort(rng(seed, "relight", row.key).permutation(candidates)[:count])
    patches = [numbers(known[f"patches_{n}"], 72).reshape(-1, 24, 3)[chosen] for n in (1, 2)]
    own = [np.reshape(values, (24, 3)) for values in (row.patches_1, row.patches_2)]
    clear = clear_patches(*own, preset=preset) & clear_patches(*patches, preset=preset)
    changes = [to_light(mine, theirs, clear=clear) for mine, theirs in zip(own, patches, strict=True)]
    one, two = valid_colours(row.image_1, row.image_2, row.valid, darkest=darkest)
    there, back = relit_transforms(one, two, *changes, preset=preset)
    chart = [mine @ change for mine, change in zip(own, changes, strict=True)]
    lights = [numbers(known[f"gt_{n}"], 3)[chosen] for n in (1, 2)]
    parts = [chosen[:, None].astype(np.float64), *lights, there.matrix, back.matrix]
    parts += [fit(*chart, preset=preset, valid=clear).matrix, fit(*chart[::-1], preset=preset, valid=clear).matrix]
    found = np.concatenate([part.reshape(len(chosen), width) for part, width in zip(parts, (1, *_WIDTHS), strict=True)], axis=1)
    found = found[(np.maximum(there.condition, back.condition) <= max_condition) & np.isfinite(found).all(axis=1)]
    return Relit(row.key, row.fold, row.image_1, row.image_2, row.valid, row.patches_1, row.patches_2, npy(found))


def to_light(own: np.ndarray, others: np.ndarray, *, clear: np.ndarray | None = None) -> np.ndarray:
    """Matrices that bring the chart of a picture (24, 3) to those under other lights (n, 24, 3), float64 (n, 3, 3).

    Args:
        own: colours of the picture's chart.
        others: the same patches in the others.
        clear: bool (n, 24): which patches to take for which; by default all. NaN where they do not suffice.

    Raises:
        Reject: ``singular``: none has a matrix.

    >>> chart = np.random.default_rng(0).uniform(0.1, 0.9, (24, 3))
    >>> [change] = to_light(chart, np.stack([chart * [2.0, 1.0, 0.5]]))
    >>> np.diag(change).round(6)
    array([2. , 1. , 0.5])
    """
    if clear is None or clear.all():
        gram = np.einsum("ni,nj->ij", own, own)
        cross = np.einsum("ni,mnj->mij", own, others)
        found = solve(np.broadcast_to(gram, cross.shape), cross)
    else:
        found = fit(np.broadcast_to(own, others.shape), others, preset="as_written", valid=clear)
    if len(others) and not np.isfinite(found.matrix).any():
        raise Reject("singular", "the chart's colours span no volume")
    return found.matrix


def relit_transforms(
    one: np.ndarray, two: np.ndarray, change_1: np.ndarray, change_2: np.ndarray, *, preset: Preset
) -> tuple[Fitted, Fitted]:
    """Transforms between two pictures under each of m other lights, both ways, without making the pictures.

    A changed colour is ``p @ A``, and its chromaticity that over ``p @ A @ (1, 1, 1)``: a weight for each pixel and light.
    So the normal equations of all lights are weighted sums of products of colours that are made once.

    Args:
        one: colours of the first picture (n, 3).
        two: the same pixels in the second.
        change_1: matrices of the first camera (m, 3, 3).
        change_2: of the second.
        preset: see ``transforms``.

    Returns:
        Two ``Fitted`` of m: first to second, and back.
    """
    count = len(change_1)
    gram_1, gram_2, cross = np.zeros((count, 9)), np.zeros((count, 9)), np.zeros((count, 9))
    for start in range(0, len(one), _PIXELS_AT_ONCE):
        some = [picture[start : start + _PIXELS_AT_ONCE] for picture in (one, two)]
        pairs = ((some[0], some[0]), (some[1], some[1]), (some[0], some[1]))
        products = [(a[:, :, None] * b[:, None, :]).reshape(-1, 9) for a, b in pairs]
        if preset == "as_written":
            sums = [np.broadcast_to(product.sum(axis=0), (count, 9)) for product in products]
        else:
            total = [
                np.einsum("nc,mc->mn", p, change.sum(axis=2)) for p, change in zip(some, (change_1, change_2), strict=True)
            ]
            good = (total[0] > 0) & (total[1] > 0)
            scales = divisors(*(np.where(good, t, 1) for t in total), preset=preset)
            weight_1, weight_2 = (np.where(good, 1 / scale, 0.0) for scale in scales)
            weights = (weight_1**2, weight_2**2, weight_1 * weight_2)
            sums = [np.einsum("mn,nk->mk", w, product) for w, product in zip(weights, products, strict=True)]
        gram_1 += sums[0]
        gram_2 += sums[1]
        cross += sums[2]

    def turned(left: np.ndarray, middle: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.swapaxes(left, 1, 2) @ middle.reshape(-1, 3, 3) @ right

    crossed = turned(change_1, cross, change_2)
    there = solve(turned(change_1, gram_1, change_1), crossed)
    return there, solve(turned(change_2, gram_2, change_2), np.swapaxes(crossed, 1, 2))


@dataclass(frozen=True)
class Expanded(Augmented):
    """Columns that ``expand`` adds or changes: ``Augmented``, and payloads that copies do not have."""

    image_1: Blob | None
    image_2: Blob | None
    valid: Blob | None
    relit: Blob | None


def expand(rows: Rows) -> Iterator[pa.Table]:
    """Whole step (``expands``): every pair, followed by itself under other lights; columns of ``Expanded``.

    Keys of the latter are ``<pair>-as-<target>``; they have the fold of the pair, and no pictures.
    """
    names = rows.table(["key"])["key"].combine_chunks()
    for table in rows.batches():
        for number, ref in enumerate(table["relit"].to_pylist()):
            yield _copied(table.slice(number, 1), array_of(rows.store.blob(ref)), names)


def _copied(row: pa.Table, relit: np.ndarray, names: pa.Array) -> pa.Table:
    """One row, and after it one for each row of ``relit``."""
    count = len(relit)
    key = row["key"][0].as_py()
    target = names.take(pa.array(relit[:, 0].astype(np.int64))).to_pylist()
    table = row.take(pa.array([0] * (count + 1)))
    table = table.set_column(table.column_names.index("key"), "key", pa.array([key, *(f"{key}-as-{name}" for name in target)]))
    ends = np.cumsum((1, *_WIDTHS))
    for name, start, stop in zip(RELIT, ends, ends[1:], strict=False):
        whole = np.concatenate([numbers(row[name], stop - start), relit[:, start:stop]])
        table = with_column(table, name, lists(whole))
    for name in ("image_1", "image_2", "valid", "relit"):
        kind = table.schema.field(name).type
        table = with_column(table, name, pa.concat_arrays([row[name].combine_chunks(), pa.nulls(count, kind)]))
    table = with_column(table, "source_key", pa.array([key] * (count + 1)))
    table = with_column(table, "target_key", pa.array(["", *target]))
    return with_column(table, "original", pa.array([True] + [False] * count))
