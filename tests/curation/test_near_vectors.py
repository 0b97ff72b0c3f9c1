"""Pairs of near vectors against all pairs, and the groups that they make."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.stage_rows import Rows
from benchwright.curation.stages import near_duplicates, near_hashes, near_vectors, spill, vector_cells
from benchwright.curation.stages.near_duplicates import DuplicateRule, near_duplicates_by_vector
from benchwright.curation.stages.near_vectors import VectorSearch, vector_pairs
from benchwright.curation.stages.topk import summed_products
from benchwright.curation.stages.unit_vectors import Stacked
from benchwright.curation.stages.vector_cells import cells_of, whole_vectors
from scipy.sparse.csgraph import connected_components


def vectors_near(count: int, width: int = 32) -> np.ndarray:
    draw = np.random.default_rng(3)
    base = draw.normal(size=(count, width))
    base[count // 2 :] = base[: count - count // 2] + draw.normal(size=(count - count // 2, width)) * 0.15
    return base.astype(np.float32)


def pairs_of(vectors: np.ndarray, least: float, search: VectorSearch) -> set[tuple[int, int]]:
    parts = Stacked([vectors[:100], vectors[100:]])
    found = vector_pairs(parts, np.arange(len(vectors)), [f"{n:05}" for n in range(len(vectors))], least, search)
    return {(min(a, b), max(a, b)) for pair in found for a, b in zip(pair.left.tolist(), pair.right.tolist(), strict=True)}


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of pairs in each batch whose exact cosines were asked for."""
    batches, compared = list[int](), near_vectors._cosines

    def counted(stacked: Stacked, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        batches.append(len(left))
        return compared(stacked, left, right)

    monkeypatch.setattr(near_vectors, "_cosines", counted)
    return batches


def test_every_pair_of_near_vectors_is_found() -> None:
    vectors = vectors_near(400)
    vectors[[7, 250]] = 0  # of no direction
    vectors[9] = np.nan
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)
    wanted = {(a, b) for a, b in np.argwhere(unit @ unit.T >= 0.98).tolist() if a < b}
    assert len(wanted) > 100
    assert pairs_of(vectors, 0.98, VectorSearch()) == wanted


def test_ivf_tells_what_it_misses_and_gives_the_same_again(caplog: pytest.LogCaptureFixture) -> None:
    vectors = vectors_near(2000)
    whole = pairs_of(vectors, 0.98, VectorSearch("flat"))
    search = VectorSearch(flat_rows=1000, cells=32, probes=2)
    found = pairs_of(vectors, 0.98, search)
    assert found < whole
    assert len(found) > 0.7 * len(whole)
    assert pairs_of(vectors, 0.98, search) == found
    recalls = [float(record.getMessage().partition("recall ")[2].partition(")")[0]) for record in caplog.records]
    assert recalls == [pytest.approx(len(found) / len(whole), abs=0.05)] * 2
    assert pairs_of(vectors, 0.98, VectorSearch("ivf", cells=32, probes=32)) == whole


