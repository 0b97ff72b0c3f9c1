"""Lists of Kinetics in every form, line by line, and lists of what a copy holds."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.datasets.kinetics.inventory import keep_held, read_inventory
from benchwright.datasets.kinetics.lists import ListFile, kinetics_lists, read_class_names, read_kinetics_list

from tests.datasets.kinetics_statistics import list_statistics, shared_videos
from tests.datasets.kowl_rows import gathered, stored

ID, OTHER = "-3B32lodo2M", "__NrybzYzUg"


def read(folder: Path, data: str | bytes, name: str = "list.csv", **facts):
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    files = [ListFile("r1", name, **{"split": "train", **facts})]
    (piece,) = kinetics_lists(root=str(folder), files=files)
    return gathered(read_kinetics_list(piece, root=str(folder)))


def clips(table: pa.Table) -> list[tuple]:
    return [(r["label"], r["youtube_id"], r["time_start"], r["time_end"], r["split"]) for r in table.to_pylist()]


GOLF = ("playing golf", ID, 59, 69, "train")


@pytest.mark.parametrize(
    "data",
    [
        f"label,youtube_id,time_start,time_end,split,is_cc\nplaying golf,{ID},59,69,train,0\n",
        f'label,youtube_id,time_start,time_end,split\n"playing golf",{ID},59.0,69.0,training\n',
        f"youtube_id,time_start,time_end,split,label\r\n{ID},59,69,train,playing golf\r\n",
        f"\ufefflabel-name,video-id,start-time,end-time\nplaying golf,{ID},59,69",
        f"playing golf,{ID},59,69,train,1\n",
        f"playing golf,{ID},59,69\n",
        f'"playing golf", {ID} ,059,0069 \n',
        json.dumps({ID: {"annotations": {"label": "playing golf", "segment": [59.0, 69.0]}, "subset": "train", "url": "u"}}),
        gzip.compress(f"label,youtube_id,time_start,time_end\nplaying golf,{ID},59,69\n".encode()),
        bz2.compress(f"label,youtube_id,time_start,time_end\nplaying golf,{ID},59,69\n".encode()),
    ],
    ids=["cvdf", "quoted", "other-order", "bom-and-crawler", "bare", "bare-short", "spaces", "json", "gzip", "bzip2"],
)
def test_every_form_gives_the_same_row(tmp_path: Path, data: str | bytes) -> None:
    table, rejects = read(tmp_path, data)
    assert clips(table) == [GOLF]
    assert rejects == []


def test_lists_without_labels(tmp_path: Path) -> None:
    for data in (f"youtube_id,time_start,time_end,split\n{ID},59,69,test\n", f"{ID},59,69,test\n"):
        table, rejects = read(tmp_path, data, split="test", labelled=False)
        assert (clips(table), rejects) == ([(None, ID, 59, 69, "test")], [])
    entry = {"annotations": {"segment": [1, 11]}, "duration": 10, "subset": "test", "url": ""}
    table, _ = read(tmp_path, json.dumps({ID: entry, OTHER: entry}), split=None, labelled=False)
    assert [clip[0] for clip in clips(table)] == [None, None]
    assert table["key"].to_pylist() == ["list.csv:1", "list.csv:2"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "blank_line"),
        (f"playing golf,{ID},59", "malformed_row"),
        (f"playing golf,{ID},59,69,train,0,7", "malformed_row"),
        (f'"playing golf,{ID},59,69,train,0', "malformed_row"),
        ("playing golf,-3B32lodo2,59,69,train,0", "bad_id"),
        ("playing golf,#NAME?,59,69,train,0", "bad_id"),
        (f"playing golf,{ID},69,59,train,0", "bad_time"),
        (f"playing golf,{ID},59,59,train,0", "bad_time"),
        (f"playing golf,{ID},59.5,69,train,0", "bad_time"),
        (f"playing golf,{ID},-1,9,train,0", "bad_time"),
        (f"playing golf,{ID},nan,9,train,0", "bad_time"),
        (f"playing golf,{ID},1,inf,train,0", "bad_time"),
        (f"playing golf,{ID},,9,train,0", "bad_time"),
        (f"playing golf,{ID},59,1000000,train,0", "bad_time"),
        (f"playing golf,{ID},59,69,test,0", "other_split"),
        (f"playing golf,{ID},59,69,holdout,0", "other_split"),
        (f" ,{ID},59,69,train,0", "empty_label"),
        (f"playing chess,{ID},59,69,train,0", "unknown_label"),
    ],
)
def test_a_bad_line_is_turned_away_alone(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "labels.txt").write_text('"playing golf"\n\njumping\n')
    good = f"playing golf,{ID},59,69,train,0"
    header = "label,youtube_id,time_start,time_end,split,is_cc"
    table, rejects = read(tmp_path, "\n".join([header, good, line, good, ""]), labels="labels.txt")
    assert clips(table) == [GOLF, GOLF]
    assert table["key"].to_pylist() == ["list.csv:2", "list.csv:4"]
    assert rejects == [("list.csv:3", reason, line)]


def test_quotes_that_are_needed(tmp_path: Path) -> None:
    labels = ['"tie, bow"', '"say ""hi"""', "plain", '"quoted"', '"a, b, c"']
    header = '"label","youtube_id","time_start","time_end"\n'
    table, rejects = read(tmp_path, header + "".join(f'{label},"{ID}",{n},{n + 10}\n' for n, label in enumerate(labels)))
    assert table["label"].to_pylist() == ["tie, bow", 'say "hi"', "plain", "quoted", "a, b, c"]
    assert (table["time_start"].to_pylist(), rejects) == ([0, 1, 2, 3, 4], [])


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    lines = b"label,youtube_id,time_start,time_end\n" + b"caf\xe9,%s,1,11\n" % ID.encode() + f"café,{ID},1,11\n".encode()
    table, rejects = read(tmp_path, lines)
    assert [clip[0] for clip in clips(table)] == ["café"]
    assert [(key, reason) for key, reason, _ in rejects] == [("list.csv:2", "bad_utf8")]


