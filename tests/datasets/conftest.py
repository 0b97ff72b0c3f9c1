"""Finished runs of the tiny benchmarks, each made once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from benchwright.pipelines import api


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``tiny("clear")`` is the folder of a finished run. Only to be read."""

    @functools.cache
    def made(name: str) -> Path:
        out = tmp_path_factory.mktemp(name) / "out"
        api.run(api.job(name, config="tiny"), str(out))
        return out

    return made
