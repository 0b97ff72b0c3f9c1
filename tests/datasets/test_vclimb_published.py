"""vCLIMB's published numbers, from the raw lists and from the released split files."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchwright.curation.rows import Reject
from benchwright.curation.video.frame_plans import FramePlan, choose_frames
from benchwright.datasets.activitynet.annotations import read_tsp_csv
from benchwright.datasets.ucf101.lists import read_lists
from benchwright.datasets.vclimb.facts import facts, published_figures
from benchwright.datasets.vclimb.split_files import SplitClip, read_split
from benchwright.datasets.vclimb.splits import assign_clip_roles, assign_tasks, untrim
from benchwright.datasets.vclimb.tables import frames_per_video, leaks, per_task, table_1
from benchwright.datasets.videos.rows import ListedClip

from .video_rows import Held, taken

CSV = {
    "train": "tsp_activitynet_v1-3_train_tsp_groundtruth.csv",
    "val": "tsp_activitynet_v1-3_valid_tsp_groundtruth.csv",
}
FILES = {(one.dataset, one.tasks): one for one in facts().split_files}


def published(dataset: str, tasks: int = 10) -> dict[str, int]:
    return dict(facts().datasets[dataset].per_task[tasks])


def rule(dataset: str):
    return facts().datasets[dataset].per_task_rule


def counts(table: pa.Table) -> dict[str, int]:
    return {item["values"]: item["counts"] for item in pc.value_counts(table["role"]).to_pylist()}


@functools.cache
def released(shared_data: Path, dataset: str, tasks: int = 10) -> pa.Table:
    one = FILES[dataset, tasks]
    table, rejects = taken(read_split(path=str(shared_data / "vclimb" / one.name), sha256=one.sha256), SplitClip)
    assert rejects == {}
    return table


@pytest.fixture(scope="module")
def ucf(shared_data: Path) -> pa.Table:
    return released(shared_data, "ucf101")


@pytest.fixture(scope="module")
def anet(shared_data: Path) -> pa.Table:
    return released(shared_data, "activitynet")


@pytest.fixture(scope="module")
def tsp(shared_data: Path) -> pa.Table:
    table, rejects = taken(read_tsp_csv(root=str(shared_data / "activitynet"), files=CSV), ListedClip)
    assert rejects == {"background": 15_956 + 7_747}
    return table


@pytest.fixture(scope="module")
def ucf_lists(shared_data: Path) -> pa.Table:
    table, rejects = taken(read_lists(root=str(shared_data / "ucf101")), ListedClip)
    assert (table.num_rows, rejects) == (13_320, {})
    return table


def test_split_files_of_ucf101(ucf: pa.Table) -> None:
    f = facts()
    assert table_1(ucf, rule("ucf101")) == published("ucf101") == {"train": 928, "val": 131, "test": 272}
    assert counts(ucf) == f.datasets["ucf101"].clips
    table = per_task(ucf).to_pydict()
    assert table["train"] == list(f.train_per_task["ucf101_10"])
    assert table["classes"] == [11, *[10] * 9]
    first = ucf.sort_by("class_index")["label"].unique().to_pylist()[:4]
    assert first == list(f.first_classes["ucf101_10"])


def test_split_files_of_activitynet(anet: pa.Table) -> None:
    f = facts()
    assert table_1(anet, rule("activitynet_trim")) == published("activitynet_trim") == {"train": 1541, "val": 765}
    assert counts(anet) == f.datasets["activitynet_trim"].clips == {"train": 15_410, "val": 7_654}
    table = per_task(anet).to_pydict()
    assert (table["train"], table["classes"]) == (list(f.train_per_task["activitynet_10"]), [20] * 10)
    assert anet.sort_by("class_index")["label"].unique().to_pylist()[:3] == list(f.first_classes["activitynet_10"])


def test_split_files_of_20_tasks(shared_data: Path, ucf: pa.Table, anet: pa.Table) -> None:
    f = facts()
    wanted = {"ucf101": {"train": 464, "val": 65, "test": 136}, "activitynet_trim": {"train": 770, "val": 383}}
    for name, ten in (("ucf101", ucf), ("activitynet_trim", anet)):
        short = name.removesuffix("_trim")
        table = released(shared_data, short, 20)
        assert table_1(table, rule(name)) == published(name, 20) == wanted[name]
        assert counts(table) == f.datasets[name].clips
        tasks = per_task(table).to_pydict()
        assert tasks["train"] == list(f.train_per_task[f"{short}_20"])
        assert tasks["classes"] == ([6, *[5] * 19] if short == "ucf101" else [10] * 20)
        assert table.sort_by("class_index")["label"].unique().to_pylist()[:3] == list(f.first_classes[f"{short}_20"])
        # The same clips as in 10 tasks; UCF101's were given their roles anew.
        roles = [dict(zip(each["key"].to_pylist(), each["role"].to_pylist(), strict=True)) for each in (ten, table)]
        assert roles[0].keys() == roles[1].keys()
        changed = sum(roles[0][key] != roles[1][key] for key in roles[0])
        assert changed == f.splits.changed_roles[short] == (6192 if short == "ucf101" else 0)
        if short == "activitynet":
            ((kept, _),) = untrim(Held(table), min_coverage=f.untrim.min_coverage)
            assert table_1(kept, "round") == published("activitynet_untrim", 20) == {"train": 500, "val": 246}


def test_untrim_drops_what_the_paper_drops(anet: pa.Table) -> None:
    f = facts()
    ((kept, rejected),) = untrim(Held(anet), min_coverage=f.untrim.min_coverage)
    assert table_1(kept, rule("activitynet_untrim")) == published("activitynet_untrim") == {"train": 1001, "val": 492}
    assert counts(kept) == f.datasets["activitynet_untrim"].clips == {"train": 10_010, "val": 4_917}
    reasons = {item["values"]: item["counts"] for item in pc.value_counts(rejected["reason"]).to_pylist()}
    dropped = {"multi_label": f.untrim.multi_label, "no_coverage": f.untrim.no_coverage}
    assert {name: reasons[name] for name in dropped} == {name: sum(by.values()) for name, by in dropped.items()}
    videos = sum(f.untrim.videos.values())
    assert kept.num_rows + reasons["multi_label"] + reasons["no_coverage"] == videos == 14_950
    assert round(100 * (videos - kept.num_rows) / videos, 2) == f.untrim.dropped_percent_in_paper
    role_of = dict(zip(anet["key"].to_pylist(), anet["role"].to_pylist(), strict=True))
    for reason, by in dropped.items():
        mine = rejected.filter(pc.equal(rejected["reason"], reason))["key"].to_pylist()
        assert {role: sum(role_of[key] == role for key in mine) for role in by} == by


def test_the_tables_of_the_supplement_have_names_of_their_own() -> None:
    """The supplement's Table 1 is not the paper's."""
    names = dict.fromkeys((one.table, one.group) for one in published_figures())
    assert list(names) == [
        *((f"Table {n}", f"table{n}") for n in (2, 3, 4)),
        ("Table 1 of the supplement", "supplement_table1"),
    ]


def test_frames_per_video_of_table_1(anet: pa.Table) -> None:
    """3,542 and 3,879: means over the val clips, of whole videos; Trim's count a video once for each of its segments."""
    f = facts()
    ((whole, _),) = untrim(Held(anet))
    for name, table, train in (("activitynet_trim", anet, 3845), ("activitynet_untrim", whole, 3516)):
        assert frames_per_video(table, f.splits.activitynet_fps, "val") == f.datasets[name].frames_per_video
        assert frames_per_video(table, f.splits.activitynet_fps, "train") == train


