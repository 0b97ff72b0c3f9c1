"""Fixtures that every test may use."""

from __future__ import annotations

import fcntl
import gc
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.installed import Install, installer
from tests.wheels import unpack_wheel

if TYPE_CHECKING:
    from benchwright.eval.report.figures import Theme
    from playwright.sync_api import Browser

# Hypothesis counts an example of over 0.2 s as a failure, which a busy machine has now and then.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# Threads of torch, faiss and scikit-learn would wait for each other in busy loops, which beside other tests costs many
# times what they compute. It is read when the first of these is loaded, also in processes that tests start, and changes
# nothing that they compute.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Bytecode is kept whatever the shell's setting is, as by `make test`: otherwise each of several hundred processes that tests
# start compiles all that it imports, two seconds with torch, and each worker of pytest compiles every test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Worker processes of dask's clusters are forked from a server that has imported what they need: one is begun for each that a
# test ends, and to import it anew takes a second of the processor. It is read on import, and by processes that tests start.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")

# The collector would go through the millions of objects of the packages and the tests again and again: an eighth of the time.
gc.set_threshold(100_000, 50, 50)

DEAR = (
    "curation/test_cluster_stores.py",
    "pipelines/test_clear_pixels.py",
    "pipelines/test_clear_sources_with_labels.py",
    "pipelines/test_cli.py",
    "pipelines/test_experiments.py",
    "pipelines/test_two_camera.py",
    "pipelines/test_from_outside.py",
    "pipelines/test_view_browser.py",
    "curation/test_video_missing.py",
    "training/test_ranks.py",
    "test_core_alone.py",
    "test_docstrings.py",
    "test_documents.py",
    "pipelines/test_feature_sets.py",
    "pipelines/test_kowl.py",
    "pipelines/test_kowl_results.py",
    "pipelines/test_skeleton_experiments.py",
    "curation/test_dask_cluster.py",
    "pipelines/test_cluster.py",
    "pipelines/test_vclimb.py",
    "pipelines/test_what_runs_write.py",
)
"""Files of half a minute or more. They come first, so that no worker of pytest is at one of them when all others are done."""

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):  # of pytest-xdist, which would begin with files of many tests, dear or not
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not str(item.path).endswith(DEAR))
    gc.freeze()


_TAKE_LONG = ("distributed", "numpy", "pandas", "pyarrow.compute", "pyarrow.parquet", "torch")
"""Packages whose import takes each process that needs them a good part of a second, torch two seconds."""


@pytest.fixture(scope="session", autouse=True)
def one_server_for_all_processes() -> Iterator[None]:
    """Whoever asks first for the server from which processes are forked, a run, a cluster or a test: it has imported what any
    of them needs, since it stays the same until this process ends."""
    preload = forkserver.set_forkserver_preload
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver, "set_forkserver_preload", lambda names: preload([*dict.fromkeys((*names, *_TAKE_LONG))]))
        yield


@pytest.fixture(scope="session", autouse=True)
def state_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests name is not remembered among what the user has named."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is filled once for all workers of pytest: whoever comes first makes it, and the others wait."""
    base = temporary.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            make(folder)
            (folder / "made").touch()
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from a copy of the tracked files, unpacked. Only to be read: other workers may be at it."""
    return made_once(tmp_path_factory, "wheel", unpack_wheel) / "unpacked"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``finished("iirc")`` is a run of the tiny configuration, made once for all workers of pytest; ``warnings.txt`` beside it
    has what was warned of. Only to be read, and not to be run again: other workers may be at it."""
    from benchwright.pipelines import api  # here: some tests are of what is imported when

    def run(name: str, folder: Path) -> None:
        warned = io.StringIO()
        handler = logging.StreamHandler(warned)
        handler.setLevel(logging.WARNING)
        logger = logging.getLogger("benchwright")
        logger.addHandler(handler)
        try:
            api.run(api.job(name, config="tiny"), str(folder / "run"), scheduler="threads", workers=2)
        finally:
            logger.removeHandler(handler)
        (folder / "warnings.txt").write_text(warned.getvalue())

    return lambda name: made_once(tmp_path_factory, f"finished-{name}", lambda folder: run(name, folder)) / "run"


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what pages say: see ``without_pictures``."""
    without_pictures(monkeypatch)


def without_pictures(patch: pytest.MonkeyPatch) -> None:
    """Figures are composed as ever, but an empty picture stands for what matplotlib makes of them, which takes most of a
    report's time."""
    from benchwright.eval.report import figures  # here: some tests are of what is imported when

    def composed(draw: Callable[..., None], theme: Theme, size_in: tuple[float, float]) -> bytes:
        from matplotlib.figure import Figure

        draw(Figure(figsize=size_in).add_subplot(), theme)
        return b'<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="72pt" viewBox="0 0 72 72"/>'

    patch.setattr(figures, "_svg", composed)


@pytest.fixture(autouse=True)
def every_warning_is_logged() -> None:
    """A command that ran in this process leaves the logger with its handler, and with its level where it was ``--quiet``."""
    logger = logging.getLogger("benchwright")
    logger.setLevel(logging.NOTSET)
    logger.handlers.clear()


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
