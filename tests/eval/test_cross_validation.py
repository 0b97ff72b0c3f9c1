"""Folds: who sees what, files that can be taken up, and linear regression on the published folds."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from benchwright.datasets.two_camera.folds import parts
from benchwright.datasets.two_camera.metadata import read_metadata
from benchwright.datasets.two_camera.rows import TransformPairs
from benchwright.eval.metrics.angular import angular_error_deg, angular_statistics
from benchwright.eval.protocols.cross_validation import (
    AVERAGE,
    COLUMNS,
    Examples,
    evaluate_folds,
    examples,
    fixed_parts,
    rotating_folds,
)
from benchwright.training.two_camera.networks import LinearEstimator
from benchwright.training.two_camera.reillumination import reilluminated


def pairs_of(path: Path) -> TransformPairs:
    rows = list(read_metadata(path=str(path)))
    fold = np.empty(len(rows), dtype=np.int64)
    for number, mine in enumerate(parts(len(rows), 3, 999)):
        fold[mine] = number
    key = np.array([row.key for row in rows])

    def column(name: str, *shape: int) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows]).reshape(len(rows), *shape)

    lights = {name: column(name, 3) for name in ("gt_1", "gt_2")}
    names = [f"transform_{kind}{way}" for kind in ("", "chart_") for way in ("1to2", "2to1")]
    return TransformPairs(
        key=key,
        name=key,
        source_key=key,
        target_key=np.array([""] * len(rows)),
        original=np.ones(len(rows), dtype=bool),
        fold=fold,
        **lights,
        **{name: column(name, 3, 3) for name in names},
    )


@pytest.fixture(scope="module")
def s20(shared_data: Path) -> TransformPairs:
    return pairs_of(shared_data / "two_camera" / "s20_metadata_162_pairs.json")


def drawn(n: int = 12, more: bool = True) -> Examples:
    """n measured rows in three folds, each followed by itself under the light of the next."""
    draw = np.random.default_rng(0)
    key = np.array([f"p{row:02}" for row in range(n)])
    gt = np.exp(draw.normal(0, 0.3, (n, 3)))
    gt /= gt[:, 1:2]
    X = draw.normal(size=(n, 9)).astype(np.float32)
    measured = Examples(key, key, key, X, gt, np.arange(n) % 3, np.ones(n, dtype=bool))
    if not more:
        return measured
    other = np.roll(np.arange(n), -1)
    made = Examples(np.char.add(key, "x"), key, key[other], X + 1, gt[other], measured.fold, np.zeros(n, dtype=bool))
    fields = [field.name for field in dataclasses.fields(Examples)]
    return Examples(*[np.concatenate([getattr(measured, name), getattr(made, name)]) for name in fields])


@dataclasses.dataclass
class Constant:
    """Estimates one light; remembers what it was given."""

    lights: dict[str, list[float]]
    looks_at_test: bool = False
    calls: int = 0
    seen: tuple = ()

    @property
    def identity(self):
        return {"lights": self.lights}

    def estimate_folds(self, folds):
        self.calls, self.seen = self.calls + 1, tuple(folds)
        return {name: [np.tile(light, (len(fold.X_test), 1)) for fold in folds] for name, light in self.lights.items()}

    def artifacts(self):
        return {"weights.bin": b"abc"}


def test_each_measured_row_is_tested_once_and_no_training_row_shows_it_or_wears_its_light():
    rows = drawn()
    folds = rotating_folds(rows)
    tested = np.concatenate([fold.key_test for fold in folds])
    assert sorted(tested) == sorted(rows.key[rows.original])
    for fold in folds:
        assert fold.gt_test is None
        assert not set(fold.pair_train) & set(fold.key_test)
        assert not set(fold.light_train) & set(fold.key_test)
        # Of 8 training pairs, 4 have their next pair in the test fold.
        assert len(fold.X_train) == 8 + 4


def test_released_augmentation_wears_test_lights_and_pictures_stay_out_even_so():
    rows = drawn()
    for fold in rotating_folds(rows, lights_of_test=True, reveal_test=True):
        assert len(fold.X_train) == 16
        assert set(fold.light_train) & set(fold.key_test)
        assert not set(fold.pair_train) & set(fold.key_test)
        assert fold.gt_test is not None
        assert len(fold.gt_test) == 4


def test_fixed_parts_are_learned_from_validated_and_tested_in_this_order():
    rows = drawn()
    (fold,) = fixed_parts(rows)
    assert set(fold.pair_train) == set(rows.pair[rows.fold == 0])
    np.testing.assert_array_equal(fold.gt_validate, rows.gt[(rows.fold == 1) & rows.original])
    np.testing.assert_array_equal(fold.key_test, rows.key[(rows.fold == 2) & rows.original])


def test_files_hold_every_estimate_and_its_statistics(tmp_path: Path):
    rows = drawn(more=False)
    estimator = Constant({"a": [1.0, 1.0, 1.0], "b": [2.0, 1.0, 0.5]})
    results = evaluate_folds(estimator, rows, parts="rotating", identity={"direction": "1to2"}, out=tmp_path / "x")
    lines = list(csv.DictReader((tmp_path / "x" / "errors.csv").open()))
    assert tuple(lines[0]) == COLUMNS
    assert [line["run"] for line in lines] == ["a"] * 12 + ["b"] * 12 + [AVERAGE] * 12
    at = {key: row for row, key in enumerate(rows.key)}
    for line in lines:
        truth = [float(line["gt_r_g"]), 1, float(line["gt_b_g"])]
        assert truth == rows.gt[at[line["image"]]].tolist()
        estimate = [float(line["estimate_r_g"]), 1, float(line["estimate_b_g"])]
        assert float(line["error_deg"]) == angular_error_deg([estimate], [truth])[0]
    # The average of R/G 1 and 2 is their geometric mean.
    assert float(lines[-1]["estimate_r_g"]) == pytest.approx(2**0.5)
    summary = json.loads((tmp_path / "x" / "results.json").read_bytes())
    assert summary["warnings"] == []
    errors = [float(line["error_deg"]) for line in lines[:12]]
    assert summary["runs"]["a"]["pooled"] == dataclasses.asdict(angular_statistics(errors))
    means = [summary["runs"][run]["fold_mean"]["mean"] for run in ("a", "b")]
    assert summary["over_runs"]["fold_mean"]["mean"] == {
        "max": max(means),
        "median": pytest.approx(np.mean(means)),
        "min": min(means),
    }
    two = [summary["runs"]["a"]["folds"][fold]["mean"] for fold in ("fold 0", "fold 1")]
    assert summary["runs"]["a"]["as_released_first_two_folds_mean"]["mean"] == pytest.approx(np.mean(two))
    assert [len(fold) for fold in results.errors["a"]] == [4, 4, 4]


def test_what_is_finished_is_read_and_what_is_broken_off_is_made_again(tmp_path: Path):
    rows = drawn()
    estimator = Constant({"a": [1.0, 1.0, 1.0]})
    first = evaluate_folds(estimator, rows, parts="rotating", identity={}, out=tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = evaluate_folds(estimator, rows, parts="rotating", identity={}, out=tmp_path)
    assert estimator.calls == 1
    assert again.summary == json.loads(json.dumps(first.summary))
    for one, other in zip(first.errors["a"], again.errors["a"], strict=True):
        np.testing.assert_array_equal(one, other)
    (tmp_path / "results.json").unlink()  # killed before the last file
    (tmp_path / ".tmp-1-half").write_bytes(b"what a kill left")
    evaluate_folds(estimator, rows, parts="rotating", identity={}, out=tmp_path)
    assert estimator.calls == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_folder_of_another_evaluation_or_a_damaged_one_is_refused(tmp_path: Path):
    rows = drawn()
    evaluate_folds(Constant({"a": [1.0, 1, 1]}), rows, parts="rotating", identity={}, out=tmp_path)
    with pytest.raises(ValueError, match=r"estimator\.lights\.a was "):
        evaluate_folds(Constant({"a": [1.0, 1, 2]}), rows, parts="rotating", identity={}, out=tmp_path)
    moved = dataclasses.replace(rows, X=rows.X * 2)
    with pytest.raises(ValueError, match="data was "):
        evaluate_folds(Constant({"a": [1.0, 1, 1]}), moved, parts="rotating", identity={}, out=tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"abd")
    with pytest.raises(ValueError, match=r"weights\.bin is missing or is not the one"):
        evaluate_folds(Constant({"a": [1.0, 1, 1]}), rows, parts="rotating", identity={}, out=tmp_path)
    for text in ("x", "[]", "{}", '{"identity": {}}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(ValueError, match=r"results\.json .*: choose another folder, or remove that one"):
            evaluate_folds(Constant({"a": [1.0, 1, 1]}), rows, parts="rotating", identity={}, out=tmp_path)


def test_results_say_loudly_who_looked_at_the_test(tmp_path: Path):
    rows = drawn()
    fair = Constant({"a": [1.0, 1, 1]})
    evaluate_folds(fair, rows, parts="rotating", identity={}, out=tmp_path / "fair")
    assert all(fold.gt_test is None for fold in fair.seen)
    peeking = Constant({"a": [1.0, 1, 1]}, looks_at_test=True)
    results = evaluate_folds(peeking, rows, parts="rotating", identity={}, out=tmp_path / "peeking", lights_of_test=True)
    assert all(fold.gt_test is not None for fold in peeking.seen)
    warnings = results.summary["warnings"]
    assert len(warnings) == 2
    assert "selected on the test fold" in warnings[0]
    assert "lights of test pairs" in warnings[1]


def test_directions_take_their_own_transform_and_light(s20: TransformPairs):
    one, two = examples(s20, direction="1to2"), examples(s20, direction="2to1")
    np.testing.assert_array_equal(one.X, s20.transform_1to2.reshape(-1, 9).astype(np.float32))
    np.testing.assert_array_equal(two.X, s20.transform_2to1.reshape(-1, 9).astype(np.float32))
    np.testing.assert_allclose(two.gt, s20.gt_2 / s20.gt_2[:, 1:2])
    chart = examples(s20, direction="2to1", chart=True)
    np.testing.assert_array_equal(chart.X, s20.transform_chart_2to1.reshape(-1, 9).astype(np.float32))
    without = np.where(np.arange(162)[:, None, None] == 3, np.nan, s20.transform_1to2)
    with pytest.raises(ValueError, match="pair RAW_0003: a finite transform"):
        examples(dataclasses.replace(s20, transform_1to2=without), direction="1to2")


def test_linear_regression_on_the_published_folds(s20: TransformPairs, tmp_path: Path):
    """The paper's Table 3 has a mean of 2.49 for linear regression; plain least squares on all nine numbers gives 2.54."""
    results = evaluate_folds(
        LinearEstimator(), examples(s20, direction="1to2"), parts="rotating", identity={}, out=tmp_path / "linear"
    )
    (mean, middle) = (results.summary["runs"]["linear"]["fold_mean"][name] for name in ("mean", "median"))
    assert mean == pytest.approx(2.49, abs=0.06)
    assert mean == pytest.approx(2.538, abs=0.002)
    assert middle == pytest.approx(1.983, abs=0.002)
    assert [len(fold) for fold in results.errors["linear"]] == [54, 54, 54]


