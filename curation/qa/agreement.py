"""Agreement of annotators: Fleiss' kappa, and a table of workers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .options import NO, YES
from .votes import QuestionForm, people_of

_MIN_VOTES = 10
"""Minimum number of votes or gold answers for a flag."""


def votes_kappa(votes: pa.Table, *, form: QuestionForm) -> float:
    """Fleiss' kappa of one form: agreement beyond chance among several raters (Fleiss, "Measuring nominal scale agreement
    among many raters", 1971). A category is one answer: Yes or No, or the exact set of classes chosen.

    Images may have different numbers of votes: this is the generalisation of Gwet (Handbook of Inter-Rater Reliability,
    4th ed. 2014, ch. 2), which equals Fleiss' kappa for equal numbers. The observed agreement is the mean, over the images
    with at least two votes, of the share of agreeing pairs; the share of a category is the mean of its shares over all images.

    Args:
        votes: ``votes.VOTES``.

    Returns:
        (P - P_e) / (1 - P_e), at most 1; 0 is the level of chance. NaN if no image has two votes, or if all votes are in
        one category (P_e = 1).
    """
    asked = people_of(votes.filter(pc.equal(votes["form"], form)))
    (items, _), (categories, answers) = _numbered(asked["key"]), _numbered(_answers(asked))
    cells, counts = np.unique(items * len(answers) + categories, return_counts=True)
    items, categories = np.divmod(cells, max(1, len(answers)))
    ratings = np.bincount(items, weights=counts)
    several = ratings > 1
    if not several.any():
        return float("nan")
    agreeing = np.bincount(items, weights=counts * (counts - 1.0))
    observed = float(np.mean(agreeing[several] / (ratings[several] * (ratings[several] - 1))))
    shares = np.bincount(categories, weights=counts / ratings[items]) / len(ratings)
    expected = float(np.sum(shares**2))
    # If all votes are in one category, 1 - P_e is zero up to rounding, and kappa is undefined.
    return (observed - expected) / (1 - expected) if len(shares) > 1 else float("nan")


def worker_table(
    votes: pa.Table,
    *,
    gold: Mapping[str, str] | None = None,
    background: str = "",
) -> pa.Table:
    """Statistics of each worker, one row per worker, those with the most label votes first.

    Args:
        votes: ``votes.VOTES``, including votes on gold questions.
        gold: key -> right class of the gold questions; the background class means none of the above.
        background: the background class.

    Returns:
        ``worker``; ``num_labels``, ``num_sensitive``; ``agreement``: share of the worker's label votes that equal the
        majority answer of the image (more than half of its votes, at least two), over images that have one; ``num_gold``,
        ``gold_right``, ``gold_accuracy``; ``yes_rate`` on the sensitive form; ``median_seconds`` of both forms; ``flags``:
        list of ``low_agreement`` (below 0.5), ``low_gold`` (below 0.7) and ``fast`` (median below two seconds), each only
        with at least ten votes or gold answers. Shares are in [0, 1], null if nothing was counted.
    """
    votes = people_of(votes)
    of, workers = _numbered(votes["worker"])
    answers = _answers(votes)
    on_labels = pc.equal(votes["form"], "labels").to_numpy()
    truth = pa.table({"key": [*(gold or {})], "right": ["" if name == background else name for name in (gold or {}).values()]})
    truth = truth.cast(pa.schema([("key", pa.string()), ("right", pa.string())]))
    right = truth["right"].take(pc.index_in(votes["key"], value_set=truth["key"]))
    agrees, judged = _with_majority(votes["key"], answers, on_labels)
    on_gold, is_right = on_labels & right.is_valid().to_numpy(), _true(pc.equal(answers, right))
    on_sensitive, is_yes = pc.equal(votes["form"], "sensitive").to_numpy(), _true(pc.equal(answers, YES))

    def count(which: np.ndarray) -> np.ndarray:
        return np.bincount(of[which], minlength=len(workers))

    num_labels, num_sensitive, num_gold = count(on_labels), count(on_sensitive), count(on_gold)
    agreement, gold_accuracy = _share(count(judged & agrees), count(judged)), _share(count(on_gold & is_right), num_gold)
    seconds = _medians(of, votes["seconds"], len(workers))
    rules = {
        "low_agreement": (num_labels >= _MIN_VOTES) & (agreement < 0.5),
        "low_gold": (num_gold >= _MIN_VOTES) & (gold_accuracy < 0.7),
        "fast": (num_labels + num_sensitive >= _MIN_VOTES) & (seconds < 2.0),
    }
    flags = [[name for name, hit in rules.items() if hit[n]] for n in range(len(workers))]
    table = pa.table(
        {
            "worker": workers,
            "num_labels": num_labels,
            "num_sensitive": num_sensitive,
            "agreement": _known(agreement),
            "num_gold": num_gold,
            "gold_right": count(on_gold & is_right),
            "gold_accuracy": _known(gold_accuracy),
            "yes_rate": _known(_share(count(on_sensitive & is_yes), num_sensitive)),
            "median_seconds": _known(seconds),
            "flags": pa.array(flags, pa.list_(pa.string())),
        }
    )
    return table.sort_by([("num_labels", "descending"), ("worker", "ascending")])


def _answers(votes: pa.Table) -> pa.ChunkedArray:
    """``Yes``, ``No``, or the classes chosen, joined by a control character ("" = none)."""
    yes_no = pc.if_else(pc.fill_null(votes["sensitive"], False), YES, NO)
    return pc.if_else(pc.equal(votes["form"], "labels"), pc.binary_join(votes["labels"], "\x1f"), yes_no)


def _numbered(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Number of each text among the sorted distinct texts, and the distinct texts."""
    names = pc.unique(column).sort()
    return pc.index_in(column, value_set=names).to_numpy().astype(np.int64), names


def _with_majority(keys: pa.ChunkedArray, answers: pa.ChunkedArray, votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each vote: whether it equals the majority answer of its item, and whether the item has a majority answer.

    A majority answer has more than half of the item's votes, and at least two.
    """
    (items, _), (categories, names) = _numbered(keys), _numbered(answers)
    items, categories = items[votes], categories[votes]
    cells, cell, counts = np.unique(items * len(names) + categories, return_inverse=True, return_counts=True)
    total = np.bincount(items)
    won = (2 * counts > total[cells // max(1, len(names))]) & (counts > 1)
    decided = np.zeros(len(total), dtype=bool)
    decided[cells[won] // max(1, len(names))] = True
    agrees, judged = np.zeros(len(votes), dtype=bool), np.zeros(len(votes), dtype=bool)
    agrees[votes], judged[votes] = won[cell], decided[items]
    return agrees, judged


def _medians(of: np.ndarray, seconds: pa.ChunkedArray, workers: int) -> np.ndarray:
    """Median of the known seconds of each worker, (workers,); NaN for workers without any."""
    known = seconds.is_valid().to_numpy()
    order = np.argsort(of[known], kind="stable")
    edges = np.searchsorted(of[known][order], np.arange(1, workers))
    groups = np.split(seconds.drop_null().to_numpy()[order], edges)
    return np.array([np.median(group) if len(group) else np.nan for group in groups[:workers]])


def _true(mask: pa.ChunkedArray) -> np.ndarray:
    return mask.fill_null(False).to_numpy()


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def _known(values: np.ndarray) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null
