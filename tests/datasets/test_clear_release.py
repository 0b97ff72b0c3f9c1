"""The release folder: what its readers find in it, byte-equal repeats, and names that would leave it."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.rows import Blob
from benchwright.datasets.clear.release import WrittenRelease, write_all_metadata, write_feature_file, write_release
from benchwright.datasets.clear.splits import SEEDS, released_split

from tests.files import files_of

CLASSES = ("BACKGROUND", "bus", "camera")
EACH = 10


def row(bucket: int, name: str, number: int, place: int) -> dict[str, Any]:
    parts = {f"iid_seed{s}": "test" if place in released_split(3 * EACH, 0.3, s)[1] else "train" for s in SEEDS}
    return {
        "key": f"{bucket}{CLASSES.index(name)}{number:03d}",
        "bucket": bucket,
        "class_name": name,
        "extension": "jpg",
        "date_taken": dt.datetime(2006, 2, 28, 20, 33, 6),
        "date_uploaded": dt.datetime(2006, 3, 6, 10, 5, 18),
        "uploaded_unix": "1141639518",
        "title": "Ein Bus – «früh»",
        "score": 0.25,
        "image": Blob(b"x"),
        "embedding": np.zeros(3, dtype=np.float32),
        **parts,
    }


def items() -> Iterator[tuple[Mapping[str, Any], bytes]]:
    for bucket in (1, 2):
        for place, (name, number) in enumerate((name, number) for name in CLASSES for number in range(EACH)):
            yield row(bucket, name, number, place), f"image {bucket} {name} {number}".encode()


def test_readers_find_every_image_with_its_class_and_split(tmp_path: Path) -> None:
    """Reads as Avalanche's loader for clear10_neurips2021 does."""
    assert write_release(tmp_path, items(), class_names=CLASSES) == WrittenRelease(60, {1: 30, 2: 30})
    names = (tmp_path / "class_names.txt").read_text().split("\n")
    assert tuple(names) == CLASSES
    training = tmp_path / "training_folder"
    assert json.loads((training / "bucket_indices.json").read_text()) == ["1", "2"]
    for bucket in ("1", "2"):
        everything = [line.split() for line in (training / "filelists" / bucket / "all.txt").read_text().split("\n")]
        assert len(everything) == 30
        for path, label in everything:
            _, found_bucket, name, file = path.split("/")
            assert (found_bucket, name) == (bucket, names[int(label)])
            number = int(file.split(".")[0][2:])
            assert (tmp_path / path).read_bytes() == f"image {bucket} {name} {number}".encode()
        for seed in SEEDS:
            folder = training / "testset_ratio_0.3" / f"split_{seed}" / bucket
            for part, expected in zip(("train", "test"), released_split(30, 0.3, seed), strict=True):
                indices = json.loads((folder / f"{part}_indices.json").read_text())
                assert indices == expected.tolist()
                lines = [line.split() for line in (folder / f"{part}.txt").read_text().split("\n")]
                assert lines == [everything[index] for index in indices]


def test_metadata_has_yfcc_names(tmp_path: Path) -> None:
    write_release(tmp_path, items(), class_names=CLASSES)
    index = json.loads((tmp_path / "labeled_metadata.json").read_text())
    assert {bucket: tuple(paths) for bucket, paths in index.items()} == {"1": CLASSES, "2": CLASSES}
    found = json.loads((tmp_path / index["2"]["bus"]).read_text())
    assert list(found) == [f"21{number:03d}" for number in range(EACH)]
    assert found["21004"] == {
        "ID": "21004",
        "BUCKET": 2,
        "CLASS_NAME": "bus",
        "EXT": "jpg",
        "DATE_TAKEN": "2006-02-28 20:33:06.0",
        "DATE_UPLOADED": "1141639518",
        "TITLE": "Ein Bus – «früh»",
        "SCORE": 0.25,
        "IMG_PATH": "labeled_images/2/bus/21004.jpg",
    }


def test_repeats_and_repairs_give_the_same_bytes(tmp_path: Path) -> None:
    write_release(tmp_path / "a", items(), class_names=CLASSES)
    write_release(tmp_path / "b", itertools.chain(items()), class_names=CLASSES)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")

    def breaking() -> Iterator[tuple[Mapping[str, Any], bytes]]:
        yield from itertools.islice(items(), 41)
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        write_release(tmp_path / "c", breaking(), class_names=CLASSES)
    assert not list((tmp_path / "c").rglob(".tmp-*"))
    write_release(tmp_path / "c", items(), class_names=CLASSES)
    assert files_of(tmp_path / "c") == files_of(tmp_path / "a")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "class_names.txt").write_text("as it was")
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_release(tmp_path, [(row(1, "bus", 0, 0) | {"odd": {1, 2}}, b"x")], class_names=CLASSES)
    assert not (tmp_path / "labeled_metadata" / "1" / "bus.json").exists()
    assert not list(tmp_path.rglob(".tmp-*"))


