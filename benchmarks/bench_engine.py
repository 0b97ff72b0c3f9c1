"""What the engine adds to the bare functions: milliseconds a part, and memory against the number of rows.

The same steps run as plain loops over plain files, and through the engine, in turn, in one process; the payload step is given
real work (a JPEG decode and a resize), so the share of wall time means something.

    python benchmarks/bench_engine.py [--quick]
"""

from __future__ import annotations

import argparse
import io
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import where
from benchwright.curation.rows import Blob
from benchwright.curation.run import run
from PIL import Image


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


def _bare(folder: Path, copies: int, out: Path) -> None:
    """What a user would write: read, work, write one file a photo."""
    out.mkdir()
    for copy in range(copies):
        for path in sorted(folder.glob("*.jpg")):
            (out / f"{path.stem}-{copy}.jpg").write_bytes(_halved(path.read_bytes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    options = parser.parse_args()
    repeats, copies = (3, 4) if options.quick else (7, 10)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "photos"
        folder.mkdir()
        _make_photos(folder, 100)
        bare: list[float] = []
        engine: list[float] = []
        for repeat in range(repeats):
            started = time.perf_counter()
            _bare(folder, copies, Path(scratch) / f"bare{repeat}")
            bare.append(time.perf_counter() - started)
            started = time.perf_counter()
            run(_plan(folder, copies, halve, 50), f"{scratch}/engine{repeat}", scheduler="sync")
            engine.append(time.perf_counter() - started)
        low, high = statistics.median(bare), statistics.median(engine)
        print(f"{100 * copies} photos, decode + halve + encode, one thread, median of {repeats}")
        print(f"  plain loop, a file a photo   {low:7.3f} s")
        print(f"  engine, 50 rows a part       {high:7.3f} s   ratio {high / low:.3f} (with digests, fsync and records)")
        per_part: list[float] = []
        for repeat in range(repeats):
            seconds: list[float] = []
            for name, rows_per_part in (("few", 1000), ("many", 5)):
                out = f"{scratch}/{name}{repeat}"
                started, cpu = time.perf_counter(), time.process_time()
                run(_plan(folder, 10, nothing, rows_per_part), out, scheduler="sync")
                seconds += [time.perf_counter() - started, time.process_time() - cpu]
            per_part.append((seconds[2] - seconds[0]) / 199 * 1000)
        print(
            f"  one more part costs          {statistics.median(per_part):7.2f} ms   (199 parts more for the same 1,000 rows)"
        )
        peaks: list[int] = []
        for copies_now in (1, 10, 30 if options.quick else 100):
            run(_plan(folder, copies_now, nothing, 100), f"{scratch}/memory{copies_now}", scheduler="sync")
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        print(f"  peak memory after 100, 1,000 and {'3,000' if options.quick else '10,000'} rows: {peaks} MB")


if __name__ == "__main__":
    main()
