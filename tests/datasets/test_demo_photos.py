"""The demo's album: the same bytes each time, dates, rotations, rejects-to-be, and a look that drifts."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from benchwright.datasets.demo_photos.album import FLAWS, AlbumError, load, make_album, sources
from PIL import Image, UnidentifiedImageError

from tests.files import files_of

if importlib.util.find_spec("skvideo") is None:
    pytest.skip("the extra demo is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    return make_album(tmp_path_factory.mktemp("album"), seed=3, photos=200)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make_album(tmp_path_factory.mktemp("small"), seed=2, photos=100)


def rows(album) -> list[dict[str, str]]:
    with album.csv.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def opened(album, row) -> Image.Image | None:
    try:
        with Image.open(album.photos_dir / row["file"]) as image:
            image.load()
            return image
    except (UnidentifiedImageError, OSError):
        return None


def test_one_seed_gives_the_same_bytes_and_another_gives_others(album, small, tmp_path):
    """Where an album of another seed, with more photos, was."""
    kept = files_of(album.photos_dir)
    shutil.copytree(album.csv.parent, tmp_path / "album")
    (tmp_path / "album" / album.photos_dir.name / "2009" / "IMG_9999.jpg").write_bytes(b"one more")
    make_album(tmp_path / "album", seed=2, photos=100)
    assert files_of(tmp_path / "album") == files_of(small.csv.parent)
    assert set(kept.values()) & set(files_of(small.photos_dir).values()) == {hashlib.sha256().hexdigest()}


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("unsaved")
    with pytest.raises(AlbumError, match="not an album"):
        make_album(tmp_path / "mine", seed=2, photos=100)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "unsaved"


def test_the_csv_names_every_file_once(album):
    listed = [row["file"] for row in rows(album)]
    on_disk = {path.relative_to(album.photos_dir).as_posix() for path in album.photos_dir.rglob("*") if path.is_file()}
    assert len(listed) == len(set(listed)) == album.files == 200 + sum(FLAWS.values())
    assert set(listed) == on_disk


def test_each_flaw_is_there_as_often_as_it_says(album):
    table = rows(album)
    unreadable = [row for row in table if opened(album, row) is None]
    sizes = [(album.photos_dir / row["file"]).stat().st_size for row in unreadable]
    assert len(unreadable) == FLAWS["truncated"] + FLAWS["empty"] + FLAWS["text"]
    assert sizes.count(0) == FLAWS["empty"]
    assert sum((album.photos_dir / row["file"]).read_bytes()[:6] == b"A note" for row in unreadable) == FLAWS["text"]
    dated = [row for row in table if row["date_taken"]]
    assert len(table) - len(dated) == FLAWS["undated"]
    assert sum(row["date_uploaded"] <= row["date_taken"] for row in dated) == FLAWS["early"]


def test_exif_and_csv_agree_on_the_date(album):
    turned = 0
    for row in rows(album):
        image = opened(album, row)
        if image is not None:
            exif = image.getexif()
            written = exif.get_ifd(0x8769).get(0x9003)
            taken = dt.datetime.fromisoformat(row["date_taken"]) if row["date_taken"] else None
            assert written == (taken.strftime("%Y:%m:%d %H:%M:%S") if taken else None)
            turned += exif.get(0x0112) == 6
    assert 0 < turned < 30


def test_every_year_has_every_class(album):
    classes = {source.true_class for source in sources()} - {""}
    assert len(classes) == 8
    for year in range(2009, 2015):
        assert classes <= {row["true_class"] for row in rows(album) if row["file"].startswith(f"{year}/")}


def test_photos_darken_and_cool_over_the_years(album):
    table = [row for row in rows(album) if row["true_class"]]
    means = {"2009": [], "2014": []}
    for row in table:
        image = opened(album, row) if row["file"][:4] in means else None
        if image is not None:
            means[row["file"][:4]].append(np.asarray(image, dtype=np.float64).mean(axis=(0, 1)))
    early, late = (np.mean(means[year], axis=0) for year in ("2009", "2014"))
    assert early.sum() > 1.3 * late.sum()
    assert early[0] / early[2] > 1.15 * late[0] / late[2]


def test_every_source_is_in_its_wheel_and_has_its_frames():
    for source in sources():
        images = load(source)
        assert len(images) == (1 if source.frames is None else source.frames[1] - source.frames[0] + 1)
        assert all(image.mode == "RGB" and max(image.size) <= 1000 for image in images)


def test_album_json_records_what_the_bytes_depend_on(album):
    record = json.loads((album.csv.parent / "album.json").read_text())
    assert record["versions"]["pillow"] == importlib.metadata.version("pillow")
    assert set(record["sources"]) == {source.name for source in sources()}


def test_a_missing_package_is_one_line(monkeypatch, tmp_path):
    def nothing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", nothing)
    with pytest.raises(AlbumError, match=r"pip install benchwright\[demo\]$"):
        make_album(tmp_path / "album", seed=0, photos=100)


def test_the_command_writes_an_album_and_refuses_a_small_one(small, tmp_path):
    command = [sys.executable, "-P", "-m", "benchwright.datasets.demo_photos", str(tmp_path / "a"), "--seed", "2", "--photos"]
    done = subprocess.run([*command, "100"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{100 + sum(FLAWS.values())} files" in done.stdout
    assert files_of(tmp_path / "a") == files_of(small.csv.parent)
    refused = subprocess.run([*command, "99"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stderr == "demo_photos: photos=99, years=6: an album needs at least 100 photos and 1 year\n"
