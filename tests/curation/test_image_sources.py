"""Folders and tars of images: every file becomes a row or a reject, in one order, and none leads out of its folder."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import re
import tarfile
from pathlib import Path

import fsspec
import pytest
from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.rows import Reject, Rejected
from benchwright.curation.run import run
from benchwright.curation.stages.dates import parse_local, parse_utc
from benchwright.curation.stages.exif import read_exif
from benchwright.curation.stages.folder import is_outside, key_of, open_folder, walk
from benchwright.curation.stages.image_sources import (
    FoundImage,
    NamedImage,
    drop_duplicate_content,
    folder_pieces,
    read_folder,
    read_image,
)
from benchwright.curation.stages.tar_sources import read_tar, tar_pieces
from PIL import Image

TAKEN = dt.datetime(2006, 2, 28, 20, 33, 6)


def picture(
    shade: int = 0,
    original: str | None = "2006:02:28 20:33:06",
    modified: str | None = None,
    form: str = "JPEG",
) -> bytes:
    """A small picture with EXIF dates."""
    exif = Image.Exif()
    exif[0x0112] = 1
    if modified:
        exif[0x0132] = modified
    if original:
        exif.get_ifd(0x8769)[0x9003] = original
    out = io.BytesIO()
    Image.new("RGB", (24, 16), (shade, 80, 120)).save(out, form, exif=exif)
    return out.getvalue()


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def read_all(root: Path | str, csv: Path | str | None = None, **settings: object) -> tuple[list[FoundImage], dict[str, str]]:
    """Rows, and the reason by the rejects' keys."""
    pieces = folder_pieces(root=str(root), dates_csv=str(csv) if csv else None)
    found = [item for piece in pieces for item in read_folder(piece, root=str(root), source_name="test", **settings)]
    return split(found)


def split(found: list[FoundImage | Rejected]) -> tuple[list[FoundImage], dict[str, str]]:
    rows = [item for item in found if isinstance(item, FoundImage)]
    rejects = [item for item in found if isinstance(item, Rejected)]
    assert len({row.key for row in rows} | {reject.key for reject in rejects}) == len(found)
    return rows, {reject.key: reject.reason for reject in rejects}


def test_rows_come_in_the_order_of_paths_with_dates_from_exif(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"b/2.jpg": picture(2), "a/x y.JPEG": picture(1, None, "2007:01:02 03:04:05"), "10.png": picture(3, form="PNG")},
    )
    rows, rejects = read_all(tmp_path)
    assert not rejects
    assert [row.file for row in rows] == ["10.png", "a/x y.JPEG", "b/2.jpg"]
    assert [row.date_taken for row in rows] == [TAKEN, dt.datetime(2007, 1, 2, 3, 4, 5), TAKEN]
    assert [row.extension for row in rows] == ["png", "jpg", "jpg"]
    assert rows[2].key == "b--2"
    assert rows[2].image.read() == picture(2)
    assert rows[0].date_uploaded is None
    assert rows[0].source_name == "test"


def test_files_that_are_no_images_and_hidden_ones_are_rejects(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.jpg": picture(),
            "a.png": picture(form="PNG"),
            "notes.txt": b"BM, as a text may begin, and go on",
            "noextension": picture(5),
            ".hidden.jpg": picture(),
            ".cache/b.jpg": picture(),
            "__MACOSX/._a.jpg": b"x",
            "undated.jpg": picture(original=None),
            "zero.jpg": b"",
        },
    )
    (tmp_path / os.fsdecode(b"latin\xe9.jpg")).write_bytes(picture())
    os.mkfifo(tmp_path / "pipe.jpg")
    rows, rejects = read_all(tmp_path)
    # A file without an extension counts by its content; its key cannot be that of a file with one.
    assert [row.file for row in rows] == ["a.jpg", "noextension"]
    assert rows[1].key.startswith("noextension-")
    assert rejects == {
        "./a.png": "duplicate_key",
        key_of("notes.txt"): "not_an_image",
        "./.hidden.jpg": "hidden",
        "./latin\\udce9.jpg": "bad_name",
        "./pipe.jpg": "not_a_file",
        "undated": "no_date",
        "zero": "no_date",
    } | {f"./{name}": "hidden" for name in hidden_folders(tmp_path)}


