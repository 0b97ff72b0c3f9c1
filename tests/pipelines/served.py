"""Runs served to a browser, from a thread of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from benchwright.pipelines.view import server


@contextlib.contextmanager
def serving(out: Path, other: Path | None = None) -> Iterator[str]:
    """The link, with its token, at which ``benchwright view`` serves."""
    with server._listening("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        app = server.make_app(str(out), other and str(other), host="127.0.0.1", port=port, token="a-token")
        running = uvicorn.Server(server.config_of(app))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/?token=a-token"
        finally:
            running.should_exit = True
            thread.join()
