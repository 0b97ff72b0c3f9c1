"""Top-k against faiss and exact arithmetic; retrieval against a slow rendering of the protocol in plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import faiss
import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import Colours
from benchwright.curation.flow import source, step
from benchwright.curation.rows import Shape, Sifted
from benchwright.curation.run import run
from benchwright.curation.stage_rows import Rows
from benchwright.curation.stages import nominate, topk
from benchwright.curation.stages.neighbours import Distinct, Vectors
from benchwright.curation.stages.nominate import gpu_knn
from benchwright.curation.stages.retrieval_rule import Nominated, Rule, select
from benchwright.curation.stages.retrieve import Concept, Retrieved, retrieve, retrieve_by_vectors
from benchwright.curation.stages.shortage import shortages
from benchwright.curation.stages.topk import TopK, inner_products


def unit(count: int, width: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


# ------------------------------------------------------------------------------------------------------------- top-k


def test_inner_products_are_close_to_exact_and_do_not_depend_on_blocks() -> None:
    vectors, query = unit(300, 77, 0), unit(1, 77, 1)[0]
    exact = [
        float(sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, query, strict=True))) for row in vectors[:20]
    ]
    scores = inner_products(vectors, query)
    assert np.abs(scores[:20] - exact).max() < 1e-15
    alone = np.concatenate([inner_products(vectors[i : i + 1], query) for i in range(300)])
    assert np.array_equal(scores, alone)
    assert np.array_equal(scores, inner_products(np.asfortranarray(vectors), query))


def test_inner_products_add_in_a_binary_tree() -> None:
    # 2^60 + 1 - 2^60 - 1 in a tree over halves is (2^60 - 2^60) + (1 - 1) = 0; from left to right it would be -1.
    vectors = np.asarray([[2.0**60, 1, -(2.0**60), -1]], dtype=np.float32)
    assert inner_products(vectors, np.ones(4, dtype=np.float32))[0] == 0
    shuffled = np.asarray([[2.0**60, -(2.0**60), 1, 1]], dtype=np.float32)
    assert inner_products(shuffled, np.ones(4, dtype=np.float32))[0] == 0  # (2^60 + 1) + (-2^60 + 1), both rounded


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few hundred rows are large ones, taken one by one and in several chunks."""
    monkeypatch.setattr(topk, "CHUNK_BYTES", 4096)


