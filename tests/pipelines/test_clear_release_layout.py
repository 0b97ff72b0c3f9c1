"""The release layout of a run: what Avalanche reads, with the released splits drawn over the lists that stand in it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from benchwright.pipelines import api, clear_runs


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    out, folder = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("release") / "clear"
    todo = api.job("clear", config="tiny")
    api.run(todo, str(out))
    assert clear_runs.write_release_layout(todo.config, str(out), str(folder)) == api.show(str(out))["stages"][-1]["rows"]
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
