"""Joints of one's own: missing ones, tables, archives, pickles, BVH, and splits of any source; and damage of each kind."""

from __future__ import annotations

import gzip
import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation.rows import Reject, Rejected
from benchwright.curation.stage_rows import Rows
from benchwright.datasets.skeleton.archives import read_npz, read_pyskl
from benchwright.datasets.skeleton.arrays import read_arrays
from benchwright.datasets.skeleton.bvh import layout_of_bvh, parse_bvh, positions, sequence_of_bvh
from benchwright.datasets.skeleton.files import list_class_folders
from benchwright.datasets.skeleton.layouts import Layout, built_in_layouts
from benchwright.datasets.skeleton.missing import completed, row_of_joints
from benchwright.datasets.skeleton.own_labels import read_labels
from benchwright.datasets.skeleton.rows import CompletedRow, InFile, OwnSequence, TensorRow
from benchwright.datasets.skeleton.splits import select_sequences, split
from benchwright.datasets.skeleton.tables import TableColumns, read_tables
from benchwright.datasets.skeleton.tensors import TensorForm
from scipy.spatial.transform import Rotation

LINE = Layout("line", ("a", "b", "c"), ((0, 1), (1, 2)), 0)
DRAWN = np.random.default_rng(3)


def form(**changed: Any) -> TensorForm:
    return TensorForm(**{"scale": "none", "fit": "pad", "frames": 8, "bodies": 1, **changed})


def reason(call: Any, *arguments: Any, **settings: Any) -> str:
    with pytest.raises(Reject) as caught:
        call(*arguments, **settings)
    assert caught.value.detail
    return caught.value.reason


# ------------------------------------------------------------------------------------------------------------- missing


def test_missing_joints_are_held_or_interpolated_by_hand() -> None:
    joints = DRAWN.normal(size=(6, 1, 3, 2))
    whole = joints.copy()
    joints[0, 0, 0] = joints[2:4, 0, 1] = np.nan
    joints[5, 0, 2, 1] = np.nan  # one axis is enough
    held = completed(joints, LINE, form(axes=("x", "y"), missing="hold"))
    assert held.missing == 4
    assert np.array_equal(held.joints[0, 0, 0], whole[1, 0, 0])  # before it was seen: where it will be first
    assert np.array_equal(held.joints[2:4, 0, 1], whole[[1, 1], 0, 1])
    assert np.array_equal(held.joints[5, 0, 2], whole[4, 0, 2])
    line = completed(joints, LINE, form(axes=("x", "y"), missing="interpolate"))
    one, other = whole[1, 0, 1], whole[4, 0, 1]
    assert np.allclose(line.joints[2:4, 0, 1], [one + (other - one) / 3, one + 2 * (other - one) / 3])
    assert line.confidence is not None
    assert (line.confidence == 0).sum() == 4
    seen = ~np.isnan(joints).any(3)
    assert np.array_equal(line.joints[seen], whole[seen])
    assert reason(completed, joints, LINE, form(axes=("x", "y"))) == "missing_joint"
    assert reason(completed, joints, LINE, form(axes=("x", "y"), missing="hold", max_missing=0.2)) == "too_many_missing"


def test_confidence_is_no_coordinate_and_is_kept() -> None:
    joints = DRAWN.normal(size=(5, 2, 3, 3))
    joints[..., 1] = np.tile([[0.9, 0.2, np.nan]], (5, 2, 1))
    joints[1, 0, 1, 1] = joints[2:, 0, 2, 1] = 0.8
    joints[:, 1] = 0  # a body that is never there
    told = form(axes=("x", "score", "y"), confidence="score", least_confidence=0.5, max_missing=1, missing="hold")
    row = row_of_joints(InFile("k", "f", "c"), joints, LINE, told)
    assert isinstance(row, CompletedRow)
    assert (row.x.shape, row.confidence.shape, row.missing, row.bodies) == ((2, 8, 3, 1), (8, 3, 1), 4 + 2, 1)
    assert np.array_equal(row.x[:, :5, 1, 0], np.tile(joints[1, 0, 1, [0, 2]], (5, 1)).T.astype(np.float32))
    assert np.array_equal(row.confidence[:, 0, 0], np.float32([0.9] * 5 + [0] * 3))
    assert np.array_equal(row.confidence[:5, 1, 0], np.float32([0.2, 0.8, 0.2, 0.2, 0.2]))
    assert np.array_equal(row.confidence[:5, 2, 0], np.float32([0, 0, 0.8, 0.8, 0.8]))
    sure = form(axes=("x", "score", "y"), confidence="score")
    joints[:, 0, :, 1] = 0.7
    kept = row_of_joints(InFile("k", "f", "c"), joints, LINE, sure)
    assert isinstance(kept, CompletedRow)
    assert (kept.missing, float(kept.confidence[:5].min())) == (0, np.float32(0.7))
    assert reason(completed, joints, LINE, form(**{**vars(sure), "least_confidence": 0.71})) == "low_confidence"
    assert type(row_of_joints(InFile("k", "f", "c"), joints[:, :1], LINE, form(axes=("x", "y", "z")))) is TensorRow