def test_a_file_of_several_splits_and_bad_json_entries(tmp_path: Path) -> None:
    data = f"a,{ID},1,2,val\na,{ID},2,3,validate\na,{ID},3,4,test\na,{ID},4,5,holdout\na,{ID},5,6,\n"
    table, rejects = read(tmp_path, data, split=None)
    assert table["split"].to_pylist() == ["validate", "validate", "test"]
    assert [reason for _, reason, _ in rejects] == ["bad_split", "bad_split"]
    good = '{"annotations": {"label": "a", "segment": [1, 2]}}'
    table, rejects = read(tmp_path, f'{{"{ID}": {good}, "{ID}": {good}, "{OTHER}": 3}}')
    assert table["youtube_id"].to_pylist() == [ID, ID]  # a name that occurs twice in JSON is no row lost
    assert rejects == [("list.csv:3", "malformed_row", OTHER)]


def test_a_label_in_json_that_is_no_text_costs_its_row(tmp_path: Path) -> None:
    notes = {ID: {"label": "a", "segment": [1, 2]}, OTHER: {"label": {"name": "a"}, "segment": [1, 2]}}
    table, rejects = read(tmp_path, json.dumps({video: {"annotations": note} for video, note in notes.items()}))
    assert table["youtube_id"].to_pylist() == [ID]
    assert rejects == [("list.csv:2", "malformed_row", OTHER)]


def test_half_a_surrogate_pair_in_json_costs_its_row(tmp_path: Path) -> None:
    note = {"segment": [1, 2]}
    entries = {ID: {"label": "a", **note}, OTHER: {"label": "\ud800", **note}, "\udfff": {"label": "a", **note}}
    table, rejects = read(tmp_path, json.dumps({video: {"annotations": note} for video, note in entries.items()}))
    assert table["youtube_id"].to_pylist() == [ID]
    assert rejects == [("list.csv:2", "bad_utf8", OTHER), ("list.csv:3", "bad_utf8", r"\udfff")]
    table, rejects = read(tmp_path, json.dumps({OTHER: {"annotations": entries[OTHER]}}))
    assert (table.num_rows, len(rejects)) == (0, 1)
    for labels in (r'["\ud800"]', "[" * 200_000, "[1"):
        (tmp_path / "labels.json").write_text(labels)
        with pytest.raises(ValueError, match=r"labels 'labels\.json'"):
            read(tmp_path, f"a,{ID},1,2\n", labels="labels.json")


