"""Kill runs at random moments, give the same command again until it is done, and compare every byte with an undisturbed run.

Compared are all files of stages, votes, dataset, results and checkpoints. Left out are those that say when and in what time
something was made, and the report, which prints them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from benchwright.curation.rng import rng

from . import valid
from .isolated import busy, children_of, worked

SKIPPED = {"made.json", ".witness", ".fingerprints.json", ".lock", "report.html"}
WAYS = ("kill", "kill", "terminate", "interrupt", "group", "child")
"""SIGKILL, SIGTERM and SIGINT to the run; SIGKILL to it and all its children; SIGKILL to one of its children."""

_LONGEST_S = 600.0
"""Seconds of processor time; the longest run takes thirty."""

_SILENT_S = 120.0


@dataclasses.dataclass(frozen=True)
class Command:
    """A run that is killed: its name in the table, the arguments behind ``benchwright`` but ``--out``, and its scheduler."""

    name: str
    arguments: tuple[str, ...]
    scheduler: str = "threads"


SHORT = Command(
    "two_camera",
    ("run", "two_camera", "--config", "tiny", "--set", "source.pairs=60", "--set", "evaluation.networks={}", "--train"),
)
"""The run of the short form: it writes all that a run writes, and has little to learn."""


def commands(scratch: Path, *, long: bool) -> list[Command]:
    """The tiny configurations of all pipelines, trained; and videos of one's own, which children decode."""
    if not long:
        return [SHORT]
    made = [
        Command(name, ("run", name, "--config", "tiny", "--train"), scheduler)
        for name, scheduler in (
            ("clear", "threads"),
            ("kowl", "threads"),
            ("vclimb", "threads"),
            ("two_camera", "processes"),
            ("iirc", "threads"),
            ("skeleton", "processes"),
        )
    ]
    videos = scratch / "videos"
    for label in ("run", "walk", "jump"):
        for number in range(4):
            place = videos / label / f"{number}.mp4"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(valid.video("libx264", "mp4", frames=24, name=f"{label}{number}"))
    own = (
        "--set",
        "source={kind='folder',layout='class_folders'}",
        "--set",
        f"videos.root='{videos}'",
        "--set",
        "split.roles='by_class'",
        "--set",
        "split.tasks=1",
        "--set",
        "evaluation.methods=['naive']",
    )
    return [*made, Command("vclimb, own videos", ("run", "vclimb", "--config", "tiny", "--train", *own))]


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file that must be the same."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(_compared(path)).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in SKIPPED
    }


def _compared(path: Path) -> bytes:
    """What a file holds; of a record of files what it says of those that are compared."""
    data = path.read_bytes()
    if path.name != ".files.json":
        return data
    recorded = json.loads(data)["files"]
    return json.dumps({name: facts for name, facts in recorded.items() if name not in SKIPPED}, sort_keys=True).encode()


def differing(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    """Names of files that are missing, new, or of other bytes."""
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def begin(arguments: Sequence[str], out: Path, scheduler: str) -> subprocess.Popen[str]:
    """The command line as a process of its own, with one thread a library: two run side by side."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "benchwright.pipelines.cli.main",
        *arguments,
        "--out",
        str(out),
        "--scheduler",
        scheduler,
        "--quiet",
    ]
    return subprocess.Popen(
        [*command, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process printed until its end; and, where it had to be ended, why. What others do on the machine is no hang."""
    quiet = 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=0.5)[1], ""
        quiet = 0.0 if any(map(busy, [process.pid, *children_of(process.pid)])) else quiet + 0.5
        if quiet > _SILENT_S or worked(process.pid) > _LONGEST_S:
            why = f"{quiet:.0f} s without doing anything, {worked(process.pid):.0f} s of work"
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[1], why


