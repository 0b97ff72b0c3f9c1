"""Download 2,000 small images from a server on this machine: ours beside what a user would write.

The server runs in a process of its own, and each way of downloading in a fresh process, in turn, so that memory is its own.
``fetch_images`` also checks addresses, counts bytes as they arrive, and looks at what it got; the others do none of it. The
server has a name, which is looked up and its address checked like any other; that it is this machine's is let pass at the end.
The ratio is the rate against that of a bare aiohttp loop, the median over pairs that ran one after the other. What is without
the start is the difference to a call with 64 images: img2dataset starts its processes in every call.

img2dataset, which also writes shards, needs other versions of packages than we do, and runs where ``--img2dataset`` names the
interpreter of an environment that has it (``python -m venv other && other/bin/pip install img2dataset "setuptools<81"``).

    python benchmarks/bench_fetch.py [--quick] [--count 2000] [--concurrency 32] [--img2dataset other/bin/python]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib.util
import io
import json
import multiprocessing
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

HOST, ADDRESS = "images.test", "127.0.0.1"
FEW = 64
"""Number of images of a call whose time is taken for that of its start."""


def serve(port_to: Connection) -> None:
    """A small HTTP server: every path is the same JPEG, over connections that stay open."""
    from PIL import Image  # which an environment of img2dataset need not have

    pixels = np.random.default_rng(0).integers(0, 256, (75, 100, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).resize((400, 300)).save(out, "JPEG", quality=85)
    body = out.getvalue()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head + body)
                await writer.drain()
        writer.close()

    async def forever() -> None:
        server = await asyncio.start_server(answer, ADDRESS, 0, backlog=1024)
        port_to.send((server.sockets[0].getsockname()[1], len(body)))
        await server.serve_forever()

    asyncio.run(forever())


def ours(urls: list[str], concurrency: int) -> int:
    """``fetch_images`` in parts of 256, as the engine calls it. As in its processes, Python looks for garbage rarely."""
    from benchwright.curation.garbage import collect_rarely
    from benchwright.curation.rows import Rejected
    from benchwright.curation.stages import connections
    from benchwright.curation.stages.fetch import LinkedImage, fetch_images
    from benchwright.curation.stages.fetch_settings import FetchLimits, FetchPace

    collect_rarely()
    pace, limits = FetchPace(concurrency=concurrency, per_host=concurrency), FetchLimits()
    check = connections.is_public
    connections.is_public = lambda address: check(address) or address == ADDRESS
    done = 0
    for start in range(0, len(urls), 256):
        rows = [LinkedImage(str(n), url) for n, url in enumerate(urls[start : start + 256])]
        found = asyncio.run(fetch_images(rows, limits=limits, pace=pace))
        done += sum(not isinstance(item, Rejected) for item in found)
    return done


def aiohttp_client(urls: list[str], concurrency: int, *, keep: bool = False) -> int:
    """aiohttp.ClientSession with a connector's limit; ``keep``: all images of 256 rows are kept until the last one has come."""
    import aiohttp

    async def main() -> int:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:

            async def one(url: str) -> bytes | bool:
                async with session.get(url) as response:
                    response.raise_for_status()
                    body = await response.read()
                    return body if keep else bool(body)

            rows = 256 if keep else len(urls)
            parts = [urls[at : at + rows] for at in range(0, len(urls), rows)]
            return sum([sum(map(bool, await asyncio.gather(*map(one, part)))) for part in parts])

    return asyncio.run(main())


def aiohttp_rarely(urls: list[str], concurrency: int) -> int:
    """The same in a process that looks for garbage as rarely as ours."""
    from benchwright.curation.garbage import collect_rarely

    collect_rarely()
    return aiohttp_client(urls, concurrency)


def urllib_threads(urls: list[str], concurrency: int) -> int:
    """urllib in a thread pool, as img2dataset downloads."""

    def one(url: str) -> int:
        with urllib.request.urlopen(url, timeout=30) as response:
            return len(response.read()) > 0

    with ThreadPoolExecutor(concurrency) as pool:
        return sum(pool.map(one, urls))


def requests_threads(urls: list[str], concurrency: int) -> int:
    """requests.Session in a thread pool."""
    import requests  # pyright: ignore[reportMissingModuleSource]

    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=concurrency))
    with ThreadPoolExecutor(concurrency) as pool:
        return sum(pool.map(lambda url: len(session.get(url, timeout=30).content) > 0, urls))