def test_json_of_names_and_labels(tmp_path: Path) -> None:
    """Times stand in the name, as downloaders write it; where they stand nowhere, it is said what lacks."""
    table, rejects = read(tmp_path, json.dumps({f"{ID}_000059_000069": {"label": "playing golf", "label_index": 7}}))
    assert (clips(table), rejects) == ([GOLF], [])
    times = {"class": "playing golf", "start": 59, "end": 69.0}
    for form in ({ID: times}, [{"video_id": ID, **times}]):  # times apart, and a list of clips
        table, rejects = read(tmp_path, json.dumps(form))
        assert (clips(table), rejects) == ([GOLF], [])
    entry = {"has_skeleton": True, "label": "playing golf", "label_index": 7}
    says = rf"list 'list.csv': .* the first, '{ID}', has 'has_skeleton', 'label', 'label_index', but no 'segment'\. Expected"
    with pytest.raises(ValueError, match=says):
        read(tmp_path, json.dumps({ID: entry, OTHER: entry}))
    with pytest.raises(ValueError, match=r"the first is not an object with names. Expected 'label' and 'segment'"):
        read(tmp_path, json.dumps({ID: 3}))


NO_LISTS = ["", "\n\n", "a,b,c\n1,2,3\n", "label,youtube_id\na,b\n", '{"a": {"b": 1}}', "[1, 2]"]
NO_LISTS += [f"label,label,youtube_id,time_start,time_end\na,b,{ID},1,2\n", "{", '{"a":' * 100_000]
NO_LISTS += ['{"a": {"annotations": {"segment": [0, 1' + "0" * 5000 + "]}}}", gzip.compress(b"a,b")[:-9], b"\0" * 99]


@pytest.mark.parametrize("data", NO_LISTS, ids=range(len(NO_LISTS)))
def test_what_is_no_list_stops_the_run(tmp_path: Path, data: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"list 'list\.csv'") as told:
        read(tmp_path, data)
    assert "\n" not in str(told.value)


