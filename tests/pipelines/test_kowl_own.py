"""KOWL on releases and features of one's own, in small: the packaged example."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchwright.datasets.kowl.example import write_example
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api

pytestmark = pytest.mark.usefixtures("blank_figures")

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


def test_the_card_says_of_how_many_clips_the_recording_is_unknown(bw: Cli) -> None:
    told = "Of 140 of 140 clips the recording is unknown"
    assert told in Path("mine/out/dataset/README.md").read_text()
    left = 'source.without_split={validate=0.1, test=0.2, leave_out={labels=["running outdoors"], groups=["9"]}}'
    grouped = "{path='2023.json', release='r2023', columns={id='file', label='what', feature='vec', group='camera'}}"
    rows = json.loads(Path("mine/2023.json").read_text())
    rows = [{**row, "camera": "9" if number % 20 == 0 else f"{number % 4}"} for number, row in enumerate(rows)]
    Path("grouped").mkdir()
    Path("grouped/2023.json").write_text(json.dumps(rows))
    shutil.copy("mine/2021.csv", "grouped/2021.csv")
    words = ["--set", f"source.files=[{{path='2021.csv', release='r2021'}}, {grouped}]", "--set", left]
    out = ["--config", "own", "--set", "source.root=grouped", *words, "--out", "grouped/out", "--quiet"]
    assert bw("run", "kowl", *out).code == 0
    index = pl.DataFrame(pl.from_arrow(DatasetIndex.open("grouped/out/dataset").table))
    new = index.filter(taken_release="r2023")
    trained = new.filter(role="train")
    assert set(trained["group"]).isdisjoint(new.filter(pl.col("role") != "train")["group"])
    assert "9" not in set(trained["group"])
    assert "running outdoors" not in set(trained["label_recent_first"])
    told = (
        "val and test clips are of a recording that also has clips in train. Of"  # r2021 says its splits, and clips are in both
    )
    assert told in Path("grouped/out/dataset/README.md").read_text()
    api.report("grouped/out")
    assert told in Path("grouped/out/report.html").read_text()
    assert api.verify("grouped/out") == []


def test_a_missing_feature_shows_what_was_sought_and_what_is_there(bw: Cli) -> None:
    renamed = "source.columns={id='clip', label='activity', split='part'}"
    one = "source.files=[{release='r2021', path='2021.csv'}]"
    told = bw("run", "kowl", "--config", "own", "--set", renamed, "--set", one, "--out", "other", "--quiet")
    assert told.code == 1
    assert "'cam-1/clip 0' is none of the 140 names of stored features, such as 'v00000', 'v00001', 'v00002'" in told.err
