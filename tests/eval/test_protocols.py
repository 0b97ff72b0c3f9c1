"""The protocols over a drifting world: what is tested, resume after a kill, equal bytes, and what a person would expect."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from benchwright.eval.protocols.domain_incremental import IID, STREAMING, ProtocolSpec, Results, run_protocol
from benchwright.eval.protocols.domains import Domain, fingerprint, iid_domains, streaming_domains
from benchwright.training.baselines.clear import identity, learner_maker
from benchwright.training.core.learner import BufferLearner
from benchwright.training.methods.registry import method

BUCKETS, CLASSES, PER_BUCKET, WIDTH = 5, 4, 120, 16
HYPER = {
    "model": "linear",
    "epochs": 15,
    "batch_size": 32,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 0.0,
    "decay_after_epochs": 9,
    "decay_factor": 0.1,
    "keep": "lowest_loss",
}


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


def run(
    out: Path,
    rule: str,
    start: str,
    protocol: ProtocolSpec = IID,
    seeds: Sequence[int] = (0, 1),
    make: Callable[[int], BufferLearner] | None = None,
    **settings: float,
) -> Results:
    X, y, bucket, split = drifting()
    domains = iid_domains(X, y, bucket, split) if protocol is IID else streaming_domains(X, y, bucket)
    chosen = method(rule, start=start, **settings)  # type: ignore[arg-type]
    return run_protocol(
        protocol,
        make or learner_maker(HYPER, chosen, classes=CLASSES),
        lambda seed: domains,
        seeds=seeds,
        identity=identity(HYPER, chosen, classes=CLASSES),
        out=out,
    )


def test_a_drifting_world_is_learned_as_a_person_expects(tmp_path: Path):
    nap = run(tmp_path / "nap", "nap", "finetune")
    cumulative = run(tmp_path / "cumulative", "cumulative", "scratch")
    finetune = run(tmp_path / "finetune", "finetune", "finetune")
    chance = 1 / CLASSES
    assert nap.mean["in_domain"] < finetune.mean["in_domain"]  # who sleeps falls behind
    assert finetune.mean["in_domain"] > 3 * chance
    last = {name: r.matrices.mean(0)[-1] for name, r in [("nap", nap), ("all", cumulative), ("now", finetune)]}
    assert last["all"][-1] >= last["nap"][-1]
    assert last["now"][0] < last["all"][0]  # without memory the first bucket is forgotten
    assert last["nap"][0] > 2 * chance
    assert finetune.mean["next_domain"] > finetune.mean["fwt"]  # the next year is nearer than those after it
    np.testing.assert_array_equal(nap.matrices[0], np.broadcast_to(nap.matrices[0, 0], (BUCKETS, BUCKETS)))


def test_bias_towards_the_present_helps_the_present(tmp_path: Path):
    vitter = run(tmp_path / "1", "reservoir", "scratch", alpha=0.5)
    biased = run(tmp_path / "2", "dynamic_reservoir", "scratch", alpha=1.0)
    assert biased.mean["in_domain"] > vitter.mean["in_domain"]
    assert biased.mean["bwt"] < vitter.mean["bwt"]


def test_results_on_disk_say_what_was_measured(tmp_path: Path):
    results = run(tmp_path, "cumulative", "finetune")
    held = json.loads((tmp_path / "results.json").read_bytes())
    assert [row["seed"] for row in held["per_seed"]] == [0, 1]
    for name in ("in_domain", "next_domain", "acc", "bwt", "fwt"):
        both = [row[name] for row in held["per_seed"]]
        assert held["mean"][name] == pytest.approx(sum(both) / 2)
        assert held["std"][name] == pytest.approx(abs(both[0] - both[1]) / 2**0.5)
    assert held["domains"][0] == {"name": "0", "learned": [84, 84], "tested": [36, 36]}
    assert held["identity"]["method"] == "cumulative-finetune"
    table = np.genfromtxt(tmp_path / "matrix.csv", delimiter=",", skip_header=1)[:, 1:]
    np.testing.assert_array_equal(table, results.matrices.mean(0))
    np.testing.assert_array_equal(
        np.genfromtxt(tmp_path / "seed1" / "matrix.csv", delimiter=",", skip_header=1)[:, 1:], results.matrices[1]
    )


def test_streaming_trains_on_whole_buckets_and_tests_the_future_alone(tmp_path: Path):
    results = run(tmp_path, "finetune", "finetune", protocol=STREAMING, seeds=[3])
    assert set(results.mean) == {"next_domain", "fwt"}
    tested = ~np.isnan(results.matrices[0])
    np.testing.assert_array_equal(tested, np.triu(np.ones((BUCKETS, BUCKETS), bool), 1))
    held = json.loads((tmp_path / "results.json").read_bytes())
    assert held["domains"][0] == {"name": "0", "learned": [PER_BUCKET], "tested": [PER_BUCKET]}
    assert held["std"]["fwt"] is None
    assert (tmp_path / "matrix.csv").read_text().splitlines()[-1] == "4" + "," * BUCKETS


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


class Mortal(BufferLearner):
    """A learner that dies in its k-th lesson, or just after its checkpoint is written."""

    lessons_left = 0
    dies_in_save = False

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        if self.lessons_left == 0 and not self.dies_in_save:
            raise Killed
        self.lessons_left -= 1
        super().learn(X, y)

    def save(self, path: Path) -> None:
        super().save(path)
        if self.lessons_left == 0 and self.dies_in_save:
            raise Killed


@pytest.mark.parametrize("rule", ["reservoir", "cumulative"])
@pytest.mark.parametrize("start", ["scratch", "finetune"])
def test_killed_anywhere_it_ends_in_the_same_bytes(tmp_path: Path, rule: str, start: str):
    settings = {"alpha": 2.0} if rule == "reservoir" else {}
    run(tmp_path / "whole", rule, start, seeds=[0], **settings)

    def make(lessons: int, in_save: bool) -> Callable[[int], BufferLearner]:
        def maker(seed: int) -> BufferLearner:
            plain = learner_maker(HYPER, method(rule, start=start, **settings), classes=CLASSES)(seed)  # type: ignore[arg-type]
            plain.__class__ = Mortal
            plain.lessons_left, plain.dies_in_save = lessons, in_save  # type: ignore[attr-defined]
            return plain

        return maker

    for lessons, in_save in [(1, False), (1, True), (2, False)]:
        with pytest.raises(Killed):
            run(tmp_path / "broken", rule, start, seeds=[0], make=make(lessons, in_save), **settings)
    assert len(json.loads((tmp_path / "broken/seed0/progress.json").read_bytes())["correct"]) == 3
    run(tmp_path / "broken", rule, start, seeds=[0], **settings)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    files = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    assert files == ["matrix.csv", "results.json", "seed0/after-005.pt", "seed0/matrix.csv", "seed0/progress.json"]
    assert files == sorted(str(path.relative_to(broken)) for path in broken.rglob("*") if path.is_file())
    for name in files:
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name


def test_a_finished_run_is_read_and_not_trained_again(tmp_path: Path):
    first = run(tmp_path, "nap", "finetune")
    dead = learner_maker(HYPER, method("nap", start="finetune"), classes=CLASSES)

    def make(seed: int) -> BufferLearner:
        one = dead(seed)
        one.__class__ = Mortal
        return one

    again = run(tmp_path, "nap", "finetune", make=make)
    np.testing.assert_array_equal(first.matrices, again.matrices)


def test_a_folder_of_another_run_is_refused(tmp_path: Path):
    run(tmp_path, "nap", "finetune", seeds=[0])
    with pytest.raises(ValueError, match=r"method was 'nap-finetune' and is 'finetune-finetune'"):
        run(tmp_path, "finetune", "finetune", seeds=[0])
    checkpoint = tmp_path / "seed0" / "after-005.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"after-005.pt is missing or is not the one"):
        run(tmp_path, "nap", "finetune", seeds=[0])


def test_other_arrays_are_another_run():
    X, y, bucket, split = drifting()
    before = fingerprint(iid_domains(X, y, bucket, split))
    assert before == fingerprint(iid_domains(X.copy(), y, bucket, split))
    X[-1, -1] += 1
    assert before != fingerprint(iid_domains(X, y, bucket, split))


def test_domains_of_arrays_in_any_order():
    X, y, bucket, split = drifting()
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = iid_domains(X[order], y[order], bucket[order], split[order])
    for a, b in zip(iid_domains(X, y, bucket, split), shuffled, strict=True):
        assert a.name == b.name
        assert sorted(map(bytes, a.X_train)) == sorted(map(bytes, b.X_train))
    assert streaming_domains(X, y, bucket)[1].X_test.base is not None  # rows stand by bucket: a view


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"split": ["train", "valid"]}, "split 'valid'"),
        ({"split": ["train", "train"]}, "domain '0': its test set is empty"),
        ({"X": np.zeros(2, np.float32)}, "do not pair"),
        ({"bucket": [0, 0, 0]}, r"have \[2, 3\] rows"),
        ({"y": [0, -1]}, "label -1"),
    ],
)
def test_arrays_that_are_no_domains_are_refused(change: dict[str, list[object]], says: str):
    good = {"X": np.zeros((2, 3), np.float32), "y": [0, 1], "bucket": [0, 0], "split": ["train", "test"]}
    with pytest.raises(ValueError, match=says):
        iid_domains(**{**good, **change})  # type: ignore[arg-type]


def test_double_precision_is_refused_rather_than_copied():
    with pytest.raises(ValueError, match="float64 and int64, not float32"):
        Domain("a", np.zeros((1, 2)), np.zeros(1, np.int64), np.zeros((1, 2)), np.zeros(1, np.int64))  # type: ignore[arg-type]


def test_seeds_are_distinct(tmp_path: Path):
    with pytest.raises(ValueError, match="none twice"):
        run(tmp_path, "nap", "finetune", seeds=[0, 0])
