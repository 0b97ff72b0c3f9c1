"""KOWL on releases and features of one's own, in small: the packaged example."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchwright.datasets.kowl.example import write_example
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api

Cli = Callable[..., Any]
"""The fixture ``bw`` of ``conftest``."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, with its run beside the lists. Only to be read."""
    root = tmp_path_factory.mktemp("own")
    write_example(root / "mine", clips=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        api.run(api.job("kowl", config="own"), "mine/out", scheduler="sync")
    return root


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_packaged_example(folder: Path) -> None:
    table = pl.DataFrame(pl.from_arrow(DatasetIndex.open("mine/out/dataset").table))
    assert table.height == 140
    assert table.filter(pl.col("novel") & (pl.col("role") == "train"))["label_recent_first"].n_unique() == 4
    assert set(table["role"]) == {"train", "val", "test"}
    assert "running" not in set(table["label_recent_first"])


def test_of_the_folder_of_lists_only_the_lists_count(folder: Path) -> None:
    def found() -> dict[str, str]:
        return api.reasons(api.plan(api.job("kowl", config="own"), "mine/out"), "mine/out")

    Path("mine/notes.txt").write_text("the folder holds the run, and more")
    assert found() == {}
    path = Path("mine/2021.csv")
    before = path.read_text()
    path.write_text(before + "new clip,cooking,train,v00000\n")
    assert "listed" in found()
    path.write_text(before)


def test_a_missing_feature_shows_what_was_sought_and_what_is_there(bw: Cli) -> None:
    renamed = "source.columns={id='clip', label='activity', split='part'}"
    one = "source.files=[{release='r2021', path='2021.csv'}]"
    told = bw("run", "kowl", "--config", "own", "--set", renamed, "--set", one, "--out", "other", "--quiet")
    assert told.code == 1
    assert "'cam-1/clip 0' is none of the 140 names of stored features, such as 'v00000', 'v00001', 'v00002'" in told.err
