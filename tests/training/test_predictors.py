"""The open-world predictors and what they are made of, against definitions and other libraries."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.registry import load_name
from benchwright.eval.metrics import confusion
from benchwright.eval.protocols.open_world import loop
from benchwright.training.predictors import predictor as shared
from benchwright.training.predictors.evm import cover_radii, fit_weibulls, inclusion, log_powers, set_cover
from benchwright.training.predictors.finch import finch
from benchwright.training.predictors.gaussians import component_log_densities, fit_mixture, mixture_log_densities
from benchwright.training.predictors.gmm_finch import GmmFinch
from benchwright.training.predictors.paper import paper_settings, start_settings
from benchwright.training.predictors.predictor import gather, random_order, set_unknown, uncertain_first
from benchwright.training.predictors.registry import PREDICTORS, new_predictor
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import adjusted_rand_score

Seen = tuple[np.ndarray, np.ndarray, np.ndarray]


def cloud(seed: int, *, classes: int = 4, rows: int = 60, width: int = 8, name: str = "a") -> Seen:
    """Classes far apart, each along an axis of its own, shuffled; labels of all rows."""
    draw = np.random.default_rng(seed)
    y = draw.permutation(np.repeat(np.arange(classes), rows))
    centres = 12 * np.eye(width)
    uid = np.array([f"{name}{row}" for row in range(len(y))])
    return uid, (centres[y] + draw.normal(size=(len(y), width))).astype(np.float32), y.astype(np.int64)


def hidden(seen: Seen, share: float) -> Seen:
    uid, X, y = seen
    return uid, X, np.where(np.arange(len(y)) < share * len(y), y, -1)


EMPTY: Seen = (np.empty(0, np.str_), np.empty((0, 8), np.float32), np.empty(0, np.int64))
SMALL = paper_settings()
SMALL["ann"] |= {"hidden": 64, "batch_size": 32, "epochs": 5}
SMALL["ann_evm"] = {"ann": SMALL["ann"], "evm": {}}
NAMES = ["c0", "c1", "c2", "c3"]
OUTPUTS = [*NAMES, "x4", "x5", "x6", "x7"]
"""Clouds lie along the axes: read as outputs of a classifier, each says its own class, and the last four none of the data's."""
LEARNING = sorted(set(PREDICTORS.builtin) - {"original"})
"""``original`` learns nothing: it needs no label, and there is no fit that could lack one."""


def make(kind: str, seed: int = 0, **changes: Any) -> Any:
    made = load_name(PREDICTORS, kind)
    return new_predictor(made, {**SMALL[kind], **changes}, seed=seed, names=NAMES, outputs=OUTPUTS)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# --- what all share


def test_the_two_rooms_agree_on_labels():
    assert shared.UNKNOWN == confusion.UNKNOWN
    assert shared.UNLABELLED == loop.HIDDEN


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_gathered_rows_are_those_of_one_array(sizes, seed):
    draw = np.random.default_rng(seed)
    parts = [(np.array(["u"] * n), draw.random((n, 3), dtype=np.float32), np.zeros(n, np.int64)) for n in sizes]
    rows = draw.integers(0, sum(sizes), 12) if sum(sizes) else np.empty(0, np.int64)
    np.testing.assert_array_equal(gather(parts, rows), np.concatenate([X for _, X, _ in parts])[rows])


@given(st.integers(0, 2**32 - 1))
def test_a_rejected_row_is_unknown_and_keeps_its_order(seed):
    draw = np.random.default_rng(seed)
    before = draw.dirichlet(np.ones(5), 8).astype(np.float32)
    before[0] = [0, 1, 0, 0, 0]
    rejected = draw.random(8) < 0.5
    after = before.copy()
    set_unknown(after, rejected)
    np.testing.assert_array_equal(after[~rejected], before[~rejected])
    assert (after[rejected].argmax(1) == 0).all()
    np.testing.assert_allclose(after.sum(1), 1, atol=1e-6)
    kept = rejected & (before[:, 1:].max(1) < 1) & (before.argmax(1) > 0)
    np.testing.assert_array_equal(after[kept, 1:].argmax(1), before[kept, 1:].argmax(1))


