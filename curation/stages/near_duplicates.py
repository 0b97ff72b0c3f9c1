"""Near-duplicates of pictures and clips, over all rows or within buckets, tasks, ...: find groups, choose which rows stay.

Rows are linked if their hashes or vectors are near; a group is a connected component of these links. Groups therefore do not
depend on the order of the rows; but a long chain may join pictures that are far apart, which is why thresholds are strict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..rows import REJECTS, Sifted, with_column
from .near_pairs import Pairs, Stacked, VectorSearch, hash_pairs, vector_pairs
from .picture_hash import DIGITS
from .ranks import coded
from .reorder import inverse

if TYPE_CHECKING:
    from ..stage_rows import Rows

REASON = "near_duplicate"
MAX_DISTANCE = 6
"""Default maximum of differing bits of 64 between two hashes; measurements are in ``docs/near_duplicates.md``."""

MIN_COSINE = 0.95
"""Default minimum cosine of near-duplicates; the right value depends on the encoder."""

_HELD_PAIRS = 1 << 22
_BLOCK_ROWS = 1 << 18
KeepRule = Literal["keep_all", "keep_first", "keep_best", "drop_across_splits"]


@dataclasses.dataclass(frozen=True)
class NearDuplicate:
    """Columns that the near-duplicate steps add.

    Attributes:
        duplicate_group: the smallest key of the group; None for a row without near-duplicates.
        duplicate_similarity: share of equal bits with the nearest other row, or cosine with it; None for a row without
            near-duplicates.

    >>> NearDuplicate("b", duplicate_group="a", duplicate_similarity=0.97).duplicate_group
    'a'
    """

    key: str
    duplicate_group: str | None
    duplicate_similarity: float | None


@dataclasses.dataclass(frozen=True)
class DuplicateRule:
    """Which rows are compared, and which rows of a group stay.

    Attributes:
        keep: ``keep_all``; ``keep_first``: keep the first by ``order_by``, then by key; ``keep_best``: keep the largest by
            ``best_by``, then the first by key; ``drop_across_splits``: if a group has rows of ``kept_split``, drop those of
            other splits.
        within: column (bucket, task, ...); only rows with the same value are compared. "": all rows are compared.
        order_by: column for ``keep_first``, such as a date; "": only the key. Rows without a value come last.
        best_by: numeric column for ``keep_best``.
        split: column with the split of a row, for ``drop_across_splits``; otherwise the report lists groups across splits.
        kept_split: the split of which no row is dropped.

    Raises:
        ValueError: ``keep`` is none of these, or ``drop_across_splits`` without ``split``.

    >>> DuplicateRule("drop_across_splits", split="role").kept_split
    'test'
    """

    keep: KeepRule = "keep_all"
    within: str = ""
    order_by: str = ""
    best_by: str = "pixels"
    split: str = ""
    kept_split: str = "test"

    def __post_init__(self) -> None:
        if self.keep not in get_args(KeepRule):
            raise ValueError(f"keep is {self.keep!r}: one of {', '.join(get_args(KeepRule))}")
        if self.keep == "drop_across_splits" and not self.split:
            raise ValueError("keep is 'drop_across_splits': give the column of splits as split")


def near_duplicates_by_hash(
    rows: Rows, *, max_distance: int = MAX_DISTANCE, column: str = "phash", rule: DuplicateRule = DuplicateRule()
) -> Iterator[Sifted]:
    """Group rows whose perceptual hashes are close. A ``whole`` step; ``gives=NearDuplicate``.

    Args:
        rows: rows with ``key``, hashes from ``picture_hash`` in ``column``, and the columns that the rule names.
        max_distance: maximum number of differing bits of 64; for clips the average over their frames.
        column: column of hashes; rows without a hash have no near-duplicates.
        rule: which rows are compared, and which stay.

    Yields:
        Kept rows with the columns of ``NearDuplicate``; others are rejected as ``near_duplicate``; the detail names the row
        that stays. Memory: 25 bytes per row, 8 more for each further frame of a clip, and about 200 per near-duplicate.

    Raises:
        ValueError: an invalid setting or column, or hashes of different lengths.

    >>> from benchwright.curation.stage_rows import Rows
    >>> rows = Rows.of(pa.table({"key": ["b", "a", "c"], "phash": ["00" * 8, "00" * 7 + "03", "ff" * 8]}))
    >>> kept, rejected = next(near_duplicates_by_hash(rows, rule=DuplicateRule("keep_first")))
    >>> kept["key"].to_pylist(), kept["duplicate_group"].to_pylist()
    (['a', 'c'], ['a', None])
    >>> rejected.to_pylist()
    [{'key': 'b', 'reason': 'near_duplicate', 'detail': 'a: similarity 0.969'}]
    """
    if not 0 <= max_distance < 4 * DIGITS:
        raise ValueError(f"max_distance is {max_distance}: 0 to {4 * DIGITS - 1} bits of {4 * DIGITS}")
    links = _Links()
    for stretch in _hashes(rows, column, rule.within):
        unique, numbers = _distinct(stretch, links)
        for pair in hash_pairs(unique, max_distance):
            links.add(Pairs(numbers[pair.left], numbers[pair.right], pair.similarity))
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
        rows: rows with ``key``, an array column of vectors, and the columns that the rule names.
        min_cosine: minimum cosine of near-duplicates; the right value depends on the encoder.
        column: column of vectors of one width, compared as float32 by their direction alone; those of length 0, or not
            finite, have no near-duplicates.
        search: exhaustive or approximate search.
        rule: which rows are compared, and which stay.
        device: ``cuda`` for faiss on a GPU; mark it with ``how``.

    Yields:
        As ``near_duplicates_by_hash``. Additional memory: 4 bytes per value of a vector, 2 if the search is ivf.

    Raises:
        ValueError: an invalid setting or column.

    Of three vectors, a and b are 37 degrees apart, b and c 53 degrees:

    >>> from benchwright.curation.stage_rows import Rows
    >>> class WithVectors(Rows):  # the rows of a stage have theirs in files
    ...     def arrays(self, column):
    ...         yield np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32)
    >>> rows = WithVectors.of(pa.table({"key": ["a", "b", "c"]}))
    >>> kept, rejected = next(near_duplicates_by_vector(rows, min_cosine=0.7, rule=DuplicateRule("keep_first")))
    >>> kept["key"].to_pylist(), rejected.to_pylist()
    (['a', 'c'], [{'key': 'b', 'reason': 'near_duplicate', 'detail': 'a: similarity 0.800'}])
    """
    if not -1 < min_cosine <= 1:
        raise ValueError(f"min_cosine is {min_cosine}: above -1, and 1 at most")
    vectors = Stacked(list(rows.arrays(column)))
    keys: list[str] = rows.table(["key"])["key"].to_pylist()
    links = _Links()
    for mine in (each for each in _compared(rows, rule.within) if len(each) > 1):
        for pair in vector_pairs(vectors, mine, [keys[at] for at in mine], min_cosine, search, device=device):
            links.add(pair)
    yield from _sifted(rows, links, rule)


