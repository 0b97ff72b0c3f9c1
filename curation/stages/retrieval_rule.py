"""Which candidate goes to which concept, within one bucket: overlaps, near-duplicates, refilling, and the background.

Source: CLEAR (Lin et al., NeurIPS 2021 Datasets and Benchmarks), section 3, and its released code; see ``Rule.overlap``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from .neighbours import Distinct, Vectors
from .shortage import OnShortage


@dataclasses.dataclass(frozen=True)
class Rule:
    """How rows are assigned to concepts, bucket by bucket.

    Attributes:
        candidates: number of rows that each prompt nominates (16,000 in CLEAR).
        per_class: number of rows to choose for each concept (600 in CLEAR).
        overlap: ``as_released``: a row nominated by several prompts goes to the one that scores it highest, ties to the
            first prompt (released code, all surviving versions). ``as_written``: a row among the best ``per_class`` of
            more than one concept is discarded from all of them and the next candidates take its place, until no row
            appears twice (the paper's text; that "co-occurring" is judged among the chosen rows rather than among all
            candidates is our choice: otherwise small buckets would lose every row).
        background: name of the class of the rows with the lowest scores, or "" for none.
        background_share: rows that each prompt contributes to the background, as a share of ``per_class``, rounded down (0.1
            in CLEAR).
        near_duplicate_cosine: rows whose cosine with a better row of their concept is above this are skipped, and the next
            candidates take their place; None (as in CLEAR) keeps them.
        on_shortage: what to do when a bucket has fewer than ``per_class`` rows for a concept: ``keep`` those, with a warning
            that gives the number (``quiet``: without), or stop with an ``error``.
    """

    candidates: int
    per_class: int
    overlap: Literal["as_released", "as_written"]
    background: str = ""
    background_share: float = 0.0
    near_duplicate_cosine: float | None = None
    on_shortage: OnShortage = "keep"

    def __post_init__(self) -> None:
        if self.per_class < 1 or self.candidates < self.per_class:
            raise ValueError(
                f"retrieval rule: {self.candidates} candidates for {self.per_class} rows a class; "
                "expected at least one row per class, and at least as many candidates"
            )
        if not 0 <= self.background_share <= 1:
            raise ValueError(f"retrieval rule: background_share is {self.background_share}: a number from 0 to 1")
        if self.near_duplicate_cosine is not None and not -1 <= self.near_duplicate_cosine <= 1:
            raise ValueError(f"retrieval rule: near_duplicate_cosine is {self.near_duplicate_cosine}: a number from -1 to 1")
        if self.overlap not in ("as_released", "as_written"):
            raise ValueError(f"retrieval rule: overlap is {self.overlap!r}, not 'as_released' or 'as_written'")
        if self.on_shortage not in ("keep", "quiet", "error"):
            raise ValueError(f"retrieval rule: on_shortage is {self.on_shortage!r}, not 'keep', 'quiet' or 'error'")
        if bool(self.background) != (self.background_rows > 0):
            raise ValueError(
                f"retrieval rule: background {self.background!r} with {self.background_rows} rows a prompt; "
                "a background needs a name and a share that gives at least one row"
            )

    @property
    def background_rows(self) -> int:
        """Rows that each prompt contributes to the background: ``int(per_class * background_share)``, as released."""
        return int(self.per_class * self.background_share)


class Nominated(NamedTuple):
    """Rows nominated by each query: scores (q, k) float64 descending, and ids (q, k) int64, -1 for none."""

    scores: np.ndarray
    ids: np.ndarray


class Selection(NamedTuple):
    """Chosen rows in the order (concept, rank): arrays of equal length. The background has the last concept number."""

    ids: np.ndarray
    concepts: np.ndarray
    queries: np.ndarray
    scores: np.ndarray
    ranks: np.ndarray


class _Listing(NamedTuple):
    """Candidates of one concept, best first, ties by id."""

    ids: np.ndarray
    scores: np.ndarray
    queries: np.ndarray


def select(
    top: Nominated, bottom: Nominated | None, *, concept_of: np.ndarray, rule: Rule, vectors: Vectors
) -> tuple[Selection, dict[str, np.ndarray]]:
    """Choose the rows of one bucket.

    Args:
        top: rows of the largest cosines.
        bottom: rows of the smallest cosines, with negated scores; None without a background.
        concept_of: (q,) int64, concept number of each query, ascending.
        rule: how rows are assigned to concepts.
        vectors: vectors of the rows; used only if near-duplicates are skipped.

    Returns:
        The chosen rows, and the rejected ids (n,) by reason (``several_concepts``, ``near_duplicate``).
    """
    concepts = int(concept_of[-1]) + 1
    lists = _listings(top, concept_of, concepts, disjoint=rule.overlap == "as_released")
    if rule.near_duplicate_cosine is not None:
        vectors.load(np.concatenate([listing.ids[: 2 * rule.per_class] for listing in lists]))
    picks, shared = _disjoint_picks(lists, rule, vectors)
    chosen = [_chosen(listing, kept, number) for number, (listing, (kept, _)) in enumerate(zip(lists, picks, strict=True))]
    dropped = [ids for _, ids in picks]
    if bottom is not None:
        used = np.concatenate([part.ids for part in chosen])
        background, too_near = _background(bottom, used, rule, vectors)
        chosen.append(_chosen(background, background.ids, concepts)._replace(scores=-background.scores))
        dropped.append(too_near)
    everything = Selection(*(np.concatenate(column) for column in zip(*chosen, strict=True)))
    return everything, {"several_concepts": shared, "near_duplicate": np.concatenate(dropped)}


def _listings(found: Nominated, group_of: np.ndarray, groups: int, *, disjoint: bool) -> list[_Listing]:
    """Candidates of each group of queries, each row once with its best score; with ``disjoint`` only in its best group."""
    queries, places = np.nonzero(found.ids >= 0)
    ids, scores = found.ids[queries, places], found.scores[queries, places]
    same = [ids] if disjoint else [ids, group_of[queries]]  # columns by which candidates are one row
    order = np.lexsort((-scores, *same))  # stable: of equal scores, the first query comes first
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in same])
    best = order[first]
    best = best[np.lexsort((ids[best], -scores[best]))]
    group = group_of[queries[best]]
    by_group = (best[group == number] for number in range(groups))
    return [_Listing(ids[mine], scores[mine], queries[mine]) for mine in by_group]


def _disjoint_picks(
    lists: Sequence[_Listing], rule: Rule, vectors: Vectors
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Kept and dropped ids of each concept such that no row is kept twice, and the ids discarded from several concepts."""
    shared = np.empty(0, dtype=np.int64)
    while True:
        picks = [
            Distinct(vectors, rule.near_duplicate_cosine).pick(listing.ids[~np.isin(listing.ids, shared)], rule.per_class)
            for listing in lists
        ]
        ids, times = np.unique(np.concatenate([kept for kept, _ in picks]), return_counts=True)
        if not (times > 1).any():
            return picks, shared
        shared = np.union1d(shared, ids[times > 1])