def test_settings_of_the_paper():
    """Those of the paper; two limits for small data, and no threshold in Table 3, are ours."""
    assert start_settings() == {"ann": {"validation_error": 0}}
    assert paper_settings() == {
        "ann": {
            "hidden": 0,
            "dropout": 0.5,
            "epochs": 1,
            "batch_size": 1000,
            "least_steps": 10,
            "learning_rate": 1e-3,
            "validation_error": 0.1,
            "threshold_when": "first_fit",
            "request": "random",
        },
        "gmm_finch": {
            "min_error_tol": 0.05,
            "epsilon": 1e-12,
            "shrinkage": "none",
            "dtype": "float64",
            "distance": "cosine",
            "request": "uncertain_first",
            "recognise": True,
        },
        "evm": {
            "tail_size": 100,
            "tail_share": 0.1,
            "cover_threshold": 0.7,
            "distance_multiplier": 1.0,
            "fit": "as_released",
            "request": "random",
        },
        "ann_evm": {"ann": {}, "evm": {}},
        "original": {},
    }


def test_orders_of_requests():
    uid = np.array(["a", "b", "c", "d"])
    assert uncertain_first(uid, np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.5, 0.5]], np.float32)) == ["b", "d", "c", "a"]
    many = np.array([f"u{i}" for i in range(50)])
    order = random_order(many, seed=0)
    assert sorted(order) == sorted(many)
    assert order != many.tolist()
    assert order != random_order(many, seed=1)
    assert [uid for uid in order if uid in many[:20]] == random_order(many[:20], seed=0)  # a uid's place is its own


@pytest.mark.parametrize("kind", sorted(PREDICTORS.builtin))
def test_a_restored_predictor_is_the_one_that_was_saved(kind: str):
    first, second, test = cloud(0), hidden(cloud(1, classes=5, rows=20, name="b"), 0.5), cloud(2, classes=6, rows=9, name="c")
    whole, other = make(kind), make(kind)
    for one in (whole, other):
        one.fit((first,), first)
        one.predict(*test[:2])
    restored = make(kind)
    restored.restore(other.state(), (first,))
    for one in (whole, restored):
        one.fit((first, second), first)
    (columns, probabilities), (again, same_probabilities) = (one.predict(*test[:2]) for one in (whole, restored))
    np.testing.assert_array_equal(columns, again)
    np.testing.assert_array_equal(probabilities, same_probabilities)
    assert same(whole.state(), restored.state())
    assert whole.request(*test[:2]) == restored.request(*test[:2])


@pytest.mark.parametrize("kind", sorted(PREDICTORS.builtin))
def test_known_classes_are_told_apart_and_strangers_are_strange(kind: str):
    fitted = make(kind)
    fitted.fit((cloud(0),), cloud(1))
    uid, X, y = cloud(2, classes=6, name="t")
    state = torch.get_rng_state()
    columns, probabilities = fitted.predict(uid, X)
    assert torch.equal(state, torch.get_rng_state())
    assert columns[:5].tolist() == [-1, 0, 1, 2, 3]
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    guess = columns[probabilities.argmax(1)]
    assert (guess[y < 4] == y[y < 4]).mean() > 0.85
    least = {"ann": 0.4, "ann_evm": 0.3, "evm": 0.4, "gmm_finch": 0.95, "original": 0.95}
    assert (guess[y >= 4] < 0).mean() > least[kind]


@pytest.mark.parametrize("kind", sorted(PREDICTORS.builtin))
def test_the_number_of_threads_changes_nothing(kind: str):
    before, states = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            one = make(kind)
            one.fit((cloud(0),), cloud(1))
            states.append({**one.state(), "p": one.predict(*cloud(2)[:2])[1]})
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert same(*states)


@pytest.mark.parametrize("kind", sorted(PREDICTORS.builtin))
def test_memory_mapped_features_do(kind: str, tmp_path):
    uid, X, y = cloud(0)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    plain, lazy = make(kind), make(kind)
    plain.fit(((uid, X, y),), (uid, X, y))
    lazy.fit(((uid, mapped, y),), (uid, mapped, y))
    np.testing.assert_array_equal(plain.predict(uid, X)[1], lazy.predict(uid, mapped)[1])


@pytest.mark.parametrize("kind", LEARNING)
def test_nothing_to_learn_from_is_an_error(kind: str):
    with pytest.raises(ValueError, match="class"):
        make(kind).fit((hidden(cloud(0), 0.0),), cloud(1))


