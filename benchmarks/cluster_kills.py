"""The tiny benchmarks, trainings included, at four worker processes over an object store, while these are killed.

Worker processes of dask.distributed share moto's S3 and nothing else. Every few seconds one that is at a part is killed
(``kill -9``) and another begun in its place, unless it is the only one; now and then the scheduler is killed, and one begun at
the same address. Each benchmark has its share of the kills, half of it while it is trained.
``benchwright run`` and ``train`` are repeated where they end for want of a scheduler; with ``--wait`` they wait for one. What
they made is compared, digest by digest, with what one process makes in a folder.

    python benchmarks/cluster_kills.py                               # six benchmarks, 100 workers and 3 schedulers killed
    python benchmarks/cluster_kills.py --quick                       # one of them, 6 workers and 1 scheduler
    python benchmarks/cluster_kills.py --quick --wait 60             # the same, never repeated
    python benchmarks/cluster_kills.py --only vclimb kowl --kills 20

Prints a line a benchmark, and exits with 1 where a digest differs. Where the benchmarks end before so many were killed, they
are run again, in new folders of the store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import benchwright as bw
import fsspec
from benchwright.curation.artifact import load_artifact, load_made, load_run
from benchwright.curation.store import Store
from benchwright.pipelines import api
from benchwright.pipelines.cli.exits import REPEAT
from distributed import Client

BENCHMARKS = ("clear", "vclimb", "iirc", "skeleton", "kowl", "two_camera")
FORKS = multiprocessing.get_context("forkserver")
"""Each worker is forked from a process that has imported what they need: to import it takes longer than a part."""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@contextlib.contextmanager
def object_store(log: Path) -> Iterator[None]:
    """moto's S3, and the environment by which this process and its children reach it."""
    port = free_port()
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        os.environ.pop(name, None)
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(keys, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as server:
        try:
            until = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"], timeout=5).close()
                    break
                if time.monotonic() > until:
                    raise SystemExit(f"moto's server did not begin: see {log}")
                time.sleep(0.1)
            fsspec.filesystem("s3").mkdir("kills")
            yield
        finally:
            server.kill()


def serve(kind: str, log: str, **settings: Any) -> None:
    """Be a scheduler or a worker until the end."""
    import distributed

    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.chdir(Path(log).parent)

    async def until_it_ends() -> None:
        async with getattr(distributed, kind)(**settings, dashboard_address="127.0.0.1:0") as server:
            await server.finished()

    asyncio.run(until_it_ends())


class Cluster:
    """A scheduler and four workers, which are begun again when they end, and killed in between."""

    def __init__(self, folder: Path, *, every_s: float, kills: int, schedulers: int, seed: int) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.workers_killed = self.schedulers_killed = 0
        self._kills, self._schedulers, self._share = kills, schedulers, 0
        self._folder, self._every_s = folder, every_s
        self._draw = random.Random(seed)
        self._client: Any = None
        self._due, self._begun = False, 0
        self._names = [""] * 4
        self._scheduler: ForkServerProcess | None = None
        self._workers: list[ForkServerProcess | None] = [None] * 4
        self._ends = threading.Event()
        self._killing = threading.Event()
        self._watch = threading.Thread(target=self._keep, daemon=True)

    @property
    def enough(self) -> bool:
        """Whether so many were killed as were asked for."""
        return self.workers_killed >= self._kills and self.schedulers_killed >= self._schedulers

    @contextlib.contextmanager
    def killing(self, share: float) -> Iterator[None]:
        """Only in the block is anything killed, until ``share`` of all kills are done."""
        self._share = round(self._kills * min(share, 1))
        self._killing.set()
        try:
            yield
        finally:
            self._killing.clear()

    def __enter__(self) -> Cluster:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._watch.join()
        for process in [*self._workers, self._scheduler]:
            if process is not None:
                process.kill()
                process.join()

    def _begin(self, kind: str, **settings: Any) -> ForkServerProcess:
        log = self._folder / f"{kind}.log"
        process = FORKS.Process(target=serve, args=(kind, str(log)), kwargs=settings)
        process.start()
        return process

    def _keep(self) -> None:
        last = time.monotonic()
        while not self._ends.wait(0.1):
            if self._scheduler is None or not self._scheduler.is_alive():
                port = int(self.address.rpartition(":")[2])
                self._scheduler = self._begin("Scheduler", host="127.0.0.1", port=port, allowed_failures=1000, dashboard=False)
            for place, worker in enumerate(self._workers):
                if worker is None or not worker.is_alive():
                    self._begun += 1
                    self._names[place] = f"{place}-{self._begun}"
                    settings = {"scheduler_ip": self.address, "nthreads": 1, "name": self._names[place]}
                    self._workers[place] = self._begin("Worker", **settings)
            if not self._killing.is_set() or not (self._scheduler_is_due or self.workers_killed < self._share):
                last = time.monotonic()
            elif self._due or time.monotonic() - last >= self._every_s:
                last, self._due = time.monotonic(), False
                self._kill()

    @property
    def _scheduler_is_due(self) -> bool:
        """Their ends are spread over those of the workers."""
        return self._schedulers * self.workers_killed // self._kills > self.schedulers_killed

    def _kill(self) -> None:
        if self._scheduler_is_due:
            assert self._scheduler is not None
            self._scheduler.kill()
            self._scheduler.join()
            self._client = None
            self.schedulers_killed += 1
            return
        if not (busy := self._busy()):
            self._due = True  # as soon as one is at work
            return
        worker = self._workers[self._draw.choice(busy)]
        assert worker is not None
        worker.kill()
        worker.join()
        self.workers_killed += 1

    def _busy(self) -> list[int]:
        """Places of the workers that are at a part; none where no other is there, or the scheduler does not answer."""
        try:
            if self._client is None:
                self._client = Client(self.address, timeout="2s", set_as_default=False)
            names = {at: each["name"] for at, each in self._client.scheduler_info(n_workers=-1)["workers"].items()}
            at_work = [str(names[at]) for at, keys in self._client.processing().items() if keys and at in names]
        except Exception:  # whatever a lost scheduler makes of it: the next time there is a new one
            self._client = None
            return []
        return sorted(int(name.partition("-")[0]) for name in at_work if name in self._names and len(names) > 1)


def command(*words: str) -> int:
    """Carry out a command, again where the scheduler was lost; returns how often it was."""
    lost = 0
    while True:
        done = subprocess.run([sys.executable, "-m", "benchwright.pipelines.cli.main", *words], capture_output=True, text=True)
        if done.returncode == 0:
            return lost
        if done.returncode != REPEAT or lost == 20:
            last = (done.stderr.strip().splitlines() or ["no line"])[-1]
            raise SystemExit(f"benchwright {' '.join(words)} ended with {done.returncode}: {last}")
        lost += 1


def digests(out: str) -> dict[str, str]:
    """Digest of every stage and training, and of the published dataset."""
    found: dict[str, str] = {"dataset": load_run(Store(out)).published}
    for place in (out, f"{out}/experiments"):
        store = Store(place)
        names = load_run(store).stages
        found |= {f"{place.removeprefix(out)}/{name}": digest_of(store, name) for name in names}
    return found


def digest_of(store: Store, stage: str) -> str:
    artifact = load_artifact(store, stage)
    return "not finished" if artifact is None else artifact.digest


def tried_again(out: str) -> int:
    """Parts at which a worker was lost in the last, finished run of their stage."""
    places = (Store(out), Store(f"{out}/experiments"))
    return sum(load_made(store, name)["cost"]["retries"] for store in places for name in load_run(store).stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help="these benchmarks")
    parser.add_argument("--kills", type=int, default=100, help="workers to kill")
    parser.add_argument("--schedulers", type=int, default=3, help="schedulers to kill")
    parser.add_argument("--every", type=float, default=3.0, metavar="SECONDS", help="between two kills")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="--wait-for-scheduler of the commands")
    parser.add_argument("--seed", type=int, default=0, help="of which worker is killed")
    parser.add_argument("--quick", action="store_true", help="two_camera, 6 workers and 1 scheduler")
    parser.add_argument("--folder", help="for what one process makes; a temporary one by default")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was begun is ended
    if given.quick:
        given.kills, given.schedulers = min(given.kills, 6), min(given.schedulers, 1)
    names: list[str] = given.only or (["two_camera"] if given.quick else [*BENCHMARKS])
    with tempfile.TemporaryDirectory(prefix="cluster-kills-") as room:
        ok = measure(names, Path(given.folder or room), Path(room), given)
    sys.exit(0 if ok else 1)


