"""Stored features: every form of file gives the same rows, bad vectors are rejected, and samples find theirs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from benchwright.curation.budget import NoRows
from benchwright.curation.flow import join, rows_of, source, step
from benchwright.curation.keys import where
from benchwright.curation.rows import Rejected
from benchwright.curation.run import run
from benchwright.datasets.features.files import FeatureFile
from benchwright.datasets.features.rows import StoredFeature, WithFeature, attach_features, feature_pieces, read_stored_features

UIDS = [f"abcdefghi{n:02d}_{n:06d}_{n + 10:06d}" for n in range(37)]
VALUES = np.random.default_rng(0).normal(size=(37, 2, 3)).astype(np.float32)


def write(folder: Path, form: str) -> FeatureFile:
    """The 37 tensors in one form."""
    match form:
        case "parquet":
            flat = pa.array(VALUES.reshape(37, 6).tolist(), pa.list_(pa.float32()))
            pq.write_table(pa.table({"uid": UIDS, "feature": flat}), folder / "f.parquet", row_group_size=5)
        case "fixed.parquet":
            flat = pa.FixedSizeListArray.from_arrays(pa.array(VALUES.ravel()), 6)
            pq.write_table(pa.table({"name": UIDS, "x3d": flat}), folder / "f.parquet", row_group_size=7)
            return FeatureFile("f.parquet", uid="name", feature="x3d")
        case "npz":
            np.savez(folder / "f.npz", uid=np.array(UIDS), feature=VALUES)
        case "packed.npz":
            np.savez_compressed(folder / "f.npz", uid=np.array(UIDS), feature=VALUES)
        case "names.npz":
            np.savez(folder / "f.npz", allow_pickle=False, **dict(zip(UIDS, VALUES, strict=True)))
        case "npy":
            np.save(folder / "f.npy", VALUES.astype(np.float64))
            (folder / "f.txt").write_text("\n".join(UIDS) + "\n")
            return FeatureFile("f.npy", ids="f.txt")
        case "ids.npy":
            np.save(folder / "f.npy", VALUES)
            np.save(folder / "ids.npy", np.array(UIDS))
            return FeatureFile("f.npy", ids="ids.npy")
        case "pt":
            torch.save({"uid": UIDS, "feature": torch.from_numpy(VALUES)}, folder / "f.pt")
        case "names.pt":
            torch.save({uid: torch.from_numpy(v.copy()) for uid, v in zip(UIDS, VALUES, strict=True)}, folder / "f.pt")
        case "old.pt":
            whole = {"uid": UIDS, "feature": torch.from_numpy(VALUES)}
            torch.save(whole, folder / "f.pt", _use_new_zipfile_serialization=False)
        case _:
            for n, (uid, value) in enumerate(zip(UIDS, VALUES, strict=True)):
                below = folder / "each" / ("train" if n % 2 else "val")
                below.mkdir(parents=True, exist_ok=True)
                if n % 3:
                    torch.save(torch.from_numpy(value.copy())[None], below / f"{uid}.pt")
                else:
                    np.save(below / f"{uid}.npy", value)
            return FeatureFile("each")
    return FeatureFile("f." + form.split(".")[-1])


FORMS = (
    "parquet", "fixed.parquet", "npz", "packed.npz", "names.npz", "npy", "ids.npy", "pt", "names.pt", "old.pt", "folder"
)  # fmt: skip


def read_all(root: Path, file: FeatureFile, *, piece_bytes: int = 200, width: int = 6, pattern: str | None = None):
    made = list(feature_pieces(root=str(root), files=[file], piece_bytes=piece_bytes))
    return made, [row for p in made for row in read_stored_features(p, root=str(root), width=width, uid_pattern=pattern)]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows(tmp_path, form):
    made, rows = read_all(tmp_path, write(tmp_path, form))
    assert len(made) > 3 or form == "folder"
    assert all(isinstance(row, StoredFeature) for row in rows)
    assert {row.uid: row.feature.tobytes() for row in rows} == {
        uid: value.tobytes() for uid, value in zip(UIDS, VALUES, strict=True)
    }
    assert len({row.key for row in rows}) == len(UIDS)
    assert form == "folder" or [row.uid for row in rows] == UIDS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece_bytes", [1, 10**9])
def test_the_size_of_pieces_changes_no_row(tmp_path, form, piece_bytes):
    file = write(tmp_path, form)
    rows = [(r.key, r.uid, r.feature.tobytes()) for r in read_all(tmp_path, file)[1]]
    assert [(r.key, r.uid, r.feature.tobytes()) for r in read_all(tmp_path, file, piece_bytes=piece_bytes)[1]] == rows


def test_bad_vectors_are_turned_away(tmp_path):
    good = np.ones(4)
    arrays = {
        "good": good,
        "short": np.ones(3),
        "nan": np.array([1, np.nan, 1, 1]),
        "beyond": np.array([1e300, 1, 1, 1]),
        "words": np.array(["a", "b", "c", "d"]),
        "half": good.astype(np.float16),
    }
    np.savez(tmp_path / "f.npz", allow_pickle=False, **arrays)
    _, rows = read_all(tmp_path, FeatureFile("f.npz"), width=4)
    assert [(r.uid if isinstance(r, StoredFeature) else r.reason) for r in rows] == [
        "good", "wrong_width", "not_finite", "not_finite", "not_numbers", "half"
    ]  # fmt: skip
    assert all(row.feature.dtype == np.float32 for row in rows if isinstance(row, StoredFeature))
    assert rows[1].detail == "short: 3 numbers (3,), not 4"


def test_rows_of_parquet_may_lack_a_vector_or_a_name(tmp_path):
    lists = pa.array([[1.0, 2.0], None, [3.0, None], [4.0, 5.0], [6.0]], pa.list_(pa.float64()))
    pq.write_table(pa.table({"uid": ["a", "b", "c", None, "e"], "feature": lists}), tmp_path / "f.parquet")
    _, rows = read_all(tmp_path, FeatureFile("f.parquet"), width=2)
    assert [row.reason for row in rows[1:]] == ["wrong_width", "not_finite", "bad_uid", "wrong_width"]
    assert rows[0].feature.tolist() == [1, 2]


def test_uid_is_found_in_a_longer_name(tmp_path):
    ids = ["train/playing guitar/-3B32lodo2M_000059_000069.mp4", "v_-3B32lodo2M.mkv"]
    np.save(tmp_path / "f.npy", np.ones((2, 3), np.float32))
    (tmp_path / "f.txt").write_text("\n".join(ids))
    file = FeatureFile("f.npy", ids="f.txt")
    _, rows = read_all(tmp_path, file, width=3, pattern=r"([\w-]{11}_\d{6}_\d{6})\.mp4$")
    assert rows[0].uid == "-3B32lodo2M_000059_000069"
    assert rows[1] == Rejected("f.npy:1", "bad_uid", "name 'v_-3B32lodo2M.mkv'")


class Trap:
    """Would run on being unpickled."""

    def __reduce__(self):
        return (os.system, ("touch trapped",))


def test_no_file_is_run_as_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Trap()}, tmp_path / "f.pt")
    np.savez(tmp_path / "f.npz", uid=np.array(["a"]), feature=np.array([Trap()], dtype=object))
    for name in ("f.pt", "f.npz"):
        with pytest.raises(ValueError, match=r"not a torch file of plain tensors|plain numbers"):
            read_all(tmp_path, FeatureFile(name))
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize(
    ("make", "file", "error", "words"),
    [
        (lambda f: None, FeatureFile("f.npz"), FileNotFoundError, "f.npz is not there"),
        (lambda f: None, FeatureFile("each"), FileNotFoundError, "folder of features"),
        (lambda f: None, FeatureFile("../f.npz"), ValueError, "a path within"),
        (lambda f: (f / "f.npz").write_bytes(b"PK no"), FeatureFile("f.npz"), ValueError, "not a valid npz file"),
        (lambda f: (f / "f.parquet").write_bytes(b"PAR1"), FeatureFile("f.parquet"), ValueError, "not a valid Parquet file"),
        (lambda f: np.save(f / "f.npy", np.ones((3, 2))), FeatureFile("f.npy"), ValueError, "needs a file of names"),
        (lambda f: np.save(f / "f.npy", np.asfortranarray(np.ones((3, 2)))), FeatureFile("f.npy"), ValueError, "in columns"),
        (lambda f: (np.save(f / "f.npy", 3.0), (f / "i").write_text("a")), FeatureFile("f.npy", ids="i"), ValueError, "single"),
        (lambda f: torch.save([1], f / "f.pt"), FeatureFile("f.pt"), ValueError, "expected a dict of tensors"),
        (lambda f: torch.save({"a": 3}, f / "f.pt"), FeatureFile("f.pt"), ValueError, "expected a tensor"),
        (lambda f: pq.write_table(pa.table({"uid": []}), f / "f.parquet"), FeatureFile("f.parquet"), ValueError, "no column"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_it_should_be_is_named(tmp_path, make, file, error, words):
    make(tmp_path)
    with pytest.raises(error, match=words):
        read_all(tmp_path, file)


def test_names_and_rows_must_be_as_many(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((3, 2)))
    (tmp_path / "f.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match=r"has 3 rows, and f\.txt names 2"):
        read_all(tmp_path, FeatureFile("f.npy", ids="f.txt"))


def npy(shape: tuple[int, ...], data: bytes = b"", descr: str = "<f4") -> bytes:
    """An .npy file whose head may promise what is not there."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": descr, "fortran_order": False, "shape": shape})
    return head.getvalue() + data