def test_settings_are_checked_by_name_and_value():
    with pytest.raises(ValueError, match="no predictor 'knn'"):
        new_predictor(load_name(PREDICTORS, "knn"), {}, seed=0)
    with pytest.raises(TypeError, match="momentum"):
        make("ann", momentum=1)
    for kind, changes, says in [
        ("ann", {"dropout": 1.0}, "dropout 1.0"),
        ("ann", {"epochs": 0}, "must be positive"),
        ("ann", {"request": "first"}, "'first'"),
        ("gmm_finch", {"epsilon": 0.0}, "epsilon 0.0"),
        ("gmm_finch", {"dtype": "float16"}, "'float16'"),
        ("gmm_finch", {"shrinkage": "some"}, "'some'"),
        ("gmm_finch", {"distance": "l1"}, "'l1'"),
        ("ann", {"threshold_when": "last_fit"}, "'last_fit'"),
        ("evm", {"tail_size": 1}, "tail_size >= 2"),
        ("evm", {"fit": "high"}, "'high'"),
    ]:
        with pytest.raises(ValueError, match=says):
            make(kind, **changes)


# --- ANN


def test_the_ann_is_not_fitted_again_without_labels_and_grows_with_new_ones():
    first, test = cloud(0), cloud(2)
    ann = make("ann")
    ann.fit((first,), first)
    before = ann.state()
    ann.fit((first, hidden(cloud(1, classes=5, name="b"), 0.0)), first)
    assert same(before, ann.state())
    ann.fit((first, cloud(1, classes=4, name="b")), first)
    assert ann.predict(*test[:2])[0].tolist() == [-1, 0, 1, 2, 3]
    ann.fit((first, cloud(1, classes=6, name="c")), first)
    assert ann.predict(*test[:2])[0].tolist() == [-1, 0, 1, 2, 3, 4, 5]
    assert ann.state()["output_weight"].shape == (7, 64)


def test_a_tenth_of_the_validation_rows_is_rejected():
    validation = cloud(1, rows=250)
    ann = make("ann")
    ann.fit((cloud(0),), validation)
    columns, probabilities = ann.predict(*validation[:2])
    assert (columns[probabilities.argmax(1)] == -1).mean() == pytest.approx(0.1, abs=0.003)
    none = make("ann", validation_error=0.0)
    none.fit((cloud(0),), validation)
    columns, probabilities = none.predict(*validation[:2])
    assert none.threshold == 0
    columns, probabilities = none.predict(*cloud(2, classes=6, rows=250)[:2])  # nor is anything else
    assert (columns[probabilities.argmax(1)] == -1).mean() == 0
    make("ann", validation_error=0.0).fit((cloud(0),), EMPTY)


def test_the_hidden_layer_is_as_wide_as_the_features_unless_a_width_is_given():
    for width, hidden_width, expected in ((12, 0, 12), (7, 0, 7), (12, 5, 5)):
        ann = make("ann", hidden=hidden_width)
        ann.fit((cloud(0, width=width),), cloud(1, width=width))
        assert ann.state()["hidden_weight"].shape == (expected, width)
        assert ann.state()["output_weight"].shape[1] == expected
    with pytest.raises(ValueError, match="hidden = -1: expected int from 0 to 8192"):
        make("ann", hidden=-1)


def test_when_the_threshold_is_found():
    first, second = cloud(0), cloud(1, classes=6, name="b")
    once, again = make("ann"), make("ann", threshold_when="each_fit")
    for one in (once, again):
        one.fit((first,), first)
    start = once.threshold
    assert again.threshold == start
    for one in (once, again):
        one.fit((first, second), first)
    assert once.threshold == start
    assert again.threshold != start
    with pytest.raises(ValueError, match="no validation row of a known class"):
        make("ann").fit((first,), EMPTY)


# --- FINCH


def test_far_groups_are_found():
    draw = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), 40)
    X = 30 * draw.normal(size=(5, 16))[truth] + draw.normal(size=(200, 16))
    partitions = finch(X, distance="euclidean")
    assert [len(np.unique(p)) for p in partitions] == sorted({len(np.unique(p)) for p in partitions}, reverse=True)
    assert all(len(np.unique(truth[partitions[0] == cluster])) == 1 for cluster in np.unique(partitions[0]))
    assert max(adjusted_rand_score(truth, p) for p in partitions) > 0.9
    for finer, coarser in itertools.pairwise(partitions):  # each cluster lies in one of the next level
        assert all(len(np.unique(coarser[finer == cluster])) == 1 for cluster in np.unique(finer))


