"""Containers of strangers: what is in them and is not read was lost in silence, and a few bytes could ask for gigabytes."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from benchwright.curation.bounded_reading import MAX_LINES, line_blocks
from benchwright.curation.pickles import UnsafePickle, load_plain
from benchwright.curation.qa.mturk import read_json_file as read_qa_json
from benchwright.curation.qa.votes import VOTES, read_votes
from benchwright.curation.rows import Reject, Rejected
from benchwright.curation.stages.tar_sources import read_tar, tar_pieces
from benchwright.curation.ustar import ShardError
from benchwright.datasets.activitynet import annotations as activitynet
from benchwright.datasets.class_images.cifar import read_archive
from benchwright.datasets.features import arrays as npy_files
from benchwright.datasets.features import parquet
from benchwright.datasets.features.files import FeatureFile
from benchwright.datasets.features.rows import feature_pieces, read_stored_features
from benchwright.datasets.iirc.hierarchy import read_hierarchy
from benchwright.datasets.iirc.tasks import read_tasks
from benchwright.datasets.kinetics.inventory import read_inventory
from benchwright.datasets.kinetics.lists import ListFile, read_kinetics_list
from benchwright.datasets.kinetics.lists import kinetics_lists as list_pieces
from benchwright.datasets.kowl.own_lists import ListColumns, TableFile, listed_tables, read_table
from benchwright.datasets.reader.decode import decode_npy
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.skeleton.arrays import ArrayFile, list_arrays
from benchwright.datasets.skeleton.files import joints_from_npy, json_values, sequence_from_json
from benchwright.datasets.skeleton.ntu_text import parse_skeleton
from benchwright.datasets.skeleton.own_labels import read_texts
from benchwright.datasets.two_camera.metadata import read_released_pairs
from benchwright.datasets.videos.plain import list_csv
from benchwright.datasets.yfcc100m import lines as yfcc_lines
from benchwright.datasets.yfcc100m import metadata as yfcc

PNG = b"\x89PNG\r\n\x1a\n"


@contextmanager
def at_most(peak: int) -> Iterator[None]:
    """Memory that Python and numpy may take within the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < peak
    finally:
        tracemalloc.stop()


# ----------------------------------------------------------------------------------------------------------------- tars


def tar(
    *names: str, form: int = tarfile.USTAR_FORMAT, data: Callable[[str], bytes] = lambda name: PNG + name.encode()
) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=form) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(data(name))
            archive.addfile(member, io.BytesIO(data(name)))
    return held.getvalue()


def bare(data: bytes) -> bytes:
    """A tar without its end mark and padding."""
    return data[: len(data.rstrip(b"\0")) + 511 & ~511]


PACK: dict[str, Callable[[bytes], bytes]] = {
    "t.tar": bytes,
    "t.tar.gz": gzip.compress,
    "t.tar.bz2": bz2.compress,
    "t.tar.xz": lzma.compress,
}


def read_tars(root: Path, *, files: int = 2, form: Any = "plain") -> tuple[dict[str, bytes], list[Rejected]]:
    listed = tar_pieces(root=str(root), form=form, files_per_piece=files)
    found = [item for piece in listed for item in read_tar(piece, root=str(root), source_name="", require_date=False)]
    rows = {item.file: item.image.read() for item in found if not isinstance(item, Rejected)}
    return rows, [item for item in found if isinstance(item, Rejected)]


@pytest.mark.parametrize("name", PACK)
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("files", [1, 2, 100])
def test_members_behind_an_end_mark_are_read(tmp_path: Path, name: str, form: int, files: int) -> None:
    """``cat a.tar b.tar``, a stray block of zeros, zeros before all: members vanished with 0 rejects."""
    several = (
        bytes(1536)
        + tar("a.png", "b.png", form=form)
        + bare(tar("ä" * 40 + "/" + "ä" * 40 + ".png", form=form))
        + bytes(512)
        + tar("d.png")
    )
    (tmp_path / name).write_bytes(PACK[name](several))
    rows, rejects = read_tars(tmp_path, files=files)
    assert rows == {
        f"{name}/{file}": PNG + file.encode() for file in ("a.png", "b.png", "ä" * 40 + "/" + "ä" * 40 + ".png", "d.png")
    }
    assert not rejects


