"""Every benchmark's sources: what a mistyped prefix, column or folder rejects is one line that says what to do."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.conftest import Cli

ID = "abcdefghi{:02d}"


def split_file(root: Path) -> str:
    items = [{"filename": f"w_{ID.format(n)}", "t_start": "0", "t_end": "1"} for n in range(3)]
    (root / "split.pkl").write_bytes(pickle.dumps({"train": [{"a": items}]}))
    return f'{{kind="split_file", path="{root}/split.pkl"}}'


def ucf101(root: Path) -> str:
    (root / "classInd.txt").write_text("1 Archery\n")
    for role in ("test", "train"):
        (root / f"{role}list01.txt").write_text("".join(f"Archery/Archery_g{n:02d}_c01.avi 1\n" for n in range(1, 4)))
    return f'{{kind="ucf101", root="{root}"}}'


def activitynet(root: Path) -> str:
    notes = [{"segment": [0, 1], "label": "a"}]
    good = {ID.format(n): {"subset": "training", "duration": 9, "annotations": notes} for n in range(3)}
    bad = {f"w_{ID.format(n)}": {"subset": "training", "duration": 9, "annotations": notes} for n in range(3)}
    hidden = {f"hidden{n:05d}": {"subset": "testing", "duration": 9, "annotations": []} for n in range(40)}
    (root / "net.json").write_text(json.dumps({"database": good | bad | hidden}))
    return f'{{kind="activitynet", path="{root}/net.json"}}'


def tsp(root: Path) -> str:
    lines = ["video-name,t-start,t-end,action-label,video-duration,temporal-region-label"]
    lines += [f"{ID.format(n)},0,1,a,9,Action" for n in range(3)] + [f"w_{ID.format(n)},0,1,a,9,Action" for n in range(3)]
    lines += [f"{ID.format(n)},1,2,,9,No action" for n in range(40)]
    (root / "train.csv").write_text("\n".join(lines))
    return f'{{kind="activitynet_csv", root="{root}", files={{train="train.csv"}}}}'


def kinetics(root: Path) -> str:
    lines = ["label,youtube_id,time_start,time_end,split", *(f"a,{ID.format(n)},0,1,train" for n in range(3))]
    (root / "k.csv").write_text("\n".join([*lines, *(f"a,w_{ID.format(n)},0,1,train" for n in range(3))]))
    return f'{{kind="kinetics", root="{root}", max_rejects=0, files=[{{release="k", path="k.csv"}}]}}'


def csv_of_roles(root: Path) -> str:
    (root / "clips.csv").write_text(
        "video,label,role\n" + "".join(f"v{n}.mp4,a,{'train' if n % 2 else 'trian'}\n" for n in range(6))
    )
    return f'{{kind="csv", path="{root}/clips.csv"}}'


def csv_without_roles(root: Path) -> str:
    (root / "clips.csv").write_text("video,label,role\nv0.mp4,a,\n" + "".join(f"v{n}.mp4,a,train\n" for n in range(1, 6)))
    return f'{{kind="csv", path="{root}/clips.csv"}}'


LISTS = {
    "split_file": (split_file, "malformed_item", "train:0:a:0"),
    "ucf101": (ucf101, "bad_name", "testlist01.txt:1"),
    "activitynet": (activitynet, "bad_id", "net.json:w_abcdefghi00"),
    "tsp": (tsp, "bad_id", "train.csv:5"),
    "kinetics": (kinetics, "bad_id", "k.csv"),
    "csv": (csv_of_roles, "bad_role", "clips.csv:2"),
    "no roles": (csv_without_roles, "no_role", "v0"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_mistyped_list_of_videos(bw: Cli, tmp_path: Path, name: str) -> None:
    make, reason, example = LISTS[name]
    (root := tmp_path / "in").mkdir()
    (videos := tmp_path / "videos").mkdir()
    (videos / "v0.mp4").write_bytes(b"x")
    words = [
        "--config",
        "segments",
        "--set",
        "split.tasks=1",
        "--set",
        f"source={make(root)}",
        "--set",
        f"videos.root={videos}",
    ]
    told = bw(
        "run",
        "vclimb",
        *words,
        "--set",
        "split.roles=listed",
        "--set",
        "videos.max_missing=0.9",
        "--out",
        tmp_path / "out",
        "-q",
    )
    check(bw, tmp_path / "out", told, reason, example, "source.max_rejects")


def check(bw: Cli, out: Path, told, reason: str, example: str, setting: str) -> None:
    """One line; all its parts are there, and the command that it names shows the rows."""
    assert told.code == 1
    assert told.err.count("\n") == 1, told.err
    shown = f"rejects {out} --stage "
    assert shown in told.err, told.err
    stage = told.err.split(shown)[1].split()[0]
    for part in (f" {reason}", f"such as '{example}", f"--reason {reason}`"):
        assert part in told.err, told.err
    left_none = "nothing is left" in told.err
    assert left_none or f"`--set {setting}=" in told.err, told.err
    rows = bw("rejects", out, "--stage", stage, "--reason", reason)
    assert rows.code == 0
    assert rows.out.splitlines()[0].split("\t")[1].startswith(example)


def clear_folder(root: Path) -> list[str]:
    lines = "".join(f"photo_{n}.jpg,2004-05-0{n}\n" for n in range(1, 5))
    for n in range(1, 5):
        (root / f"{n}.jpg").write_bytes(b"\xff\xd8\xff")
    (root.parent / "dates.csv").write_text(f"file,date_taken\n{lines}")
    return [
        "clear",
        "--config",
        "tiny",
        "--set",
        f'source={{kind="folder", root="{root}", dates_csv="{root.parent}/dates.csv"}}',
    ]


def clear_metadata(root: Path) -> list[str]:
    (root / "yfcc").write_text("".join(f"id{n}" + "\t" * 22 + "0\n" for n in range(5)))
    return ["clear", "--config", "tiny", "--set", f'source={{kind="yfcc100m", metadata="{root}", images_root="{root}"}}']


def iirc_folders(root: Path) -> list[str]:
    for n in range(4):
        (root / "trian" / "dog").mkdir(parents=True, exist_ok=True)
        (root / "trian" / "dog" / f"{n}.jpg").write_bytes(b"\xff\xd8\xff")
    source = f'source={{kind="folders", root="{root}", splits={{train="train"}}, max_rejects=1}}'
    (root.parent / "hierarchy.json").write_text('{"super_classes": {}, "other_sub_classes": ["dog"]}')
    return [
        "iirc",
        "--config",
        "tiny",
        "--set",
        source,
        "--set",
        f'hierarchy={{kind="file", path="{root.parent}/hierarchy.json"}}',
    ]


def skeleton_names(root: Path) -> list[str]:
    (root / "names.txt").write_text("".join(f"X001C001P00{n}R001A001\n" for n in range(1, 5)))
    return ["skeleton", "--config", "ntu", "--set", f'source={{kind="ntu_names", path="{root}/names.txt"}}']


def two_camera_pairs(root: Path) -> list[str]:
    for n in range(4):
        (root / f"scene{n}_CAM_0.dng").write_bytes(b"x")
    (root / "charts.csv").write_text("name,x0,y0,x1,y1,x2,y2,x3,y3\n")
    return ["two_camera", "--config", "s20", "--set", f"source.root={root}"]


def kowl_features(root: Path) -> list[str]:
    np.savez(root / "f.npz", **{f"w_{n}": np.ones(4, np.float32) for n in range(4)})
    told = f'kind="stored", root="{root}", width=4, uid_pattern="^v_(.*)", files=[{{path="f.npz"}}]'
    return ["kowl", "--config", "tiny", "--set", f"features={{{told}}}"]


def kowl_lists(root: Path) -> list[str]:
    source = kinetics(root)
    return ["kowl", "--config", "tiny", "--set", f"source={source.replace('kinetics', 'lists', 1)}"]


def kowl_inventory(root: Path) -> list[str]:
    (root / "held.txt").write_text("label,id\n\n" + "".join(f"w_{ID.format(n)}.mp4\n" for n in range(4)))
    return ["kowl", "--config", "tiny", "--set", f'videos={{path="{root}/held.txt", means="missing"}}']


def vclimb_folder(root: Path) -> list[str]:
    (root / ".thumbs").write_bytes(b"x")
    (root / "a").mkdir()
    (root / "a" / "v.mp4").write_bytes(b"x")
    for n in range(3):
        (root / f"{n}.mp4").write_bytes(b"x")
    source = 'source={kind="folder", layout="class_folders"}'
    return ["vclimb", "--config", "segments", "--set", source, "--set", f"videos.root={root}"]


SOURCES = {
    "clear_folder": (clear_folder, "missing_file", "./photo_1.jpg", "images.max_rejects"),
    "clear_metadata": (clear_metadata, "bad_id", "yfcc:0", "images.max_rejects"),
    "iirc": (iirc_folders, "no_split", "trian--dog--0", "source.max_rejects"),
    "skeleton": (skeleton_names, "bad_name", "", "max_broken"),
    "two_camera": (two_camera_pairs, "no_partner", "scene0", "source.max_rejects"),
    "kowl_features": (kowl_features, "bad_uid", "f.npz:0", "features.max_rejects"),
    "kowl_lists": (kowl_lists, "bad_id", "k.csv", "source.max_rejects"),
    "kowl_inventory": (kowl_inventory, "no_video_name", "3", "videos.max_rejects"),
    "vclimb_folder": (vclimb_folder, "no_class_folder", "0.mp4", "videos.max_rejects"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_mistyped_source(bw: Cli, tmp_path: Path, name: str) -> None:
    make: Callable[[Path], list[str]]
    make, reason, example, setting = SOURCES[name]
    (root := tmp_path / "in").mkdir()
    check(bw, tmp_path / "out", bw("run", *make(root), "--out", tmp_path / "out", "-q"), reason, example, setting)


def test_an_empty_folder_of_videos_is_told_at_once(bw: Cli, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    told = bw(
        "run", "vclimb", "--config", "segments", "--set", f"videos.root={tmp_path / 'in'}", "--out", tmp_path / "out", "-q"
    )
    assert (told.code, told.err.count("\n")) == (1, 1)
    # Both read the folder, side by side: the first to find nothing ends the run.
    assert re.search("source stage '(videos|listed)' yielded no rows", told.err), told.err


def test_videos_of_several_labels_have_a_budget_of_their_own(bw: Cli, tmp_path: Path) -> None:
    """A list whose labels are mistyped in places loses half of its videos, which showed in a line of progress alone."""
    head = "video-name,t-start,t-end,action-label,video-duration,temporal-region-label"
    lines = [f"{ID.format(n)},{t},{t + 1},{'b' if n < 5 and t else 'a'},9,Action" for n in range(10) for t in range(2)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/train.csv").write_text("\n".join([head, *lines]))
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/v0.mp4").write_bytes(b"x")
    settings = (
        f'source={{kind="activitynet_csv", root="{tmp_path}/in", files={{train="train.csv"}}}}',
        "split.untrim={}",
        "split.roles='listed'",
        f"videos.root='{tmp_path}/videos'",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    code, _, told = bw("run", "vclimb", "--config", "tiny", "--out", tmp_path / "out", *words)
    assert code == 1
    assert "stage 'untrimmed' rejected 5 rows, and max_rejects is 1.0% of 10: 5 multi_label, such as" in told
    assert "`--set split.untrim.max_rejects=0.5` allows them" in told