def test_small_inputs():
    assert finch(np.ones((1, 3)))[0].tolist() == [0]
    assert finch(np.array([[0.0, 1.0], [1.0, 0.0]]))[0].tolist() == [0, 0]
    pairs = np.array([[0.0, 0], [0, 1], [50, 0], [50, 1], [0, 90], [0, 91]])
    assert finch(pairs, distance="euclidean")[-1].tolist() == [0, 0, 1, 1, 2, 2]
    assert finch(np.ones((7, 2)))[-1].tolist() == [0] * 7
    with pytest.raises(ValueError, match=r"shape \(0, 3\)"):
        finch(np.ones((0, 3)))
    with pytest.raises(ValueError, match="distance 'l1'"):
        finch(np.ones((2, 3)), distance="l1")  # type: ignore[arg-type]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_the_package_of_finchs_authors_finds_the_same_partitions(distance: Any):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pytest.importorskip("finch", reason="finch-clust is not installed")
    for seed in range(12):
        draw = np.random.default_rng(seed)
        X = (draw.normal(size=(8, 10))[draw.integers(0, 8, 150)] * 4 + draw.normal(size=(150, 10))).astype(np.float32)
        expected, counts, _ = theirs.FINCH(X, distance=distance, verbose=False)
        ours = finch(X, distance=distance)
        assert [int(p.max()) + 1 for p in ours] == list(counts)
        for column, partition in zip(expected.T, ours, strict=True):
            assert adjusted_rand_score(column, partition) == 1


def test_block_size_changes_nothing():
    X = np.random.default_rng(0).normal(size=(101, 6))
    for a, b in zip(finch(X), finch(X, batch_size=7), strict=True):
        np.testing.assert_array_equal(a, b)


# --- Gaussians


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 6))
def test_log_densities_equal_scipys(seed, clusters, width):
    draw = np.random.default_rng(seed)
    numbers = np.concatenate([np.arange(clusters), draw.integers(0, clusters, 40)])
    X = (draw.normal(size=(len(numbers), width)) + 3 * numbers[:, None]).astype(np.float32)
    mixture = fit_mixture(X, numbers, epsilon=1e-3, dtype=torch.float64, device="cpu")
    queries = draw.normal(size=(11, width)).astype(np.float32)
    ours = component_log_densities(queries, mixture, batch_size=4, width=2 * width).numpy()
    parts = []
    for k in range(clusters):
        own = X[numbers == k].astype(np.float64)
        covariance = (np.cov(own.T).reshape(width, width) if len(own) > 1 else 0) + 1e-3 * np.eye(width)
        parts.append(stats.multivariate_normal(own.mean(0), covariance).logpdf(queries.astype(np.float64)))
    np.testing.assert_allclose(ours, np.stack(parts, axis=1), rtol=1e-6)
    whole = mixture_log_densities(queries, [mixture, mixture], batch_size=3)
    np.testing.assert_allclose(whole[:, 0], np.logaddexp.reduce(np.stack(parts), axis=0) - np.log(clusters), rtol=1e-6)
    np.testing.assert_array_equal(whole[:, 0], whole[:, 1])


def test_one_row_and_flat_clusters_have_a_density():
    X = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [9, 0, 0]], np.float32)  # a line, and one row alone
    mixture = fit_mixture(X, np.array([0, 0, 0, 1]), epsilon=1e-12, dtype=torch.float64, device="cpu")
    densities = component_log_densities(X, mixture)
    assert torch.isfinite(densities).all()
    assert densities.argmax(1).tolist() == [0, 0, 0, 1]
    huge = fit_mixture(1e6 * X, np.array([0, 0, 0, 1]), epsilon=1e-12, dtype=torch.float64, device="cpu")
    assert torch.isfinite(component_log_densities(1e6 * X, huge)).all()  # rounding is larger than epsilon here


