"""Pages of a run of many rows in ``benchwright view``: seconds a page, and memory of the server.

The runs are made in FOLDER, which is kept: 10 million rows of a key, a year, a score and a label, 1,000 pictures, and 200,000
vectors. The server is a process of its own; every page is asked for twice, and the second time is told.

    python -P benchmarks/bench_view.py FOLDER [--rows 10000000]
    python -P benchmarks/bench_view.py --quick          # 100,000 rows, in a temporary folder
"""

from __future__ import annotations

import argparse
import http.client
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import benchwright as bw
import numpy as np
import psutil
import pyarrow as pa
from benchwright.curation.png import stored_png
from benchwright.curation.rows import Shape
from benchwright.curation.run import run

PAGES = {
    "first page": "/stage/made",
    "page 300,000": "/stage/made?page=300000",
    "filter by a number": "/stage/made?column=year&is=eq&value=2007",
    "filter by two columns": "/stage/made?column=year&is=ge&value=2010&column=score&is=gt&value=0.99",
    "filter by a part of a text": "/stage/made?column=label&is=has&value=ss07",
    "sort by a number": "/stage/made?sort=-score",
    "group by a text": "/stage/made?group=label",
    "histogram of a number": "/stage/made?histogram=score",
    "one row of the last part": "/stage/made/row?key=row{last:09d}",
    "30 rows with pictures": "/stage/pictures",
    "map of vectors, and its colours": "/stage/vectors/map?colour=score",
    "rows within a line on it": "/stage/vectors?lasso=0.0.5000.0.5000.10000.0.10000",
    "1,000 nearest vectors": "/stage/vectors?near=vector000000",
}
"""What is asked for -> where; each of the run that its address names."""
VECTORS, WIDTH = 200_000, 64


@dataclass(frozen=True)
class Pictured:
    key: str
    image: bw.Blob


@dataclass(frozen=True)
class Placed:
    key: str
    score: float
    vector: Annotated[np.ndarray, Shape((WIDTH,), "float32")]


def rows(*, count: int) -> Iterator[pa.Table]:
    """Synthetic rows, a million at a time."""
    rng = np.random.default_rng(0)
    for start in range(0, count, 1_000_000):
        n = min(1_000_000, count - start)
        yield pa.table(
            {
                "key": pa.array([f"row{at:09d}" for at in range(start, start + n)]),
                "year": rng.integers(2004, 2015, n),
                "score": rng.random(n),
                "label": pa.array([f"class{at:03d}" for at in rng.integers(0, 100, n)]),
            }
        )


SCHEMA = pa.schema([("key", pa.string()), ("year", pa.int64()), ("score", pa.float64()), ("label", pa.string())])


def pictures(*, count: int) -> Iterator[Pictured]:
    """Noise of 256 x 256 pixels."""
    rng = np.random.default_rng(1)
    for at in range(count):
        yield Pictured(f"picture{at:04d}", bw.Blob(stored_png(rng.integers(0, 256, (256, 256, 3), dtype=np.uint8))))


def vectors(*, count: int) -> Iterator[Placed]:
    """Normal noise."""
    rng = np.random.default_rng(2)
    for at in range(count):
        yield Placed(f"vector{at:06d}", at / count, rng.normal(size=WIDTH).astype(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="100,000 rows")
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    if not given.folder and not given.quick:
        parser.error("name a folder, or give --quick")
    with tempfile.TemporaryDirectory() as temporary:
        compare(given.folder or Path(temporary), 100_000 if given.quick else given.rows)


def compare(folder: Path, count: int) -> None:
    """Make the runs where they are missing, and look at their pages."""
    made = bw.source("made", bw.step(rows, count=count), gives=SCHEMA)
    shown = bw.source("pictures", bw.step(pictures, count=1000))
    placed = bw.source("vectors", bw.step(vectors, count=min(VECTORS, count)), rows_per_part=10_000)
    flows = {"made": made, "pictures": shown, "vectors": placed}
    for name, flow in flows.items():
        run(flow, str(folder / name))
    for name in flows:
        measure(folder / name, count)


def measure(out: Path, count: int) -> None:
    """Print a line a page of a run."""
    command = [sys.executable, "-P", "-m", "benchwright.pipelines.cli.main", "view", str(out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        place = urlsplit(server.stdout.readline().strip())

        own = threading.local()

        def ask(path: str, cookie: str = "") -> tuple[str, bytes]:
            connection = getattr(own, "connection", None)  # kept, as a browser does
            if connection is None:
                connection = own.connection = http.client.HTTPConnection(place.hostname or "", place.port)
            connection.request("GET", path, headers={"cookie": cookie})
            answer = connection.getresponse()
            if answer.status not in (200, 303):
                raise RuntimeError(f"{path}: {answer.status} {answer.read()[:2000]!r}")
            return (answer.headers["set-cookie"] or "").partition(";")[0], answer.read()

        cookie, _ = ask(f"/?{place.query}")
        for name, path in PAGES.items():
            if f"/stage/{out.name}" not in path:
                continue
            path = path.format(last=count - 7)
            ask(path, cookie)
            started = time.perf_counter()
            _, page = ask(path, cookie)
            seconds = time.perf_counter() - started
            print(f"{name:<34} {seconds:6.2f} s  {memory(server.pid):7,.0f} MiB", flush=True)
        if sources := [one.replace("&amp;", "&") for one in re.findall(r'src="(/stage/[^"]+)"', page.decode())]:
            with ThreadPoolExecutor(6) as pool:  # as many as a browser asks for at once
                list(pool.map(lambda one: ask("/view.css", cookie), range(6)))
                for told in ("", ", again"):
                    started, busy = time.perf_counter(), sum(psutil.Process(server.pid).cpu_times()[:2])
                    list(pool.map(lambda one: ask(one, cookie), sources))
                    seconds = time.perf_counter() - started
                    busy = sum(psutil.Process(server.pid).cpu_times()[:2]) - busy
                    print(
                        f"{f'{len(sources)} pictures of a page{told}':<34} {seconds:6.2f} s  of the server's CPU {busy:.2f} s"
                    )
        server.terminate()


def memory(pid: int) -> float:
    """Largest resident memory of the server so far, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(peak[1]) / 1024 if peak else psutil.Process(pid).memory_info().rss / 2**20


if __name__ == "__main__":
    main()