@pytest.mark.parametrize("name", list(PACK)[1:])
def test_tars_that_were_packed_apart_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(PACK[name](tar("a.png")) + PACK[name](tar("b.png")) + bytes(700))
    rows, rejects = read_tars(tmp_path)
    assert list(rows) == [f"{name}/a.png", f"{name}/b.png"]
    assert not rejects


@pytest.mark.parametrize("name", PACK)
def test_what_is_no_member_behind_an_end_mark_is_told(tmp_path: Path, name: str) -> None:
    whole = tar("a.png", "b.png")
    (tmp_path / name).write_bytes(PACK[name](whole + b"x" * 5000))
    rows, rejects = read_tars(tmp_path)
    assert len(rows) == 2
    assert [reject.reason for reject in rejects] == ["truncated_tar"]
    assert f"5000 bytes from byte {len(whole)} on are not read" in rejects[0].detail


@pytest.mark.parametrize("name", list(PACK)[1:])
def test_bytes_behind_compressed_data_are_told(tmp_path: Path, name: str) -> None:
    """Python's readers of bz2 and xz leave out, in silence, what follows the last stream."""
    (tmp_path / name).write_bytes(PACK[name](tar("a.png")) + b"and more")
    rows, rejects = read_tars(tmp_path)
    assert len(rows) == 1
    assert [reject.reason for reject in rejects] == ["truncated_tar"]


@pytest.mark.parametrize("name", PACK)
def test_the_padding_of_a_tar_is_nothing(tmp_path: Path, name: str) -> None:
    for size in (1024, 10240, 10241, 1 << 20):
        (tmp_path / name).write_bytes(PACK[name](bare(tar("a.png")) + bytes(size)))
        assert read_tars(tmp_path)[1] == []


def test_an_extension_header_that_claims_gigabytes(tmp_path: Path) -> None:
    """A long name of any size was read whole; with gzip ten kilobytes of it are ten megabytes."""
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 1 << 26
    (tmp_path / "t.tar.gz").write_bytes(gzip.compress(tar("a.png")[:1024] + head.tobuf() + bytes((1 << 26) + 1024)))
    with at_most(1 << 24):
        rows, rejects = read_tars(tmp_path)
    assert (len(rows), [reject.reason for reject in rejects]) == (1, ["truncated_tar"])


def test_a_member_of_negative_size_does_not_send_the_reader_round(tmp_path: Path) -> None:
    data = bytearray(tar("a.png", "b.png"))
    data[1024 + 124 : 1024 + 136] = b"\xff" * 10 + b"\xfc\x00"
    data[1024 + 148 : 1024 + 156] = b" " * 8
    data[1024 + 148 : 1024 + 156] = b"%06o\0 " % sum(data[1024:1536])
    (tmp_path / "t.tar").write_bytes(data)
    rows, rejects = read_tars(tmp_path)
    assert (len(rows), [reject.reason for reject in rejects]) == (1, ["truncated_tar"])


def cifar(**more: bytes) -> bytes:
    table = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1]}, 2)
    held = {"c/train": table, "c/test": table, "c/meta": pickle.dumps({b"fine_label_names": [b"a", b"b"]}, 2), **more}
    return tar(*held, data=held.__getitem__)


def test_a_second_file_of_one_name_in_cifars_archive(tmp_path: Path) -> None:
    """The first was taken, and what followed an end mark not even looked at."""
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(gzip.compress(cifar()))
    assert len(list(read_archive(root=str(path), classes=2))) == 4
    path.write_bytes(gzip.compress(cifar() + cifar()))
    with pytest.raises(ValueError, match="train: the archive has two such files"):
        list(read_archive(root=str(path), classes=2))
    path.write_bytes(gzip.compress(cifar() + b"x" * 700))
    with pytest.raises(ValueError, match=r"700 bytes from byte \d+ on are not read"):
        list(read_archive(root=str(path), classes=2))