def hidden_folders(root: Path) -> list[str]:
    return [entry.name for entry in root.iterdir() if entry.is_dir()]


def test_without_required_dates_undated_images_are_rows(tmp_path: Path) -> None:
    write(tmp_path, {"undated.jpg": picture(original=None), "zero.jpg": b""})
    rows, rejects = read_all(tmp_path, require_date=False)
    assert [row.date_taken for row in rows] == [None, None]
    assert not rejects


def test_links_out_of_the_folder_are_refused_and_circles_not_walked(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"secret.jpg": picture(9)})
    root = write(tmp_path / "root", {"a/in.jpg": picture(1)})
    (root / "link.jpg").symlink_to(outside / "secret.jpg")
    (root / "folder").symlink_to(outside)
    (root / "a" / "circle").symlink_to(root)
    (root / "same.jpg").symlink_to("a/in.jpg")
    (root / "dangling.jpg").symlink_to("a/nothing.jpg")
    # A neighbour whose name begins like the folder's is outside too.
    write(tmp_path / "root2", {"b.jpg": picture()})
    (root / "neighbour.jpg").symlink_to(tmp_path / "root2" / "b.jpg")
    rows, rejects = read_all(root)
    assert [row.file for row in rows] == ["same.jpg", "a/in.jpg"]
    assert rejects == {
        "./link.jpg": "outside_folder",
        "./folder": "outside_folder",
        "./neighbour.jpg": "outside_folder",
        "./a/circle": "linked_folder",
        "./dangling.jpg": "not_a_file",
    }
    sized, bare = (list(walk(open_folder(str(root)), sizes=sizes)) for sizes in (True, False))
    assert bare == [(at, [entry._replace(size=0) for entry in entries]) for at, entries in sized]
    assert any(entry.size for _, entries in sized for entry in entries)


def test_names_that_only_begin_like_plain_ones(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(("__MACOSX", "_a.jpg", ".b", "ü.jpg", os.fsdecode(b"\xff.jpg"), "z"), b"x"))
    (entries,) = (entries for _, entries in walk(open_folder(str(tmp_path))))
    reasons = {"__MACOSX": "hidden", ".b": "hidden", os.fsdecode(b"\xff.jpg"): "bad_name"}
    assert {entry.name: entry.reason for entry in entries if entry.reason} == reasons
    assert len(entries) == 6
    assert key_of("a-b/c_1.jpg") == "a-b--c_1"
    for name in ("a--b.jpg", "-a.jpg", "a/-b.jpg", "a-/b.jpg"):  # whose keys could be made of other names, too
        assert re.search(r"[-_][0-9a-f]{8}$", key_of(name)), name


def test_a_piece_cannot_be_made_to_read_outside(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"in.jpg": picture()})
    write(tmp_path, {"secret.jpg": picture(9)})
    (root / "later.jpg").symlink_to(tmp_path / "secret.jpg")
    names = ["../secret.jpg", "a/../../secret.jpg", str(tmp_path / "secret.jpg"), "later.jpg"]
    for name in names:
        piece = json.dumps({"folder": "", "files": [[name]], "rejects": []})
        [reject] = read_folder(piece, root=str(root), source_name="test")
        assert isinstance(reject, Rejected)
        assert reject.reason == "outside_folder"
    with pytest.raises(Reject, match="outside_folder"):
        read_image(NamedImage("../secret", "jpg"), root=str(root))


