"""Memories of a stream: exemplars with equal class quotas (iCaRL, as in vCLIMB's released code), and CLEAR's fixed-size buffer.

Both hold row numbers of the stream, which concatenates the training sets of all tasks or domains. The exemplars are one ranked
list per class, so that room for new classes is made by truncating the lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import rng, uniform
from .capacity import Capacity

Labels = NDArray[np.int64]
RowNumbers = NDArray[np.int64]
Removal = Literal["as_released", "as_written"]


def herding(features: NDArray[np.float64], count: int) -> RowNumbers:
    """Select rows greedily so that their mean stays nearest to the mean of all (Rebuffi et al., iCaRL, algorithm 4).

    Args:
        features: (n, d); L2-normalised here.
        count: number of rows to select; at most n are returned.

    Returns:
        Distinct row numbers, best first; ties go to the first.

    >>> herding(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 2)  # the third is nearest to the mean of all
    array([2, 1])
    """
    unit = normalised(features)
    mean, total = unit.mean(0), np.zeros(unit.shape[1])
    left = np.ones(len(unit), dtype=bool)
    chosen: list[int] = []
    for k in range(1, min(count, len(unit)) + 1):
        distance = np.linalg.norm(mean - (total + unit) / k, axis=1)
        best = int(np.argmin(np.where(left, distance, np.inf)))
        left[best] = False
        total += unit[best]
        chosen.append(best)
    return np.array(chosen, dtype=np.int64)


def shuffled(rows: RowNumbers, *, seed: int, key: str) -> RowNumbers:
    """``rows`` in an order that depends on (seed, key) alone.

    >>> rows = np.arange(100)
    >>> one, same, other = (shuffled(rows, seed=0, key=key) for key in ("cat", "cat", "dog"))
    >>> bool((one == same).all()), bool((one == other).all()), bool((np.sort(other) == rows).all())
    (True, False, True)
    """
    return rng(seed, "exemplars", key).permutation(rows)


def reservoir_sample(rows: RowNumbers, keys: Sequence[str], capacity: Capacity, sizes: RowNumbers, *, seed: int) -> RowNumbers:
    """A uniform sample of all rows so far: rows with the largest random numbers stay (reservoir sampling by random sort keys).

    A random number depends on (seed, key) alone, so the sample does not depend on where domains or tasks begin.

    Args:
        rows: stored and new rows, int64 (n,).
        keys, sizes: keys and sizes of ``rows``.
        capacity: number of samples, or sum of ``sizes``, that stays at most.
        seed: seed of the random numbers.

    >>> keys, once = np.array([f"clip{n}" for n in range(50)]), np.ones(50, np.int64)
    >>> first = reservoir_sample(np.arange(30), keys[:30], Capacity(10), once[:30], seed=0)
    >>> rows = np.append(first, np.arange(30, 50))
    >>> in_two, at_once = (reservoir_sample(x, keys[x], Capacity(10), once[x], seed=0) for x in (rows, np.arange(50)))
    >>> len(in_two), in_two.tolist() == at_once.tolist()
    (10, True)
    """
    order = np.argsort(-uniform(seed, "exemplars/reservoir", keys), kind="stable")
    if capacity.unit == "samples":
        return np.sort(rows[order[: capacity.number]])
    return np.sort(rows[order[: int(np.searchsorted(np.cumsum(sizes[order]), capacity.number, side="right"))]])


def greedily_balanced(kept: RowNumbers, new: RowNumbers, labels: Labels, size: int, *, seed: int) -> RowNumbers:
    """GDumb's sampler (Prabhu et al., ECCV 2020, algorithm 1): a new row is added while its class has less than its share.

    If the memory is full, a random row of the largest class is removed. Once all classes have their share, nothing is added
    any more: on domains of the same classes the memory stays that of the first.

    Args:
        kept: row numbers in the memory.
        new: row numbers of the new domain or task, taken in a random order.
        labels: (stream,) class of each row of the stream.
        size: size of the memory.
        seed: seed for the draws.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> first = greedily_balanced(np.array([], np.int64), np.arange(4), labels[:4], 4, seed=0)
    >>> kept = greedily_balanced(first, np.arange(4, 8), labels, 4, seed=0)
    >>> first, labels[kept]
    (array([0, 1, 2, 3]), array([0, 0, 1, 1]))
    """
    draw = rng(seed, "exemplars/greedy", str(len(labels)))
    held = rows_by_class(kept, labels[kept])
    lists = {label: rows.tolist() for label, rows in held.items()}
    for row in draw.permutation(new).tolist():
        own = lists.setdefault(int(labels[row]), [])
        if len(own) * len(lists) >= size:
            continue
        if sum(map(len, lists.values())) >= size:
            largest = max(lists.values(), key=len)  # the first of equals
            largest.pop(int(draw.integers(len(largest))))
        own.append(row)
    return np.sort(np.array([row for rows in lists.values() for row in rows], dtype=np.int64))


def given(rows: RowNumbers, keys: Sequence[str], order: Mapping[str, int]) -> RowNumbers:
    """Rows whose key is in ``order``, sorted by its number; ``keys`` are the keys of ``rows``.

    >>> given(np.array([4, 5, 6]), ["a", "b", "c"], {"c": 0, "a": 1})
    array([6, 4])
    """
    known = sorted((order[key], row) for key, row in zip(keys, rows.tolist(), strict=True) if key in order)
    return np.array([row for _, row in known], dtype=np.int64)


def rows_by_class(rows: RowNumbers, labels: Labels) -> dict[int, RowNumbers]:
    """Class -> its rows in their order, classes ascending; ``labels`` are the labels of ``rows``.

    A sample with a set of labels (n, k) belongs to its first label.

    >>> rows_by_class(np.array([5, 6, 7]), np.array([1, 0, 1]))
    {0: array([6]), 1: array([5, 7])}
    """
    own = labels if labels.ndim == 1 else labels[:, 0]
    order = np.argsort(own, kind="stable")
    values, starts = np.unique(own[order], return_index=True)
    return dict(zip(values.tolist(), np.split(rows[order], starts[1:]), strict=False))  # no labels: one empty part


def nearest_means(features: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n,) int64: index of the nearest of ``means`` (classes, d), of length 1, for each normalised row of ``features`` (n, d).

    Ties go to the first.

    >>> nearest_means(np.array([[3.0, 0.1], [0.2, 5.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([0, 1])
    """
    unit = normalised(features)
    # |a - b|^2 = 2 - 2 a b for vectors of length 1: the largest product is the nearest.
    return np.asarray((unit @ means.T).argmax(1), dtype=np.int64)


