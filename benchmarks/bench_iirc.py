"""Memory and CPU time of building IIRC's table over N, 2 N and 4 N pictures, each in a process of its own.

    python benchmarks/bench_iirc.py [--rows 12500] [--quick]

Through the engine, in parts on disk. ``archive`` reads a CIFAR-100 archive of random pixels, picture by picture, and assigns;
``listing`` assigns rows that name pictures, as a listing of ImageNet's folders does (ten times as many). ``compare_iirc.py``
has the authors' package beside it.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchwright.curation.cost import peak_bytes_of_all
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import where
from benchwright.curation.run import run
from benchwright.datasets.class_images.cifar import read_archive
from benchwright.datasets.iirc.assign import Shares, assign, assigned_row
from benchwright.datasets.iirc.hierarchy import Hierarchy
from benchwright.datasets.iirc.tasks import DrawnTasks

NAMES = [f"class{number:03}" for number in range(100)]
TREE = Hierarchy(tuple((f"top{n:02}", tuple(NAMES[5 * n : 5 * n + 5])) for n in range(15)), tuple(NAMES[75:]))
STRETCH = 50_000


class Held:
    """Tables, as parts of a stage lie, where a step wants rows."""

    def __init__(self, parts: Sequence[pa.Table]) -> None:
        self._parts = list(parts)
        self.num_rows = sum(part.num_rows for part in self._parts)
        self.schema = self._parts[0].schema

    def repetitive(self) -> list[str]:
        return []

    def batches(self, columns: Any = None, *, encoded: Any = ()) -> Iterator[pa.Table]:
        for part in self._parts:
            yield part if columns is None else part.select(list(columns))


def archive(folder: Path, rows: int) -> None:
    """The archive as a folder: random pixels."""
    for name, count in (("train", rows), ("test", 100)):
        labels = (np.arange(count) % len(NAMES)).tolist()
        data = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
        content = {b"data": data, b"fine_labels": labels}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [name.encode() for name in NAMES]}, protocol=4))


@dataclass(frozen=True)
class Listed:
    """What a listing of class folders knows of a picture."""

    key: str
    split: str
    class_name: str
    file: str


def stretches(*, rows: int) -> Iterator[str]:
    """Pieces of a listing."""
    for start in range(0, rows, STRETCH):
        yield f"{start} {min(start + STRETCH, rows)}"


def list_pictures(piece: str, *, rows: int) -> Iterator[Listed]:
    """Pictures as folders of ImageNet's shape name them."""
    for number in range(*map(int, piece.split())):
        name = NAMES[number % len(NAMES)]
        split = "test" if number < len(NAMES) else "train"
        yield Listed(f"{name}-{number:08}", split, name, f"{split}/{name}/{name}_{number:08}.JPEG")


def flow(kind: str, rows: int, root: str) -> Flow:
    """From the source to the assigned rows, with pixels kept as a run keeps them."""
    if kind == "archive":
        found = source("found", step(read_archive, root=where(root)), rows_per_part=2_500)
    else:
        found = source("found", step(list_pictures, rows=10 * rows), pieces=step(stretches, rows=10 * rows))
    shares = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8)
    assigning = step(assign, hierarchy=TREE, shares=shares, tasks=DrawnTasks(10, 5, 0), configurations=[0])
    return found.whole("assigned", assigning, gives=assigned_row((0,)))


def build(kind: str, rows: int, root: str) -> dict[str, float]:
    """CPU seconds and peak memory, and that of the process before."""
    before, begun = peak_mib(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        count = run(flow(kind, rows, root), folder, scheduler="sync").result.rows
    return {"rows": count, "seconds": time.process_time() - begun, "start": before, "peak": peak_mib()}


def peak_mib() -> float:
    return peak_bytes_of_all() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12_500, help="N")
    parser.add_argument("--quick", action="store_true", help="a tenth of N")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        json.dump(build(options.one[0], int(options.one[1]), options.one[2]), sys.stdout)
        return
    rows = options.rows // 10 if options.quick else options.rows
    for kind in ("archive", "listing"):
        for times in (1, 2, 4):
            with tempfile.TemporaryDirectory() as name:
                if kind == "archive":
                    archive(Path(name), times * rows)
                command = [sys.executable, __file__, "--one", kind, str(times * rows), name]
                told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout)
            print(
                f"{kind}: {told['rows']:,} pictures: {told['seconds']:.2f} s of CPU, peak {told['peak']:.0f} MiB, "
                f"{told['peak'] - told['start']:.0f} above the process's start",
                flush=True,
            )


if __name__ == "__main__":
    main()
