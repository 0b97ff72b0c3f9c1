"""The published counts: lists drawn after them go through every step, and Tables 1 and 2 come out to the sample."""

from __future__ import annotations

import collections

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchwright.datasets.kinetics.inventory import keep_held
from benchwright.datasets.kowl.facts import facts
from benchwright.datasets.kowl.increments import Later, assign_increments
from benchwright.datasets.kowl.splits import Turn, assign_splits
from benchwright.datasets.kowl.synthetic import Group, draw_lists, draw_missing, drawing, ramp
from benchwright.datasets.kowl.tables import increment_table, published_table
from benchwright.datasets.kowl.unify import unify
from benchwright.pipelines.kowl.paper import table_2

from tests.datasets.kowl_rows import gathered, stored

K4, K6, K7 = RELEASES = facts().labels.releases
TURNS = [
    *(
        Turn(release, split, role)
        for release in (K4, K6)
        for split, role in (("train", "train"), ("validate", "val"), ("test", "test"))
    ),
    Turn(K7, "train", "train"),
    Turn(K7, "validate", "test"),
]
LATER = [
    Later(release, n, seed)
    for release, n, seed in zip((K6, K7), facts().increments.count, facts().increments.seeds, strict=True)
]
NEEDED = ["label_recent_first", "taken_release", "role", "increment", "novel"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("published")


@pytest.fixture(scope="module")
def listed(folder):
    return stored(folder / "listed", *draw_lists(drawing=drawing("published"), seed=0))


@pytest.fixture(scope="module")
def unified(folder, listed):
    table, rejects = gathered(unify(listed, releases=RELEASES, renames=facts().labels.renames))
    return stored(folder / "unified", table), collections.Counter(reason for _, reason, _ in rejects)


@pytest.fixture(scope="module")
def assigned(folder, unified):
    missing = stored(folder / "missing", *draw_missing(drawing=drawing("published"), seed=0))
    held = gathered(keep_held(unified[0], inventory=missing, means="missing", reason="no_video"))[0]
    table, rejects = gathered(assign_splits(stored(folder / "held", held), turns=TURNS, seed=0))
    assert rejects == []
    return stored(folder / "assigned", table.select(["key", *NEEDED[:3]]))


def increments(assigned, preset: str) -> pa.Table:
    return pa.concat_tables(
        part.select(NEEDED)
        for part in assign_increments(assigned, first=K4, later=LATER, preset=preset, order="as_released", seed=0)
    )


@pytest.fixture(scope="module")
def released(assigned):
    return increments(assigned, "as_released")


def test_facts_add_up() -> None:
    f = facts()
    assert f.labels.known_at_start + sum(f.labels.novel) == f.labels.count == 718
    assert sum(f.increments.kept_train) == f.increments.train
    assert sum(f.table_1["train_known"]) + sum(f.table_1["train_novel"]) == f.increments.train
    assert sum(f.table_1["test_known"]) + sum(f.table_1["test_novel"]) == f.increments.test
    assert tuple(map(sum, f.increments.classes)) == tuple(map(sum, f.increments.classes_as_written)) == f.labels.novel
    assert f.table_1["novel_classes"][1:] == f.increments.classes[0] + f.increments.classes[1]
    for kind in ("known", "novel"):
        later = [v + t for v, t in zip(f.table_2[f"val_{kind}"][1:], f.table_2[f"test_{kind}"][1:], strict=True)]
        assert later == list(f.table_1[f"test_{kind}"][1:])


@pytest.mark.parametrize("group", [Group(409, 218_371, 300), Group(7, 7), Group(5, 11), Group(46, 15_814, 120)])
def test_ramps(group: Group) -> None:
    counts = ramp(group)
    assert (len(counts), counts.sum(), counts.min() >= 1) == (group.classes, group.rows, True)
    assert np.diff(counts).min() >= 0


def test_lists_have_their_published_length(listed) -> None:
    table = listed.table(["release", "split", "label"])
    found = table.group_by(["release", "split"]).aggregate([([], "count_all"), ("label", "count_distinct")]).to_pylist()
    rows = {(r["release"], r["split"]): r["count_all"] for r in found}
    assert rows == {(fact.release, fact.split): fact.rows for fact in facts().lists}
    labels = {r["release"]: r["label_count_distinct"] for r in found if r["split"] == "train"}
    assert labels == {K4: 400, K6: 600, K7: 700}


def test_the_unified_table(listed, unified) -> None:
    rows, reasons = unified
    assert reasons == {"merged": listed.num_rows - facts().labels.samples, "unlabelled": facts().labels.unlabelled}
    assert rows.num_rows + reasons["unlabelled"] == facts().labels.samples == 840_213
    assert pc.count_distinct(rows.table(["label_recent_first"])["label_recent_first"]).as_py() == facts().labels.count
    # Six names are mapped by the protocol, and some are trained under an old and a new one: 409 of 400.
    train = rows.table(["split_kinetics400", "label_recent_first"]).filter(pc.field("split_kinetics400") == "train")
    assert pc.count_distinct(train["label_recent_first"]).as_py() == facts().labels.known_at_start
    assert set(facts().labels.renames) & set(pc.unique(train["label_recent_first"]).to_pylist()) == set()


def test_samples_that_are_kept(assigned) -> None:
    table = assigned.table(["taken_release", "role"])
    train = table.filter(pc.field("role") == "train")["taken_release"].to_pylist()
    assert tuple(map(collections.Counter(train).get, RELEASES)) == facts().increments.kept_train


def test_table_1_comes_out_to_the_sample(released) -> None:
    table = published_table(increment_table(released)).to_pydict()
    published = {name: list(column) for name, column in facts().table_1.items()}
    published["test_novel"][0] = 1  # the sample that Table 2 counts and Table 1 leaves out
    assert {name: table[name] for name in published} == published


def test_table_2_comes_out_to_the_sample(released) -> None:
    published = table_2().to_pydict()
    # The one cell in which the paper disagrees with itself: a novel class of validation in increment 0, with no sample.
    assert (published["val_novel_classes"][0], published["val_novel"][0]) == (1, 0)
    published["val_novel_classes"][0] = 0
    assert increment_table(released).to_pydict() == published


@pytest.mark.parametrize("preset", ["as_released", "as_written"])
def test_what_is_novel_is_known_in_the_next_increment(assigned, released, preset: str) -> None:
    table = increment_table(released if preset == "as_released" else increments(assigned, preset)).to_pydict()
    known, novel = table["train_known"], table["train_novel"]
    for first in (2, 7):  # the first increment of a release also takes its small classes whole
        for at in range(first, first + 3):
            assert abs(known[at + 1] - known[at] - novel[at]) <= 5
    assert sum(known) + sum(novel) == facts().increments.train
    classes = facts().increments.classes if preset == "as_released" else facts().increments.classes_as_written
    assert tuple(table["novel_classes"][1:]) == classes[0] + classes[1]


def test_the_presets_bring_rare_and_frequent_classes_first(assigned, released) -> None:
    for preset, rising in (("as_released", True), ("as_written", False)):
        table = increment_table(released if rising else increments(assigned, preset)).to_pydict()
        # Training samples of a new class: one fold of several is seen in the increment that brings it.
        means = [table["train_novel"][n] * (6 - n if n < 6 else 11 - n) / table["novel_classes"][n] for n in range(1, 11)]
        steps = np.diff(means)[[0, 1, 2, 3, 5, 6, 7, 8]]
        assert (steps > 0).all() if rising else (steps < 0).all()
        if rising:  # implied by Table 1
            assert [round(mean) for mean in means] == [344, 479, 504, 535, 594, 550, 568, 588, 620, 725]