def test_dates_from_a_csv(tmp_path: Path) -> None:
    root = write(
        tmp_path / "root", {f"{name}.jpg": picture(n) for n, name in enumerate(["a", "sub/b", "c", "d", "e", "quo,ted"])}
    )
    csv = root / "dates.csv"
    csv.write_bytes(
        b"\xef\xbb\xbffile,date_taken,date_uploaded,label\r\n"
        b"a.jpg,2004-05-06 07:08:09.0,1141639556,bus\r\n"
        b"./sub/b.jpg,2004-05-06,2004-05-06T12:00:00+02:00,\r\n"
        b"c.jpg,yesterday,,\r\n"
        b"d.jpg,,,\r\n"
        b'"quo,ted.jpg",2004:05:06 07:08:09,,"a ""b"""\r\n'
        b"missing.jpg,2004-05-06,,\r\n"
        b"nofolder/missing.jpg,2004-05-06,,\r\n"
        b"../escape.jpg,2004-05-06,,\r\n"
        b"short\r\n"
        b"a.jpg,2005-01-01,,\r\n"
        b"bad\xff.jpg,2005-01-01,,\r\n"
    )
    rows, rejects = read_all(root, csv)
    by_file = {row.file: row for row in rows}
    assert list(by_file) == ["a.jpg", "quo,ted.jpg", "sub/b.jpg"]
    assert by_file["a.jpg"].date_taken == dt.datetime(2004, 5, 6, 7, 8, 9)
    assert by_file["a.jpg"].date_uploaded == dt.datetime(2006, 3, 6, 10, 5, 56)
    assert json.loads(by_file["a.jpg"].labels) == {"label": "bus"}
    assert by_file["sub/b.jpg"].date_uploaded == dt.datetime(2004, 5, 6, 10)
    assert json.loads(by_file["quo,ted.jpg"].labels) == {"label": 'a "b"'}
    assert rejects == {
        "c": "bad_date",
        "d": "no_date",
        "./e.jpg": "missing_row",
        "./missing.jpg": "missing_file",
        "./nofolder/missing.jpg": "missing_file",
        "./csv-line-9": "outside_folder",
        "./csv-line-10": "bad_csv_row",
        "./csv-line-11": "duplicate_row",
        "./csv-line-12": "bad_csv_row",
    }


@pytest.mark.parametrize("header", ["", "name,date_taken", "file,file,date_taken", "file,taken"])
def test_a_csv_without_its_columns_stops_the_run(tmp_path: Path, header: str) -> None:
    (tmp_path / "dates.csv").write_text(header + "\n")
    with pytest.raises(ValueError, match=r"dates\.csv: columns .* file and date_taken are needed"):
        list(folder_pieces(root=str(tmp_path), dates_csv=str(tmp_path / "dates.csv")))


def test_an_open_quote_swallows_the_rest_and_is_counted(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"a.jpg": picture(), "b.jpg": picture(1)})
    csv = tmp_path / "dates.csv"
    csv.write_text('file,date_taken\na.jpg,2004-01-01\n"b.jpg,2004-01-01\n' + "x,2004-01-01\n" * 20000)
    rows, rejects = read_all(root, csv)
    assert [row.file for row in rows] == ["a.jpg"]
    assert rejects["./b.jpg"] == "missing_row"
    assert "bad_csv_row" in rejects.values()


def test_pieces_are_bounded_by_files_and_by_bytes(tmp_path: Path) -> None:
    write(tmp_path, {f"{n:03}.jpg": bytes(1000) for n in range(10)} | {"z.jpg": bytes(50_000)})
    names = [json.loads(p)["files"] for p in folder_pieces(root=str(tmp_path), files_per_piece=4, bytes_per_piece=3500)]
    assert [len(files) for files in names] == [3, 3, 3, 1, 1]
    names = [json.loads(p)["files"] for p in folder_pieces(root=str(tmp_path), files_per_piece=4)]
    assert [len(files) for files in names] == [4, 4, 3]
    assert sorted(name for files in names for [name] in files) == sorted(p.name for p in tmp_path.iterdir())


def test_too_large_files_are_rejects(tmp_path: Path) -> None:
    write(tmp_path, {"a.jpg": picture(), "b.jpg": picture() + bytes(100_000)})
    rows, rejects = read_all(tmp_path, max_bytes=50_000)
    assert [row.key for row in rows] == ["a"]
    assert rejects == {"b": "too_large"}