def test_ivf_compares_the_rows_of_the_nearest_cells(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    vectors, search, keys = vectors_near(1_500), VectorSearch("ivf", cells=32, probes=2), [f"{n:05}" for n in range(1_500)]
    vectors[[7, 250]] = 0  # of no direction
    vectors[9] = np.nan
    unit = np.nan_to_num(Stacked([vectors]).take(np.arange(1_500)))
    cells = cells_of(Stacked([vectors]), np.arange(1_500), keys, most=32, probes=2)
    centres = np.concatenate(cells.fine).astype(np.int64)
    assert 20 < len(centres) <= 32
    products = whole_vectors(unit).astype(np.int64) @ centres.T
    probed = np.argsort(-(products * len(centres) + np.arange(len(centres))), axis=1)[:, :2]
    searched = (probed[:, None, :] == probed[None, :, :1]).any(axis=2)
    near = unit.astype(np.float64) @ unit.T >= 0.98
    wanted = {(a, b) for a, b in np.argwhere(near & (searched | searched.T)).tolist() if a < b}
    assert len(wanted) > 300
    assert pairs_of(vectors, 0.98, search) == wanted
    for name in ("_BLOCK_ROWS", "_ASSIGNED", "_HELD_ROWS", "_ASKED"):
        monkeypatch.setattr(near_vectors, name, 70)
    for name, value in (("_BLOCK_ROWS", 70), ("_DRAWN_KEYS", 70), ("_FIRST_GROUPS", 3)):
        monkeypatch.setattr(vector_cells, name, value)
    monkeypatch.setattr(spill, "_BLOCK", 130)
    monkeypatch.setattr(spill, "HELD_BYTES", 400)
    assert pairs_of(vectors, 0.98, search) == wanted
    one, other = (record.getMessage() for record in caplog.records)
    assert one == other


def test_few_pairs_are_missed_with_many_cells(caplog: pytest.LogCaptureFixture) -> None:
    draw = np.random.default_rng(1)
    classes = draw.normal(size=(300, 64))[draw.integers(0, 300, 12_000)]
    vectors = classes + draw.normal(size=(12_000, 64)) * draw.uniform(0.3, 0.9, (12_000, 1))
    vectors[6_000:7_000] = vectors[:1_000] + draw.normal(size=(1_000, 64)) * 0.2
    vectors = vectors.astype(np.float32)
    whole = pairs_of(vectors, 0.95, VectorSearch("flat"))
    found = pairs_of(vectors, 0.95, VectorSearch("ivf", cells=300))
    assert found <= whole
    assert len(found) > 0.98 * len(whole) > 500
    assert "recall 0.9" in caplog.text or "recall 1.0" in caplog.text


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", vectors_near(3_000, 300))
    code = (
        "import sys, numpy as np\n"
        "from benchwright.curation.stages.near_duplicates import _Links\n"
        "from benchwright.curation.stages.near_vectors import VectorSearch, vector_pairs\n"
        "from benchwright.curation.stages.unit_vectors import Stacked\n"
        "vectors, rows = np.load(sys.argv[1]), np.arange(3_000)\n"
        "search = VectorSearch('ivf', cells=100, probes=1)\n"
        "for pairs in vector_pairs(Stacked([vectors]), rows, [str(row) for row in rows], 0.95, search):\n"
        "    print(*(column.tolist() for column in pairs))\n"
        "links = _Links()\n"
        "for pairs in vector_pairs(Stacked([vectors + 20]), rows, (), 0.9975, VectorSearch(), linking=True):\n"
        "    links.add(pairs)\n"
        "links.merge()\n"
        "print(links.rows.tolist(), links.root.tolist(), links.nearest.tolist())\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "vectors.npy")],
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        )
        for threads in ("1", "3")
    ]
    assert found[0].stdout.count(",") > 500
    assert found[0].stdout == found[1].stdout
    assert found[0].stderr == found[1].stderr  # the measured recall