FIVE, TEN = npy((5, 4), bytes(80)), npy((10,), b"a\0\0\0" * 10, "<U1")
LYING = {
    "promises": ({"uid": TEN, "feature": npy((10**18, 4))}, r"f\.npz, feature: values \(1000000000000000000, 4\) of float32"),
    "wraps": ({"uid": TEN, "feature": npy((1 << 62, 4))}, r"f\.npz, feature: values .* are 73786976294838206464 bytes"),
    "holds more": ({"x": npy((4,), bytes(1 << 26))}, r"f\.npz, x: values .* are 16 bytes, and it holds 67108864"),
    "second": ({"y": npy((4,), bytes(16)), "x": npy((4,), b"1")}, r"f\.npz, x: values .* 16 bytes, and it holds 1"),
    "names": ({"uid": TEN, "feature": FIVE}, r"f\.npz: feature has 5 rows and uid the shape \(10,\), expected \(5,\)"),
    "negative": ({"uid": TEN, "feature": npy((-5, 4))}, r"f\.npz, feature has the shape \(-5, 4\), expected sides of 0 and up"),
    "scalar": ({"uid": TEN, "feature": npy((), bytes(4))}, r"f\.npz, feature is a single number, expected rows"),
    "no bytes": ({"uid": npy((10**18,), descr="<U0"), "feature": npy((10**18, 0))}, r"f\.npz, uid: <U0 in rows; expected"),
    "long head": ({"x": npy((4,))[:8] + b"\xff\xff" + b" " * (1 << 16)}, r"f\.npz, x is not a \.npy array: EOF"),
}  # fmt: skip


