"""Final choice: n rows of each class in each bucket, from those that passed quality assurance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..rng import uniform
from ..rows import Sifted, sift, with_column
from .shortage import OnShortage, report_shortages, shortages

if TYPE_CHECKING:
    from ..store import Rows


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Columns that ``choose`` adds: the class's place in the list of classes, and its name."""

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
) -> Sifted:
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

    Returns:
        The chosen rows in their order, with the columns of ``Labelled``; the others as rejects ``not_chosen``.

    Raises:
        ValueError: for a concept that is not in ``classes``, a score that is not a number, an unknown method, or a shortage.

    >>> from benchwright.curation.store import Rows
    >>> rows = Rows.of(pa.table({"key": list("abc"), "bucket": [1, 1, 1], "concept": ["bus"] * 3, "score": [0.2, 0.9, 0.5]}))
    >>> kept, rejected = choose(rows, classes=["bus"], per_class=2, method="top_score", seed=0)
    >>> kept["key"].to_pylist(), rejected["reason"].to_pylist()
    (['b', 'c'], ['not_chosen'])
    """
    if per_class < 1 or len(set(classes)) < len(classes) or (background and background not in classes):
        raise ValueError(f"choose: per_class {per_class} of classes {', '.join(classes)}, background {background!r}")
    columns = ["key", "bucket", "concept", *(["score"] if method == "top_score" else [])]
    table = rows.table(columns)
    labels = pc.index_in(table["concept"], pa.array(list(classes), pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    if labels.null_count:
        unknown = table["concept"].filter(labels.is_null())[0].as_py()
        raise ValueError(f"concept {unknown!r} is not among the classes {', '.join(classes)}")
    label = labels.to_numpy().astype(np.int64)
    bucket = table["bucket"].to_numpy()
    wanted = dict.fromkeys(classes, per_class)
    short = shortages(table, buckets=np.unique(bucket).tolist(), wanted=wanted)
    report_shortages(short, "choose", on_shortage)
    places = _places(table, bucket, label, _preference(table, method, seed, label == _index(classes, background)))
    whole = rows.table()
    sifted = sift(whole, {"not_chosen": places >= per_class})
    chosen = pa.array(label[places < per_class])
    names = pa.array(list(classes), pa.string()).take(chosen)
    return Sifted(with_column(with_column(sifted.kept, "label", chosen), "class_name", names), sifted.rejected)


def _index(classes: Sequence[str], background: str) -> int:
    return list(classes).index(background) if background else -1


def _preference(table: pa.Table, method: str, seed: int, is_background: np.ndarray) -> np.ndarray:
    """A number a row, the smallest being the most wanted: float64 (n,)."""
    if method == "random":
        return uniform(seed, "choose", table["key"].to_pylist())
    if method != "top_score":
        raise ValueError(f"choose: method is {method!r}, not 'random' or 'top_score'")
    scores = table["score"].to_numpy()
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise ValueError(f"score of row {table['key'][row].as_py()!r} is {scores[row]}: expected a finite number")
    return np.where(is_background, scores, -scores)


def _places(table: pa.Table, bucket: np.ndarray, label: np.ndarray, preference: np.ndarray) -> np.ndarray:
    """Place of each row within its bucket and class, 0 for the most wanted: int64 (n,)."""
    by_key = pc.sort_indices(table["key"]).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
    key_rank = np.empty(len(by_key), dtype=np.int64)
    key_rank[by_key] = np.arange(len(by_key))
    order = np.lexsort((key_rank, preference, label, bucket))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (bucket[order][1:] != bucket[order][:-1]) | (label[order][1:] != label[order][:-1])
    numbers = np.arange(len(order))
    starts = np.maximum.accumulate(np.where(first, numbers, 0))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = numbers - starts
    return places
