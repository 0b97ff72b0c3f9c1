"""Retrieval: the rows of each time bucket that fit a concept best, by the cosine of stored vectors and prompt vectors.

Source: CLEAR (Lin et al., NeurIPS 2021 Datasets and Benchmarks), section 3. ``retrieval_rule.py`` decides which row goes to
which concept; this module reads vectors and writes rows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..encoders.encoder import MakeEncoder
from ..encoders.loading import load_encoder
from ..encoders.spec import EncoderSpec
from ..rows import REJECTS, Sifted
from .external_sort import numbers_dtype, numbers_of_digits, places_of, sorted_by_columns, sorted_by_numbers
from .neighbours import Vectors
from .nominate import gpu_knn
from .retrieval_rule import Nominated, Rule, Selection, select
from .shortage import report_shortages, shortages
from .spill import SpillableArray
from .topk import TopK, squared_norms

if TYPE_CHECKING:
    from ..stage_rows import Rows

REASONS = {
    "not_retrieved": "",
    "several_concepts": "among the best of more than one concept",
    "near_duplicate": "too close to a better row of its concept",
    "bad_embedding": "vector has a value that is not finite, or is zero",
}
"""Reject reason of this stage -> its detail."""

REJECTS_PER_PART = 2**20
"""Number of rejects collected before they are yielded, so that many small input parts do not become as many output files."""


@dataclasses.dataclass(frozen=True)
class Concept:
    """A class to look for, and its prompts; the score of a row is the largest over the prompts."""

    name: str
    prompts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Retrieved:
    """Columns that ``retrieve`` adds.

    Attributes:
        concept: name of the class; for background rows the name of the background.
        query: the prompt that gave the score.
        score: cosine with ``query``, float64, -1 to 1; for the background the lowest over the prompts.
        rank: rank within bucket and concept from 1; highest score first, for the background lowest first.
    """

    key: str
    concept: str
    query: str
    score: float
    rank: int


# ----------------------------------------------------------------------------------------------------------- all rows


def retrieve(
    rows: Rows,
    *,
    concepts: Sequence[Concept],
    encoder: EncoderSpec | MakeEncoder,
    rule: Rule,
    checkpoint: str = "",
    device: str = "cpu",
) -> Iterator[Sifted]:
    """Choose the rows of each bucket that fit each concept best, and a background that fits none. A ``whole`` step.

    Args:
        rows: rows with columns ``key``, ``bucket`` (int) and ``embedding`` (unit vectors, float32 or float16).
        concepts: classes to look for; their order breaks ties between prompts.
        encoder: the encoder that made the vectors; it encodes the prompts.
        rule: how rows are assigned to concepts.
        checkpoint: local file of the encoder's weights, as for ``load_encoder``.
        device: a torch device, as for ``load_encoder``.

    Yields:
        Rejects (see ``REASONS``), and at the end the chosen rows in the order (bucket, concept, rank) with all their
        columns and those of ``Retrieved``.

    Raises:
        ValueError: an empty or repeated concept, vectors that are not of unit length or whose width differs from that of
            the prompt vectors, or a shortage if ``rule.on_shortage`` is ``error``.
    """
    check_concepts(concepts, rule)
    prompts = [prompt for concept in concepts for prompt in concept.prompts]
    vectors = load_encoder(encoder, checkpoint=checkpoint, device=device).encode_texts(prompts)
    yield from retrieve_by_vectors(rows, vectors, concepts=concepts, rule=rule)


def retrieve_by_vectors(rows: Rows, query_vectors: np.ndarray, *, concepts: Sequence[Concept], rule: Rule) -> Iterator[Sifted]:
    """``retrieve`` with precomputed prompt vectors: (prompts, d) float32 of unit length, in the order of the concepts."""
    check_concepts(concepts, rule)
    concept_of = np.repeat(np.arange(len(concepts)), [len(concept.prompts) for concept in concepts])
    if np.ndim(query_vectors) != 2 or len(query_vectors) != len(concept_of):
        raise ValueError(f"query vectors have shape {np.shape(query_vectors)}: {len(concept_of)} prompts are in the plan")
    queries = np.ascontiguousarray(query_vectors, dtype=np.float32)
    prompts = [prompt for concept in concepts for prompt in concept.prompts]
    check_unit(queries, prompts)
    if not queries.any(axis=1).all():
        raise ValueError(
            f"prompt {prompts[int(np.argmin(queries.any(axis=1)))]!r} means nothing to the encoder: its vector is zero"
        )
    index = _Index.of(rows)
    reasons = _Reasons()
    found: list[tuple[int, np.ndarray, Selection]] = []
    for bucket, top, bottom, bad in _scan(rows, index, queries, rule):
        reasons.add("bad_embedding", index.rows_of(bad))
        vectors = Vectors(lambda ids: rows.gather("embedding", index.rows_of(ids)))
        chosen, left_out = select(top, bottom, concept_of=concept_of, rule=rule, vectors=vectors)
        for name, ids in left_out.items():
            reasons.add(name, index.rows_of(ids))
        found.append((bucket, index.rows_of(chosen.ids), chosen))
    found.sort(key=lambda item: item[0])
    columns = _columns(found, concepts, rule)
    wanted = {concept.name: rule.per_class for concept in concepts}
    if rule.background:
        wanted[rule.background] = rule.background_rows * len(concept_of)
    short = shortages(columns, buckets=sorted(index.counts), wanted=wanted)
    report_shortages(short, "retrieve", rule.on_shortage)
    yield from _sifted(rows, columns, reasons)


def check_concepts(concepts: Sequence[Concept], rule: Rule) -> None:
    """Raise ``ValueError`` unless every concept has a unique name and at least one prompt."""
    names = [concept.name for concept in concepts] + ([rule.background] if rule.background else [])
    if not concepts or "" in names or len(set(names)) < len(names):
        raise ValueError(f"concepts {', '.join(names) or '(none)'}: each needs a name of its own, the background's included")
    for concept in concepts:
        if not concept.prompts or "" in concept.prompts:
            raise ValueError(f"concept {concept.name!r} has prompts {list(concept.prompts)}: at least one, none empty")


def check_unit(vectors: np.ndarray, names: Sequence[str]) -> None:
    """Raise ``ValueError`` if a finite vector (n, d) float32 is not of length 1 within 1 %; zero vectors pass.

    >>> check_unit(np.array([[3.0, 4.0]], np.float32), ["photo7"])
    Traceback (most recent call last):
        ...
    ValueError: vector of 'photo7' has length 5: cosines need vectors of length 1
    """
    lengths = np.sqrt(squared_norms(np.ascontiguousarray(vectors)))
    wrong = np.isfinite(lengths) & (lengths > 0) & (np.abs(lengths - 1) > 0.01)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"vector of {names[row]!r} has length {lengths[row]:.4g}: cosines need vectors of length 1")


class _Index(NamedTuple):
    """Order of the keys of all rows, and sizes of the buckets: ``id_of[row]`` is the rank of the row's key, which breaks ties;
    ``row_of`` is its inverse. Keys of digits are sorted as numbers.
    """

    counts: dict[int, int]
    id_of: SpillableArray
    row_of: SpillableArray

    @classmethod
    def of(cls, rows: Rows) -> _Index:
        counts = Counter[int]()
        for numbers in _buckets(rows):
            found, many = np.unique(numbers, return_counts=True)
            counts.update(dict(zip(found.tolist(), many.tolist(), strict=True)))
        numbers = numbers_of_digits(lambda: rows.batches(["key"]), "key")
        if numbers is None:
            order = sorted_by_columns(lambda: rows.batches(["key"]), rows.schema, rows.num_rows, [("key", "ascending")])
        else:
            order = sorted_by_numbers(numbers)
        row_of = SpillableArray(numbers_dtype(rows.num_rows))

        def noted() -> Iterator[np.ndarray]:
            for some in order:
                row_of.append(some)
                yield some

        return cls(dict(counts), places_of(noted(), rows.num_rows), row_of)

    def rows_of(self, ids: np.ndarray) -> np.ndarray:
        """Row numbers, int64."""
        return self.row_of.take(ids).astype(np.int64)


def _buckets(rows: Rows) -> Iterator[np.ndarray]:
    """Buckets of the rows, (n,) integers for each part."""
    for table in rows.batches(["bucket"]):
        column = table["bucket"]
        if column.null_count:
            raise ValueError(f"{column.null_count} rows have no bucket")
        yield column.to_numpy()


class _Reasons:
    """Why rows are rejected, if for another reason than ``not_retrieved``."""

    def __init__(self) -> None:
        self._rows, self._reasons = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int8)]

    def add(self, name: str, rows: np.ndarray) -> None:
        """Add rows (n,) int64; of several reasons for a row the last counts."""
        self._rows.append(rows)
        self._reasons.append(np.full(len(rows), list(REASONS).index(name), dtype=np.int8))

    def by_row(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows, ascending, and the index of each one's reason in ``REASONS``."""
        rows, reasons = np.concatenate(self._rows), np.concatenate(self._reasons)
        order = np.argsort(rows, kind="stable")
        return rows[order], reasons[order]