@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("case", LYING)
def test_the_head_of_an_npz_entry_is_held_against_what_follows(tmp_path, case, packed):
    """A head of 10**18 rows hung and filled memory; values beyond it were read whole; names without rows were dropped."""
    entries, told = LYING[case]
    with zipfile.ZipFile(tmp_path / "f.npz", "w", packed) as archive:
        for name, data in entries.items():
            archive.writestr(f"{name}.npy", data)
    tracemalloc.start()
    with pytest.raises(ValueError, match=told) as error:
        read_all(tmp_path, FeatureFile("f.npz"), width=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert peak < 1 << 24


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (npy((10**18, 4)), "values"),
        (npy((-5, 4)), "sides of 0 and up"),
        (npy((5, 4), bytes(79)), "80 bytes, and it holds 79"),
        (npy((5, 4), bytes(81)), "80 bytes, and it holds 81"),
    ],
)
def test_the_head_of_an_npy_file_is_held_against_what_follows(tmp_path, data, told):
    (tmp_path / "each").mkdir()
    (tmp_path / "each" / "a.npy").write_bytes(data)
    (tmp_path / "f.txt").write_text("a\nb\nc\nd\ne\n")
    for file in (FeatureFile("each"), FeatureFile("each/a.npy", ids="f.txt")):
        with pytest.raises(ValueError, match=rf"a\.npy.* {told}"):
            read_all(tmp_path, file, width=4)


