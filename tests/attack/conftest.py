"""The attack of ``benchmarks/attack`` in its short form; the long one is a command, see there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

if TYPE_CHECKING:
    from attack.isolated import Worker


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A watched process that takes hostile inputs."""
    from attack.isolated import Worker

    worker = Worker(tmp_path_factory.mktemp("attack"))
    yield worker
    worker.close()