def img2dataset_process(urls: list[str], concurrency: int) -> int:
    """img2dataset: one process, threads, no re-encoding, tar files."""
    from img2dataset import download  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "urls.txt").write_text("\n".join(urls))
        download(
            url_list=f"{folder}/urls.txt",
            output_folder=f"{folder}/out",
            output_format="webdataset",
            resize_mode="no",
            disable_all_reencoding=True,
            processes_count=1,
            thread_count=concurrency,
            number_sample_per_shard=256,
            enable_wandb=False,
        )
        stats = [json.loads(path.read_text()) for path in Path(folder).glob("out/*_stats.json")]
        return sum(each["successes"] for each in stats)


WAYS: dict[str, tuple[str, Callable[[list[str], int], int]]] = {
    "fetch_images": ("aiohttp", ours),
    "aiohttp": ("aiohttp", aiohttp_client),
    "aiohttp, rare garbage": ("aiohttp", aiohttp_rarely),
    "aiohttp, images kept": ("aiohttp", functools.partial(aiohttp_client, keep=True)),
    "img2dataset": ("img2dataset", img2dataset_process),
    "urllib in threads": ("urllib", urllib_threads),
    "requests in threads": ("requests", requests_threads),
}


def measure(way: str, port: int, count: int, concurrency: int) -> None:
    """Run one way in this process and print its figures as JSON."""
    look_up: Any = socket.getaddrinfo
    socket.getaddrinfo = lambda host, *rest, **named: look_up(ADDRESS if host == HOST else host, *rest, **named)
    host = ADDRESS if way == "img2dataset" else HOST  # it looks names up in processes of its own
    urls = [f"http://{host}:{port}/{n}.jpg" for n in range(count)]
    WAYS[way][1](urls[:FEW], concurrency)  # imports and first connections
    spent: list[tuple[float, float]] = []
    for some in (urls[:FEW], urls):
        before, started = _cpu_s(), time.perf_counter()
        done = WAYS[way][1](some, concurrency)
        spent.append((time.perf_counter() - started, _cpu_s() - before))
    (few_seconds, few_cpu), (seconds, cpu) = spent
    peak_kib = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    more = {"more_seconds": seconds - few_seconds, "more_cpu": cpu - few_cpu}
    print(json.dumps({"done": done, "seconds": seconds, "cpu": cpu, **more, "peak_mib": peak_kib / 1024}))


def _cpu_s() -> float:
    return sum(os.times()[:4])  # that of children, too


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="500 images, 1 repeat")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--img2dataset", metavar="PYTHON", help="interpreter of an environment that has img2dataset")
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    count, repeats = (500, 1) if options.quick else (options.count, 3)
    if options.measure:
        measure(options.measure[0], int(options.measure[1]), count, options.concurrency)
        return
    other = options.img2dataset
    ways = [way for way, (module, _) in WAYS.items() if (other if way == "img2dataset" else importlib.util.find_spec(module))]
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(sender,), daemon=True)
    server.start()
    port, size = receiver.recv()
    command = [__file__, "--count", str(count), "--concurrency", str(options.concurrency)]
    command += ["--quick"] if options.quick else []
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way in ways:
            python = other if way == "img2dataset" else sys.executable
            measured = [python, *command, "--measure", way, str(port)]
            printed = subprocess.run(measured, check=True, capture_output=True, text=True).stdout
            found[way].append(json.loads(printed.splitlines()[-1]))
    server.terminate()
    print(f"{count:,} images of {size / 1000:.0f} kB, {options.concurrency} at a time, median of {repeats}")
    columns = f"{'images/s':>10}{'ratio':>8}{'CPU ms/image':>14}{'without start':>15}{'CPU':>7}{'peak MiB':>10}{'done':>8}"
    print(f"{'':<22}{columns}")
    medians = {way: statistics.median(item["seconds"] for item in items) for way, items in found.items()}
    for way, items in found.items():
        cpu, more_s, more_cpu = (statistics.median(one[name] for one in items) for name in ("cpu", "more_seconds", "more_cpu"))
        more = f"{(count - FEW) / more_s:>15,.0f}{1000 * more_cpu / (count - FEW):>7.2f}"
        peak, done = max(item["peak_mib"] for item in items), min(item["done"] for item in items)
        ratio = statistics.median(bare["seconds"] / item["seconds"] for bare, item in zip(found["aiohttp"], items, strict=True))
        whole = f"{count / medians[way]:>10,.0f}{ratio:>8.2f}{1000 * cpu / count:>14.2f}"
        print(f"{way:<22}{whole}{more}{peak:>10.0f}{done:>8,.0f}")
    print(f"ratio: rate against aiohttp's, median of {repeats} pairs; load of the machine {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