def test_a_damaged_npz_and_a_torch_file_of_one_number_are_named(tmp_path):
    np.savez_compressed(tmp_path / "f.npz", uid=np.array(UIDS), feature=VALUES)
    whole = bytearray((tmp_path / "f.npz").read_bytes())
    whole[-600:-500] = bytes(100)  # within the packed features
    (tmp_path / "f.npz").write_bytes(whole)
    torch.save({"uid": ["a"], "feature": torch.tensor(3.0)}, tmp_path / "f.pt")
    for name in ("f.npz", "f.pt"):
        with pytest.raises(ValueError, match=name):
            read_all(tmp_path, FeatureFile(name))


def test_a_name_that_is_no_text_is_turned_away(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((2, 4)))
    (tmp_path / "f.txt").write_bytes(b"a\xff\nb\n")
    np.savez(tmp_path / "half.npz", uid=np.array(["a\udcff", "b"]), feature=np.ones((2, 4)))
    np.savez(tmp_path / "bytes.npz", uid=np.array([b"a\xff", b"b"]), feature=np.ones((2, 4)))
    for file in FeatureFile("f.npy", ids="f.txt"), FeatureFile("half.npz"), FeatureFile("bytes.npz"):
        _, rows = read_all(tmp_path, file, width=4)
        assert rows[0] == Rejected(f"{file.path}:0", "bad_uid", r"name 'a\udcff'")
        assert rows[1].uid == "b"


@dataclass(frozen=True)
class Sample:
    key: str
    label: str


def samples(*, keys: tuple[str, ...]) -> Iterator[Sample]:
    """Source step of samples."""
    for key in keys:
        yield Sample(key, f"label of {key}")


def flow(root: Path, files: list[FeatureFile], keys: list[str], width: int = 6):
    features = source(
        "stored",
        step(read_stored_features, root=where(root), width=width),
        pieces=step(feature_pieces, root=where(root), files=files, piece_bytes=200),
        max_rejects=None,
    )
    listed = source("listed", step(samples, keys=tuple(keys)))
    attach = step(attach_features, features=rows_of("stored"))
    return join(features, listed).whole("with_feature", attach, gives=WithFeature, max_rejects=None)


def rejects_of(done) -> pa.Table:
    store = done.store
    names = [name for name in store.list("stages/with_feature") if name.endswith(".rejects.parquet")]
    return pa.concat_tables([store.read_parquet(f"stages/with_feature/{name}") for name in names])


def test_samples_find_their_features_in_a_run(tmp_path):
    (tmp_path / "in").mkdir()
    file = write(tmp_path / "in", "npz")
    asked = [*reversed(UIDS[5:]), "not there"]
    done = run(flow(tmp_path / "in", [file], asked), str(tmp_path / "out"), scheduler="sync")
    rows = done.rows()
    table = rows.table(["key", "label"])
    assert table["key"].to_pylist() == asked[:-1]
    assert table["label"].to_pylist() == [f"label of {key}" for key in asked[:-1]]
    expected = VALUES.reshape(37, 6)[::-1][:32]
    assert np.array_equal(np.concatenate(list(rows.arrays("feature"))), expected)
    assert np.array_equal(rows.gather("feature", [3, 0]), expected[[3, 0]])
    rejects = rejects_of(done)
    told = f"'not there' is none of the 37 names of stored features, such as {', '.join(map(repr, UIDS[:3]))}"
    assert rejects.to_pylist() == [{"key": "not there", "reason": "no_feature", "detail": told}]


