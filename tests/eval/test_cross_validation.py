"""Folds: who sees what, estimates as rows, statistics of them, and linear regression on the published folds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.flow import rows_of, source, step
from benchwright.curation.run import run
from benchwright.datasets.two_camera.folds import parts
from benchwright.datasets.two_camera.metadata import read_released_pairs
from benchwright.datasets.two_camera.rows import TransformPairs
from benchwright.eval.metrics.angular import angular_error_deg, angular_statistics
from benchwright.eval.protocols.cross_validation import (
    AVERAGE,
    ESTIMATES,
    Estimates,
    NotFitted,
    PairExamples,
    all_pairs,
    estimate_folds,
    estimates_of,
    examples,
    fixed_parts,
    measure_folds,
    rotating_folds,
)
from benchwright.eval.results import Value
from benchwright.pipelines.metrics import measure_by
from benchwright.training.two_camera.linear import LinearEstimator
from benchwright.training.two_camera.reillumination import reilluminated


def pairs_of(path: Path) -> TransformPairs:
    rows = list(read_released_pairs(path=str(path)))
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


def drawn(n: int = 12, more: bool = True) -> PairExamples:
    """n measured rows in three folds, each followed by itself under the light of the next."""
    draw = np.random.default_rng(0)
    key = np.array([f"p{row:02}" for row in range(n)])
    gt = np.exp(draw.normal(0, 0.3, (n, 3)))
    gt /= gt[:, 1:2]
    X = draw.normal(size=(n, 9)).astype(np.float32)
    measured = PairExamples(key, key, key, X, gt, np.arange(n) % 3, np.ones(n, dtype=bool))
    if not more:
        return measured
    other = np.roll(np.arange(n), -1)
    made = PairExamples(np.char.add(key, "x"), key, key[other], X + 1, gt[other], measured.fold, np.zeros(n, dtype=bool))
    fields = [field.name for field in dataclasses.fields(PairExamples)]
    return PairExamples(*[np.concatenate([getattr(measured, name), getattr(made, name)]) for name in fields])


@dataclasses.dataclass
class Constant:
    """Estimates one light a run; remembers what it was given."""

    lights: dict[Any, list[float]]
    looks_at_test: bool = False
    seen: tuple = ()

    def estimate_folds(self, folds):
        self.seen = tuple(folds)
        return {run: [np.tile(light, (len(fold.X_test), 1)) for fold in folds] for run, light in self.lights.items()}

    def artifacts(self):
        return {"weights.bin": b"abc"}


def learned(estimator: Any, rows: PairExamples, **settings: Any) -> pa.Table:
    return pa.concat_tables(estimate_folds(estimator, rows, parts="rotating", **settings))


def measured(table: pa.Table, **unfair: bool) -> dict[tuple[str, str, int | None], float | None]:
    """(metric, stratum, seed) -> value."""
    values = measure_folds(predictions=table, **{"looks_at_test": False, "lights_of_test": False, **unfair})
    return {(each.metric, each.stratum, each.seed): each.value for each in values}


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


def test_as_many_re_illuminated_rows_of_a_pair_are_learned_from_as_asked_for_without_lights_of_tests():
    measured = drawn(12, more=False)
    i, j = (each.ravel() for each in np.meshgrid(np.arange(12), np.arange(12), indexing="ij"))
    i, j = i[i != j], j[i != j]
    key = np.char.add(measured.key[i], measured.key[j])
    more = PairExamples(key, measured.pair[i], measured.pair[j], measured.X[i], measured.gt[j], measured.fold[i], i < 0)
    fields = [field.name for field in dataclasses.fields(PairExamples)]
    rows = PairExamples(*[np.concatenate([getattr(measured, name), getattr(more, name)]) for name in fields])
    for count, left in ((5, 5), (None, 7), (9, 7), (0, 0)):
        for fold in rotating_folds(rows, relit_rows=count):
            assert not set(fold.light_train) & set(fold.key_test)
            relit = fold.pair_train[~fold.measured_train]
            assert np.unique(relit, return_counts=True)[1].tolist() == [left] * (8 if left else 0)
            assert fold.measured_train.sum() == 8
    for count, left in ((5, 5), (None, 11)):
        [fold] = all_pairs(rows, relit_rows=count)
        assert np.unique(fold.pair_train[~fold.measured_train], return_counts=True)[1].tolist() == [left] * 12
        estimator = Constant({0: [1.0, 1.0, 1.0]})
        list(estimate_folds(estimator, rows, parts="all pairs", relit_rows=count))
        assert len(estimator.seen[0].X_train) == len(fold.X_train) == 12 * (1 + left)
    one, again = (rotating_folds(rows, relit_rows=5)[0].light_train.tolist() for _ in range(2))
    assert one == again
    assert len({tuple(fold.light_train[~fold.measured_train][:5]) for fold in rotating_folds(rows, relit_rows=5)}) > 1


def test_fixed_parts_are_learned_from_validated_and_tested_in_this_order():
    rows = drawn()
    (fold,) = fixed_parts(rows)
    assert set(fold.pair_train) == set(rows.pair[rows.fold == 0])
    assert not set(fold.light_train) & set(rows.pair[rows.fold != 0]), "each is followed by itself under a light of part 1"
    assert fixed_parts(rows, lights_of_test=True)[0].measured_train.tolist() == [True] * 4 + [False] * 4
    np.testing.assert_array_equal(fold.gt_validate, rows.gt[(rows.fold == 1) & rows.original])
    np.testing.assert_array_equal(fold.key_test, rows.key[(rows.fold == 2) & rows.original])


def test_rows_hold_every_estimate_and_values_their_statistics():
    rows = drawn(more=False)
    table = learned(Constant({3: [1.0, 1.0, 1.0], 5: [2.0, 1.0, 0.5]}), rows)
    assert table.schema == ESTIMATES
    lines = table.to_pylist()
    assert [line["run"] for line in lines] == [3] * 12 + [5] * 12 + [None]
    assert (lines[-1]["name"], lines[-1]["file"]) == ("weights.bin", b"abc")
    assert len({line["key"] for line in lines}) == 25
    at = {key: row for row, key in enumerate(rows.key)}
    found = estimates_of(table)
    errors = {
        (run, name): error
        for run in found.runs
        for k in range(3)
        for name, error in zip(found.names[k], found.errors[run][k], strict=True)
    }
    for line in lines[:-1]:
        truth = [line["gt_r_g"], 1, line["gt_b_g"]]
        assert truth == rows.gt[at[line["name"]]].tolist()
        estimate = [line["estimate_r_g"], 1, line["estimate_b_g"]]
        assert errors[line["run"], line["name"]] == angular_error_deg([estimate], [truth])[0]
    # The average of R/G 1 and 2 is their geometric mean.
    assert found.runs[AVERAGE][2][-1, 0] == pytest.approx(2**0.5)
    values = measured(table)
    of_3 = np.concatenate(found.errors[3])
    for name, value in dataclasses.asdict(angular_statistics(of_3)).items():
        assert values[f"pooled_{name}_deg", "", 3] == value
    assert values["mean_deg", "fold 1", 5] == angular_statistics(found.errors[5][1]).mean
    assert values["mean_deg", f"fold 1, {AVERAGE}", None] == angular_statistics(found.errors[AVERAGE][1]).mean
    means = [values["fold_mean_mean_deg", "", seed] for seed in (3, 5)]
    over = [values["fold_mean_mean_deg", f"{which} of runs", None] for which in ("least", "median", "largest")]
    assert over == [min(means), pytest.approx(np.mean(means)), max(means)]
    two = [values["mean_deg", fold, 3] for fold in ("fold 0", "fold 1")]
    assert values["first_two_folds_mean_mean_deg", "", 3] == pytest.approx(np.mean(two))
    assert not {"looks_at_test", "lights_of_test"} & {metric for metric, _, _ in values}
    assert [len(fold) for fold in found.errors[3]] == [4, 4, 4]


def test_values_say_loudly_who_looked_at_the_test():
    rows = drawn()
    fair = Constant({0: [1.0, 1, 1]})
    learned(fair, rows)
    assert all(fold.gt_test is None for fold in fair.seen)
    peeking = Constant({0: [1.0, 1, 1]}, looks_at_test=True)
    table = learned(peeking, rows, lights_of_test=True)
    assert all(fold.gt_test is not None for fold in peeking.seen)
    values = measured(table, looks_at_test=True, lights_of_test=True)
    assert values["looks_at_test", "", None] == values["lights_of_test", "", None] == 1


def drawn_estimates():
    """Source step: what an estimator of one light leaves."""
    yield from estimate_folds(Constant({0: [1.0, 1.0, 1.0]}), drawn(), parts="rotating")


def largest_error(found: Estimates) -> float:
    return max(float(errors.max()) for errors in found.errors[0])


def test_estimates_and_values_are_stages(tmp_path: Path):
    flow = source("learned", step(drawn_estimates), gives=ESTIMATES)
    own = step(measure_by, predictions=rows_of("learned"), metric=largest_error, name="largest", reader=estimates_of)
    done = run(type(flow)((*flow.stages, *source("measured", own, gives=Value).stages)), str(tmp_path), scheduler="sync")
    (value,) = done.rows("measured").table().to_pylist()
    assert (value["metric"], value["value"]) == ("largest", largest_error(estimates_of(done.rows("learned"))))


def test_directions_take_their_own_transform_and_light(s20: TransformPairs):
    one, two = examples(s20, direction="1to2"), examples(s20, direction="2to1")
    np.testing.assert_array_equal(one.X, s20.transform_1to2.reshape(-1, 9).astype(np.float32))
    np.testing.assert_array_equal(two.X, s20.transform_2to1.reshape(-1, 9).astype(np.float32))
    np.testing.assert_allclose(two.gt, s20.gt_2 / s20.gt_2[:, 1:2])
    without = np.where(np.arange(162)[:, None, None] == 3, np.nan, s20.transform_1to2)
    with pytest.raises(ValueError, match="pair RAW_0003: a finite transform"):
        examples(dataclasses.replace(s20, transform_1to2=without), direction="1to2")


def test_linear_regression_on_the_published_folds(s20: TransformPairs):
    """The paper's Table 3 has a mean of 2.49 for linear regression; plain least squares on all nine numbers gives 2.54."""
    table = learned(LinearEstimator(), examples(s20, direction="1to2"))
    values = measured(table)
    (mean, middle) = (values[f"fold_mean_{name}_deg", "", 0] for name in ("mean", "median"))
    assert mean == pytest.approx(2.49, abs=0.06)
    assert mean == pytest.approx(2.538, abs=0.002)
    assert middle == pytest.approx(1.983, abs=0.002)
    assert [len(fold) for fold in estimates_of(table).errors[0]] == [54, 54, 54]


