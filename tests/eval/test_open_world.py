"""The open-world loop: who sees what and when, feedback, resume after a kill, equal bytes, and worlds of known structure."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.registry import load_name
from benchwright.eval.metrics.novelty import reaction
from benchwright.eval.protocols.open_world import predictions
from benchwright.eval.protocols.open_world.loop import Increment, Setting, SplitSamples, run_open_world
from benchwright.eval.protocols.open_world.measures import COLUMNS, CUMULATIVE, FROM_START, measure_open_world, tidy
from benchwright.eval.protocols.open_world.predictions import OpenWorldPredictions, Predicted
from benchwright.training.predictors.paper import paper_settings
from benchwright.training.predictors.registry import PREDICTORS, new_predictor
from sklearn import metrics

from tests.eval.open_worlds import results_of, rows_of
from tests.files import ROOT, module_of

make_world = module_of(ROOT / "benchmarks/make_kowl_features.py").make_world

SETTINGS = paper_settings()
SETTINGS["ann"] |= {"hidden": 64, "batch_size": 50, "epochs": 2, "threshold_when": "each_fit"}
# A softmax is a matter of directions, and needs room for them; Gaussians need more rows than features.
WIDTH = {"ann": 64, "gmm_finch": 8}


def world(name: str = "separable", increments: int = 3, **changes: int) -> tuple[list[Increment], list[str]]:
    return make_world(name, seed=1, increments=increments, **{"start": 6, "rows": 60, **changes})


@dataclass(frozen=True)
class Ran:
    tables: list[pa.Table]
    method: str
    feedback: float

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Of the tidy table."""
        return tidy(results_of(rows_of(self.tables), feedback=self.feedback, method=self.method)).to_pylist()

    @property
    def predictions(self) -> OpenWorldPredictions:
        return OpenWorldPredictions(rows_of(self.tables))

    def predicted(self, increment: int, phase: str, split: str) -> Predicted:
        asked = increment, phase, split
        (found,) = [one for one in self.predictions if (one.increment, one.phase, one.split) == asked]
        return found


def run(kind: str, out: Path, made: tuple[list[Increment], list[str]], *, feedback: float = 1.0) -> Ran:
    predictor = new_predictor(load_name(PREDICTORS, kind), SETTINGS[kind], seed=0)
    out.mkdir(exist_ok=True)
    return Ran(list(run_open_world(predictor, *made, setting=Setting(feedback), folder=out)), kind, feedback)


def values(ran: Ran, measure: str, **where: Any) -> list[float]:
    asked = {
        "split": "test",
        "cumulative": False,
        "from_start": False,
        "phase": "pre",
        "task": "detection",
        "novel_to": "evaluator",
        **where,
    }
    return [row["value"] for row in ran.rows if row["measure"] == measure and all(row[k] == v for k, v in asked.items())]


@pytest.mark.parametrize("kind", ["ann", "gmm_finch"])
def test_novelty_that_shows_is_detected_and_novelty_that_does_not_is_not(tmp_path: Path, kind: str):
    shows = run(kind, tmp_path / "shows", world(start=12, width=WIDTH[kind]))
    hidden = run(kind, tmp_path / "hidden", world("overlapping", start=12, width=WIDTH[kind]))
    limit = {"ann": 0.5, "gmm_finch": 0.9}[kind]
    assert min(values(shows, "mcc")) > limit
    assert abs(np.mean(values(hidden, "mcc", split="train"))) < 0.12
    assert max(values(shows, "reaction_time.last_sample.strict")) < 0.1
    if kind == "gmm_finch":  # its threshold rejects next to nothing of what looks known
        assert min(values(hidden, "reaction_time.last_sample.strict", split="train")) > 0.5
        assert min(values(shows, "nmi_arithmetic", task="recognition")) > 0.8
        assert max(values(hidden, "nmi_arithmetic", task="recognition")) < 0.2
    where = {"task": "none", "novel_to": ""}
    before, after = (values(shows, "top5_accuracy", phase=phase, **where) for phase in ("pre", "post"))
    assert min(np.subtract(after[1:], before)) > 0.2  # with its labels a new class is learned


