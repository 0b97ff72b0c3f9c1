"""IIRC's protocol with a learner whose predictions are known: what is asked for when, and what is measured of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.eval.metrics.label_sets import co_predictions
from benchwright.eval.protocols.predictions import Predictions
from benchwright.eval.protocols.refined_classification import measure_sets, refined_stream
from benchwright.eval.protocols.stream_loop import Position, Stream, Test, run_stream

from tests.eval.test_streams import Table


class Sets:
    def __init__(self, labels: Sequence[Sequence[int]], keys: Sequence[str] | None = None) -> None:
        self.labels = np.asarray(labels, dtype=np.int64).reshape(len(labels), 2)
        self.keys = [f"s{row}" for row in range(len(labels))] if keys is None else list(keys)

    def take(self, rows: np.ndarray) -> Sets:
        return Sets(self.labels[rows], [self.keys[row] for row in rows.tolist()])


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
BOTH = (0, 1)
TASKS = [
    Position("0", Sets([[0, -1]] * 4), ("top",), BOTH),
    Position("1", Sets([[1, -1], [2, -1]]), ("first", "lone"), BOTH, (Sets([[2, -1]]),)),
    Position("2", Sets([[3, -1]]), ("second",), BOTH),
]
TEST = Sets([[1, 0], [3, 0], [3, 0], [2, -1]])
TESTS = [Test("", "test", TEST), Test("", "posttask_valid", TEST.take(np.array([3])))]
KINDS = ("superclass", "subclass_with", "subclass_without", "subclass_with")


def stream() -> Stream:
    return refined_stream(TASKS, TESTS)


def run(learner: Newest, folder: Path) -> Table:
    folder.mkdir(exist_ok=True)
    return Table(pa.concat_tables(run_stream(learner, stream(), folder=folder)))


class Values:
    """What was measured, by its place."""

    def __init__(self, rows: Table) -> None:
        values = list(measure_sets(predictions=rows, kinds=KINDS))
        assert len({one.key for one in values}) == len(values)
        self.found = {(v.metric, v.position, v.split, v.tested, v.stratum): v.value for v in values}

    def __call__(
        self, metric: str, at: int | None, *, split: str = "test", tested: str = "", stratum: str = ""
    ) -> float | None:
        return self.found[metric, at, split, tested, stratum]

    def curve(self, metric: str) -> list[float | None]:
        return [self(metric, at) for at in (1, 2, 3)]


def test_labels_known_by_then_and_each_sample_once(tmp_path: Path) -> None:
    learner = Newest()
    value = Values(run(learner, tmp_path))
    # The lone class comes in task 1; until then its sample is not asked for, nor is a role that holds nothing else.
    assert learner.asked == [["s0", "s1", "s2"], ["s0", "s1", "s2", "s3"], ["s3"], ["s0", "s1", "s2", "s3"], ["s3"]]
    # Task 0 known: all three are only "top". Task 1: s0 is top and first, predicted first; s1 and s2 are top alone, missed.
    # Task 2: s0 and s3 missed, s1 and s2 second without top.
    assert value.curve("exact_match") == [1, 1 / 4, 0]
    assert value.curve("js") == [1, (1 / 2 + 1) / 4, (1 / 2 + 1 / 2) / 4]
    assert value.curve("recall") == [1, 2 / 5, 2 / 7]
    assert [value(metric, None) for metric in ("exact_match", "recall")] == [0, 2 / 7]  # of the whole training: the last
    assert value("js", 1, split="posttask_valid") is None
    # R_1,0 is over the three samples of "top", R_1,1 over those of "first" and "lone".
    assert value("js", 2, tested="0") == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert value("js", 2, tested="1") == pytest.approx((1 / 2 + 1) / 2)
    assert ("js", 1, "test", "1", "") not in value.found
    assert [value("js", 3, tested=task) for task in "012"] == pytest.approx([(0 + 1 / 2 + 1 / 2) / 3, 0, 1 / 2])
    # Eq. 2 can also be read so that a sample counts in each of its tasks: that is in the values by task, with their numbers.
    counts = [value("samples", 3, tested=task) for task in "012"]
    assert (counts, value("samples", 3)) == ([3, 2, 2], 4)
    assert np.average([value("js", 3, tested=task) for task in "012"], weights=counts) == pytest.approx(2 / 7)  # not 1 / 4
    assert (None, "posttask_valid") not in {(at, split) for _, at, split, _, _ in value.found}  # the first role is reported


def test_kinds_are_measured_apart(tmp_path: Path) -> None:
    value = Values(run(Newest(), tmp_path))

    def of(kind: str, at: int, metric: str) -> tuple[float | None, float | None]:
        return value("samples", at, stratum=kind), value(metric, at, stratum=kind)

    assert of("superclass", 2, "recall") == (3, 0)
    assert of("subclass_with", 2, "exact_match") == (1, 1)
    assert of("subclass_without", 2, "pw_js") == (1, pytest.approx(1))
    assert of("subclass_with", 1, "js") == (0, None)


def test_counts_by_class_and_confusion_of_stored_predictions(tmp_path: Path) -> None:
    rows = run(Newest(), tmp_path)
    value, found = Values(rows), Predictions(rows)
    counts = [
        [value(metric, 2, stratum=f"class {name}") for metric in ("samples", "predicted", "correct")]
        for name in ("top", "first", "lone")
    ]
    assert counts == [[3, 0, 0], [1, 1, 1], [1, 1, 1]]
    assert ("samples", 2, "test", "", "class second") not in value.found
    # Of three samples of "top" one is predicted to be "first".
    assert co_predictions(*found.sets_after(2, found.tests[0])).tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert [each.shape for each in found.sets_after(1, found.tests[1])] == [(0, 1)] * 2
    assert found.tests[0].labels.tolist() == TEST.labels.tolist()
    assert found.predicted(3, found.tests[0]).tolist() == [[-1], [3], [3], [-1]]


def test_a_diverged_training_is_not_measured(tmp_path: Path) -> None:
    rows = Table(run(Newest(), tmp_path).table().slice(0, 0))
    assert list(measure_sets(predictions=rows, kinds=KINDS)) == []


def test_a_killed_run_ends_in_the_same_rows(tmp_path: Path) -> None:
    whole = run(Newest(), tmp_path / "whole")
    for lives in (1, 1):
        with pytest.raises(KeyboardInterrupt):
            run(Newest(lives), tmp_path / "killed")
    last = Newest(1)
    assert run(last, tmp_path / "killed").table().equals(whole.table())
    assert last.lives == 0


@pytest.mark.parametrize(
    ("names", "labels", "message"),
    [
        (("top",), [[1, -1], [0, -1]], r"labels from -1 to 1: 0\.\.0 are known"),
        (("top",), [[-1, 0]], "labels from -1 to 0"),
        (("top", "other"), [[0, -1]], "no training sample of class 'other'"),
    ],
)
def test_tasks_that_do_not_fit(names: tuple[str, ...], labels: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refined_stream([Position("0", Sets(labels), names, (0,))], [Test("", "test", Sets([[0, -1]]))])


def test_predictions_of_another_shape(tmp_path: Path) -> None:
    class Wrong(Newest):
        def predict(self, examples: Any) -> np.ndarray:
            return super().predict(examples).argmax(1)

    with pytest.raises(ValueError, match=r"predictions int64 \(3,\): expected bool \(3, 1\)"):
        run(Wrong(), tmp_path)
