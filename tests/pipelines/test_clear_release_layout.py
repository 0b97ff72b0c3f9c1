"""The release layout of a run: what Avalanche reads, with the released splits drawn over the lists that stand in it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from benchwright.curation.lock import locked
from benchwright.curation.verify import verify
from benchwright.pipelines import api
from benchwright.pipelines.clear import release as clear_release

from tests.pipelines.conftest import Cli


@pytest.fixture(scope="module")
def release(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    out, folder = (tmp_path_factory.mktemp(name) / "clear" for name in ("run", "release"))
    shutil.copytree(tiny, out)
    todo = api.job("clear", config="tiny")
    assert clear_release.write_release_layout(todo.config, str(out), str(folder)) == api.show(str(out))["stages"][-1]["rows"]
    return out, folder


def test_splits_are_the_released_permutation_of_the_lists(release: tuple[Path, Path]) -> None:
    training = release[1] / "training_folder"
    for bucket in json.loads((training / "bucket_indices.json").read_text()):
        lines = (training / "filelists" / bucket / "all.txt").read_text().splitlines()
        for seed in range(5):
            order = list(range(len(lines)))
            random.seed(seed)
            random.shuffle(order)
            tested = int(0.3 * len(lines))
            split = training / "testset_ratio_0.3" / f"split_{seed}" / bucket
            assert (split / "test.txt").read_text().splitlines() == [lines[n] for n in order[len(lines) - tested :]]
            assert (split / "train.txt").read_text().splitlines() == [lines[n] for n in order[: len(lines) - tested]]


def test_lists_images_and_features_agree(release: tuple[Path, Path]) -> None:
    out, folder = release
    names = (folder / "class_names.txt").read_text().split()
    assert names == ["BACKGROUND", "blue", "green", "red"]
    for bucket in ("1", "2", "3"):
        lines = (folder / "training_folder" / "filelists" / bucket / "all.txt").read_text().splitlines()
        tensor, labels = torch.load(folder / f"training_folder/features/colours/{bucket}/all.pth", weights_only=True)
        assert tensor.shape == (len(lines), 11)
        for line, label in zip(lines, labels, strict=True):
            path, number = line.rsplit(" ", 1)
            assert (folder / path).is_file()
            assert int(number) == label == names.index(path.split("/")[2])
    assert (out / "dataset" / "dataset.json").is_file()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_holds_anything_is_refused(bw: Cli, release: tuple[Path, Path], tmp_path: Path) -> None:
    out, folder = release
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "mine" / "labeled_images").symlink_to(tmp_path / "victim")
    for target, held in ((tmp_path / "mine", "labeled_images"), (folder, "all_metadata")):
        before = files(target)
        told = bw("release", out, "--to", target)
        assert told.code == 2
        assert told.err == f"benchwright: {target}: it holds files, such as {held}: choose a new or empty folder\n"
        assert files(target) == before
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("place", ["run", "run/dataset", "run/new", ".", "link"])
def test_no_release_goes_into_the_run_or_around_it(bw: Cli, release: tuple[Path, Path], tmp_path: Path, place: str) -> None:
    run = shutil.copytree(release[0], tmp_path / "run")
    (tmp_path / "link").symlink_to(run)
    told = bw("release", run, "--to", tmp_path / place)
    assert told.code == 2
    assert "choose another folder" in told.err
    assert verify(str(run)) == []
    assert not (run / "new").exists()


def test_an_interrupted_release_is_made_again(bw: Cli, release: tuple[Path, Path], tmp_path: Path) -> None:
    out, folder = release
    target = tmp_path / "target"
    assert bw("release", out, "--to", target).code == 0
    (target / ".benchwright-unfinished").write_text("as a kill leaves it")
    (target / "class_names.txt").unlink()
    shutil.rmtree(target / "labeled_images" / "1")
    (tmp_path / "victim").mkdir()
    (target / "labeled_images" / "1").symlink_to(tmp_path / "victim")
    (target / "labeled_images" / "2" / "stale.png").write_bytes(b"")
    told = bw("release", out, "--to", target)
    assert told.code == 0, told.err
    assert files(target) == files(folder)
    assert list((tmp_path / "victim").iterdir()) == []


def test_two_releases_at_once_into_one_folder(bw: Cli, release: tuple[Path, Path], tmp_path: Path) -> None:
    with locked(tmp_path / "target" / ".benchwright-unfinished", ""):
        told = bw("release", release[0], "--to", tmp_path / "target")
    assert told.code == 1
    assert told.err.startswith("benchwright: another release is in progress in ")
