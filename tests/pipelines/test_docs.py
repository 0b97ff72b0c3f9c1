"""The examples of docs/trainings.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Cli

PAGE = Path(__file__).resolve().parents[2] / "docs/trainings.md"


def test_trainings(bw: Cli, copy: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert bw("train", copy, "--method", "nap-finetune", "-q").code == 0
    copy.rename(copy.parent / "out")
    monkeypatch.chdir(copy.parent)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {})
    told = capfd.readouterr().out
    assert "nap-finetune" in told
    assert len(re.findall(r"iid nap-finetune \d 0\.\d\d|iid nap-finetune \d 1\.00", told)) == 5