@functools.cache
def frame_times_s(video_s: float) -> np.ndarray:
    """Of a video of 30 frames a second."""
    return np.arange(round(video_s * 30.0) + 1) / 30.0


@functools.cache  # both numbers of tasks have the same clips
def why_unusable(video_s: float, t_start: float | None, t_end: float | None) -> str:
    """The reason for which a clip is rejected by the plan of the published settings, or ""."""
    plan = FramePlan("all", None, facts().splits.activitynet_fps, 8)
    try:
        choose_frames(plan, frame_times_s(video_s), fps=30.0, t_start=t_start, t_end=t_end)
    except Reject as why:
        return why.reason
    return ""


@pytest.mark.parametrize("tasks", [10, 20])
def test_clips_of_table_1_that_cannot_be_used(shared_data: Path, tasks: int) -> None:
    """Of the complete data, by the plan of the published settings: ActivityNet-Trim's 12 and 78, Untrim's none."""
    table = released(shared_data, "activitynet", tasks)
    ((whole, _),) = untrim(Held(table))
    for name, clips in (("activitynet_trim", table), ("activitynet_untrim", whole)):
        reasons = (why_unusable(**row) for row in clips.select(["video_s", "t_start", "t_end"]).to_pylist())
        found = Counter(reason for reason in reasons if reason)
        assert found == facts().datasets[name].get("unusable", {})
        assert found.total() == (90 if name == "activitynet_trim" else 0)