def test_shrunk_covariances_are_the_limit_of_the_oracles_iteration():
    """Chen et al. 2010: Eq. 23 is where Eqs. 20 and 21 lead, whatever they start from. scikit-learn leaves 2 / d out."""
    from benchwright.training.predictors.gaussians import _shrunk
    from sklearn.covariance import oas

    draw = np.random.default_rng(0)
    for rows, d in ((5, 3), (20, 7), (9, 30), (200, 4), (40, 200)):
        X = draw.normal(size=(rows, d)) @ draw.normal(size=(d, d))
        empirical = np.cov(X.T, bias=True)
        target = np.trace(empirical) / d * np.eye(d)
        estimate = (empirical + target) / 2
        for _ in range(300):
            both, square = (estimate * empirical).sum(), np.trace(estimate) ** 2
            share = ((1 - 2 / d) * both + square) / ((rows + 1 - 2 / d) * both + (1 - rows / d) * square)
            estimate = (1 - share) * empirical + share * target
        ours = _shrunk(torch.from_numpy(empirical), rows, torch.tensor(0.0)).numpy()
        np.testing.assert_allclose(ours, estimate, rtol=1e-9, atol=1e-12)
        assert 0 < share < 1
        theirs, their_share = oas(X)
        assert share < their_share <= 1  # theirs shrinks a little more ...
        if d == 200:
            np.testing.assert_allclose(ours, theirs, rtol=0.02, atol=0.02 * theirs.diagonal().max())  # ... and ever less
    # No spread of its own: the mean variance within the other clusters, here (2 + 8) / 2 of one row more than one, by 2.
    X = np.array([[0, 0], [2, 0], [9, 9], [9, 13], [5, 5]], np.float32)
    mixture = fit_mixture(X, np.array([0, 0, 1, 1, 2]), epsilon=1e-9, shrinkage="oas", dtype=torch.float64, device="cpu")
    np.testing.assert_allclose(mixture.whiten[2].numpy(), np.eye(2) / np.sqrt(2.5), rtol=1e-6)


# --- GMM-FINCH


def test_features_wider_than_clusters_want_shrinkage():
    """30 rows a class in 64 features: without shrinkage a new row of a known class lies off its flat Gaussian."""
    first, validation, test = (cloud(seed, rows=30, width=64, name=str(seed)) for seed in range(3))
    strange = cloud(3, classes=6, rows=30, width=64, name="3")
    right: dict[str, float] = {}
    for shrinkage in ("none", "oas"):
        fitted = make("gmm_finch", shrinkage=shrinkage)
        fitted.fit((first,), validation)
        columns, probabilities = fitted.predict(*test[:2])
        assert np.isfinite(probabilities).all()
        right[shrinkage] = float((columns[probabilities.argmax(1)] == test[2]).mean())
        columns, probabilities = fitted.predict(*strange[:2])
        guess = columns[probabilities.argmax(1)]
        if shrinkage == "oas":
            assert (guess[strange[2] >= 4] < 0).mean() > 0.95
    assert right["oas"] > 0.9
    assert right["oas"] > right["none"]


def all_densities(fitted: GmmFinch, X: np.ndarray) -> np.ndarray:
    return mixture_log_densities(X, list(fitted._mixtures.values()))


def test_the_threshold_is_the_lowest_best_density_of_all_training_rows():
    first, second = cloud(0), cloud(1, classes=6, rows=30, name="b")
    fitted = make("gmm_finch")
    fitted.fit((first, second), EMPTY)
    lowest = all_densities(fitted, np.concatenate([first[1], second[1]])).max(1).min()
    assert fitted.threshold == pytest.approx(lowest, rel=1e-12)


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.5, 1.0])
def test_validation_rows_lower_the_threshold(tolerance: float):
    first, validation = cloud(0, rows=30), cloud(3, classes=6, rows=60)
    plain, lowered = make("gmm_finch"), make("gmm_finch", min_error_tol=tolerance)
    plain.fit((first,), EMPTY)
    lowered.fit((first,), validation)
    best = all_densities(plain, validation[1][validation[2] < 4]).max(1)  # the other two classes are not known
    below = best[best < plain.threshold]
    assert len(below) > 3
    assert lowered.threshold == pytest.approx(np.quantile(below, tolerance), rel=1e-12)


