"""Split files are pickles: nothing in them may run, claim memory, or pass for another structure."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from benchwright.curation.rows import Rejected
from benchwright.datasets.vclimb import split_files
from benchwright.datasets.vclimb.split_files import UnsafePickle, load_plain, read_split

SMALL = {
    "train": [{"Run": ["v_Run_g01_c01", "v_Run_g01_c02"]}, {"Jump": ["v_Jump_g01_c01"]}],
    "test": [{"Run": ["v_Run_g02_c01"]}, {"Jump": ["v_Jump_g02_c01"]}],
}


class Runs:
    """Something that would leave a file behind if it were loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def written(folder: Path, content: Any, protocol: int = 4) -> str:
    path = folder / "split.pkl"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
    return str(path)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_files_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    rows = list(read_split(path=written(tmp_path, SMALL, protocol)))
    assert [(row.key, row.label, row.class_index, row.task, row.role, row.group) for row in rows] == [
        ("v_Run_g01_c01", "Run", 0, 0, "train", "Run/g01"),
        ("v_Run_g01_c02", "Run", 0, 0, "train", "Run/g01"),
        ("v_Jump_g01_c01", "Jump", 1, 1, "train", "Jump/g01"),
        ("v_Run_g02_c01", "Run", 0, 0, "test", "Run/g02"),
        ("v_Jump_g02_c01", "Jump", 1, 1, "test", "Jump/g02"),
    ]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_in_a_pickle_does_not_run(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "trap"
    path = written(tmp_path, {"train": [{"Run": [Runs(trap)]}]}, protocol)
    with pytest.raises(ValueError, match=r"split.pkl' is refused: (STACK_)?GLOBAL at byte \d+: only texts"):
        list(read_split(path=path))
    assert not trap.exists()


HOSTILE = {
    "a class of the standard library": pickle.dumps(Path("x")),
    "an old instance": b"(ios\nsystem\n.",
    "an object by number": b"\x80\x02I7\n\x82\x01.",
    "a persistent id": b"Pmodule\n.",
    "a memo place that claims 16 GB": b"]r" + struct.pack("<I", 0x7FFFFFFF) + b".",
    "a text that claims 4 GB": b"X" + struct.pack("<I", 0xFFFFFFF0) + b"abc.",
    "a frame that claims exabytes": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"].",
    "an empty file": b"",
    "no pickle": b"PK\x03\x04 this is a zip",
    "a pickle cut off": pickle.dumps(SMALL)[:-20],
    "no end": pickle.dumps(SMALL)[:-1],
    "a stack that is empty": b"0.",
    "a list as a key": b"}(]Vx\nu.",
    "a number": pickle.dumps(10**30),
    "a protocol of the future": b"\x80\x63].",
    "bytes": pickle.dumps(b"x" * 100),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafePickle):
        load_plain(HOSTILE[name])
    with pytest.raises(ValueError, match=r"split.pkl' is refused: "):
        list(read_split(path=written(tmp_path, HOSTILE[name])))


def test_every_broken_byte_is_refused_or_read(tmp_path: Path) -> None:
    data = pickle.dumps(SMALL, protocol=2)
    for place in range(len(data)):
        for flip in (0x01, 0x20, 0x80):
            broken = bytearray(data)
            broken[place] ^= flip
            try:
                rows = list(read_split(path=written(tmp_path, bytes(broken))))
            except ValueError:
                continue
            assert all(isinstance(row, Rejected) or row.task in (0, 1) for row in rows)


def test_deep_nesting_is_no_trouble(tmp_path: Path) -> None:
    deep = b"]" * 200_000 + b"a" * 199_999 + b"."
    with pytest.raises(ValueError, match="no table of train, val, test"):
        list(read_split(path=written(tmp_path, deep)))


def test_one_list_named_many_times_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"v_Run_g01_c{n:02d}" for n in range(50)]
    tasks = [{f"class {n}": names} for n in range(40)]
    monkeypatch.setattr("benchwright.datasets.vclimb.split_files.MAX_ITEMS", 1000)
    with pytest.raises(ValueError, match="more than 1000 items"):
        list(read_split(path=written(tmp_path, {"train": tasks})))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "no table of train, val, test"),
        ({"val": []}, "no table of train, val, test"),
        ({"train": [], "extra": []}, "no table of train, val, test"),
        ({"train": {"Run": []}}, "'train' is not a list of tasks"),
        ({"train": [["Run"]]}, "'train' is not a list of tasks"),
        ({"train": [{"Run": "v_Run"}]}, "task 0: no table of class name -> list"),
        ({"train": [{"Run": []}], "test": []}, "'test' has 0 tasks, 'train' has 1"),
        ({"train": [{"Run": []}], "test": [{"Jump": []}]}, "'test', task 0: other classes than 'train' has there"),
        ({"train": [{"Run": []}, {"Run": []}]}, "class 'Run' is in task 0 and again in task 1"),
    ],
)
def test_other_structures_are_told(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(read_split(path=written(tmp_path, content)))


def test_a_pinned_file_must_be_that_file(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    with pytest.raises(ValueError, match=r"has SHA-256 [0-9a-f]{64}, expected 0{64}"):
        list(read_split(path=path, sha256="0" * 64))


def test_a_file_that_is_too_large_is_not_called_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SHA-256 of its beginning was compared with that of the file."""
    monkeypatch.setattr(split_files, "MAX_BYTES", 9)
    with pytest.raises(ValueError, match="has more than 9 bytes"):
        list(read_split(path=written(tmp_path, SMALL), sha256="0" * 64))


def test_items_that_are_no_clips_are_turned_away(tmp_path: Path) -> None:
    segment = {"t_start": "1.5", "t_end": "4.0", "video_duration": "9", "filename": "v_abcdefghijk", "fps": "30.0"}
    items = [
        "clip one",
        "clip one",
        "",
        [],
        segment,
        dict(segment),
        {**segment, "filename": "../../etc/passwd"},
        {**segment, "t_end": "nan"},
        "abcdefghijk_000010_000020",
    ]
    rows = list(read_split(path=written(tmp_path, {"train": [{"Run": items}]})))
    reasons = ["repeated_clip", "malformed_item", "malformed_item", "malformed_item", "bad_time"]
    assert [row.reason for row in rows if isinstance(row, Rejected)] == reasons
    kept = [row for row in rows if not isinstance(row, Rejected)]
    assert [row.key for row in kept][1:] == [
        "v_abcdefghijk-0001500-0004000",
        "v_abcdefghijk-0001500-0004000-2",
        "abcdefghijk_000010_000020",
    ]
    assert (kept[1].name, kept[1].t_start, kept[1].t_end, kept[1].video_s) == ("abcdefghijk", 1.5, 4.0, 9.0)
    assert (kept[3].name, kept[3].t_start, kept[3].t_end) == ("abcdefghijk", 10.0, 20.0)
    assert not set("./\\ ") & set("".join(row.key for row in kept))
