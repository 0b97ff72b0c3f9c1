"""Inputs one by one in processes of their own, which are watched: for time, memory, files outside, and what is printed."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchwright.pipelines.cli.exits import libraries_silenced

from .hostile import CANARY

HANG_S = 30.0
"""Seconds of work, or of waiting for nothing: what others do on the machine counts for neither."""

MEMORY = 2 << 30
_STOP_AT = 4 << 30
"""Memory at which a process is ended: the machine is not to be brought down."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One input: the parser's name, its number, the seed."""

    parser: str
    number: int
    seed: int


@dataclasses.dataclass
class Verdict:
    """What came of it.

    Attributes:
        state: ``done``, ``refused`` (by a clear error), or a failure: ``traceback``, ``unclear``, ``hang``, ``memory``,
            ``crash``, ``outside``, ``loss``, ``noise``, ``unrepeatable``; ``unread``: a valid file was refused.
        label: what the input is.
        line: what is told of it.
        seconds: of processor time that it took.
        peak: bytes of memory at most.
        trace: where it comes from.
    """

    state: str
    label: str = ""
    line: str = ""
    seconds: float = 0.0
    peak: int = 0
    trace: str = ""


FAILURES = ("unread", "traceback", "unclear", "hang", "memory", "crash", "outside", "loss", "noise", "unrepeatable")


class Worker:
    """A process that takes inputs, one after another, and is replaced where it fails."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._process: Any = None
        self._pipe: Connection | None = None

    def judge(self, case: Case) -> Verdict:
        """Have an input judged."""
        if self._process is None:
            self._begin()
        assert self._pipe is not None
        self._pipe.send(dataclasses.astuple(case))
        if (told := self._pipe.recv()) != "begun":  # the folder is laid out, which may take long where bombs are packed
            raise RuntimeError(told)
        begun, peak, idle = time.monotonic(), 0, 0.0
        begun_at = worked(self._process.pid)
        while not self._pipe.poll(0.1):
            pids = [self._process.pid, *children_of(self._process.pid)]
            peak = max(peak, *map(_memory, pids))
            idle += 0.1 * (not any(map(busy, pids)))
            waited = time.monotonic() - begun
            spent = max(idle, worked(self._process.pid) - begun_at)
            if not self._process.is_alive() and not self._pipe.poll(0):
                code = self._process.exitcode
                self.close()
                return Verdict("crash", _label(case), f"the process ended with {code}", waited, peak)
            if spent > HANG_S or peak > _STOP_AT:
                self.close()
                state = "hang" if spent > HANG_S else "memory"
                return Verdict(
                    state,
                    _label(case),
                    f"ended after {waited:.0f} s, {spent:.0f} s its own, with {peak / 2**30:.1f} GiB",
                    waited,
                    peak,
                )
        try:
            verdict: Verdict = self._pipe.recv()
        except EOFError:
            code = self._process.exitcode
            self.close()
            return Verdict("crash", _label(case), f"the process ended with {code}", time.monotonic() - begun, peak)
        verdict.peak = max(peak, verdict.peak)
        if verdict.peak > MEMORY and verdict.state in ("done", "refused"):
            verdict.state, verdict.line = "memory", f"{verdict.peak / 2**30:.1f} GiB; {verdict.line}"
        if verdict.state in ("memory", "outside"):
            self.close()
        return verdict

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(self._scratch)), daemon=False)
        self._process.start()
        theirs.close()
        self._pipe.recv()  # it is ready: what it takes to begin is nobody's fault

    def close(self) -> None:
        """End the process and its children."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        assert self._pipe is not None
        self._pipe.close()
        self._process = self._pipe = None


def _label(case: Case) -> str:
    from .inputs import label_of

    return label_of(case)


def children_of(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *children_of(child)]
    return found


