"""How the rate of a cluster grows with its workers, and what the engine adds to a part: in a folder, and in an object store.

    python benchmarks/bench_cluster.py                          # 200 parts, medians of three
    python benchmarks/bench_cluster.py --parts 1000 --repeats 1
    python benchmarks/bench_cluster.py --quick                  # 24 parts once, 1 and 2 workers

A dask.distributed cluster of 1, 2 and 4 worker processes of one thread makes equal parts: 30 ms of work each, and 1 MB of
random numbers that do not compress. The object store is moto's S3 server, a process that shares the processors: rates to it are
no store's, only the differences count.

``client.map`` only calls the function. ``+ pyarrow`` is what a user would write: ``client.map`` of a function that reads the
rows of a part with pyarrow and fsspec and writes its Parquet file into the same store. ``engine`` is a stage of a run, with
digests, keys compared, synced files in the folder, and records. Each case has a cluster of its own that has made a few parts
before, but only the stage or the calls are measured. CPU time is that of run, scheduler and workers, not of moto. A row ends
with the ratio of its time to that of ``+ pyarrow``. More workers than processors cannot be faster.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchwright.curation.artifact import load_artifact
from benchwright.curation.cost import cpu_seconds, peak_bytes
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.run import run
from benchwright.curation.store import Store
from cluster_kills import object_store

CASES = ("client.map", "+ pyarrow", "engine")
ROWS, COLUMNS = 4096, 32
LISTED = pa.schema([("key", pa.string()), ("value", pa.int64())])
DRAWN = pa.schema([("key", pa.string()), *((f"drawn_{number}", pa.float64()) for number in range(COLUMNS))])


def count(*, parts: int) -> Iterator[pa.Table]:
    """Source: the rows of all parts."""
    for part in range(parts):
        yield rows_of_part(part)


def rows_of_part(part: int) -> pa.Table:
    numbers = range(part * ROWS, (part + 1) * ROWS)
    return pa.table([[f"{number:010}" for number in numbers], numbers], schema=LISTED)


def drawn(rows: pa.Table) -> pa.Table:
    """The work: some 30 ms in which the lock of Python is free, and a megabyte of numbers."""
    first = rows["value"][0].as_py()
    hashlib.pbkdf2_hmac("sha256", b"part", str(first).encode(), 60_000)
    columns = np.random.default_rng(first).random((COLUMNS, rows.num_rows))
    for name, column in zip(DRAWN.names[1:], columns, strict=True):
        rows = rows.append_column(name, pa.array(column))
    return rows


def only_drawn(part: int) -> int:
    return drawn(rows_of_part(part)).num_rows


def read_and_written(part: int, into: str, listed: str) -> int:
    """What a user would write."""
    with fsspec.open(f"{listed}/part-{part:05}.parquet", "rb") as stream:
        rows = pq.read_table(stream)
    with fsspec.open(f"{into}/part-{part:05}.parquet", "wb") as stream:
        pq.write_table(drawn(rows), stream)
    return rows.num_rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="24 parts once, 1 and 2 workers")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)  # in a process of its own
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measured(given.case, given.parts, given.repeats, given.scheduler, given.place)))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was begun is ended
    parts, repeats, counts = (24, 1, (1, 2)) if given.quick else (given.parts, given.repeats, (1, 2, 4))
    print(f"{parts} parts of {ROWS:,} rows, median of {repeats}; {os.cpu_count()} processors, which moto's server shares")
    print(f"{'':<8} {'':>7} {'':<11} {'':>8} {'wall ms a part':>14} {'':>9} {'':>6} {'peak memory, MB':>23}")
    headings = f"{'parts/s':>8} {'over map':>14} {'CPU ms':>9} {'MB/s':>6} {'run':>7} {'sched.':>7} {'worker':>7} {'ratio':>6}"
    print(f"{'store':<8} {'workers':>7} {'':<11} {headings}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as room, object_store(Path(room) / "moto.log"):
        for store, place in (("folder", f"{room}/cases"), ("s3", "s3://kills/cases")):
            run(listed(parts), f"{place}/listed", scheduler="sync")
            for workers in counts:
                found = {case: apart(case, parts, repeats, workers, place) for case in CASES}
                for case in CASES:
                    print(f"{store:<8} {workers:>7} {case:<11} {_line(found[case], found, parts)}", flush=True)


def _line(one: dict[str, float], found: dict[str, dict[str, float]], parts: int) -> str:
    more = 1e3 * (one["seconds"] - found["client.map"]["seconds"]) / parts
    ratio = one["seconds"] / found["+ pyarrow"]["seconds"]
    rate, cpu, written = parts / one["seconds"], 1e3 * one["cpu"] / parts, one["bytes"] / one["seconds"] / 1e6
    peaks = " ".join(f"{one[name] / 1e6:>7.0f}" for name in ("run", "scheduler", "worker"))
    return f"{rate:>8.1f} {more:>14.1f} {cpu:>9.1f} {written:>6.1f} {peaks} {ratio:>6.2f}"


def listed(parts: int) -> Flow:
    return source("listed", step(count, parts=parts), gives=LISTED, rows_per_part=ROWS)


def apart(case: str, parts: int, repeats: int, workers: int, place: str) -> dict[str, float]:
    """``measured`` in a process of its own, with a cluster of its own."""
    command = [sys.executable, __file__, "--case", case, "--parts", str(parts), "--repeats", str(repeats), "--place", place]
    with cluster(workers) as address:
        return json.loads(subprocess.check_output([*command, "--scheduler", address]))


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[str]:
    """The address of a scheduler process with its worker processes."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as settings:
        settings.write(f"port = 0\n[cpu]\nworkers = {workers}\nthreads = 1\n")
        settings.flush()
        serve = [sys.executable, "-m", "benchwright.pipelines.cli.main", "cluster", settings.name]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
            finally:
                process.terminate()