def test_memory_of_ivf_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BLOCK_ROWS", "_ASSIGNED", "_HELD_ROWS", "_ASKED"):
        monkeypatch.setattr(near_vectors, name, 1_000)
    for name, value in (("_BLOCK_ROWS", 1_000), ("_DRAWN_KEYS", 1_000), ("_MOST_SAMPLED", 1_000), ("_NEAREST_GROUPS", 8)):
        monkeypatch.setattr(vector_cells, name, value)
    monkeypatch.setattr(near_hashes, "HELD_HASHES", 2_000)
    monkeypatch.setattr(spill, "_BLOCK", 1_000)
    monkeypatch.setattr(spill, "HELD_BYTES", 1_000)
    draw, most = np.random.default_rng(2), list[int]()
    for count in (10_000, 20_000):
        np.save(tmp_path / f"{count}.npy", draw.normal(size=(count, 64)).astype(np.float16))
        vectors = Stacked([np.load(tmp_path / f"{count}.npy", mmap_mode="r")])
        rows, keys = np.arange(count, dtype=np.uint32), [f"{n:05}" for n in range(count)]
        tracemalloc.start()
        assert len(near_vectors.distinct_vectors(vectors, rows, lambda pairs: None)) == count
        assert not any(len(pairs.left) for pairs in vector_pairs(vectors, rows, keys, 0.9, VectorSearch("ivf")))
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] - most[0] < 10_000 * 64 * 2 / 4


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_equal_vectors_are_compared_once(kind: Any, decided: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = vectors_near(6_000, 16)
    vectors[1_000:5_000] = vectors[7]
    vectors[5_000:5_500] = 0  # of no direction: near nothing
    vectors[5_500:5_600] = np.nan
    vectors[5_999] = vectors[7] * 2  # equal in direction only

    class WithVectors(Rows):
        def arrays(self, column: str) -> Iterator[np.ndarray]:
            yield vectors[:3_000].astype(np.float16)
            yield vectors[3_000:].astype(np.float16)

    monkeypatch.setattr(near_hashes, "HELD_HASHES", 500)
    rows = WithVectors.of(pa.table({"key": [f"{n:05}" for n in range(6_000)]}))
    found = near_duplicates_by_vector(rows, min_cosine=0.9999, search=VectorSearch(kind))
    group = pa.concat_tables(each.kept for each in found)["duplicate_group"].to_pylist()
    assert {group[7], *group[1_000:5_000], group[5_999]} == {"00007"}
    assert set(group[5_000:5_600]) == {None}
    assert sum(decided) < 20_000


def crowded(width: int) -> np.ndarray:
    """Groups of vectors that are near one another to many degrees, some of them tied, equal in direction, or of none."""
    draw = np.random.default_rng(width)
    groups = [draw.normal(size=width) + draw.normal(size=(60, width)) * spread for spread in (1e-8, 1e-5, 0.02, 0.05, 0.1, 0.3)]
    path = np.linspace(0, 3, 60)[:, None]  # each near the next
    groups.append(np.cos(path) * draw.normal(size=width) + np.sin(path) * draw.normal(size=width))
    groups.append(groups[2][:30] * draw.uniform(0.1, 9, (30, 1)))
    groups.append(draw.integers(0, 2, (60, width)) + np.eye(width)[0])
    groups.append(np.stack([np.zeros(width), np.full(width, np.nan), *draw.normal(size=(20, width))]))
    return draw.permutation(np.unique(np.concatenate(groups).astype(np.float32), axis=0))


def cosines_of_all(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs, one by one; -2 without a direction, and with itself."""
    unit = Stacked([vectors]).take(np.arange(len(vectors)))
    cosines = np.stack([np.minimum(summed_products(unit.T, each[:, None]), 1) for each in unit])
    np.fill_diagonal(cosines, -2)
    return np.nan_to_num(cosines, nan=-2)


def rows_with(vectors: np.ndarray, keys: list[str]) -> Rows:
    class WithVectors(Rows):
        def arrays(self, column: str) -> Iterator[np.ndarray]:
            yield vectors

    return WithVectors.of(pa.table({"key": keys}))


@pytest.mark.parametrize("kind", ["flat", "ivf"])
@pytest.mark.parametrize("width", [2, 24, 100])
def test_groups_of_crowded_vectors_are_those_of_all_pairs(width: int, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, draw = crowded(width), np.random.default_rng(1)
    cosines = cosines_of_all(vectors)
    there = np.sort(cosines[cosines > 0.2])
    ones = there[there < 1]
    # Of some thresholds a pair has just the cosine, or is just below it.
    quantiles = [float(ones[int(share * len(ones))]) for share in (0.2, 0.6, 0.9)]
    thresholds = [-0.5, *quantiles, *(float(np.nextafter(each, 1)) for each in quantiles), 0.9999, 1.0]
    sizes = itertools.cycle([(90, 4_000, 0), (256, 1 << 22, 0.5), (4096, 20_000, 4), (4096, 1 << 22, 0)])
    monkeypatch.setattr(near_vectors, "_CHECKED_ROWS", 50)
    for least, (block_rows, pairs, dense) in zip(thresholds, sizes, strict=False):
        monkeypatch.setattr(near_vectors, "_BLOCK_ROWS", block_rows)
        monkeypatch.setattr(near_vectors, "PAIRS", pairs)
        monkeypatch.setattr(near_vectors, "_DENSE", dense)
        order = draw.permutation(len(vectors))
        rows = rows_with(vectors[order], [f"{n:04}" for n in order])
        search = VectorSearch(kind, cells=8, probes=8)  # all cells
        sifted = near_duplicates_by_vector(rows, min_cosine=least, search=search)
        found = pa.concat_tables(each.kept for each in sifted).sort_by("key")
        near = cosines >= least
        label = connected_components(near)[1]
        linked = near.any(axis=1)
        nearest = [float(cosines[n].max()) if linked[n] else None for n in range(len(vectors))]
        groups = [f"{np.flatnonzero(label == label[n])[0]:04}" if linked[n] else None for n in range(len(vectors))]
        assert found["duplicate_similarity"].to_pylist() == nearest
        assert found["duplicate_group"].to_pylist() == groups


@pytest.mark.parametrize("width", [2, 24, 100, 513])
def test_bounds_contain_the_cosines_and_no_more(width: int) -> None:
    vectors = crowded(width)
    rows = np.flatnonzero(np.isfinite(vectors).all(axis=1) & vectors.any(axis=1))
    cosines = cosines_of_all(vectors)[np.ix_(rows, rows)]
    apart = ~np.eye(len(rows), dtype=bool)
    comparison = near_vectors._Comparison(Stacked([vectors]), 0.5, linking=True)
    least, most = (np.minimum(each, 1) for each in comparison._bounds(rows, rows))
    assert (least <= cosines)[apart].all()
    assert (cosines <= most)[apart].all()
    assert (most - least).max() < (width + 4) * 5e-16


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_a_pair_at_the_threshold_links_two_groups(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_vectors, "_DENSE", 0)
    for seed in range(20):
        draw = np.random.default_rng(seed)
        base = draw.normal(size=100) + draw.normal(size=(2, 1, 100)) * 0.1
        vectors = (base + draw.normal(size=(2, 40, 100)) * 0.01).reshape(80, 100).astype(np.float32)
        across = float(cosines_of_all(vectors)[:40, 40:].max())
        rows, search = rows_with(vectors, [f"{n:04}" for n in range(80)]), VectorSearch(kind, cells=2, probes=2)
        for least, groups in ((across, {"0000"}), (float(np.nextafter(across, 1)), {"0000", "0040"})):
            kept = [each.kept for each in near_duplicates_by_vector(rows, min_cosine=least, search=search)]
            assert set(pa.concat_tables(kept)["duplicate_group"].to_pylist()) == groups


def test_rows_without_direction_are_near_none_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_vectors, "_DENSE", 0)
    vectors, links = crowded(24), near_duplicates._Links()
    for pairs in vector_pairs(Stacked([vectors]), np.arange(len(vectors)), (), -0.5, VectorSearch(), linking=True):
        links.add(pairs)
    links.merge()
    cosines = cosines_of_all(vectors)
    linked = (cosines >= -0.5).any(axis=1)
    assert not linked.all()
    assert np.array_equal(links.rows, np.flatnonzero(linked))
    assert np.array_equal(links.nearest, cosines.max(axis=1)[linked])


def test_links_connect_what_no_row_is_near_all_of() -> None:
    """Two rows of every three are near only one another and the next, which leaves many sets to connect."""
    angle = np.repeat(np.arange(40) * 0.05, 3) + np.tile([0, 0.001, 0.002], 40)
    vectors = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    comparison = near_vectors._Comparison(Stacked([vectors]), float(np.cos(0.0505)), linking=True)
    left, right = comparison._links(np.arange(120), np.arange(120), np.not_equal)
    assert len(left) < 120 * 5
    links = np.zeros((120, 120), dtype=bool)
    links[left, right] = cosines_of_all(vectors)[left, right] >= comparison.min_cosine
    assert connected_components(links)[0] == 1


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_work_and_memory_grow_with_the_rows_that_are_near_and_not_with_their_pairs(
    kind: Any, decided: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_vectors, "_BLOCK_ROWS", 500)
    monkeypatch.setattr(near_vectors, "_ASSIGNED", 500)
    monkeypatch.setattr(near_vectors, "PAIRS", 1 << 18)
    monkeypatch.setattr(near_duplicates, "_HELD_PAIRS", 1 << 12)
    most = list[int]()
    for count in (2_000, 4_000):
        draw = np.random.default_rng(count)
        vectors = (1 + 0.05 * draw.normal(size=(count, 64))).astype(np.float32)  # cosines of 0.997
        rows = rows_with(vectors, [f"{n:04}" for n in range(count)])
        decided.clear()
        tracemalloc.start()
        search = VectorSearch(kind, cells=4, probes=2)
        found = pa.concat_tables(each.kept for each in near_duplicates_by_vector(rows, min_cosine=0.95, search=search))
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert set(found["duplicate_group"].to_pylist()) == {"0000"}
        assert sum(decided) < count * 80
    assert most[1] - most[0] < 2_000 * 64 * 4 * 10


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_a_search_beside_nominates_the_same_pairs(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import faiss

    vectors, search = vectors_near(1_500), VectorSearch(kind, cells=32, probes=2)
    vectors[200:400] = vectors[7] + np.random.default_rng(0).normal(size=(200, 32)) * 0.01  # more than a GPU returns
    wanted = pairs_of(vectors, 0.98, search)

    def knn(queries: np.ndarray, others: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return faiss.knn(queries, others, k, metric=faiss.METRIC_INNER_PRODUCT)

    monkeypatch.setattr(near_vectors, "_on_gpu", lambda width, device: faiss.IndexFlatIP(width))  # in place of a GPU's
    monkeypatch.setattr(near_vectors, "_gpu_search", lambda device: knn)
    assert pairs_of(vectors, 0.98, search) == wanted


def test_vectors_of_rows_of_one_value_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = vectors_near(300)
    table = pa.table({"key": [f"{n:05}" for n in range(300)], "bucket": np.arange(300) % 5})

    class WithVectors(Rows):
        def arrays(self, column: str) -> Iterator[np.ndarray]:
            yield vectors

    def groups(kind: Any) -> dict[str, str]:
        rule, search = DuplicateRule(within="bucket"), VectorSearch(kind, cells=2, probes=2)
        found = near_duplicates_by_vector(WithVectors.of(table), min_cosine=0.9, search=search, rule=rule)
        kept = pa.concat_tables(each.kept for each in found).to_pylist()
        return {row["key"]: row["duplicate_group"] for row in kept if row["duplicate_group"]}

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = (unit @ unit.T >= 0.9) & (np.arange(300)[:, None] % 5 == np.arange(300) % 5) & ~np.eye(300, dtype=bool)
    label = connected_components(near)[1]
    wanted = {f"{n:05}": f"{min(np.flatnonzero(label == label[n])):05}" for n in np.flatnonzero(near.any(axis=1))}
    assert wanted
    assert groups("flat") == wanted
    monkeypatch.setattr(near_hashes, "HELD_HASHES", 30)
    monkeypatch.setattr(vector_cells, "_DRAWN_KEYS", 11)
    assert groups("ivf") == wanted