def test_reilluminated_rows_stay_within_their_folds_lights(s20: TransformPairs):
    few = dataclasses.replace(s20.take(np.arange(30)), fold=np.arange(30) % 3)
    rows = examples(reilluminated(few), direction="1to2")
    assert len(rows.key) == 30 * 30
    for fold in rotating_folds(rows):
        assert len(fold.X_train) == 20 * 20
        assert len(fold.key_test) == 10


def test_errors_say_value_and_rule(tmp_path: Path):
    rows = drawn()

    def run(estimator: Constant) -> None:
        evaluate_folds(estimator, rows, parts="rotating", identity={}, out=tmp_path)

    with pytest.raises(ValueError, match="must be finite, not below 0"):
        run(Constant({"a": [1.0, 1.0, -1.0]}))
    with pytest.raises(ValueError, match="above 0 in green"):
        run(Constant({"a": [1.0, 0.0, 1.0]}))
    with pytest.raises(ValueError, match=r"the folds test \[4, 4, 4\] rows"):
        run(Constant({"a": [1.0, 1.0]}))
    with pytest.raises(ValueError, match="none is called 'average'"):
        run(Constant({AVERAGE: [1.0, 1.0, 1.0]}))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"folds \[0\]: at least two"):
        rotating_folds(dataclasses.replace(rows, fold=rows.fold * 0))