def test_a_folder_behind_an_fsspec_url_gives_what_the_local_one_gives(tmp_path: Path) -> None:
    files = {"a/1.jpg": picture(1), "2.png": picture(2, form="PNG"), "x.txt": b"text", ".h.jpg": b"h"}
    write(tmp_path, files)
    memory = fsspec.filesystem("memory")
    for name, data in files.items():
        memory.pipe_file(f"/image-source-test/{name}", data)
    memory.pipe_file("/image-source-dates/dates.csv", b"file,date_taken\na/1.jpg,2001-01-01\n")
    try:
        assert read_all("memory://image-source-test") == read_all(tmp_path)
        assert read_all(f"file://{tmp_path}") == read_all(tmp_path)
        rows, rejects = read_all("memory://image-source-test", "memory://image-source-dates/dates.csv")
        assert [row.file for row in rows] == ["a/1.jpg"]
        assert rejects["./2.png"] == "missing_row"
    finally:
        memory.rm("/image-source-test", recursive=True)
        memory.rm("/image-source-dates", recursive=True)


def test_a_root_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="no folder at /nowhere/at/all"):
        list(folder_pieces(root="/nowhere/at/all"))


def test_keys_are_safe_and_differ_where_paths_differ() -> None:
    assert key_of("2004/spring/img_1.jpg") == "2004--spring--img_1"
    assert key_of("a.jpg") == key_of("a.png") == "a"
    paths = [
        "a b.jpg",
        "a_b.jpg",
        "a-b.jpg",
        "a/b.jpg",
        "a--b.jpg",
        "a-/b.jpg",
        "a/-b.jpg",
        "a.b.jpg",
        "a/b",
        "a",
        "ä.jpg",
        "ö.jpg",
    ]
    paths += ["x" * 300 + ".jpg", "x" * 301 + ".jpg", "名前.jpg", "a.b", "-.jpg", "A.jpg"]
    keys = [key_of(path) for path in paths]
    assert len(set(keys)) == len(paths)
    for key in keys:
        assert key.isascii()
        assert len(key) <= 80  # with ``.embedding.npy`` it fits into the 100 bytes of a tar member
        assert not set(key) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
        assert not key.startswith("-")


def test_what_leaves_a_folder() -> None:
    assert all(map(is_outside, ["/etc/passwd", "..", "../x", "a/../../x", "./../x", "a\0b"]))
    assert not any(map(is_outside, ["a", "a/..b", "a/../b", "..a", "./a"]))


def test_dates_as_they_are_written() -> None:
    day = dt.datetime(2006, 2, 28)
    assert parse_local("2006-02-28 20:33:06.0") == parse_local("2006:02:28 20:33:06") == TAKEN
    assert parse_local(" 2006-02-28T20:33:06+05:00 ") == TAKEN
    assert parse_local("2006-02-28") == day
    assert parse_utc("1141639556") == dt.datetime(2006, 3, 6, 10, 5, 56)
    assert parse_utc("2006-02-28T00:00:00-01:00") == day + dt.timedelta(hours=1)
    for text in ["", "null", "0000:00:00 00:00:00", "2006-02-30", "20060228", "1141639556", "yesterday", "2006-02-28 25:00"]:
        assert parse_local(text) is None
    assert parse_utc("0001-01-01T00:00:00+14:00") is None
    assert parse_utc("9" * 12) is None


def test_damaged_exif_reads_as_absent() -> None:
    data = picture()
    assert read_exif(data).date_taken == TAKEN
    start = data.index(b"Exif\0\0")
    for offset in range(start, start + 120):
        for value in (0, 0xFF):
            damaged = bytearray(data)
            damaged[offset] = value
            exif = read_exif(bytes(damaged))
            assert 1 <= exif.orientation <= 8
    for length in range(start + 120):
        read_exif(data[:length])


