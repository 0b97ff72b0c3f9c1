"""Reading a release of CLEAR that was made by hand: its rows are those of its lists, and every file is a row or a reject."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.rows import Rejected
from benchwright.datasets.clear.read_release import Released, ReleasedImage, read_release, release_pieces
from benchwright.datasets.clear.release_features import keep_with_vectors, read_vectors
from benchwright.datasets.clear.release_lists import PlaceInRelease, class_names

from . import release_by_hand as by_hand


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_hand.write_release(tmp_path_factory.mktemp("made") / "CLEAR10-TEST")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "release"))


def read(root: Path, **settings: Any) -> tuple[list[Any], dict[str, str]]:
    """Rows, and reasons of rejects by their keys."""
    images = {"images": settings["images"]} if "images" in settings else {}
    pieces = list(release_pieces(root=str(root), **settings))
    found = [each for piece in pieces for each in read_release(piece, root=str(root), max_bytes=10**6, **images)]
    rejects = [each for each in found if isinstance(each, Rejected)]
    assert len(rejects) == len({each.key for each in rejects})
    return [each for each in found if not isinstance(each, Rejected)], {each.key: each.reason for each in rejects}


def lists_of(root: Path) -> dict[str, tuple[int, int, tuple[str, ...]]]:
    """Path -> bucket, label and parts of the five splits, by the lists alone."""
    folder, found = root / "training_folder", {}
    for bucket in json.loads((folder / "bucket_indices.json").read_text()):
        for line in (folder / f"filelists/{bucket}/all.txt").read_text().split("\n"):
            parts = tuple(
                part
                for seed in range(5)
                for part in ("train", "test")
                if line in (folder / f"testset_ratio_0.3/split_{seed}/{bucket}/{part}.txt").read_text().split("\n")
            )
            found[line.split()[0]] = (int(bucket), int(line.split()[1]), parts)
    return found


def seeds_of(row: Released) -> tuple[str | None, ...]:
    return tuple(getattr(row, f"iid_seed{seed}") for seed in range(5))


OTHERS = {"./concept_group_dict.json", "./clip_result.json"}


def test_labels_buckets_and_splits_are_those_of_the_lists(made: Path) -> None:
    rows, rejects = read(made)
    assert {row.file: (row.bucket, row.label, seeds_of(row)) for row in rows} == lists_of(made)
    assert len(rows) == len(by_hand.BUCKETS) * len(by_hand.CLASSES) * by_hand.EACH
    assert rejects == {}
    row = rows[-1]
    assert (row.key, row.class_name, row.extension) == (by_hand.identity("2", 2, 6), "computer", "jpg")
    assert row.image.read() == (made / row.file).read_bytes()
    assert row.date_taken == dt.datetime(2005, 2, 28, 20, 33, 6)
    assert row.date_uploaded == dt.datetime(1970, 1, 1) + dt.timedelta(seconds=1141639556 + 2 * 31536000 + 6)
    assert json.loads(row.labels)["LICENSE_NAME"] == "Attribution License"
    assert class_names(str(made)) == tuple(by_hand.CLASSES)


def test_what_stands_in_which_piece_is_all_that_pieces_change(made: Path) -> None:
    whole = [json.loads(piece) for piece in release_pieces(root=str(made))]
    small = [json.loads(piece) for piece in release_pieces(root=str(made), files_per_piece=5, bytes_per_piece=2000)]
    assert len(small) > len(whole)
    assert [row for piece in small for row in piece["rows"]] == [row for piece in whole for row in piece["rows"]]


def test_without_images_the_lists_suffice(root: Path) -> None:
    shutil.rmtree(root / "labeled_images")
    rows, rejects = read(root, images=False)
    assert {row.file: (row.bucket, row.label, seeds_of(row)) for row in rows} == lists_of(root)
    assert not rejects
    assert not isinstance(rows[0], ReleasedImage)


def test_a_part_is_taken_and_what_is_not_is_counted(root: Path) -> None:
    shutil.rmtree(root / "training_folder/filelists/1")
    rows, rejects = read(root, buckets=[2], classes=["computer"])
    assert {(row.bucket, row.class_name) for row in rows} == {(2, "computer")}
    assert [row.label for row in rows] == [2] * by_hand.EACH, "labels stay those of the release"
    assert Counter(rejects.values()) == {"bucket_not_taken": 21, "class_not_taken": 14}
    with pytest.raises(ValueError, match=r"source.buckets: 5 is not in the release: there are 1, 2"):
        read(root, buckets=[5])
    with pytest.raises(
        ValueError, match=r"source.classes: 'dog' is not in the release: there are BACKGROUND, camera, computer"
    ):
        read(root, classes=["dog"])


def test_without_lists_the_metadata_say_what_is_labelled(root: Path) -> None:
    shutil.rmtree(root / "training_folder")
    rows, rejects = read(root)
    assert len(rows) == 42
    assert {(row.class_name, row.label) for row in rows} == set(zip(by_hand.CLASSES, range(3), strict=True))
    assert {seeds_of(row) for row in rows} == {(None,) * 5}
    assert not rejects


def test_train_and_test_folders_are_one_split_of_every_seed(tmp_path: Path) -> None:
    root = by_hand.write_train_test(tmp_path)
    rows, rejects = read(root)
    assert not rejects
    assert Counter((row.bucket, row.label, seeds_of(row)) for row in rows) == {
        (bucket, label, (part,) * 5): count
        for bucket in (1, 2)
        for label in range(3)
        for part, count in (("train", 5), ("test", 2))
    }
    assert all(row.file.startswith(f"{row.iid_seed0}/labeled_images/{row.bucket}/{row.class_name}/") for row in rows)
    shutil.rmtree(root / "test")
    rows, _ = read(root)
    assert {seeds_of(row) for row in rows} == {("train",) * 5}
    by_hand.write(root / "test/class_names.txt", "BACKGROUND\ncamera")
    with pytest.raises(ValueError, match=r"train/class_names.txt and test/class_names.txt name other classes"):
        read(root)


# ------------------------------------------------------------------------------------------------- rows and rejects


FIRST = f"labeled_images/1/BACKGROUND/{by_hand.identity('1', 0, 0)}.jpg"
SECOND = f"labeled_images/1/BACKGROUND/{by_hand.identity('1', 0, 1)}.jpg"
OTHER = f"labeled_images/2/camera/{by_hand.identity('2', 1, 0)}.jpg"


def in_lists(root: Path, old: str, new: str) -> None:
    """Replace a line wherever it stands."""
    for path in (root / "training_folder").rglob("*.txt"):
        path.write_text(path.read_text().replace(old, new))


def _gone(root: Path) -> None:
    (root / FIRST).unlink()


def _unlisted(root: Path) -> None:
    by_hand.write(root / "labeled_images/2/camera/1.jpg", b"")


def _twice(root: Path) -> None:
    again = FIRST.replace("/BACKGROUND/", "/camera/").replace("/1/", "/2/")
    by_hand.write(root / again, b"another image")
    in_lists(root, f"{OTHER} 1", f"{again} 1")
    (root / OTHER).unlink()


def _unknown_class(root: Path) -> None:
    in_lists(root, f"{FIRST} 0", f"{FIRST} 3")


def _outside(root: Path) -> None:
    by_hand.write(root.parent / "secret.jpg", b"secret")
    in_lists(root, f"{FIRST} 0", "labeled_images/../../secret.jpg 0")


def _linked(root: Path) -> None:
    by_hand.write(root.parent / "secret.jpg", b"secret")
    (root / FIRST).unlink()
    (root / FIRST).symlink_to(root.parent / "secret.jpg")


def _other_class(root: Path) -> None:
    in_lists(root, f"{FIRST} 0", f"{FIRST} 1")


def _other_bucket(root: Path) -> None:
    path = root / "training_folder/filelists/1/all.txt"
    path.write_text(path.read_text().replace(f"{FIRST} 0", f"{OTHER} 1"))
    for path in (root / "training_folder/testset_ratio_0.3").glob("*/1/*.txt"):
        path.write_text(path.read_text().replace(f"{FIRST} 0", f"{OTHER} 1"))


def _no_label(root: Path) -> None:
    in_lists(root, f"{FIRST} 0", "nolabel")


def _both(root: Path) -> None:
    folder = root / "training_folder/testset_ratio_0.3/split_2/1"
    for part in ("train", "test"):
        (folder / f"{part}_indices.json").unlink()
        lines = (folder / f"{part}.txt").read_text().split("\n")
        by_hand.write(folder / f"{part}.txt", "\n".join(dict.fromkeys([*lines, f"{FIRST} 0"])))


def _neither(root: Path) -> None:
    for folder in (root / "training_folder/testset_ratio_0.3/split_2").glob("1"):
        for part in ("train", "test"):
            (folder / f"{part}_indices.json").unlink()
            lines = (folder / f"{part}.txt").read_text().split("\n")
            by_hand.write(folder / f"{part}.txt", "\n".join(line for line in lines if line != f"{FIRST} 0"))


def _stray(root: Path) -> None:
    by_hand.write(root / "notes.txt", "mine")


def _all_images(root: Path) -> None:
    by_hand.write(root / "all_images/1/5.jpg", b"")


def _hidden(root: Path) -> None:
    by_hand.write(root / "labeled_images/1/.DS_Store", b"")


def _half_a_pair(root: Path) -> None:
    path = root / "labeled_metadata/1/BACKGROUND.json"
    path.write_text(path.read_text().replace('"Attribution License"', r'"\ud800"', 1))


@pytest.mark.parametrize(
    ("damage", "reason", "of", "lost"),
    [
        (_gone, "missing_file", FIRST, 1),
        (_unlisted, "not_listed", "labeled_images/2/camera/1.jpg", 0),
        (_twice, "duplicate_id", FIRST.replace("/BACKGROUND/", "/camera/").replace("/1/", "/2/"), 1),
        (_unknown_class, "unknown_class", FIRST, 1),
        (_outside, "outside_folder", "labeled_images/../../secret.jpg", 1),
        (_linked, "outside_folder", FIRST, 1),
        (_other_class, "class_differs", FIRST, 1),
        (_other_bucket, "bucket_differs", OTHER, 1),
        (_no_label, "bad_line", "", 1),
        (_both, "in_train_and_test", FIRST, 1),
        (_neither, "in_no_split", FIRST, 1),
        (_stray, "not_in_layout", "notes.txt", 0),
        (_all_images, "unlabelled", "all_images/1/5.jpg", 0),
        (_hidden, "hidden", "labeled_images/1/.DS_Store", 0),
        (_half_a_pair, "bad_metadata", FIRST, 1),
    ],
)
def test_what_cannot_be_a_row_is_a_reject_with_its_reason(
    root: Path, damage: Callable[[Path], None], reason: str, of: str, lost: int
) -> None:
    before = len(lists_of(root))
    damage(root)
    rows, rejects = read(root)
    assert rejects[f"./{of}"] == reason
    assert len(rows) == before - lost
    assert all(b"secret" not in row.image.read() for row in rows)
    on_disk = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.suffix == ".jpg"}
    assert on_disk <= {row.file for row in rows} | {key.removeprefix("./") for key in rejects}


def test_a_line_of_a_split_that_the_list_of_the_bucket_lacks_is_told(root: Path) -> None:
    path = root / "training_folder/testset_ratio_0.3/split_4/1/test.txt"
    path.write_text(f"{path.read_text()}\nlabeled_images/1/camera/7.jpg 1")
    path.with_name("test_indices.json").unlink()
    assert read(root)[1] == {"./labeled_images/1/camera/7.jpg 1": "not_in_filelist"}


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("class_names.txt", None, "neither class_names.txt nor train/class_names.txt found"),
        ("class_names.txt", "bus\nbus", "class_names.txt: expected one name a line, each once"),
        ("class_names.txt", "", "class_names.txt: expected one name a line, each once"),
        ("training_folder/bucket_indices.json", '["1", "two"]', "bucket 'two': expected whole numbers from 0, each once"),
        ("training_folder/bucket_indices.json", '["1", "1"]', "bucket '1': expected whole numbers from 0, each once"),
        ("training_folder/bucket_indices.json", '{"1"', "training_folder/bucket_indices.json is not JSON"),
        ("training_folder/bucket_indices.json", '{"1": 2}', "bucket_indices.json holds dict, expected list"),
        ("training_folder/bucket_indices.json", '["1", "2", "3"]', "filelists/3/all.txt not found.*source.buckets"),
        ("training_folder/filelists/2/all.txt", None, "filelists/2/all.txt not found.*source.buckets"),
        (
            "training_folder/testset_ratio_0.3/split_0/2/train_indices.json",
            "[1]",
            "train.txt and train_indices.json name other",
        ),
        ("training_folder/testset_ratio_0.3/split_0/2/train_indices.json", "[99]", "99 is not a line number: 21 images"),
        ("training_folder/testset_ratio_0.3/split_0/2/train_indices.json", "[true]", "True is not a line number"),
        (
            "labeled_metadata.json",
            '{"1": {"camera": "../../x.json"}}',
            "the file of bucket 1, class 'camera' is '../../x.json'",
        ),
        ("labeled_metadata.json", '{"1": {"camera": "x.json"}}', "x.json is not there, and labeled_metadata.json names it"),
        ("labeled_metadata/1/camera.json", '{"5": 5}', "labeled_metadata/1/camera.json: expected an object for each ID"),
        ("labeled_metadata/1/camera.json", '{"5": {}, "5": {}}', "camera.json is not JSON: the name '5' appears twice"),
    ],
)
def test_a_broken_list_is_one_error_that_names_it(root: Path, path: str, text: str | None, told: str) -> None:
    if text is None:
        (root / path).unlink()
    else:
        (root / path).write_text(text)
    with pytest.raises(ValueError, match=told) as raised:
        read(root)
    assert "\n" not in str(raised.value)


def test_splits_of_another_share_are_named(root: Path) -> None:
    folder = root / "training_folder"
    (folder / "testset_ratio_0.3").rename(folder / "testset_ratio_0.25")
    with pytest.raises(ValueError, match=r"testset_ratio_0.3 not found, testset_ratio_0.25 is: set source.test_share = 0.25"):
        read(root)
    assert {seeds_of(row) for row in read(root, test_share=0.25)[0]} == set(made_parts(root, 0.25))
    shutil.rmtree(folder / "testset_ratio_0.25/split_3")
    assert {row.iid_seed3 for row in read(root, test_share=0.25)[0]} == {None}


def made_parts(root: Path, share: float) -> list[tuple[str, ...]]:
    (root / f"training_folder/testset_ratio_{share}").rename(root / "training_folder/testset_ratio_0.3")
    found = [parts for _, _, parts in lists_of(root).values()]
    (root / "training_folder/testset_ratio_0.3").rename(root / f"training_folder/testset_ratio_{share}")
    return found


def test_a_split_without_text_is_read_from_its_numbers(root: Path) -> None:
    wanted = {row.key: seeds_of(row) for row in read(root)[0]}
    for path in (root / "training_folder/testset_ratio_0.3").rglob("*.txt"):
        path.unlink()
    assert {row.key: seeds_of(row) for row in read(root)[0]} == wanted
    (root / "training_folder/testset_ratio_0.3/split_1/2/test_indices.json").unlink()
    with pytest.raises(ValueError, match=r"split_1/2/test.txt is not there"):
        read(root)


# ---------------------------------------------------------------------------------------------------------- features


def vectors(root: Path, rows: list[Any], features: str = "moco_b0") -> list[Any]:
    """Of each image its vector, or why it has none."""
    fields = PlaceInRelease.__dataclass_fields__
    placed = [PlaceInRelease(**{name: getattr(row, name) for name in fields}) for row in rows]
    kept = keep_with_vectors(placed, root=str(root), features=[features])
    found = iter(read_vectors([row for row in kept if isinstance(row, PlaceInRelease)], root=str(root), features=features))
    return [row if isinstance(row, Rejected) else next(found) for row in kept]


def numbers_of(row: Any) -> tuple[str, int, int]:
    each = range(by_hand.EACH)
    return next((str(row.bucket), row.label, n) for n in each if by_hand.identity(str(row.bucket), row.label, n) == row.key)


@pytest.mark.parametrize("layout", ["training_folder", "concepts", "train_test"])
def test_every_image_has_its_vector(tmp_path: Path, layout: str) -> None:
    if layout == "train_test":
        by_hand.write_train_test(tmp_path)
    else:
        by_hand.write_concepts(tmp_path)
        (by_hand.write_training_folder if layout == "training_folder" else by_hand.write_features)(tmp_path)
    rows = read(tmp_path)[0]
    for row, found in zip(rows, vectors(tmp_path, rows), strict=True):
        assert found.feature.dtype == np.float32
        assert np.array_equal(found.feature, by_hand.vector(*numbers_of(row)).numpy())


def test_vectors_go_by_the_place_in_the_list_where_an_image_is_missing(root: Path) -> None:
    (root / FIRST).unlink()
    rows = read(root)[0]
    for row, found in zip(rows, vectors(root, rows), strict=True):
        assert np.array_equal(found.feature, by_hand.vector(*numbers_of(row)).numpy())


def test_vectors_that_are_missing_or_not_finite_are_rejects(root: Path) -> None:
    place = root / "training_folder/features/moco_b0/1/all.pth"
    values, labels = torch.load(place, weights_only=True)
    values[3, 2] = float("nan")
    torch.save((values, labels), place)
    (root / "training_folder/features/moco_b0/2/all.pth").unlink()
    rows = read(root)[0]
    found = vectors(root, rows)
    assert Counter(each.reason for each in found if isinstance(each, Rejected)) == {"no_feature": 21, "feature_not_finite": 1}
    assert [each.key for each in found] == [row.key for row in rows]
    with pytest.raises(ValueError, match=r"source.features: 'imagenet' is not in the release: there are moco_b0"):
        vectors(root, rows, "imagenet")


class _Runs:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ((torch.zeros(20, 6), [0] * 7 + [1] * 7 + [2] * 6), "20 vectors where number 20 of the bucket's list"),
        ((torch.zeros(21, 6), [0] * 21), "has label 0 where number 7 of the bucket's list.* of label 1: .* to another list"),
        ((torch.zeros(22, 6), [0] * 7 + [1] * 7 + [2] * 7), "22 vectors and 21 labels"),
        ((torch.zeros(21), [0] * 7 + [1] * 7 + [2] * 7), r"holds float32 of shape \(\), expected vectors"),
        ((torch.zeros(21, 6, dtype=torch.complex64), [0] * 7 + [1] * 7 + [2] * 7), "holds complex64 of shape"),
        (torch.zeros(3), r"expected a tensor \(n, d\) and a list of n labels"),
        ({"a": 1}, r"expected a tensor \(n, d\) and a list of n labels"),
        (_Runs(), "nothing else is loaded from it"),
    ],
)
def test_a_file_of_features_that_does_not_fit_its_list_is_refused(root: Path, held: Any, told: str) -> None:
    torch.save(held, root / "training_folder/features/moco_b0/1/all.pth")
    rows = read(root)[0]
    with pytest.raises(ValueError, match=told) as raised:
        vectors(root, rows)
    assert "\n" not in str(raised.value)
