"""``benchwright qa serve`` in a process of its own."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from .forked import forked

PEOPLE = ("anna", "ben", "cleo")


class Server:
    """A server that is started again at the same port."""

    def __init__(self, out: Path) -> None:
        self._out, self.links, self.port = out, dict[str, str](), 0
        self.up = threading.Event()

    def start(self) -> None:
        people = [word for name in PEOPLE for word in ("--annotator", name)]
        with tempfile.TemporaryDirectory() as folder:
            said = Path(folder, "said")
            os.mkfifo(said)
            self._process = forked("qa", "serve", self._out, *people, "--port", self.port, out=said)
            self._said = said.open()
        self.links = dict(self._said.readline().strip().split(": ", 1) for _ in range(5))
        self.port = urlsplit(self.links["anna"]).port or 0
        self.up.set()

    def kill(self) -> None:
        self.up.clear()
        self._process.kill()
        self._process.join()
        self._said.close()

    def end(self) -> str:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGINT)
        self._process.join(60)
        assert self._process.exitcode == 0
        with self._said:
            return self._said.read()