def test_without_feedback_the_ann_is_never_fitted_again_and_more_feedback_is_better(tmp_path: Path):
    made = world()
    none, half, whole = (run("ann", tmp_path / str(amount), made, feedback=amount) for amount in (0.0, 0.5, 1.0))
    for measure in ("mcc", "top1_accuracy"):
        for split in ("train", "test"):
            where = {"split": split, "task": "none", "novel_to": ""}
            assert values(none, measure, phase="pre", **where) == values(none, measure, phase="post", **where)[1:]
    final = [values(rows, "top5_accuracy", phase="post", task="none", novel_to="")[-1] for rows in (none, half, whole)]
    assert final[0] < final[1]
    assert final[0] < final[2]
    facts = {value.key: value.value for value in measure_open_world(predictions=rows_of(none.tables)) if not value.split}
    assert [facts[f"known_to_predictor/0/{t}///"] for t in range(4)] == [6, 6, 6, 6]
    assert [facts[f"known_to_evaluator/0/{t}///"] for t in range(4)] == [6, 8, 10, 12]


def test_measures_are_those_of_scikit_learn_on_the_stored_predictions(tmp_path: Path):
    made = world(increments=2)
    rows = run("gmm_finch", tmp_path, made)
    stored = rows.predicted(2, "pre", "test")
    assert stored.uid.tolist() == made[0][2].test.uid.tolist()
    np.testing.assert_array_equal(stored.truth, made[0][2].test.y)
    best = stored.columns[np.argmax(stored.probabilities, axis=1)]
    known = stored.known["predictor"]
    truth = np.where(np.isin(stored.truth, known), stored.truth, -1)
    guess = np.where(np.isin(best, known), best, -1)
    here = {"novel_to": "predictor", "increment": 2}
    assert values(rows, "mcc", task="classification", **here) == [pytest.approx(metrics.matthews_corrcoef(truth, guess))]
    assert values(rows, "mcc", **here) == [pytest.approx(metrics.matthews_corrcoef(truth < 0, guess < 0))]
    groups = np.where(np.isin(stored.truth, known), 999, stored.truth), np.where(np.isin(best, known), 999, best)
    assert values(rows, "nmi_arithmetic", task="recognition", **here) == [
        pytest.approx(metrics.normalized_mutual_info_score(*groups))
    ]
    time = reaction(truth < 0, best < 0).time
    assert values(rows, "reaction_time.last_sample.any", **here) == [pytest.approx(time)]


def test_the_cumulative_measure_is_that_of_all_samples_at_once(tmp_path: Path):
    rows = run("ann", tmp_path, world(increments=2))
    whole = {value.key: value.value for value in measure_open_world(predictions=rows_of(rows.tables)) if value.position is None}
    for phase, first, begin in [("pre", 1, ""), ("post", 1, ""), ("post", 0, FROM_START)]:
        some = [rows.predicted(t, phase, "test") for t in range(first, 3)]
        truth = np.concatenate([one.truth for one in some])
        best = np.concatenate([one.columns[np.argmax(one.probabilities, axis=1)] for one in some])
        raw = {"phase": phase, "task": "none", "novel_to": "", "cumulative": True, "from_start": first == 0}
        assert values(rows, "mcc", **raw)[-1] == pytest.approx(metrics.matthews_corrcoef(truth, best))
        assert whole[f"{begin}{phase}.none.mcc/0///test/"] == values(rows, "mcc", **raw)[-1]
    assert not any(name.startswith((CUMULATIVE, f"{FROM_START}pre")) for name in whole)


def test_the_tidy_table_has_every_increment_and_phase(tmp_path: Path):
    ran = run("ann", tmp_path, world(increments=1))
    assert list(ran.rows[0]) == COLUMNS.names
    assert {row["at"] for row in ran.rows} == {0.5, 1.0, 1.5}  # increment 0 is not evaluated before feedback
    assert {row["n"] for row in ran.rows if (row["split"], row["at"]) == ("test", 0.5) and not row["cumulative"]} == {6 * 80}
    assert {(row["feedback"], row["predictor"], row["stratum"]) for row in ran.rows} == {(1.0, "ann", "")}
    assert tidy(results_of(rows_of(ran.tables[:0]), feedback=1.0, method="ann")).num_rows == 0  # of one that diverged


def where(row: dict[str, Any]) -> tuple[Any, ...]:
    """The place of a row among those of one predictor."""
    return tuple(row[name] for name in ("at", "split", "cumulative", "from_start", "novel_to", "task", "measure"))


