"""Golden digests of the tiny configurations: they need no file and no download, and change only when what is made changes.

A changed digest goes into CHANGELOG.md under **Data**, with the reason and whether scores stay comparable. To write them again:
``python tests/pipelines/test_golden.py``.
"""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path

import pytest
from benchwright.pipelines import api
from benchwright.pipelines.catalogue import TITLES

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def digests(name: str, out: str) -> dict[str, str]:
    """Stage -> content digest of a run of the tiny configuration."""
    api.run(api.job(name, config="tiny"), out, scheduler="threads", workers=2)
    return {stage["name"]: stage["digest"] for stage in api.show(out)["stages"]}


@pytest.mark.parametrize("name", sorted(TITLES))
def test_tiny_configuration_gives_its_golden_digests(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "benchwright")
    assert digests(name, str(tmp_path)) == json.loads((GOLDEN / f"{name}.tiny.json").read_text())
    assert api.verify(str(tmp_path)) == []
    assert [record.getMessage() for record in caplog.records if record.name == "benchwright"] == []


if __name__ == "__main__":
    for benchmark in TITLES:
        with tempfile.TemporaryDirectory() as scratch:
            text = json.dumps(digests(benchmark, scratch), indent=1)
        (GOLDEN / f"{benchmark}.tiny.json").write_text(text + "\n")