class _Keys(Sequence[str]):
    """Keys from row ``first`` on, read only when an error message names one."""

    def __init__(self, rows: Rows, first: int) -> None:
        self._rows, self._first = rows, first

    def __len__(self) -> int:
        return self._rows.num_rows - self._first

    def __getitem__(self, n: Any) -> Any:
        return self._rows.table(["key"])["key"][self._first + n].as_py()


def _scan(
    rows: Rows, index: _Index, queries: np.ndarray, rule: Rule
) -> Iterator[tuple[int, Nominated, Nominated | None, np.ndarray]]:
    """Candidates of each bucket, and the ids of its rows without a direction, as soon as its last row has been read."""
    # ``TopK`` needs it. Imported in this module, it is missed before a run makes anything: see ``requirements.check_packages``.
    import faiss  # noqa: F401  # pyright: ignore[reportUnusedImport]

    signed = np.concatenate([queries, -queries]) if rule.background else queries
    waiting = dict(index.counts)
    states: dict[int, TopK] = {}
    knn, first = gpu_knn(), 0
    for block, numbers in zip(rows.arrays("embedding"), _buckets(rows), strict=True):
        if len(block) != len(numbers):
            raise ValueError(f"{len(block)} vectors for {len(numbers)} rows: expected one embedding a row")
        check_unit(np.asarray(block[:64], dtype=np.float32), _Keys(rows, first))
        ids = index.id_of[first : first + len(block)].astype(np.int64)
        for bucket in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == bucket)
            whole = len(places) == places[-1] - places[0] + 1
            part = block[places[0] : places[-1] + 1] if whole else block[places]
            state = states.setdefault(bucket, TopK(signed, rule.candidates, knn))
            state.add(part, ids[places])
            waiting[bucket] -= len(places)
            if waiting[bucket] == 0:
                scores, found, bad = states.pop(bucket).result()
                ends = Nominated(scores[len(queries) :], found[len(queries) :]) if rule.background else None
                yield bucket, Nominated(scores[: len(queries)], found[: len(queries)]), ends, bad
        first += len(block)


