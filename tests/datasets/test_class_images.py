"""Sources of pictures with classes: CIFAR-100's archive, class folders, tars, Tiny-ImageNet's own."""

from __future__ import annotations

import collections
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchwright.curation.png import stored_png
from benchwright.curation.rows import Rejected
from benchwright.datasets.class_images.cifar import read_archive, read_cifar
from benchwright.datasets.class_images.folders import image_pieces, read_class_images, read_class_list
from PIL import Image


def python2(data: np.ndarray, labels: list[int]) -> bytes:
    """What cPickle of Python 2 writes of one file of the archive, protocol 2: texts are byte strings, opcodes U and T."""

    def text(value: bytes) -> bytes:
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    rows, width = data.shape
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R(" + number(3) + text(b"|")
    dtype += b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R("
    array += number(1) + number(rows) + number(width) + b"\x86" + dtype + b"\x89" + text(data.tobytes()) + b"tb"
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"fine_labels") + listed + b"u."


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """cifar-100-python with six pictures to train and three to test."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, count in (("train", 6), ("test", 3)):
        data = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
        (folder / name).write_bytes(python2(data, [number % 3 for number in range(count)]))
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"apple", b"bear", b"cup"]}, protocol=2))
    return folder


def test_cifar(archive: Path) -> None:
    rows = list(read_archive(root=str(archive), classes=3))
    assert [row.class_name for row in rows] == ["apple", "bear", "cup"] * 3
    assert [row.split for row in rows] == ["train"] * 6 + ["test"] * 3
    assert (rows[4].key, rows[4].file, rows[4].extension) == ("train-00004", "train/00004", "png")
    whole = pickle.loads((archive / "train").read_bytes(), encoding="bytes")[b"data"]
    pixels = np.asarray(Image.open(io.BytesIO(rows[4].image.read())))
    # Rows of the archive are 1,024 reds, 1,024 greens, 1,024 blues.
    assert pixels[0, 1].tolist() == whole[4][[1, 1025, 2049]].tolist()
    assert (pixels == whole[4].reshape(3, 32, 32).transpose(1, 2, 0)).all()


def test_cifar_as_it_is_published(archive: Path, tmp_path: Path) -> None:
    packed = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(archive, "cifar-100-python")
    rows = list(read_cifar("test", root=str(packed), classes=3))
    assert [row.image for row in rows] == [row.image for row in read_cifar("test", root=str(archive), classes=3)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("meta", {b"fine_label_names": [b"a"]}, "3 labels, 1 names, expected 3"),
        ("meta", {b"names": []}, "meta has no 'fine_label_names'"),
        ("test", {b"data": np.zeros((3, 3072)), b"fine_labels": [0, 1, 2]}, "its pixels are float64"),
        ("test", {b"data": np.zeros((3, 3072), np.uint8), b"fine_labels": [0, 1]}, "3 pictures, 2 labels"),
        ("test", {b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [3]}, "a label is not a number from 0 to 2"),
        ("test", Path("/"), "test is refused: names pathlib"),
        ("test", [1], "test is not a table"),
    ],
)
def test_archives_that_are_not_cifar(archive: Path, name: str, content: Any, message: str) -> None:
    (archive / name).write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=message):
        list(read_cifar("test", root=str(archive), classes=3))


def test_archives_that_are_not_there(archive: Path, tmp_path: Path) -> None:
    (archive / "train").unlink()
    with pytest.raises(ValueError, match="train: file not found"):
        list(read_cifar("train", root=str(archive), classes=3))
    (tmp_path / "x.tar.gz").write_bytes(b"no tar")
    with pytest.raises(ValueError, match="test and meta cannot be read: ReadError"):
        list(read_cifar("test", root=str(tmp_path / "x.tar.gz")))


# --------------------------------------------------------------------------------------------------------------- folders


def files(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stored_png(np.full((2, 2, 3), number, np.uint8)))


def found(root: Path, form: str, **settings: Any) -> dict[str, tuple[str, str]]:
    """File -> split and class; a reject by its reason."""
    rows: dict[str, tuple[str, str]] = {}
    for piece in image_pieces(root=str(root), form=form):  # type: ignore[arg-type]
        for row in read_class_images(piece, root=str(root), form=form, **settings):  # type: ignore[arg-type]
            rows[row.key if isinstance(row, Rejected) else row.file] = (
                ("rejected", row.reason) if isinstance(row, Rejected) else (row.split, row.class_name)
            )
    return rows


def test_imagenets_folders_and_tiny_imagenets(tmp_path: Path) -> None:
    files(
        tmp_path, "train/n01/n01_1.png", "train/n02/images/n02_0.png", "val/images/val_0.png", "val/n02/v.png", "more/n01/x.png"
    )
    files(tmp_path, "val/images/val_1.png")
    (tmp_path / "val.txt").write_text("val_0.JPEG\tn01\t0\t0\t62\t62\n")
    settings = {"splits": {"train": "train", "val": "test"}, "classes": str(tmp_path / "val.txt")}
    assert found(tmp_path, "folders", **settings) == {
        "train/n01/n01_1.png": ("train", "n01"),
        "train/n02/images/n02_0.png": ("train", "n02"),
        "val/images/val_0.png": ("test", "n01"),
        "val--images--val_1": ("rejected", "no_class"),
        "val/n02/v.png": ("test", "n02"),
        "more--n01--x": ("rejected", "no_split"),
        next(key for key in found(tmp_path, "folders", **settings) if key.startswith("val_txt")): ("rejected", "not_an_image"),
    }


def test_tars(tmp_path: Path) -> None:
    picture = stored_png(np.zeros((2, 2, 3), np.uint8))
    for name, members in (("train/n01.tar", ["n01_1.png"]), ("train/all.tar", ["n02/a.png"]), ("val/flat.tar", ["v_1.png"])):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with tarfile.open(tmp_path / name, "w") as tar:
            for member in members:
                info = tarfile.TarInfo(member)
                info.size = len(picture)
                tar.addfile(info, io.BytesIO(picture))
    (tmp_path / "val.csv").write_text("ImageId,PredictionString\nv_1,n02 1 2 3 4\n")
    splits = {"train": "train", "val": "test"}
    rows = found(tmp_path, "tars", splits=splits, classes=str(tmp_path / "val.csv"))
    assert rows.pop("./val.csv") == ("rejected", "not_a_tar")
    assert rows == {
        "train/all.tar/n02/a.png": ("train", "n02"),
        "train/n01.tar/n01_1.png": ("train", "n01"),
        "val/flat.tar/v_1.png": ("test", "n02"),
    }


def test_lists_of_classes(tmp_path: Path) -> None:
    (tmp_path / "twice.txt").write_text("a n01\na n02\n")
    with pytest.raises(ValueError, match="line 2: 'a' is 'n01' and 'n02'"):
        read_class_list(str(tmp_path / "twice.txt"))
    (tmp_path / "short.txt").write_text("a n01\nb\n")
    with pytest.raises(ValueError, match="line 2: 'b' is not a file and its class"):
        read_class_list(str(tmp_path / "short.txt"))


def test_a_piece_of_a_tar_is_read_and_no_more(tmp_path: Path) -> None:
    """Each piece used to be read on to the end of the tar, which took a time that grew with its square."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(6):
            picture = stored_png(np.full((2, 2, 3), number, np.uint8))
            info = tarfile.TarInfo(f"n01/{number}.png")
            info.size = len(picture)
            tar.addfile(info, io.BytesIO(picture))
    from benchwright.curation.stages.tar_sources import tar_pieces

    first, second = tar_pieces(root=str(tmp_path), files_per_piece=3)
    # Whatever lies behind the first piece: it is none of its business.
    whole = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[: json.loads(second)["offset"]] + b"\xff" * 5000)
    settings: Any = {"root": str(tmp_path), "form": "tars", "splits": {}}
    assert [type(row).__name__ for row in read_class_images(first, **settings)] == ["ClassImage"] * 3
    assert {row.reason for row in read_class_images(second, **settings)} == {"truncated"}  # type: ignore[union-attr]


def test_tiny_imagenet(shared_data: Path) -> None:
    """Ten thousand real JPEGs, their bytes as they are; two text files beside the tar are rejected."""
    root = shared_data / "tiny_imagenet"
    settings: Any = {"root": str(root), "form": "tars", "splits": {}}
    pieces = list(image_pieces(root=str(root), form="tars"))
    assert sum(len(json.loads(piece)["samples"]) for piece in pieces) == 10_000
    rows = list(read_class_images(pieces[0], **settings))
    classes = collections.Counter(row.class_name for row in rows if not isinstance(row, Rejected))
    assert set(list(classes.values())[:-1]) == {50}
    with tarfile.open(root / "val_10000.tar") as tar:
        body = tar.extractfile(rows[0].file.removeprefix("val_10000.tar/"))  # type: ignore[union-attr]
        assert body is not None
        assert body.read() == rows[0].image.read()  # type: ignore[union-attr]