def top_k(
    blocks: Iterable[np.ndarray], queries: np.ndarray, k: int, *, ids: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and row numbers (q, k) of the rows of largest inner product; ``ids`` decide ties, by default row numbers."""
    state = TopK(queries, k)
    order = None if ids is None else np.argsort(np.asarray(ids), kind="stable")
    ranks = None if order is None else np.argsort(order, kind="stable")
    first = 0
    for block in blocks:
        last = first + len(block)
        state.add(block, np.arange(first, last) if ranks is None else ranks[first:last])
        first = last
    scores, found, _ = state.result()
    if order is not None and len(order):
        found = np.where(found < 0, -1, order[found])
    return scores, found


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("cut", [1, 7, 500, 1000, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_top_k_equals_faiss_and_does_not_depend_on_the_cut(cut: int, dtype: type) -> None:
    vectors = unit(5000, 48, 2).astype(dtype)
    queries = unit(6, 48, 3)
    scores, rows = top_k((vectors[i : i + cut] for i in range(0, 5000, cut)), queries, 100)
    approximate, found = faiss.knn(queries, vectors.astype(np.float32), 100, metric=faiss.METRIC_INNER_PRODUCT)
    assert np.abs(scores - approximate).max() < 1e-6
    assert [set(row) for row in rows.tolist()] == [set(row) for row in found.tolist()]
    assert scores.dtype == np.float64
    assert rows.dtype == np.int64
    whole_scores, whole_rows = top_k([vectors], queries, 100)
    assert np.array_equal(scores, whole_scores)
    assert np.array_equal(rows, whole_rows)
    everything = np.stack([inner_products(vectors, query) for query in queries])
    expected = np.stack([np.lexsort((np.arange(5000), -row))[:100] for row in everything])
    assert np.array_equal(rows, expected)


def tensor_cores(queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """faiss, with the last 13 bits of every number cut off, as the fastest mode of a GPU has it."""
    cut = [(part.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for part in (queries, vectors)]
    return faiss.knn(*cut, k, metric=faiss.METRIC_INNER_PRODUCT)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("blocks", ["spread", "equals", "near", "broken", "few"])
def test_an_inexact_search_nominates_and_the_exact_order_stays(blocks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nominate, "MOST", 300)
    vectors, queries = unit(3000, 48, 2), unit(6, 48, 3)
    if blocks == "equals":  # k and the last of the found rows are in a run of equals
        vectors = np.repeat(unit(6, 48, 4), 500, axis=0)
    if blocks == "near":  # closer than the error of the search
        vectors = vectors[:1] + np.random.default_rng(5).normal(scale=1e-6, size=vectors.shape).astype(np.float32)
    if blocks == "broken":
        vectors[[7, 1500]] = [[np.nan] * 48, [0] * 48]
    size = 200 if blocks == "few" else 1000
    shown: list[bool] = []

    def told(*given: Any) -> list[np.ndarray] | None:
        found = nominate.nominate(*given)
        shown.append(found is not None)
        return found

    monkeypatch.setattr(topk, "nominate", told)
    found = []
    for knn in (None, tensor_cores):
        state = TopK(queries, 60, knn)
        for first in range(0, len(vectors), size):
            state.add(vectors[first : first + size], np.arange(first, first + size))
        found.append(state.result())
    for plain, searched in zip(*found, strict=True):
        np.testing.assert_array_equal(searched, plain)
    assert (
        shown
        == {
            "spread": [True] * 3,
            "equals": [False] * 3,
            "near": [False] * 3,
            "broken": [True],  # the others go another way
            "few": [True] * 15,
        }[blocks]
    )


def test_a_search_that_fails_is_done_without() -> None:
    def full(*_: Any) -> tuple[np.ndarray, np.ndarray]:
        raise RuntimeError("out of memory")

    vectors, queries = unit(500, 8, 2), unit(2, 8, 3)
    state = TopK(queries, 5, full)
    state.add(vectors, np.arange(500))
    np.testing.assert_array_equal(state.result()[1], top_k([vectors], queries, 5)[1])


def test_a_build_of_faiss_for_other_gpus_is_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    nominate.faiss_uses_gpu.cache_clear()
    assert gpu_knn() is None or faiss.get_num_gpus() > 0
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1, raising=False)
    abort, hang = "import os; os.abort()", "import time; time.sleep(60)"
    for trial, limit_s, told in ((abort, 60, "exit code -6"), (hang, 1, "no answer within 1 s")):
        nominate.faiss_uses_gpu.cache_clear()
        monkeypatch.setattr(nominate, "_TRIAL", trial)
        monkeypatch.setattr(nominate, "_TRIAL_LIMIT_S", limit_s)
        assert gpu_knn() is None
        assert f"cannot search on this machine's GPU ({told})" in caplog.records[-1].getMessage()
    monkeypatch.setattr(nominate, "_TRIAL_LIMIT_S", 60)
    monkeypatch.setattr(nominate, "_TRIAL", "")
    nominate.faiss_uses_gpu.cache_clear()
    assert nominate.faiss_uses_gpu()
    nominate.faiss_uses_gpu.cache_clear()


@pytest.mark.usefixtures("small_chunks")
def test_ties_go_to_the_smaller_id_even_at_the_border() -> None:
    vectors = np.repeat(unit(40, 16, 4), 25, axis=0)  # every vector 25 times: k cuts through a run of equals
    ids = np.random.default_rng(5).permutation(1000)
    queries = unit(3, 16, 6)
    scores, rows = top_k(np.array_split(vectors, 13), queries, 60, ids=ids)
    for query, found in zip(queries, rows, strict=True):
        exact = inner_products(vectors, query)
        assert found.tolist() == np.lexsort((ids, -exact))[:60].tolist()
    by_name = top_k(np.array_split(vectors, 13), queries, 60, ids=np.asarray([f"{i:04d}" for i in ids]))
    assert np.array_equal(by_name[1], rows)
    assert np.array_equal(by_name[0], scores)


@pytest.mark.usefixtures("small_chunks")
def test_rows_one_float32_ulp_apart_are_ordered_by_their_true_scores() -> None:
    base = unit(1, 512, 7)[0]
    vectors = np.repeat(base[None], 3000, axis=0)
    steps = np.random.default_rng(8).integers(0, 512, 3000)
    vectors[np.arange(3000), steps] = np.nextafter(vectors[np.arange(3000), steps], np.float32(2))
    _, rows = top_k([vectors[:1000], vectors[1000:]], base[None], 50)
    exact = np.asarray([math.fsum(float(a) * float(b) for a, b in zip(v, base, strict=True)) for v in vectors])
    kth = np.sort(exact)[-50]
    assert (exact[rows[0]] >= kth - 1e-15).all()
    assert np.array_equal(rows[0], np.lexsort((np.arange(3000), -inner_products(vectors, base)))[:50])


@pytest.mark.usefixtures("small_chunks")
def test_vectors_of_very_different_lengths() -> None:
    vectors = unit(4000, 32, 9) * np.logspace(-8, 8, 4000, dtype=np.float32)[:, None]
    queries = unit(2, 32, 10)
    _, rows = top_k(np.array_split(vectors, 3), queries, 300)
    for query, found in zip(queries, rows, strict=True):
        assert found.tolist() == np.lexsort((np.arange(4000), -inner_products(vectors, query)))[:300].tolist()


@pytest.mark.usefixtures("small_chunks")
def test_rows_without_a_direction_are_never_found() -> None:
    vectors = unit(500, 8, 11)
    vectors[3] = np.nan
    vectors[5, 2] = np.inf
    vectors[7, 2] = -np.inf
    vectors[9] = 0
    vectors[11] = 3e38  # finite, but its squared length is not
    scores, rows = top_k([vectors[:100], vectors[100:]], unit(3, 8, 12), 600)
    assert (rows[:, 495:] == -1).all()
    assert np.isneginf(scores[:, 495:]).all()
    assert all(sorted(found[:495].tolist()) == [i for i in range(500) if i not in (3, 5, 7, 9, 11)] for found in rows)


def test_no_rows_and_wrong_input() -> None:
    scores, rows = top_k([], unit(2, 8, 0), 3)
    assert scores.shape == rows.shape == (2, 3)
    assert (rows == -1).all()
    with pytest.raises(ValueError, match="query 1 has a value that is not finite"):
        top_k([], np.asarray([[0, 1], [np.nan, 1]], dtype=np.float32), 3)
    with pytest.raises(ValueError, match="float64"):
        top_k([np.zeros((3, 8))], unit(2, 8, 0), 3)
    with pytest.raises(ValueError, match="k is 0"):
        top_k([], unit(2, 8, 0), 0)
    with pytest.raises(ValueError, match="0 ids for the 1 rows of a block"):
        top_k([unit(2, 8, 0), unit(1, 8, 1)], unit(2, 8, 0), 3, ids=np.arange(2))


# --------------------------------------------------------------------------------------------------- near-duplicates


def test_the_better_of_two_near_duplicates_stays() -> None:
    vectors = unit(200, 24, 13)
    vectors[50] = vectors[10]
    vectors[60] = vectors[20] + 0.01 * vectors[21]
    vectors[60] /= np.linalg.norm(vectors[60])
    order = np.random.default_rng(14).permutation(200)
    kept, dropped = Distinct(Vectors(lambda ids: vectors[ids]), 0.99).pick(order, 150)
    place = {row: index for index, row in enumerate(order.tolist())}
    losers = [max((10, 50), key=place.__getitem__), max((20, 60), key=place.__getitem__)]
    expected = [row for row in order.tolist() if row not in losers]
    assert kept.tolist() == expected[:150]
    assert set(dropped.tolist()) <= set(losers)
    assert len(kept) == 150


def test_near_duplicates_against_a_slow_walk() -> None:
    rng = np.random.default_rng(15)
    centres = unit(30, 12, 16)
    vectors = centres[rng.integers(0, 30, 400)] + 0.05 * rng.standard_normal((400, 12))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    kept: list[int] = []
    for row in range(400):
        if all(inner_products(vectors[row : row + 1], vectors[other])[0] <= 0.97 for other in kept):
            kept.append(row)
    held = Vectors(lambda ids: vectors[ids])
    held.load(np.arange(0, 400, 2))
    distinct = Distinct(held, 0.97)
    first, dropped = distinct.pick(np.arange(400), 10)
    assert first.tolist() == kept[:10]
    rest, _ = distinct.pick(np.setdiff1d(np.arange(400), np.concatenate([first, dropped])), 400)
    assert sorted([*first.tolist(), *rest.tolist()]) == kept


# ------------------------------------------------------------------------------------------- one bucket, by hand


def nominated(*lists: list[tuple[int, float]], places: int = 4) -> Nominated:
    scores, ids = np.full((len(lists), places), -np.inf), np.full((len(lists), places), -1, dtype=np.int64)
    for query, entries in enumerate(lists):
        for place, (row, score) in enumerate(entries):
            ids[query, place], scores[query, place] = row, score
    return Nominated(scores, ids)


def picked(top: Nominated, concept_of: list[int], rule: Rule, bottom: Nominated | None = None) -> list[list[int]]:
    def never(ids: np.ndarray) -> np.ndarray:
        raise AssertionError("no vector is needed")

    chosen, _ = select(top, bottom, concept_of=np.asarray(concept_of), rule=rule, vectors=Vectors(never))
    return [chosen.ids[chosen.concepts == number].tolist() for number in range(chosen.concepts.max() + 1)]


BUS_CAMERA = nominated([(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6)], [(2, 0.85), (5, 0.5), (3, 0.4), (6, 0.3)])


def test_as_released_gives_a_row_to_its_best_prompt() -> None:
    rule = Rule(candidates=4, per_class=2, overlap="as_released")
    assert picked(BUS_CAMERA, [0, 1], rule) == [[1, 3], [2, 5]]


def test_as_written_discards_a_row_of_two_concepts_and_refills() -> None:
    rule = Rule(candidates=4, per_class=2, overlap="as_written")
    # Row 2 stands in both; without it bus takes row 3 and camera rows 5 and 3, so row 3 goes too.
    assert picked(BUS_CAMERA, [0, 1], rule) == [[1, 4], [5, 6]]
    chosen, left = select(
        BUS_CAMERA, None, concept_of=np.asarray([0, 1]), rule=rule, vectors=Vectors(lambda ids: np.empty((0, 0)))
    )
    assert left["several_concepts"].tolist() == [2, 3]
    assert chosen.ranks.tolist() == [1, 2, 1, 2]


def test_a_tie_between_prompts_goes_to_the_first() -> None:
    top = nominated([(1, 0.5)], [(1, 0.5), (2, 0.1)])
    assert picked(top, [0, 1], Rule(candidates=4, per_class=1, overlap="as_released")) == [[1], [2]]


def test_a_row_scores_the_largest_of_a_concepts_prompts() -> None:
    top = nominated([(1, 0.5), (2, 0.4)], [(2, 0.9), (3, 0.2)], [(4, 0.3)])
    rule = Rule(candidates=4, per_class=3, overlap="as_released")
    chosen, _ = select(top, None, concept_of=np.asarray([0, 0, 1]), rule=rule, vectors=Vectors(lambda ids: ids))
    assert chosen.ids.tolist() == [2, 1, 3, 4]
    assert chosen.queries.tolist() == [1, 0, 1, 2]
    assert chosen.scores.tolist() == [0.9, 0.5, 0.2, 0.3]


def test_background_takes_the_most_negative_that_nobody_has() -> None:
    top = nominated([(1, 0.9), (2, 0.8)], [(3, 0.7), (4, 0.6)])
    # Negated cosines. Row 7 is most negative for the second prompt; row 3 belongs to a concept already.
    bottom = nominated([(7, 0.2), (8, 0.1), (9, 0.05)], [(3, 0.6), (7, 0.5), (10, 0.4)])
    rule = Rule(candidates=4, per_class=2, overlap="as_released", background="BACKGROUND", background_share=0.5)
    assert picked(top, [0, 1], rule, bottom) == [[1, 2], [3, 4], [7, 8]]
    chosen, _ = select(top, bottom, concept_of=np.asarray([0, 1]), rule=rule, vectors=Vectors(lambda ids: ids))
    assert chosen.scores[-2:].tolist() == [-0.5, -0.1]  # cosines, most negative first
    assert chosen.queries[-2:].tolist() == [1, 0]


def test_background_looks_no_further_than_the_rows_kept_of_a_prompt() -> None:
    top = nominated([(1, 0.9), (2, 0.8)], [(3, 0.7), (4, 0.6)])
    # The first prompt keeps two rows, both of a concept: it gives none, though row 8 is free.
    bottom = nominated([(1, 0.9), (2, 0.8), (8, 0.1)], [(7, 0.5)])
    rule = Rule(candidates=4, per_class=2, overlap="as_released", background="BACKGROUND", background_share=0.5)
    assert picked(top, [0, 1], rule, bottom) == [[1, 2], [3, 4], [7]]


# -------------------------------------------------------------------------------------------------------- the whole


@dataclass(frozen=True)
class Embedded:
    key: str
    bucket: int
    note: str
    embedding: Annotated[np.ndarray, Shape((-1,), "float32")]


def embed(*, count: int, buckets: int, seed: int, spoil: bool = False) -> Iterator[Embedded]:
    vectors = unit(count, 32, seed)
    if spoil:
        vectors[3], vectors[8], vectors[11, 0] = 0, np.nan, np.inf
    numbers = np.random.default_rng(seed).permutation(count)
    for row in range(count):
        yield Embedded(f"k{numbers[row]:06d}", row * buckets // count, f"n{row}", vectors[row])


def scattered(*, count: int, seed: int) -> Iterator[Embedded]:
    for row in embed(count=count, buckets=1, seed=seed):
        yield Embedded(row.key, int(row.key[1:]) % 3, row.note, row.embedding)


def stored(tmp_path: Path, function: object = embed, **settings: object) -> Rows:
    flow = source("embedded", step(function, **settings), may_be_empty=settings.get("count") == 0)  # type: ignore[arg-type]
    return run(flow, str(tmp_path / "out"), scheduler="sync").rows()


CONCEPTS = (Concept("bus", ("bus", "omnibus")), Concept("camera", ("camera",)), Concept("dress", ("dress",)))


def gathered(parts: list[Sifted]) -> tuple[pa.Table, pa.Table]:
    return pa.concat_tables([p.kept for p in parts]), pa.concat_tables([p.rejected for p in parts])


def slow(rows: Rows, queries: np.ndarray, rule: Rule) -> dict[tuple[int, str], list[str]]:
    """The protocol's words, image by image: as_released, with a background."""
    table = rows.table(["key", "bucket"]).to_pylist()
    vectors = np.concatenate(list(rows.arrays("embedding")))
    prompt_class = [c.name for c in CONCEPTS for _ in c.prompts]
    out: dict[tuple[int, str], list[str]] = {}
    for bucket in {row["bucket"] for row in table}:
        mine = [i for i, row in enumerate(table) if row["bucket"] == bucket]
        scores = {
            (q, table[i]["key"]): float(inner_products(vectors[i : i + 1], query)[0])
            for q, query in enumerate(queries)
            for i in mine
        }
        keys = [table[i]["key"] for i in mine]
        tops = [sorted(keys, key=lambda k: (-scores[q, k], k))[: rule.candidates] for q in range(len(queries))]
        owner = {
            k: max((q for q in range(len(queries)) if k in tops[q]), key=lambda q: (scores[q, k], -q))
            for k in {k for top in tops for k in top}
        }
        used: set[str] = set()
        for name in dict.fromkeys(prompt_class):
            mine_keys = [k for k, q in owner.items() if prompt_class[q] == name]
            out[bucket, name] = sorted(mine_keys, key=lambda k: (-scores[owner[k], k], k))[: rule.per_class]
            used.update(out[bucket, name])
        lows = [sorted(keys, key=lambda k: (scores[q, k], k))[: rule.candidates] for q in range(len(queries))]
        below = {
            k: min((q for q in range(len(queries)) if k in lows[q]), key=lambda q: (scores[q, k], q))
            for k in {k for low in lows for k in low}
        }
        background: list[str] = []
        for q in range(len(queries)):
            walk = sorted((k for k in below if below[k] == q), key=lambda k: (scores[q, k], k))[: rule.per_class]
            background += [k for k in walk if k not in used][: rule.background_rows]
        out[bucket, rule.background] = sorted(background, key=lambda k: (scores[below[k], k], k))
    return out


@pytest.mark.parametrize("function", [embed, scattered])
def test_retrieval_equals_the_protocol_word_by_word(tmp_path: Path, function: object) -> None:
    settings = {"count": 900, "seed": 17} | ({"buckets": 3} if function is embed else {})
    rows = stored(tmp_path, function, **settings)
    queries = unit(4, 32, 18)
    rule = Rule(candidates=60, per_class=20, overlap="as_released", background="BACKGROUND", background_share=0.1)
    kept, rejected = gathered(list(retrieve_by_vectors(rows, queries, concepts=CONCEPTS, rule=rule)))
    found: dict[tuple[int, str], list[str]] = {}
    for row in kept.to_pylist():
        found.setdefault((row["bucket"], row["concept"]), []).append(row["key"])
    assert found == slow(rows, queries, rule)
    assert list(found) == [(b, c) for b in range(3) for c in ("bus", "camera", "dress", "BACKGROUND")]
    assert kept.num_rows + rejected.num_rows == 900
    assert set(kept["key"].to_pylist()).isdisjoint(rejected["key"].to_pylist())
    assert rejected["reason"].unique().to_pylist() == ["not_retrieved"]
    notes = dict(zip(*(rows.table(["key", "note"]).to_pydict().values()), strict=True))
    assert [notes[k] for k in kept["key"].to_pylist()] == kept["note"].to_pylist()
    for (_, _), group in found.items():
        ranks = [row["rank"] for row in kept.to_pylist() if row["key"] in group]
        assert ranks == list(range(1, len(group) + 1))
    prompts = {row["query"] for row in kept.to_pylist() if row["concept"] == "bus"}
    assert prompts == {"bus", "omnibus"}


def test_as_written_through_the_whole_step_leaves_disjoint_full_classes(tmp_path: Path) -> None:
    rows = stored(tmp_path, count=600, buckets=2, seed=19)
    queries = unit(4, 32, 20)
    queries[2] = queries[0] + 1.5 * queries[2]
    queries[2] /= np.linalg.norm(queries[2])
    rule = Rule(candidates=300, per_class=30, overlap="as_written")
    kept, rejected = gathered(list(retrieve_by_vectors(rows, queries, concepts=CONCEPTS, rule=rule)))
    assert kept.num_rows == 2 * 3 * 30
    assert len(set(kept["key"].to_pylist())) == kept.num_rows
    shared = [row["key"] for row in rejected.to_pylist() if row["reason"] == "several_concepts"]
    assert shared
    released = Rule(candidates=300, per_class=30, overlap="as_released")
    both, _ = gathered(list(retrieve_by_vectors(rows, queries, concepts=CONCEPTS, rule=released)))
    assert set(both["key"].to_pylist()) & set(shared)  # the preset keeps what the text discards


def test_near_duplicates_are_replaced(tmp_path: Path) -> None:
    rows = stored(tmp_path, twins, count=300, seed=21)
    rule = Rule(candidates=200, per_class=40, overlap="as_released", near_duplicate_cosine=0.98)
    kept, rejected = gathered(list(retrieve_by_vectors(rows, unit(4, 32, 22), concepts=CONCEPTS, rule=rule)))
    assert kept.num_rows == 120
    vectors = np.concatenate(list(rows.arrays("embedding")))
    place = {key: row for row, key in enumerate(rows.table(["key"])["key"].to_pylist())}
    for name in ("bus", "camera", "dress"):
        mine = vectors[[place[row["key"]] for row in kept.to_pylist() if row["concept"] == name]].astype(np.float64)
        cosines = mine @ mine.T - 2 * np.eye(len(mine))
        assert cosines.max() <= 0.98
    reasons = rejected["reason"].to_pylist()
    assert reasons.count("near_duplicate") > 20
    assert kept.num_rows + rejected.num_rows == 600


def twins(*, count: int, seed: int) -> Iterator[Embedded]:
    """Every vector twice, the second one turned a little."""
    vectors = unit(count, 32, seed)
    noise = unit(count, 32, seed + 1)
    for row in range(count):
        near = vectors[row] + 0.02 * noise[row]
        yield Embedded(f"a{row:05d}", 0, "", vectors[row])
        yield Embedded(f"b{row:05d}", 0, "", (near / np.linalg.norm(near)).astype(np.float32))


def test_bad_vectors_are_rejects_and_a_shortage_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = stored(tmp_path, count=40, buckets=2, seed=23, spoil=True)
    rule = Rule(candidates=50, per_class=9, overlap="as_released", background="BACKGROUND", background_share=0.2)
    with caplog.at_level("WARNING", logger="benchwright"):
        kept, rejected = gathered(list(retrieve_by_vectors(rows, unit(4, 32, 24), concepts=CONCEPTS, rule=rule)))
    assert kept.num_rows + rejected.num_rows == 40
    bad = [row for row in rejected.to_pylist() if row["reason"] == "bad_embedding"]
    names = rows.table(["key"])["key"].to_pylist()
    assert sorted(row["key"] for row in bad) == sorted(names[i] for i in (3, 8, 11))
    assert "too few rows" in caplog.text
    wanted = {"bus": 9, "camera": 9, "dress": 9, "BACKGROUND": 4}
    short = shortages(kept, buckets=[0, 1], wanted=wanted).to_pylist()
    assert short
    assert all(row["found"] < row["wanted"] for row in short)
    strict = Rule(candidates=50, per_class=9, overlap="as_released", on_shortage="error")
    with pytest.raises(ValueError, match=r"retrieve: too few rows: bucket 0 '.*' \d of 9"):
        list(retrieve_by_vectors(rows, unit(4, 32, 24), concepts=CONCEPTS, rule=strict))


def test_no_rows_at_all(tmp_path: Path) -> None:
    rows = stored(tmp_path, count=0, buckets=1, seed=0)
    rule = Rule(candidates=5, per_class=5, overlap="as_released")
    parts = list(retrieve_by_vectors(rows, unit(4, 32, 0), concepts=CONCEPTS, rule=rule))
    assert sum(part.kept.num_rows + part.rejected.num_rows for part in parts) == 0


def test_wrong_input_is_named(tmp_path: Path) -> None:
    rows = stored(tmp_path, count=40, buckets=2, seed=23)
    rule = Rule(candidates=5, per_class=5, overlap="as_released")
    with pytest.raises(ValueError, match="4 prompts are in the plan"):
        list(retrieve_by_vectors(rows, unit(3, 32, 0), concepts=CONCEPTS, rule=rule))
    long = unit(4, 32, 0)
    long[1] *= 2
    with pytest.raises(ValueError, match=r"vector of 'omnibus' has length 2"):
        list(retrieve_by_vectors(rows, long, concepts=CONCEPTS, rule=rule))
    with pytest.raises(ValueError, match="prompt 'bus' means nothing to the encoder"):
        list(retrieve_by_vectors(rows, unit(4, 32, 0) * [[0], [1], [1], [1]], concepts=CONCEPTS, rule=rule))
    with pytest.raises(ValueError, match="name of its own"):
        list(retrieve_by_vectors(rows, unit(4, 32, 0), concepts=(CONCEPTS[0], CONCEPTS[0]), rule=rule))
    with pytest.raises(ValueError, match="at least one, none empty"):
        list(retrieve_by_vectors(rows, unit(1, 32, 0), concepts=(Concept("bus", ()),), rule=rule))
    for wrong in ({"candidates": 4}, {"overlap": "best"}, {"background": "B"}, {"on_shortage": "shrug"}):
        with pytest.raises(ValueError, match="retrieval rule"):
            Rule(**({"candidates": 5, "per_class": 5, "overlap": "as_released"} | wrong))  # type: ignore[arg-type]


def test_a_plan_runs_it_and_the_sum_holds(tmp_path: Path) -> None:
    queries = unit(4, 32, 25)
    flow = source("embedded", step(embed, count=200, buckets=2, seed=26)).whole(
        "retrieved", step(by_given_vectors, queries=queries.tolist()), gives=Retrieved, max_rejects=None
    )
    result = run(flow, str(tmp_path / "out"), scheduler="sync").result
    assert result.rows == 2 * 3 * 10
    assert result.rows_in == 200
    assert dict(result.rejects) == {"not_retrieved": 140}


def painted(*, count: int) -> Iterator[Embedded]:
    """Plain pictures of a colour; five of each have the same vector."""
    names = ("red", "green", "blue", "white")
    encoder = load_encoder(Colours())
    for row in range(count):
        name = names[row % 4]
        yield Embedded(f"{count - row:03d}", 0, name, encoder.encode_texts([name])[0])


def test_prompts_are_encoded_and_equal_scores_go_to_the_smaller_key(tmp_path: Path) -> None:
    rule = Rule(candidates=3, per_class=3, overlap="as_released")
    concepts = [Concept("fire engine", ("a red van",)), Concept("meadow", ("green grass",))]
    flow = source("painted", step(painted, count=20)).whole(
        "retrieved", step(retrieve, concepts=concepts, encoder=Colours(), rule=rule), gives=Retrieved, max_rejects=None
    )
    found = run(flow, str(tmp_path), scheduler="sync").rows().table().to_pylist()
    assert [(row["concept"], row["note"], row["key"], row["rank"]) for row in found] == [
        ("fire engine", "red", "004", 1),
        ("fire engine", "red", "008", 2),
        ("fire engine", "red", "012", 3),
        ("meadow", "green", "003", 1),
        ("meadow", "green", "007", 2),
        ("meadow", "green", "011", 3),
    ]
    assert {row["score"] for row in found} == {1.0}


def by_given_vectors(rows: Rows, *, queries: list[list[float]]) -> Iterator[Sifted]:
    rule = Rule(candidates=100, per_class=10, overlap="as_released")
    return retrieve_by_vectors(rows, np.asarray(queries, dtype=np.float32), concepts=CONCEPTS, rule=rule)