def test_a_class_without_images_is_still_listed(tmp_path: Path) -> None:
    write_release(tmp_path, itertools.islice(items(), 20), class_names=CLASSES)
    assert json.loads((tmp_path / "labeled_metadata" / "1" / "camera.json").read_text()) == {}


def test_features_load_without_pickle_and_repeat(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    labels = [0] * 10 + [1] * 10 + [2] * 10
    path = write_feature_file(tmp_path, "moco_b0", 1, features, labels)
    assert path == tmp_path / "training_folder" / "features" / "moco_b0" / "1" / "all.pth"
    tensor, found = torch.load(path, weights_only=True)
    assert np.array_equal(tensor.numpy(), features)
    assert found == labels
    first = path.read_bytes()
    write_feature_file(tmp_path, "moco_b0", 1, features[:, :], np.asarray(labels).tolist())
    assert path.read_bytes() == first
    with pytest.raises(ValueError, match=r"\(30, 8\) for 29 labels"):
        write_feature_file(tmp_path, "moco_b0", 1, features, labels[1:])


def test_all_metadata_streams_bucket_by_bucket(tmp_path: Path) -> None:
    rows = [{"key": f"{i}", "bucket": i // 4, "title": f"t{i}"} for i in range(12)]
    assert write_all_metadata(tmp_path, iter(rows)) == {0: 4, 1: 4, 2: 4}
    found = json.loads((tmp_path / "all_metadata" / "1_metadata.json").read_text())
    assert found == {f"{i}": {"ID": f"{i}", "BUCKET": 1, "TITLE": f"t{i}"} for i in range(4, 8)}
    with pytest.raises(ValueError, match="bucket 0 comes after bucket 2"):
        write_all_metadata(tmp_path, [*rows, rows[0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "../../outside"}, "key '../../outside' cannot be a file name"),
        ({"key": "a/b"}, "cannot be a file name"),
        ({"key": "a\\b"}, "cannot be a file name"),
        ({"key": "/etc/passwd"}, "cannot be a file name"),
        ({"key": "a..b"}, "cannot be a file name"),
        ({"key": "a b"}, "cannot be a file name"),
        ({"key": "a\n"}, "cannot be a file name"),
        ({"key": "a\0b"}, "cannot be a file name"),
        ({"key": ""}, "cannot be a file name"),
        ({"key": ".hidden"}, "cannot be a file name"),
        ({"key": "x" * 300}, "cannot be a file name"),
        ({"extension": "jpg/../../x"}, "extension 'jpg/../../x'"),
        ({"extension": ""}, "extension ''"),
        ({"bucket": -1}, "bucket -1"),
        ({"bucket": "../1"}, "bucket '../1'"),
        ({"class_name": "../bus"}, "class '../bus'.*is not among"),
        ({"iid_seed2": "validation"}, "iid_seed2 of .* is 'validation'"),
    ],
)
def test_no_name_from_data_leaves_the_folder(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    inner = tmp_path / "inner"
    with pytest.raises(ValueError, match=message):
        write_release(inner, [(row(1, "bus", 0, 0) | change, b"x")], class_names=CLASSES)
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    assert not [path for path in inner.rglob("*") if path.is_file() and path.name != "class_names.txt"] or "iid" in message
    assert not os.path.lexists("/etc/passwd.jpg")


@pytest.mark.parametrize("name", ["../up", "a/b", "two words", "", "."])
def test_class_names_are_checked_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="class name"):
        write_release(tmp_path, items(), class_names=(*CLASSES, name))
    with pytest.raises(ValueError, match="feature type"):
        write_feature_file(tmp_path, name, 1, np.zeros((1, 1), dtype=np.float32), [0])
    assert not list(tmp_path.iterdir())


def test_order_and_repetition_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="order by bucket and class"):
        write_release(tmp_path, [(row(2, "bus", 0, 0), b""), (row(1, "bus", 0, 0), b"")], class_names=CLASSES)
    with pytest.raises(ValueError, match="order by bucket and class"):
        write_release(tmp_path, [(row(1, "camera", 0, 0), b""), (row(1, "bus", 0, 0), b"")], class_names=CLASSES)
    with pytest.raises(ValueError, match="appears twice in bucket 1, class 'bus'"):
        write_release(tmp_path, [(row(1, "bus", 0, 0), b""), (row(1, "bus", 0, 0), b"")], class_names=CLASSES)
    with pytest.raises(ValueError, match="one appears twice"):
        write_release(tmp_path, items(), class_names=(*CLASSES, "bus"))