def kept_key(detail: str) -> str:
    """Return the key of the row that stays, from the detail of a reject of this stage.

    >>> kept_key("a: similarity 0.969")
    'a'
    """
    return detail.rpartition(": similarity ")[0]


# --------------------------------------------------------------------------------------------------------------- groups


class _Links:
    """Groups of rows, updated as pairs come in, and the highest similarity of each row. Only rows in pairs take memory.

    Attributes:
        rows: numbers (n,) int64 of the rows in pairs, ascending.
        root: for each of these rows the index in ``rows`` of the representative of its group.
        nearest: for each of these rows the similarity of the nearest row.
    """

    def __init__(self) -> None:
        self.rows, self.root = np.empty((2, 0), dtype=np.int64)
        self.nearest = np.empty(0)
        self._held: list[Pairs] = []
        self._count = 0

    def add(self, pairs: Pairs) -> None:
        """Add pairs."""
        if not len(pairs.left):
            return
        self._held.append(pairs)
        self._count += len(pairs.left)
        if self._count >= max(_HELD_PAIRS, len(self.rows)):
            self.merge()

    def merge(self) -> None:
        """Bring the groups up to date."""
        from scipy.sparse import coo_array  # imported only when needed
        from scipy.sparse.csgraph import connected_components

        if not self._held:
            return
        left, right, similarity = (np.concatenate(column) for column in zip(*self._held, strict=True))
        self._held, self._count = [], 0
        rows = np.unique(np.concatenate([self.rows, left.astype(np.int64), right.astype(np.int64)]))
        left, right, earlier = (np.searchsorted(rows, each) for each in (left, right, self.rows))
        nearest = np.full(len(rows), -np.inf)
        nearest[earlier] = self.nearest
        np.maximum.at(nearest, left, similarity)
        np.maximum.at(nearest, right, similarity)
        # Each row of an earlier group is linked to the root of the group.
        edges = np.concatenate([earlier, left]), np.concatenate([earlier[self.root], right])
        graph = coo_array((np.ones(len(edges[0]), dtype=np.int8), edges), shape=(len(rows), len(rows)))
        label = connected_components(graph, directed=False)[1]
        self.rows, self.root, self.nearest = rows, np.unique(label, return_index=True)[1][label], nearest


