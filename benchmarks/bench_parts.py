"""What a part costs the process of the run: a stage of many parts of one row, on threads and on a cluster of two workers.

    python benchmarks/bench_parts.py                  # 5,000 and 20,000 parts
    python benchmarks/bench_parts.py --parts 100000
    python benchmarks/bench_parts.py --quick          # 250 and 1,000

Beside it, dask's own ``client.map`` of the same function over as many rows: it writes no files and keeps no records. Each case
runs in a process of its own, and so do scheduler and workers. Prints for each part the time, the CPU time of the process of
the run, and by how much the peak memory of that process and of the scheduler's grew. On threads, the process of the run also
makes the parts. If something grew faster than the number of parts, the larger number would cost more per part.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from benchwright.curation.flow import source, step
from benchwright.curation.run import run

CASES = ("threads", "cluster", "client.map")


@dataclass(frozen=True)
class Number:
    key: str
    value: int


def count(*, rows: int) -> Iterator[pa.Table]:
    yield pa.table({"key": [f"{number:08}" for number in range(rows)], "value": range(rows)})


def doubled(row: Number) -> Number:
    return Number(row.key, 2 * row.value)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=20_000, help="parts of the larger of two stages; the other has a quarter")
    parser.add_argument("--quick", action="store_true", help="1,000 parts")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)  # in a process of its own
    parser.add_argument("--scheduler", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    parts = 1000 if given.quick else given.parts
    if given.case:
        print(json.dumps(measured(given.case, parts, given.scheduler)))
        return
    print(f"{'':<12} {'parts':>8} {'ms/part':>9} {'CPU ms':>8} {'bytes/part':>11} {'at the scheduler':>17}")
    for case in CASES:
        for number in (parts // 4, parts):
            found = apart(case, number)
            costs = f"{found['ms']:>9.2f} {found['cpu_ms']:>8.2f} {found['bytes']:>11,.0f}"
            print(f"{case:<12} {number:>8,} {costs} {found.get('scheduler_bytes', 0):>17,.0f}", flush=True)


def apart(case: str, parts: int) -> dict[str, float]:
    """``measured`` in a process of its own, with a cluster of its own."""
    command = [sys.executable, __file__, "--case", case, "--parts", str(parts)]
    if case == "threads":
        return json.loads(subprocess.check_output(command))
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as settings:
        settings.write("port = 0\n[cpu]\nworkers = 2\nthreads = 1\n")
        settings.flush()
        serve = [sys.executable, "-m", "benchwright.pipelines.cli.main", "cluster", settings.name]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as cluster:
            try:
                assert cluster.stdout is not None
                address = cluster.stdout.readline().strip()
                return json.loads(subprocess.check_output([*command, "--scheduler", address]))
            finally:
                cluster.terminate()


def measured(case: str, parts: int, scheduler: str) -> dict[str, float]:
    """Costs per part: ms and ms of CPU time, and bytes by which the peak memory grew."""
    with tempfile.TemporaryDirectory(prefix="bench-parts-") as folder:
        flow = source("counted", step(count, rows=parts), gives=Number)
        run(flow, folder, scheduler="sync")
        flow = flow.each("doubled", step(doubled), rows_per_part=1)
        client: Any = None
        if scheduler:
            from distributed import Client

            client = Client(scheduler, set_as_default=False)
            client.submit(doubled, Number("first", 0)).result()
        at_scheduler = client.run_on_scheduler(peak_bytes) if client else 0
        memory, cpu, begun = peak_bytes(), time.process_time(), time.perf_counter()
        if case == "client.map":
            client.gather(client.map(doubled, [Number(f"{number:08}", number) for number in range(parts)], pure=False))
        else:
            run(flow, folder, scheduler=scheduler or "threads", workers=2)
        found = {"ms": 1e3 * (time.perf_counter() - begun), "cpu_ms": 1e3 * (time.process_time() - cpu)}
        found["bytes"] = peak_bytes() - memory
        if client:
            found["scheduler_bytes"] = client.run_on_scheduler(peak_bytes) - at_scheduler
            client.close()
    return {name: value / parts for name, value in found.items()}


def peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
