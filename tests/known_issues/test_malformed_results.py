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


def test_measures_of_another_form(kowl: str, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = Path(kowl, "eval").rglob("evm/results.json")
    check(kowl, path, lambda value: value.update(cumulative=[1]), capsys, "eval")
