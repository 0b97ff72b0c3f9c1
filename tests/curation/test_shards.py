"""Shards: the bytes against tarfile, GNU tar and webdataset; what is refused; how rows are spread; what is published."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset as wds
from benchwright.curation.publish import DatasetCard, dataset_files, escaped
from benchwright.curation.rows import BLOB
from benchwright.curation.shard_assignment import assign_shards
from benchwright.curation.shards import (
    encode_member,
    read_sample,
    samples_in,
    scan_shard,
    split_name,
    write_shard,
    write_shard_file,
)
from benchwright.curation.ustar import MAX_SIZE, ShardError, iter_members, member_header
from hypothesis import given, settings
from hypothesis import strategies as st
from webdataset.tariterators import base_plus_ext

ODD_KEYS = ["-dash", "__dunder__", "ärger 写真", "a b", "12345678901", "x" * 92]


def tar_bytes(samples: list[tuple[str, dict[str, Any]]]) -> bytes:
    out = io.BytesIO()
    write_shard(out, samples)
    return out.getvalue()


def by_tarfile(samples: list[tuple[str, dict[str, bytes]]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for key, members in samples:
            for extension in sorted(members):
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size, info.mode = len(members[extension]), 0o644
                tar.addfile(info, io.BytesIO(members[extension]))
    return out.getvalue()


words = st.text("abcz019_+-", min_size=1, max_size=6).filter(lambda word: word[0] not in "_+-" and word[-1] != "_")
extensions = st.lists(words, min_size=1, max_size=3).map(".".join)
keys = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="./\\"), min_size=1, max_size=20).filter(
    lambda key: len(key.encode()) <= 70
)
payloads = st.dictionaries(extensions, st.binary(max_size=1500), min_size=1, max_size=4)
shards = st.lists(st.tuples(keys, payloads), max_size=6, unique_by=lambda sample: sample[0])


@settings(max_examples=60)
@given(shards)
def test_a_shard_is_what_tarfile_would_write_and_reads_back(samples: list[tuple[str, dict[str, bytes]]]) -> None:
    out = io.BytesIO()
    spans = write_shard(out, samples)
    data = out.getvalue()
    assert data == by_tarfile(samples)
    assert scan_shard(data, place="x.tar") == spans
    for span, (key, members) in zip(spans, samples_in(data, place="x.tar"), strict=True):
        held = read_sample(data[span.offset : span.offset + span.size], span.key, place="x.tar", base=span.offset)
        assert (key, {name: data[each.data : each.data + each.size] for name, each in members.items()}) == (span.key, held)
    for (key, members), span in zip(samples, spans, strict=True):
        cut = data[span.offset : span.offset + span.size]
        assert read_sample(cut, key, place="x.tar", base=span.offset) == members
        assert span.members == tuple(sorted(members))


def test_gnu_tar_extracts_the_members(tmp_path: Path) -> None:
    samples = [(key, {"jpg": key.encode() * 300, "json": {"key": key}}) for key in ODD_KEYS]
    write_shard_file(tmp_path / "a.tar", samples)
    (tmp_path / "out").mkdir()
    command = ["tar", "--extract", "--file", str(tmp_path / "a.tar"), "--directory", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert len(list((tmp_path / "out").iterdir())) == 2 * len(samples)
    for key, members in samples:
        assert (tmp_path / "out" / f"{key}.jpg").read_bytes() == members["jpg"]
        assert json.loads((tmp_path / "out" / f"{key}.json").read_bytes()) == {"key": key}


def test_webdataset_reads_the_samples_in_order(tmp_path: Path) -> None:
    samples = [(key, {"seg.npy": np.arange(n), "json": {"n": n}, "bin": b"\0" * n}) for n, key in enumerate(ODD_KEYS)]
    write_shard_file(tmp_path / "a.tar", samples)
    read = list(wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False, empty_check=False).decode())
    assert [sample["__key__"] for sample in read] == ODD_KEYS
    for n, sample in enumerate(read):
        assert sample["json"] == {"n": n}
        assert sample["bin"] == b"\0" * n
        np.testing.assert_array_equal(sample["seg.npy"], np.arange(n))


def test_the_bytes_do_not_depend_on_the_order_of_members_or_the_run(tmp_path: Path) -> None:
    forward = [("a", {"json": {"x": 1, "y": [1.5, None, "é"]}, "cls": b"3", "v.npy": np.eye(2, dtype="float32")})]
    backward = [(key, dict(reversed(list(members.items())))) for key, members in forward]
    backward[0][1]["json"] = {"y": [1.5, None, "é"], "x": 1}
    assert tar_bytes(forward) == tar_bytes(backward)
    write_shard_file(tmp_path / "a.tar", forward)
    assert (tmp_path / "a.tar").read_bytes() == tar_bytes(forward)
    golden = "27e648b92e3ffb1f5146f14ca88697b40274c863aedf86429de8c826aa6207f8"
    assert hashlib.sha256(tar_bytes(forward)).hexdigest() == golden


@pytest.mark.parametrize("key", ["", ".", "..", "a.b", "a/b", "/a", "a\\b", "a\nb", "a\0", "\x7f", "\x85", "\ud800"])
def test_keys_that_cannot_name_a_sample_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="cannot name a sample"):
        tar_bytes([(key, {"jpg": b""})])


@pytest.mark.parametrize("extension", ["", "JPG", ".jpg", "jpg.", "a/b", "a..b", "__key__", "jpg_", "é", "a b", "a\n"])
def test_extensions_that_webdataset_would_change_or_skip_are_refused(extension: str) -> None:
    with pytest.raises(ValueError, match="extension"):
        tar_bytes([("a", {extension: b""})])


def test_limits_of_a_shard_are_named() -> None:
    with pytest.raises(ValueError, match="key 'a' occurs twice in the shard, first as sample 0"):
        tar_bytes([("a", {"x": b""}), ("b", {"x": b""}), ("a", {"x": b""})])
    with pytest.raises(ValueError, match="sample 'a' has no member"):
        tar_bytes([("a", {})])
    assert len(list(iter_members(tar_bytes([("é" * 49, {"x": b""})]), place="x"))) == 1
    with pytest.raises(ValueError, match="102 bytes of UTF-8: USTAR takes at most 100"):
        tar_bytes([("é" * 50, {"x": b""})])


def test_a_member_of_8_gib_is_refused_and_one_byte_less_is_not() -> None:
    assert tarfile.TarInfo.frombuf(member_header("a.bin", MAX_SIZE), "utf-8", "strict").size == 8 * 2**30 - 1
    with pytest.raises(ValueError, match="8589934592 bytes: USTAR takes at most 8589934591"):
        member_header("a.bin", MAX_SIZE + 1)


def test_values_have_one_form() -> None:
    assert encode_member("json", {"b": np.float32(0.5), "a": np.arange(2)}) == b'{"a":[0,1],"b":0.5}'
    fortran = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    written = encode_member("x.npy", fortran)
    assert written == encode_member("x.npy", np.arange(6, dtype="<i4").reshape(2, 3))
    np.testing.assert_array_equal(np.load(io.BytesIO(written)), fortran)
    assert np.load(io.BytesIO(encode_member("npy", np.array(3.0)))).shape == ()


@pytest.mark.parametrize(
    ("extension", "value", "error"),
    [
        ("json", {"x": float("nan")}, "JSON has no NaN"),
        ("json", {"x": [{1: 2}]}, "JSON key 1 is int"),
        ("json", {"x": object()}, "is not JSON"),
        ("jpg", {"x": 1}, "must end in 'json'"),
        ("jpg", np.zeros(2), "must end in 'npy'"),
        ("npy", np.array([{}]), "without pickle"),
        ("txt", "text", "is str"),
    ],
)
def test_values_that_have_no_such_form_are_refused(extension: str, value: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        encode_member(extension, value)


def test_a_failed_write_leaves_the_old_shard_and_nothing_else(tmp_path: Path) -> None:
    write_shard_file(tmp_path / "a.tar", [("a", {"x": b"old"})])
    before = (tmp_path / "a.tar").read_bytes()
    with pytest.raises(ValueError, match="occurs twice"):
        write_shard_file(tmp_path / "a.tar", [("a", {"x": b"new"}), ("a", {"x": b"new"})])
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]
    assert (tmp_path / "a.tar").read_bytes() == before


GOOD = tar_bytes([("a", {"jpg": b"x" * 600}), ("b", {"jpg": b"y"})])


def one_member(name: str = "a.jpg", data: bytes = b"x", **fields: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fields.pop("format", tarfile.GNU_FORMAT)) as tar:
        info = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        info.size = len(data) if info.isreg() else 0
        tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def patched(at: int, value: bytes) -> bytes:
    """The archive GOOD with other bytes in its first header, and a checksum that suits them."""
    header = bytearray(GOOD[:512])
    header[at : at + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + GOOD[512:]


HOSTILE = {
    "flipped": (GOOD[:3] + b"!" + GOOD[4:], "byte 0: the header's checksum is wrong"),
    "cut in a header": (GOOD[:1636], "byte 1536: truncated"),
    "cut in the data": (GOOD[:1024], "byte 0: truncated: the member needs bytes up to 1536, the data end at 1024"),
    "no end": (GOOD[:2560], "byte 2560: truncated: a header or the end marker"),
    "half an end": (GOOD[:3072], "byte 2560: truncated: the end marker is two zero blocks, here is one"),
    "data after the end": (GOOD + GOOD, "byte 2560: there is data after the end marker"),
    "empty": (b"", "byte 0: truncated"),
    "no tar": (b"\x1f\x8b" + bytes(range(256)) * 8, "byte 0: the header's checksum is wrong"),
    "parent": (one_member("../a.jpg"), "'../a.jpg' is empty or absolute, or contains '..'"),
    "inner parent": (one_member("x/../../a.jpg"), "contains '..'"),
    "absolute": (one_member("/etc/a.jpg"), "absolute"),
    "no name": (patched(0, bytes(100)), "is empty"),
    "control": (one_member("a\n.jpg"), "control characters"),
    "not UTF-8": (patched(0, b"\xff\xfe.jpg"), "is not UTF-8"),
    "symlink": (one_member(type=tarfile.SYMTYPE, linkname="b"), "only regular files"),
    "hard link": (one_member(type=tarfile.LNKTYPE, linkname="b"), "only regular files"),
    "device": (one_member(type=tarfile.CHRTYPE), "only regular files"),
    "size of 8 GiB": (patched(124, b"77777777777\0"), "truncated: the member needs bytes up to 8589935104"),
    "size of 2**80": (patched(124, b"\x80" + b"\xff" * 11), "truncated: the member needs bytes up to"),
    "negative size": (patched(124, b"\xff" * 12), "the size field"),
    "size of no digits": (patched(124, b"0x123456789\0"), "the size field"),
    "PAX record": (one_member("é" * 80 + ".jpg", format=tarfile.PAX_FORMAT).replace(b" path=", b" path:"), "PAX record"),
    "PAX size": (one_member(format=tarfile.PAX_FORMAT, pax_headers={"size": "-1"}), "the PAX size"),
    "sparse": (one_member(format=tarfile.PAX_FORMAT, pax_headers={"GNU.sparse.major": "1"}), "sparse"),
    "PAX and nothing": (
        one_member("é" * 80 + ".jpg", format=tarfile.PAX_FORMAT)[:1024] + bytes(1024),
        "byte 0: an extension header has no member after it",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_or_hostile_archive_gives_one_clear_error(name: str) -> None:
    data, rule = HOSTILE[name]
    with pytest.raises(ShardError) as caught:
        scan_shard(data, place="s3://x/bad.tar")
    assert str(caught.value).startswith("s3://x/bad.tar, byte ")
    assert rule in str(caught.value)


@settings(max_examples=150)
@given(st.sampled_from([0, 1536]), st.integers(0, 511), st.integers(1, 255))
def test_every_changed_byte_of_a_header_is_seen(header: int, at: int, change: int) -> None:
    if at in range(154, 156):  # NUL and space after the checksum's digits: either may stand in both places
        return
    data = bytearray(GOOD)
    data[header + at] ^= change
    with pytest.raises(ShardError):
        scan_shard(bytes(data), place="x")


@settings(max_examples=150)
@given(st.binary(max_size=1200), st.integers(0, 2600))
def test_noise_is_refused_or_read_but_never_raises_anything_else(noise: bytes, at: int) -> None:
    data = GOOD[:at] + noise + GOOD[at + len(noise) :]
    try:
        spans = scan_shard(data, place="x")
    except ShardError:
        return
    assert all(span.offset + span.size <= len(data) for span in spans)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_of_pax_and_gnu_archives_are_read(form: int) -> None:
    name = "folder/" + "n" * 150 + "é.seg.jpg"
    data = one_member(name, b"pixels", format=form)
    (span,) = scan_shard(data, place="x")
    assert span.key == name.removesuffix(".seg.jpg")
    cut = data[span.offset : span.offset + span.size]
    assert read_sample(cut, span.key, place="x", base=0) == {"seg.jpg": b"pixels"}


def test_a_prefix_a_folder_and_a_pax_size_are_read(tmp_path: Path) -> None:
    (tmp_path / ("d" * 90)).mkdir()
    (tmp_path / ("d" * 90) / "file.jpg").write_bytes(b"pixels")
    for form in ("ustar", "gnu", "oldgnu", "pax"):
        archive = tmp_path / f"{form}.tar"
        subprocess.run(["tar", f"--format={form}", "-cf", archive, "-C", tmp_path, "d" * 90], check=True)
        (member,) = iter_members(archive.read_bytes(), place="x")
        assert member.name == "d" * 90 + "/file.jpg"
    sized = one_member(data=b"12345", format=tarfile.PAX_FORMAT, pax_headers={"size": "5", "comment": "c"})
    (member,) = iter_members(sized, place="x")
    assert (member.size, sized[member.data : member.data + 5]) == (5, b"12345")


def test_a_sample_whose_members_are_apart_or_twice_is_refused() -> None:
    split = by_tarfile([("a", {"jpg": b"1"}), ("b", {"jpg": b"2"}), ("a", {"json": b"{}"})])
    with pytest.raises(ShardError, match=r"byte 2048: member 'a\.json' occurs twice, or apart"):
        scan_shard(split, place="x")
    twice = by_tarfile([("a", {"jpg": b"1"}), ("a", {"jpg": b"2"})])
    with pytest.raises(ShardError, match="occurs twice"):
        scan_shard(twice, place="x")
    with pytest.raises(ShardError, match=r"x, byte 5000: member 'a\.jpg' is where the index has sample 'b'"):
        read_sample(GOOD[:1536], "b", place="x", base=5000)


@given(st.text("ab._-é/", max_size=12))
def test_keys_end_where_webdataset_ends_them(name: str) -> None:
    if "/." in name:  # "a/.b": webdataset's expression gives the key "a/", which names a folder
        return
    key, extension = base_plus_ext(name)
    assert split_name(name) == (None if key is None else (key, extension.lower()))


# Filling


def table_of(**columns: Any) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({"key": [f"k{row}" for row in range(count)], **columns})


def test_rows_fill_shards_by_their_columns_and_come_together() -> None:
    table = table_of(bucket=[2, 1, 2, 1, 2], split=["test", "train", "train", "train", "train"])
    placed = assign_shards(table, by=["bucket", "split"], max_samples=1)
    assert dict(zip(placed["key"].to_pylist(), placed["shard"].to_pylist(), strict=True)) == {
        "k1": "bucket01-train-00000",
        "k3": "bucket01-train-00001",
        "k0": "bucket02-test-00000",
        "k2": "bucket02-train-00000",
        "k4": "bucket02-train-00001",
    }
    assert placed["shard"].to_pylist() == sorted(placed["shard"].to_pylist())
    assert assign_shards(placed, by=["bucket", "split"], max_samples=1).equals(placed)
    assert assign_shards(table, by=[], max_samples=3)["shard"].to_pylist() == ["data-00000"] * 3 + ["data-00001"] * 2
    wide = assign_shards(table_of(bucket=[7, 100]), by=["bucket"], max_samples=9)
    assert wide["shard"].to_pylist() == ["bucket007-00000", "bucket100-00000"]


@given(st.lists(st.integers(0, 5000), max_size=40), st.integers(1, 9), st.integers(1, 20_000))
def test_no_shard_passes_its_limits(sizes: list[int], max_samples: int, max_bytes: int) -> None:
    refs = [{"sha256": "", "size": size, "file": "", "offset": 0} for size in sizes]
    table = pa.table({"key": [str(row) for row in range(len(sizes))], "image": pa.array(refs, BLOB)})
    placed = assign_shards(table, by=[], max_samples=max_samples, max_bytes=max_bytes, sized_by=["image"])
    assert placed["key"].to_pylist() == table["key"].to_pylist()
    shards: dict[str, list[int]] = {}
    for name, size in zip(placed["shard"].to_pylist(), sizes, strict=True):
        shards.setdefault(name, []).append(512 + (size + 511) // 512 * 512)
    assert list(shards) == [f"data-{number:05d}" for number in range(len(shards))]
    contents = list(shards.values())
    for content, following in zip(contents, [*contents[1:], [0]], strict=False):
        assert len(content) <= max_samples
        assert sum(content) <= max_bytes or len(content) == 1
        if following != [0]:
            assert len(content) == max_samples or sum(content) + following[0] > max_bytes


def test_columns_that_cannot_name_a_shard_are_refused() -> None:
    with pytest.raises(ValueError, match="do not give different names"):
        assign_shards(table_of(name=["ice hockey", "ice-hockey"]), by=["name"], max_samples=1)
    with pytest.raises(ValueError, match="1 nulls"):
        assign_shards(table_of(name=["a", None]), by=["name"], max_samples=1)
    with pytest.raises(ValueError, match="at least 1"):
        assign_shards(table_of(name=["a"]), by=["name"], max_samples=0)
    with pytest.raises(ValueError, match="go together"):
        assign_shards(table_of(name=["a"]), by=["name"], max_samples=1, max_bytes=5)


# Publishing

CARD = DatasetCard(
    title="Tiny: a test",
    summary="Two | samples.",
    pipeline="test",
    digest="d" * 64,
    licence="CC-BY-4.0",
    citation="@misc{x}",
    sources=[{"name": "photos", "url": "https://example.org", "sha256": "0" * 64}],
    members={"jpg": {"holds": "image"}, "v.npy": {"dtype": "float32", "shape": [4]}},
    columns={"label": "class index"},
    tags=["test"],
)


def published() -> tuple[pa.Table, dict[str, bytes]]:
    places = {"shard": ["s-00000", "s-00000"], "offset": [0, 1024], "size": [1024, 2048]}
    index = table_of(**places, label=[1, 0], name=["b|c", "a"])
    return index, dataset_files(index, CARD, {"s-00000.tar": {"size": 10240, "sha256": "a" * 64}})


def test_what_is_published_is_deterministic_and_true() -> None:
    index, files = published()
    assert published()[1] == files
    read = pq.read_table(io.BytesIO(files["index.parquet"]))
    assert read.equals(index)
    assert read.column_names == ["key", "shard", "offset", "size", "label", "name"]
    assert read["offset"].to_pylist() == [0, 1024]
    manifest = json.loads(files["dataset.json"])
    assert manifest["digest"] == "d" * 64
    assert manifest["counts"] == {"samples": 2, "shards": 1, "bytes": 10240}
    assert manifest["files"]["s-00000.tar"] == {"size": 10240, "sha256": "a" * 64}
    for name in ("index.parquet", "README.md"):
        assert manifest["files"][name] == {
            "size": len(files[name]),
            "sha256": hashlib.sha256(files[name]).hexdigest(),
        }


def test_the_card_starts_with_yaml_and_names_columns_and_values() -> None:
    text = published()[1]["README.md"].decode()
    _, front, body = text.split("---\n", 2)
    values = {name: json.loads(value) for name, value in (line.split(": ", 1) for line in front.splitlines())}
    assert values["pretty_name"] == "Tiny: a test"
    assert values["license"] == "cc-by-4.0"
    assert values["tags"] == ["benchwright", "test", "webdataset"]
    assert values["size_categories"] == ["n<1K"]
    assert "| `label` | int64 | class index | 0 (1), 1 (1) |" in body
    assert "b\\|c (1)" in body
    assert "https://example.org" in body


def test_names_from_data_show_as_they_are_on_the_card() -> None:
    names = ["a|b", "`c", "<img src=x>", "d\r\ne", "*f*", "_g_", "h_i", "[j](k)", "l\\|m", "&lt;", "A-1, (b) é"]
    shown = [r"a\|b", r"\`c", r"\<img src=x>", "d e", r"\*f\*", r"\_g\_", "h_i", r"\[j](k)", r"l\\\|m", r"\&lt;", "A-1, (b) é"]
    assert [escaped(name) for name in names] == shown
    count = len(names)
    index = table_of(shard=["s-00000"] * count, offset=[*range(0, 1024 * count, 1024)], size=[1024] * count, name=names)
    card = dataset_files(index, CARD, {"s-00000.tar": {"size": 1, "sha256": "a" * 64}})["README.md"].decode()
    (line,) = (line for line in card.splitlines() if line.startswith("| `name`"))
    assert len(re.split(r"(?<!\\)(?:\\\\)*\|", line)) == 6
    assert all(f"{name} (1)" in line for name in shown)


def test_an_index_that_does_not_fit_is_refused() -> None:
    index, _ = published()
    fact = {"size": 1, "sha256": ""}
    with pytest.raises(ValueError, match=r"differ in these shards: \['t\.tar'\]"):
        dataset_files(index, CARD, {"s-00000.tar": fact, "t.tar": fact})
    with pytest.raises(ValueError, match="key 'k0' occurs twice"):
        dataset_files(pa.concat_tables([index, index.slice(0, 1)]), CARD, {"s-00000.tar": fact})
    with pytest.raises(ValueError, match="needs a column 'offset'"):
        dataset_files(index.drop_columns(["offset"]), CARD, {"s-00000.tar": fact})
