"""Finished runs of the tiny benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny(finished: Callable[[str], Path]) -> Callable[[str], Path]:
    """``tiny("clear")`` is the folder of a finished run. Only to be read."""
    return finished
