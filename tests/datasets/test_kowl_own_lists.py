"""Lists of one's own: every form gives the same samples, ids of any form, no times needed, splits by rule."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation.rows import Rejected
from benchwright.datasets.kinetics.inventory import keep_held, read_inventory
from benchwright.datasets.kowl.own_lists import (
    LeftOut,
    ListColumns,
    OwnListed,
    SplitShares,
    TableFile,
    draw_splits,
    listed_tables,
    read_table,
)
from benchwright.datasets.kowl.unify import unify

from tests.datasets.kowl_rows import gathered, stored

COLUMNS = ListColumns(id="clip", label="what", split="part", start="from", end="to")
ROWS = [
    {"clip": "a/b c.mp4", "what": "diving", "part": "train", "from": 0, "to": 10},
    {"clip": "ü-17", "what": "run, fast", "part": "Validation", "from": None, "to": None},
    {"clip": "42", "what": None, "part": "test", "from": 3, "to": 5},
]


def read(folder: Path, *files: TableFile, columns: ListColumns = COLUMNS) -> tuple[list[OwnListed], list[tuple[str, str]]]:
    found = [
        row
        for piece in listed_tables(root=str(folder), files=files, columns=columns)
        for row in read_table(piece, root=str(folder), columns=columns)
    ]
    rejects = [(row.key, row.reason) for row in found if isinstance(row, Rejected)]
    return [row for row in found if isinstance(row, OwnListed)], rejects


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    else:
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
        text = stream.getvalue().encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "a.json", "a.jsonl"])
def test_every_form_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, ROWS)
    rows, rejects = read(tmp_path, TableFile(name, release="new"))
    assert rejects == []
    assert [(r.youtube_id, r.label, r.split, r.time_start, r.time_end) for r in rows] == [
        ("a/b c.mp4", "diving", "train", 0, 10),
        ("ü-17", "run, fast", "validate", None, None),
        ("42", None, "test", 3, 5),
    ]
    assert all(r.key.startswith(f"{name}:") for r in rows)


def test_an_object_of_objects_has_ids_as_names(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"v 1": {"what": "diving"}, "v 2": {"what": "jumping"}, "v 3": 7}))
    rows, rejects = read(tmp_path, TableFile("a.json", release="new", split="train"), columns=ListColumns("id", "what"))
    assert [(r.youtube_id, r.label, r.split) for r in rows] == [("v 1", "diving", "train"), ("v 2", "jumping", "train")]
    assert rejects == [("a.json:3", "malformed_row")]


def test_columns_may_differ_from_file_to_file_and_name_the_release(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", [{"clip": "1", "what": "x"}])
    write(tmp_path / "b.csv", [{"id": "2", "label": "y", "of": "second"}, {"id": "3", "label": "y", "of": ""}])
    own = ListColumns(release="of")
    rows, rejects = read(
        tmp_path, TableFile("a.csv", "first"), TableFile("b.csv", columns=own), columns=ListColumns("clip", "what")
    )
    assert [(r.youtube_id, r.release) for r in rows] == [("1", "first"), ("2", "second")]
    assert rejects == [("b.csv:3", "no_release")]


def test_bad_rows_are_rejects(tmp_path: Path) -> None:
    text = (
        "clip,what,part,from,to\n,x,train,0,1\nb,x,learn,0,1\nc,x,train,nan,1\nd,x,train,2,1\ne,x,train,2,\nf,x\ng,x,test,,\n"
        "h,x,train,1.0001,1.0004\n"
    )
    (tmp_path / "a.csv").write_text(text)
    rows, rejects = read(tmp_path, TableFile("a.csv", "new", split="test"))
    assert [r.youtube_id for r in rows] == ["g"]
    reasons = ["empty_id", "bad_split", "bad_split", "bad_split", "bad_split", "malformed_row", "", "bad_split"]
    assert rejects == [(f"a.csv:{n}", reason) for n, reason in enumerate(reasons, 2) if reason]
    assert [r for _, r in read(tmp_path, TableFile("a.csv", "new"))[1]] == [
        "empty_id", "bad_split", "bad_time", "bad_time", "bad_time", "malformed_row", "bad_time",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.json"])
def test_times_may_be_fractions_of_seconds(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, [
        {"clip": "v.1", "what": "x", "part": "train", "from": 7.25, "to": 9.0},
        {"clip": "v.1", "what": "y", "part": "train", "from": 7.2504, "to": 9},
        {"clip": "v.1", "what": "y", "part": "train", "from": 7.251, "to": 9.5},
        {"clip": "v.1", "what": "z", "part": "train", "from": 3, "to": 4},
    ])  # fmt: skip
    found, rejects = read(tmp_path, TableFile(name, "old"))
    assert rejects == []
    times = [("time_start", pa.float64()), ("time_end", pa.float64())]
    schema = pa.schema([*((each, pa.string()) for each in vars(found[0]) if not each.startswith("time")), *times])
    listed = stored(tmp_path / "rows", pa.Table.from_pylist([vars(row) for row in found], schema))
    kept, rejects = gathered(unify(listed, releases=["old"], renames={}))
    assert list(zip(*kept.select(["key", "feature_key", "time_start", "time_end"]).to_pydict().values(), strict=True)) == [
        ("v%2E1_000007%2E251_000009%2E500", "v.1_000007.251_000009.500", 7.251, 9.5),
        ("v%2E1_000003_000004", "v.1_000003_000004", 3.0, 4.0),
    ]
    assert [reason for _, reason, _ in rejects] == ["conflicting_labels"] * 2  # of the same millisecond
    assert kept.schema.field("time_end").type == pa.float64()

    (tmp_path / "held.txt").write_text("v.1_000007.251_000009.500.mp4\nx,v.1,3,4,train\nv.1_000003_000004.500.mp4\n")
    parts = list(read_inventory(path=str(tmp_path / "held.txt"), id_pattern=r"v\.\d", fractions=True))
    assert parts[0].kept["time_end"].to_pylist() == [9.5, 4.0, 4.5]
    held = stored(tmp_path / "held", parts[0].kept)
    lacking, _ = gathered(keep_held(stored(tmp_path / "kept", kept), inventory=held, means="missing", reason="no_video"))
    assert lacking.num_rows == 0


@pytest.mark.parametrize(
    ("file", "columns", "says"),
    [
        (
            TableFile("a.csv", "new"),
            ListColumns("clip", "label"),
            r"no column 'label' \(source.columns.label\): it has clip, what",
        ),
        (TableFile("a.csv"), COLUMNS, "say its release"),
        (TableFile("a.csv", "new"), ListColumns("clip", "what", release="part"), "but not both"),
        (TableFile("a.xlsx", "new"), COLUMNS, "are read"),
        (TableFile("../a.csv", "new"), COLUMNS, "a path within"),
        (TableFile("a.csv", "new", split="dev"), COLUMNS, "is not one of train, validate, test"),
        (TableFile("twice.csv", "new"), ListColumns("clip", "what"), "names 'clip' twice"),
        (TableFile("no.parquet", "new"), COLUMNS, "is not a valid Parquet file"),
        (TableFile("no.json", "new"), COLUMNS, "cannot be read as JSON"),
    ],
)
def test_what_is_no_list_is_told(file: TableFile, columns: ListColumns, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("clip,what,part,from,to\n")
    (tmp_path / "twice.csv").write_text("clip,what,clip\n1,2,3\n")
    for name in ("no.parquet", "no.json", "a.xlsx"):
        (tmp_path / name).write_text("{no")
    with pytest.raises(ValueError, match=says):
        read(tmp_path, file, columns=columns)


DEFAULT = SplitShares()


def drawn(
    folder: Path, columns: ListColumns, *files: TableFile, shares: SplitShares = DEFAULT, renames: Mapping[str, str] = {}
) -> list[dict[str, Any]]:
    found, rejects = read(folder, *files, columns=columns)
    assert rejects == []
    names = [(each, pa.float64() if each.startswith("time") else pa.string()) for each in vars(found[0])]
    listed = stored(folder / "rows", pa.Table.from_pylist([vars(row) for row in found], pa.schema(names)))
    kept, rejects = gathered(draw_splits(listed, shares=shares, renames=renames, seed=0))
    assert rejects == []
    return kept.to_pylist()


def test_splits_are_drawn_by_id_and_shares_are_kept(tmp_path: Path) -> None:
    rows = [{"clip": f"v{n // 2}", "what": "x", "from": n % 2, "to": n % 2 + 1} for n in range(4000)]
    write(tmp_path / "a.parquet", rows)
    found = drawn(tmp_path, ListColumns("clip", "what", start="from", end="to"), TableFile("a.parquet", "new"))
    splits = [row["split"] for row in found]
    assert splits[::2] == splits[1::2]  # both clips of a video
    assert [splits.count(name) / 4000 for name in ("train", "validate", "test")] == pytest.approx([0.7, 0.1, 0.2], abs=0.02)
    with pytest.raises(ValueError, match="their sum is 0 to below 1"):
        SplitShares(0.5, 0.5)


BY_CAMERA = ListColumns("clip", "what", split="part", group="camera")


def test_groups_stay_whole_where_splits_are_drawn(tmp_path: Path) -> None:
    clips = [{"clip": str(n), "what": "x", "camera": f"cam-{n % 7}", "part": ""} for n in range(700)]
    write(tmp_path / "a.csv", [*clips, {"clip": "listed", "what": "x", "camera": "cam-1", "part": "val"}])
    write(tmp_path / "b.json", [{"clip": "3", "what": "x"}, {"clip": "alone", "what": "x"}])  # 3 is of cam-3 here, too
    files = TableFile("a.csv", "old"), TableFile("b.json", "new", columns=ListColumns("clip", "what"))
    found = drawn(tmp_path, BY_CAMERA, *files, shares=SplitShares(0.15, 0.3))
    splits = [{row["split"] for row in found if row["group"] == f"cam-{n}" and row["youtube_id"] != "listed"} for n in range(7)]
    assert sorted(split for [split] in splits) == ["test"] * 2 + ["train"] * 4 + ["validate"]
    told = {(row["youtube_id"], row["release"]): (row["split"], row["group"]) for row in found}
    assert told["listed", "old"] == ("validate", "cam-1")
    assert told["3", "new"] == told["3", "old"]
    assert told["alone", "new"][1] is None


def test_whole_classes_and_groups_are_left_out_to_test(tmp_path: Path) -> None:
    write(
        tmp_path / "a.csv",
        [{"clip": str(n), "what": ("run", "dive")[n % 2], "part": "", "camera": "ab"[n % 20 < 3]} for n in range(200)],
    )
    write(
        tmp_path / "b.csv",
        [{"clip": "1", "what": "surf", "part": "", "camera": ""}, {"clip": "n", "what": "dive", "part": "train", "camera": ""}],
    )
    files = TableFile("a.csv", "old"), TableFile("b.csv", "new")
    renames = {"run": "run outdoors"}

    def left(labels: Sequence[str] = (), groups: Sequence[str] = ()) -> list[dict[str, Any]]:
        shares = SplitShares(0.2, 0.0, leave_out=LeftOut(list(labels), list(groups)))
        return drawn(tmp_path, BY_CAMERA, *files, shares=shares, renames=renames)

    found = left(["run outdoors", "surf"], ["b"])
    tested = {row["youtube_id"] for row in found if row["split"] == "test"}
    assert tested == {str(n) for n in range(200) if n % 2 == 0 or n % 20 < 3 or n == 1}  # 1 is surf in the new release
    assert {row["split"] for row in found if row["youtube_id"] == "n"} == {"train"}  # its list says so
    with pytest.raises(
        ValueError, match=r"leave_out.labels: no row without a split is of 'dance': there are dive, run, run out"
    ):
        left(["dance"])
    with pytest.raises(ValueError, match=r"leave_out.groups: no row without a split is of 'c': there are a, b"):
        left(groups=["c"])


def test_samples_without_times_are_joined_by_their_id(tmp_path: Path) -> None:
    write(tmp_path / "a.json", [{"clip": "a.b/c", "what": "x"}, {"clip": "d", "what": "x"}])
    write(tmp_path / "b.json", [{"clip": "a.b/c", "what": "y"}, {"clip": "a.b/c", "what": "y"}])
    columns = ListColumns("clip", "what")
    found, _ = read(tmp_path, TableFile("a.json", "old", "train"), TableFile("b.json", "new", "test"), columns=columns)
    listed = stored(tmp_path / "rows", pa.Table.from_pylist([vars(row) for row in found], pa.schema(
        [(name, pa.int64() if name.startswith("time") else pa.string()) for name in vars(found[0])]
    )))  # fmt: skip
    kept, rejects = gathered(unify(listed, releases=["old", "new"], renames={}))
    assert kept.select(["key", "feature_key", "label_recent_first", "time_start", "split_new"]).to_pylist() == [
        {"key": "a%2Eb%2Fc", "feature_key": "a.b/c", "label_recent_first": "y", "time_start": None, "split_new": "test"},
        {"key": "d", "feature_key": "d", "label_recent_first": "x", "time_start": None, "split_new": None},
    ]
    assert [reason for _, reason, _ in rejects] == ["duplicate_row", "merged"]


def test_a_draw_depends_on_no_division_into_parts(tmp_path: Path) -> None:
    rows = [
        {"key": str(n), "split": ("", "", "train")[n % 3], "label": ("run", "dive")[n % 2], "youtube_id": f"v{n % 40}"}
        | {"group": None if n % 4 else f"cam-{n % 40 % 5}"}
        for n in range(120)
    ]
    table = pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in rows[0]]))
    shares = SplitShares(0.2, 0.2, leave_out=LeftOut(["dive"], ["cam-3"]))
    whole, parts = (
        gathered(draw_splits(stored(tmp_path / name, *some), shares=shares, seed=0))[0].to_pylist()
        for name, some in {"whole": [table], "parts": [table.slice(at, 7) for at in range(0, 120, 7)]}.items()
    )
    assert whole == parts
    assert {row["split"] for row in whole} == {"train", "validate", "test"}
    assert all(len({r["group"] for r in whole if r["youtube_id"] == f"v{n}"}) == 1 for n in range(40))
