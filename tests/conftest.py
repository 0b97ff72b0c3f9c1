"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Hypothesis counts an example of over 0.2 s as a failure, which a busy machine has now and then.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data for verification, beside the checkout; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("../shared/data is not there: this check needs the real files")
    return SHARED_DATA