def _background(bottom: Nominated, used: np.ndarray, rule: Rule, vectors: Vectors) -> tuple[_Listing, np.ndarray]:
    """The background, lowest cosine first, and the near-duplicates skipped on the way.

    Each row belongs to the prompt of its lowest cosine. Of the ``per_class`` lowest rows of each prompt, the first that no
    concept has chosen enter the background, up to ``background_rows``. Scores are negated cosines.
    """
    prompts = len(bottom.ids)
    lists = _listings(bottom, np.arange(prompts), prompts, disjoint=True)
    distinct = Distinct(vectors, rule.near_duplicate_cosine)
    kept: list[_Listing] = []
    dropped: list[np.ndarray] = []
    for listing in lists:
        walk = listing.ids[: rule.per_class]
        ids, too_near = distinct.pick(walk[~np.isin(walk, used)], rule.background_rows)
        mine = np.isin(listing.ids, ids)
        kept.append(_Listing(*(column[mine] for column in listing)))
        dropped.append(too_near)
    ids, scores, queries = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.lexsort((ids, -scores))
    return _Listing(ids[order], scores[order], queries[order]), np.concatenate(dropped)


def _chosen(listing: _Listing, kept: np.ndarray, concept: int) -> Selection:
    mine = np.isin(listing.ids, kept)
    count = int(mine.sum())
    ranks = np.arange(1, count + 1, dtype=np.int64)
    return Selection(listing.ids[mine], np.full(count, concept), listing.queries[mine], listing.scores[mine], ranks)