def test_predictors_of_other_settings_have_names_of_their_own_and_seeds_are_averaged(tmp_path: Path):
    (tmp_path / "1").mkdir()
    made = world(increments=1, rows=12)
    rows = [rows_of(run_open_world(Spy(), *made, setting=Setting(1.0), folder=tmp_path / "1"))]
    rows.append(rows_of(run("evm", tmp_path / "2", made).tables))
    pairs = [(rows[0], {"width": 1}, 0), (rows[0], {"width": 2}, 0), (rows[1], {"width": 2}, 1)]
    tables = [results_of(each, feedback=0.5, method="p", settings=s, seed=n) for each, s, n in pairs]
    both = tidy(pa.concat_tables(tables))
    assert set(both["predictor"].to_pylist()) == {"p, width = 1", "p, width = 2"}
    first, second = (
        {where(row): row["value"] for row in tidy(table).to_pylist() if row["value"] is not None} for table in tables[1:]
    )
    means = {where(row): row["value"] for row in both.to_pylist() if row["predictor"] == "p, width = 2"}
    common = first.keys() & second.keys()
    assert len(common) > 100
    assert all(means[at] == pytest.approx((first[at] + second[at]) / 2) for at in common)
    assert any(first[at] != second[at] for at in common)


def test_much_is_stored_in_several_rows_and_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = world(increments=1, rows=12)
    whole = run("evm", tmp_path / "whole", made)
    monkeypatch.setattr(predictions, "_AT_ONCE", 4 * 7 * 10)
    parts = run("evm", tmp_path / "parts", made)
    assert max(table["samples"][0].as_py() for table in parts.tables if table["phase"][0].as_py()) == 10
    assert len({key for table in parts.tables for key in table["key"].to_pylist()}) == len(parts.tables) > len(whole.tables)
    for one, other in zip(whole.predictions, parts.predictions, strict=True):
        for name in ("uid", "truth", "columns", "probabilities"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert parts.rows == whole.rows
    assert parts.predictions.classes == tuple(made[1])


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@pytest.mark.parametrize("kind", ["ann", "gmm_finch", "evm"])
@pytest.mark.parametrize("feedback", [0.0, 0.5])
def test_killed_anywhere_it_gives_the_same_rows(tmp_path: Path, kind: str, feedback: float):
    made = world(increments=3, rows=30)
    whole = run(kind, tmp_path / "whole", made, feedback=feedback)
    (tmp_path / "broken").mkdir()
    for method, at in [("predict", 4), ("fit", 1), ("state", 0), ("predict", 6)]:
        predictor = new_predictor(load_name(PREDICTORS, kind), SETTINGS[kind], seed=0)
        original, left = getattr(predictor, method), [at]

        def mortal(*args: Any, original: Any = original, left: list[int] = left) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return original(*args)

        setattr(predictor, method, mortal)
        with pytest.raises(Killed):
            list(run_open_world(predictor, *made, setting=Setting(feedback), folder=tmp_path / "broken"))
    (tmp_path / "broken/.tmp-1-half").write_bytes(b"what a kill left")
    told: list[str] = []
    predictor = new_predictor(load_name(PREDICTORS, kind), SETTINGS[kind], seed=0)
    again = list(run_open_world(predictor, *made, setting=Setting(feedback), folder=tmp_path / "broken", tell=told.append))
    assert pa.concat_tables(again).equals(pa.concat_tables(whole.tables))
    assert 0 < len(told) < len(made[0])  # it went on
    assert not list((tmp_path / "broken").glob(".tmp-*"))


@pytest.mark.parametrize("damaged", ["after-0002", "increment-0001.parquet", "progress.json"])
def test_a_damaged_checkpoint_is_not_gone_on_from(tmp_path: Path, damaged: str):
    made = world(increments=1, rows=12)
    whole = run("evm", tmp_path, made)
    path = tmp_path / damaged
    path.write_bytes(path.read_bytes()[:-1])
    told: list[str] = []
    again = list(
        run_open_world(
            new_predictor(load_name(PREDICTORS, "evm"), SETTINGS["evm"], seed=0),
            *made,
            setting=Setting(1.0),
            folder=tmp_path,
            tell=told.append,
        )
    )
    assert len(told) == 2
    assert pa.concat_tables(again).equals(pa.concat_tables(whole.tables))


class Spy:
    """A user's own predictor: the share of each label so far, whatever the features; it notes what it is shown."""

    def __init__(self, wanted: Sequence[str] | None = None) -> None:
        self.classes, self.share = np.empty(0, np.int64), np.empty(0, np.float32)
        self.wanted = wanted
        self.experience: list[Any] = []
        self.calls: list[str] = []

    def fit(self, experience: Any, validation: Any) -> None:
        self.calls.append("fit")
        self.experience = list(experience)
        y = np.concatenate([labels for _, _, labels in experience])
        self.classes, counts = np.unique(y[y >= 0], return_counts=True)
        self.share = (counts / counts.sum()).astype(np.float32)

    def predict(self, uid: Any, X: Any) -> Any:
        self.calls.append("predict")
        return self.classes, np.tile(self.share, (len(X), 1))

    def request(self, uid: Any, X: Any) -> Sequence[str]:
        self.calls.append("request")
        return list(reversed(uid.tolist())) if self.wanted is None else self.wanted

    def state(self) -> dict[str, Any]:
        return {"classes": self.classes, "share": self.share}

    def restore(self, state: Any, experience: Any) -> None:
        self.classes, self.share = state["classes"], state["share"]


def run_spy(
    spy: Spy, out: Path, made: tuple[list[Increment], list[str]], feedback: float, limit: int | None = None
) -> OpenWorldPredictions:
    return OpenWorldPredictions(rows_of(run_open_world(spy, *made, setting=Setting(feedback, limit), folder=out)))


class Frozen(Spy):
    """It learns from increment 0 alone, and says class 0 there and class 1 ever after."""

    def fit(self, experience: Any, validation: Any) -> None:
        if not self.calls:
            super().fit(experience, validation)

    def predict(self, uid: Any, X: Any) -> Any:
        return np.arange(6), np.eye(6, dtype=np.float32)[np.where(np.char.startswith(uid, "0-"), 0, 1)]


def test_a_predictor_that_learns_nothing_measures_the_same_before_and_after_feedback(tmp_path: Path):
    """Increment 0 is far easier here than what follows: counted in one of two sums, it would look like learning."""
    made = world(increments=2, rows=12)
    first = [SplitSamples(one.uid, one.X, np.zeros_like(one.y)) for one in made[0][0].splits.values()]
    increments = [Increment("0", *first), *made[0][1:]]
    tables = run_open_world(Frozen(), increments, made[1], setting=Setting(0.0), folder=tmp_path)
    found = {value.key: value.value for value in measure_open_world(predictions=rows_of(tables))}
    # What the evaluator knows grows by itself; what the predictor knows does not.
    before = [key for key in found if re.match(r"(cumulative\.)?pre\.(?!.*evaluator|.*reaction_time|said_unknown|novel)", key)]
    assert len(before) > 100
    assert {key for key in before if found[key.replace("pre.", "post.", 1)] != found[key]} == set()
    name = "post.none.top1_accuracy/0///test/"
    assert found[f"{FROM_START}{name}"] > found[name] + 0.2  # what was shown as the figure after feedback


class Drifting(Spy):
    """Each prediction changes the arrays of its state in place."""

    def predict(self, uid: Any, X: Any) -> Any:
        found = super().predict(uid, X)
        self.share /= 2
        self.share[0] += 0.5
        return found


def test_what_is_learned_from_one_transform_is_not_known_for_the_next(tmp_path: Path):
    increments, classes = world(increments=1, rows=12)
    seen = {"rotation": increments, "noise": increments}
    setting = Setting(1.0)
    tables = run_open_world(Drifting(), increments, classes, setting=setting, folder=tmp_path, nuisances=seen, twin=Drifting)
    found: dict[str, list[list[float]]] = {}
    for part in OpenWorldPredictions(rows_of(tables)).transformed():
        found.setdefault(part.transform, []).append(part.probabilities[0].tolist())
    assert found["rotation"] == found["noise"]


def test_phases_come_in_their_order(tmp_path: Path):
    spy = Spy()
    run_spy(spy, tmp_path, world(increments=1, rows=12), 0.5)
    # Training and test set from increment 1 on; increment 0's validation rows are no part of the test set.
    assert spy.calls == ["fit", *["predict"] * 3, *["predict"] * 2, "request", "fit", *["predict"] * 2]


def test_the_test_set_is_that_of_table_1(tmp_path: Path):
    """Test rows of increment 0, on whose validation rows thresholds are found; validation and test rows of all others."""
    made = world(increments=2, rows=12)
    ran = run("evm", tmp_path, made)
    n = [{split: len(samples.y) for split, samples in one.splits.items()} for one in made[0]]
    later = [one["validate"] + one["test"] for one in n[1:]]
    asked = {"split": "test_set", "phase": "post", "task": "none", "measure": "mcc"}
    mine = [row for row in ran.rows if all(row[name] == value for name, value in asked.items())]
    plain, sums, start = (
        {row["increment"]: row["n"] for row in mine if (row["cumulative"], row["from_start"]) == kind}
        for kind in ((False, False), (True, False), (True, True))
    )
    assert plain == {0: n[0]["test"], 1: later[0], 2: later[1]}
    assert sums == {1: later[0], 2: sum(later)}
    assert start == {0: n[0]["test"], 1: n[0]["test"] + later[0], 2: n[0]["test"] + sum(later)}
    same = {"task": "none", "novel_to": "", "phase": "post", "increment": 0}
    assert values(ran, "mcc", **same, split="test_set") == values(ran, "mcc", **same, split="test")


def test_reaction_times_of_the_test_set_have_validation_rows_before_test_rows(tmp_path: Path):
    """Our choice: the paper names no order, and the released code keeps the splits apart, as ours has them besides."""
    ran = run("ann", tmp_path, world("overlapping", increments=2, rows=12))
    asked: dict[str, list[float]] = {split: [] for split in ("validate", "test", "test_set", "test first")}
    for t in (1, 2):
        parts = {split: ran.predicted(t, "pre", split) for split in ("validate", "test")}
        novel = {split: ~np.isin(part.truth, part.known["evaluator"]) for split, part in parts.items()}
        called = {split: part.columns[part.probabilities.argmax(axis=1)] < 0 for split, part in parts.items()}
        for name, order in (*((split, [split]) for split in parts), ("test_set", [*parts]), ("test first", [*parts][::-1])):
            rows = ([some[split] for split in order] for some in (novel, called))
            asked[name].append(reaction(*map(np.concatenate, rows)).time)
    for split in ("validate", "test", "test_set"):
        assert values(ran, "reaction_time.last_sample.any", split=split) == [pytest.approx(time) for time in asked[split]]
    assert asked["test_set"] != pytest.approx(asked["test first"])


def test_clusters_of_unknowns_are_those_of_the_whole_test_set(tmp_path: Path):
    """Validation and test rows predicted one after the other had clusters of different numbers: two for each new class."""
    made = world(increments=2, start=12, width=WIDTH["gmm_finch"])
    ran = run("gmm_finch", tmp_path, made)
    for t in (1, 2):
        parts = [ran.predicted(t, "pre", split) for split in ("validate", "test")]
        np.testing.assert_array_equal(parts[0].columns, parts[1].columns)
        said = [part.columns[part.probabilities.argmax(axis=1)] for part in parts]
        novel = [~np.isin(part.truth, part.known["predictor"]) for part in parts]
        labels = np.unique(np.concatenate([part.truth[new] for part, new in zip(parts, novel, strict=True)]))
        for label in labels:
            found = [set(guess[part.truth == label]) for guess, part in zip(said, parts, strict=True)]
            assert min(guess for some in found for guess in some) < -1
            assert found[0] & found[1]
    where = {"task": "recognition", "novel_to": "predictor"}
    joined = values(ran, "nmi_arithmetic", split="test_set", **where)
    apart = [values(ran, "nmi_arithmetic", split=split, **where) for split in ("validate", "test")]
    assert len(joined) == 2
    assert np.greater_equal(joined, np.min(apart, axis=0) - 0.02).all()


@pytest.mark.parametrize(("feedback", "given"), [(0.0, 0), (0.29, 29), (0.5, 50), (0.999, 99), (1.0, 100)])
def test_labels_are_given_to_the_first_that_are_asked_for(tmp_path: Path, feedback: float, given: int):
    made = world(increments=1)
    train = made[0][1].train
    one = SplitSamples(train.uid[:100], train.X[:100], train.y[:100])
    spy = Spy()
    changed = [made[0][0], Increment("1", one, *[made[0][1].test] * 1, made[0][1].validate)]
    found = run_spy(spy, tmp_path, (changed, made[1]), feedback)
    labels = spy.experience[1][2]
    assert (spy.experience[0][2] == made[0][0].train.y).all()
    if given in (0, 100):
        assert ((labels >= 0).sum()) == given
    else:
        np.testing.assert_array_equal(labels, np.where(np.arange(100) >= 100 - given, one.y, -1))  # asked for from behind
    assert len(found.feedback[1].labelled) == given
    assert found.feedback[1].known_to_predictor == np.union1d(made[0][0].train.y, labels[labels >= 0]).tolist()


def test_a_limit_keeps_the_newest(tmp_path: Path):
    made = world(increments=2, rows=12)
    spy = Spy()
    found = run_spy(spy, tmp_path, made, 1.0, limit=30)
    assert sum(len(y) for _, _, y in spy.experience) == 30
    uids = np.concatenate([uid for uid, _, _ in spy.experience])
    every = np.concatenate([one.train.uid for one in made[0]])
    np.testing.assert_array_equal(uids, every[-30:])
    assert [told.experience for told in found.feedback] == [30, 30, 30]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [(["1-train-0"] * 50, "1 different ones"), (["x"], "'x' is not one of them"), ([], "0 different ones")],
)
def test_a_request_that_names_no_rows_is_refused(tmp_path: Path, wanted: list[str], says: str):
    with pytest.raises(ValueError, match=says):
        run_spy(Spy(wanted), tmp_path, world(increments=1, rows=12), 0.5)