def _hashes(rows: Rows, column: str, within: str) -> Iterator[list[np.ndarray]]:
    """Yield [hashes (n, words) uint64, row numbers] of each set of rows that are compared with one another.

    The consumer empties the list, so that memory does not hold the arrays twice.
    """
    if not within:
        yield list(_codes(rows, column))
        return
    codes, numbers = _codes(rows, column)
    for places in _stretches(coded(rows, within)[1][numbers]):
        yield [codes[places], numbers[places]]


def _distinct(stretch: list[np.ndarray], links: _Links) -> tuple[np.ndarray, np.ndarray]:
    """Distinct hashes and the first row of each; adds the other rows to ``links``. Hashes of one word are ascending."""
    codes, numbers = stretch
    stretch.clear()
    order = np.lexsort(codes.T)
    numbers = numbers[order]
    if codes.shape[1] > 1:
        codes = codes[order]
    else:
        codes.sort(axis=0)
    del order
    new = np.ones(len(codes), dtype=bool)
    np.any(codes[1:] != codes[:-1], axis=1, out=new[1:])
    if new.all():
        return codes, numbers
    starts, again = np.flatnonzero(new), np.flatnonzero(~new)
    first = numbers[starts[np.searchsorted(starts, again) - 1]]
    links.add(Pairs(first, numbers[again], np.ones(len(again))))
    return codes[new], numbers[new]


