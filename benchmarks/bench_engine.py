"""What the engine adds to the bare functions: milliseconds a part, and memory against the number of rows.

The same steps run as plain loops over plain files, and through the engine, in turn, in one process; the payload step is given
real work (a JPEG decode and a resize), so the share of wall time means something. A plain loop that syncs no file may lose all
of them with the power; one that does is told beside it. Before each, what others left for the disk is written: the engine waits
for its own files, and would wait for those, too.

    python benchmarks/bench_engine.py [--quick]
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchwright.curation.cost import peak_bytes_of_all
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import where
from benchwright.curation.rows import Blob
from benchwright.curation.run import run
from PIL import Image

WORKERS = 2


@dataclass(frozen=True)
class Photo:
    key: str
    image: Blob


def read_photos(*, folder: str, copies: int) -> Iterator[Photo]:
    """Every file of the folder, ``copies`` times."""
    for copy in range(copies):
        for path in sorted(Path(folder).glob("*.jpg")):
            yield Photo(f"{path.stem}-{copy}", Blob(path.read_bytes()))


def halve(row: Photo) -> Photo:
    """Decode, halve and encode again: about 5 ms."""
    return Photo(row.key, Blob(_halved(row.image.read())))


def nothing(row: Photo) -> Photo:
    """Carry the row: all that is left is the engine."""
    return row


def _halved(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB").resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=90)
    return out.getvalue()


def _make_photos(folder: Path, count: int) -> None:
    generator = np.random.default_rng(0)
    for index in range(count):
        base = generator.integers(0, 255, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(base).resize((480, 360), Image.Resampling.BICUBIC).save(folder / f"{index:04d}.jpg", quality=90)


def _plan(folder: Path, copies: int, work: Callable[[Photo], Photo], rows_per_part: int) -> Flow:
    # A source that is not split holds the rows of a part until they are written: few, as each brings a payload.
    listed = source("listed", step(read_photos, folder=where(folder), copies=copies), rows_per_part=250)
    return listed.each("worked", step(work), rows_per_part=rows_per_part)


def _files(folder: Path, copies: int, out: Path) -> list[tuple[Path, Path]]:
    """Every photo with the file that is made of it."""
    out.mkdir()
    return [(path, out / f"{path.stem}-{copy}.jpg") for copy in range(copies) for path in sorted(folder.glob("*.jpg"))]


def _halve_file(paths: tuple[Path, Path]) -> None:
    """What a user would write: read, work, write one file a photo."""
    paths[1].write_bytes(_halved(paths[0].read_bytes()))


def _halve_file_synced(paths: tuple[Path, Path]) -> None:
    """The same, so that a loss of power leaves each file whole or not there."""
    beside = paths[1].with_suffix(".tmp")
    with beside.open("wb") as stream:
        stream.write(_halved(paths[0].read_bytes()))
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(paths[1])


def _loop(files: list[tuple[Path, Path]]) -> None:
    for paths in files:
        _halve_file(paths)


def _loop_synced(files: list[tuple[Path, Path]]) -> None:
    for paths in files:
        _halve_file_synced(paths)


def _threads(files: list[tuple[Path, Path]]) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(_halve_file, files))


def _processes(files: list[tuple[Path, Path]]) -> None:
    with ProcessPoolExecutor(WORKERS) as pool:  # which forks this process, up to Python 3.13
        list(pool.map(_halve_file, files, chunksize=50))


COMPARED: list[tuple[str, Callable[[list[tuple[Path, Path]]], None], str, str]] = [
    ("plain loop, a file a photo", _loop, "sync", "with digests, fsync and records"),
    ("plain loop that syncs, too", _loop_synced, "sync", "fsync and rename of each file in the loop"),
    (f"ThreadPoolExecutor({WORKERS})", _threads, "threads", "no fsync in the plain one"),
    (f"ProcessPoolExecutor({WORKERS})", _processes, "processes", "no fsync in the plain one; both begin their processes"),
]


def _compare(folder: Path, copies: int, repeats: int, scratch: Path) -> None:
    """Each plain loop and the engine with its scheduler in turn: medians, and that of the ratios of pairs."""
    for number, (name, plain, scheduler, told) in enumerate(COMPARED):
        pairs: list[tuple[float, float]] = []
        for repeat in range(repeats):
            where = scratch / f"{number}-{repeat}"
            where.mkdir()
            os.sync()
            started = time.perf_counter()
            plain(_files(folder, copies, where / "plain"))
            between = time.perf_counter()
            os.sync()
            begun = time.perf_counter()
            run(_plan(folder, copies, halve, 50), f"{where}/engine", scheduler=scheduler, workers=WORKERS)
            pairs.append((between - started, time.perf_counter() - begun))
            shutil.rmtree(where)
        low, high = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"  {name:<28} {low:7.3f} s")
        ratio = f"ratio {high / low:.3f}, of pairs {statistics.median(b / a for a, b in pairs):.3f}"
        print(f"  engine, 50 rows a part, {scheduler:<9} {high:7.3f} s   {ratio} ({told})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    options = parser.parse_args()
    repeats, copies = (3, 4) if options.quick else (7, 10)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "photos"
        folder.mkdir()
        _make_photos(folder, 100)
        print(f"{100 * copies} photos, decode + halve + encode, median of {repeats}")
        _compare(folder, copies, repeats, Path(scratch))
        per_part: list[float] = []
        per_part_cpu: list[float] = []
        for repeat in range(repeats):
            seconds: list[float] = []
            for name, rows_per_part in (("few", 1000), ("many", 5)):
                out = f"{scratch}/{name}{repeat}"
                os.sync()
                started, cpu = time.perf_counter(), time.process_time()
                run(_plan(folder, 10, nothing, rows_per_part), out, scheduler="sync")
                seconds += [time.perf_counter() - started, time.process_time() - cpu]
            per_part.append((seconds[2] - seconds[0]) / 199 * 1000)
            per_part_cpu.append((seconds[3] - seconds[1]) / 199 * 1000)
        wall, cpu = statistics.median(per_part), statistics.median(per_part_cpu)
        print(f"  one more part costs          {wall:7.2f} ms, {cpu:.2f} ms of CPU   (199 parts more for the same 1,000 rows)")
        peaks: list[int] = []
        for copies_now in (1, 10, 30 if options.quick else 100):
            run(_plan(folder, copies_now, nothing, 100), f"{scratch}/memory{copies_now}", scheduler="sync")
            peaks.append(peak_bytes_of_all() >> 20)
        print(f"  peak memory after 100, 1,000 and {'3,000' if options.quick else '10,000'} rows: {peaks} MB")


if __name__ == "__main__":
    main()