def measure(names: list[str], here: Path, room: Path, given: argparse.Namespace) -> bool:
    expected: dict[str, dict[str, str]] = {}
    for name in names:
        out = str(here / name)
        api.run(bw.job(name, config="tiny"), out, scheduler="sync")
        api.train(out)
        expected[name] = digests(out)
    ok, number = True, 0
    killed = {"every_s": given.every, "kills": given.kills, "schedulers": given.schedulers, "seed": given.seed}
    FORKS.set_forkserver_preload(["distributed", "torch", "s3fs", "polars", "benchwright.curation.parts"])
    with object_store(room / "moto.log"), Cluster(room, **killed) as cluster:
        how = ["--scheduler", cluster.address, "--wait-for-scheduler", str(given.wait), "--quiet"]
        while number < len(names) or not cluster.enough:
            name, out = names[number % len(names)], f"s3://kills/{number}-{names[number % len(names)]}"
            number += 1
            began, before = time.perf_counter(), (cluster.workers_killed, cluster.schedulers_killed)
            with cluster.killing((number - 0.5) / len(names)):
                lost = command("run", name, "--config", "tiny", "--out", out, *how)
            before_training = cluster.workers_killed
            with cluster.killing(number / len(names)):
                lost += command("train", out, *how)
            in_training = cluster.workers_killed - before_training
            found = digests(out)
            differ = sorted(key for key in {*found, *expected[name]} if found.get(key) != expected[name].get(key))
            problems = api.verify(out)
            ok = ok and not differ and not problems
            workers, schedulers = cluster.workers_killed - before[0], cluster.schedulers_killed - before[1]
            print(
                f"{name}: {len(found)} digests, {len(differ)} differ{': ' if differ else ''}{', '.join(differ)}; verify: "
                f"{len(problems)} problems; {workers} workers ({in_training} while training) and {schedulers} schedulers "
                f"killed, command repeated {lost} times, {tried_again(out)} parts retried; {time.perf_counter() - began:.0f} s",
                flush=True,
            )
            for problem in problems[:3]:
                print(f"  {problem}")
        told = f"{cluster.workers_killed} workers and {cluster.schedulers_killed} schedulers killed in {number} runs"
        print(f"{told}: {'every digest is that of one process' if ok else 'digests differ'}")
    return ok


if __name__ == "__main__":
    main()
