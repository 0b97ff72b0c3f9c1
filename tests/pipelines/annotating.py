"""``benchwright qa serve`` in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

PEOPLE = ("anna", "ben", "cleo")


class Server:
    """A server that is started again at the same port."""

    def __init__(self, out: Path) -> None:
        self._out, self.links, self.port = out, dict[str, str](), 0
        self.up = threading.Event()

    def start(self) -> None:
        people = [word for name in PEOPLE for word in ("--annotator", name)]
        command = [sys.executable, "-P", "-m", "benchwright.pipelines.cli.main", "qa", "serve", str(self._out), *people]
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.links = dict(self.process.stdout.readline().strip().split(": ", 1) for _ in range(5))
        self.port = urlsplit(self.links["anna"]).port or 0
        self.up.set()

    def kill(self) -> None:
        self.up.clear()
        self.process.kill()
        self.process.communicate()

    def end(self) -> str:
        self.process.send_signal(signal.SIGINT)
        told, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return told