@pytest.mark.parametrize(
    ("columns", "probabilities", "says"),
    [
        ([0], np.ones((1, 1), np.float32), "not .*float32"),
        ([0, 0], None, "distinct int64 labels"),
        ([0], 0.5, "row 0 sums to 0.5"),
        ([0], np.nan, "sums to nan"),
    ],
)
def test_predictions_that_are_none_are_refused(tmp_path: Path, columns: list[int], probabilities: Any, says: str):
    class Wrong(Spy):
        def predict(self, uid: Any, X: Any) -> Any:
            share = np.full((len(X), len(columns)), 0.5 if probabilities is None else 1.0, np.float32)
            if isinstance(probabilities, float):
                share[:] = probabilities
            return np.array(columns), share if not isinstance(probabilities, np.ndarray) else probabilities

    with pytest.raises(ValueError, match=says):
        run_spy(Wrong(), tmp_path, world(increments=1, rows=12), 1.0)


def test_data_that_is_none_is_refused(tmp_path: Path):
    made = world(increments=1, rows=12)
    first, second = made[0]
    empty = SplitSamples(first.train.uid[:0], first.train.X[:0], first.train.y[:0])
    cases = [
        (([Increment("0", empty, first.validate, first.test)], made[1]), "nothing to train on first"),
        (([first, first], made[1]), "comes 2 times"),
        (([first, second], made[1][:3]), "with 3 class names"),
    ]
    for case, says in cases:
        with pytest.raises(ValueError, match=says):
            run_spy(Spy(), tmp_path, case, 1.0)
    with pytest.raises(ValueError, match="do not pair"):
        SplitSamples(first.train.uid, first.train.X[:1], first.train.y)
    with pytest.raises(ValueError, match=r"feedback 1.5"):
        Setting(1.5)


def test_a_split_may_be_empty(tmp_path: Path):
    made = world(increments=1, rows=12)
    second = made[0][1]
    empty = SplitSamples(second.test.uid[:0], second.test.X[:0], second.test.y[:0])
    increments = [made[0][0], Increment("1", second.train, second.validate, empty)]
    rows = run("evm", tmp_path, (increments, made[1]))
    assert values(rows, "mcc", split="test") == []
    assert values(rows, "mcc", split="test_set") == values(rows, "mcc", split="validate")


def test_a_run_that_was_killed_at_its_end_is_read_and_not_fitted_again(tmp_path: Path):
    made = world(increments=1, rows=12)
    first = run_open_world(Spy(), *made, setting=Setting(0.5), folder=tmp_path)
    table = next(first)  # all is learned, and not all was given
    again = Spy()
    tables = list(run_open_world(again, *made, setting=Setting(0.5), folder=tmp_path))
    assert again.calls == []
    assert tables[0].equals(table)
    assert pa.concat_tables(tables[1:]).equals(pa.concat_tables(first))
