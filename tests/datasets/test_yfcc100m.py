"""The metadata of YFCC100M: every form of it, every way in which a line can be wrong, and the sum of rows and rejects."""

from __future__ import annotations

import bz2
import collections
import contextlib
import datetime as dt
import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.curation.rows import schema_of
from benchwright.datasets.yfcc100m import lines as text_lines
from benchwright.datasets.yfcc100m import metadata, sqlite
from benchwright.datasets.yfcc100m.fields import COLUMNS, EXTRA, LAYOUTS
from benchwright.datasets.yfcc100m.metadata import Photo, pieces, read_metadata

GOOD = {
    "line": "0",
    "id": "6185218911",
    "hash": "4e2f7a26a1dfbf165a7e30bdabf7e72a",
    "user_id": "39019111@N00",
    "nickname": "guckxzs",
    "date_taken": "2006-02-28 20:33:06.0",
    "date_uploaded": "1141639556",
    "device": "Canon+PowerShot+ELPH+310+HS",
    "title": "caf%C3%A9+%22au%22+lait",
    "description": 'says "hi',
    "user_tags": "canon,canon+powershot",
    "machine_tags": "",
    "longitude": "-81.804885",
    "latitude": "24.550558",
    "accuracy": "12",
    "page_url": "http://www.flickr.com/photos/39019111@N00/6185218911/",
    "url": "http://farm7.staticflickr.com/6161/6185218911_d3f2e1.jpg",
    "licence": "Attribution License",
    "licence_url": "http://creativecommons.org/licenses/by/2.0/",
    "server_id": "6161",
    "farm_id": "7",
    "secret": "d3f2e1",
    "secret_original": "abc",
    "extension": "jpg",
    "marker": "0",
}


def line(columns: int = 23, **changes: str) -> bytes:
    fields = {**GOOD, **changes}
    return "\t".join(fields[name] for name in LAYOUTS[columns]).encode("utf-8", "surrogateescape")


def read(path: Path, piece_bytes: int = metadata.PIECE_BYTES, **settings: object) -> tuple[pa.Table, list[dict[str, str]]]:
    sifted = [
        part
        for piece in pieces(path=str(path), piece_bytes=piece_bytes)
        for part in read_metadata(piece, path=str(path), **settings)  # type: ignore[arg-type]
    ]
    kept = pa.concat_tables([part.kept for part in sifted])
    return kept, [reject for part in sifted for reject in part.rejected.to_pylist()]


def write(folder: Path, *lines: bytes, name: str = "yfcc100m_dataset", end: bytes = b"\n") -> Path:
    path = folder / name
    path.write_bytes(b"".join(one + end for one in lines))
    return path


@pytest.fixture(params=["plain", "gz", "bz2"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    pack = {"plain": lambda data: data, "gz": gzip.compress, "bz2": bz2.compress}[request.param]
    name = {"plain": "m.tsv", "gz": "m.tsv.gz", "bz2": "m.tsv.bz2"}[request.param]

    def make(*lines: bytes, end: bytes = b"\n") -> Path:
        path = tmp_path / name
        path.write_bytes(pack(b"".join(one + end for one in lines)))
        return path

    return make


@pytest.mark.parametrize("columns", [23, 25])
def test_reads_both_forms_however_they_are_packed(packed: Callable[..., Path], columns: int) -> None:
    kept, rejects = read(packed(line(columns), line(columns, id="5", extension="", licence="")))
    assert rejects == []
    assert kept.schema.names == schema_of(Photo).names
    assert kept.schema.types == schema_of(Photo).types
    assert kept.to_pylist() == [
        {
            "key": "6185218911",
            "date_taken": dt.datetime(2006, 2, 28, 20, 33, 6),
            "date_uploaded": dt.datetime(2006, 3, 6, 10, 5, 56),
            "uploaded_unix": "1141639556",
            "url": GOOD["url"],
            "extension": "jpg",
            "licence": "Attribution License",
        },
        kept.to_pylist()[0] | {"key": "5", "extension": "", "licence": ""},
    ]


def test_text_is_decoded_and_quotes_mean_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, line(25), line(25, id="2", title="a%FFb", nickname="50%25+off"))
    text = ("title", "description", "device", "user_tags", "machine_tags", "nickname")
    kept, rejects = read(path, extra=(*text, "hash", "longitude"))
    assert rejects == []
    first, second = kept.to_pylist()
    assert first["title"] == 'café "au" lait'
    assert first["description"] == 'says "hi'
    assert first["device"] == "Canon PowerShot ELPH 310 HS"
    assert first["user_tags"] == "canon,canon powershot"
    assert first["machine_tags"] == ""
    assert first["hash"] == GOOD["hash"]
    assert first["longitude"] == "-81.804885"
    assert second["title"] == "a\ufffdb"
    assert second["nickname"] == "50% off"


def test_extra_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, line())
    with pytest.raises(ValueError, match="extra column 'colour': there are hash, user_id"):
        read(path, extra=("colour",))
    with pytest.raises(ValueError, match="23 columns has no column 'hash'"):
        read(path, extra=("hash",))
    with pytest.raises(ValueError, match="extra columns title, device, title: each may be requested only once"):
        read(path, extra=("title", "device", "title"))
    assert {"title", "hash", "secret_original"} <= set(EXTRA)


