"""Pages in a real browser: headless Chromium, which Playwright drives, and axe-core, which judges how accessible they are."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, sync_playwright

INSTALL = "apt-get install -y --no-install-recommends chromium"
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync"
)
_PATIENCE_MS = 60_000
"""That a page may take on a busy machine."""


@functools.cache
def chromium() -> str:
    """Path of Chromium. Root installs it where it is missing; without it the test is skipped, and told how to get it."""
    with Path(tempfile.gettempdir(), "benchwright-chromium.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of xdist's workers one installs it
        if not (found := _found()) and os.geteuid() == 0 and shutil.which("apt-get"):
            network = "-o Acquire::http::Timeout=20 -o Acquire::Retries=1"
            for command in (f"apt-get {network} -qq update", f"{INSTALL} -qq {network}"):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
                    subprocess.run(command.split(), env=environment, capture_output=True, check=False, timeout=300)
            found = _found()
    return found


def _found() -> str:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """Chromium, with a profile of its own that is gone afterwards."""
    if not (path := chromium()):
        pytest.skip(f"no Chromium here: {INSTALL}")
    with sync_playwright() as driver, driver.chromium.launch(executable_path=path, args=FLAGS.split()) as browser:
        yield browser


@contextlib.contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """An empty page with cookies of its own, which has to behave to the end.

    Args:
        browser: see ``launched``.
        options: of Playwright's ``new_context``: ``viewport``, ``has_touch``, ``color_scheme`` and others.

    Raises:
        AssertionError: a script failed or was run by data, the content security policy stopped something, a dialog came up,
            or something was asked for at another address than the page's own.
    """
    faults: list[str] = []
    with browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}) as context:
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()

        def asked(url: str) -> None:
            here, there = urlsplit(page.url), urlsplit(url)
            if there.scheme not in ("data", "blob") and here.netloc and (here.scheme, here.netloc) != there[:2]:
                faults.append(f"{page.url} asked for {url}")

        context.on("request", lambda request: asked(request.url))
        context.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        context.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        context.on("weberror", lambda error: faults.append(str(error.error)))
        try:
            yield page
        except Error as error:
            error.add_note(f"{page.url}, {faults}: {page.inner_text('body')[:2000]}")
            raise
    if faults:
        raise AssertionError("; ".join(faults))


def serious(page: Page) -> list[str]:
    """Serious and critical findings of axe-core on a page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{page.url}: {each['id']}: {node['html'][:300]}: {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