# ----------------------------------------------------------------------------------------------------------------- tars


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w", form: int = tarfile.GNU_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode, format=form) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def read_tars(
    root: Path, form: str = "plain", files_per_piece: int = 2, **settings: object
) -> tuple[list[FoundImage], dict[str, str]]:
    pieces = tar_pieces(root=str(root), form=form, files_per_piece=files_per_piece)
    return split([item for piece in pieces for item in read_tar(piece, root=str(root), source_name="test", **settings)])


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"])
def test_plain_tars(tmp_path: Path, ending: str) -> None:
    members = {f"day/{n}.jpg": picture(n) for n in range(7)}
    members |= {
        "./dot.jpg": picture(9),
        "l" * 200 + "/long.jpg": picture(10),
        "nöte.txt": b"text",
        "../up.jpg": b"",
        ".hid.jpg": b"",
    }
    members |= {"day/0.png": b"", "/abs.jpg": b"", "old.jpg": picture(3, None)}
    mode = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}[ending]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        tar = write_tar(tmp_path / f"in/photos{ending}", members, mode, form)
        rows, rejects = read_tars(tmp_path)
        assert [row.key for row in rows][:8] == [*(f"in--photos--day--{n}" for n in range(7)), "in--photos--dot"]
        assert [row.image.read() for row in rows][:9] == [*(picture(n) for n in range(7)), picture(9), picture(10)]
        assert len(rows) == 9
        assert sorted(rejects.values()) == sorted(
            ["not_an_image", "outside_folder", "hidden", "duplicate_key", "outside_folder", "no_date"]
        )
        tar.unlink()


def test_webdataset_samples_bring_dates_and_labels(tmp_path: Path) -> None:
    said = {"date_taken": "2004-05-06 07:08:09", "date_uploaded": 1141639556, "title": "a bus"}
    members = {
        "000.jpg": picture(0, None),
        "000.json": json.dumps(said).encode(),
        "000.cls": b"3\n",
        "001.txt": b"undated in words, dated in EXIF",
        "001.png": picture(1, form="PNG"),
        "002.json": b"{}",
        "003.jpg": picture(),
        "003.seg.png": b"a mask",
        "004.json": b"[1]",
        "004.jpg": picture(),
        "005.jpg": picture(),
        "005.png": picture(),
        "006.json": b'{"date_taken": "never"}',
        "006.jpg": picture(),
        "007.json": rb'{"title": "\ud800"}',
        "007.jpg": picture(),
        "008.json": rb'{"said": [{"\udfff": 1}]}',
        "008.jpg": picture(),
        "009.json": rb'{"date_taken": "\ud800"}',
        "009.jpg": picture(),
    }
    write_tar(tmp_path / "shard-0000.tar", members)
    rows, rejects = read_tars(tmp_path, "webdataset")
    assert [row.key for row in rows] == ["shard-0000--000", "shard-0000--001", "shard-0000--003"]
    assert rows[0].extension == "jpg"
    assert rows[1].file == "shard-0000.tar/001.png"
    assert rows[1].date_taken == TAKEN
    assert json.loads(rows[1].labels) == {"txt": "undated in words, dated in EXIF"}
    assert rejects == {
        "./shard-0000.tar/002": "not_an_image",
        "shard-0000--004": "bad_sidecar",
        "./shard-0000.tar/005": "several_images",
        "shard-0000--006": "bad_date",
        "shard-0000--007": "bad_sidecar",
        "shard-0000--008": "bad_sidecar",
        "shard-0000--009": "bad_date",
    }
    assert rows[0].date_taken == dt.datetime(2004, 5, 6, 7, 8, 9)
    assert json.loads(rows[0].labels) == {"cls": "3", "title": "a bus"}