BROKEN = {
    "line_too_long": (line(description="x" * text_lines.MAX_LINE_BYTES), "more than 1,048,576 bytes"),
    "blank_line": (b"", "nothing on it"),
    "nul_byte": (line(title="a\0b"), f"NUL at byte {line(title='').index(b'says')} of the line"),
    "bad_utf8": (line(title="a\udcffb"), f"b'\\xffb\\ts' at byte {line(title='').index(b'says')} of the line is not UTF-8"),
    "wrong_column_count": (line()[:-2], "22 columns, 23 expected"),
    "bad_id": (line(id="photo"), "id 'photo' is not a positive whole number of at most 18 digits"),
}
UNUSABLE = {
    "bad_marker": ({"marker": "2"}, "marker '2' is not 0 or 1"),
    "not_a_photo": ({"marker": "1"}, "marker '1' is not 0: a video"),
    "null_date_taken": ({"date_taken": "null"}, "date_taken 'null' is not a time"),
    "bad_date_taken": (
        {"date_taken": "2006-02-30 20:33:06.0"},
        "date_taken '2006-02-30 20:33:06.0' is not like 2006-02-28 20:33:06.0",
    ),
    "null_date_uploaded": ({"date_uploaded": "null"}, "date_uploaded 'null' is not a time"),
    "bad_date_uploaded": ({"date_uploaded": "1141639556.5"}, "date_uploaded '1141639556.5' is not seconds since 1970"),
    "taken_not_before_upload": (
        {"date_taken": "2006-03-06 10:05:56.0"},
        "date_taken 2006-03-06 10:05:56.0 is not before date_uploaded 2006-03-06 10:05:56.000000",
    ),
    "no_url": ({"url": ""}, "url is empty"),
    "licence_not_wanted": ({"licence": "All rights reserved"}, "licence 'All rights reserved' is not among those requested"),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_lines_without_an_id_are_named_by_their_place(packed: Callable[..., Path], reason: str) -> None:
    broken, seen = BROKEN[reason]
    path = packed(line(id="1"), broken, line(id="3"))
    kept, rejects = read(path)
    unit, place = ("byte", len(line(id="1")) + 1) if path.suffix == ".tsv" else ("line", 2)
    assert kept["key"].to_pylist() == ["1", "3"]
    assert rejects == [{"key": f"{path.name}:{place}", "reason": reason, "detail": f"{unit} {place}: {seen}"}]


@pytest.mark.parametrize("reason", UNUSABLE)
def test_lines_with_an_id_are_named_by_it(tmp_path: Path, reason: str) -> None:
    changes, detail = UNUSABLE[reason]
    kept, rejects = read(write(tmp_path, line(id="1"), line(id="2", **changes), line(id="3")), licences=["Attribution License"])
    assert kept["key"].to_pylist() == ["1", "3"]
    assert rejects == [{"key": "2", "reason": reason, "detail": detail}]


def test_every_reason_of_the_docstring_is_tested() -> None:
    told = {word.strip("`") for word in (metadata.__doc__ or "").split() if word.startswith("``")}
    assert {*BROKEN, *UNUSABLE} <= told


@pytest.mark.parametrize(
    ("taken", "good"),
    [
        ("2006-03-06 10:05:55.0", True),
        ("2006-03-06 10:05:55", True),
        ("2006-03-06 10:05:55.999999", True),
        ("2006-03-06 10:05:55.9", True),
        ("0001-01-01 00:00:00.0", True),
        ("0000-01-01 00:00:00.0", False),
        ("2006-03-06 10:05:56.000001", False),
        ("2006-03-06T10:05:55", False),
        ("2006-3-6 10:05:55.00", False),
        ("2006-03-06", False),
        ("2006-02-29 00:00:00.0", False),
        ("2006-03-06 24:00:00.0", False),
        ("+006-03-06 10:05:55.0", False),
        ("2006-03-06 10:05:55.0 ", False),
        ("", False),
    ],
)
def test_capture_times(tmp_path: Path, taken: str, good: bool) -> None:
    kept, rejects = read(write(tmp_path, line(date_taken=taken)))
    assert (kept.num_rows, len(rejects)) == ((1, 0) if good else (0, 1))
    if good:
        whole, _, fraction = taken.partition(".")
        assert kept["date_taken"][0].as_py() == dt.datetime.fromisoformat(f"{whole}.{fraction or 0:0<6}")


def test_strictly_before_and_compared_as_they_stand(tmp_path: Path) -> None:
    # Captured 2006-02-28 by the camera's clock, uploaded 2006-03-06 in UTC.
    kept, _ = read(write(tmp_path, line(date_taken="2006-03-06 10:05:55.0"), line(date_taken="2006-03-06 10:05:56.0")))
    assert kept["date_taken"].to_pylist() == [dt.datetime(2006, 3, 6, 10, 5, 55)]


@pytest.mark.parametrize("title", ["plain", "caf\u00e9"])
def test_a_photo_without_a_licence_has_none_that_is_asked_for(tmp_path: Path, title: str) -> None:
    kept, rejects = read(write(tmp_path, line(licence="", title=title)), licences=["", "Attribution License"])
    assert (kept.num_rows, [reject["reason"] for reject in rejects]) == (0, ["licence_not_wanted"])


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_line_ends(packed: Callable[..., Path], end: bytes) -> None:
    kept, rejects = read(packed(line(id="1"), line(id="2", marker="1"), b"", line(id="3"), end=end))
    assert kept["key"].to_pylist() == ["1", "3"]
    assert sorted(reject["reason"] for reject in rejects) == ["blank_line", "not_a_photo"]


def test_no_newline_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(line(id="1") + b"\n" + line(id="2"))
    assert read(path)[0]["key"].to_pylist() == ["1", "2"]
    path.write_bytes(line(id="1") + b"\n" + line(id="2")[:-2])
    kept, rejects = read(path)
    assert (kept.num_rows, [reject["reason"] for reject in rejects]) == (1, ["wrong_column_count"])


def test_a_header_line_is_a_reject(tmp_path: Path) -> None:
    kept, rejects = read(write(tmp_path, "\t".join(COLUMNS).encode(), line()))
    assert kept.num_rows == 1
    assert [(reject["key"], reject["reason"]) for reject in rejects] == [("yfcc100m_dataset:0", "bad_id")]


def test_too_few_and_too_many_columns_do_not_cancel(tmp_path: Path) -> None:
    # 22 and 24 columns have as many tabs together as two lines of 23, so a count over the block does not see them.
    kept, rejects = read(write(tmp_path, line(id="1"), line(id="2")[:-2], line(id="3") + b"\tx", line(id="4")))
    assert kept["key"].to_pylist() == ["1", "4"]
    assert [reject["detail"].partition(": ")[2] for reject in rejects] == ["22 columns, 23 expected", "24 columns, 23 expected"]


def mixed(count: int) -> list[bytes]:
    odd = [broken for broken, _ in BROKEN.values() if len(broken) < 1000] + [line(marker="1"), line(date_taken="null")]
    return [odd[n // 7 % len(odd)] if n % 7 == 3 else line(id=str(n + 1), title="x" * (n % 50)) for n in range(count)]


@pytest.mark.parametrize("count", [1, 39, 40, 41, 60, 99])
def test_the_first_lines_whether_rows_or_rejects(
    packed: Callable[..., Path], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata.lines, "BLOCK_BYTES", 700)
    path, every = packed(*mixed(60)), mixed(60)
    ours = [one for piece in pieces(path=str(path), piece_bytes=333, first_lines=count) for one in read_piece(piece, path)]
    cut = packed(*every[:count])
    assert ours == [one for piece in pieces(path=str(cut), piece_bytes=333) for one in read_piece(piece, cut)]
    assert len(ours) == min(count, 60)


def read_piece(piece: str, path: Path) -> list[dict[str, object]]:
    return [row for part in read_metadata(piece, path=str(path)) for table in part for row in table.to_pylist()]


def test_the_first_lines_of_several_files(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, *(line(id=f"1{number}{at}") for at in range(5)), name=f"part-{number}")
    found = [json.loads(piece) for piece in pieces(path=str(tmp_path), first_lines=7)]
    assert [each["file"] for each in found] == ["part-0", "part-1"]
    kept = [row["key"] for each in found for row in read_piece(json.dumps(each), tmp_path)]
    assert kept == ["100", "101", "102", "103", "104", "110", "111"]


@pytest.mark.parametrize("piece_bytes", [1, 100, 333, 5_000, 1 << 30])
def test_pieces_cut_anywhere_give_the_same_rows_and_rejects(tmp_path: Path, piece_bytes: int) -> None:
    path = write(tmp_path, *mixed(60))
    kept, rejects = read(path, piece_bytes)
    whole, whole_rejects = read(path)
    assert kept.num_rows + len(rejects) == 60
    assert kept.combine_chunks().equals(whole.combine_chunks())
    assert sorted(map(str, rejects)) == sorted(map(str, whole_rejects))


@pytest.mark.parametrize("licences", [None, ["Attribution License"]])
def test_plain_passes_read_what_compiled_ones_read(
    packed: Callable[..., Path], licences: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(*mixed(60), end=b"\r\n")
    compiled, rejects = read(path, licences=licences)
    monkeypatch.setattr(metadata, "can_compile", lambda: False)
    plain, plain_rejects = read(path, licences=licences)
    assert plain.equals(compiled)
    assert plain_rejects == rejects
    assert 0 < plain.num_rows < 60


@pytest.mark.parametrize("block_bytes", [97, 400, 1_000, 1 << 24])
def test_blocks_cut_anywhere_give_the_same_rows_and_rejects(
    packed: Callable[..., Path], block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(*mixed(60))
    whole, whole_rejects = read(path)
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", block_bytes)
    kept, rejects = read(path)
    assert kept.num_rows + len(rejects) == 60
    assert kept.combine_chunks().equals(whole.combine_chunks())
    assert sorted(map(str, rejects)) == sorted(map(str, whole_rejects))


def test_a_line_of_many_blocks_costs_one_reject_and_little_memory(
    packed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1 << 21)
    path = packed(line(id="1"), b"x" * (20 << 20), line(id="3"), b"y" * (3 << 19), b"z" * (10 << 20))
    kept, rejects = read(path)
    assert kept["key"].to_pylist() == ["1", "3"]
    assert [reject["reason"] for reject in rejects] == ["line_too_long"] * 3
    first = len(line(id="1")) + 1
    places = [first, first + (20 << 20) + 1 + first, first + (43 << 19) + 2 + first] if path.suffix == ".tsv" else [2, 4, 5]
    assert [reject["key"] for reject in rejects] == [f"{path.name}:{place}" for place in places]


def test_a_good_line_just_below_the_limit_is_kept(tmp_path: Path) -> None:
    room = text_lines.MAX_LINE_BYTES - len(line(description="")) - 1
    kept, rejects = read(write(tmp_path, line(description="x" * room), line(description="x" * (room + 1), id="6185218912")))
    assert (kept.num_rows, [reject["reason"] for reject in rejects]) == (1, ["line_too_long"])


@pytest.mark.parametrize("name", ["m.gz", "m.bz2"])
def test_a_stream_that_is_cut_short_is_an_error(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some of its blocks."""
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1 << 18)
    data = (gzip.compress if name.endswith("gz") else bz2.compress)(b"\n".join(line(id=str(n + 1)) for n in range(8_000)))
    path = tmp_path / name
    path.write_bytes(data[: len(data) * 9 // 10])
    with pytest.raises(ValueError, match=rf"{name}: the compressed stream breaks after [0-9,]+ bytes of text"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m", b"", "m: the file is empty"),
        ("m.gz", gzip.compress(b"", mtime=0), "m.gz: the file is empty"),
        ("m.gz", line(), "m.gz: the name says gzip, and the file begins with b'6185'"),
        ("m.sqlite", line(), "m.sqlite: the name says SQLite"),
        ("m", b"a,b\n1,2\n", r"not YFCC100M metadata: none of the first 2 lines has 23 or 25 .* \(the first has 1\)"),
        ("m", b"\x89PNG\r\n\x1a\n" + bytes(100), "not YFCC100M metadata"),
        ("m", b"\n\n\n", "not YFCC100M metadata"),
        ("m", sqlite.MAGIC + b"x" * 500, "not a readable SQLite database"),
    ],
)
def test_the_wrong_file_is_one_clear_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(pieces(path=str(tmp_path / name)))


def test_a_folder_is_read_by_name(tmp_path: Path) -> None:
    write(tmp_path, line(id="2"), name="part-1")
    (tmp_path / "part-0.gz").write_bytes(gzip.compress(line(25, id="1") + b"\n"))
    write(tmp_path, b"notes", name="README")
    write(tmp_path, b"hidden", name=".part-9")
    found = [json.loads(piece) for piece in pieces(path=str(tmp_path), files="part-*")]
    assert [(piece["file"], piece["form"], piece["columns"]) for piece in found] == [
        ("part-0.gz", "gzip", 25),
        ("part-1", "plain", 23),
    ]
    keys = [
        key
        for piece in pieces(path=str(tmp_path), files="part-*")
        for part in read_metadata(piece, path=str(tmp_path))
        for key in part.kept["key"].to_pylist()
    ]
    assert keys == ["1", "2"]
    with pytest.raises(ValueError, match=r"no file fits '\*\.tsv'"):
        list(pieces(path=str(tmp_path), files="*.tsv"))
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        list(pieces(path=str(tmp_path / "absent")))


def database(path: Path, rows: list[dict[str, object]]) -> Path:
    with sqlite3.connect(path) as connection:
        columns = ", ".join(
            f"{name} {'integer primary key' if name == 'photoid' else 'text'}" for name in sqlite.COLUMN_NAMES.values()
        )
        connection.execute(f"CREATE TABLE yfcc100m_dataset ({columns})")
        marks = ", ".join("?" * len(COLUMNS))
        connection.executemany(
            f"INSERT INTO yfcc100m_dataset VALUES ({marks})", [[{**GOOD, **row}[name] for name in COLUMNS] for row in rows]
        )
    connection.close()
    return path


@pytest.mark.parametrize("piece_bytes", [1, 4096, 1 << 30])
def test_sqlite(tmp_path: Path, piece_bytes: int) -> None:
    rows: list[dict[str, object]] = [{"id": 10**9 + 37 * n} for n in range(200)]
    rows[5] |= {"marker": 1}
    rows[6] |= {"date_taken": None}
    rows[7] |= {"title": b"a\xff"}
    rows[8] |= {"url": "a\0b"}
    rows[9] |= {"id": -4}
    kept, rejects = read(database(tmp_path / "m.db", rows), piece_bytes, extra=("user_id", "title"))
    assert kept["key"].to_pylist() == [str(row["id"]) for n, row in enumerate(rows) if n not in (5, 6, 7, 8, 9)]
    assert kept["title"][0].as_py() == 'café "au" lait'
    # Only the columns that are read are looked at, and the title is one of them here.
    assert sorted((reject["key"], reject["reason"], reject["detail"]) for reject in rejects) == sorted(
        [
            ("1000000185", "not_a_photo", "marker '1' is not 0: a video"),
            ("1000000222", "null_date_taken", "date_taken '' is not a time"),
            ("m.db:1000000259", "bad_utf8", "rowid 1000000259: b'\\xff' at byte 1 of a field is not UTF-8"),
            ("m.db:1000000296", "nul_byte", "rowid 1000000296: NUL at byte 1 of a field"),
            ("m.db:-4", "bad_id", "rowid -4: id '-4' is not a positive whole number of at most 18 digits"),
        ]
    )


def test_sqlite_is_opened_for_reading_only(tmp_path: Path) -> None:
    path = database(tmp_path / "odd ?#name.db", [{"id": 1}])
    path.chmod(0o444)
    before = path.read_bytes()
    assert read(path)[0].num_rows == 1
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name]


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_line_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match=f"first_lines is {count}: it must be at least 1"):
        list(pieces(path=str(write(tmp_path, line())), first_lines=count))


def test_sqlite_has_no_first_lines(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="first_lines is for text: a database has another order"):
        list(pieces(path=str(database(tmp_path / "m.db", [{"id": 1}])), first_lines=3))


def test_sqlite_without_the_table_or_a_column(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (a)")
    with pytest.raises(ValueError, match="no table 'yfcc100m_dataset'"):
        list(pieces(path=str(path)))
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE yfcc100m_dataset (photoid integer primary key)")
    with pytest.raises(ValueError, match="has no column 'uid'"):
        list(pieces(path=str(path)))
    connection.close()


def test_synthetic_metadata_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from make_yfcc import make

    path, again = tmp_path / "a.tsv", tmp_path / "b.tsv"
    make(5_000, path, columns=25, broken=0.1, seed=3)
    make(5_000, again, columns=25, broken=0.1, seed=3)
    assert path.read_bytes() == again.read_bytes()
    kept, rejects = read(path, 200_000)
    reasons = collections.Counter(reject["reason"] for reject in rejects)
    assert kept.num_rows + len(rejects) == 5_000
    assert set(reasons) == {
        *("wrong_column_count", "blank_line", "bad_utf8", "nul_byte", "bad_id"),
        *("not_a_photo", "null_date_taken", "taken_not_before_upload"),
    }
    assert len(set(kept["key"].to_pylist()) | {reject["key"] for reject in rejects}) == 5_000


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS rowid, {} FROM n"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (f"CREATE VIEW yfcc100m_dataset AS {ENDLESS}", "is a view or a virtual table"),
        ("CREATE VIRTUAL TABLE yfcc100m_dataset USING fts5(photoid)", "is a view or a virtual table"),
        (
            "CREATE TABLE yfcc100m_dataset (a TEXT, {generated})",
            "has no column 'photoid'",
        ),
        ("CREATE TABLE yfcc100m_dataset (rowid TEXT, {})", "has a column 'rowid'"),
        ("CREATE TABLE yfcc100m_dataset ({}, PRIMARY KEY (photoid)) WITHOUT ROWID", "no such column: rowid"),
    ],
)
def test_sqlite_that_is_a_program_is_told_at_once(tmp_path: Path, statement: str, told: str) -> None:
    path = tmp_path / "m.sqlite"
    columns = [f"1 AS {name}" if "RECURSIVE" in statement else name for name in sqlite.COLUMN_NAMES.values()]
    generated = ", ".join(f"{name} TEXT AS (hex(zeroblob(a * 100000000)))" for name in sqlite.COLUMN_NAMES.values())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement.format(", ".join(columns), generated=generated))
        connection.commit()
    with pytest.raises(ValueError, match=told):
        list(metadata.pieces(path=str(path)))


def test_sqlite_rows_in_no_order_and_rows_at_the_ends_of_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    names = list(sqlite.COLUMN_NAMES.values())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute(f"CREATE TABLE yfcc100m_dataset ({', '.join(names)})")
        insert = f"INSERT INTO yfcc100m_dataset (rowid, {', '.join(names)}) VALUES ({', '.join('?' * (len(names) + 1))})"
        for rowid in (-(2**63), 1, 2, 2**63 - 1):
            connection.execute(insert, (rowid, *["text" * 20] * len(names)))
        connection.commit()
    bounds = sqlite.ranges(str(path), 3)
    assert [row[0] for at in bounds for batch in sqlite.rows(str(path), *at, ("id",)) for row in batch] == [
        *(-(2**63), 1, 2, 2**63 - 1)
    ]
    # The inner page's first child stands for its second, too: a few such pages would be any number of rows.
    data = bytearray(path.read_bytes())
    root = next(at for at in range(512, len(data), 512) if data[at] == 5)
    first, second = (root + int.from_bytes(data[root + 12 + 2 * n : root + 14 + 2 * n]) for n in (0, 1))
    data[second : second + 4] = data[first : first + 4]
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"row -9223372036854775808 comes after row|malformed"):
        list(sqlite.rows(str(path), -(2**63), 2**63, ("id",)))


def test_sqlite_fields_longer_than_a_line_are_turned_away(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    names = list(sqlite.COLUMN_NAMES.values())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE yfcc100m_dataset ({', '.join(names)})")
        connection.execute(
            f"INSERT INTO yfcc100m_dataset ({', '.join(names)}) VALUES (zeroblob(2000000){', 1' * (len(names) - 1)})"
        )
        connection.commit()
    (piece,) = metadata.pieces(path=str(path))
    (sifted,) = metadata.read_metadata(piece, path=str(path))
    assert sifted.rejected["reason"].to_pylist() == ["line_too_long"]
