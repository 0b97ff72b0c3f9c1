"""The loop over streams: what is tested, resuming after a kill, equal rows, and what a person expects of a drifting world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from benchwright.curation.stage_rows import Rows
from benchwright.eval.protocols.domain_incremental import iid_stream, measure_domains, streaming_stream
from benchwright.eval.protocols.predictions import Predictions
from benchwright.eval.protocols.stream_loop import Position, Stream, Test, run_stream
from benchwright.training.baselines.clear import paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.learner import Learner
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.methods import registry
from benchwright.training.models.linear import linear

BUCKETS, CLASSES, PER_BUCKET, WIDTH = 5, 4, 120, 16
NAMES = tuple(f"class {at}" for at in range(CLASSES))
SHORT = {"batch_size": 32, "learning_rate": 0.1, "decay_after_epochs": 9}


class Table(Rows):
    """Rows that lie in memory."""

    def __init__(self, table: pa.Table) -> None:
        object.__setattr__(self, "schema", table.schema)
        object.__setattr__(self, "_table", table)

    num_rows = property(lambda self: self._table.num_rows)  # type: ignore[assignment]

    def table(self, columns: Any = None) -> pa.Table:
        return self._table if columns is None else self._table.select(list(columns))


def drifting() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian classes whose means turn by 18 degrees a bucket: the farther apart two buckets are, the less they share."""
    draw = np.random.default_rng(7)
    X, y, bucket = [], [], []
    for b in range(BUCKETS):
        labels = np.arange(PER_BUCKET) % CLASSES
        angle = 2 * np.pi * labels / CLASSES + np.deg2rad(18) * b
        centre = np.zeros((PER_BUCKET, WIDTH))
        centre[:, 0], centre[:, 1] = 2.5 * np.cos(angle), 2.5 * np.sin(angle)
        X.append(centre + draw.normal(size=centre.shape))
        y.append(labels)
        bucket.append(np.full(PER_BUCKET, b))
    split = np.where(np.arange(BUCKETS * PER_BUCKET) % 10 < 7, "train", "test")
    return np.concatenate(X).astype(np.float32), np.concatenate(y), np.concatenate(bucket), split


def stream(protocol: str = "iid") -> Stream:
    X, y, bucket, split = drifting()
    everything = ArrayExamples(X, y)
    if protocol == "iid":
        return iid_stream(bucket, split.tolist(), everything.take, NAMES)
    return streaming_stream(bucket, everything.take, NAMES)


def learner(method: str, *, seed: int = 0, epochs: int = 15, **settings: Any) -> Learner:
    _, values = paper_settings("linear")
    values = {**values, "method": settings, "schedule": {**values["schedule"], **SHORT, "epochs": epochs}}
    made = parts_of(values, lambda **given: registry.method(method, **given), linear, labels="one", classes="same")
    return Learner(made, sample=(WIDTH,), seed=seed)


def run(folder: Path, method: str, protocol: str = "iid", seed: int = 0, **settings: Any) -> Predictions:
    folder.mkdir(exist_ok=True)
    one = learner(method, seed=seed, **settings)
    return Predictions(Table(pa.concat_tables(run_stream(one, stream(protocol), folder=folder))))


def summaries(found: Predictions, protocol: str = "iid") -> Mapping[str, float | None]:
    values = measure_domains(predictions=found._rows, protocol=protocol)  # type: ignore[arg-type]
    return {one.metric: one.value for one in values if one.position is None}


def test_a_drifting_world_is_learned_as_a_person_expects(tmp_path: Path) -> None:
    nap = run(tmp_path / "nap", "nap")
    cumulative = run(tmp_path / "cumulative", "cumulative", start="scratch")
    finetune = run(tmp_path / "finetune", "finetune")
    in_domain = {name: summaries(each)["in_domain"] for name, each in [("nap", nap), ("now", finetune)]}
    assert in_domain["nap"] < in_domain["now"]  # who sleeps falls behind
    assert in_domain["now"] > 3 / CLASSES
    last = {name: r.square()[-1] for name, r in [("nap", nap), ("all", cumulative), ("now", finetune)]}
    assert last["all"][-1] >= last["nap"][-1]
    assert last["now"][0] < last["all"][0]  # without memory the first bucket is forgotten
    assert last["nap"][0] > 2 / CLASSES
    assert summaries(finetune)["next_domain"] > summaries(finetune)["fwt"]  # the next year is nearer than those after it
    matrix = nap.square()
    np.testing.assert_array_equal(matrix, np.broadcast_to(matrix[0], (BUCKETS, BUCKETS)))


