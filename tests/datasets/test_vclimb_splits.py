"""Rules of vCLIMB's splits on small rows, and its tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from benchwright.curation.rows import REJECTS, schema_of
from benchwright.datasets.vclimb.facts import facts, published_figures
from benchwright.datasets.vclimb.splits import assign_clip_roles, assign_tasks, role_counts, task_sizes, untrim
from benchwright.datasets.vclimb.tables import coverage, leaks, memory_lines, memory_share, per_task, table_1
from benchwright.datasets.videos.rows import ListedClip

from .video_rows import Held


def rows(*clips: tuple) -> pa.Table:
    """Clips as (name, label, role, start, end, length, group)."""
    names = ["name", "label", "role", "t_start", "t_end", "video_s", "group"]
    full = [{"key": f"v_{c[0]}-{n:07d}-{n:07d}", "listed": "", **dict(zip(names, c, strict=True))} for n, c in enumerate(clips)]
    return pa.Table.from_pylist(full, schema=schema_of(ListedClip))


def many(label: str, count: int, groups: int = 5) -> list[tuple]:
    return [(f"{label}{n}", label, None, None, None, None, f"{label}/{n % groups}") for n in range(count)]


def test_untrim_by_its_rules() -> None:
    table = rows(
        ("one", "run", "train", 0.0, 2.0, 10.0, "one"),
        ("two", "run", "train", 0.0, 2.0, 10.0, "two"),
        ("one", "run", "train", 5.0, 9.0, 10.0, "one"),
        ("two", "jump", "train", 1.0, 2.0, 10.0, "two"),
        ("two", "jump", "train", 3.0, 5.5, 10.0, "two"),
        ("none", "run", "val", 4.0, 4.0, 10.0, "none"),
        ("back", "run", "val", 4.0, 3.0, 10.0, "back"),
    )
    ((kept, rejected),) = untrim(Held(table))
    (only,) = kept.to_pylist()
    assert (only["key"], only["source_key"], only["coverage"]) == ("v_one", "v_one-0000000-0000000", 0.4)
    assert (only["t_start"], only["t_end"], only["label"]) == (None, None, "run")
    assert dict(zip(rejected["key"].to_pylist(), rejected["reason"].to_pylist(), strict=True)) == {
        "v_two-0000001-0000001": "multi_label",
        "v_one-0000002-0000002": "same_video",
        "v_two-0000003-0000003": "same_video",
        "v_two-0000004-0000004": "same_video",
        "v_none-0000005-0000005": "no_coverage",
        "v_back-0000006-0000006": "no_coverage",
    }
    ((kept, _),) = untrim(Held(table), several_labels="longest")
    assert [(row["key"], row["label"]) for row in kept.to_pylist()] == [("v_one", "run"), ("v_two", "jump")]
    ((kept, _),) = untrim(Held(table), min_coverage=0.4)
    assert kept.num_rows == 0


def test_counts_of_roles_are_those_of_floating_point() -> None:
    # 0.7 + 0.1 is below 0.8: a class of 110 clips loses one to test, one of 100 and of 105 does not.
    assert [role_counts(n, 0.7, 0.1) for n in (100, 101, 105, 110, 125)] == [
        (70, 10, 20),
        (70, 10, 21),
        (73, 11, 21),
        (77, 10, 23),
        (87, 12, 26),
    ]


@pytest.mark.parametrize("rule", ["by_class", "by_group"])
def test_roles_depend_on_keys_not_on_order(rule: str) -> None:
    table = rows(*many("run", 40), *many("jump", 33))
    first = next(assign_clip_roles(Held(table), rule=rule, seed=1)).kept
    back = next(assign_clip_roles(Held(table.slice(0, 73).take(list(range(72, -1, -1)))), rule=rule, seed=1)).kept
    assert first.sort_by("key").equals(back.sort_by("key"))
    assert not first["role"].equals(next(assign_clip_roles(Held(table), rule=rule, seed=2)).kept["role"])
    assert (leaks(first).clips > 0) == (rule == "by_class")


def test_every_role_gets_a_group_where_there_are_three() -> None:
    """Five clips a class: a tenth of them is less than one, and a choice of epochs needs some."""
    kept = next(assign_clip_roles(Held(rows(*many("run", 5), *many("jump", 3), *many("sit", 1))), rule="by_group", seed=3)).kept
    counts = kept.group_by(["label", "role"]).aggregate([("key", "count")]).to_pylist()
    found = {(row["label"], row["role"]): row["key_count"] for row in counts}
    assert found == {
        ("run", "train"): 3,
        ("run", "val"): 1,
        ("run", "test"): 1,
        **{("jump", role): 1 for role in ("train", "val", "test")},
        ("sit", "train"): 1,
    }


def test_listed_roles_are_kept_and_missing_ones_told() -> None:
    table = rows(("a", "run", "val", None, None, None, "a"), ("b", "run", None, None, None, None, "b"))
    kept, rejected = next(assign_clip_roles(Held(table), rule="listed", seed=0))
    assert kept["role"].to_pylist() == ["val"]
    assert rejected["reason"].to_pylist() == ["no_role"]


def test_tasks_and_orders() -> None:
    assert task_sizes(101, 10) == [11, *[10] * 9]
    assert task_sizes(101, 20) == [6, *[5] * 19]
    assert task_sizes(7, 7) == [1] * 7
    table = rows(*(clip for label in "edcba" for clip in many(label, 3)))
    split = next(assign_tasks(Held(table), tasks=2, seed=0)).kept
    by_label = {row["label"]: (row["class_index"], row["task"]) for row in split.to_pylist()}
    assert sorted(index for index, _ in by_label.values()) == [0, 1, 2, 3, 4]
    assert {task for index, task in by_label.values() if index < 3} == {0}
    assert list(by_label) != sorted(by_label, key=by_label.__getitem__)
    given = next(assign_tasks(Held(table), tasks=5, order=list("badce"), seed=0)).kept
    assert {row["label"]: row["task"] for row in given.to_pylist()} == {"b": 0, "a": 1, "d": 2, "c": 3, "e": 4}
    some = next(assign_tasks(Held(table), tasks=2, order="sorted", classes=["a", "b"], seed=0))
    assert (some.kept.num_rows, set(some.rejected["reason"].to_pylist())) == (6, {"class_not_used"})
    with pytest.raises(ValueError, match="order of classes: 'e'"):
        next(assign_tasks(Held(table), tasks=2, order=list("abcd"), seed=0))
    with pytest.raises(ValueError, match="5 classes in 6 tasks"):
        next(assign_tasks(Held(table), tasks=6, seed=0))


def test_tables_by_hand() -> None:
    table = pa.table(
        {
            "key": ["a", "b", "c", "d", "e"],
            "task": [0, 0, 1, 1, 1],
            "label": ["run", "run", "jump", "jump", "fly"],
            "role": ["train", "test", "train", "test", "train"],
            "group": ["g1", "g1", "g2", "g3", "g2"],
        }
    )
    assert per_task(table).to_pylist() == [
        {"task": 0, "classes": 1, "train": 1, "val": 0, "test": 1},
        {"task": 1, "classes": 2, "train": 2, "val": 0, "test": 1},
    ]
    assert table_1(table, "floor") == {"train": 1, "test": 1}
    assert table_1(table, "round") == {"train": 2, "test": 1}
    found = leaks(table)
    # The group g2 of two classes is two groups; that of fly and jump is in no test.
    assert found[:5] == (1, 1, 4, 1, 2)
    assert found.by_class.to_pylist()[-1] == {"label": "run", "groups": 1, "shared": 1, "clips": 1, "leaked": 1}
    rejects = pa.Table.from_pylist([{"key": "b", "reason": "missing_video", "detail": ""}], schema=REJECTS)
    assert coverage(table, rejects).to_pylist()[:2] == [
        {"task": 0, "label": "run", "role": "train", "listed": 1, "usable": 1, "missing_video": 0},
        {"task": 0, "label": "run", "role": "test", "listed": 1, "usable": 0, "missing_video": 1},
    ]


def test_published_memory_is_videos_times_frames() -> None:
    f = facts()
    lines = memory_lines(f.memory, {name: one.frames_per_video for name, one in f.datasets.items()})
    # Table 4 has ActivityNet-Untrim with 4, 8 and 16 frames, and nothing with all of them.
    untrim = [(line.frames_per_video, line.frames) for line in lines if line.dataset == "activitynet_untrim"]
    assert untrim == [(4, 16_000), (8, 32_000), (16, 64_000)]
    assert len(lines) == 3 * 4 + 3
    for line in lines:
        if line.frames_per_video is None:  # the paper prints these with three digits
            assert line.frames == pytest.approx(line.in_paper, rel=0.002)
        else:
            assert line.frames == line.in_paper
        if line.frames_per_video is None:  # section 3.1 has 25.95 and 21.76, cut off, and 3.25, rounded
            share = memory_share(line.frames, f.datasets[line.dataset])
            assert share == pytest.approx(f.memory[line.dataset].share_percent_in_paper, abs=0.01)
    assert f.memory["ucf101"].videos == f.datasets["ucf101"].memory_videos == 2020


def test_published_figures_are_found_by_table() -> None:
    found = list(published_figures())
    assert len(found) == 2 * 15 + (3 * 6 + 3) + 3 * 4 + 2 * 4
    # What two tables print, they print alike: iCaRL with all frames in Tables 2 and 3, ActivityNet-Trim in Tables 3 and 4.
    values: dict[tuple, set] = {}
    for one in found:
        values.setdefault((one.dataset, one.tasks, one.method, one.frames), set()).add((one.acc_percent, one.bwf_percent))
    assert {len(each) for each in values.values()} == {1}
    assert len(values) == len(found) - 3 - 6
    table_3 = [
        one for one in found if (one.dataset, one.tasks, one.table, one.frames) == ("activitynet_trim", 10, "Table 3", "8")
    ]
    assert [(one.method, one.acc_percent, one.bwf_percent) for one in table_3] == [
        ("iCaRL", 21.54, 33.41),
        ("iCaRL+TC", 45.73, 18.90),
    ]
