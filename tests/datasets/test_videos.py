"""Sources of videos: folders, lists, what a copy holds, and the clips that go with it."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.curation.rows import Rejected, Sifted, schema_of
from benchwright.curation.ustar import member_header
from benchwright.datasets.activitynet.annotations import read_activitynet_json
from benchwright.datasets.kinetics.inventory import as_clips
from benchwright.datasets.kinetics.lists import ListFile, kinetics_lists, read_kinetics_list
from benchwright.datasets.ucf101.lists import group_of, parse_name, read_lists
from benchwright.datasets.vclimb.splits import assign_clip_roles, cut_segments, untrim
from benchwright.datasets.videos.inventory import VideoFile, list_videos, match_videos
from benchwright.datasets.videos.plain import list_csv, list_folder
from benchwright.datasets.videos.rows import ListedClip, key_of_name, segment_key

from .video_rows import Held, taken


def fill(root: Path, *paths: str, data: bytes = b"video") -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def clips(*rows: dict) -> pa.Table:
    blank = {"role": None, "t_start": None, "t_end": None, "video_s": None, "listed": "list:1"}
    full = [{**blank, "key": f"k{n}", "group": row["name"], **row} for n, row in enumerate(rows)]
    return pa.Table.from_pylist(full, schema=schema_of(ListedClip))


# ------------------------------------------------------------------------------------------------------------- folders


def test_class_folders_with_and_without_roles(tmp_path: Path) -> None:
    root = fill(
        tmp_path,
        "train/Surfing/v_Surfing_g01_c02.avi",
        "validation/Surfing/a.MP4",
        "Surfing/b.webm",
        "nested/class/c.mkv",
        "loose.mp4",
    )
    rows = {row.key: row for row in list_folder(root=str(root), layout="class_folders") if not isinstance(row, Rejected)}
    assert {key: (row.label, row.role, row.group) for key, row in rows.items()} == {
        "train--Surfing--v_Surfing_g01_c02": ("Surfing", "train", "Surfing/g01"),
        "validation--Surfing--a": ("Surfing", "val", "validation/Surfing/a.MP4"),
        "Surfing--b": ("Surfing", None, "Surfing/b.webm"),
        "nested--class--c": ("nested/class", None, "nested/class/c.mkv"),
    }
    for name in ("diving", "test/Surfing", "nested/other"):  # of these, the first two are classes without a video
        (root / name).mkdir(parents=True)
    fill(root, "diving/notes.txt", "diving/empty.mp4", data=b"")  # which the listing of the files has as rejects
    found = [row for row in list_folder(root=str(root), layout="class_folders") if isinstance(row, Rejected)]
    assert [(row.key, row.reason) for row in found] == [
        ("loose.mp4", "no_class_folder"),
        ("diving", "empty_class_folder"),
        ("test/Surfing", "empty_class_folder"),
    ]


def test_a_flat_folder_is_labelled_by_its_files(shared_data: Path) -> None:
    table, reasons = taken(list_folder(root=str(shared_data / "videos" / "intel_asl"), layout="flat"), ListedClip)
    assert (table.num_rows, reasons) == (20, {})
    assert table["label"].to_pylist()[:3] == ["again", "bird", "book"]
    assert table["name"].to_pylist()[0] == "again.mkv"


def test_what_is_no_video_is_told(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", "secret.mp4")
    root = fill(tmp_path / "videos", "a/good.mp4", "a/notes.txt", "a/.hidden.mp4")
    fill(root, "a/empty.mp4", data=b"")
    (root / "a" / "link_out.mp4").symlink_to(outside / "secret.mp4")
    (root / "a" / "link_in.mp4").symlink_to(root / "a" / "good.mp4")
    (root / "folder_out").symlink_to(outside)
    os.mkfifo(root / "a" / "pipe.mp4")
    (root / "a" / os.fsdecode(b"\xff.mp4")).write_bytes(b"video")
    table, reasons = taken(list_videos(root=str(root)), VideoFile)
    assert table["key"].to_pylist() == ["a/good.mp4", "a/link_in.mp4"]
    assert reasons == {
        "not_a_video": 1,
        "hidden": 1,
        "empty_file": 1,
        "outside_folder": 2,
        "not_a_file": 1,
        "bad_name": 1,
    }


def test_keys_name_samples_of_shards() -> None:
    assert key_of_name("v_Surfing_g22_c02") == "v_Surfing_g22_c02"
    assert key_of_name("Surfing/clip") == "Surfing--clip"
    names = ["a b", "a.b", "a/b", "a--b", "a-", "-a", "ä", "", "x" * 400, "x" * 401, "../a"]
    keys = [key_of_name(name) for name in names]
    assert len(set(keys)) == len(names)
    assert all(key and not set(key) & set("./\\ ä") for key in keys)
    # The longest that is ever written: a segment of a long name, late in a long video, cut, and a frame beyond the millionth.
    longest = max(segment_key(key, 999_990.0, 1e6) for key in keys)
    assert member_header(f"{longest}-part99.1000000.jpg", 0)
    assert segment_key("v", 1.2344, 61.0) == "v-0001234-0061000"
    assert segment_key("v", None, None) == "v"


# --------------------------------------------------------------------------------------------------------------- lists


def test_csv_of_own_videos(tmp_path: Path) -> None:
    lines = [
        "label,video,t_start,t_end,role,group",
        "run,a.mp4,,,train,anna",
        '"jump, high",b/c.d.mp4,1,2.5,Testing,',
        "run,../a.mp4,,,,",
        "run,/etc/passwd,,,,",
        "run,,,,,",
        ",a.mp4,,,,",
        "run,a.mp4,3,2,,",
        "run,a.mp4,1,,,",
        "run,a.mp4,nan,3,,",
        "run,a.mp4,,,practice,",
        "run,a.mp4",
    ]
    path = tmp_path / "list.csv.gz"
    path.write_bytes(gzip.compress("\r\n".join(lines).encode("utf-8-sig")))
    table, reasons = taken(list_csv(path=str(path)), ListedClip)
    rows = table.to_pylist()
    assert [(r["key"], r["name"], r["label"], r["role"], r["group"], r["t_start"], r["t_end"]) for r in rows] == [
        ("a", "a.mp4", "run", "train", "anna", None, None),
        (segment_key(key_of_name("b/c.d"), 1.0, 2.5), "b/c.d.mp4", "jump, high", "test", "b/c.d.mp4", 1.0, 2.5),
    ]
    assert reasons == {
        "outside_folder": 2,
        "empty_video": 1,
        "empty_label": 1,
        "bad_time": 3,
        "bad_role": 1,
        "malformed_row": 1,
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b\n1,2\n", r"list .*list.csv' has no column 'video' \(source.path\): it has a, b"),
        (b"video,label,Video\n", "its header names 'video' twice"),
        (b"video,label" + b",x" * 1000, "its header has 1,002 columns"),
        (b"", "no column"),
        (b"\xff", "UTF-8"),
        (b"video,label\n\n" + b"x" * 200_000, "line 3: field larger than"),
    ],
)
def test_files_that_are_no_csv_of_videos_are_told(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said):
        list(list_csv(path=str(path)))


def test_names_of_ucf101() -> None:
    assert parse_name("v_HandStandPushups_g08_c01") == ("HandStandPushups", "g08", "c01")
    assert group_of("v_HandStandPushups_g08_c01", "HandstandPushups") == "HandstandPushups/g08"
    assert [parse_name(name) for name in ("v_Surfing_g1_c01", "Surfing_g01_c01", "v_Surfing_g01_c01.avi")] == [None] * 3


def test_lists_of_ucf101_tell_bad_lines(tmp_path: Path) -> None:
    (tmp_path / "classInd.txt").write_text("1 Run\r\n2 Jump\r\n")
    (tmp_path / "testlist02.txt").write_text("Run/v_Run_g01_c01.avi\r\nFly/v_Fly_g01_c01.avi\r\n\r\n../v_x.avi\r\n")
    (tmp_path / "trainlist02.txt").write_text("Run/v_Run_g02_c01.avi 1\nRun/v_Run_g02_c02.avi 2\nRun/clip.avi 1\nRun v_Run\n")
    table, reasons = taken(read_lists(root=str(tmp_path), split=2), ListedClip)
    assert [(row["key"], row["role"]) for row in table.to_pylist()] == [("v_Run_g01_c01", "test"), ("v_Run_g02_c01", "train")]
    assert reasons == {"unknown_class": 2, "wrong_class_number": 1, "bad_name": 1, "malformed_row": 1}
    (tmp_path / "classInd.txt").write_text("1 Run\n1 Jump\n")
    with pytest.raises(ValueError, match=r"classInd.txt, line 2"):
        list(read_lists(root=str(tmp_path)))


def test_json_of_activitynet(tmp_path: Path) -> None:
    def video(subset: str, *notes: object, duration: object = 60.5) -> dict:
        return {"subset": subset, "annotations": list(notes), "duration": duration, "url": "", "resolution": "320x240"}

    note = {"label": "Surfing", "segment": [1.25, 3.0]}
    database = {
        "abcdefghijk": video("training", note, note, {"label": "Archery", "segment": [4, 5]}),
        "-bcdefghij_": video("validation", note),
        "tttttttttt1": video("testing"),
        "tttttttttt2": video("other", note),
        "short": video("training", note),
        "tttttttttt3": video("training", {"label": "", "segment": [1, 2]}, {"label": "x", "segment": [1]}, 7),
        "tttttttttt4": video("training", {"label": "x", "segment": ["one", 2]}),
        "tttttttttt5": video("training", note, duration=None),
        "tttttttttt6": [],
        "tttttttttt7": video("training", {"label": "\ud800", "segment": [1, 2]}),
        "\ud800": video("training", note),
    }
    path = tmp_path / "activity_net.json"
    path.write_text(json.dumps({"database": database, "taxonomy": [], "version": "VERSION 1.3"}))
    table, reasons = taken(read_activitynet_json(path=str(path)), ListedClip)
    assert [(row["key"], row["name"], row["role"], row["label"]) for row in table.to_pylist()] == [
        ("v_abcdefghijk-0001250-0003000", "abcdefghijk", "train", "Surfing"),
        ("v_abcdefghijk-0001250-0003000-2", "abcdefghijk", "train", "Surfing"),
        ("v_abcdefghijk-0004000-0005000", "abcdefghijk", "train", "Archery"),
        ("v_-bcdefghij_-0001250-0003000", "-bcdefghij_", "val", "Surfing"),
    ]
    assert reasons == {
        "no_annotation": 1,
        "bad_subset": 1,
        "bad_id": 2,
        "empty_label": 1,
        "bad_label": 1,
        "malformed_entry": 3,
        "bad_time": 2,
    }
    for text in ("{}", "[1]", "{", '{"database": []}', '{"v_abcdefghijk": {"timestamps": []}}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"activity_net\.json"):
            list(read_activitynet_json(path=str(path)))


def test_json_of_action_localisation(tmp_path: Path) -> None:
    """Names and annotations alone, as boundary-matching networks and their successors are given them: no subsets, no roles."""
    path = tmp_path / "anet_anno_action.json"
    notes = [{"label": "Surfing", "segment": [1.25, 3.0]}, {"label": "Surfing", "segment": [4, 5]}]
    videos = {"v_abcdefghijk": {"duration_second": 60.5, "duration_frame": 1815, "annotations": notes}}
    path.write_text(json.dumps(videos | {"-bcdefghij_": {"duration": 9, "annotations": notes[:1]}, "v_abcdefghij2": {}}))
    table, reasons = taken(read_activitynet_json(path=str(path)), ListedClip)
    assert table.select(["key", "name", "role", "video_s"]).to_pylist() == [
        {"key": "v_abcdefghijk-0001250-0003000", "name": "abcdefghijk", "role": None, "video_s": 60.5},
        {"key": "v_abcdefghijk-0004000-0005000", "name": "abcdefghijk", "role": None, "video_s": 60.5},
        {"key": "v_-bcdefghij_-0001250-0003000", "name": "-bcdefghij_", "role": None, "video_s": 9.0},
    ]
    assert reasons == {"malformed_entry": 1}
    ((whole, _),) = untrim(Held(table))
    assert whole["key"].to_pylist() == ["v_abcdefghijk", "v_-bcdefghij_"]
    path.write_text(json.dumps({name: {**entry, "subset": "Train"} for name, entry in videos.items()}))
    assert [row.role for row in read_activitynet_json(path=str(path)) if isinstance(row, ListedClip)] == ["train"] * 2
    with pytest.raises(ValueError, match=r'no clip of the list has a role: split.roles="by_class"'):
        next(assign_clip_roles(Held(table), rule="listed", seed=0))
    path.write_text('{"v_abcdefghijk": {"timestamps": [[0, 1]], "sentences": ["a"]}}')
    with pytest.raises(ValueError, match=r"no 'annotations'.* the first has 'timestamps', 'sentences'"):
        list(read_activitynet_json(path=str(path)))
    for left_out, says in (
        ("duration_second", "its videos have no 'duration' or 'duration_second', .* the first has 'other', 'duration_frame'"),
        ("label", "its annotations have no 'label', .* the first has 'other', 'segment'"),
        ("segment", "its annotations have no 'segment', .* the first has 'label', 'other'"),
    ):
        path.write_text(json.dumps(videos).replace(f'"{left_out}"', '"other"'))
        with pytest.raises(ValueError, match=says):
            list(read_activitynet_json(path=str(path)))


def test_lists_of_kinetics_become_clips(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,youtube_id,time_start,time_end,split\nrun,abcdefghijk,9,19,train\n")
    (tmp_path / "val.csv").write_text("run,abcdefghijk,9,19,val\njump,-bcdefghijk,100,110,val\n")
    (tmp_path / "test.csv").write_text("youtube_id,time_start,time_end\nabcdefghijz,1,11\n")
    files = [ListFile("k", "train.csv"), ListFile("k", "val.csv"), ListFile("k", "test.csv", "test", labelled=False)]
    read = [
        sifted
        for one in kinetics_lists(root=str(tmp_path), files=files)
        for sifted in read_kinetics_list(one, root=str(tmp_path))
    ]
    sifted = Sifted(*map(pa.concat_tables, zip(*as_clips(Held(*(one.kept for one in read))), strict=True)))
    assert [(row["key"], row["name"], row["role"], row["t_start"]) for row in sifted.kept.to_pylist()] == [
        ("abcdefghijk_000009_000019", "abcdefghijk", "train", 9.0),
        ("-bcdefghijk_000100_000110", "-bcdefghijk", "val", 100.0),
    ]
    assert [(row["key"], row["reason"]) for row in sifted.rejected.to_pylist()] == [
        ("val.csv:1", "repeated_clip"),
        ("test.csv:2", "no_label"),
    ]
    assert sifted.kept["source_key"].to_pylist() == ["train.csv:2", "val.csv:2"]


# --------------------------------------------------------------------------------------------------------------- files


def matched(root: Path, table: pa.Table, **settings) -> tuple[list[tuple], list[tuple]]:
    files, _ = taken(list_videos(root=str(root)), VideoFile)
    (sifted,) = match_videos(Held(table), videos=Held(files), **settings)
    kept = [(r["key"], r["video"], r["copies"], r["t_start"], r["t_end"]) for r in sifted.kept.to_pylist()]
    return kept, [tuple(row.values()) for row in sifted.rejected.to_pylist()]


def test_stems_find_files_in_any_folder(tmp_path: Path) -> None:
    root = fill(
        tmp_path,
        "old/v_Run_g01_c01.avi",
        "Run/v_Run_g01_c01.avi",
        "Run/v_Run_g01_c01.mp4",
        "v_Run_g01_c02.webm",
        "x/y.mp4",
    )
    table = clips(
        {"name": "v_Run_g01_c01", "label": "run!"},
        {"name": "v_Run_g01_c02", "label": "run"},
        {"name": "v_Run_g01_c03", "label": "run"},
        {"name": "../y", "label": "run"},
        {"name": "y", "label": "run", "t_start": 1.0, "t_end": 2.0},
    )
    kept, missing = matched(root, table, names="stem")
    assert kept == [
        ("k0", "Run/v_Run_g01_c01.avi", 3, None, None),
        ("k1", "v_Run_g01_c02.webm", 1, None, None),
        ("k4", "x/y.mp4", 1, 1.0, 2.0),
    ]
    assert missing == [("k2", "missing_video", "v_Run_g01_c03"), ("k3", "missing_video", "../y")]


def test_youtube_ids_find_what_downloaders_leave(tmp_path: Path) -> None:
    root = fill(
        tmp_path,
        "train/playing guitar/-3B32lodo2M_000059_000069.mp4",
        "train/-3B32lodo2M.mkv",
        "val/aaaaaaaaaaa_59_69.webm",
        "v_bbbbbbbbbbb.mp4",
        "ccccccccccc_000001_000011.mp4",
        "somebody's-video.mp4",
    )
    times = {"t_start": 59.0, "t_end": 69.0}
    table = clips(
        *({"name": name, "label": "playing_guitar", **times} for name in ("-3B32lodo2M", "aaaaaaaaaaa", "bbbbbbbbbbb")),
        {"name": "ccccccccccc", "label": "run", **times},
        {"name": "ddddddddddd", "label": "run", **times},
        {"name": "-3B32lodo2M", "label": "run", "t_start": 1.5, "t_end": 2.5},
        {"name": "bbbbbbbbbbb", "label": "run"},
    )
    kept, missing = matched(root, table, names="youtube")
    assert kept == [
        ("k0", "train/playing guitar/-3B32lodo2M_000059_000069.mp4", 2, None, None),
        ("k1", "val/aaaaaaaaaaa_59_69.webm", 1, None, None),
        ("k2", "v_bbbbbbbbbbb.mp4", 1, 59.0, 69.0),
        ("k5", "train/-3B32lodo2M.mkv", 1, 1.5, 2.5),
        ("k6", "v_bbbbbbbbbbb.mp4", 1, None, None),
    ]
    # A file of other times holds another clip.
    assert [row[0] for row in missing] == ["k3", "k4"]
    kept, _ = matched(root, table, names="youtube", bare="clip")
    assert kept[2] == ("k2", "v_bbbbbbbbbbb.mp4", 1, None, None)


def test_paths_and_empty_folders(tmp_path: Path) -> None:
    root = fill(tmp_path, "a/b.mp4", "notes.txt")
    table = clips({"name": "a/b.mp4", "label": "run"}, {"name": "b.mp4", "label": "run"})
    assert matched(root, table, names="path") == (
        [("k0", "a/b.mp4", 1, None, None)],
        [("k1", "missing_video", "b.mp4")],
    )
    empty = fill(tmp_path / "empty", "notes.txt")
    for names in ("path", "stem", "youtube"):
        assert matched(empty, table, names=names)[0] == []
    with pytest.raises(ValueError, match="names is 'title'"):
        matched(root, table, names="title")


def test_videos_are_cut_into_segments_that_share_no_frame() -> None:
    probed = clips({"name": "a.mkv", "label": "a"}, {"name": "b.mkv", "label": "b"})
    probed = probed.append_column("n_frames", pa.array([50, 47])).append_column("fps", pa.array([30.0, 29.97]))
    roles = ["train", "test", "train"]
    rows = next(cut_segments(Held(probed), roles=roles)).to_pylist()
    assert [row["key"] for row in rows[:3]] == ["k0-part0", "k0-part1", "k0-part2"]
    assert [row["role"] for row in rows] == roles * 2
    bounds = [(round(row["t_start"] * row["fps"]), round(row["t_end"] * row["fps"])) for row in rows]
    assert bounds == [(0, 16), (16, 33), (33, 50), (0, 15), (15, 31), (31, 47)]
    assert {(row["source_key"], row["group"]) for row in rows} == {("k0", "a.mkv"), ("k1", "b.mkv")}
    with pytest.raises(ValueError, match="roles are"):
        next(cut_segments(Held(probed), roles=["practice"]))