def _codes(rows: Rows, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Hashes, uint64 (n, words), of the rows that have one, and the numbers of these rows."""
    codes, there = np.empty((0, 1), dtype=np.uint64), np.zeros(rows.num_rows, dtype=bool)
    lengths, at, count = set[int](), 0, 0
    for table in rows.batches([column]):
        there[at : at + table.num_rows] = table[column].is_valid().to_numpy()
        at += table.num_rows
        texts = table[column].drop_null()
        lengths.update(pc.unique(pc.utf8_length(texts)).to_pylist())
        try:
            if len(lengths) > 1 or any(length % DIGITS or not length for length in lengths):
                raise ValueError(f"lengths {sorted(lengths)}")
            words = max(lengths, default=DIGITS) // DIGITS
            found = np.frombuffer(bytes.fromhex("".join(texts.to_pylist())), dtype=">u8").reshape(len(texts), words)
        except ValueError as error:
            raise ValueError(
                f"column {column!r} is not a column of hashes ({error}): expected {DIGITS} hexadecimal digits per picture, "
                "or per frame of equally long clips, as from hash_picture and hash_clip"
            ) from None
        if not len(codes):
            codes = np.empty((rows.num_rows, words), dtype=np.uint64)
        codes[count : count + len(found)] = found
        count += len(found)
    numbers = np.arange(rows.num_rows, dtype=_numbers_dtype(rows.num_rows))
    return codes[:count], numbers if count == rows.num_rows else numbers[there]


def _stretches(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the indices of each value (n,) int32, from value 0 on, ascending. Memory: 4 bytes per value, plus the values."""
    counts = np.bincount(values)
    ends = np.cumsum(counts)
    at = ends - counts
    order = np.empty(len(values), dtype=_numbers_dtype(len(values)))
    for start in range(0, len(values), _BLOCK_ROWS):
        block = values[start : start + _BLOCK_ROWS]
        places = np.argsort(block, kind="stable")
        for stretch in np.split(places, np.flatnonzero(np.diff(block[places])) + 1):
            number = block[stretch[0]]
            order[at[number] : at[number] + len(stretch)] = stretch + start
            at[number] += len(stretch)
    del values
    yield from (order[end - count : end] for end, count in zip(ends, counts, strict=True) if count)


def _numbers_dtype(count: int) -> type[np.unsignedinteger[Any]]:
    """The smaller of uint32 and uint64 that can number ``count`` rows."""
    return np.uint32 if count < 2**32 else np.uint64


def _compared(rows: Rows, within: str) -> Iterable[np.ndarray]:
    """Numbers (n,) int64, ascending, of each set of rows that are compared with one another: a set per value of the column."""
    if not within:
        return [np.arange(rows.num_rows)]
    return (places.astype(np.int64) for places in _stretches(coded(rows, within)[1]))


# ------------------------------------------------------------------------------------------------------------- what stays


def _sifted(rows: Rows, links: _Links, rule: DuplicateRule) -> Iterator[Sifted]:
    links.merge()
    linked = _linked(rows, links.rows, rule)
    keys = linked["key"]
    group = _first_of_each(links.root, _ranks(linked, [("key", "ascending")]))
    kept = _kept(linked, links.root, rule)
    dropped = kept != np.arange(len(kept))
    at = 0
    for table in rows.batches():
        mine = np.arange(*np.searchsorted(links.rows, [at, at + table.num_rows]))
        place, out = np.zeros(table.num_rows, dtype=np.int64), np.zeros(table.num_rows, dtype=bool)
        alone = ~out
        within = links.rows[mine] - at
        place[within], alone[within], out[within] = mine, False, dropped[mine]
        at += table.num_rows
        named_after = keys.take(pa.array(group[place], mask=alone)) if len(keys) else pa.nulls(len(place), pa.string())
        nearest = pa.array(links.nearest[place] if len(keys) else np.zeros(len(place)), mask=alone)
        table = with_column(with_column(table, "duplicate_group", named_after), "duplicate_similarity", nearest)
        mine = mine[dropped[mine]]
        stays = keys.take(pa.array(kept[mine])).to_pylist()
        details = [f"{key}: similarity {near:.3f}" for key, near in zip(stays, links.nearest[mine].tolist(), strict=True)]
        columns = table["key"].filter(pa.array(out)), [REASON] * len(stays), details
        yield Sifted(table.filter(pa.array(~out)), pa.table(dict(zip(REJECTS.names, columns, strict=True)), schema=REJECTS))


def _linked(rows: Rows, numbers: np.ndarray, rule: DuplicateRule) -> pa.Table:
    """Keys of the numbered rows, and the column by which the rule chooses among them."""
    by = {"keep_best": rule.best_by, "keep_first": rule.order_by, "drop_across_splits": rule.split}.get(rule.keep, "")
    if by and by not in rows.column_names:
        raise ValueError(f"near-duplicates: no column {by!r}: there are {', '.join(rows.column_names)}")
    names = ["key", by] if by not in ("", "key") else ["key"]
    found = [pa.schema([rows.schema.field(name) for name in names]).empty_table()]
    at, stays = 0, rule.keep != "drop_across_splits"
    for table in rows.batches(names):
        stays = stays or bool(pc.any(pc.equal(table[by], rule.kept_split)).as_py())
        mine = numbers[slice(*np.searchsorted(numbers, [at, at + table.num_rows]))] - at
        found.append(table.take(pa.array(mine)).cast(found[0].schema))
        at += table.num_rows
    if not stays:
        raise ValueError(f"no row has {rule.kept_split!r} in column {rule.split!r}: give the split that stays as kept_split")
    return pa.concat_tables(found)


def _kept(linked: pa.Table, root: np.ndarray, rule: DuplicateRule) -> np.ndarray:
    """For each row the index of the row that stays in its place (its own index if it stays), int64 (n,)."""
    itself = np.arange(len(root))
    if rule.keep == "keep_all":
        return itself
    if rule.keep == "drop_across_splits":
        stays = pc.equal(linked[rule.split], rule.kept_split).fill_null(False).to_numpy()
        rank = _ranks(linked, [("key", "ascending")])
        first = _first_of_each(root, np.where(stays, rank, rank + len(rank)))
        return np.where(stays | ~stays[first], itself, first)
    by = [(rule.best_by, "descending")] if rule.keep == "keep_best" else [(rule.order_by, "ascending")] * bool(rule.order_by)
    return _first_of_each(root, _ranks(linked, [*by, ("key", "ascending")]))


def _ranks(table: pa.Table, by: list[tuple[str, str]]) -> np.ndarray:
    """Rank of each row when sorted by some columns; a row without a value comes last."""
    return inverse(pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64))


def _first_of_each(root: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """For each row the index of the row of lowest rank in its group."""
    order = np.argsort(ranks, kind="stable")
    _, first, which = np.unique(root[order], return_index=True, return_inverse=True)
    found = np.empty(len(root), dtype=np.int64)
    found[order] = order[first][which]
    return found