def hit(process: subprocess.Popen[str], way: str, draw: np.random.Generator) -> bool:
    """Hit a run in one of the ``WAYS``; whether there was something to hit."""
    if process.poll() is not None:
        return False
    with contextlib.suppress(ProcessLookupError):
        if way == "child":
            below = children_of(process.pid)
            if not below:
                return False
            os.kill(below[int(draw.integers(len(below)))], signal.SIGKILL)
        elif way == "group":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal({"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}[way])
    return True


@dataclasses.dataclass
class Lane:
    """One command that is killed again and again in a folder of its own.

    Attributes:
        counts: ``inputs`` (kills), ``done`` (runs that ended in the same bytes), and failures.
    """

    command: Command
    out: Path
    draw: np.random.Generator
    tell: Callable[[str], None]
    counts: Counter[str] = dataclasses.field(default_factory=Counter)

    def go(self, kills: int, wanted: dict[str, str], length: float) -> None:
        """Kill so many times; every run is brought to its end and compared, the last one too."""
        while self.counts["inputs"] < kills:
            shutil.rmtree(self.out, ignore_errors=True)
            fails = 0
            while True:
                struck, process, told = self._attempt(length if self.counts["inputs"] < kills else None)
                self.counts["inputs"] += struck
                if "Traceback" in told:
                    self._failure("traceback", told)
                if process.returncode == 0:
                    break
                fails += not struck
                if not struck:
                    self._failure("refused again", f"ended with {process.returncode}: {told[-500:]}")
                if fails > 3:
                    return
            if different := differing(wanted, digests(self.out)):
                self._failure("other bytes", ", ".join(different[:5]))
            else:
                self.counts["done"] += 1

    def _attempt(self, length: float | None) -> tuple[bool, subprocess.Popen[str], str]:
        process = begin(self.command.arguments, self.out, self.command.scheduler)
        struck = False
        if length is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(float(self.draw.uniform(0.05, 1.0)) * length)
            way = WAYS[int(self.draw.integers(len(WAYS)))]
            struck = hit(process, way, self.draw) or (way == "child" and hit(process, "kill", self.draw))
        try:
            told, hangs = ended(process)
            if hangs:
                self._failure("hang", f"{hangs}, struck: {struck}")
        finally:
            with contextlib.suppress(
                ProcessLookupError
            ):  # children that outlive the run would write into the next one's folder
                time.sleep(0.2)
                left = _group(process.pid)
                os.killpg(process.pid, signal.SIGKILL)
                if left:
                    time.sleep(0.2)
        return struck, process, told

    def _failure(self, kind: str, told: str) -> None:
        self.counts[kind] += 1
        self.tell(f"{kind}: {self.command.name}: {told}")


def _group(leader: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = place.read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(place.parent.name))
    return found


FAILURES = ("traceback", "hang", "refused again", "other bytes")


def attack(
    seed: int, kills: int, scratch: Path, *, long: bool, tell: Callable[[str], None], lanes: int = 2
) -> dict[str, Counter[str]]:
    """Kill all commands, two side by side.

    Args:
        seed: of moments and ways.
        kills: in all; a cluster's worker is killed as well.
        scratch: folder to work in.
        long: all pipelines.
        tell: told of every failure.
        lanes: runs at a time.
    """
    todo = commands(scratch, long=long)
    found: dict[str, Counter[str]] = {}
    each = -(-kills // len(todo))
    waiting = list(todo)
    lock = threading.Lock()

    def work(number: int) -> None:
        while True:
            with lock:
                if not waiting:
                    return
                command = waiting.pop(0)
            draw = rng(seed, "kills", command.name)
            lane = Lane(command, scratch / f"lane-{number}", draw, tell)
            found[f"kills: {command.name}"] = lane.counts
            whole = undisturbed(command, scratch)
            lane.go(each, whole.digests, whole.seconds)
            tell(f"{command.name}: {lane.counts['inputs']} kills, {lane.counts['done']} runs ended in the same bytes")
            shutil.rmtree(lane.out, ignore_errors=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if long:
        found["kills: workers of a cluster"] = cluster(seed, scratch, kills=max(10, kills // 15), tell=tell)
    return found


@dataclasses.dataclass(frozen=True)
class Whole:
    """A run that nobody kills: its folder, the digests of its files, and how long it took."""

    out: Path
    digests: dict[str, str]
    seconds: float


@functools.cache
def undisturbed(command: Command, scratch: Path) -> Whole:
    """Such a run, made once for all parts of an attack."""
    out = scratch / f"whole {command.name}"
    begun = time.monotonic()
    process = begin(command.arguments, out, command.scheduler)
    told, _ = ended(process)
    if process.returncode:
        raise RuntimeError(f"{command.name}: the undisturbed run ended with {process.returncode}: {told[-1000:]}")
    return Whole(out, digests(out), time.monotonic() - begun)


def cluster(seed: int, scratch: Path, *, kills: int, tell: Callable[[str], None]) -> Counter[str]:
    """One of the workers of a dask cluster is killed again and again while runs go on."""
    counts: Counter[str] = Counter()
    name = "clear"
    plain = Command(name, ("run", name, "--config", "tiny", "--train"))
    wanted = undisturbed(plain, scratch).digests
    draw = rng(seed, "kills", "cluster")
    out, fails = scratch / "lane-cluster", 0
    while counts["inputs"] < kills:
        shutil.rmtree(out, ignore_errors=True)
        finished = False
        while not finished:
            with _local_cluster(scratch) as (keeper, address):
                running = begin(plain.arguments, out, address)
                while counts["inputs"] < kills and running.poll() is None and (workers := _workers(keeper)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(workers[int(draw.integers(len(workers)))], signal.SIGKILL)
                        counts["inputs"] += 1
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        running.wait(float(draw.uniform(0.5, 2.5)))
                if not _workers(keeper):  # which the run waits for, and says so: the next cluster goes on with its folder
                    os.killpg(running.pid, signal.SIGKILL)
                told, hangs = ended(running)
            if hangs:
                counts["hang"] += 1
                tell(f"hang: a run on a cluster: {hangs}: {told[-500:]}")
            if "Traceback" in told:
                counts["traceback"] += 1
                tell(f"traceback: a run on a cluster: {told[-1500:]}")
            finished = running.returncode == 0
            fails += not finished
            if fails >= 20:
                counts["refused again"] += 1
                tell(f"refused again: a run on a cluster: {told[-500:]}")
                return counts
        if different := differing(wanted, digests(out)):
            counts["other bytes"] += 1
            tell(f"other bytes: a run on a cluster: {', '.join(different[:5])}")
        else:
            counts["done"] += 1
    return counts


@contextlib.contextmanager
def _local_cluster(scratch: Path) -> Iterator[tuple[int, str]]:
    """Process and address of a cluster of two workers, which are begun again where they end."""
    script = scratch / "cluster.py"
    script.write_text(
        "import time\nfrom distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    c = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, scheduler_port=0)\n"
        "    print(c.scheduler_address, flush=True)\n    time.sleep(3600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _workers(keeper: int, patience_s: float = 30.0) -> list[int]:
    """The workers that a cluster has, as soon as it has one; on a busy machine it may give up beginning them again."""
    until = time.monotonic() + patience_s
    while True:
        found = [pid for pid in children_of(keeper) if _is_worker(pid)]
        if found or time.monotonic() > until:
            return found
        time.sleep(0.2)


def _is_worker(pid: int) -> bool:
    """Whether a child of the cluster is a worker: its keeper spawns it, and a tracker of semaphores as well."""
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"spawn_main" in told
    return False
