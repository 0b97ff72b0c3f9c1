"""Reservoirs: the paper's acceptance, its sizes, and their statistics."""

from __future__ import annotations

import numpy as np
import pytest
from benchwright.training.core.exemplars import acceptance, biased_reservoir
from benchwright.training.methods.registry import method
from hypothesis import given
from hypothesis import strategies as st


def run(sizes: list[int], **settings: object) -> np.ndarray:
    buffer = np.empty(0, dtype=np.int64)
    for step in range(1, len(sizes) + 1):
        buffer = biased_reservoir(buffer, sizes[:step], **settings)  # type: ignore[arg-type]
    return buffer


@pytest.mark.parametrize(("k", "n"), [(2310, 10), (3300, 10)])
def test_buffers_of_the_paper_keep_the_size_of_the_first_bucket(k: int, n: int):
    for alpha, dynamic in [(0.5, False), (5.0, False), (0.75, True)]:
        buffer = run([k] * n, seed=0, alpha=alpha, dynamic=dynamic)
        assert len(buffer) == k
        assert len(np.unique(buffer)) == k
        assert buffer.min() >= 0
        assert buffer.max() < k * n


def test_acceptance_is_the_papers_formula():
    k = 2310
    for bucket in range(2, 11):
        i = k * bucket
        assert acceptance(1.0, k, i, dynamic=False) == pytest.approx(1 / bucket)
        assert acceptance(5.0, k, i, dynamic=False) == pytest.approx(min(1.0, 5 / bucket))
        for constant in (0.25, 0.5, 0.75, 1.0):
            assert acceptance(constant, k, i, dynamic=True) == pytest.approx(constant)
    with pytest.raises(ValueError, match=r"alpha -1"):
        acceptance(-1, k, k, dynamic=False)


def test_vitters_reservoir_holds_every_domain_alike():
    # 4 domains of 100 rows: each row is held with probability 1/4. 300 seeds give 7,500 rows a domain on average, with a
    # standard deviation of about 75 (binomial bound); 5 of them are allowed.
    held = np.zeros(4)
    for seed in range(300):
        buffer = run([100] * 4, seed=seed, alpha=1.0, dynamic=False)
        held += np.bincount(buffer // 100, minlength=4)
    assert np.abs(held - 7500).max() < 375


def test_bias_favours_the_present_as_much_as_alpha_says():
    # Expected share of the last of 4 equal domains is its acceptance: min(1, alpha/4), and .5 for the dynamic one.
    for alpha, dynamic, share in [(0.5, False, 0.125), (2.0, False, 0.5), (0.5, True, 0.5), (5.0, False, 1.0)]:
        shares = [np.mean(run([200] * 4, seed=seed, alpha=alpha, dynamic=dynamic) >= 600) for seed in range(100)]
        assert np.mean(shares) == pytest.approx(share, abs=0.015)


def test_the_two_removals_differ_in_rows_and_agree_in_distribution():
    shares = {}
    for removal in ("as_released", "as_written"):
        buffers = [run([200] * 3, seed=s, alpha=1.0, dynamic=False, removal=removal) for s in range(200)]
        shares[removal] = np.mean([np.bincount(b // 200, minlength=3) for b in buffers], axis=0)
    assert not np.array_equal(*[run([200] * 3, seed=0, alpha=1.0, dynamic=False, removal=r) for r in shares])
    np.testing.assert_allclose(shares["as_released"], shares["as_written"], atol=3)
    with pytest.raises(ValueError, match="removal 'fifo'"):
        run([2, 2], seed=0, alpha=1.0, dynamic=False, removal="fifo")


def test_dynamic_one_is_the_current_domain():
    np.testing.assert_array_equal(run([50] * 3, seed=3, alpha=1.0, dynamic=True), np.arange(100, 150))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(0, 6), st.booleans(), st.integers(0, 5))
def test_capacity_holds_for_domains_of_any_size(sizes: list[int], alpha: float, dynamic: bool, seed: int):
    buffer = run(sizes, seed=seed, alpha=alpha, dynamic=dynamic)
    assert len(buffer) == len(np.unique(buffer)) == sizes[0]
    assert buffer.max() < sum(sizes)
    np.testing.assert_array_equal(buffer, run(sizes, seed=seed, alpha=alpha, dynamic=dynamic))


def test_rules_choose_what_they_say():
    empty = np.empty(0, dtype=np.int64)
    np.testing.assert_array_equal(method("finetune").rule(empty, [3, 2], seed=0), [3, 4])
    np.testing.assert_array_equal(method("cumulative").rule(empty, [3, 2], seed=0), [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(method("nap").rule(empty, [3], seed=0), [0, 1, 2])
    assert len(method("nap").rule(empty, [3, 2], seed=0)) == 0


def test_methods_by_name():
    reservoir = method("reservoir", start="finetune", alpha=0.5)
    assert (reservoir.name, reservoir.settings["alpha"]) == ("reservoir", 0.5)
    with pytest.raises(ValueError, match="no method 'gdump'"):
        method("gdump", start="finetune")
    with pytest.raises(ValueError, match="cumulative: start = 'warm': expected 'scratch' or 'finetune'"):
        method("cumulative", start="warm")
    with pytest.raises(ValueError, match="reservoir: alpha is missing: there are alpha, start"):
        method("reservoir", start="finetune")
    with pytest.raises(ValueError, match="nap: beta = 1: there is no such setting: there are"):
        method("nap", beta=1)