def test_pieces_refuse(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")

    def named(*files: ListFile) -> list[str]:
        return list(kinetics_lists(root=str(tmp_path), files=files))

    with pytest.raises(ValueError, match="named twice"):
        named(ListFile("r", "a.csv"), ListFile("r2", "a.csv"))
    with pytest.raises(ValueError, match="'dev' is not one of"):
        named(ListFile("r", "a.csv", "dev"))
    with pytest.raises(FileNotFoundError, match=r"b\.csv"):
        named(ListFile("r", "b.csv"))
    with pytest.raises(ValueError, match="within"):
        named(ListFile("r", "../a.csv"))


def test_label_files(shared_data: Path) -> None:
    folder = shared_data / "kinetics" / "labels"
    assert len(read_class_names((folder / "mmaction2_label_map_k700.txt").read_bytes())) == 700
    assert sorted(read_class_names((folder / "rdevon_700_categories.json").read_bytes()))[0] == "abseiling"


@pytest.mark.parametrize(
    ("line", "clip"),
    [
        (f"{ID}_000059_000069", (ID, 59, 69)),
        (f"{ID}", (ID, None, None)),
        (f"{ID}_59_69.pt", (ID, 59, 69)),
        (f"./train/playing guitar/{OTHER}_000059_000069.mp4", (OTHER, 59, 69)),
        (f"C:\\k\\{OTHER}_000059_000069.mp4.webm", (OTHER, 59, 69)),
        (f"videos/v_{ID}.mkv", (ID, None, None)),
        (f"abseiling/{ID}_000059_000069.mp4 0", (ID, 59, 69)),
        (f"abseiling/{ID}.mp4,12", (ID, None, None)),
        (f"abseiling,{ID},59,69.0,train,0", (ID, 59, 69)),
        (f'"{ID}"', (ID, None, None)),
        ("", None),
        ("label,youtube_id,time_start,time_end", None),
        ("videos/readme.md", None),
        (f"{ID}x_000059_000069.mp4", None),
    ],
)
def test_names_that_downloaders_leave(tmp_path: Path, line: str, clip: tuple | None) -> None:
    path = tmp_path / "held.txt"
    path.write_text(f"{line}\n")
    table, rejects = gathered(read_inventory(path=str(path)))
    found = [(r["youtube_id"], r["time_start"], r["time_end"]) for r in table.to_pylist()]
    assert found == ([] if clip is None else [clip])
    reason = {"": "blank_line", "label,youtube_id,time_start,time_end": "header"}.get(line, "no_video_name")
    assert rejects == ([("1", reason, line)] if clip is None else [])


@pytest.mark.parametrize(
    ("pattern", "line", "clip"),
    [
        (".+", "cam-1/clip 0.mp4", ("cam-1/clip 0.mp4", None, None)),
        (".+", "über, alles", ("über, alles", None, None)),
        ("clip[0-9]+", "videos/clip12.avi", ("clip12", None, None)),
        ("clip[0-9]+", "clip12_3_9.avi", ("clip12", 3, 9)),
    ],
)
def test_names_of_any_form(tmp_path: Path, pattern: str, line: str, clip: tuple) -> None:
    path = tmp_path / "held.txt"
    path.write_text(f"{line}\n", "utf-8")
    table, _ = gathered(read_inventory(path=str(path), id_pattern=pattern))
    assert [(r["youtube_id"], r["time_start"], r["time_end"]) for r in table.to_pylist()] == [clip]


@pytest.mark.parametrize(("pattern", "told"), [("clip(", "not a regular expression"), ("(clip)", "has groups")])
def test_patterns_of_ids_that_are_none(tmp_path: Path, pattern: str, told: str) -> None:
    (tmp_path / "held.txt").write_text("clip\n")
    with pytest.raises(ValueError, match=told):
        list(read_inventory(path=str(tmp_path / "held.txt"), id_pattern=pattern))


@pytest.mark.parametrize("means", ["present", "missing"])
def test_clips_that_a_copy_holds(tmp_path: Path, means: str) -> None:
    keys = ["timed", "other-time", "any-time", "any-time-2", "absent"]
    ids = [ID, ID, OTHER, OTHER, "absent00000"]
    starts = [1, 2, 3, 4, 5]
    rows = pa.table({"key": keys, "youtube_id": ids, "time_start": starts, "time_end": [s + 10 for s in starts], "x": keys})
    held = pa.table(
        {
            "key": ["1", "2", "3"],
            "youtube_id": [ID, OTHER, ID],
            "time_start": pa.array([1, None, 1], pa.int64()),
            "time_end": pa.array([11, None, 11], pa.int64()),
        }
    )
    inputs = stored(tmp_path / "rows", rows.slice(0, 2), rows.slice(2)), stored(tmp_path / "held", held)
    kept, rejects = gathered(keep_held(inputs[0], inventory=inputs[1], means=means, reason="no_video"))
    listed, others = ["timed", "any-time", "any-time-2"], ["other-time", "absent"]
    assert kept["key"].to_pylist() == (listed if means == "present" else others)
    assert [key for key, _, _ in rejects] == (others if means == "present" else listed)
    assert {reason for _, reason, _ in rejects} == {"no_video"}


def test_statistics_of_ids_used_again() -> None:
    clips = [("a", 0, 10), ("a", 9, 19), ("b", 0, 10), ("b", 10, 20), ("c", 0, 5), ("d", 0, 30), ("d", 40, 50), ("d", 5, 6)]
    ids, starts, ends = map(list, zip(*clips, strict=True))
    rows = pa.table({"release": ["r"] * 8, "split": ["train"] * 8, "label": ["x", "y", *["x"] * 5, None], "youtube_id": ids})
    rows = rows.append_column("time_start", pa.array(starts)).append_column("time_end", pa.array(ends))
    (found,) = list_statistics(rows).to_pylist()
    durations = {row["duration_s"]: row["rows"] for row in found.pop("durations_s")}
    assert durations == {1: 1, 5: 1, 10: 5, 30: 1}
    assert found == {
        "release": "r",
        "split": "train",
        "rows": 8,
        "labels": 2,
        "videos": 4,
        "reused_rows": 7,
        "reused_videos": 3,
        "overlapping_videos": 2,  # a; and d, whose third clip lies within its first
        "separate_videos": 1,  # b, whose clips touch
        "repeats": 4,
    }


def test_shared_videos() -> None:
    first = pa.table({"youtube_id": ["a", "b", "c", "c", "d"], "label": ["x", "x", "x", "y", None]})
    second = pa.table({"youtube_id": ["a", "b", "c", "d", "e"], "label": ["x", "y", "y", "x", "x"]})
    assert shared_videos(first, second) == (3, 1)