# ------------------------------------------------------------------------------------------------------ stored features


UIDS, VALUES = [f"u{n}" for n in range(4)], np.arange(12, dtype=np.float32).reshape(4, 3)


def read_all(root: Path, file: FeatureFile, width: int = 3) -> list[Any]:
    listed = feature_pieces(root=str(root), files=[file])
    return [item for piece in listed for item in read_stored_features(piece, root=str(root), width=width)]


def npz(*, packed: bool = False) -> bytes:
    held = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(held, uid=np.array(UIDS), feature=VALUES)
    return held.getvalue()


def with_members(data: bytes, *names: str) -> bytes:
    held = io.BytesIO(data)
    with zipfile.ZipFile(held, "a") as archive:
        for name in names:
            archive.writestr(name, b"more")
    return held.getvalue()


def unlisted(data: bytes) -> bytes:
    """The archive with a member that its list leaves out."""
    longer = with_members(data, "z.npy")
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(io.BytesIO(longer)) as new:
        listed = bytearray(data[old.start_dir :])
        listed[-6:-2] = new.start_dir.to_bytes(4, "little")
        return longer[: new.start_dir] + bytes(listed)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda data: b"before" + data, "6 bytes from byte 0 on are of no member"),
        (lambda data: data + data, r"\d+ bytes from byte 0 on are of no member"),
        (lambda data: data + b"behind", "continues after the end of its zip archive"),
        (unlisted, r"\d+ bytes from byte \d+ on are of no member"),
        (lambda data: with_members(data, "notes.txt"), "holds 'notes.txt', expected only arrays"),
        (lambda data: with_members(data, "feature.npy"), "holds 'feature.npy' twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_npz_that_holds_more_than_it_lists(tmp_path: Path, spoil: Callable[[bytes], bytes], told: str, packed: bool) -> None:
    (tmp_path / "f.npz").write_bytes(npz(packed=packed))
    assert len(read_all(tmp_path, FeatureFile("f.npz"))) == 4
    (tmp_path / "f.npz").write_bytes(spoil(npz(packed=packed)))
    with pytest.raises(ValueError, match=told):
        read_all(tmp_path, FeatureFile("f.npz"))


def torch_file(value: Any) -> bytes:
    held = io.BytesIO()
    torch.save(value, held)
    return held.getvalue()


def repacked(data: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return held.getvalue()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [(lambda data: data + b"behind", "continues after"), (lambda data: data + data, "of no member"), (repacked, "is packed")],
)
def test_a_torch_file_that_holds_more_than_it_lists(tmp_path: Path, spoil: Callable[[bytes], bytes], told: str) -> None:
    data = torch_file({uid: torch.from_numpy(value) for uid, value in zip(UIDS, VALUES.copy(), strict=True)})
    (tmp_path / "f.pt").write_bytes(data)
    assert len(read_all(tmp_path, FeatureFile("f.pt"))) == 4
    (tmp_path / "f.pt").write_bytes(spoil(data))
    with pytest.raises(ValueError, match=rf"f\.pt.*{told}"):
        read_all(tmp_path, FeatureFile("f.pt"))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.sparse_coo_tensor(torch.zeros((1, 0), dtype=torch.int64), torch.zeros(0), (3,)),
        torch.zeros(3, dtype=torch.float8_e5m2),
    ],
    ids=["sparse", "float8"],
)
def test_a_tensor_that_numpy_does_not_have(tmp_path: Path, tensor: torch.Tensor) -> None:
    (tmp_path / "f.pt").write_bytes(torch_file({"u": tensor}))
    with pytest.raises(ValueError, match=r"f\.pt, u holds .*expected plain numbers"):
        read_all(tmp_path, FeatureFile("f.pt"))


