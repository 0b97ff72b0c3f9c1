"""Records whose seal fits, and which are none all the same: one line says what is wrong, whatever the command."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from benchwright.curation.records import json_text, sealed
from benchwright.pipelines.cli import main as cli

RECORDS = {
    "run.json": [("stages", "abc"), ("stages", ["../x"]), ("result", "nothing"), ("config", []), ("outdated", "no")],
    "stages/listed/artifact.json": [
        ("recipe", {}),
        ("parts", [{"rows": -1, "files": {}}]),
        ("parts", [{"rows": 1, "files": {"../../x": {"sha256": "", "size": 1}}}]),
        ("parts", 7),
        ("parts", []),
        ("recipe.pieces", []),
        ("recipe.pieces", {"step": "a.b"}),
        ("recipe.within", {"nothing": "qa/votes.parquet"}),
        ("rejects", ["x"]),
        ("stage", "checked"),
        ("more", 1),
    ],
    "stages/listed/made.json": [
        ("seconds", "long"),
        ("versions", []),
        ("cost", []),
        ("cost.tasks", -1),
        ("cost.busy_seconds", "long"),
    ],
}


@pytest.fixture
def whole(finished: Callable[[str], Path]) -> Path:
    return finished("clear")


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize(("name", "change"), [(name, change) for name, changes in RECORDS.items() for change in changes])
def test_a_record_that_is_sealed_and_none(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, change: tuple[str, object]
) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    record = json.loads((copy / name).read_text())
    del record["seal"]
    *within, last = change[0].split(".")
    functools.reduce(dict.__getitem__, within, record)[last] = change[1]
    (copy / name).write_bytes(json_text(sealed(record)))
    for words in (["show"], ["verify"], ["rejects"], ["eval"], ["report"], ["qa", "votes"], ["compare", str(whole)]):
        capfd.readouterr()
        code = cli.call([*words, str(copy)])
        told = capfd.readouterr().err
        assert code in (0, 1, 2)
        assert "--debug" not in told
        assert told.count("\n") <= 1
    capfd.readouterr()
    assert cli.call(["show", str(copy)]) == 1
    assert "is not the record of a" in (told := capfd.readouterr().err) or "does not say how a stage was computed" in told


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "9" * 6_000 + "}", '{"stages": "\\ud800"}', "\0"])
def test_a_record_that_is_no_record_at_all(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    for command in ("show", "verify", "rejects", "eval", "report"):
        assert cli.call([command, str(tmp_path)]) == 1
        told = capfd.readouterr().err
        assert told.count("\n") == 1
        assert "run.json" in told


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 3_000, "1" + "0" * 30, "1e999", "x\udcff", "\0"])
def test_a_setting_that_is_no_value(tmp_path: Path, capfd: pytest.CaptureFixture[str], value: str) -> None:
    assert cli.call(["plan", "clear", "--config", "tiny", "--set", f"seed={value}", "--out", str(tmp_path / "out")]) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "seed" in told


@pytest.mark.parametrize(
    "text", [b"seed = " + b"9" * 5_000, b"seed = " + b"[" * 3_000, b"\xff\xfe", b"a = 2020-01-01", b"\n" * (5 << 20)]
)
def test_a_settings_file_that_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: bytes) -> None:
    (tmp_path / "mine.toml").write_bytes(text)
    assert cli.call(["plan", "clear", "--config", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out")]) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "mine.toml" in told


@pytest.mark.parametrize(
    ("benchmark", "setting"),
    [
        ("clear", "images.max_bytes=0"),
        ("clear", "images.min_bytes=-1"),
        ("clear", "images.max_aspect=-2"),
        ("clear", "baselines.epochs=0"),
        ("iirc", "source.shapes=-1"),
        ("vclimb", "frames.fps=-25"),
        ("vclimb", "split.untrim.min_coverage=-1"),
        ("vclimb", "videos.max_rejects=-1"),
    ],
)
def test_a_number_that_nothing_can_be_done_with(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], benchmark: str, setting: str
) -> None:
    assert cli.call(["plan", benchmark, "--config", "tiny", "--set", setting, "--out", str(tmp_path / "out")]) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert f"{setting.split('=')[0]} = " in told
    assert "it should be greater than" in told


@pytest.mark.parametrize("text", ["null", "[]", "{}", '{"digest": 7}'])
def test_a_manifest_that_is_none(whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    (copy / "dataset" / "dataset.json").write_text(text)
    capfd.readouterr()
    assert cli.call(["train", str(copy)]) == 1
    told = capfd.readouterr().err
    assert "dataset.json is not the manifest of a dataset" in told
    assert told.count("\n") == 1


def test_settings_of_very_many_levels(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep.toml").write_text("[" + ".".join(["a"] * 20_000) + "]\nb = 1\n")
    assert cli.call(["plan", "clear", "--config", str(tmp_path / "deep.toml"), "--out", str(tmp_path / "out")]) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "deep.toml" in told
