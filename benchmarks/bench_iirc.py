"""Memory and CPU time of building IIRC's table over N, 2 N and 4 N pictures, each in a process of its own.

    python benchmarks/bench_iirc.py [--rows 12500] [--quick]

``archive`` reads a CIFAR-100 archive of random pixels, picture by picture, and assigns; ``listing`` assigns rows that name
pictures, as a listing of ImageNet's folders does (ten times as many). ``compare_iirc.py`` has the authors' package beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchwright.datasets.class_images.cifar import read_cifar
from benchwright.datasets.iirc.assign import Shares, assign
from benchwright.datasets.iirc.hierarchy import Hierarchy
from benchwright.datasets.iirc.tasks import DrawnTasks
from benchwright.datasets.iirc.view import RefinedView

NAMES = [f"class{number:03}" for number in range(100)]
TREE = Hierarchy(tuple((f"top{n:02}", tuple(NAMES[5 * n : 5 * n + 5])) for n in range(15)), tuple(NAMES[75:]))
COLUMNS = ("key", "split", "class_name", "file")


class Held:
    """A table where a step wants rows."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def table(self, columns: Any = None) -> Any:
        return self._table


def archive(folder: Path, rows: int) -> None:
    """The archive as a folder: random pixels."""
    for name, count in (("train", rows), ("test", 100)):
        labels = (np.arange(count) % len(NAMES)).tolist()
        data = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
        content = {b"data": data, b"fine_labels": labels}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [name.encode() for name in NAMES]}, protocol=4))


def listed(kind: str, rows: int, root: str) -> Iterator[tuple[str, str, str, str]]:
    """Columns of each picture; its pixels go as soon as it has been read, as a stage writes them out."""
    if kind == "archive":
        for piece in ("train", "test"):
            for one in read_cifar(piece, root=root):
                yield one.key, one.split, one.class_name, one.file
        return
    for number in range(10 * rows):
        name = NAMES[number % len(NAMES)]
        split = "test" if number < len(NAMES) else "train"
        yield f"{name}-{number:08}", split, name, f"{split}/{name}/{name}_{number:08}.JPEG"


def build(kind: str, rows: int, root: str) -> dict[str, float]:
    """CPU seconds and peak memory, and that of the process before."""
    before, begun = peak_mib(), time.process_time()
    pictures = listed(kind, rows, root)
    parts: list[pa.Table] = []  # as a stage leaves them: no list of all texts is ever held
    while part := list(itertools.islice(pictures, 10_000)):
        columns = zip(*part, strict=True)
        parts.append(pa.table({name: pa.array(column, pa.string()) for name, column in zip(COLUMNS, columns, strict=True)}))
    table = pa.concat_tables(parts)
    shares = Shares(in_task=0.1, post_task=0.1, superclass=0.4, subclass=0.8, cap=8)
    made = assign(
        Held(table),  # type: ignore[arg-type]
        hierarchy=TREE,
        shares=shares,
        tasks=DrawnTasks(10, 5, 0),
        configurations=[0],
    ).kept
    view = RefinedView(made, 0)
    given = sum(len(view.training(task).rows) for task in range(len(view.tasks)))
    return {"rows": len(made), "given": given, "seconds": time.process_time() - begun, "start": before, "peak": peak_mib()}


def peak_mib() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


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