@pytest.mark.parametrize("packed", [True, False])
def test_a_torch_file_that_asks_for_room(tmp_path: Path, packed: bool) -> None:
    """``weights_only`` takes ``bytearray``, and calls it with any number."""
    held = io.BytesIO()
    torch.save({"u": torch.zeros(3), "room": Room()}, held, _use_new_zipfile_serialization=packed)
    (tmp_path / "f.pt").write_bytes(held.getvalue())
    with at_most(1 << 24), pytest.raises(ValueError, match=r"f\.pt is not a torch file of plain tensors: it names bytearray"):
        read_all(tmp_path, FeatureFile("f.pt"))


class Room:
    def __reduce__(self) -> Any:
        return bytearray, (1 << 28,)


def test_two_parquet_files_in_one(tmp_path: Path) -> None:
    """The footer is the second file's, and its places lie in the first: rows of the first were read as the second's."""
    for number in (1, 2):
        pq.write_table(pa.table({"uid": UIDS, "feature": (VALUES * number).tolist()}), tmp_path / f"{number}.parquet")
    one, two = ((tmp_path / f"{number}.parquet").read_bytes() for number in (1, 2))
    (tmp_path / "f.parquet").write_bytes(one + two)
    with pytest.raises(ValueError, match="is several Parquet files one after another"):
        read_all(tmp_path, FeatureFile("f.parquet"))
    assert len(read_all(tmp_path, FeatureFile("1.parquet"))) == 4


def votes(path: Path) -> None:
    read_votes(str(path))


def own_list(path: Path) -> None:
    columns = ListColumns("key", "form")
    (piece,) = listed_tables(root=str(path.parent), files=[TableFile(path.name, "new")], columns=columns)
    list(read_table(piece, root=str(path.parent), columns=columns))


def own_labels(path: Path) -> None:
    list(read_texts(str(path), {"key": "source.labels"}, ["form"]))


@pytest.mark.parametrize(
    ("read", "columns"), [(votes, VOTES.names), (own_list, ["key", "form"]), (own_labels, ["key", "form"])]
)
def test_parquet_that_is_not_whole(tmp_path: Path, read: Callable[[Path], None], columns: list[str]) -> None:
    """Rows of the first of two files were lost in silence, and a damaged page was an error that named no file."""
    path = tmp_path / "f.parquet"
    rows = [{"key": f"k{n}", "form": "labels", "worker": "w", "labels": ["x"]} for n in range(100)]
    pq.write_table(pa.Table.from_pylist(rows, VOTES).select(columns), path)
    read(path)
    data = path.read_bytes()
    path.write_bytes(data * 2)
    with pytest.raises(ValueError, match=r"f\.parquet.* is several Parquet files one after another"):
        read(path)
    path.write_bytes(data[:4] + bytes([255] * 20) + data[24:])
    with pytest.raises(ValueError, match=r"f\.parquet.* is not a valid Parquet file: .*thrift"):
        read(path)


