"""Which build of torch `make install` takes: on what machine, and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "install_torch.py"


class Index(BaseHTTPRequestHandler):
    """Stands in for PyTorch's own index: knows torch, and never ends its answer about ``slow``."""

    end = threading.Event()

    def do_GET(self) -> None:
        if self.path.startswith("/slow"):
            self.end.wait(60)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        Index.end.set()
        server.shutdown()


def told(
    folder: Path, index: str, *, gpu: bool = False, system: str = "Linux", pip: int = 0, torch: str = ""
) -> tuple[str, str]:
    """The line that is printed, and the arguments that pip was given; the machine and pip are stand-ins."""
    modules, commands = folder / "modules", folder / "commands"
    modules.mkdir()
    commands.mkdir()
    (modules / "pip.py").write_text(f"import sys\nopen('called', 'w').write(' '.join(sys.argv[1:]))\nsys.exit({pip})\n")
    (modules / "sitecustomize.py").write_text(f"import platform\nplatform.system = lambda: {system!r}\n")
    (commands / "nvidia-smi").write_text("#!/bin/sh\n" + ("echo 'GPU 0: NVIDIA H100'" if gpu else "exit 9") + "\n")
    (commands / "nvidia-smi").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    given = {"PYTHONPATH": str(modules), "PATH": f"{commands}:{os.environ['PATH']}", "TORCH_INDEX": index, "TORCH": torch}
    done = subprocess.run([sys.executable, SCRIPT], cwd=folder, env=kept | given, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    called = folder / "called"
    return done.stdout, called.read_text() if called.exists() else ""


def test_without_a_gpu_the_build_for_processors(index: str, tmp_path: Path) -> None:
    line, pip = told(tmp_path, index)
    assert f"no NVIDIA GPU, so the build for processors, from {index}" in line
    assert f"--no-deps --retries 1 --index-url {index} torch torchvision" in pip


@pytest.mark.parametrize("made", [{"gpu": True}, {"system": "Darwin"}, {"torch": "default"}])
def test_elsewhere_the_default_build(index: str, made: dict, tmp_path: Path) -> None:
    line, pip = told(tmp_path, index, **made)
    assert "torch: the default build" in line
    assert pip == ""


def test_with_a_gpu_the_build_for_processors_on_demand(index: str, tmp_path: Path) -> None:
    assert "--index-url" in told(tmp_path, index, gpu=True, torch="cpu")[1]


@pytest.mark.parametrize("where", ["http://127.0.0.1:9", "{}/slow", "http://no-such-host.invalid", "no url"])
def test_an_index_that_does_not_answer_is_left_alone(index: str, where: str, tmp_path: Path) -> None:
    line, pip = told(tmp_path, where.format(index))
    assert "does not answer: the build that pip's own index has" in line
    assert pip == ""


def test_an_index_without_a_build_that_fits_is_left_alone(index: str, tmp_path: Path) -> None:
    assert "has none that fits" in told(tmp_path, index, pip=1)[0]
