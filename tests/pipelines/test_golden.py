"""Golden digests of the tiny configurations: they need no file and no download, and change only when what is made changes.

A changed digest goes into CHANGELOG.md under **Data**, with the reason and whether scores stay comparable. To write them again:
``python tests/pipelines/test_golden.py``.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from benchwright.pipelines import api
from benchwright.pipelines.catalogue import TITLES

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def digests(out: str) -> dict[str, str]:
    """Stage -> content digest of a run."""
    return {stage["name"]: stage["digest"] for stage in api.show(out)["stages"]}


@pytest.mark.parametrize("name", sorted(TITLES))
def test_tiny_configuration_gives_its_golden_digests(
    name: str, finished: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    out = finished(name)
    caplog.set_level(logging.WARNING, "benchwright")
    assert digests(str(out)) == json.loads((GOLDEN / f"{name}.tiny.json").read_text())
    assert api.verify(str(out)) == []
    assert [record.getMessage() for record in caplog.records if record.name == "benchwright"] == []
    assert (out.parent / "warnings.txt").read_text() == ""


if __name__ == "__main__":
    for benchmark in TITLES:
        with tempfile.TemporaryDirectory() as scratch:
            api.run(api.job(benchmark, config="tiny"), scratch)
            text = json.dumps(digests(scratch), indent=1)
        (GOLDEN / f"{benchmark}.tiny.json").write_text(text + "\n")
