"""The class-incremental protocol: measures by hand, what is measured, and runs that are killed and resumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.registry import load_name
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.store import Store
from benchwright.eval.metrics.class_incremental import accuracy_curve, backward_forgetting, final_accuracy
from benchwright.eval.protocols.class_incremental import class_stream, hits, measure_classes
from benchwright.eval.protocols.predictions import ONE_LABEL, Predictions, columns
from benchwright.eval.protocols.stream_loop import Position, Stream, Test, run_stream
from benchwright.pipelines.vclimb.stream import clip_view, narrowings
from benchwright.training.baselines.vclimb import paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.learner import Learner
from benchwright.training.data.clips import Clips
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.methods.registry import METHODS
from benchwright.training.models.tsn import tsn

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
        ([[90.0]], None, "must be in"),
    ],
)
def test_what_is_no_matrix_of_tasks_is_refused(matrix: Any, weights: Any, says: str):
    with pytest.raises(ValueError, match=says):
        final_accuracy(matrix, weights)


# --- a stream, and what is measured of it


class Scripted:
    """A learner that answers from a table: after task i, a sample of class c is right where ``right[i][c]``."""

    def __init__(self, right: Sequence[Sequence[int]]) -> None:
        self.right, self.learned = right, []
        self.record = {"epochs": [{"epoch": 0, "loss": 1.5}], "memory": {"samples": 2, "parts": 8}}

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


def three_tasks() -> Stream:
    """Three, one and one classes; class 1 has three test samples, the others one."""
    first, last = points([0, 2], "v"), points([4], "w")
    positions = (
        Position("0", points([0, 1, 2], "x"), ("a", "b", "c"), (0,), (first,)),
        Position("1", points([3, 3], "x"), ("d",), (0, 1), (first,)),
        Position("2", points([4], "x"), ("e",), (0, 1, 2), (first, last)),
    )
    tests = [
        Test("0", "test", points([0, 1, 1, 1, 2], "t")),
        Test("1", "test", points([3], "t")),
        Test("2", "test", points([4], "t")),
    ]
    return Stream(positions, tuple(tests))


SCRIPT = [[1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 1, 0, 0, 1]]


def rows_of(table: pa.Table) -> Rows:
    return Rows(Store("."), table.schema, (PartInfo("in memory", table.num_rows),), {"in memory": table})


def learned(learner: Any, stream: Stream, folder: Path) -> Rows:
    folder.mkdir(exist_ok=True)
    return rows_of(pa.concat_tables(run_stream(learner, stream, folder=folder)))


def measured(rows: Rows) -> dict[str, float | None]:
    """Key -> value."""
    values = list(measure_classes(predictions=rows))
    assert len({each.key for each in values}) == len(values)
    return {each.key: each.value for each in values}


def test_the_matrix_counts_samples_and_both_weightings_are_given(tmp_path: Path):
    learner = Scripted(SCRIPT)
    rows = learned(learner, three_tasks(), tmp_path)
    assert learner.learned == [(3, 1, 3), (2, 1, 1), (1, 2, 1)]
    expected = [[4 / 5, NAN, NAN], [3 / 5, 1, NAN], [3 / 5, 0, 1]]
    np.testing.assert_array_equal(Predictions(rows).matrix(), expected)
    found = measured(rows)
    assert {key: found[key] for key in found if "//" in key and "/0///test" in key} == {
        "acc_class_weighted/0///test/": pytest.approx((3 * 0.6 + 0 + 1) / 5),
        "acc_unweighted/0///test/": pytest.approx(1.6 / 3),
        "bwf_class_weighted/0///test/": pytest.approx((3 * 0.2 + 1 * 1) / 4),
        "bwf_unweighted/0///test/": pytest.approx((0.2 + 1) / 2),
    }
    correct, tested = hits(Predictions(rows))
    assert correct.tolist() == [[1, 3, 0, -1, -1], [0, 3, 0, 1, -1], [0, 3, 0, 0, 1]]
    assert tested.tolist() == [1, 3, 1, 1, 1]


def test_predictions_that_are_fewer_than_their_samples_are_told(tmp_path: Path):
    table = learned(Scripted(SCRIPT), three_tasks(), tmp_path).table()
    short = [each[:1] if each else each for each in table["predicted"].to_pylist()]
    at = table.column_names.index("predicted")
    wrong = table.set_column(at, table.schema.field(at), pa.array(short, table.schema.field(at).type))
    with pytest.raises(ValueError, match=r"'0', '0': predictions \(1,\) of labels \(5,\)"):
        Predictions(rows_of(wrong)).matrix()


def test_what_is_measured_after_each_task(tmp_path: Path):
    rows = learned(Scripted(SCRIPT), three_tasks(), tmp_path)
    found = measured(rows)
    assert [found[f"acc_unweighted/0/{position}//test/"] for position in (1, 2, 3)] == pytest.approx([0.8, 0.8, 1.6 / 3])
    assert found["accuracy/0/2/0/test/"] == 3 / 5
    assert {key: value for key, value in found.items() if key.startswith("accuracy/0/2/") and not key.endswith("/")} == {
        "accuracy/0/2/0/test/a": 0,
        "accuracy/0/2/0/test/b": 1,
        "accuracy/0/2/0/test/c": 0,
        "accuracy/0/2/1/test/d": 1,
    }
    held = {
        (each.memory_samples, each.memory_parts)
        for each in measure_classes(predictions=rows)
        if each.key == "accuracy/0/3/2/test/"
    }
    assert held == {(2, 8)}
    record = Predictions(rows).positions[2]
    assert (record.samples, record.classes, record.record["epochs"]) == (1, ("e",), [{"epoch": 0, "loss": 1.5}])


def test_one_task_forgets_nothing_that_could_be_measured_and_a_diverged_training_has_no_value(tmp_path: Path):
    stream = Stream((Position("0", points([0, 1], "x"), ("a", "b"), (0,)),), (Test("0", "val", points([0, 1], "v")),))
    found = measured(learned(Scripted([[1, 1]]), stream, tmp_path))
    assert found["acc_unweighted/0///val/"] == 1
    assert found["bwf_unweighted/0///val/"] is None
    assert measured(rows_of(columns(ONE_LABEL).empty_table())) == {}


def test_predictions_of_another_shape_are_refused(tmp_path: Path):
    class Short(Scripted):
        def predict(self, examples: Any) -> np.ndarray:
            return super().predict(examples)[:-1]

    with pytest.raises(ValueError, match=r"int64 \(4,\): expected class indices \(5,\)"):
        learned(Short(SCRIPT), three_tasks(), tmp_path)


# --- a stream from columns


def index() -> dict[str, list[Any]]:
    return {
        "number": [1, 0, 0, 1, 0, 1],
        "role": ["train", "train", "test", "test", "val", "val"],
        "class_index": [1, 0, 0, 1, 0, 1],
        "label": ["run", "jump", "jump", "run", "jump", "run"],
    }


def test_a_stream_from_the_columns_of_an_index():
    every = points([1, 0, 0, 1, 0, 1], "k")
    made = class_stream(**index(), samples=every.take)
    assert [(one.name, one.classes, one.tests) for one in made.positions] == [("0", ("jump",), (0,)), ("1", ("run",), (0, 1))]
    assert [list(one.train.keys) for one in made.positions] == [["k1"], ["k0"]]
    assert [(test.tested, test.split, list(test.samples.keys)) for test in made.tests] == [
        ("0", "test", ["k2"]),
        ("1", "test", ["k3"]),
    ]
    assert [[list(each.keys) for each in one.validate] for one in made.positions] == [[["k4"]], [["k4"], ["k5"]]]
    reported = class_stream(**index(), samples=every.take, roles=("train", "val", "val"))
    assert [(test.split, list(test.samples.keys)) for test in reported.tests] == [("val", ["k4"]), ("val", ["k5"])]
    alone = class_stream(**index(), samples=every.take, roles=("train", None, "test"))
    assert all(one.validate == () for one in alone.positions)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"label": ["run", "jump", "leap", "run", "jump", "run"]}, "class index 0 is 'jump' and 'leap'"),
        ({"role": ["train", "train", "test", "train", "val", "val"]}, "task 1 has no row with role 'test'"),
        ({"class_index": [0, 1, 1, 0, 1, 0]}, r"task 0, (train|test): classes \[1\], and 0..0 are its own"),
    ],
)
def test_columns_that_make_no_tasks_are_refused(change: dict[str, Any], says: str):
    given = {**index(), **change}
    every = points(given["class_index"], "k")
    with pytest.raises(ValueError, match=says):
        class_stream(**given, samples=every.take)


def test_every_class_needs_samples():
    with pytest.raises(ValueError, match="nothing to train on"):
        class_stream([], [], [], [], points([], "k").take)
    every = points([0, 0, 0, 1], "k")
    with pytest.raises(ValueError, match=r"task 0, train: classes \[0\], and 0..1 are its own"):
        class_stream([0] * 4, ["train", "val", "test", "test"], [0, 0, 0, 1], ["a", "a", "a", "b"], every.take)


# --- real learners, killed


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


def clip_stream(view: Any) -> Stream:
    """Six classes in three tasks: clips of 12 frames of a colour."""
    draw = np.random.default_rng(0)
    colours, frames, label, role = draw.integers(0, 255, (6, 3)), [], [], []
    for c in range(6):
        for n in range(10):
            frames.append((colours[c] + draw.normal(size=(12, 16, 16, 3)) * 40).clip(0, 255).astype(np.uint8))
            label.append(c)
            role.append("train" if n < 5 else "val" if n < 7 else "test")
    clips = Clips(
        lambda row, places: [frames[row][at] for at in places],
        [f"k{n}" for n in range(60)],
        np.array(label),
        np.full(60, 12),
        view,
    )
    return class_stream([c // 2 for c in label], role, label, [f"c{c}" for c in label], clips.take)


def small_settings(name: str) -> dict[str, Any]:
    settings = paper_settings(name, dataset="ucf101", frames=4, preset="as_released")
    settings["model"] = {"backbone": "small_cnn", "dropout": 0.5, "head_std": 0.001, "width": 4}
    settings["view"] = {**settings["view"], "side_px": 14}
    settings["schedule"] |= {"epochs": 2, "batch_size": 6, "learning_rate": 0.02}
    settings["memory"]["size"] = 12
    if "strength" in settings["method"]:
        settings["method"]["strength"] = 1.0
    return settings


def real(name: str) -> Any:
    settings = small_settings(name)
    parts = parts_of(settings, load_name(METHODS, name.removesuffix("+tc")), tsn, labels="one", classes="new")
    keep, second = narrowings(settings)
    return Learner(parts, sample=(8, 3, 14, 14), seed=1, keep=keep, second=second)


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


@pytest.mark.parametrize("name", ["icarl+tc", "er", "bic", "ewc"])
def test_killed_anywhere_it_ends_in_the_same_bytes(tmp_path: Path, name: str):
    stream = clip_stream(clip_view(small_settings(name)))
    whole = learned(real(name), stream, tmp_path / "whole")
    for lessons, in_save in [(1, False), (1, True), (1, False)]:
        with pytest.raises(Killed):
            learned(mortal(real(name), lessons, in_save=in_save), stream, tmp_path / "broken")
    assert json.loads((tmp_path / "broken/progress.json").read_bytes())["done"] == 2
    assert learned(real(name), stream, tmp_path / "broken").table().equals(whole.table())
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert files == [
        "after-0003", "position-0001.parquet", "position-0002.parquet", "position-0003.parquet", "progress.json"
    ]  # fmt: skip
    assert files == sorted(path.name for path in (tmp_path / "broken").iterdir())
    for file in files:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "broken" / file).read_bytes(), file
    # Finished: it is read, and nothing is learned.
    again = learned(mortal(real(name), 0, in_save=False), stream, tmp_path / "whole")
    assert again.table().equals(whole.table())
