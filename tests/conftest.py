"""Fixtures that every test may use."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.installed import Install, installer
from tests.wheels import unpacked_wheel

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Hypothesis counts an example of over 0.2 s as a failure, which a busy machine has now and then.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# Threads of torch, faiss and scikit-learn would wait for each other in busy loops, which beside other tests costs many
# times what they compute. It is read when the first of these is loaded, also in processes that tests start, and changes
# nothing that they compute.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def state_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests name is not remembered among what the user has named."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from a copy of the tracked files, unpacked."""
    return unpacked_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(autouse=True)
def every_warning_is_logged() -> None:
    """A command that ran with ``--quiet`` in this process leaves the logger so."""
    logging.getLogger("benchwright").setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium: see ``tests.browser``. Tests of the same file cannot call ``asyncio.run``."""
    from tests.browser import launched  # here: it takes half a second, and few tests need it

    with launched() as found:
        yield found


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a throw-away package with entry points: see ``tests.installed``."""
    return installer(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data for verification, beside the checkout; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("../shared/data is not there: this check needs the real files")
    return SHARED_DATA
