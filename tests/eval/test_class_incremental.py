"""The class-incremental protocol: measures by hand, what is written, and runs that are killed and taken up."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchwright.eval.metrics.class_incremental import accuracy_curve, backward_forgetting, final_accuracy
from benchwright.eval.protocols.class_incremental import Task, check_tasks, class_tasks, run_class_incremental
from benchwright.training.baselines.vclimb import clip_view, identity, learner_maker, paper_settings
from benchwright.training.data.clips import ArrayFrames, Clips
from benchwright.training.data.examples import ArrayExamples

NAN = float("nan")
R = [[0.9, NAN, NAN], [0.6, 0.8, NAN], [0.3, 0.5, 1.0]]


# --- measures


def test_measures_by_hand():
    assert final_accuracy(R) == pytest.approx((0.3 + 0.5 + 1.0) / 3)
    assert backward_forgetting(R) == pytest.approx(((0.9 - 0.3) + (0.8 - 0.5)) / 2)
    # UCF101's first task has eleven classes, the others ten.
    weights = [11, 10, 10]
    assert final_accuracy(R, weights) == pytest.approx((11 * 0.3 + 10 * 0.5 + 10 * 1.0) / 31)
    assert backward_forgetting(R, weights) == pytest.approx((11 * 0.6 + 10 * 0.3) / 21)
    np.testing.assert_allclose(accuracy_curve(R), [0.9, 0.7, 0.6])
    np.testing.assert_allclose(accuracy_curve(R, weights), [0.9, (11 * 0.6 + 8) / 21, (11 * 0.3 + 5 + 10) / 31])


def test_weights_of_equal_tasks_change_nothing_and_gains_are_negative():
    assert final_accuracy(R, [20, 20, 20]) == pytest.approx(final_accuracy(R))
    assert backward_forgetting(R, [20, 20, 20]) == pytest.approx(backward_forgetting(R))
    assert backward_forgetting([[0.5, NAN], [0.7, 1.0]]) == pytest.approx(-0.2)
    assert np.isnan(backward_forgetting([[0.5]]))
    assert final_accuracy([[0.5]]) == 0.5


@pytest.mark.parametrize(
    ("matrix", "weights", "says"),
    [
        ([[0.9, NAN], [NAN, 0.8]], None, r"R\[1, 0\] was not tested"),
        (R, [1, 2], r"weights \(2,\) for 3 tasks"),
        (R, [1, 0, 1], "one positive number"),
        ([[90.0]], None, "lie in"),
    ],
)
def test_what_is_no_matrix_of_tasks_is_refused(matrix: Any, weights: Any, says: str):
    with pytest.raises(ValueError, match=says):
        final_accuracy(matrix, weights)


# --- the loop


class Scripted:
    """A learner that answers from a table: after task i, a sample of class c is right where ``right[i][c]``."""

    def __init__(self, right: Sequence[Sequence[int]]) -> None:
        self.right, self.record, self.learned = right, {"epochs": [{"epoch": 0, "loss": 1.5}]}, []

    def learn(self, train: Any, validate: Sequence[Any], *, classes: int) -> None:
        self.learned.append((len(train.labels), len(validate), classes))

    def predict(self, examples: Any) -> np.ndarray:
        row = self.right[len(self.learned) - 1]
        return np.array([y if row[y] else (y + 1) % 5 for y in examples.labels])

    def save(self, path: Path) -> None:
        path.write_bytes(bytes(len(self.learned)))

    def load(self, path: Path, seen: Sequence[Any]) -> None:
        assert len(path.read_bytes()) == len(seen)
        self.learned = [(len(train.labels), None, None) for train in seen]


def points(labels: list[int], name: str) -> ArrayExamples:
    return ArrayExamples(np.zeros((len(labels), 1), np.float32), labels, [f"{name}{n}" for n in range(len(labels))])


def three_tasks() -> list[Task]:
    """Three, one and one classes; class 1 has three test samples, the others one."""
    return [
        Task("0", ("a", "b", "c"), points([0, 1, 2], "x"), points([0, 2], "v"), points([0, 1, 1, 1, 2], "t")),
        Task("1", ("d",), points([3, 3], "x"), None, points([3], "t")),
        Task("2", ("e",), points([4], "x"), points([4], "w"), points([4], "t")),
    ]


SCRIPT = [[1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 1, 0, 0, 1]]


def test_the_matrix_counts_samples_and_both_weightings_are_given(tmp_path: Path):
    learner = Scripted(SCRIPT)
    results = run_class_incremental(learner, three_tasks(), identity={"method": "script"}, out=tmp_path)
    assert learner.learned == [(3, 1, 3), (2, 1, 1), (1, 2, 1)]
    expected = np.array([[4 / 5, NAN, NAN], [3 / 5, 1, NAN], [3 / 5, 0, 1]])
    np.testing.assert_array_equal(results.matrix, expected)
    assert results.metrics == {
        "acc_class_weighted": pytest.approx((3 * 0.6 + 0 + 1) / 5),
        "acc_unweighted": pytest.approx(1.6 / 3),
        "bwf_class_weighted": pytest.approx((3 * 0.2 + 1 * 1) / 4),
        "bwf_unweighted": pytest.approx((0.2 + 1) / 2),
    }
    assert results.correct.tolist() == [[1, 3, 0, -1, -1], [0, 3, 0, 1, -1], [0, 3, 0, 0, 1]]
    assert not results.selected_on_test


def test_what_is_written_says_what_was_measured(tmp_path: Path):
    results = run_class_incremental(Scripted(SCRIPT), three_tasks(), identity={"method": "script"}, out=tmp_path)
    held = json.loads((tmp_path / "results.json").read_bytes())
    assert held["metrics"] == {name: pytest.approx(value) for name, value in results.metrics.items()}
    assert held["tasks"][0] == {"name": "0", "classes": 3, "learned": 3, "tested": 5}
    assert held["curve"]["acc_unweighted"] == pytest.approx([0.8, 0.8, 1.6 / 3])
    assert held["identity"] == {"method": "script"}
    assert held["selected_on_the_evaluation_split"] is False
    table = np.genfromtxt(tmp_path / "matrix.csv", delimiter=",", skip_header=1)[:, 1:]
    np.testing.assert_array_equal(table, results.matrix)
    classes = list(csv.DictReader((tmp_path / "classes.csv").open()))
    assert classes[1] == {
        "name": "b", "task": "0", "learned": "1", "tested": "3",
        "correct_after_0": "3", "correct_after_1": "3", "correct_after_2": "3",
    }  # fmt: skip
    assert classes[4]["correct_after_1"] == ""
    predictions = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    assert len(predictions) == 7
    assert predictions[0] == {"task": "0", "key": "t0", "class": "a", "predicted": "b"}
    curve = (tmp_path / "curve.csv").read_text().splitlines()
    assert curve == ["task,epoch,loss", "0,0,1.5", "1,0,1.5", "2,0,1.5"]


def test_selection_on_the_evaluation_split_is_said(tmp_path: Path):
    """ActivityNet has no test split: the validation videos choose the epoch and are reported."""
    same = points([0, 1], "v")
    tasks = [Task("0", ("a", "b"), points([0, 1], "x"), same, same)]
    assert run_class_incremental(Scripted([[1, 1]]), tasks, identity={}, out=tmp_path).selected_on_test
    assert json.loads((tmp_path / "results.json").read_bytes())["selected_on_the_evaluation_split"] is True
    assert json.loads((tmp_path / "results.json").read_bytes())["metrics"]["bwf_unweighted"] is None


def test_predictions_of_another_shape_are_refused(tmp_path: Path):
    class Short(Scripted):
        def predict(self, examples: Any) -> np.ndarray:
            return super().predict(examples)[:-1]

    with pytest.raises(ValueError, match=r"\(4,\) for \(5,\) samples"):
        run_class_incremental(Short(SCRIPT), three_tasks(), identity={}, out=tmp_path)


# --- tasks from columns


def columns() -> dict[str, list[Any]]:
    return {
        "number": [1, 0, 0, 1, 0, 1],
        "role": ["train", "train", "test", "test", "val", "val"],
        "class_index": [1, 0, 0, 1, 0, 1],
        "label": ["run", "jump", "jump", "run", "jump", "run"],
    }


def test_tasks_from_the_columns_of_an_index():
    every = points([1, 0, 0, 1, 0, 1], "k")
    made = class_tasks(**columns(), samples=every.take)
    assert [(task.name, task.classes) for task in made] == [("0", ("jump",)), ("1", ("run",))]
    assert [list(task.train.keys) for task in made] == [["k1"], ["k0"]]
    assert [list(task.test.keys) for task in made] == [["k2"], ["k3"]]
    assert [list(task.validate.keys) for task in made if task.validate] == [["k4"], ["k5"]]
    reported = class_tasks(**columns(), samples=every.take, roles=("train", "val", "val"))
    assert [list(task.test.keys) for task in reported] == [["k4"], ["k5"]]
    alone = class_tasks(**columns(), samples=every.take, roles=("train", None, "test"))
    assert all(task.validate is None for task in alone)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"label": ["run", "jump", "leap", "run", "jump", "run"]}, "class index 0 is 'jump' and 'leap'"),
        ({"role": ["train", "train", "test", "train", "val", "val"]}, "task 1 has no row with role 'test'"),
        ({"class_index": [0, 1, 1, 0, 1, 0]}, r"task '0', train: classes"),
    ],
)
def test_columns_that_make_no_tasks_are_refused(change: dict[str, Any], says: str):
    given = {**columns(), **change}
    every = points(given["class_index"], "k")
    with pytest.raises(ValueError, match=says):
        class_tasks(**given, samples=every.take)


def test_every_class_needs_samples():
    with pytest.raises(ValueError, match="no task"):
        check_tasks([])
    broken = Task("0", ("a", "b"), points([0, 0], "x"), None, points([0, 1], "t"))
    with pytest.raises(ValueError, match=r"task '0', train: classes \[0\], and 0..1 are its own"):
        check_tasks([broken])
    strange = Task("0", ("a",), points([0], "x"), points([1], "v"), points([0], "t"))
    with pytest.raises(ValueError, match="validation: labels outside"):
        check_tasks([strange])


# --- real learners, killed


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


def clip_tasks(view: Any) -> list[Task]:
    """Six classes in three tasks: clips of 12 frames of a colour."""
    draw = np.random.default_rng(0)
    colours, frames, label, role = draw.integers(0, 255, (6, 3)), [], [], []
    for c in range(6):
        for n in range(10):
            frames.append((colours[c] + draw.normal(size=(12, 16, 16, 3)) * 40).clip(0, 255).astype(np.uint8))
            label.append(c)
            role.append("train" if n < 5 else "val" if n < 7 else "test")
    clips = Clips(ArrayFrames(frames), [f"k{n}" for n in range(60)], np.array(label), np.full(60, 12), view)
    return class_tasks([c // 2 for c in label], role, label, [f"c{c}" for c in label], clips.take)


def small_settings(name: str) -> dict[str, Any]:
    settings = paper_settings(name, dataset="ucf101", frames=4)
    settings["model"] = {"backbone": "small_cnn", "dropout": 0.5, "head_std": 0.001, "width": 4}
    settings["view"] = {**settings["view"], "side_px": 14}
    settings["schedule"] |= {"epochs": 2, "batch_size": 6, "learning_rate": 0.02}
    settings["memory"]["capacity"] = 12
    if "strength" in settings["method"]:
        settings["method"]["strength"] = 1.0
    return settings


def mortal(learner: Any, lessons: int, *, in_save: bool) -> Any:
    """The same learner, which dies in its next lesson but ``lessons``, or just after its checkpoint is written."""
    learn, save, left = learner.learn, learner.save, [lessons]

    def dying_learn(*given: Any, **named: Any) -> None:
        if left[0] == 0 and not in_save:
            raise Killed
        left[0] -= 1
        learn(*given, **named)

    def dying_save(path: Path) -> None:
        save(path)
        if left[0] == 0 and in_save:
            raise Killed

    learner.learn, learner.save = dying_learn, dying_save
    return learner


@pytest.mark.parametrize("name", ["icarl+tc", "naive", "bic", "ewc"])
def test_killed_anywhere_it_ends_in_the_same_bytes(tmp_path: Path, name: str):
    settings = small_settings(name)
    tasks, make = clip_tasks(clip_view(settings)), learner_maker(settings)
    whose = identity(settings, seed=1)
    first = run_class_incremental(make(1), tasks, identity=whose, out=tmp_path / "whole")
    for lessons, in_save in [(1, False), (1, True), (1, False)]:
        with pytest.raises(Killed):
            run_class_incremental(mortal(make(1), lessons, in_save=in_save), tasks, identity=whose, out=tmp_path / "broken")
    assert len(json.loads((tmp_path / "broken/progress.json").read_bytes())["correct"]) == 2
    run_class_incremental(make(1), tasks, identity=whose, out=tmp_path / "broken")
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert files == [
        "after-003.pt", "classes.csv", "curve.csv", "matrix.csv",
        "predictions.csv", "progress.json", "results.json", "tasks.csv",
    ]  # fmt: skip
    assert files == sorted(path.name for path in (tmp_path / "broken").iterdir())
    for file in files:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "broken" / file).read_bytes(), file
    # Done already: it is read, and nothing is learned.
    again = run_class_incremental(mortal(make(1), 0, in_save=False), tasks, identity=whose, out=tmp_path / "whole")
    np.testing.assert_array_equal(first.correct, again.correct)


def test_a_folder_of_another_run_is_refused(tmp_path: Path):
    run_class_incremental(Scripted(SCRIPT), three_tasks(), identity={"method": "a"}, out=tmp_path)
    with pytest.raises(ValueError, match="method was 'a' and is 'b'"):
        run_class_incremental(Scripted(SCRIPT), three_tasks(), identity={"method": "b"}, out=tmp_path)
    other = [Task("0", ("a",), points([0], "y"), None, points([0], "t"))]
    with pytest.raises(ValueError, match="data was "):
        run_class_incremental(Scripted(SCRIPT), other, identity={"method": "a"}, out=tmp_path)
    (tmp_path / "after-003.pt").write_bytes(b"")
    with pytest.raises(ValueError, match="is missing or is not the one"):
        run_class_incremental(Scripted(SCRIPT), three_tasks(), identity={"method": "a"}, out=tmp_path)