def test_what_is_rejected_becomes_clusters_with_numbers_of_their_own():
    fitted = make("gmm_finch")
    fitted.fit((cloud(0),), cloud(1))
    uid, X, y = cloud(2, classes=6, name="t")
    columns, probabilities = fitted.predict(uid, X)
    guess = columns[probabilities.argmax(1)]
    clusters = guess[y >= 4]
    assert (clusters < -1).mean() > 0.9
    assert set(clusters[y[y >= 4] == 4]) & set(clusters[y[y >= 4] == 5]) - {-1} == set()  # two classes, no common cluster
    again, _ = fitted.predict(uid, X)
    np.testing.assert_array_equal(columns, again)  # nothing new was rejected: the same clusters
    later, _ = fitted.predict(*cloud(3, classes=7, name="u")[:2])
    assert not set(columns[columns < -1]) & set(later[later < -1])
    fitted.fit((cloud(0), (uid, X, y)), cloud(1))  # with their labels these are classes
    columns, probabilities = fitted.predict(uid, X)
    assert columns[1:7].tolist() == [0, 1, 2, 3, 4, 5]
    assert (columns[probabilities.argmax(1)] == y).mean() > 0.95


def test_unlabelled_training_rows_that_a_fit_rejects_become_unknowns():
    """With half of the labels, rows that were accepted when they came may be far from all classes after a fit."""
    first, more = cloud(0), hidden(cloud(2, classes=6, name="t"), 0.5)
    fitted = make("gmm_finch")
    fitted.fit((first,), cloud(1))
    far = cloud(3, classes=7, name="u")
    new, later = (hidden(seen, 0.0) for seen in (cloud(4, classes=6, name="v"), far))
    fitted.fit((first, new, more), cloud(1))  # never predicted: none was rejected before
    uid, X, y = (np.concatenate(each) for each in zip(new, more, strict=True))
    rejected = (all_densities(fitted, X).max(1) < fitted.threshold) & (y < 0)
    assert rejected.any()
    assert set(fitted.state()["pool_uid"]) == set(uid[rejected])
    fitted.fit(
        (first, new, more, later), cloud(1)
    )  # no new label: as before, and what comes is classified when it is predicted
    assert set(fitted.state()["pool_uid"]) == set(uid[rejected])
    plain = make("gmm_finch", recognise=False)
    plain.fit((first, new, more), cloud(1))
    assert not len(plain.state()["pool_uid"])


def test_without_recognition_prediction_teaches_nothing():
    fitted = make("gmm_finch", recognise=False)
    fitted.fit((cloud(0),), cloud(1))
    before = fitted.state()
    columns, _ = fitted.predict(*cloud(2, classes=6)[:2])
    assert columns.tolist() == [-1, 0, 1, 2, 3]
    assert same(before, fitted.state())


def test_fitted_step_by_step_or_at_once_it_is_the_same():
    first, second = cloud(0), cloud(1, classes=5, rows=20, name="b")
    steps, once = make("gmm_finch"), make("gmm_finch")
    steps.fit((first,), first)
    steps.fit((first, second), first)
    once.fit((first, second), first)
    assert same(steps.state(), once.state())


# --- EVM


def psi_of(distances: np.ndarray, weibulls: np.ndarray, fit: Any) -> np.ndarray:
    return inclusion(log_powers(torch.from_numpy(distances), torch.from_numpy(weibulls), fit).numpy(), fit)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 20), st.floats(0.01, 5))
def test_weibull_fits_equal_scipys(seed, shape, scale):
    tails = np.sort(stats.weibull_min.rvs(shape, scale=scale, size=(3, 60), random_state=seed), axis=1)
    ours = fit_weibulls(tails, "as_written")
    for row, (c, s, turn) in zip(tails, ours, strict=True):
        theirs = stats.weibull_min.fit(row, floc=0)
        own, other = (stats.weibull_min.logpdf(row, a, 0, b).sum() for a, b in ((c, s), (theirs[0], theirs[2])))
        assert own >= other - 1e-6  # as likely as scipy's, or more
        assert c == pytest.approx(theirs[0], rel=1e-2)
        assert turn == 0
        np.testing.assert_allclose(
            psi_of(row[:, None], ours[:1], "as_written")[:, 0], stats.weibull_min.sf(row, *[ours[0, 0], 0, ours[0, 1]])
        )