def test_activitynet_from_annotations_has_the_same_members(tsp: pa.Table, anet: pa.Table) -> None:
    columns = ["key", "name", "label", "role"]
    ours, theirs = (table.select(columns).sort_by("key").to_pylist() for table in (tsp, anet))
    assert ours == theirs
    for table in (tsp, anet):
        times = [table[name].to_numpy() for name in ("t_start", "t_end", "video_s")]
        assert (times[0] >= 0).all()
        # Segments of no or negative length stand in the lists, and are counted by Table 1.
        assert int((times[1] <= times[0]).sum()) == 12
    ((ours_untrimmed, _),) = untrim(Held(tsp))
    ((theirs_untrimmed, _),) = untrim(Held(anet))
    assert ours_untrimmed.select(columns).sort_by("key").equals(theirs_untrimmed.select(columns).sort_by("key"))


@pytest.mark.parametrize("seed", [0, 1])
def test_table_1_of_activitynet_from_annotations(tsp: pa.Table, seed: int) -> None:
    kept, _ = next(assign_clip_roles(Held(tsp), rule="listed", seed=seed))
    ((whole, _),) = untrim(Held(kept))
    for tasks in facts().splits.tasks:
        split = next(assign_tasks(Held(kept), tasks=tasks, seed=seed)).kept
        assert table_1(split, "round") == published("activitynet_trim", tasks)
        assert per_task(split)["classes"].to_pylist() == [200 // tasks] * tasks
        split = next(assign_tasks(Held(whole), tasks=tasks, seed=seed)).kept
        assert table_1(split, "round") == published("activitynet_untrim", tasks)


def test_table_1_of_ucf101_from_lists(ucf_lists: pa.Table, ucf: pa.Table) -> None:
    split, _ = next(assign_clip_roles(Held(ucf_lists), rule="by_class", seed=3))
    assert counts(split) == facts().datasets["ucf101"].clips
    tasks = next(assign_tasks(Held(split), tasks=10, seed=3)).kept
    assert table_1(tasks, rule("ucf101")) == published("ucf101")
    assert per_task(tasks)["classes"].to_pylist() == [11, *[10] * 9]
    twenty = next(assign_tasks(Held(split), tasks=20, seed=3)).kept
    assert table_1(twenty, rule("ucf101")) == published("ucf101", 20)
    assert per_task(twenty)["classes"].to_pylist() == [6, *[5] * 19]

    # The rule gives the counts of the released file in every class and role, not its members.
    def by_class(table: pa.Table) -> list[dict]:
        return table.group_by(["label", "role"]).aggregate([([], "count_all")]).sort_by([("label", "ascending")]).to_pylist()

    def ordered(rows: list[dict]) -> list[tuple]:
        return sorted((row["label"], row["role"], row["count_all"]) for row in rows)

    assert ordered(by_class(split)) == ordered(by_class(ucf))
    train = {key for key, role in zip(split["key"].to_pylist(), split["role"].to_pylist(), strict=True) if role == "train"}
    theirs = {key for key, role in zip(ucf["key"].to_pylist(), ucf["role"].to_pylist(), strict=True) if role == "train"}
    assert 0.6 < len(train & theirs) / len(theirs) < 0.8
    assert sorted(split["key"].to_pylist()) == sorted(ucf["key"].to_pylist())


def test_groups_leak_in_every_class_of_ucf101(ucf: pa.Table, ucf_lists: pa.Table, anet: pa.Table) -> None:
    found = leaks(ucf)
    assert (found.classes, found.of, found.tested) == (101, 2525, 2726)
    assert found.clips > 2600
    assert leaks(ucf, by="name").clips == 0
    assert leaks(anet, by="name", role="val").groups == 0
    # The official lists part the groups, and so does our own rule.
    assert leaks(ucf_lists).groups == 0
    parted = next(assign_clip_roles(Held(ucf_lists), rule="by_group", seed=0)).kept
    assert [leaks(parted, role=role).groups for role in ("val", "test")] == [0, 0]
    shares = [count / parted.num_rows for count in (counts(parted)[role] for role in ("train", "val", "test"))]
    assert shares == pytest.approx([0.7, 0.1, 0.2], abs=0.02)


@pytest.mark.parametrize("split", [1, 2, 3])
def test_official_splits_of_ucf101_hold_all_clips(shared_data: Path, ucf_lists: pa.Table, split: int) -> None:
    table, _ = taken(read_lists(root=str(shared_data / "ucf101"), split=split), ListedClip)
    assert sorted(table["key"].to_pylist()) == sorted(ucf_lists["key"].to_pylist())
    assert counts(table)["train"] == {1: 9537, 2: 9586, 3: 9624}[split]
