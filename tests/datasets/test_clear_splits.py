"""Splits against the release's own words in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchwright.curation.flow import source, step
from benchwright.curation.run import run
from benchwright.curation.stage_rows import Rows
from benchwright.datasets.clear.facts import facts
from benchwright.datasets.clear.splits import SEEDS, IidSplits, assign_iid_splits, released_permutation, released_split


@dataclass(frozen=True)
class Labelled:
    key: str
    bucket: int
    label: int


def labelled(*, each: int, classes: int, buckets: int, shuffled: bool = False) -> Iterator[Labelled]:
    rows = [(bucket, label, row) for bucket in range(1, buckets + 1) for label in range(classes) for row in range(each)]
    if shuffled:
        random.Random(7).shuffle(rows)
    for bucket, label, row in rows:
        yield Labelled(f"{(bucket * 31 + label * 17 + row * 7919) % 99991:05d}-{bucket}-{label}-{row}", bucket, label)


def split_rows(out: Path, *, rule: str, each: int = 30, classes: int = 3, buckets: int = 2, shuffled: bool = False) -> Rows:
    flow = source("labelled", step(labelled, each=each, classes=classes, buckets=buckets, shuffled=shuffled)).whole(
        "split",
        step(assign_iid_splits, rule=rule, test_share=0.3),  # type: ignore[arg-type]
        gives=IidSplits,
    )
    return run(flow, str(out), scheduler="sync").rows()


def test_the_published_size() -> None:
    known = facts()
    for seed in known.iid.seeds:
        train, test = released_split(known.choice.per_bucket, known.iid.test_share, seed)
        assert (len(train), len(test)) == (known.iid.train_per_bucket, known.iid.test_per_bucket) == (2_310, 990)
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(3_300))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_permutation_is_pythons_shuffle(seed: int) -> None:
    state = random.getstate()
    random.seed(seed)
    order = list(range(3_300))
    random.shuffle(order)
    random.setstate(state)
    assert released_permutation(3_300, seed).tolist() == order
    train, test = released_split(3_300, 0.3, seed)
    assert train.tolist() == order[:2_310]
    assert test.tolist() == order[2_310:]


def test_the_permutation_does_not_change_with_python() -> None:
    assert released_permutation(10, 0).tolist() == [7, 8, 1, 5, 3, 4, 2, 0, 9, 6]
    assert released_permutation(10, 4).tolist() == [8, 2, 0, 7, 6, 9, 5, 1, 4, 3]


@pytest.mark.parametrize("shuffled", [False, True])
def test_as_released_follows_class_by_class_order_in_every_bucket(tmp_path: Path, shuffled: bool) -> None:
    rows = split_rows(tmp_path, rule="as_released", shuffled=shuffled).table().to_pylist()
    for bucket in (1, 2):
        listed = [row for label in range(3) for row in rows if (row["bucket"], row["label"]) == (bucket, label)]
        for seed in SEEDS:
            order = list(range(len(listed)))
            random.Random(seed).shuffle(order)
            test = {listed[place]["key"] for place in order[len(listed) - int(0.3 * len(listed)) :]}
            assert {row["key"] for row in listed if row[f"iid_seed{seed}"] == "test"} == test
            assert len(test) == 27


def test_as_released_takes_the_same_places_in_every_bucket(tmp_path: Path) -> None:
    rows = split_rows(tmp_path, rule="as_released").table().to_pylist()
    parts = [[row["iid_seed3"] for row in rows if row["bucket"] == bucket] for bucket in (1, 2)]
    assert parts[0] == parts[1]


def test_as_written_is_balanced_and_does_not_depend_on_the_order(tmp_path: Path) -> None:
    first = split_rows(tmp_path / "a", rule="as_written").table().to_pylist()
    second = split_rows(tmp_path / "b", rule="as_written", shuffled=True).table().to_pylist()
    for seed in SEEDS:
        for bucket in (1, 2):
            for label in range(3):
                mine = [row for row in first if (row["bucket"], row["label"]) == (bucket, label)]
                assert [row[f"iid_seed{seed}"] for row in mine].count("test") == 9
        column = f"iid_seed{seed}"
        assert {row["key"]: row[column] for row in first} == {row["key"]: row[column] for row in second}
    assert len({tuple(row[f"iid_seed{seed}"] for row in first) for seed in SEEDS}) == 5


def test_as_written_at_the_published_size(tmp_path: Path) -> None:
    rows = split_rows(tmp_path, rule="as_written", each=300, classes=11, buckets=1).table(["iid_seed0"])
    parts = rows["iid_seed0"].to_pylist()
    assert (parts.count("train"), parts.count("test")) == (2_310, 990)


def test_stream_is_bucket_then_key(tmp_path: Path) -> None:
    rows = split_rows(tmp_path, rule="as_released", shuffled=True).table().to_pylist()
    expected = sorted(rows, key=lambda row: (row["bucket"], row["key"]))
    assert [row["key"] for row in sorted(rows, key=lambda row: row["stream"])] == [row["key"] for row in expected]
    assert sorted(row["stream"] for row in rows) == list(range(len(rows)))


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    rows = run(source("labelled", step(labelled, each=2, classes=2, buckets=1)), str(tmp_path), scheduler="sync").rows()
    with pytest.raises(ValueError, match=r"test share is 1\.5"):
        list(assign_iid_splits(rows, rule="as_released", test_share=1.5))
    with pytest.raises(ValueError, match="split rule is 'stratified'"):
        list(assign_iid_splits(rows, rule="stratified", test_share=0.3))  # type: ignore[arg-type]
