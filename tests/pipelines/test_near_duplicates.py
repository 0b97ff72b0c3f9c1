"""Near-duplicates in whole runs: what is rejected, what is told of roles, and the pictures of the report."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import benchwright as bw
import numpy as np
import pytest
from benchwright.curation.rows import Shape
from benchwright.curation.run import run
from benchwright.curation.stages.near_duplicates import DuplicateRule, NearDuplicate, near_duplicates_by_vector
from benchwright.pipelines import api
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.report import write_default


def made(name: str, out: Path, *overrides: str) -> dict[str, dict[str, int]]:
    """Rejects by stage."""
    api.run(api.job(name, config="tiny", overrides=overrides), str(out), scheduler="sync")
    return {stage["name"]: stage["rejects"] for stage in api.show(str(out))["stages"]}


def section(out: Path) -> str:
    page = Path(api.report(str(out))).read_text()
    return page.partition("<main")[2].partition(">Near-duplicates<")[2].partition("<h2")[0]


def test_clear_without_them(tmp_path: Path) -> None:
    near = "near_duplicates={keep='keep_best', within='bucket', max_distance=2}"
    stages = made("clear", tmp_path, "source.count=160", "qa.votes=none", near)
    dropped = stages["near"]["near_duplicate"]
    assert dropped > 3
    told = list(api.rejects(str(tmp_path), reason="near_duplicate"))
    kept = {row["key"] for row in told} & {row["detail"].partition(": similarity ")[0] for row in told}
    assert len(told) == dropped
    assert not kept  # who is kept is not rejected
    shown = section(tmp_path)
    assert f">{dropped}<" in shown
    assert shown.count("<img") > 5
    assert api.verify(str(tmp_path)) == []


def test_iirc_tells_what_leaks_and_drops_it(tmp_path: Path) -> None:
    loose = "max_distance=16"
    assert made("iirc", tmp_path / "told", f"near_duplicates={{{loose}}}")["near"] == {}
    shown = section(tmp_path / "told")
    assert "a leak" in shown
    assert "test and train" in shown
    dropped = made("iirc", tmp_path / "dropped", f"near_duplicates={{{loose}, keep='drop_across_splits'}}")
    assert dropped["near"]["near_duplicate"] > 0
    index = api.run(api.job("iirc", config="tiny", overrides=[f"near_duplicates={{{loose}}}"]), str(tmp_path / "told")).rows()
    roles = {row["key"]: row["role"] for row in index.table(["key", "role"]).to_pylist()}
    assert {roles[row["key"]] for row in api.rejects(str(tmp_path / "dropped"), reason="near_duplicate")} <= {
        "train",
        "intask_valid",
        "posttask_valid",
    }


@dataclasses.dataclass(frozen=True)
class Sound:
    key: str
    embedding: Annotated[np.ndarray, Shape((3,), "float32")]


def sounds() -> Iterator[Sound]:
    for at, name in enumerate("abcd"):
        yield Sound(name, np.eye(3, dtype=np.float32)[min(at, 2)])


def test_groups_without_pictures_are_told_by_their_keys(tmp_path: Path) -> None:
    found = bw.step(near_duplicates_by_vector, rule=DuplicateRule("keep_first"))
    flow = bw.source("sounds", bw.step(sounds)).whole("near", found, gives=NearDuplicate, max_rejects=None)
    run(flow, str(tmp_path), scheduler="sync", pipeline="sounds")
    page = Path(write_default("Sounds", str(tmp_path), shown={}, rounds=())).read_text()
    shown = page.partition("<main")[2].partition(">Near-duplicates<")[2].partition("<h2")[0]
    assert "No image" not in shown
    assert re.findall(r"<t[hd][^>]*>([a-d]|2)</t[hd]>", shown) == ["2", "c", "2", "d"]  # rows in groups; then the group


def test_vclimb_hashes_frames(tmp_path: Path) -> None:
    assert made("vclimb", tmp_path, "near_duplicates={max_distance=20}")["near"] == {}
    shown = section(tmp_path)
    assert "a leak" in shown
    assert "<img" in shown


@pytest.mark.parametrize(
    ("name", "near", "told"),
    [
        ("clear", "keep='drop_across_splits'", "splits are drawn later"),
        ("vclimb", "by='embedding'", "clips have no vectors"),
        ("iirc", "by='embedding'", r"give \[vectors\]"),
        ("iirc", "max_distance=64", "less than or equal to 63"),
    ],
)
def test_settings_that_do_not_fit(name: str, near: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        api.job(name, config="tiny", overrides=[f"near_duplicates={{{near}}}"])