def test_what_a_tracker_writes_as_zeros_is_missing_where_confidence_counts() -> None:
    joints = np.pad(DRAWN.uniform(0.5, 1, size=(4, 1, 3, 3)), ((1, 1), (0, 0), (0, 0), (0, 0)))
    joints[3] = 0  # lost between frames in which it is seen: at the ends it is not there yet, and not any more
    told = form(axes=("x", "y", "score"), confidence="score", least_confidence=0.3, missing="hold")
    found = completed(joints, LINE, told)
    assert found.present[:, 0].tolist() == [False, True, True, True, True, False]
    assert found.missing == 3
    assert np.array_equal(found.joints[3], joints[2, ..., :2])
    without = completed(joints, LINE, form(axes=("x", "y", "score"), confidence="score", missing="hold"))
    assert without.present[:, 0].tolist() == [False, True, True, False, True, False]
    assert without.missing == 0


def test_arrays_in_circulation_have_confidences_too(tmp_path: Path) -> None:
    """As in Kinetics-Skeleton: x, y and score, two bodies, zeros behind the last frame."""
    x = np.zeros((1, 3, 6, 3, 2), dtype=np.float32)
    x[:, :, :4] = DRAWN.uniform(0.5, 1, size=(1, 3, 4, 3, 2))
    x[0, 2, 1, 0, 1] = 0.1
    np.save(tmp_path / "x.npy", x)
    told = form(axes=("x", "y", "score"), confidence="score", least_confidence=0.5, missing="hold", bodies=2)
    (row,) = read_arrays([InFile("k", "x.npy#0", "c")], root=str(tmp_path), layout=LINE, form=told)
    assert isinstance(row, CompletedRow)
    assert (row.x.shape, row.source_frames, row.missing) == ((2, 8, 3, 2), 4, 1)
    assert np.array_equal(row.x[:, 1, 0, 1], x[0, :2, 0, 0, 1])
    assert np.array_equal(row.confidence[:4], x[0, 2, :4])