def test_reilluminated_rows_stay_within_their_folds_lights(s20: TransformPairs):
    few = dataclasses.replace(s20.take(np.arange(30)), fold=np.arange(30) % 3)
    rows = examples(reilluminated(few), direction="1to2")
    assert len(rows.key) == 30 * 30
    for fold in rotating_folds(rows):
        assert len(fold.X_train) == 20 * 20
        assert len(fold.key_test) == 10


class OfPictures(Constant):
    """Needs pictures, and refuses what few there are."""

    def estimate_folds(self, folds):
        for fold in folds:
            if len(fold.pictures(fold.key_test)) < 100:
                raise ValueError("too few pictures")


def test_pictures_that_cannot_be_read_are_no_refusal_of_the_estimators():
    def broken(keys):
        raise ValueError("fold_0-00000.tar: member a.image_1.npy is missing")

    with pytest.raises(NotFitted, match="too few pictures"):
        list(estimate_folds(OfPictures({}), drawn(), parts="rotating", pictures=lambda keys: keys))
    with pytest.raises(ValueError, match=r"fold_0-00000\.tar") as told:
        list(estimate_folds(OfPictures({}), drawn(), parts="rotating", pictures=broken))
    assert not isinstance(told.value, NotFitted)


def test_errors_say_value_and_rule():
    rows = drawn()
    with pytest.raises(ValueError, match="must be finite, not below 0"):
        learned(Constant({0: [1.0, 1.0, -1.0]}), rows)
    with pytest.raises(ValueError, match="above 0 in green"):
        learned(Constant({0: [1.0, 0.0, 1.0]}), rows)
    with pytest.raises(ValueError, match=r"the folds test \[4, 4, 4\] rows"):
        learned(Constant({0: [1.0, 1.0]}), rows)
    with pytest.raises(ValueError, match=r"runs \['a'\]: at least one is needed, and each is a whole number"):
        learned(Constant({"a": [1.0, 1.0, 1.0]}), rows)
    with pytest.raises(ValueError, match="needs_pictures = True"):
        rotating_folds(rows)[0].pictures(rows.key[:2])
    with pytest.raises(ValueError, match=r"folds \[0\]: at least two"):
        rotating_folds(dataclasses.replace(rows, fold=rows.fold * 0))
