"""Final choice: n rows of each class in each bucket, from those that passed quality assurance."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..rng import uniform
from ..rows import Sifted, sift, with_column
from .ranks import in_tables
from .reorder import TABLE_ROWS
from .shortage import OnShortage, report_shortages, shortages

if TYPE_CHECKING:
    from ..stage_rows import Rows


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Columns that ``choose`` adds: the class's place in the list of classes, and its name.

    >>> classes = class_order(["soccer", "bus"])
    >>> Labelled("photo7", label=1, class_name=classes[1])
    Labelled(key='photo7', label=1, class_name='soccer')
    """

    key: str
    label: int
    class_name: str


def class_order(concepts: Sequence[str], background: str = "") -> tuple[str, ...]:
    """Class names in the order of their labels: alphabetical, the background first (CLEAR's ``class_names.txt``).

    >>> class_order(["soccer", "bus", "BACKGROUND"], background="BACKGROUND")
    ('BACKGROUND', 'bus', 'soccer')
    """
    return (*([background] if background else []), *sorted(name for name in concepts if name != background))


def choose(
    rows: Rows,
    *,
    classes: Sequence[str],
    per_class: int,
    method: Literal["random", "top_score"],
    seed: int,
    background: str = "",
    on_shortage: OnShortage = "error",
) -> Iterator[Sifted]:
    """Whole step: keep ``per_class`` rows of each bucket and class.

    CLEAR's paper says "random 300" (``random``: ``as_written``); the released script sorts by score and takes the first 300,
    the background's most negative first, and stops where a class has fewer (``top_score``: ``as_released``).

    Args:
        rows: with columns ``key``, ``bucket``, ``concept``, and ``score`` for ``top_score``.
        classes: all class names in the order of their labels; see ``class_order``.
        per_class: rows wanted of each class and bucket (300).
        method: ``random`` draws by key from ``seed``, so that the choice depends neither on the order of the rows nor on
            the other rows being there; ``top_score`` takes the highest scores. Ties go to the smaller key.
        seed: of the random choice.
        background: name of the class whose lowest scores are its best, or "".
        on_shortage: what to do where a bucket has fewer rows of a class. Buckets are those of ``rows``.

    Yields:
        The chosen rows in their order, with the columns of ``Labelled``; the others as rejects ``not_chosen``. Memory: the
        best of each bucket and class so far, and half a million rows.

    Raises:
        ValueError: for a concept that is not in ``classes``, a score that is not a number, an unknown method, or a shortage.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": list("abc"), "bucket": [1, 1, 1], "concept": ["bus"] * 3, "score": [0.2, 0.9, 0.5]}))
    >>> [(kept, rejected)] = choose(rows, classes=["bus"], per_class=2, method="top_score", seed=0)
    >>> kept["key"].to_pylist(), rejected["reason"].to_pylist()
    (['b', 'c'], ['not_chosen'])
    """
    if per_class < 1 or len(set(classes)) < len(classes) or (background and background not in classes):
        raise ValueError(f"choose: per_class {per_class} of classes {', '.join(classes)}, background {background!r}")
    best, rows_seen = _CANDIDATES.empty_table(), 0
    for table in rows.batches(["key", "bucket", "concept", *(["score"] if method == "top_score" else [])]):
        label = _labels(table, classes)
        wanted = _preference(table, method, seed, label == _index(classes, background))
        given = {"key": table["key"], "bucket": table["bucket"].cast(pa.int64()), "concept": table["concept"], "label": label}
        numbers = np.arange(rows_seen, rows_seen + table.num_rows)
        best = pa.concat_tables([best, pa.table({**given, "wanted": wanted, "row": numbers}, schema=_CANDIDATES)])
        rows_seen += table.num_rows
        if best.num_rows > 2 * TABLE_ROWS:
            best = _best(best, per_class)
    best = _best(best, per_class)
    short = shortages(best, buckets=pc.unique(best["bucket"]).sort().to_pylist(), wanted=dict.fromkeys(classes, per_class))
    report_shortages(short, "choose", on_shortage)
    chosen = np.sort(best["row"].to_numpy())
    for first, table in in_tables(rows):
        mine = chosen[slice(*np.searchsorted(chosen, [first, first + table.num_rows]))] - first
        out = np.ones(table.num_rows, dtype=bool)
        out[mine] = False
        kept, rejected = sift(table, {"not_chosen": out})
        label = pa.array(_labels(kept, classes))
        names = pa.array(list(classes), pa.string()).take(label)
        yield Sifted(with_column(with_column(kept, "label", label), "class_name", names), rejected)


def _labels(table: pa.Table, classes: Sequence[str]) -> np.ndarray:
    """Place of each row's concept among the classes, int64 (n,)."""
    labels = pc.index_in(table["concept"], pa.array(list(classes), pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    if labels.null_count:
        unknown = table["concept"].filter(labels.is_null())[0].as_py()
        raise ValueError(f"concept {unknown!r} is not among the classes {', '.join(classes)}")
    return labels.to_numpy().astype(np.int64)


_CANDIDATES = pa.schema(
    [
        *(("key", pa.string()), ("bucket", pa.int64()), ("concept", pa.string()), ("label", pa.int64())),
        *(("wanted", pa.float64()), ("row", pa.int64())),
    ]
)
"""Columns of rows that may be chosen: their class, how little they are wanted, and their number."""


def _best(table: pa.Table, count: int) -> pa.Table:
    """Of each bucket and class the ``count`` rows of the smallest ``wanted``, ties to the smaller key."""
    by = [(name, "ascending") for name in ("bucket", "label", "wanted", "key", "row")]
    table = table.take(pc.sort_indices(table, sort_keys=by))
    bucket, label = table["bucket"].to_numpy(), table["label"].to_numpy()
    first = np.ones(len(bucket), dtype=bool)
    first[1:] = (bucket[1:] != bucket[:-1]) | (label[1:] != label[:-1])
    numbers = np.arange(len(bucket))
    starts = np.maximum.accumulate(np.where(first, numbers, 0))
    return table.filter(pa.array(numbers - starts < count))


def _index(classes: Sequence[str], background: str) -> int:
    return list(classes).index(background) if background else -1


def _preference(table: pa.Table, method: str, seed: int, is_background: np.ndarray) -> np.ndarray:
    """A number per row, the smallest being the most wanted: float64 (n,)."""
    if method == "random":
        return uniform(seed, "choose", table["key"].to_pylist())
    if method != "top_score":
        raise ValueError(f"choose: method is {method!r}, not 'random' or 'top_score'")
    scores = table["score"].to_numpy()
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise ValueError(f"score of row {table['key'][row].as_py()!r} is {scores[row]}: expected a finite number")
    return np.where(is_background, scores, -scores)
