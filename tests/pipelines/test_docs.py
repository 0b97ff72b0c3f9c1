"""The examples of docs/trainings.md and docs/near_duplicates.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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


def test_near_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    for number in range(3):
        picture = Image.fromarray(draw.integers(0, 255, (6, 6, 3), np.uint8)).resize((96, 96))
        for split, side in (("train", 96), ("test", 64)) if number else (("train", 96),):
            path = tmp_path / f"photos/{split}/{number}-{split}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.resize((side, side)).save(path)
    page = PAGE.with_name("near_duplicates.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "page.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("page")
    told = capsys.readouterr().out
    assert "{'key': '1-test', 'duplicate_group': '1-test'" in told
    assert "{'near_duplicate': 2}" in told