def test_the_tail_turned_round():
    tails = np.sort(np.random.default_rng(0).random((2, 50)), axis=1)
    ours = fit_weibulls(tails, "as_released")
    turned = tails[0].max() - tails[0] + 1
    theirs = stats.weibull_min.fit(turned, floc=0)
    np.testing.assert_allclose(ours[0], [theirs[0], theirs[2], tails[0].max()], rtol=1e-3)
    distances = np.linspace(0, 3, 9)[:, None]
    expected = stats.weibull_min.cdf(tails[0].max() - distances[:, 0] + 1, ours[0, 0], 0, ours[0, 1])
    np.testing.assert_allclose(psi_of(distances, ours[:1], "as_released")[:, 0], expected)


@pytest.mark.parametrize("fit", ["as_released", "as_written"])
def test_nearer_is_more_included_and_odd_tails_do_no_harm(fit: Any):
    tails = np.stack([np.linspace(0.2, 0.4, 30), np.full(30, 0.3), np.zeros(30), np.r_[np.zeros(15), np.full(15, 1.0)]])
    weibulls = fit_weibulls(tails, fit)
    assert np.isfinite(weibulls).all()
    psi = psi_of(np.linspace(0, 2, 50)[:, None], weibulls, fit)
    assert ((psi >= 0) & (psi <= 1)).all()
    assert (np.diff(psi, axis=0) <= 1e-12).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_the_cover_covers(seed, n):
    covers = np.random.default_rng(seed).random((n, n)) < 0.3
    chosen = set_cover(covers)
    assert (covers | np.eye(n, dtype=bool))[chosen].any(0).all()
    assert len(set(chosen.tolist())) == len(chosen)
    assert chosen[0] == (covers | np.eye(n, dtype=bool)).sum(1).argmax()


@pytest.mark.parametrize("fit", ["as_released", "as_written"])
def test_evm_fitted_step_by_step_or_at_once_is_the_same(fit: Any):
    parts = [cloud(0), hidden(cloud(1, classes=5, rows=20, name="b"), 0.5), cloud(2, classes=6, rows=15, name="c")]
    steps, once = make("evm", fit=fit), make("evm", fit=fit)
    for n in range(1, 4):
        steps.fit(tuple(parts[:n]), EMPTY)
    once.fit(tuple(parts), EMPTY)
    a, b = steps.state(), once.state()
    assert len(a["tails"]) == 4 * 60 + 50 + 6 * 15
    np.testing.assert_array_equal(a["uid"], b["uid"])
    np.testing.assert_allclose(a["tails"], b["tails"], atol=1e-6)
    uid, X, _ = cloud(4, classes=7, name="t")
    np.testing.assert_allclose(steps.predict(uid, X)[1], once.predict(uid, X)[1], atol=1e-3)
    # The tails are what their name says.
    X = np.concatenate([X for _, X, _ in parts])
    y = np.concatenate([y for _, _, y in parts])
    X, y = X[y >= 0] / np.linalg.norm(X[y >= 0], axis=1, keepdims=True), y[y >= 0]
    row = 7
    nearest = np.sort(1 - X[y != y[row]] @ X[row])[: SMALL["evm"]["tail_size"]]
    np.testing.assert_allclose(a["tails"][row], nearest, atol=1e-6)


def test_evm_starts_anew_where_a_limit_took_rows_away():
    first, second = cloud(0), cloud(1, name="b")
    limited, fresh = make("evm"), make("evm")
    limited.fit((first,), EMPTY)
    limited.fit((tuple(each[100:] for each in first), second), EMPTY)
    fresh.fit((tuple(each[100:] for each in first), second), EMPTY)
    assert same(limited.state(), fresh.state())


@pytest.mark.parametrize("fit", ["as_released", "as_written"])
def test_within_its_radius_a_row_covers(fit: Any):
    weibulls = np.array([[2.0, 0.5, 0.4], [30.0, 1.1, 0.3], [1.0, 0.2, 1.0]])
    radii = cover_radii(weibulls, 0.7, fit)
    for factor, holds in ((0.999, True), (1.001, False)):
        psi = psi_of((radii * factor)[:, None], weibulls[:, None], fit)[:, 0]
        assert ((psi >= 0.7) == holds)[radii > 0].all()


def test_evm_needs_strangers():
    with pytest.raises(ValueError, match="labels of 1 classes"):
        make("evm").fit((cloud(0, classes=1),), EMPTY)
