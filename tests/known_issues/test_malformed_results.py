"""A result whose inner form is not what training writes, recorded anew by whoever edited it: one line that names the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchwright.curation.files import write_whole
from benchwright.pipelines import api
from benchwright.pipelines.cli import main as cli


@pytest.fixture(scope="module")
def two_camera(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("two_camera") / "out")
    api.run(api.job("two_camera", config="tiny", overrides=["source.pairs=60"]), out, scheduler="sync")
    api.train(out, methods=["gray_world", "bright_pixels"])
    return out


@pytest.fixture(scope="module")
def kowl(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("kowl") / "out")
    api.run(api.job("kowl", config="tiny"), out, scheduler="sync")
    api.train(out, methods=["evm"], protocols=["1"])
    return out


def edited(path: Path, change: Callable[[Any], None]) -> bytes:
    """Change a result and record it, as a program that writes through the package does; what was there."""
    old = path.read_bytes()
    value = json.loads(old)
    change(value)
    write_whole(path, json.dumps(value).encode())
    return old


def no_runs(value: Any) -> None:
    value["runs"] = dict.fromkeys(value["runs"])


def no_statistics(value: Any) -> None:
    for run in value["runs"].values():
        run["fold_mean"] = {}


def list_of_runs(value: Any) -> None:
    value["runs"] = list(value["runs"])


def check(out: str, path: Path, change: Callable[[Any], None], capsys: pytest.CaptureFixture[str], *commands: str) -> None:
    old = edited(path, change)
    try:
        for command in commands:
            assert cli.call([command, out]) != 0
            told = capsys.readouterr().err.strip()
            assert str(path) in told
            assert "train again" in told
            assert "Traceback" not in told
    finally:
        write_whole(path, old)
    assert api.scores(out)


@pytest.mark.parametrize("change", [no_runs, no_statistics, list_of_runs])
def test_errors_of_another_form(two_camera: str, change: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = Path(two_camera, "eval").rglob("gray_world/results.json")
    check(two_camera, path, change, capsys, "eval", "report")


def test_measures_of_another_form(kowl: str, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = Path(kowl, "eval").rglob("evm/results.json")
    check(kowl, path, lambda value: value.update(cumulative=[1]), capsys, "eval")


@pytest.mark.parametrize("text", ["", "run,image\n", "run,image,error_deg,estimate_r_g,estimate_b_g\na,b,c,d,e\n"])
def test_a_table_of_errors_of_another_form(two_camera: str, text: str) -> None:
    (path,) = Path(two_camera, "eval").rglob("gray_world/errors.csv")
    old = path.read_bytes()
    write_whole(path, text.encode() or b"\n")
    try:
        with pytest.raises(ValueError, match=r"gray_world/errors\.csv has not the form of a table of errors") as raised:
            api.report(two_camera)
        assert "\n" not in str(raised.value)
    finally:
        write_whole(path, old)


def test_a_result_that_is_nested_too_deep(two_camera: str) -> None:
    (path,) = Path(two_camera, "eval").rglob("gray_world/results.json")
    old = path.read_bytes()
    write_whole(path, b"[" * 200_000)
    try:
        with pytest.raises(ValueError, match=r"gray_world/results\.json is not JSON"):
            api.scores(two_camera)
    finally:
        write_whole(path, old)
