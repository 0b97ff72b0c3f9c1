"""Hashes of keys: equal text, equal hash, wherever it stands; the rest are told apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation import key_hashes as module
from benchwright.curation.key_hashes import KeySum, key_hashes

KEYS = ["", "\0", "a", "a\0", "abcdefgh", "abcdefg", "abcdefghi", "ä", "x" * 1024, "x" * 1025, "x" * 5000, "x" * 4999 + "y"]


def test_all_are_told_apart_and_known_again_wherever_they_stand() -> None:
    whole = key_hashes(pa.chunked_array([KEYS]))
    assert len(np.unique(whole)) == len(KEYS)
    order = np.random.default_rng(0).permutation(len(KEYS))
    pieces = pa.chunked_array([[], *([KEYS[n]] for n in order[:5]), [KEYS[n] for n in order[5:]]], pa.string())
    np.testing.assert_array_equal(key_hashes(pieces), whole[order])
    np.testing.assert_array_equal(key_hashes(pa.chunked_array([KEYS]).slice(3, 4)), whole[3:7])
    np.testing.assert_array_equal(key_hashes(pa.chunked_array([KEYS]).dictionary_encode()), whole)


def test_the_compiled_pass_gives_the_same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("benchwright.curation.compiled", reason="llvmlite is not installed", exc_type=ImportError)
    draw = np.random.default_rng(0)
    drawn = ["".join(map(chr, draw.integers(1, 200, size))) for size in draw.integers(0, 40, 300)]
    keys = pa.chunked_array([KEYS, [], drawn]).slice(1)
    plain = key_hashes(keys)
    monkeypatch.setattr(module, "_hashes", None)
    monkeypatch.setattr(module, "_MANY", 1)
    np.testing.assert_array_equal(key_hashes(keys), plain)


def test_of_many_numbers_none_are_alike() -> None:
    assert len(np.unique(key_hashes(pa.chunked_array([[str(n) for n in range(100_000)]])))) == 100_000


@pytest.mark.parametrize(
    ("one", "other", "same"), [("abc", "cba", True), ("abc", "abd", False), ("ab", "aab", False), ("", "", True)]
)
def test_sums_tell_whether_the_same_keys_were_named(one: str, other: str, same: bool) -> None:
    sums = [KeySum(distinct=False), KeySum(distinct=False)]
    for each, keys in zip(sums, (one, other), strict=True):
        each.add(key_hashes(pa.chunked_array([list(keys)], pa.string())))
    assert (sums[0].total() == sums[1].total()) is same


@pytest.mark.parametrize("held", [1, 1000, 1 << 22])
def test_repeated_keys_count_once_also_where_they_are_in_a_file(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(module, "_HELD", held)
    keys = np.random.default_rng(0).integers(0, 3000, (9, 700)).astype(str)
    some, others = KeySum(distinct=True), KeySum(distinct=True)
    for each in keys:
        some.add(key_hashes(pa.chunked_array([each.tolist()])))
    others.add(key_hashes(pa.chunked_array([np.unique(keys).tolist()])))
    assert some.total() == others.total() != KeySum(distinct=True).total()
    others.add(key_hashes(pa.chunked_array([["another"]])))
    assert some.total() != others.total()