def class_means(features: NDArray[np.float64], labels: Labels, classes: int) -> NDArray[np.float64]:
    """(classes, d): for each class the mean of its normalised features, normalised again, as in the iCaRL paper.

    Raises:
        ValueError: a class has no exemplar.

    >>> class_means(np.array([[3.0, 4.0], [6.0, 8.0]]), np.array([0, 0]), classes=1)  # of vectors of length 1
    array([[0.6, 0.8]])
    """
    unit = normalised(features)
    empty = np.setdiff1d(np.arange(classes), labels)
    if len(empty):
        raise ValueError(f"class {int(empty[0])} has no exemplar, so it has no mean: the memory is too small")
    return normalised(np.stack([unit[labels == label].mean(0) for label in range(classes)]))


def normalised(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale rows to length 1; a row of zeros stays zero. Takes and returns (n, d).

    >>> normalised(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    values = np.asarray(features, dtype=np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def current_rows(sizes: Sequence[int]) -> RowNumbers:
    """Row numbers of the last domain of a stream whose domains have ``sizes`` rows.

    >>> current_rows([3, 2])
    array([3, 4])
    """
    return np.arange(sum(sizes[:-1]), sum(sizes), dtype=np.int64)


def acceptance(alpha: float, capacity: int, seen: int, *, dynamic: bool) -> float:
    """Probability that a row of the current domain enters the buffer (Lin et al., NeurIPS 2021, biased reservoir).

    min(1, a k / i), where k is the buffer's capacity, i the number of rows seen so far including the current domain, and a is
    ``alpha`` (fixed), or ``alpha`` i / k (dynamic), which makes the probability min(1, ``alpha``) for any i. a = 1, fixed, is
    Vitter's reservoir; a > 1 favours the current domain.

    Raises:
        ValueError: alpha is negative, or capacity or seen is not positive.

    >>> acceptance(1.0, capacity=100, seen=400, dynamic=False)  # 1 * 100 / 400
    0.25
    >>> acceptance(1.0, capacity=100, seen=400, dynamic=True)
    1.0
    """
    if alpha < 0 or capacity < 1 or seen < 1:
        raise ValueError(f"alpha {alpha}, capacity {capacity}, seen {seen}: alpha >= 0 and the others >= 1")
    bias = alpha * seen / capacity if dynamic else alpha
    return min(1.0, bias * capacity / seen)


def biased_reservoir(
    buffer: RowNumbers, sizes: Sequence[int], *, seed: int, alpha: float, dynamic: bool, removal: Removal = "as_released"
) -> RowNumbers:
    """Return the buffer after the last domain (CLEAR, section 4: biased reservoir sampling).

    The first domain fills the buffer and sets its capacity k. For each later domain, every row is accepted with the same
    probability (see ``acceptance``), the buffer is shuffled, an equal number of rows is removed, and the accepted rows are
    appended.

    Args:
        buffer: row numbers before; empty at the first domain.
        sizes: number of rows of each domain so far, the current one last.
        seed: the draws depend on (seed, number of domains) alone.
        removal: for t accepted rows, "as_released" keeps the first k - t rows of the shuffled buffer, "as_written" drops its
            first t rows. The two choose different rows with the same distribution.

    Returns:
        k row numbers. If more than k rows of a larger domain are accepted, a random k of them are kept (our choice: the paper's
        domains have equal size, so that this cannot happen).

    Raises:
        ValueError: ``removal`` is neither, or as ``acceptance``.

    >>> kept = biased_reservoir(np.array([], np.int64), [4], seed=0, alpha=1.0, dynamic=False)
    >>> kept  # the first domain fills the buffer
    array([0, 1, 2, 3])
    >>> kept = biased_reservoir(kept, [4, 4], seed=0, alpha=2.0, dynamic=False)
    >>> len(kept), bool((kept >= 4).all())  # the probability is 2 * 4 / 8: every row of the present is accepted
    (4, True)
    """
    if removal not in ("as_released", "as_written"):
        raise ValueError(f"removal {removal!r}: 'as_released' or 'as_written'")
    current = current_rows(sizes)
    if len(sizes) == 1:
        return current
    capacity = int(sizes[0])
    draw = rng(seed, "reservoir", str(len(sizes)))
    accepted = current[draw.random(len(current)) <= acceptance(alpha, capacity, int(sum(sizes)), dynamic=dynamic)]
    if len(accepted) > capacity:
        accepted = np.sort(draw.permutation(accepted)[:capacity])
    shuffled = draw.permutation(buffer)
    kept = shuffled[: capacity - len(accepted)] if removal == "as_released" else shuffled[len(accepted) :]
    return np.concatenate([kept, accepted])


def drawn_share(rows: RowNumbers, share: float, *, seed: int, key: str) -> RowNumbers:
    """A memory of one task: int(share n) of its rows, at least 1, in their order; the draw depends on (seed, key) alone.

    Raises:
        ValueError: see ``check_share``.

    >>> kept = drawn_share(np.arange(20, 40), 0.1, seed=0, key="task 3")
    >>> len(kept), bool(kept[0] < kept[1]), len(drawn_share(np.arange(3), 0.1, seed=0, key="task 3"))
    (2, True, 1)
    """
    check_share(share)
    chosen = rng(seed, "graph_streams memory", key).permutation(len(rows))[: max(1, int(share * len(rows)))]
    return rows[np.sort(chosen)]


def check_share(share: float) -> None:
    """Raise ValueError unless ``share`` is in (0, 1].

    >>> check_share(1.5)
    Traceback (most recent call last):
        ...
    ValueError: fraction 1.5 of a task kept in memory: above 0, and 1 at most
    """
    if not 0 < share <= 1:
        raise ValueError(f"fraction {share} of a task kept in memory: above 0, and 1 at most")