def footer_of(data: bytes) -> int:
    """Where the footer of a Parquet file begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


COLUMN_FACTS = b"\x15\x08\x19\x15\x00\x19\x18\x01a\x15\x00\x00"
"""Of a column, as older writers put them behind it as well."""


@pytest.mark.parametrize("between", [b"", bytes(100), COLUMN_FACTS])
def test_a_row_group_that_the_footer_does_not_list(tmp_path: Path, between: bytes) -> None:
    def written(rows: int) -> bytes:
        held = io.BytesIO()
        pq.write_table(pa.table({"uid": UIDS[:rows], "feature": VALUES[:rows].tolist()}), held, row_group_size=2)
        return held.getvalue()

    all_rows, first_rows = written(4), written(2)
    data, footer = all_rows[: footer_of(all_rows)], first_rows[footer_of(first_rows) :]
    first = footer_of(first_rows)
    assert data[:first] == first_rows[:first]
    (tmp_path / "f.parquet").write_bytes(data[:first] + between + data[first:] + footer)
    with pytest.raises(ValueError, match=rf"f\.parquet holds \d+ bytes from byte {first} that its footer does not"):
        read_all(tmp_path, FeatureFile("f.parquet"))
    (tmp_path / "f.parquet").write_bytes(data[:first] + between + footer)
    assert len(read_all(tmp_path, FeatureFile("f.parquet"))) == 2


@pytest.mark.parametrize("how", [{}, {"write_page_index": True}, {"data_page_version": "2.0"}, {"compression": "gzip"}])
def test_parquet_as_it_should_be(tmp_path: Path, how: dict[str, Any]) -> None:
    pq.write_table(pa.table({"uid": UIDS, "feature": VALUES.tolist()}), tmp_path / "f.parquet", row_group_size=1, **how)
    assert len(read_all(tmp_path, FeatureFile("f.parquet"))) == 4


@pytest.mark.parametrize("form", ["entries", "stacked", "file"])
def test_a_vector_of_the_wrong_width_is_not_read(tmp_path: Path, form: str) -> None:
    """Two megabytes of npz took 4.4 GB before the width of what they hold was looked at."""
    large = np.zeros((1, 1 << 25), np.float32)
    if form == "entries":
        np.savez_compressed(tmp_path / "f.npz", u=large)
    elif form == "stacked":
        np.savez_compressed(tmp_path / "f.npz", uid=np.array(["u"]), feature=large)
    else:
        (tmp_path / "f").mkdir()
        np.save(tmp_path / "f" / "u.npy", large)
    with at_most(1 << 24):
        (reject,) = read_all(tmp_path, FeatureFile("f" if form == "file" else "f.npz"))
    assert (reject.reason, reject.detail[:23]) == (
        "wrong_width",
        "u: 33554432 numbers (33" if form == "stacked" else "u: 33554432 numbers (1,",
    )


def test_row_groups_that_claim_far_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_MAX_EXCESS", 1 << 20)
    values = pa.ListArray.from_arrays(pa.array([0, 1 << 22], pa.int32()), pa.array(np.zeros(1 << 22, np.int8)))
    pq.write_table(pa.table({"uid": ["u"], "feature": values}), tmp_path / "f.parquet", compression="zstd")
    with pytest.raises(ValueError, match=r"row group 0: 4,194,304 numbers in 1 rows of feature, expected 3 each"):
        read_all(tmp_path, FeatureFile("f.parquet"))


def test_labels_of_sequences_that_claim_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy_files, "MAX_BYTES_AT_ONCE", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", x_train=np.zeros((1, 0), np.int8), y_train=np.zeros((1, (1 << 20) + 1), np.int8))
    with pytest.raises(ValueError, match="take 1,048,577 bytes: 1,048,576 at most are allowed at once"):
        list(list_arrays(root=str(tmp_path), files=[ArrayFile("x.npz")], protocol=None, names=None))


# ------------------------------------------------------------------------------------------------ one value, and no more


def npy(head: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


HEADS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (",
    "{'descr': 'f4,,', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '(2,', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), '",
    "{'descr': [('a', '<f4', -1)], 'fortran_order': False, 'shape': (3,)}",
    "{'descr': [()], 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': '<f4', 'fortran_order': False}",
    "{'descr': '<f4', 'shape': (1L,), \x00'fortran_order': False",
    "  \n  {",
    "'''",
    "[" * 9000,
    "1",
]


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_heads_of_npy_files_that_are_none(tmp_path: Path, head: str) -> None:
    """SyntaxError, TokenError, IndexError, KeyError, AttributeError, RecursionError went up to the user."""
    data = npy(head, bytes(12))
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.npy"):
        read_all(tmp_path, FeatureFile("."))
    with pytest.raises(ValueError, match=r"a\.npy"):
        list(read_released_pairs(path=str(tmp_path / "a.npy")))
    with pytest.raises(ValueError, match="npy"):
        decode_npy(data)
    with pytest.raises(Reject, match="not_npy"):
        joints_from_npy(data)


def test_values_behind_an_npy_array() -> None:
    held = io.BytesIO()
    np.save(held, np.ones((2, 5, 3)))
    assert decode_npy(held.getvalue()).shape == (2, 5, 3)
    with pytest.raises(ValueError, match="are 240 bytes, and it holds 480"):
        decode_npy(held.getvalue() + bytes(240))


def test_bytes_behind_a_pickle() -> None:
    with pytest.raises(UnsafePickle, match=r"\d+ bytes after its end"):
        load_plain(pickle.dumps(["a"], 0) + pickle.dumps(["b"], 0)[:14])


@pytest.mark.parametrize(
    "read",
    [lambda path: list(activitynet.read_activitynet_json(path=path)), read_tasks, read_qa_json],
    ids=["activitynet", "tasks", "qa"],
)
def test_a_name_that_stands_twice_in_json(tmp_path: Path, read: Callable[[Any], Any]) -> None:
    """The last value was taken, and the others were lost."""
    path = tmp_path / "a.json"
    video = '"abcdefghijk": {"subset": "training", "duration": 9, "annotations": [{"label": "x", "segment": [1, 2]}]}'
    path.write_text(f'{{"database": {{{video}, {video}}}, "configuration_0": {{}}}}')
    with pytest.raises(ValueError, match="the name 'abcdefghijk' appears twice"):
        read(path if read is read_qa_json else str(path))


def test_an_index_that_is_none(tmp_path: Path) -> None:
    good = pa.table({"key": ["a"], "shard": ["s"], "offset": [0], "size": [512]})
    bad = [
        good.set_column(2, "offset", pa.array(["0"])),
        good.set_column(3, "size", pa.array([-512])),
        good.set_column(0, "key", pa.array([None], pa.string())),
        good.set_column(2, "offset", pa.array([(1 << 64) - 1], pa.uint64())),
    ]
    for table in bad:
        pq.write_table(table, tmp_path / "index.parquet")
        with pytest.raises(ShardError, match=r"index\.parquet: column"):
            DatasetIndex.open(tmp_path)
    (tmp_path / "index.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    with pytest.raises(ShardError, match=r"index\.parquet cannot be read"):
        DatasetIndex.open(tmp_path)


def test_a_hierarchy_that_is_no_csv(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_bytes(b"subclass,super\rclass\n")
    with pytest.raises(ValueError, match=r"hierarchy .*h\.csv"):
        read_hierarchy(str(tmp_path / "h.csv"))


# ---------------------------------------------------------------------------------------------------------------- lists


def test_lists_of_several_compressed_streams(tmp_path: Path) -> None:
    lines = [b"-3B32lodo2M_000059_000069\n", b"-3B32lodo2N_000059_000069\n"]
    for ending, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        path = tmp_path / f"held.txt{ending}"
        path.write_bytes(b"".join(map(pack, lines)))
        assert sum(sifted.kept.num_rows for sifted in read_inventory(path=str(path))) == 2
        path.write_bytes(pack(lines[0]) + b"and more")
        with pytest.raises(ValueError, match=r"held\.txt.* fails after line 0"):
            list(read_inventory(path=str(path)))


def test_a_zipped_list_is_refused(tmp_path: Path) -> None:
    """The first member of an archive was read, and the others left out."""
    with zipfile.ZipFile(tmp_path / "held.zip", "w") as archive:
        archive.writestr("a.txt", "-3B32lodo2M_000059_000069\n")
        archive.writestr("b.txt", "-3B32lodo2N_000059_000069\n")
    with pytest.raises(ValueError, match="unpack it first"):
        list(read_inventory(path=str(tmp_path / "held.zip")))


def test_a_quote_that_does_not_close_swallows_no_rows(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text('video,label\na.mp4,"x\nb.mp4,y\nc.mp4,z\n')
    with pytest.raises(ValueError, match=r"list\.csv.*, line 4: unexpected end of data"):
        list(list_csv(path=str(tmp_path / "list.csv")))


def test_lines_are_those_of_splitlines_wherever_they_are_cut() -> None:
    """A carriage return at the end of what is read at once has its newline in the next."""
    data = b"\xef\xbb\xbf" + b"".join((b"a" * n) + (b"\n", b"\r\n", b"\r", b"\n\n")[n % 4] for n in range(2000)) * 2 + b"end"
    for shift in range(8):
        text = data[:3] + b"x" * shift + data[3:]
        assert [line for block in line_blocks(io.BytesIO(text), "t") for line in block] == text[3:].splitlines()
    edge = b"x" * ((1 << 20) - 1) + b"\r\nb\r"
    assert [line for block in line_blocks(io.BytesIO(edge), "t") for line in block] == [b"x" * ((1 << 20) - 1), b"b"]


def test_sixty_megabytes_of_newlines() -> None:
    with at_most(1 << 27), pytest.raises(ValueError, match=f"t: more than {MAX_LINES:,} lines"):
        for _ in line_blocks(io.BytesIO(b"\n" * 60_000_000), "t"):
            pass


def test_a_line_that_goes_on_and_on(tmp_path: Path) -> None:
    (tmp_path / "held.txt.gz").write_bytes(gzip.compress(b"x" * (1 << 26)))
    with at_most(1 << 26), pytest.raises(ValueError, match="line 1 is too long"):
        list(read_inventory(path=str(tmp_path / "held.txt.gz")))


def test_newlines_in_a_list_of_kinetics(tmp_path: Path) -> None:
    head = b"label,youtube_id,time_start,time_end,split\na,abcdefghijk,1,11,train\n"
    (tmp_path / "a.csv").write_bytes(head + b"\n" * 1_000_000)
    (piece,) = list_pieces(root=str(tmp_path), files=[ListFile("r", "a.csv")])
    kept = rejected = 0
    with at_most(1 << 26):
        for sifted in read_kinetics_list(piece, root=str(tmp_path)):
            kept, rejected = kept + sifted.kept.num_rows, rejected + len(sifted.rejected)
    assert (kept, rejected) == (1, 1_000_000)


def test_newlines_in_the_metadata_of_yfcc100m(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with each line of a block was held at once: some two hundred bytes for one newline."""
    data = b"a\n" * 10 + b"\n" * 1_200_000 + b"b"
    found = [(bytes(block.data), block.size) for block in yfcc_lines.blocks(io.BytesIO(data), "y.txt")]
    assert b"".join(text for text, _ in found) == data + b"\n"
    assert sum(size for _, size in found) == len(data)
    line = "\t".join(["1", "u", "n", "d", "2006-02-28 20:33:06.0", "1141639556", *("x" * 15), "jpg", "0"])
    (tmp_path / "y.txt").write_text(f"{line}\n" * 3 + "\n" * 1_200_000)
    (piece,) = yfcc.pieces(path=str(tmp_path / "y.txt"))
    monkeypatch.setattr(yfcc, "_MAX_BAD_LINES", 1 << 16)  # of 1 << 20, which take half a minute where memory is traced
    with at_most(1 << 27), pytest.raises(ValueError, match=r"y\.txt: more than 65,536 lines .* are not metadata"):
        for _ in yfcc.read_metadata(piece, path=str(tmp_path / "y.txt")):
            pass


def test_newlines_in_a_skeleton_file() -> None:
    with at_most(1 << 27), pytest.raises(Reject, match="too_large"):
        parse_skeleton(b"1\n" + b"\n" * (1 << 23), joints=25)


def test_texts_among_the_numbers_of_a_sequence() -> None:
    """An array of texts makes as much room for each of them as for the longest."""
    data = json.dumps({"skeletons": [[["a"] * 3]] * 300 + [[["a" * 100_000] * 3]]}).encode()
    with at_most(1 << 26), pytest.raises(Reject, match="not_an_array"):
        sequence_from_json(json_values(data))


def test_json_of_far_too_many_values() -> None:
    with at_most(1 << 26), pytest.raises(Reject, match="not_json"):
        json_values(b'{"skeletons": [' + b"[]," * 6_000_000 + b"[]]}")