def _columns(found: Sequence[tuple[int, np.ndarray, Selection]], concepts: Sequence[Concept], rule: Rule) -> pa.Table:
    """The chosen rows in their final order: row number, bucket, and the columns of ``Retrieved`` except the key."""
    names = pa.array([concept.name for concept in concepts] + [rule.background], pa.string())
    prompts = pa.array([prompt for concept in concepts for prompt in concept.prompts], pa.string())

    def joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype=dtype), *parts]).astype(dtype)

    return pa.table(
        {
            "row": joined([row for _, row, _ in found], np.int64),
            "bucket": joined([np.full(len(row), bucket) for bucket, row, _ in found], np.int64),
            "concept": names.take(pa.array(joined([chosen.concepts for _, _, chosen in found], np.int64))),
            "query": prompts.take(pa.array(joined([chosen.queries for _, _, chosen in found], np.int64))),
            "score": joined([chosen.scores for _, _, chosen in found], np.float64),
            "rank": joined([chosen.ranks for _, _, chosen in found], np.int64),
        }
    )


def _sifted(rows: Rows, columns: pa.Table, reasons: _Reasons) -> Iterator[Sifted]:
    added = ["concept", "query", "score", "rank"]
    names = pa.array(list(REASONS), pa.string())
    details = pa.array(list(REASONS.values()), pa.string())
    chosen_rows = columns["row"].to_numpy()
    in_order = np.sort(chosen_rows)
    reason_rows, reason = reasons.by_row()
    kept: list[pa.Table] = []
    rejected: list[pa.Table] = []
    first, held = 0, 0
    for batch in rows.batches():
        mask = np.zeros(batch.num_rows, dtype=bool)
        mask[in_order[slice(*np.searchsorted(in_order, [first, first + batch.num_rows]))] - first] = True
        of_each, told = (
            np.zeros(batch.num_rows, dtype=np.int8),
            slice(*np.searchsorted(reason_rows, [first, first + len(mask)])),
        )
        of_each[reason_rows[told] - first] = reason[told]
        why = pa.array(of_each[~mask])
        keys = batch["key"].filter(pa.array(~mask))
        rejected.append(pa.table({"key": keys, "reason": names.take(why), "detail": details.take(why)}, schema=REJECTS))
        kept.append(batch.filter(pa.array(mask)).drop_columns([n for n in added if n in batch.column_names]))
        held += len(why)
        first += batch.num_rows
        if held >= REJECTS_PER_PART:
            empty = columns.select(added).slice(0, 0)
            yield Sifted(_beside(kept[-1].slice(0, 0), empty), pa.concat_tables(rejected))
            rejected, held = [REJECTS.empty_table()], 0
    if not kept:
        return
    # Rows were collected in input order; the rank of each among the chosen row numbers brings them into the final order.
    place = np.searchsorted(in_order, chosen_rows)
    table = pa.concat_tables(kept).take(pa.array(place))
    yield Sifted(_beside(table, columns.select(added)), pa.concat_tables(rejected))


def _beside(left: pa.Table, right: pa.Table) -> pa.Table:
    for name in right.column_names:
        left = left.append_column(name, right[name])
    return left
