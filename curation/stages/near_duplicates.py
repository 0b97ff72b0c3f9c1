"""Near-duplicates of pictures and clips, over all rows or within buckets, tasks, ...: find groups, choose which rows stay.

Rows are linked if their hashes or vectors are near; a group is a connected component of these links. Groups therefore do not
depend on the order of the rows; but a long chain may join pictures that are far apart, which is why thresholds are strict.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..rows import REJECTS, Sifted, with_column
from . import near_hashes
from .external_sort import numbers_dtype
from .near_hashes import Pairs, numbered_hash_pairs
from .near_vectors import VectorSearch, distinct_vectors, vector_pairs
from .picture_hash import DIGITS
from .ranks import Codes
from .reorder import inverse
from .spill import SpilledNumbers, of_at_least
from .unit_vectors import Stacked

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
        that stays. Memory: about 200 bytes per near-duplicate, and each value of ``within``; other rows go through temporary
        files, of 12 bytes each, 8 more for each further frame of a clip. Hashes that differ but agree in most blocks of bits,
        or clips that have a frame's hash in common, are held at once; there time grows with the square of their number, too.

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
    for count, pieces in _compared(rows, rule.within, functools.partial(_hashes, rows, column, rule.within)):
        for pairs in numbered_hash_pairs(pieces, count, max_distance):
            links.add(pairs)
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
        As ``near_duplicates_by_hash``. Additional memory: 9 bytes per row that is compared with others; if the search is flat
        4 per value of a vector; if it is ivf the centres of cells, 2 per value of a vector for 256 rows. Vectors stay in the
        files of their parts. Of rows of equal vectors only one is compared with others.

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
    links = _Links()
    for count, pieces in _compared(rows, rule.within, functools.partial(_numbers, rows, rule.within)):
        if count < 2:
            continue
        mine = distinct_vectors(vectors, np.concatenate([numbers for (numbers,) in pieces]), links.add)
        for pair in vector_pairs(vectors, mine, _Keys(rows, mine), min_cosine, search, device=device, linking=True):
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


def _compared(
    rows: Rows, within: str, read: Callable[[Codes], Iterable[list[np.ndarray]]]
) -> Iterator[tuple[int, Iterable[list[np.ndarray]]]]:
    """Yield the rows that are compared with one another, a set of them for each value of ``within``.

    Args:
        rows: all rows.
        within: column; "": all rows are one set.
        read: returns columns of rows, in any number of pieces, the first of them the code of the value of ``within``.

    Yields:
        Number of rows of a set, or more, and their columns, without the first, in any number of pieces.
    """
    codes = Codes()
    if not within:
        yield rows.num_rows, (columns[1:] for columns in read(codes))
        return
    counts = np.zeros(0, dtype=np.int64)
    for table in rows.batches([within]):
        found, times = np.unique(codes(table[within]), return_counts=True)
        if len(codes) > len(counts):
            counts = np.append(counts, np.zeros(len(codes), dtype=np.int64))
        counts[found] += times
    # Values of few rows share a range of the file, those of many have their own.
    start, large = np.cumsum(counts) - counts, counts > near_hashes.HELD_HASHES
    key = np.where(large, -1 - np.arange(len(counts)), start // near_hashes.HELD_HASHES)
    alone, range_of = np.unique(key, return_inverse=True)
    cuts = SpilledNumbers(len(alone))
    for columns in read(codes):
        cuts.add(range_of[columns[0]], columns)
    for number, count in enumerate(cuts.counts.tolist()):
        if alone[number] < 0:
            yield count, (columns[1:] for columns in cuts.blocks(number))
        if alone[number] < 0 or not count:
            continue
        code, *columns = cuts.take(number)
        order = np.argsort(code, kind="stable")
        columns = [column[order] for column in columns]
        bounds = [0, *(np.flatnonzero(np.diff(code[order])) + 1).tolist(), count]
        for low, high in itertools.pairwise(bounds):
            yield high - low, [[column[low:high] for column in columns]]


def _hashes(rows: Rows, column: str, within: str, codes: Codes) -> Iterator[list[np.ndarray]]:
    """Yield the code of the value of ``within``, each word of the hash, and the number, of the rows that have a hash."""
    names = list(dict.fromkeys([column, within or column]))
    kind = numbers_dtype(rows.num_rows)
    lengths, at = set[int](), 0
    for _, table in of_at_least(_BLOCK_ROWS, rows.batches(names), pa.schema([rows.schema.field(name) for name in names])):
        there = np.flatnonzero(table[column].is_valid())
        texts = table[column].drop_null().combine_chunks()
        lengths.update(pc.unique(pc.utf8_length(texts)).to_pylist())
        try:
            if len(lengths) > 1 or any(length % DIGITS or not length for length in lengths):
                raise ValueError(f"lengths {sorted(lengths)}")
            words = max(lengths, default=DIGITS) // DIGITS
            found = np.frombuffer(bytes.fromhex(_joined(texts)), dtype=">u8").reshape(len(texts), words)
        except ValueError as error:
            raise ValueError(
                f"column {column!r} is not a column of hashes ({error}): expected {DIGITS} hexadecimal digits per picture, "
                "or per frame of equally long clips, as from hash_picture and hash_clip"
            ) from None
        if len(there):
            values = codes(table[within])[there] if within else np.zeros(len(there), dtype=np.int32)
            yield [values, *found.T.astype(np.uint64, order="C"), (there + at).astype(kind)]
        at += table.num_rows


class _Keys:
    """Keys of the numbered rows, ascending, read anew whenever they are iterated."""

    def __init__(self, rows: Rows, numbers: np.ndarray) -> None:
        self._rows, self._numbers = rows, numbers

    def __iter__(self) -> Iterator[str]:
        at = 0
        for table in self._rows.batches(["key"]):
            low, high = np.searchsorted(self._numbers, [at, at + table.num_rows])
            yield from table["key"].take(pa.array(self._numbers[low:high].astype(np.int64) - at)).to_pylist()
            at += table.num_rows


def _joined(texts: pa.StringArray) -> str:
    """All texts as one."""
    _, offsets, data = texts.cast(pa.string()).buffers()
    low, high = np.frombuffer(offsets, dtype=np.int32)[[texts.offset, texts.offset + len(texts)]].tolist()
    return data[low:high].to_pybytes().decode()


def _numbers(rows: Rows, within: str, codes: Codes) -> Iterator[list[np.ndarray]]:
    """Yield the code of the value of ``within``, and the number, of all rows."""
    at, kind = 0, numbers_dtype(rows.num_rows)
    for table in rows.batches([within or "key"]):
        values = codes(table[within]) if within else np.zeros(table.num_rows, dtype=np.int32)
        yield [values, np.arange(at, at + table.num_rows, dtype=kind)]
        at += table.num_rows


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