def test_bias_towards_the_present_helps_the_present(tmp_path: Path) -> None:
    vitter = summaries(run(tmp_path / "1", "reservoir", start="scratch", alpha=0.5))
    biased = summaries(run(tmp_path / "2", "dynamic_reservoir", start="scratch", alpha=1.0))
    assert biased["in_domain"] > vitter["in_domain"]
    assert biased["bwt"] < vitter["bwt"]


def test_predictions_say_what_was_learned_and_tested(tmp_path: Path) -> None:
    found = run(tmp_path / "a", "reservoir", alpha=1.0)
    first, second = found.positions[:2]
    assert (first.name, first.samples, first.classes, first.known) == ("0", 84, NAMES, CLASSES)
    assert (second.classes, second.known, second.memory_samples, second.memory_parts) == ((), CLASSES, 84, 84)
    for name in ("finetune", "nap", "cumulative", "joint"):
        assert {(one.memory_samples, one.memory_parts) for one in run(tmp_path / name, name).positions} == {(None, None)}
    assert [len(one.record["epochs"]) for one in found.positions] == [15] * BUCKETS
    assert [(test.tested, test.split, len(test.keys)) for test in found.tests] == [(str(b), "test", 36) for b in range(BUCKETS)]
    X, y, _, _ = drifting()
    rows = np.array([int(key) for key in found.tests[3].keys])
    np.testing.assert_array_equal(found.tests[3].labels, y[rows])
    guess = found.predicted(2, found.tests[3])
    again = learner("reservoir", alpha=1.0)
    for one in stream().positions[:2]:
        again.learn(one.train, [], classes=len(one.classes))
    np.testing.assert_array_equal(guess, again.predict(ArrayExamples(X[rows], y[rows])))
    values = list(measure_domains(predictions=found._rows, protocol="iid"))
    held = {(v.position, v.tested): v.value for v in values if v.metric == "accuracy"}
    assert held[2, "3"] == np.mean(guess == y[rows])
    assert len(held) == BUCKETS * BUCKETS
    assert {v.memory_samples for v in values if v.position == 2} == {84}


def test_streaming_trains_on_whole_buckets_and_tests_the_future_alone(tmp_path: Path) -> None:
    found = run(tmp_path / "a", "finetune", "streaming", seed=3)
    assert set(summaries(found, "streaming")) == {"next_domain", "fwt"}
    tested = ~np.isnan(found.square())
    np.testing.assert_array_equal(tested, np.triu(np.ones((BUCKETS, BUCKETS), bool), 1))
    assert [one.samples for one in found.positions] == [PER_BUCKET] * (BUCKETS - 1)  # the last bucket has no future
    assert [len(test.keys) for test in found.tests] == [PER_BUCKET] * (BUCKETS - 1)


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


class Mortal(Learner):
    """A learner that dies in its k-th lesson, or just after its checkpoint is written."""

    lessons_left = 0
    dies_in_save = False

    def learn(self, *given: Any, **named: Any) -> None:
        if self.lessons_left == 0 and not self.dies_in_save:
            raise Killed
        self.lessons_left -= 1
        super().learn(*given, **named)

    def save(self, path: Path) -> None:
        super().save(path)
        if self.lessons_left == 0 and self.dies_in_save:
            raise Killed


@pytest.mark.parametrize(("method", "settings"), [("reservoir", {"alpha": 2.0}), ("cumulative", {})])
@pytest.mark.parametrize("start", ["scratch", "finetune"])
def test_killed_anywhere_it_ends_in_the_same_rows(tmp_path: Path, method: str, settings: dict[str, Any], start: str) -> None:
    settings = {**settings, "start": start, "epochs": 3}
    whole = run(tmp_path / "whole", method, **settings)
    (broken := tmp_path / "broken").mkdir()
    for lessons, in_save in [(1, False), (1, True), (2, False)]:
        mortal = learner(method, **settings)
        mortal.__class__ = Mortal
        mortal.lessons_left, mortal.dies_in_save = lessons, in_save  # type: ignore[attr-defined]
        with pytest.raises(Killed):
            list(run_stream(mortal, stream(), folder=broken))
    assert len(list(broken.glob("position-*.parquet"))) == 3
    again = run(broken, method, **settings)
    assert again._rows.table().equals(whole._rows.table())