def measured(case: str, parts: int, repeats: int, scheduler: str, place: str) -> dict[str, float]:
    """Medians of seconds and CPU seconds, bytes written, and peak memory of the run, the scheduler and a worker."""
    from distributed import Client

    with Client(scheduler, set_as_default=False) as client:
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        with prepared(case, 4 * workers, client, place, f"first of {workers}") as make:
            make()
        times: list[tuple[float, float]] = []
        written = 0
        for repeat in range(repeats):
            with prepared(case, parts, client, place, f"{workers} {repeat}") as make:
                before, begun = _spent(client), time.perf_counter()
                written = make()
                seconds = time.perf_counter() - begun
                times.append((seconds, _spent(client) - before))
        seconds, spent = (statistics.median(column) for column in zip(*times, strict=True))
        peaks = client.run(peak_bytes).values()
        memory = {"run": peak_bytes(), "scheduler": client.run_on_scheduler(peak_bytes), "worker": max(peaks)}
        return {"seconds": seconds, "cpu": spent, "bytes": written, **memory}


@contextlib.contextmanager
def prepared(case: str, parts: int, client: Any, place: str, name: str) -> Iterator[Callable[[], int]]:
    """What makes the parts, and returns how many bytes it wrote; these are removed in the end."""
    files, where = fsspec.core.url_to_fs(place)
    into = f"{place}/{case.strip('+ ')} {name}"
    if case == "engine":
        run(listed(parts), into, scheduler="sync")
    else:
        files.makedirs(into.replace(place, where), exist_ok=True)

    def make() -> int:
        if case == "engine":
            flow = listed(parts).table("drawn", step(drawn), gives=DRAWN, rows_per_part=ROWS)
            run(flow, into, scheduler=client.scheduler.address)
            artifact = load_artifact(Store(into), "drawn")
            assert artifact is not None
            return sum(file["size"] for file in artifact.files().values())
        if case == "client.map":
            client.gather(client.map(only_drawn, range(parts), pure=False))
            return 0
        rows = f"{place}/listed/stages/listed"
        client.gather(client.map(read_and_written, range(parts), into=into, listed=rows, pure=False))
        return files.du(into.replace(place, where))

    yield make
    with contextlib.suppress(FileNotFoundError):
        files.rm(into.replace(place, where), recursive=True)


def _spent(client: Any) -> float:
    """CPU seconds so far of this process, the scheduler and the workers."""
    return cpu_seconds() + client.run_on_scheduler(cpu_seconds) + sum(client.run(cpu_seconds).values())


if __name__ == "__main__":
    main()
