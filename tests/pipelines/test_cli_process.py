"""The command line as a process of its own: Ctrl-C, a terminal, two at once."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benchwright.pipelines.catalogue import TITLES

from tests.files import files_of
from tests.pipelines.conftest import Cli

COMMAND = [sys.executable, "-P", "-m", "benchwright.pipelines.cli.main"]
TINY = ["run", "clear", "--config", "tiny", "--out"]

SLOW = """
import time
from dataclasses import dataclass
from pathlib import Path
from benchwright.curation.flow import source, step
from benchwright.curation.keys import how
from benchwright.pipelines.benchmark import Benchmark

@dataclass(frozen=True)
class Config:
    gate: str

@dataclass(frozen=True)
class Number:
    key: str

def numbers(*, count: int):
    for number in range(count):
        yield Number(str(number))
numbers.__annotations__["return"] = list[Number]

def pause(row: Number, *, gate: str) -> Number:
    while row.key == "1" and not Path(gate).exists():
        time.sleep(0.05)
    return row

def plan(c, out):
    first = source("listed", step(numbers, count=4))
    return first.each("paused", step(pause, gate=how(c.gate)), rows_per_part=1)

BENCHMARK = Benchmark("slow", "waits for a file", Config, plan, lambda run, config, folder: None)
"""


def begin(*arguments: object, **options: object) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **pipes)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a pipeline whose second row waits for the file ``gate``."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.py").write_text(SLOW)
    (folder / "slow.toml").write_text(f"gate = {json.dumps(str(folder / 'gate'))}")
    return folder


@pytest.fixture
def slow(folder: Path) -> list[str]:
    """Arguments of a run of that pipeline, whose gate is shut."""
    (folder / "gate").unlink(missing_ok=True)
    return ["run", str(folder / "slow.py"), "--workers", "2", "--out"]


def paused(process: subprocess.Popen[str], out: Path) -> None:
    while not (out / "stages/paused/part-00000.parquet").exists():
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_ctrl_c_in_the_middle_of_a_part(bw: Cli, slow: list[str], folder: Path, tmp_path: Path, scheduler: str) -> None:
    out = tmp_path / "out"
    process = begin(*slow, out, "--scheduler", scheduler)
    paused(process, out)  # from here on a worker is in a part that does not end
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "benchwright: interrupted. Finished parts are kept: repeat the command to resume."
    assert "Traceback" not in told

    kept = (out / "stages/paused/part-00000.parquet").stat().st_mtime_ns
    (folder / "gate").touch()
    again = bw(*slow, out, "--scheduler", scheduler)
    assert again.code == 0
    assert re.search(r"paused: 4 rows, [123] done before, ", again.err)
    assert (out / "stages/paused/part-00000.parquet").stat().st_mtime_ns == kept
    assert bw(*slow, tmp_path / "whole").code == 0
    assert files_of(out) == files_of(tmp_path / "whole")


def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begin(*TINY, out)
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("[2/"):
        assert line
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    told = bw(*TINY, out)
    assert told.code == 0
    assert "reused" in told.err.splitlines()[0]
    assert files_of(out) == files_of(tiny)


def test_two_runs_at_once_in_one_folder(bw: Cli, slow: list[str], folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begin(*slow, out)
    paused(process, out)
    told = bw(*slow, out)
    assert told.code == 1
    assert told.err == f"benchwright: another run is in progress in {out}: wait for it to finish, or choose another --out\n"
    (folder / "gate").touch()
    _, told_by_first = process.communicate(timeout=60)
    assert process.returncode == 0, told_by_first
    assert bw("verify", out).code == 0


def test_a_terminal_shows_bars_with_rate_and_time_left_and_a_line_for_what_has_ended(tmp_path: Path) -> None:
    screen, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TTY_COMPATIBLE", "CI")}
    process = begin(*TINY, tmp_path / "out", stderr=end, env=environment | {"TERM": "xterm-256color"})
    os.close(end)
    shown = b""
    while True:
        try:
            chunk = os.read(screen, 65536)
        except OSError:  # the other end is closed: Linux's way of saying so
            break
        if not chunk:
            break
        shown += chunk
    os.close(screen)
    assert process.stdout is not None
    result = process.stdout.read()
    assert process.wait(timeout=30) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "━" in text
    assert re.search(r"checked .*[1-9]\d*/900 +[\d,]+ rows/s +\d+ rejects +(\d+:\d\d:\d\d|-:--:--)", text)
    ended = re.findall(r"\[\d+/13\] (\w+): .*, cpu .*, memory .*, files \d.*iB", text)
    assert (len(ended), ended[:2]) == (13, ["listed", "checked"])
    assert re.fullmatch(r"\S+: 2\d\d rows, digest [0-9a-f]{64}, dataset in \S+\n", result)


def test_output_that_nobody_reads_to_its_end(tiny: Path) -> None:
    reading = begin("rejects", tiny)
    assert reading.stdout is not None
    assert reading.stdout.readline().count("\t") == 3
    reading.stdout.close()
    assert reading.stderr is not None
    assert reading.stderr.read() == ""
    assert reading.wait(timeout=30) in (0, 1)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_closed(closed: str) -> None:
    command = [sys.executable, "-P", "-c", "from benchwright.pipelines.cli.start import start; start()", "list"]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (not re.search(r"(^| )>&-", closed))


@pytest.mark.parametrize("closed", ["<&-", "2>&-"])
def test_children_inherit_what_takes_the_place_of_a_closed_stream(closed: str) -> None:
    code = (
        "import os; from benchwright.pipelines.cli import main; from benchwright.pipelines.cli.start import start\n"
        "main.main = lambda: print(*map(os.get_inheritable, range(3)))\n"
        "start()"
    )
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-P", "-c", code], capture_output=True, text=True
    )
    assert done.stdout == "True True True\n"


def test_a_run_that_is_up_to_date_needs_no_torch(finished: Callable[[str], Path], tmp_path: Path) -> None:
    for name in TITLES:
        shutil.copytree(finished(name), tmp_path / name)
    code = (
        "import sys; from benchwright.pipelines.cli import main\n"
        f"for name in {list(TITLES)!r}:\n"
        "    assert main.call(['run', name, '--config', 'tiny', '--out', name, '-q']) == 0\n"
        "    assert 'torch' not in sys.modules, name"
    )
    told = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert told.returncode == 0, told.stderr


def test_ctrl_c_during_the_imports_is_a_line() -> None:
    stopped = """
import importlib.metadata, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

[command] = importlib.metadata.entry_points(group="console_scripts", name="benchwright")
sys.meta_path.insert(0, Stop())
command.load()()
"""
    ended = subprocess.run([sys.executable, "-P", "-c", stopped], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "benchwright: interrupted\n")
