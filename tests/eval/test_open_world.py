"""The open-world loop: who sees what and when, feedback, resume after a kill, equal bytes, and worlds of known structure."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.eval.metrics.novelty import reaction
from benchwright.eval.protocols.open_world import Increment, Samples, Setting, run_open_world
from benchwright.eval.protocols.open_world_files import read_prediction
from benchwright.eval.protocols.open_world_measures import COLUMNS, write_results
from benchwright.training.predictors.registry import identity, make_predictor, paper_settings
from sklearn import metrics

_SPEC = importlib.util.spec_from_file_location(
    "make_kowl_features", Path(__file__).resolve().parents[2] / "benchmarks/make_kowl_features.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
make_world = _MODULE.make_world

SETTINGS = paper_settings()
SETTINGS["ann"] |= {"hidden": 64, "batch_size": 50, "epochs": 2, "threshold_when": "each_fit"}
# A softmax is a matter of directions, and needs room for them; Gaussians need more rows than features.
WIDTH = {"ann": 64, "gmm_finch": 8}


def world(name: str = "separable", increments: int = 3, **changes: int) -> tuple[list[Increment], list[str]]:
    return make_world(name, seed=1, increments=increments, **{"start": 6, "rows": 60, **changes})


def run(kind: str, out: Path, made: tuple[list[Increment], list[str]], **changes: Any) -> list[dict[str, Any]]:
    setting = {"feedback": 1.0, "experience_limit": None, "prior_knowledge": {"backbone": "none"}, **changes}
    predictor = make_predictor(kind, SETTINGS[kind], seed=0)
    return run_open_world(
        predictor, *made, setting=Setting(**setting), identity=identity(kind, SETTINGS[kind], seed=0), out=out
    )


def values(rows: Sequence[dict[str, Any]], measure: str, **where: Any) -> list[float]:
    asked = {"split": "test", "cumulative": False, "phase": "pre", "task": "detection", "novel_to": "evaluator", **where}
    return [row["value"] for row in rows if row["measure"] == measure and all(row[k] == v for k, v in asked.items())]


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
    held = json.loads((tmp_path / "0.0/results.json").read_bytes())
    assert [one["known_to_predictor"] for one in held["increments"]] == [6, 6, 6, 6]
    assert [one["known_to_evaluator"] for one in held["increments"]] == [6, 8, 10, 12]


def test_measures_are_those_of_scikit_learn_on_the_stored_predictions(tmp_path: Path):
    made = world(increments=2)
    rows = run("gmm_finch", tmp_path, made)
    steps = json.loads((tmp_path / "progress.json").read_bytes())["steps"]
    record = steps[2]["pre"]
    stored = read_prediction(tmp_path / "predictions/step-002-pre", "test", record["splits"]["test"])
    assert stored.uid.tolist() == made[0][2].test.uid.tolist()
    np.testing.assert_array_equal(stored.truth, made[0][2].test.y)
    best = stored.columns[np.argmax(stored.probabilities, axis=1)]
    known = record["known_to_predictor"]
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
    steps = json.loads((tmp_path / "progress.json").read_bytes())["steps"]
    truth, best = [], []
    for t in range(3):
        stored = read_prediction(tmp_path / f"predictions/step-{t:03}-post", "test", steps[t]["post"]["splits"]["test"])
        truth.append(stored.truth)
        best.append(stored.columns[np.argmax(stored.probabilities, axis=1)])
    raw = {"phase": "post", "task": "none", "novel_to": "", "cumulative": True}
    expected = metrics.matthews_corrcoef(np.concatenate(truth), np.concatenate(best))
    assert values(rows, "mcc", **raw)[-1] == pytest.approx(expected)
    held = json.loads((tmp_path / "results.json").read_bytes())
    assert held["cumulative"]["post.test.none.mcc"] == values(rows, "mcc", **raw)[-1]
    assert held["identity"]["setting"]["prior_knowledge"] == {"backbone": "none"}


def test_tables_say_the_same_and_can_be_made_again_from_predictions_alone(tmp_path: Path):
    rows = run("ann", tmp_path, world(increments=1))
    with pa.ipc.open_file(tmp_path / "measures.arrow") as reader:
        assert reader.read_all().to_pylist() == rows
    with (tmp_path / "measures.csv").open() as stream:
        read = list(csv.DictReader(stream))
    assert list(read[0]) == COLUMNS.names
    assert [float(row["value"] or "nan") for row in read] == pytest.approx(
        [np.nan if row["value"] is None else row["value"] for row in rows], nan_ok=True, abs=0
    )
    assert {row["at"] for row in rows} == {0.5, 1.0, 1.5}  # increment 0 is not evaluated before feedback
    before = {name: (tmp_path / name).read_bytes() for name in ("results.json", "measures.csv", "measures.arrow")}
    for name in before:
        (tmp_path / name).unlink()
    assert write_results(tmp_path) == rows
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    (tmp_path / "predictions/step-001-pre/test.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"test.npy is missing or is not the one"):
        write_results(tmp_path)


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["ann", "gmm_finch", "evm"])
@pytest.mark.parametrize("feedback", [0.0, 0.5])
def test_killed_anywhere_it_ends_in_the_same_bytes(tmp_path: Path, kind: str, feedback: float):
    made = world(increments=3, rows=30)
    run(kind, tmp_path / "whole", made, feedback=feedback)
    for method, at in [("predict", 4), ("fit", 1), ("state", 0), ("predict", 6)]:
        predictor = make_predictor(kind, SETTINGS[kind], seed=0)
        original, left = getattr(predictor, method), [at]

        def mortal(*args: Any, original: Any = original, left: list[int] = left) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return original(*args)

        setattr(predictor, method, mortal)
        setting = Setting(feedback, None, {"backbone": "none"})
        with pytest.raises(Killed):
            run_open_world(
                predictor, *made, setting=setting, identity=identity(kind, SETTINGS[kind], seed=0), out=tmp_path / "broken"
            )
    (tmp_path / "broken/predictions/step-000-post/.tmp-1-half").write_bytes(b"what a kill left")
    run(kind, tmp_path / "broken", made, feedback=feedback)
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "broken")


def test_a_folder_of_another_run_is_refused(tmp_path: Path):
    made = world(increments=1, rows=12)
    run("evm", tmp_path, made)
    with pytest.raises(ValueError, match=r"setting\.feedback was 1\.0 and is 0\.5"):
        run("evm", tmp_path, made, feedback=0.5)
    other = world(increments=1, rows=12, new=3)
    with pytest.raises(ValueError, match="classes was "):
        run("evm", tmp_path, other)
    checkpoint = tmp_path / "after-002.npz"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"after-002.npz is missing or is not the one"):
        run("evm", tmp_path, made)


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


def run_spy(spy: Spy, out: Path, made: tuple[list[Increment], list[str]], feedback: float, limit: int | None = None) -> None:
    run_open_world(spy, *made, setting=Setting(feedback, limit, {}), identity={"kind": "spy"}, out=out)


def test_phases_come_in_their_order(tmp_path: Path):
    spy = Spy()
    run_spy(spy, tmp_path, world(increments=1, rows=12), 0.5)
    assert spy.calls == ["fit", *["predict"] * 3, *["predict"] * 3, "request", "fit", *["predict"] * 3]


@pytest.mark.parametrize(("feedback", "given"), [(0.0, 0), (0.29, 29), (0.5, 50), (0.999, 99), (1.0, 100)])
def test_labels_are_given_to_the_first_that_are_asked_for(tmp_path: Path, feedback: float, given: int):
    made = world(increments=1)
    train = made[0][1].train
    one = Samples(train.uid[:100], train.X[:100], train.y[:100])
    spy = Spy()
    run_spy(spy, tmp_path, ([made[0][0], Increment("1", one, *[made[0][1].test] * 1, made[0][1].validate)], made[1]), feedback)
    labels = spy.experience[1][2]
    assert (spy.experience[0][2] == made[0][0].train.y).all()
    if given in (0, 100):
        assert ((labels >= 0).sum()) == given
    else:
        np.testing.assert_array_equal(labels, np.where(np.arange(100) >= 100 - given, one.y, -1))  # asked for from behind
    assert json.loads((tmp_path / "results.json").read_bytes())["increments"][1]["labels_given"] == given


def test_a_limit_keeps_the_newest(tmp_path: Path):
    made = world(increments=2, rows=12)
    spy = Spy()
    run_spy(spy, tmp_path, made, 1.0, limit=30)
    assert sum(len(y) for _, _, y in spy.experience) == 30
    uids = np.concatenate([uid for uid, _, _ in spy.experience])
    every = np.concatenate([one.train.uid for one in made[0]])
    np.testing.assert_array_equal(uids, every[-30:])


@pytest.mark.parametrize(
    ("wanted", "says"),
    [(["1-train-0"] * 50, "1 different ones"), (["x"], "'x' is none of them"), ([], "0 different ones")],
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
    empty = Samples(first.train.uid[:0], first.train.X[:0], first.train.y[:0])
    cases = [
        (([Increment("0", empty, first.validate, first.test)], made[1]), "nothing to learn first"),
        (([first, first], made[1]), "comes 2 times"),
        (([first, second], made[1][:3]), "with 3 class names"),
    ]
    for case, says in cases:
        with pytest.raises(ValueError, match=says):
            run_spy(Spy(), tmp_path, case, 1.0)
    with pytest.raises(ValueError, match="do not pair"):
        Samples(first.train.uid, first.train.X[:1], first.train.y)
    with pytest.raises(ValueError, match=r"feedback 1.5"):
        Setting(1.5, None, {})


def test_a_split_may_be_empty(tmp_path: Path):
    made = world(increments=1, rows=12)
    second = made[0][1]
    empty = Samples(second.test.uid[:0], second.test.X[:0], second.test.y[:0])
    rows: list[dict[str, Any]] = []
    increments = [made[0][0], Increment("1", second.train, second.validate, empty)]
    rows = run("evm", tmp_path, (increments, made[1]))
    assert values(rows, "mcc", split="test") == []
    assert values(rows, "mcc", split="validate+test") == values(rows, "mcc", split="validate")


def test_a_finished_run_is_read_and_not_fitted_again(tmp_path: Path):
    made = world(increments=1, rows=12)
    run_spy(Spy(), tmp_path / "a", made, 0.5)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = Spy()
    run_spy(again, tmp_path / "b", made, 0.5)
    assert again.calls == []
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