def _memory(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def busy(pid: int) -> bool:
    """Whether a thread of a process runs, or would if there were a processor or a disk for it."""
    with contextlib.suppress(OSError, IndexError):
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            if stat.read_text().rpartition(")")[2].split()[0] in "RD":
                return True
    return False


def worked(pid: int) -> float:
    """Seconds of processor time of a process and its children, those that ended among them."""
    ticks = 0
    for each in (pid, *children_of(pid)):
        with contextlib.suppress(OSError, ValueError, IndexError):
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------------------------------------------------- the process


def _serve(pipe: Connection, scratch: str) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nobody would end an input that hangs
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # of libraries: to fill them again takes seconds
    folder = Path(scratch) / f"worker-{os.getpid()}"
    for name in ("canary", "canary/cwd", "canary/tmp", "canary/home", "base"):
        (folder / name).mkdir(parents=True)
    (folder / "canary/keep.txt").write_text("as it was")
    os.environ |= {
        CANARY: str(folder / "canary"),
        "HOME": str(folder / "canary/home"),
        "TMPDIR": str(folder / "canary/tmp"),
        "ATTACK_SCRATCH": str(folder / "base"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    os.chdir(folder / "canary/cwd")
    printed = os.open(folder / "printed", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    from . import inputs

    inputs.warm()
    for descriptor in (1, 2):
        os.dup2(printed, descriptor)
    pipe.send("ready")
    while True:
        try:
            case = Case(*pipe.recv())
        except EOFError:
            break
        try:
            pipe.send(_one(case, folder, printed, pipe))
        except Exception:
            pipe.send(traceback.format_exc())
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _one(case: Case, folder: Path, printed: int, pipe: Connection) -> Verdict:
    from . import inputs

    place, out = folder / "in", folder / "out"
    for each in (place, out):
        _remove(each)
    parser, label = inputs.lay_out(case, place)
    before = _snapshot(folder)
    os.ftruncate(printed, 0)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    Path("/proc/self/clear_refs").write_text("5")
    pipe.send("begun")
    begun = _spent()
    with libraries_silenced(debug=False):  # as the command line does
        verdict = inputs.judge(parser, place, out)
    verdict.seconds, verdict.label = _spent() - begun, label
    if label == inputs.VALID and not parser.forbidden and (verdict.state != "done" or verdict.line.startswith("0 rows")):
        verdict.state = "unread"
    now = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    verdict.peak = max(_peak(), now * 1024 if now > children else 0)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    after = _snapshot(folder)
    if verdict.state in ("done", "refused") and after != before:
        changed = sorted(set(after.items()) ^ set(before.items()))
        verdict.state, verdict.line = "outside", f"{changed[0][0]} is new or another; {verdict.line}"
    noise = [line for line in os.pread(printed, 10_000, 0).decode("utf-8", "replace").splitlines() if line.strip()]
    noise = [line for line in noise if not line.startswith("benchwright:")]
    if verdict.state in ("done", "refused") and noise:
        verdict.state, verdict.line = "noise", f"printed: {noise[0][:200]}; {verdict.line}"
    return verdict


def _spent() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _remove(place: Path) -> None:
    for root, folders, _ in os.walk(place):
        for name in folders:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(root, name), 0o700)
    shutil.rmtree(os.fsencode(place), ignore_errors=True)


def _snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Files and folders that nothing may change: all but the output, and what the attack itself keeps."""
    found: dict[str, tuple[int, int, int]] = {}
    for top in ("in", "canary"):
        for each in _walk(os.fsencode(folder / top)):
            facts = os.lstat(each)
            size = facts.st_size if not os.path.isdir(each) or os.path.islink(each) else 0
            time_ns = 0 if os.path.isdir(each) and not os.path.islink(each) else facts.st_mtime_ns
            found[os.fsdecode(os.path.relpath(each, os.fsencode(folder)))] = (facts.st_mode, size, time_ns)
    return found


def _walk(top: bytes) -> Iterator[bytes]:
    for root, folders, files in os.walk(top):
        yield from (os.path.join(root, name) for name in (*folders, *files))