def test_joints_that_no_rule_can_fill_are_turned_away() -> None:
    fill = form(missing="interpolate", max_missing=1)
    joints = DRAWN.normal(size=(4, 1, 3, 3))
    joints[:, 0, 1] = np.nan
    with pytest.raises(Reject, match="never_seen: joint 'b' of body 0"):
        completed(joints, LINE, fill)
    joints[0, 0, 1, 0] = np.inf
    assert reason(completed, joints, LINE, fill) == "not_finite"
    assert reason(completed, np.full((4, 1, 3, 3), np.nan), LINE, fill) == "no_body"
    assert reason(completed, np.ones((4, 1, 3, 2)), LINE, fill) == "wrong_axis_count"
    assert reason(completed, np.ones((4, 1, 2, 3)), LINE, fill) == "wrong_joint_count"
    for changed, message in (
        ({"confidence": "score"}, "not in tensor.axes, x, y, z"),
        ({"axes": ("x", "x")}, "different names"),
        ({"axes": ("x",), "confidence": "x"}, "1 to 10 different names"),
        ({"least_confidence": 0.5}, "tensor confidence names no axis"),
        ({"max_missing": 2}, "a share from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            form(**changed)


# -------------------------------------------------------------------------------------------------------------- tables


def read(path: Path, told: TensorForm | None = None, **settings: Any) -> list[OwnSequence | Rejected]:
    given = {"columns": TableColumns(), "wide": None, "delimiter": ",", "labels": None, "pattern": None, "leave_out": False}
    return list(read_tables(path=str(path), layout=LINE, form=told or form(), **{**given, **settings}))


def reasons(rows: list[Any]) -> list[str]:
    return [row.reason if isinstance(row, Rejected) else "" for row in rows]


HEADER = "sequence,class,performer,frame,joint,x,y,z\n"


def long_rows(name: str, frames: list[float], label: str = "wave", skip: tuple[float, str] | None = None) -> str:
    lines = [
        f"{name},{label},anna,{frame:g},{joint},{frame + number},{number},{-frame}"
        for frame in frames
        for number, joint in enumerate("abc")
        if (frame, joint) != skip
    ]
    return "\n".join(lines) + "\n"


def test_csv_and_parquet_of_many_sequences_give_the_same(tmp_path: Path) -> None:
    text = (
        HEADER + long_rows("s/1", [3, 1, 2]) + long_rows("s 2", [0, 2, 6], "sit", skip=(2, "b")).replace("6,c,8,2", "6,c,,nan")
    )
    (tmp_path / "a.csv").write_text(text)
    rows = read(tmp_path / "a.csv")
    first, second = rows
    assert isinstance(first, OwnSequence)
    assert isinstance(second, OwnSequence)
    assert (first.key, first.class_name, first.performer, first.camera, first.file) == (
        "s--1",
        "wave",
        "anna",
        None,
        "a.csv#s/1",
    )
    # Frames in any order; those of the second lie two apart, and the third of them has no row at all.
    assert first.read()[:, 0, :, 0].tolist() == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert second.read().shape == (4, 1, 3, 3)
    assert np.isnan(second.read()).any(3)[:, 0].tolist() == [
        [False] * 3,
        [False, True, False],
        [True] * 3,
        [False, False, True],
    ]
    table = pa.table(
        {
            name: list(column)
            for name, column in zip(
                HEADER.strip().split(","), zip(*(line.split(",") for line in text.splitlines()[1:]), strict=True), strict=True
            )
        }
    )
    numbers = [pa.array([float(value) if value else None for value in table[name].to_pylist()]) for name in "xyz"]
    table = table.set_column(3, "frame", pa.array([int(value) for value in table["frame"].to_pylist()]))
    for name, column in zip("xyz", numbers, strict=True):
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    for again, row in zip(read(tmp_path / "a.parquet"), (first, second), strict=True):
        assert isinstance(again, OwnSequence)
        assert np.array_equal(again.read(), row.read(), equal_nan=True)
        assert (again.key, again.class_name, again.performer) == (row.key, row.class_name, row.performer)


def test_joints_are_known_by_their_words_in_any_order_and_case(tmp_path: Path) -> None:
    face = Layout("face", ("nose", "eye_left", "eye_right"), ((0, 1), (0, 2)), 0)
    spellings = (
        ("nose", "left_eye", "right_eye"),
        ("NOSE", "LEFT_EYE", "RIGHT_EYE"),
        ("nose", "leftEye", "rightEye"),
        face.joints,
    )
    given = {"columns": TableColumns(), "delimiter": ",", "labels": None, "pattern": None, "leave_out": False}
    for joints in spellings:
        long = "".join(f"s,wave,{t},{joint},{t + number}\n" for t in range(2) for number, joint in enumerate(joints))
        (tmp_path / "t.csv").write_text(f"sequence,class,frame,joint,x\n{long}")
        wide = ",".join(f"{joint}_x" for joint in joints)
        (tmp_path / "w.csv").write_text(f"sequence,class,{wide}\ns,wave,0,1,2\ns,wave,1,2,3\n")
        for name, form_of in (("t", None), ("w", "{joint}_{axis}")):
            path = str(tmp_path / f"{name}.csv")
            (one,) = read_tables(path=path, layout=face, form=form(axes=("x",)), wide=form_of, **given)
            assert isinstance(one, OwnSequence), (joints, one)
            assert one.read()[:, 0, :, 0].tolist() == [[0, 1, 2], [1, 2, 3]]
    (tmp_path / "w.csv").write_text("sequence,class,nose_x,left_eye_x,LEFT_EYE_x,right_eye_x\ns,wave,0,1,2,3\n")
    with pytest.raises(ValueError, match="no column 'eye_left_x'"):  # two could be meant
        list(read_tables(path=path, layout=face, form=form(axes=("x",)), wide="{joint}_{axis}", **given))


def test_wide_tables_bodies_and_numbers_of_joints(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("frame;x0;x1;x2;class\n5;1;2;3;wave\n6;4;;6;wave\n")
    (one,) = read(
        tmp_path / "w.csv",
        form(axes=("x",)),
        wide="{axis}{number}",
        delimiter=";",
        columns=TableColumns(sequence="class"),
    )
    assert isinstance(one, OwnSequence)
    assert np.array_equal(one.read()[:, 0, :, 0], [[1, 2, 3], [4, np.nan, 6]], equal_nan=True)
    body = ["sequence,class,frame,body,joint,x,y,z"]
    body += [f"s,wave,{t},{who},{v},1,2,3" for t, who in ((0, "p"), (1, "p"), (1, "q"), (3, "q"), (3, "p")) for v in range(3)]
    (tmp_path / "b.csv").write_text("\n".join(body))
    (two,) = read(tmp_path / "b.csv")
    assert isinstance(two, OwnSequence)
    # p is missing in frame 2; q is not there before frame 1, and missing in frame 2.
    assert np.isnan(two.read()[..., 0, 0]).tolist() == [[False, False], [False, False], [True, True], [False, False]]
    assert not two.read()[0, 1].any()
    for wide, message in (
        ("{axis}", "several joints or axes to the same column"),
        ("{joint}_{x}", "expected .*: 'x'"),
        ("{joint}", "same column"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "w.csv", wide=wide)


def test_a_folder_of_tables_with_labels_and_a_pattern(tmp_path: Path) -> None:
    rows = long_rows("", [0, 1]).replace(",wave,anna", "").replace("\n,", "\n").lstrip(",")
    for name in ("wave/p1_c2.csv", "sit/p2_c1.csv"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_text("frame,joint,x,y,z\n" + rows)
    (tmp_path / "t/notes.txt").write_text("x")
    (tmp_path / "t/wave/p3_c1.csv").write_text("frame,joint,x\n1,a,1\n")
    found = read(tmp_path / "t", pattern=r"(?P<performer>p\d)_c(?P<camera>\d)")
    assert reasons(found) == ["unknown_format", "", "", "bad_table"]
    assert str(tmp_path) not in str(found)
    said = [(row.class_name, row.performer, row.camera, row.key) for row in found if isinstance(row, OwnSequence)]
    assert [each[:3] for each in said] == [("sit", "p2", "1"), ("wave", "p1", "2")]
    (tmp_path / "labels.csv").write_text("sequence,class,side\np1_c2,jump,test\nsit/p2_c1.csv,,train\n")
    found = [row for row in read(tmp_path / "t", labels=str(tmp_path / "labels.csv")) if isinstance(row, OwnSequence)]
    assert [(row.class_name, row.side) for row in found] == [("sit", "train"), ("jump", "test")]
    with pytest.raises(ValueError, match="groups"):
        read(tmp_path / "t", pattern="(?P<name>x)")
    (tmp_path / "labels.csv").write_text("sequence,class\na,b\na,c\n")
    with pytest.raises(ValueError, match="sequence 'a' appears twice"):
        read(tmp_path / "t", labels=str(tmp_path / "labels.csv"))
    (tmp_path / "labels.csv").write_text("sequence,class, class\na,b,c\n")
    with pytest.raises(ValueError, match=r"table '.*labels\.csv': its header names 'class' twice"):
        read(tmp_path / "t", labels=str(tmp_path / "labels.csv"))


def test_labels_are_texts_whatever_the_file_looks_like(tmp_path: Path) -> None:
    """Spaces in the header made numbers of the values, and a folder's name could make a CSV tab-separated."""
    folder = tmp_path / "of.tsv.files"
    folder.mkdir()
    (folder / "labels.csv").write_text('sequence, class,"side"\ns1,007,\n s2 ,"a, b",test\n')
    expected = {"s1": {"class": "007"}, "s2": {"class": "a, b", "side": "test"}}
    assert read_labels(str(folder / "labels.csv")) == expected
    (tmp_path / "labels.tsv.gz").write_bytes(gzip.compress(b"sequence\tclass\tside\ns1\t007\t\ns2\ta, b\ttest\n"))
    assert read_labels(str(tmp_path / "labels.tsv.gz")) == expected


def test_labels_of_a_parquet_file(tmp_path: Path) -> None:
    """Other columns are ignored, of whatever type; a small file may claim any amount of memory."""
    path = tmp_path / "labels.parquet"
    columns = {"sequence": ["s1", "s2"], "class": [7, None], "side": ["train ", "test"], "joints": [[1], [2, 3]]}
    pq.write_table(pa.table(columns), path)
    assert read_labels(str(path)) == {"s1": {"class": "7", "side": "train"}, "s2": {"side": "test"}}
    pq.write_table(pa.table({"sequence": ["s1"] * 100, "class": ["a" * (1 << 17)] * 100}), path)
    assert path.stat().st_size < 1 << 19
    with pytest.raises(ValueError, match=r"the rows of table '.*labels\.parquet' take 131,\d\d\d bytes each, 65,536 at most"):
        read_labels(str(path))
    pq.write_table(pa.table({"sequence": ["s1"], "who": ["a"]}), path)
    with pytest.raises(ValueError, match=r"labels\.parquet' has none of the columns class, camera, performer, side"):
        read_labels(str(path))
    pq.write_table(pa.table({"name": ["s1"], "class": ["a"]}), path)
    with pytest.raises(ValueError, match=r"labels\.parquet' has no column 'sequence' \(source\.labels\)"):
        read_labels(str(path))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (long_rows("s", [0, 1]).replace(",1,", ",one,", 1), "not_a_number"),
        (long_rows("s", [0, 1.5]), "bad_frame"),
        (long_rows("s", [0, 1]) + long_rows("s", [1]), "repeated_joint"),
        (long_rows("s", [0, 1]).replace(",b,", ",elbow,"), "wrong_joint_count"),
        (long_rows("s", [0, 1, 10**9]), "too_long"),
        (long_rows("s", [0]) + long_rows("s", [1], "sit"), "differs_within"),
        (long_rows("s", [0], ""), "no_class"),
        (long_rows("", [0]), "no_sequence"),
    ],
)
def test_rows_that_cannot_be_used_reject_their_sequence_alone(tmp_path: Path, rows: str, expected: str) -> None:
    (tmp_path / "a.csv").write_text(HEADER + rows + long_rows("good", [0, 1]))
    assert reasons(read(tmp_path / "a.csv")) == [expected, ""]


def test_other_joints_can_be_left_out(tmp_path: Path) -> None:
    more = long_rows("s", [0, 1]) + "s,wave,anna,0,elbow,1,1,1\n"
    (tmp_path / "a.csv").write_text(HEADER + more)
    assert reasons(read(tmp_path / "a.csv")) == ["wrong_joint_count"]
    (kept,) = read(tmp_path / "a.csv", leave_out=True)
    assert isinstance(kept, OwnSequence)
    assert kept.read().shape == (2, 1, 3, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            HEADER.replace("z", "zz") + "s,wave,anna,0,a,1,1,1\n",
            "has no column 'z', it has sequence, class.*see source.columns",
        ),
        (HEADER + long_rows("s", [0]) + long_rows("t", [0]) + long_rows("s", [1]), "'s' continues in row 7.*sort the table"),
        (HEADER + "s,wave,anna\n", "Expected 8 columns, got 3"),
        (HEADER + "s,wave,anna,0,a,\xff,1,1\n", "invalid UTF8|utf-8"),
        ("", "has no column 'x'"),
        (b"PAR1 this is no Parquet PAR1", r"table '.*a\.parquet' is not a valid Parquet file: its footer is damaged"),
    ],
)
def test_tables_that_are_none_are_told_in_one_line(tmp_path: Path, data: str | bytes, message: str) -> None:
    path = tmp_path / ("a.parquet" if isinstance(data, bytes) else "a.csv")
    path.write_bytes(data if isinstance(data, bytes) else data.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no table at"):
        read(tmp_path / "none.csv")


def test_memory_does_not_grow_with_the_sequences_of_a_table(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        """Most bytes of Arrow between sequences, and of Python at any time."""
        path = tmp_path / f"{count}.csv"
        path.write_text(HEADER + "".join(long_rows(f"s{number:05}", list(range(500))) for number in range(count)))
        given: dict[str, Any] = {"wide": None, "delimiter": ",", "labels": None, "pattern": None, "leave_out": False}
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        rows = read_tables(path=str(path), columns=TableColumns(), layout=LINE, form=form(), **given)
        most = max(pa.total_allocated_bytes() - before for _ in rows)
        python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most + python

    # The least of three each: how far Arrow's threads have read ahead depends on the machine's load.
    least = min(peak(40) for _ in range(3))  # 2 MB of text, and 8
    assert any(peak(160) < 1.25 * least for _ in range(3))


# ---------------------------------------------------------------------------------------------------- archives, pickles


def test_npz_of_ragged_sequences(tmp_path: Path) -> None:
    joints = [DRAWN.normal(size=(length, 3, 3)) for length in (2, 5, 3)]
    np.savez(
        tmp_path / "a.npz",
        **{f"{label}/{n}": each for n, (label, each) in enumerate(zip("bab", joints, strict=True))},
        odd=np.ones(3),
    )
    given: dict[str, Any] = {"classes": None, "names": None, "labels": None, "pattern": None}
    rows = list(read_npz(path=str(tmp_path / "a.npz"), sequences=None, **given))
    assert reasons(rows) == ["", "", "", "no_class"]
    assert [row.class_name for row in rows if isinstance(row, OwnSequence)] == ["b", "a", "b"]
    assert all(
        np.array_equal(row.read()[:, 0], each) for row, each in zip(rows, joints, strict=False) if isinstance(row, OwnSequence)
    )
    for stored in (joints, joints[:1] * 3):  # of one length numpy makes one array of objects of them
        np.savez(tmp_path / "b.npz", x=np.asarray(stored, dtype=object), y=np.asarray([1, 0, 7]), allow_pickle=True)
        rows = list(
            read_npz(path=str(tmp_path / "b.npz"), sequences="x", **{**given, "classes": "y", "names": ["sit", "wave"]})
        )
        assert reasons(rows) == ["", "", "bad_label"]
        assert [row.class_name for row in rows if isinstance(row, OwnSequence)] == ["wave", "sit"]
        assert isinstance(rows[0], OwnSequence)
        assert np.array_equal(rows[0].read()[:, 0], joints[0])
    with pytest.raises(ValueError, match="has no array 'z': it has x, y"):
        list(read_npz(path=str(tmp_path / "b.npz"), sequences="z", **given))
    (tmp_path / "c.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-40])
    np.savez(tmp_path / "d.npz", x=np.asarray([Evil(), 1], dtype=object))
    for name in ("c", "d"):
        with pytest.raises(ValueError, match=r"[cd]\.npz"):
            list(read_npz(path=str(tmp_path / f"{name}.npz"), sequences="x", **given))


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("run",))


def annotation(name: str, label: Any = 0, **more: Any) -> dict[str, Any]:
    points = DRAWN.normal(size=(2, 4, 3, 2)).astype(np.float16)
    return {"frame_dir": name, "label": label, "img_shape": (1080, 1920), "total_frames": 4, "keypoint": points, **more}


def pickled(tmp_path: Path, value: Any, **settings: Any) -> list[OwnSequence | Rejected]:
    (tmp_path / "a.pkl").write_bytes(value if isinstance(value, bytes) else pickle.dumps(value))
    given = {"names": ["sit", "wave"], "sides": {}, "labels": None, "pattern": None}
    return list(read_pyskl(path=str(tmp_path / "a.pkl"), **{**given, **settings}))


def test_pickles_of_pyskl(tmp_path: Path, capsys) -> None:
    score = DRAWN.uniform(size=(2, 4, 3)).astype(np.float16)
    some = [
        annotation("v1", 1, keypoint_score=score),
        annotation("v2", np.int64(0)),
        annotation("v3", 5),
        {"frame_dir": "v4"},
        3,
    ]
    some.append(annotation("v5", 0, keypoint_score=score[:1]))
    value = {"split": {"xsub_train": ["v1"], "xsub_val": ["v2", "v9"]}, "annotations": some}
    rows = pickled(tmp_path, value, sides={"train": "xsub_train", "test": "xsub_val"})
    assert reasons(rows) == ["", "", "bad_label", "not_an_annotation", "not_an_annotation", "not_an_annotation"]
    first, second = rows[:2]
    assert isinstance(first, OwnSequence)
    assert isinstance(second, OwnSequence)
    assert (first.key, first.class_name, first.side, second.side) == ("v1", "wave", "train", "test")
    assert first.read().shape == (4, 2, 3, 3)
    assert np.array_equal(first.read()[..., 2], score.transpose(1, 0, 2).astype("f4"))
    assert np.array_equal(first.read()[..., :2], some[0]["keypoint"].transpose(1, 0, 2, 3).astype("f4"))
    assert reasons(pickled(tmp_path, some[:2])) == ["", ""]  # a list alone, as older versions write it
    nested = b"\x80\x02" + b"]" * 5_000 + b"a" * 4_999 + b"."
    whole = pickle.dumps(value)
    for bad, message in (
        (Evil(), r"names builtins\.print"),
        ({"annotations": [Evil()]}, r"names builtins\.print"),
        (whole[:-30], "damaged"),
        (b"PK\x03\x04", "pickle"),
        (nested, "claims too much"),
        ({"annotations": {}}, "a list of annotations"),
    ):
        with pytest.raises(ValueError, match=message):
            pickled(tmp_path, bad)
    with pytest.raises(ValueError, match=r"no split 'xview_train', see source.sides: it has xsub_train, xsub_val"):
        pickled(tmp_path, value, sides={"train": "xview_train"})
    assert "run" not in capsys.readouterr().out


# ----------------------------------------------------------------------------------------------------------------- BVH

BVH = """HIERARCHY
ROOT Hips
{
  OFFSET 1 0 0
  CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation
  JOINT Arm
  {
    OFFSET 0 2 0
    CHANNELS 3 ORDER
    JOINT Hand { OFFSET 3 0 0 CHANNELS 0 End Site { OFFSET 1 0 0 } }
  }
}
MOTION
Frames: 2
Frame Time: 0.033
10 20 30 0 0 0 0 0 0
0 0 0 90 0 0 0 0 90
"""


def test_bvh_positions_by_hand() -> None:
    """The second frame: hips turn 90 degrees about z, the arm 90 about its own z as the last of its channels."""
    data = BVH.replace("ORDER", "Xrotation Yrotation Zrotation").encode()
    found = sequence_of_bvh(data, ["Hips", "Arm", "Hand", "Hand end"])
    assert np.allclose(found[0, 0], [[11, 20, 30], [11, 22, 30], [14, 22, 30], [15, 22, 30]])
    assert np.allclose(found[1, 0], [[1, 0, 0], [-1, 0, 0], [-4, 0, 0], [-5, 0, 0]])
    layout = layout_of_bvh(data, "body")
    assert (layout.joints, layout.edges, layout.centre) == (("Hips", "Arm", "Hand"), ((1, 0), (2, 1)), 0)
    assert sequence_of_bvh(data, ["Hand", "Hips"], leave_out=True).shape == (2, 1, 2, 3)
    with pytest.raises(Reject, match=r"joint 'Arm' of 1 that the layout does not have: see source.other_joints"):
        sequence_of_bvh(data, ["Hand", "Hips"])
    with pytest.raises(Reject, match="it has no joint 'Foot'; it has Hips, Arm"):
        sequence_of_bvh(data, ["Foot"])


@pytest.mark.parametrize("order", ["XYZ", "XZY", "YXZ", "YZX", "ZXY", "ZYX", "XYX", "ZX"])
def test_bvh_rotations_are_those_of_scipy(order: str) -> None:
    if len(set(order)) < len(order):
        assert reason(parse_bvh, BVH.replace("ORDER", " ".join(f"{axis}rotation" for axis in order)).encode()) == "not_bvh"
        return
    text = BVH.replace("3 ORDER", f"{len(order)} " + " ".join(f"{axis}rotation" for axis in order))
    head, _ = text.split("Frames:")
    motion = DRAWN.uniform(-180, 180, size=(5, 6 + len(order)))
    lines = "\n".join(" ".join(f"{value:.9f}" for value in line) for line in motion)
    joints, read_back = parse_bvh(f"{head}Frames: 5\nFrame Time: 0.1\n{lines}\n".encode())
    found = positions(joints, read_back)
    hips = Rotation.from_euler("ZXY", motion[:, 3:6], degrees=True)
    arm = hips * Rotation.from_euler(order, motion[:, 6:], degrees=True)
    root = motion[:, :3] + [1, 0, 0]
    assert np.allclose(found[:, 0], root, atol=1e-6)
    assert np.allclose(found[:, 1], root + hips.apply([0, 2, 0]), atol=1e-6)
    assert np.allclose(found[:, 2], found[:, 1] + arm.apply([3, 0, 0]), atol=1e-6)
    assert np.allclose(found[:, 3], found[:, 1] + arm.apply([4, 0, 0]), atol=1e-6)


def test_positions_of_a_joint_take_the_place_of_its_offset() -> None:
    text = BVH.replace("3 ORDER", "3 Xposition Yposition Zposition").replace("0 0 0 0 0 0 0 0 0", "")
    found = sequence_of_bvh(text.replace("30 0 0 0 0 0 0", "30 0 0 0 5 6 7").encode(), ["Hips", "Arm", "Hand"])
    assert np.allclose(found[0, 0], [[11, 20, 30], [16, 26, 37], [19, 26, 37]])


def test_bvh_files_that_are_none() -> None:
    good = BVH.replace("ORDER", "Xrotation Yrotation Zrotation")
    deep = "HIERARCHY\nROOT a { OFFSET 0 0 0 " + "".join(f"JOINT j{n} {{ " for n in range(5000))
    sparse = "HIERARCHY\nROOT a { OFFSET 0 0 0 CHANNELS 1 Xposition " + "".join(
        f"JOINT j{n} {{ OFFSET 0 0 1 }} " for n in range(900)
    )
    wide = f"{sparse}}}\nMOTION\nFrames: 20000\nFrame Time: 1\n" + "0\n" * 20_000
    for text, expected in (
        ("", "empty"),
        ("solid cube", "not_bvh"),
        ("\xff\xfe", "not_bvh"),
        (good[:120], "truncated"),
        (good.partition("MOTION")[0], "truncated"),
        (good[:-20], "truncated"),
        (good[:-6], "bad_frame"),
        (good.replace("Frames: 2", "Frames: 999999999"), "truncated"),
        (good.replace("Frames: 2", "Frames: 1"), "trailing_lines"),
        (good.replace("Frames: 2", "Frames: two"), "not_bvh"),
        (good.partition("10 20")[0], "no_frames"),
        (good.replace("10 20", "nan 20"), "not_finite"),
        (good.replace("10 20", "ten 20"), "not_a_number"),
        (good.replace("OFFSET 0 2 0", "OFFSET 0 2"), "not_bvh"),
        (good.replace("CHANNELS 6", "CHANNELS 600000000"), "not_bvh"),
        (good.replace("JOINT Arm", "JOINT Hips"), "not_bvh"),
        (good.replace("JOINT Arm", "ROOT Arm"), "not_bvh"),
        (deep, "not_bvh"),
        (wide, "too_large"),
    ):
        wanted = ["a" if expected == "too_large" else "Hips"]
        assert (text[:20], reason(sequence_of_bvh, text.encode("latin-1"), wanted, leave_out=True)) == (text[:20], expected)


def test_any_damage_of_bvh_is_a_reject_and_nothing_else() -> None:
    good = BVH.replace("ORDER", "Xrotation Yrotation Zrotation").encode()
    turned = 0
    for cut in range(0, len(good), 5):
        mutated = bytearray(good)
        mutated[cut] = int(DRAWN.integers(0, 256))
        for data in (good[:cut], bytes(mutated), good[:cut] + good[cut + 3 :]):
            try:
                assert sequence_of_bvh(data, ["Hips"], leave_out=True).shape[2:] == (1, 3)
            except Reject:
                turned += 1
    assert turned > len(good) // 10


# ------------------------------------------------------------------------------------------------------------- layouts


def test_packaged_layouts_of_other_trackers() -> None:
    """Numbers of joints, and of edges as their makers publish them; some bones by name, and the ends of each tree."""
    told = {"coco_17": (17, 16), "openpose_25": (25, 24), "mediapipe_33": (33, 39), "smpl_24": (24, 23)}
    for name, counts in told.items():
        layout = built_in_layouts()[name]
        assert (len(layout.joints), len(layout.edges)) == counts
        bones = {frozenset((layout.joints[one], layout.joints[other])) for one, other in layout.edges}
        for side in ("left", "right"):  # each side is the other one mirrored
            other = {"left": "right", "right": "left"}[side]
            assert {
                frozenset(joint.replace(side, other) for joint in bone)
                for bone in bones
                if any(side in j for j in bone) and not any(other in j for j in bone)
            } <= bones
            assert {f"{part}_{side}" for part in ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")} <= set(layout.joints)
            assert frozenset((f"elbow_{side}", f"wrist_{side}")) in bones
            assert frozenset((f"knee_{side}", f"hip_{side}")) in bones


# -------------------------------------------------------------------------------------------------------------- splits


def listed(**columns: list[Any]) -> Rows:
    count = len(next(iter(columns.values())))
    keys = [f"k{number}" for number in range(count)]
    return Rows.of(
        pa.table(
            {
                "key": keys,
                "file": [f"f/{key}.npy" for key in keys],
                "label": [0] * count,
                "class_name": ["a"] * count,
                **columns,
            }
        )
    )


def roles(rows: Rows, **settings: Any) -> list[str]:
    given = {"val_share": 0, "test_share": 0, "classes_per_task": 1}
    return next(split(rows, **{**given, **settings}))["role"].to_pylist()


def test_splits_by_performer_camera_source_and_list(tmp_path: Path) -> None:
    rows = listed(performer=["p1", "p2", "p1", "p3"], side=["train", "test", "val", "train"])
    assert roles(rows, rule="performer", test_groups=["p1"]) == ["test", "train", "test", "train"]
    assert roles(rows, rule="performer", test_groups=["p1"], val_groups=["p2"]) == ["test", "val", "test", "train"]
    assert roles(rows, rule="source", val_share=0.5) == ["train", "test", "val", "train"]  # the source says what validates
    assert roles(listed(camera=[1, 2, 3, 3]), rule="camera", test_groups=["3"], val_share=0.5) == [
        "train",
        "val",
        "test",
        "test",
    ]
    (tmp_path / "roles.csv").write_text("sequence,role\nk0,test\nf/k2.npy,train\nk3,train\n")
    (tmp_path / "roles.json").write_text(json.dumps({"train": ["k2", "k3"], "test": ["k0"]}))
    for name in ("roles.csv", "roles.json"):
        [(kept, away)] = select_sequences(rows, classes=None, only={}, roles=str(tmp_path / name))
        assert away["reason"].to_pylist() == ["not_in_list"]
        assert roles(Rows.of(kept), rule="list", roles=str(tmp_path / name)) == ["test", "train", "train"]
    for settings, message in (
        ({"rule": "performer", "test_groups": ["p4"]}, "split.test_groups has 'p4': there are p1, p2, p3"),
        ({"rule": "performer", "test_groups": ["p1"], "val_groups": ["p1"]}, "in val_groups and in test_groups"),
        ({"rule": "performer", "test_groups": ["p1", "p2", "p3"]}, "no sequence has the role train"),
        ({"rule": "camera", "test_groups": ["1"]}, "sequences of this source have no camera"),
        ({"rule": "x_sub"}, "sequences of this source have no x_sub"),
        ({"rule": "list", "roles": str(tmp_path / "roles.csv")}, "sequence 'k1'"),
    ):
        with pytest.raises(ValueError, match=message):
            roles(rows, **settings)
    (tmp_path / "roles.json").write_text("{")
    with pytest.raises(ValueError, match=r"split\.roles '.*roles\.json' is not JSON: "):
        roles(rows, rule="list", roles=str(tmp_path / "roles.json"))
    (tmp_path / "roles.csv").write_text("sequence,role\nk0,testing\n")
    with pytest.raises(ValueError, match="'k0' has the role 'testing'"):
        roles(rows, rule="list", roles=str(tmp_path / "roles.csv"))


def test_no_share_validates_where_none_is_asked_for() -> None:
    assert roles(listed(x=[0] * 4), rule="shares", test_share=0.1) == ["train", "train", "train", "test"]
    assert roles(listed(x=[0] * 4), rule="shares", test_share=0.1, val_share=0.1) == ["train", "train", "val", "test"]


def test_folders_know_classes_by_labels_and_patterns(tmp_path: Path) -> None:
    for name in ("wave/s01_c1.npy", "s02_c2.bvh", "s03_c2.npy"):
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_bytes(b"x")
    assert reasons(list(list_class_folders(root=str(tmp_path / "f")))) == ["no_class_folder", "no_class_folder", ""]
    (tmp_path / "labels.csv").write_text("sequence,class\ns02_c2,sit\n")
    found = list(
        list_class_folders(root=str(tmp_path / "f"), labels=str(tmp_path / "labels.csv"), pattern=r"(?P<performer>s\d+)_")
    )
    assert reasons(found) == ["", "no_class", ""]
    assert [(row.class_name, row.performer) for row in found if not isinstance(row, Rejected)] == [
        ("sit", "s02"),
        ("wave", "s01"),
    ]
