"""IIRC's loop with a learner whose predictions are known: what is asked for when, and what a killed run leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchwright.eval.protocols.refined_classification import Asked, RefinedTask, run_refined
from benchwright.eval.protocols.refined_files import read_refined_results


class Sets:
    def __init__(self, labels: Sequence[Sequence[int]], keys: Sequence[str] | None = None) -> None:
        self.labels = np.asarray(labels, dtype=np.int64).reshape(len(labels), 2)
        self.keys = [f"s{row}" for row in range(len(labels))] if keys is None else list(keys)

    def take(self, rows: np.ndarray) -> Sets:
        return Sets(self.labels[rows], [self.keys[row] for row in rows.tolist()])

    def fingerprint(self) -> str:
        return str((self.labels.tolist(), self.keys))


class Newest:
    """Predicts the labels of the newest task alone, and forgets all others. Dies after ``lives`` lessons."""

    def __init__(self, lives: int = 99) -> None:
        self.seen: list[Any] = []
        self.classes: list[int] = []
        self.lives = lives
        self.asked: list[list[str]] = []

    @property
    def record(self) -> dict[str, Any]:
        return {"epochs": [{"epoch": 0, "loss": float(len(self.seen))}]}

    def learn(self, train: Any, validate: Sequence[Any], *, classes: int) -> None:
        if not self.lives:
            raise KeyboardInterrupt
        self.lives -= 1
        self.seen.append(train)
        self.classes.append(classes)

    def predict(self, examples: Any) -> np.ndarray:
        self.asked.append(list(examples.keys))
        known = sum(self.classes)
        guess = np.zeros((len(examples.labels), known), dtype=bool)
        for row, labels in enumerate(examples.labels.tolist()):
            guess[row, [label for label in labels if known - self.classes[-1] <= label < known]] = True
        return guess

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.classes))

    def load(self, path: Path, seen: Sequence[Any]) -> None:
        self.classes, self.seen = json.loads(path.read_text()), list(seen)
        assert len(self.classes) == len(seen)


# Superclass 0 in task 0; its subclasses 1 in task 1 and 3 in task 2; lone subclass 2 in task 1.
TASKS = [
    RefinedTask("0", ("top",), Sets([[0, -1]] * 4), None),
    RefinedTask("1", ("first", "lone"), Sets([[1, -1], [2, -1]]), Sets([[2, -1]])),
    RefinedTask("2", ("second",), Sets([[3, -1]]), None),
]
TEST = Sets([[1, 0], [3, 0], [3, 0], [2, -1]])
KINDS = ("superclass", "subclass_with", "subclass_without", "subclass_with")
ASKED = Asked({"test": TEST, "posttask_valid": TEST.take(np.array([3]))}, KINDS, (1,))


def rows_of(measures: Sequence[Any], **wanted: str) -> list[Any]:
    return [one for one in measures if all(one[name] == value for name, value in wanted.items())]


def test_labels_known_by_then_and_each_sample_once(tmp_path: Path) -> None:
    learner = Newest()
    results = run_refined(learner, TASKS, ASKED, identity={"method": "newest"}, out=tmp_path)
    # The lone class comes in task 1; until then its sample is not asked for, nor is a role that holds nothing else.
    assert learner.asked == [["s0", "s1", "s2"], ["s0", "s1", "s2", "s3"], ["s3"], ["s0", "s1", "s2", "s3"], ["s3"]]
    # Task 0 known: all three are only "top". Task 1: s0 is top and first, predicted first; s1 and s2 are top alone, missed.
    # Task 2: s0 and s3 missed, s1 and s2 second without top.
    assert results.curve("exact_match").tolist() == [1, 1 / 4, 0]
    assert results.curve("js").tolist() == [1, (1 / 2 + 1) / 4, (1 / 2 + 1 / 2) / 4]
    assert results.curve("recall").tolist() == [1, 2 / 5, 2 / 7]
    assert np.isnan(results.curve("js", role="posttask_valid")[0])
    matrix = results.matrix("js")
    # R_1,0 is over the three samples of "top", R_1,1 over those of "first" and "lone".
    assert matrix[1, 0] == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert matrix[1, 1] == pytest.approx((1 / 2 + 1) / 2)
    assert np.isnan(matrix[0, 1])
    assert matrix[2].tolist() == pytest.approx([(0 + 1 / 2 + 1 / 2) / 3, 0, 1 / 2])


def test_kinds_are_measured_apart(tmp_path: Path) -> None:
    results = run_refined(Newest(), TASKS, ASKED, identity={}, out=tmp_path)
    after = {one["scope"]: one for one in rows_of(results.measures, known="1", role="test", task="all")}
    assert (after["superclass"]["samples"], after["superclass"]["recall"]) == (3, 0)
    assert (after["subclass_with"]["samples"], after["subclass_with"]["exact_match"]) == (1, 1)
    assert (after["subclass_without"]["samples"], after["subclass_without"]["pw_js"]) == (1, pytest.approx(1))
    before = {one["scope"]: one for one in rows_of(results.measures, known="0", role="test", task="all")}
    assert (before["subclass_with"]["samples"], before["subclass_with"]["js"]) == (0, None)


def test_files(tmp_path: Path) -> None:
    results = run_refined(Newest(), TASKS, ASKED, identity={"method": "newest"}, out=tmp_path)
    held = json.loads((tmp_path / "results.json").read_bytes())
    again = read_refined_results(held)
    assert again.curve("pw_js").tolist() == results.curve("pw_js").tolist()
    assert held["curves"]["posttask_valid"]["js"][0] is None
    confusion = np.load(tmp_path / "confusion-test-001.npy", allow_pickle=False)
    # Of three samples of "top" one is predicted to be "first".
    assert confusion.tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert held["class_counts"][1] == [[3, 0, 0], [1, 1, 1], [1, 1, 1]]
    assert (tmp_path / "predictions.csv").read_text().splitlines()[1:3] == ['"s0","top|first",""', '"s1","top|second","second"']
    assert len((tmp_path / "measures.csv").read_text().splitlines()) == 1 + len(results.measures)


def test_a_killed_run_ends_in_the_same_bytes(tmp_path: Path) -> None:
    run_refined(Newest(), TASKS, ASKED, identity={"a": 1}, out=tmp_path / "whole")
    for lives in (1, 1, 9):
        try:
            run_refined(Newest(lives), TASKS, ASKED, identity={"a": 1}, out=tmp_path / "killed")
        except KeyboardInterrupt:
            continue
    (tmp_path / "killed" / ".tmp-1-half").write_bytes(b"what a kill left")
    run_refined(Newest(), TASKS, ASKED, identity={"a": 1}, out=tmp_path / "killed")
    whole, killed = ({f.name: f.read_bytes() for f in sorted((tmp_path / name).iterdir())} for name in ("whole", "killed"))
    assert killed == whole
    with pytest.raises(ValueError, match="a was 1 and is 2"):
        run_refined(Newest(), TASKS, ASKED, identity={"a": 2}, out=tmp_path / "whole")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (RefinedTask("0", ("top",), Sets([[1, -1]]), None), "labels from -1 to 1, and 0..0 are known"),
        (RefinedTask("0", ("top",), Sets([[-1, 0]]), None), "-1 only fills up"),
        (RefinedTask("0", ("top", "other"), Sets([[0, -1]]), None), "no training sample of class 'other'"),
    ],
)
def test_tasks_that_do_not_fit(tmp_path: Path, task: RefinedTask, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_refined(Newest(), [task], Asked({"test": Sets([[0, -1]])}, ("superclass",), ()), identity={}, out=tmp_path)


def test_predictions_of_another_shape(tmp_path: Path) -> None:
    class Wrong(Newest):
        def predict(self, examples: Any) -> np.ndarray:
            return super().predict(examples).argmax(1)

    with pytest.raises(ValueError, match=r"predictions int64 \(3,\): bool \(3, 1\)"):
        run_refined(Wrong(), TASKS, ASKED, identity={}, out=tmp_path)
