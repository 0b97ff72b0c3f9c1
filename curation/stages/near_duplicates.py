"""Near-duplicates of pictures and clips, over all rows or within buckets, tasks, ...: who they are, and which of them stay.

Rows that are near one another, by their hashes or their vectors, make a group, and so do those that are linked by others: a
group is a connected component. So it does not depend on the order of the rows; and a long series may join pictures that are far
apart, which is why thresholds are strict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..rows import REJECTS, Sifted, with_column
from .near_pairs import Pairs, Stacked, VectorSearch, hash_pairs, vector_pairs
from .picture_hash import DIGITS

if TYPE_CHECKING:
    from ..store import Rows

REASON = "near_duplicate"
MAX_DISTANCE = 6
"""Bits of 64 in which two hashes may differ; ``docs/near_duplicates.md`` has what was measured."""

MIN_COSINE = 0.95
"""Least cosine of near-duplicates; what it should be depends on the encoder."""

_HELD_PAIRS = 1 << 22
Keep = Literal["keep_all", "keep_first", "keep_best", "drop_across_splits"]


@dataclasses.dataclass(frozen=True)
class NearDuplicate:
    """Columns that tell of near-duplicates.

    Attributes:
        duplicate_group: the smallest key of the group; None for a row that is near no other.
        duplicate_similarity: to the nearest other row: the share of equal bits, or the cosine; None likewise.

    >>> NearDuplicate("b", duplicate_group="a", duplicate_similarity=0.97).duplicate_group
    'a'
    """

    key: str
    duplicate_group: str | None
    duplicate_similarity: float | None


@dataclasses.dataclass(frozen=True)
class DuplicateRule:
    """What is compared, and which rows of a group stay.

    Attributes:
        keep: ``keep_all``; ``keep_first``: the first by ``order_by``, then by key; ``keep_best``: the largest by ``best_by``,
            then the first by key; ``drop_across_splits``: of a group that has rows of ``kept_split``, none of other splits.
        within: column (bucket, task, ...) within whose values rows are compared; "": all with all.
        order_by: column of ``keep_first``, such as a date; "": the key alone. Rows without a value come last.
        best_by: column of ``keep_best``: a number.
        split: column that says the split of a row, for ``drop_across_splits``; else the report tells of groups across splits.
        kept_split: the split that stays as it is.

    >>> DuplicateRule("drop_across_splits", split="role").kept_split
    'test'
    """

    keep: Keep = "keep_all"
    within: str = ""
    order_by: str = ""
    best_by: str = "pixels"
    split: str = ""
    kept_split: str = "test"

    def __post_init__(self) -> None:
        if self.keep not in ("keep_all", "keep_first", "keep_best", "drop_across_splits"):
            raise ValueError(f"keep is {self.keep!r}: one of keep_all, keep_first, keep_best, drop_across_splits")
        if self.keep == "drop_across_splits" and not self.split:
            raise ValueError("keep is 'drop_across_splits': give the column of splits as split")


def near_duplicates_by_hash(
    rows: Rows, *, max_distance: int = MAX_DISTANCE, column: str = "phash", rule: DuplicateRule = DuplicateRule()
) -> Iterator[Sifted]:
    """Group rows whose perceptual hashes are close. A ``whole`` step; ``gives=NearDuplicate``.

    Args:
        rows: with ``key``, ``column`` as ``picture_hash`` gives it, and the columns that the rule names.
        max_distance: most bits of 64 in which two pictures differ; of clips on average over their frames.
        column: of hashes; rows without one are near no other.
        rule: what is compared, and what stays.

    Yields:
        Kept rows with the columns of ``NearDuplicate``; others are rejected as ``near_duplicate``, with the key that stays.
        Memory: about 100 bytes a row.

    Raises:
        ValueError: a setting or column that is wrong, or hashes of several lengths.

    >>> from benchwright.curation.store import Rows
    >>> rows = Rows.of(pa.table({"key": ["b", "a", "c"], "phash": ["00" * 8, "00" * 7 + "03", "ff" * 8]}))
    >>> kept, rejected = next(near_duplicates_by_hash(rows, rule=DuplicateRule("keep_first")))
    >>> kept["key"].to_pylist(), kept["duplicate_group"].to_pylist()
    (['a', 'c'], ['a', None])
    >>> rejected.to_pylist()
    [{'key': 'b', 'reason': 'near_duplicate', 'detail': 'a: similarity 0.969'}]
    """
    if not 0 <= max_distance < 4 * DIGITS:
        raise ValueError(f"max_distance is {max_distance}: 0 to {4 * DIGITS - 1} bits of {4 * DIGITS}")
    codes, there = _codes(rows, column)
    links = _Links(rows.num_rows)
    for mine in _compared(rows, rule.within):
        mine = mine[there[mine]]
        unique, first, which = np.unique(codes[mine], axis=0, return_index=True, return_inverse=True)
        same = first[which.reshape(-1)] != np.arange(len(mine))
        links.add(Pairs(mine[first[which.reshape(-1)][same]], mine[same], np.ones(int(same.sum()))))
        for pair in hash_pairs(unique, max_distance):
            links.add(Pairs(mine[first[pair.left]], mine[first[pair.right]], pair.similarity))
    yield from _sifted(rows, links, rule)


def near_duplicates_by_vector(
    rows: Rows,
    *,
    min_cosine: float = MIN_COSINE,
    column: str = "embedding",
    search: VectorSearch = VectorSearch(),  # noqa: B008
    rule: DuplicateRule = DuplicateRule(),
    device: str = "cpu",
) -> Iterator[Sifted]:
    """Group rows whose vectors are close. A ``whole`` step; ``gives=NearDuplicate``.

    Args:
        rows: with ``key``, an array column of vectors, and the columns that the rule names.
        min_cosine: least cosine of near-duplicates; it depends on the encoder.
        column: of vectors, of any length; those of length 0 are near no other.
        search: all with all, or approximate.
        rule: what is compared, and what stays.
        device: ``cuda`` for faiss on a GPU; mark it with ``how``.

    Yields:
        As ``near_duplicates_by_hash``. Memory beside that: 4 bytes a value of a vector, 2 where the search is ivf.

    Raises:
        ValueError: a setting or column that is wrong.
    """
    if not -1 < min_cosine <= 1:
        raise ValueError(f"min_cosine is {min_cosine}: above -1, and 1 at most")
    vectors = Stacked(list(rows.arrays(column)))
    keys: list[str] = rows.table(["key"])["key"].to_pylist()
    links = _Links(rows.num_rows)
    for mine in (each for each in _compared(rows, rule.within) if len(each) > 1):
        for pair in vector_pairs(vectors, mine, [keys[at] for at in mine], min_cosine, search, device=device):
            links.add(pair)
    yield from _sifted(rows, links, rule)


def kept_key(detail: str) -> str:
    """The key of the row that stays, of the detail of a reject of this stage."""
    return detail.rpartition(": similarity ")[0]


# --------------------------------------------------------------------------------------------------------------- groups


class _Links:
    """Groups of rows as pairs come in, and how similar the nearest of each row is. Memory: some numbers a row."""

    def __init__(self, count: int) -> None:
        self._root = np.arange(count)
        self._held: list[tuple[np.ndarray, np.ndarray]] = []
        self._count = 0
        self.nearest = np.full(count, -np.inf)

    def add(self, pairs: Pairs) -> None:
        """Take pairs into account."""
        if not len(pairs.left):
            return
        np.maximum.at(self.nearest, pairs.left, pairs.similarity)
        np.maximum.at(self.nearest, pairs.right, pairs.similarity)
        self._held.append((pairs.left, pairs.right))
        self._count += len(pairs.left)
        if self._count >= max(_HELD_PAIRS, len(self._root)):
            self._merge()

    def groups(self) -> np.ndarray:
        """A number (n,) for each row, equal within a group."""
        self._merge()
        return self._root

    def _merge(self) -> None:
        from scipy.sparse import coo_array  # not before they are needed
        from scipy.sparse.csgraph import connected_components

        if not self._held:
            return
        count = len(self._root)
        left = np.concatenate([np.arange(count), *(each for each, _ in self._held)])
        # Of earlier groups each row stands by its root alone: a row of the group.
        right = np.concatenate([self._root, *(each for _, each in self._held)])
        graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(count, count))
        label = connected_components(graph, directed=False)[1]
        first = np.unique(label, return_index=True)[1]
        self._root, self._held, self._count = first[label], [], 0


def _codes(rows: Rows, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Hashes as uint64 (n, words), and which rows have one."""
    texts = rows.table([column])[column].combine_chunks()
    there = texts.is_valid().to_numpy(zero_copy_only=False)
    held = texts.drop_null()
    lengths: list[int] = sorted(pc.unique(pc.utf8_length(held)).to_pylist()) or [DIGITS]
    try:
        if len(lengths) > 1 or lengths[0] % DIGITS or not lengths[0]:
            raise ValueError(f"lengths {lengths}")
        found = np.frombuffer(bytes.fromhex("".join(held.to_pylist())), dtype=">u8").reshape(len(held), lengths[0] // DIGITS)
    except ValueError as error:
        raise ValueError(
            f"column {column!r} is not a column of hashes ({error}): expected {DIGITS} hexadecimal digits a picture or frame, "
            "as hash_picture and hash_clip give them, and of clips as many frames of each"
        ) from None
    codes = np.zeros((len(texts), lengths[0] // DIGITS), dtype=np.uint64)
    codes[there] = found
    return codes, there


def _compared(rows: Rows, within: str) -> Iterable[np.ndarray]:
    """Numbers of the rows that are compared with one another, ascending: a stretch a value of the column."""
    if not within:
        return [np.arange(rows.num_rows)]
    codes = rows.table([within])[within].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


# ------------------------------------------------------------------------------------------------------------- what stays


def _sifted(rows: Rows, links: _Links, rule: DuplicateRule) -> Iterator[Sifted]:
    root = links.groups()
    keys = rows.table(["key"])["key"].combine_chunks()
    group = _first_of_each(root, _ranks(rows, [("key", "ascending")]))
    alone = np.isinf(links.nearest)
    kept = _kept(rows, root, rule)
    dropped = kept != np.arange(rows.num_rows)
    at = 0
    for table in rows.batches():
        mine = slice(at, at + table.num_rows)
        at += table.num_rows
        told = keys.take(pa.array(group[mine], mask=alone[mine]))
        nearest = pa.array(links.nearest[mine], mask=alone[mine])
        table = with_column(with_column(table, "duplicate_group", told), "duplicate_similarity", nearest)
        out = dropped[mine]
        stays = keys.take(pa.array(kept[mine][out])).to_pylist()
        details = [f"{key}: similarity {near:.3f}" for key, near in zip(stays, links.nearest[mine][out].tolist(), strict=True)]
        columns = table["key"].filter(pa.array(out)), [REASON] * len(stays), details
        yield Sifted(table.filter(pa.array(~out)), pa.table(dict(zip(REJECTS.names, columns, strict=True)), schema=REJECTS))


def _kept(rows: Rows, root: np.ndarray, rule: DuplicateRule) -> np.ndarray:
    """For each row the one that stays in its place: itself where it stays. int64 (n,)."""
    itself = np.arange(rows.num_rows)
    if rule.keep == "keep_all":
        return itself
    if rule.keep == "drop_across_splits":
        stays = (
            pc.equal(rows.table([rule.split])[rule.split], rule.kept_split).combine_chunks().fill_null(False).to_numpy(False)
        )
        if not stays.any():
            raise ValueError(
                f"no row has {rule.kept_split!r} in column {rule.split!r}: give the split that stays as kept_split"
            )
        rank = _ranks(rows, [("key", "ascending")])
        first = _first_of_each(root, np.where(stays, rank, rank + len(rank)))
        return np.where(stays | ~stays[first], itself, first)
    by = [(rule.best_by, "descending")] if rule.keep == "keep_best" else [(rule.order_by, "ascending")] * bool(rule.order_by)
    return _first_of_each(root, _ranks(rows, [*by, ("key", "ascending")]))


def _ranks(rows: Rows, by: list[tuple[str, str]]) -> np.ndarray:
    """Place of each row in the order of some columns; a row without a value comes last."""
    if missing := [name for name, _ in by if name not in rows.column_names]:
        raise ValueError(f"near-duplicates: no column {missing[0]!r}: there are {', '.join(rows.column_names)}")
    order = pc.sort_indices(rows.table([name for name, _ in by]), sort_keys=by).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _first_of_each(root: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """For each row the row of its group that has the lowest rank."""
    order = np.argsort(ranks, kind="stable")
    _, first, which = np.unique(root[order], return_index=True, return_inverse=True)
    found = np.empty(len(root), dtype=np.int64)
    found[order] = order[first][which]
    return found