class Means:
    """A learner of a user's own, who saves with ``torch.save``; a pulled plug stops it after some positions."""

    record: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, stop: int | None = None) -> None:
        self.means, self.learned, self.stop = torch.zeros(CLASSES, WIDTH), list[Any](), stop

    def learn(self, train: Any, validate: Any, *, classes: int) -> None:
        if len(self.learned) == self.stop:
            raise KeyboardInterrupt
        self.learned.append(train)
        y = torch.from_numpy(train.labels)
        self.means += torch.stack([torch.from_numpy(train.X)[y == each].mean(0) for each in range(CLASSES)])

    def predict(self, samples: Any) -> np.ndarray:
        return torch.cdist(torch.from_numpy(samples.X), self.means / len(self.learned)).argmin(1).numpy()

    def save(self, path: Path) -> None:
        torch.save({"means": self.means, "learned": len(self.learned)}, path)

    def load(self, path: Path, seen: Any) -> None:
        held = torch.load(path, weights_only=True)
        assert held["learned"] == len(seen)
        self.means, self.learned = held["means"], list(seen)


class NumpyMeans(Means):
    """``numpy.savez`` adds an ending to the name."""

    def save(self, path: Path) -> None:
        np.savez(path, means=self.means.numpy())

    def load(self, path: Path, seen: Any) -> None:
        with np.load(path) as held:
            self.means, self.learned = torch.from_numpy(held["means"]), list(seen)


@pytest.mark.parametrize("Own", [Means, NumpyMeans])
def test_a_learner_of_ones_own_may_save_with_torch_or_numpy_and_goes_on_from_it(tmp_path: Path, Own: type[Means]) -> None:
    whole = pa.concat_tables(run_stream(Own(), stream(), folder=made(tmp_path / "whole")))
    folder = made(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        list(run_stream(Own(stop=3), stream(), folder=folder))
    (folder / ".tmp-1").mkdir()  # of a kill
    (folder / ".tmp-1/after-0004").write_bytes(b"half")
    again = Own()
    told: list[str] = []
    assert pa.concat_tables(run_stream(again, stream(), folder=folder, tell=told.append)).equals(whole)
    assert len(told) == BUCKETS - 3, "what was saved is not learned again"
    assert Predictions(Table(whole)).square().mean() > 2 / CLASSES
    assert not list(folder.glob(".tmp-*"))
    states = [(each / f"after-{BUCKETS:04}").read_bytes() for each in (folder, tmp_path / "whole")]
    assert states[0] == states[1], "no name of the moment is in them"


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_damaged_checkpoint_is_not_gone_on_from(tmp_path: Path) -> None:
    whole = run(tmp_path / "a", "cumulative", epochs=3)
    for name in ("after-0005", "position-0002.parquet", "progress.json"):
        damaged = bytearray((tmp_path / "a" / name).read_bytes())
        damaged[len(damaged) // 2] ^= 8
        (tmp_path / "a" / name).write_bytes(damaged)
        assert run(tmp_path / "a", "cumulative", epochs=3)._rows.table().equals(whole._rows.table()), name


def test_domains_of_arrays_in_any_order() -> None:
    X, y, bucket, split = drifting()
    order = np.random.default_rng(0).permutation(len(y))
    mixed = ArrayExamples(X[order], y[order])
    shuffled = iid_stream(bucket[order], split[order].tolist(), mixed.take, NAMES)
    for a, b in zip(stream().positions, shuffled.positions, strict=True):
        assert a.name == b.name
        assert sorted(map(bytes, a.train.X)) == sorted(map(bytes, b.train.X))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"split": ["train", "valid"]}, "split 'valid'"),
        ({"split": ["train", "train"]}, "the test set of bucket 0 is empty"),
        ({"bucket": [0, 0, 0]}, "3 buckets and 2 splits"),
        ({"classes": ("a",)}, r"labels from 1 to 1: 0..0 are known"),
    ],
)
def test_arrays_that_are_no_domains_are_refused(change: dict[str, Any], says: str) -> None:
    samples = ArrayExamples(np.zeros((2, 3), np.float32), [0, 1]).take
    good = {"bucket": [0, 0], "split": ["train", "test"], "samples": samples, "classes": ("a", "b")}
    with pytest.raises(ValueError, match=says):
        iid_stream(**{**good, **change})


def test_streams_that_hold_nothing_or_what_nobody_knows_are_refused() -> None:
    some = ArrayExamples(np.zeros((2, 3), np.float32), [0, 1])
    test = Test("", "test", some)
    with pytest.raises(ValueError, match="without positions"):
        Stream((), (test,))
    with pytest.raises(ValueError, match=r"'a', train: labels from 0 to 1: 0..0 are known by then"):
        Stream((Position("a", some, ("x",), (0,)),), (test,))
    with pytest.raises(ValueError, match=r"expected int64 .* sets of class indices"):
        Stream((Position("a", some, ("x", "y"), (0,)),), (test,), sets=True)
    with pytest.raises(ValueError, match="1 bucket: the streaming protocol tests on later buckets"):
        streaming_stream([2004, 2004], some.take, ("x", "y"))