def test_a_feature_stored_twice_must_be_one_vector(tmp_path):
    (tmp_path / "in").mkdir()
    a, b = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    b[2] = 5
    np.savez(tmp_path / "in" / "a.npz", uid=np.array(["x", "y", "z"]), feature=a)
    np.savez(tmp_path / "in" / "b.npz", uid=np.array(["w", "y", "z"]), feature=b)
    files = [FeatureFile("a.npz"), FeatureFile("b.npz")]
    done = run(flow(tmp_path / "in", files, ["w", "x", "y", "z", "none"], 2), str(tmp_path / "out"), scheduler="sync")
    assert done.rows().table(["key"])["key"].to_pylist() == ["w", "x", "y"]
    rejects = rejects_of(done)
    assert Counter(rejects["reason"].to_pylist()) == {"conflicting_features": 1, "no_feature": 1}


def test_no_features_at_all_are_told_at_once(tmp_path):
    (tmp_path / "in" / "each").mkdir(parents=True)
    with pytest.raises(NoRows, match="source stage 'stored' yielded no rows"):
        run(flow(tmp_path / "in", [FeatureFile("each")], ["a", "b"]), str(tmp_path / "out"), scheduler="sync")


MEASURE = """
import re, sys
from pathlib import Path
from benchwright.datasets.features.files import FeatureFile
from benchwright.datasets.features.rows import feature_pieces, read_stored_features

def rows_of(path):
    file = FeatureFile(path, ids=f"{path}.txt" if path.endswith(".npy") else None)
    pieces = feature_pieces(root=sys.argv[1], files=[file], piece_bytes=1 << 22)
    return sum(1 for piece in pieces for _ in read_stored_features(piece, root=sys.argv[1], width=4096))

def peak_kib():  # not ru_maxrss, which a process inherits from the one that started it
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

rows_of(f"few{sys.argv[2]}")
before = peak_kib()
print(rows_of(f"many{sys.argv[2]}"), (peak_kib() - before) // 1024)
"""


def write_features(path: Path, n: int) -> None:
    """Of length 4096, in one of three forms."""
    values, uids = np.zeros((n, 4096), np.float32), [f"sample {k}" for k in range(n)]
    if path.suffix == ".parquet":
        table = pa.table({"uid": uids, "feature": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4096)})
        pq.write_table(table, path, row_group_size=250, use_dictionary=False, compression="none")
    elif path.suffix == ".npz":
        np.savez(path, uid=np.array(uids), feature=values)
    else:
        np.save(path, values)
        path.with_suffix(".npy.txt").write_text("\n".join(uids))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read there")
@pytest.mark.parametrize("form", [".npz", ".npy", ".parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str) -> None:
    """Of 96 MB, read in stretches of 4 MB."""
    write_features(tmp_path / f"few{form}", 250)
    write_features(tmp_path / f"many{form}", 6000)
    told = subprocess.run([sys.executable, "-c", MEASURE, tmp_path, form], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    count, grown_mib = map(int, told.stdout.split())
    assert count == 6000
    assert grown_mib < 60


def test_damaged_torch_files_are_one_line(tmp_path: Path) -> None:
    """Bytes changed and ends cut off: whatever torch's readers raise, it is told in one line with the file."""
    told: list[tuple[str, str]] = []
    for zipped in (True, False):
        torch.save({"a": torch.ones(4), "b": torch.zeros(4)}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
        whole = (tmp_path / "x.pt").read_bytes()
        for seed in range(60):
            data, draw = bytearray(whole), np.random.default_rng(seed)
            for at in draw.integers(0, min(len(data), 400), 8):
                data[at] ^= int(draw.integers(1, 256))
            place = tmp_path / f"{zipped}-{seed}.pt"
            place.write_bytes(data)
            try:
                list(feature_pieces(root=str(tmp_path), files=[FeatureFile(place.name)]))
            except ValueError as error:
                told.append((str(place), str(error)))
    assert len(told) > 60
    assert all(place in line and "\n" not in line for place, line in told)