def test_samples_of_one_name_that_are_not_neighbours(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for name, shade in (("a.jpg", 1), ("b.jpg", 2), ("a.jpg", 3)):
            member = tarfile.TarInfo(name)
            member.size = len(picture(shade))
            archive.addfile(member, io.BytesIO(picture(shade)))
    rows, rejects = read_tars(tmp_path, "webdataset")
    assert [row.image.read() for row in rows] == [picture(1), picture(2)]
    assert list(rejects.values()) == ["duplicate_key"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_tar_that_is_cut_off_anywhere_is_told(tmp_path: Path, compressed: bool) -> None:
    whole = write_tar(tmp_path / "whole.tar", {f"{n}.jpg": picture(n) for n in range(4)}).read_bytes()
    blocks = -(-len(picture()) // 512) + 1
    for length in [0, 1, 511, 512, 513, 1024, blocks * 512 - 1, blocks * 512, 2 * blocks * 512 + 700, 4 * blocks * 512]:
        root = tmp_path / f"cut{length}"
        root.mkdir()
        if compressed:
            packed = gzip.compress(whole, mtime=0)
            (root / "t.tar.gz").write_bytes(packed[: len(packed) * length // (4 * blocks * 512 + 1)])
        else:
            (root / "t.tar").write_bytes(whole[:length])
        rows, rejects = read_tars(root)
        assert all(row.image.read() == picture(int(row.key[-1])) for row in rows)
        if compressed:  # the cut may fall behind the last member, where nothing is lost
            assert len(rows) == 4 or "truncated_tar" in rejects.values()
        else:
            assert "truncated_tar" in rejects.values()
            assert len(rows) == sum(length >= (n * blocks + 1) * 512 + len(picture(n)) for n in range(4))


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    data = bytearray(write_tar(tmp_path / "t.tar", {f"{n}.jpg": picture(n) for n in range(4)}).read_bytes())
    blocks = -(-len(picture()) // 512) + 1
    data[2 * blocks * 512 + 150] ^= 0xFF  # within the checksum of the third member
    (tmp_path / "t.tar").write_bytes(data)
    rows, rejects = read_tars(tmp_path)
    assert [row.key for row in rows] == ["t--0", "t--1"]
    assert rejects == {"./t.tar": "truncated_tar"}


def test_a_link_that_leads_to_itself_is_a_reject(tmp_path: Path) -> None:
    """The system refuses to follow it, which stopped the run."""
    (tmp_path / "round.jpg").symlink_to("round.jpg")
    (tmp_path / "one.jpg").symlink_to("other.jpg")
    (tmp_path / "other.jpg").symlink_to("one.jpg")
    found = [(entry.name, entry.reason) for _, entries in walk(open_folder(str(tmp_path))) for entry in entries]
    assert found == [(name, "not_a_file") for name in ("one.jpg", "other.jpg", "round.jpg")]


def test_noise_and_links_in_tars(tmp_path: Path) -> None:
    (tmp_path / "noise.tar").write_bytes(os.urandom(5000))
    (tmp_path / "notes.md").write_text("about these tars")
    with tarfile.open(tmp_path / "links.tar", "w") as archive:
        link = tarfile.TarInfo("passwd.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    rows, rejects = read_tars(tmp_path)
    assert rows == []
    assert rejects == {"./links.tar/passwd.jpg": "not_a_file", "./noise.tar": "truncated_tar", "./notes.md": "not_a_tar"}


def test_a_member_above_the_limit_is_not_read(tmp_path: Path) -> None:
    write_tar(tmp_path / "t.tar.gz", {"bomb.jpg": bytes(3_000_000), "a.jpg": picture()}, "w:gz")
    rows, rejects = read_tars(tmp_path, max_bytes=100_000)
    assert [row.key for row in rows] == ["t--a"]
    assert rejects == {"t--bomb": "too_large"}


# --------------------------------------------------------------------------------------------------- through the engine


def test_a_run_accounts_for_every_file_whatever_the_pieces(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {f"{n % 3}/{n}.jpg": picture(n % 20) for n in range(40)} | {"x.txt": b"x", "y.jpg": b""})
    digests = set()
    different = len({picture(n) for n in range(20)})
    for n, files_per_piece in enumerate((3, 64)):
        flow = source(
            "found",
            step(read_folder, root=where(root), source_name="photos"),
            pieces=step(folder_pieces, root=where(root), files_per_piece=files_per_piece),
            max_rejects=None,
        ).whole("distinct", step(drop_duplicate_content), gives=FoundImage, max_rejects=None)
        result = run(flow, str(tmp_path / f"out{n}"), scheduler="threads", workers=2)
        found, distinct = result.artifacts
        assert (found.rows, found.rejects) == (40, {"not_an_image": 1, "no_date": 1})
        assert (distinct.rows, distinct.rejects) == (different, {"duplicate_content": 40 - different})
        digests.add(distinct.digest)
    assert len(digests) == 1


def test_rows_of_metadata_find_their_files(tmp_path: Path) -> None:
    write(tmp_path, {"012/0123.jpg": picture()})
    row = read_image(NamedImage("0123", "jpg"), root=str(tmp_path), path="{key3}/{key}.{extension}")
    assert row.image.read() == picture()
    with pytest.raises(Reject, match="missing_file"):
        read_image(NamedImage("0124", "jpg"), root=str(tmp_path), path="{key3}/{key}.{extension}")
